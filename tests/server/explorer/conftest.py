"""An explorer in the test's own process, over a store that the test fills."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from html import unescape
from typing import Any

import httpx
import pytest

from keyplan.engine import Engine, MemoryEngine
from keyplan.server import Access, Application, Role, Token, service_builders
from keyplan.server.confined import CallerStore
from keyplan.server.explorer.areas import Areas, SeenKeySpaces
from keyplan.server.explorer.layouts import LayoutBook
from keyplan.store import Store
from tests.server.explorer.shop import NAME, Item, ItemKey, Shop

TOKEN = "an-admin-token-of-a-test"


class Explorer:
    """Asks one explorer, as somebody on this machine unless an address is given."""

    def __init__(
        self, engine: Engine, runner: asyncio.Runner, settings: Mapping[str, str], access: Access | None = None
    ) -> None:
        access = Access([Token.of_text(Role.ADMIN, "ada", TOKEN)]) if access is None else access
        whole = {"keyspaces.sweep": "off", **{f"explorer.{name}": value for name, value in settings.items()}}
        self.application = Application.build(engine, service_builders(["explorer"]), access=access, settings=whole)
        self._runner = runner

    def get(self, path: str, *, client: str = "127.0.0.1", method: str = "GET", **headers: str) -> httpx.Response:
        transport = httpx.ASGITransport(self.application.asgi, client=(client, 50_000))
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        session = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8210", headers=sent)
        return self._runner.run(session.request(method, path))

    def page(self, path: str) -> str:
        """A page that is there."""
        answer = self.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        return answer.text

    def data(self, path: str) -> Any:
        """Its JSON twin."""
        answer = self.get(path, accept="application/json")
        assert answer.status_code == 200, (path, answer.text)
        assert answer.headers["content-type"] == "application/json"
        return answer.json()

    def crawl(self, start: str = "/explore/", *, pages_max: int = 400) -> dict[str, str]:
        """All pages that links lead to from here. Each is there, and so is its JSON twin."""
        pages: dict[str, str] = {}
        waiting = [start]
        while waiting and len(pages) < pages_max:
            path = waiting.pop()
            if path in pages or "/changes" in path:
                continue
            answer = self.get(path)
            assert answer.status_code in {200, 303, 307}, (path, answer.status_code, answer.text)
            pages[path] = answer.text
            waiting += [href for href in links_of(answer.text) if href not in pages]
        return pages


def links_of(page: str) -> list[str]:
    """Where a page's links lead on this server."""
    found = [unescape(href).partition("#")[0] for href in re.findall(r'href="([^"]*)"', page)]
    assert all(href.startswith("/explore") for href in found if href)
    return [href for href in found if href]


@pytest.fixture
def engine() -> Iterator[Engine]:
    with MemoryEngine() as opened:
        yield opened


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as started:
        yield started


@pytest.fixture
def explore(runner: asyncio.Runner) -> Iterator[Callable[..., Explorer]]:
    """Make an explorer of an engine, with these settings."""
    made: list[Explorer] = []

    def make(engine: Engine, *, access: Access | None = None, **settings: str) -> Explorer:
        given = {name.replace("__", "."): value for name, value in settings.items()}
        made.append(Explorer(engine, runner, given, access))
        return made[-1]

    yield make
    for one in made:
        one.application.workers.close()


@pytest.fixture
def shop(engine: Engine) -> Shop:
    """A filled shop."""
    shop = Shop(Store(engine))
    shop.items.insert(ItemKey("a", "1"), Item("Ada's notes", "red"))
    shop.items.insert(ItemKey("a", "2"), Item("Bolts", "red"))
    shop.items.insert(ItemKey("b", "1"), Item("Cable"))
    shop.sign.insert((), "open")  # type: ignore[arg-type] # the key without fields is the empty tuple
    shop.orders.next()
    return shop


@pytest.fixture
def explorer(explore: Callable[..., Explorer], engine: Engine, shop: Shop) -> Explorer:
    """An explorer of the filled shop."""
    return explore(engine, layout=NAME)


def areas_of_all(engine: Engine, book: LayoutBook) -> Areas:
    """The areas of a store as somebody sees it who may see everything."""
    return Areas(CallerStore.of_all(engine), SeenKeySpaces(engine, lambda _name, _application: True), book)
