"""A registry behind HTTP in the test's own process: fresh for each test, with an administrator and a client."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx
import pytest

from keyplan.engine import Engine, open_engine
from keyplan.keyspace import KeySpaceRegistry
from keyplan.server import Access, Application, Role, Token, service_builders
from keyplan.store import Store
from keyplan.testing.checked import assert_healthy

ADMIN_TOKEN = "an-admin-token-of-a-test"


class Ask(Protocol):
    """One request; `json` is its body."""

    def __call__(self, method: str, path: str, json: Any = None, **options: Any) -> httpx.Response: ...


@dataclass
class ManualClock:
    """A clock that stands still until it is told."""

    seconds: float = 1_795_225_800.0  # 2026-11-21T01:50:00Z
    _origin: float = field(default=1_795_225_800.0, repr=False)

    hurries_by: float = 0.0
    """How far it goes on with every look at its monotonic time."""

    def monotonic(self) -> float:
        self.seconds += self.hurries_by
        return self.seconds - self._origin

    def wall(self) -> float:
        return self.seconds

    def epoch(self) -> bytes:
        return b"test"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine() -> Iterator[Engine]:
    with open_engine("memory:") as opened:
        yield opened
        assert_healthy(Store(opened), KeySpaceRegistry, has_others=True)


@pytest.fixture
def application(engine: Engine, clock: ManualClock) -> Iterator[Application]:
    access = Access([Token.of_text(Role.ADMIN, "ada", ADMIN_TOKEN)])
    settings = {"keyspaces.sweep": "off"}
    built = Application.build(engine, service_builders(()), access=access, settings=settings, clock=clock)
    yield built
    built.workers.close()


@pytest.fixture
def admin(application: Application, runner: asyncio.Runner) -> Ask:
    """An administrator."""
    return _asking(application, runner, {"Authorization": f"Bearer {ADMIN_TOKEN}"})


@pytest.fixture
def shop(application: Application, runner: asyncio.Runner, admin: Ask) -> Ask:
    """An application, after the registry was opened to applications."""
    assert admin("PATCH", "/config", {"keyspace-api-enabled": True}).status_code == 200
    return _asking(application, runner, {})


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as started:
        yield started


def _asking(application: Application, runner: asyncio.Runner, headers: dict[str, str]) -> Ask:
    transport = httpx.ASGITransport(application.asgi, client=("127.0.0.1", 50_000))
    client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers)

    def ask(method: str, path: str, json: Any = None, **options: Any) -> httpx.Response:
        return runner.run(client.request(method, path, json=json, **options))

    return ask
