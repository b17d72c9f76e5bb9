"""All routes of a server as one, which asks those few that a request can be for."""

from collections.abc import Iterable
from typing import TypeAlias

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

__all__ = ["Elsewhere", "RouteIndex"]

_Beginning: TypeAlias = tuple[str | None, str | None]
"""The first two parts of a path, in small letters; None: any."""

_ANY: _Beginning = (None, None)


class RouteIndex(BaseRoute):
    """Routes in their order: the first that fits the path and the method, else the first that fits the path.

    Most are not asked: with which two parts the paths of a route begin, its template (`path`) says. Invariant: a route fits no
    path that begins otherwise, but for the case of ASCII letters. One without a template is asked about every path.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self.routes = tuple(routes)
        beginnings = [_beginning_of(route) for route in self.routes]
        known = {_ANY, *beginnings, *((first, None) for first, _ in beginnings)}
        self._by_beginning = {
            asked: tuple(route for route, own in zip(self.routes, beginnings, strict=True) if _fits(own, asked))
            for asked in known
        }

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Tell whether the request is for one of the routes, and for which."""
        found: tuple[Match, Scope] = (Match.NONE, {})
        for route in self._routes_for(scope):
            match, child = route.matches(scope)
            if match is Match.FULL:
                return match, {**child, "route": route}
            if match is Match.PARTIAL and found[0] is Match.NONE:
                found = match, {**child, "route": route}
        return found

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the route that was found answer."""
        await scope["route"].handle(scope, receive, send)

    def _routes_for(self, scope: Scope) -> tuple[BaseRoute, ...]:
        path: str = scope["path"]
        # Why all: other letters have several small ones, and what stands before a path's own beginning is not known here.
        if not path.isascii() or scope.get("root_path"):
            return self.routes
        first, second = _parts_of(path)
        by_beginning = self._by_beginning
        return by_beginning.get((first, second)) or by_beginning.get((first, None)) or by_beginning[_ANY]


class Elsewhere(BaseRoute):
    """Every path that no route of an index is for. It is asked about, and answers nothing."""

    def __init__(self, index: RouteIndex) -> None:
        self._index = index

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Tell whether a request is for none of the routes."""
        return (Match.FULL if self._index.matches(scope)[0] is Match.NONE else Match.NONE), {}


def _fits(own: _Beginning, asked: _Beginning) -> bool:
    return all(part is None or part == other for part, other in zip(own, asked, strict=True))


def _beginning_of(route: BaseRoute) -> _Beginning:
    template: str = getattr(route, "path", "")
    if not template:
        return _ANY
    first, second = (None if "{" in part else part for part in _parts_of(template))
    return (first, None if first is None else second)


def _parts_of(path: str) -> tuple[str, str]:
    _, first, second, *_ = (*path.lower().split("/", 3), "", "")
    return first, second
