"""Routes that are asked by the beginning of a path answer as if all of them were asked, one after the other."""

import asyncio
import re
from collections.abc import Iterable
from itertools import product
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from keyplan.server.route_index import RouteIndex

PARTS: Final = ("s", "b", "{x}", "{x:path}", "")
PATH_PARTS: Final = ("s", "S", "b", "B", "c", "", "s%2Fb", "\u017f", "{x}")  # the long s is an s in another case
TEMPLATES: Final = [
    "/" + "/".join(parts)
    for length in (1, 2, 3)
    for parts in product(PARTS, repeat=length)
    if sum("{" in part for part in parts) <= 1
]
METHODS: Final = ("GET", "POST")


class AnyCaseRoute(Route):
    """A route whose path may be written in any case."""

    def __init__(self, path: str, **given: Any) -> None:
        super().__init__(path, _answer, **given)
        self.path_regex = re.compile(self.path_regex.pattern, re.IGNORECASE)


class PlainRoute(BaseRoute):
    """A route without a template."""

    def __init__(self, beginning: str) -> None:
        self.beginning = beginning

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_it: bool = scope["path"].startswith(self.beginning)
        return (Match.FULL if is_it else Match.NONE), {}


async def _answer(request: Request) -> PlainTextResponse:
    return PlainTextResponse(request.url.path)


def routes() -> st.SearchStrategy[BaseRoute]:
    paths = st.sampled_from(TEMPLATES)
    methods = st.lists(st.sampled_from(METHODS), min_size=1, unique=True)
    plain = st.builds(lambda path, methods: Route(path, _answer, methods=methods), paths, methods)
    any_case = st.builds(lambda path, methods: AnyCaseRoute(path, methods=methods), paths, methods)
    return st.one_of(plain, any_case, st.sampled_from(["/s", "/b/"]).map(PlainRoute))


def scopes() -> st.SearchStrategy[Scope]:
    paths = st.lists(st.sampled_from(PATH_PARTS), min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
    root_paths = st.sampled_from(["", "", "/s"])
    return st.builds(
        lambda path, method, root: {"type": "http", "path": path, "method": method, "root_path": root},
        paths,
        st.sampled_from(METHODS),
        root_paths,
    )


def one_after_the_other(routes: Iterable[BaseRoute], scope: Scope) -> tuple[Match, BaseRoute | None, Any]:
    """Which route Starlette's own router takes."""
    partial: tuple[Match, BaseRoute | None, Any] = (Match.NONE, None, None)
    for route in routes:
        match, child = route.matches(scope)
        if match is Match.FULL:
            return match, route, child.get("path_params")
        if match is Match.PARTIAL and partial[1] is None:
            partial = match, route, child.get("path_params")
    return partial


@given(st.lists(routes(), max_size=8), scopes())
def test_the_route_is_the_one_that_is_found_by_asking_all(all_routes: list[BaseRoute], scope: Scope) -> None:
    match, child = RouteIndex(all_routes).matches(scope)
    assert (match, child.get("route"), child.get("path_params")) == one_after_the_other(all_routes, scope)


@pytest.mark.parametrize(
    ("path", "root_path"),
    [
        pytest.param("/S/B", "", id="capitals"),
        pytest.param("/\u017f/b", "", id="a letter with two capitals"),
        pytest.param("/c/s/b", "/c", id="below the server's own beginning"),
    ],
)
def test_a_route_that_fits_in_another_way_is_asked_too(path: str, root_path: str) -> None:
    route = AnyCaseRoute("/s/b", methods=["GET"])
    scope: Scope = {"type": "http", "path": path, "method": "GET", "root_path": root_path}
    match, child = RouteIndex([Route("/c", _answer), route]).matches(scope)
    assert (match, child.get("route")) == (Match.FULL, route)


@pytest.mark.parametrize("path", ["/v3/kv/range", "/keyspaces", "/keyspaces/a/", "/KEYSPACES", "/health", "/", "/x"])
def test_few_routes_are_asked(path: str) -> None:
    asked: list[str] = []

    class Asked(Route):
        def matches(self, scope: Scope) -> tuple[Match, Scope]:
            asked.append(self.path)
            return super().matches(scope)

    index = RouteIndex(
        Asked(f"/{one}/{other}", _answer)
        for one, other in product(("v3", "keyspaces", "api"), ("kv/range", "lease", "{id}"))
    )
    index.matches({"type": "http", "path": path, "method": "GET", "root_path": ""})
    assert len(asked) <= 2


async def _sent(route: BaseRoute, scope: Scope) -> list[Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    receiving: Receive = receive
    sending: Send = send
    await route.handle(scope, receiving, sending)
    return sent


def test_the_route_that_was_found_answers() -> None:
    scope: Scope = {
        "type": "http",
        "path": "/b/1",
        "method": "GET",
        "root_path": "",
        "headers": [],
        "query_string": b"",
    }
    index = RouteIndex([Route("/a/{x}", _answer), Route("/b/{x}", _answer)])
    _, child = index.matches(scope)
    sent = asyncio.run(_sent(index, {**scope, **child}))
    assert sent[-1]["body"] == b"/b/1"
