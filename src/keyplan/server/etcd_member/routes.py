"""Routes as etcd's own server answers them: which methods there are, what an unknown path is told, `/version`.

Whatever the path, OPTIONS is answered with 200. etcd lets the pages of every site look (`Access-Control-Allow-Origin: *`); here
no page of another site may, because a request from this machine needs no token.
"""

import posixpath
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from typing import Final
from urllib.parse import quote

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from keyplan.server.access import caller_of
from keyplan.server.etcd_member.identity import CLUSTER_VERSION, SERVER_VERSION

__all__ = [
    "CORS_HEADERS",
    "EtcdRoute",
    "answer_unknown",
    "cleaned_path",
    "has_caller",
    "not_found_route",
    "redirect_to",
    "version_route",
]

CORS_HEADERS: Final = (
    (b"Access-Control-Allow-Headers", b"accept, content-type, authorization"),
    (b"Access-Control-Allow-Methods", b"POST, GET, OPTIONS, PUT, DELETE"),
)
_CORS: Final = {name.decode(): value.decode() for name, value in CORS_HEADERS}
_NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}

_VERSION: Final = msgspec.json.encode(
    {"etcdserver": SERVER_VERSION, "etcdcluster": CLUSTER_VERSION, "program": "keyplan", "version": version("keyplan")}
)

Endpoint = Callable[[Request], Awaitable[Response]]


class EtcdRoute(Route):
    """A path whose methods are etcd's: OPTIONS is answered with 200, any other with 405 in etcd's words.

    `methods` in the order in which etcd names them. With `needs_caller`, who is not known to the server is refused.
    """

    def __init__(
        self, path: str, endpoint: Endpoint, *, methods: Sequence[str] = ("GET",), needs_caller: bool = False
    ) -> None:
        super().__init__(path, endpoint)
        self._allowed = tuple(methods)
        self._needs_caller = needs_caller

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the path, whatever the method."""
        match, child_scope = super().matches(scope)
        return (Match.NONE if match is Match.NONE else Match.FULL), child_scope

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["method"] == "OPTIONS":
            await Response(headers=_CORS)(scope, receive, send)
        elif scope["method"] not in self._allowed:
            headers = {**_CORS, **_NOSNIFF, "Allow": ",".join(self._allowed)}
            await Response("Method Not Allowed\n", 405, headers, "text/plain")(scope, receive, send)
        elif self._needs_caller and not has_caller(scope):
            body = b'{"message":"Insufficient credentials"}'
            await Response(body, 401, _CORS, "application/json")(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def has_caller(scope: Scope) -> bool:
    """Tell whether the server knows who asks."""
    return caller_of(HTTPConnection(scope)) is not None


def version_route() -> Route:
    """Return the route by which clients find out what they talk to.

    Why not the shell's answer: Patroni looks for `etcdserver` and `etcdcluster`. Trap: it sends a body with its GET.
    """
    return EtcdRoute("/version", _tell_version, methods=("GET", "HEAD"))


async def _tell_version(_request: Request) -> Response:
    return Response(_VERSION, media_type="application/json", headers=_CORS)


def not_found_route(path: str, text: str = "404 page not found\n") -> Route:
    """Return the route of what etcd has nothing at."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await _not_found(text, scope, receive, send)

    return Route(path, _Application(answer))


async def answer_unknown(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request for a path that the server has nothing at; one that is not clean is led to the clean one."""
    path: str = scope["path"]
    if path.startswith("/") and scope["method"] != "OPTIONS" and (cleaned := cleaned_path(path)) != path:
        await redirect_to(cleaned, scope, receive, send)
    else:
        await _not_found("404 page not found\n", scope, receive, send)


async def _not_found(text: str, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["method"] == "OPTIONS":
        answer = Response(headers=_CORS)
    else:
        answer = Response(text, 404, {**_CORS, **_NOSNIFF}, "text/plain")
    await answer(scope, receive, send)


class _Application:
    """An ASGI application as an object: Starlette takes a function for one that wants a Request."""

    def __init__(self, answer: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send)


# ---- paths that are not clean -----------------------------------------------------------------------------------------


def cleaned_path(path: str) -> str:
    """Return the path as etcd wants it asked for: without empty segments and dots; a slash at the end may stay."""
    if "//" not in path and "/." not in path:
        return path
    cleaned = posixpath.normpath("/" + path.lstrip("/"))
    return cleaned + "/" if path.endswith("/") and cleaned != "/" else cleaned


async def redirect_to(cleaned: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Lead a client to the clean path, as etcd does."""
    location = quote(cleaned, safe="/:@!$&'()*+,;=~-._")
    if scope["query_string"]:
        location += "?" + scope["query_string"].decode("latin-1")
    shown = location.replace("&", "&amp;").replace('"', "&#34;").replace("<", "&lt;").replace(">", "&gt;")
    body = f'<a href="{shown}">Moved Permanently</a>.\n\n' if scope["method"] == "GET" else ""
    media_type = "text/html" if scope["method"] in {"GET", "HEAD"} else None
    await Response(body, 301, {**_CORS, "Location": location}, media_type)(scope, receive, send)
