"""gRPC as one more front of a service's routes: a call is a POST to its path, and comes through the gate as every request does.

A service has RpcRoutes beside its routes of HTTP, and says where they are listened for (`Service.rpc`). A request's body is
the call's message, and an answer's parts are its messages; the status stands in headers, or behind the parts in trailers, as
gRPC itself has it over HTTP/2. So callers, guesses, bounds, what is held, lines and figures are those of every other request,
and nobody can forget one of them. What speaks gRPC is `grpc_listener.py`, which alone needs the package for it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from keyplan.errors import InvalidInputError
from keyplan.grpc_status import GrpcStatus
from keyplan.server.bounds import EdgeBounds
from keyplan.server.closing import Closing
from keyplan.server.connections import Connections

__all__ = [
    "RPC_CALL",
    "RPC_MESSAGE",
    "RPC_STATUS",
    "RpcAnswer",
    "RpcEndedError",
    "RpcFailure",
    "RpcListening",
    "RpcPlace",
    "RpcRoute",
    "RpcStream",
    "RpcTerms",
    "Say",
    "messages_of",
    "require_grpc",
    "rpc_listener",
    "status_of_http",
]

RPC_CALL: Final = "keyplan.rpc"
"""Where the call stands in the scope of a request that came over gRPC; no other request has one."""

RPC_STATUS: Final = b"grpc-status"
RPC_MESSAGE: Final = b"grpc-message"
_MEDIA_TYPE: Final = "application/grpc"

_STATUSES: Final[Mapping[int, GrpcStatus]] = {
    400: GrpcStatus.INVALID_ARGUMENT,
    401: GrpcStatus.UNAUTHENTICATED,
    403: GrpcStatus.PERMISSION_DENIED,
    404: GrpcStatus.UNIMPLEMENTED,
    408: GrpcStatus.DEADLINE_EXCEEDED,
    413: GrpcStatus.RESOURCE_EXHAUSTED,
    429: GrpcStatus.RESOURCE_EXHAUSTED,
    431: GrpcStatus.RESOURCE_EXHAUSTED,
    503: GrpcStatus.UNAVAILABLE,
}


def status_of_http(status: int) -> GrpcStatus:
    """Return what a call is answered with that the gate, or what else knows no gRPC, refuses with a status of HTTP."""
    return _STATUSES.get(status, GrpcStatus.INTERNAL)


# ---- what a service declares -------------------------------------------------------------------------------------------


class RpcPlace(NamedTuple):
    """Where a service's calls are listened for: HOST:PORT, which the setting `source` names."""

    address: str
    source: str


class RpcCall(Protocol):
    """A call over gRPC, as the scope of its request has it."""

    def messages(self) -> AsyncIterator[bytes]:
        """Return the messages of a call that takes a stream of them, as they come."""
        ...


class RpcRoute(BaseRoute):
    """A call of gRPC by its path, as in `/etcdserverpb.KV/Range`: for requests that came over gRPC alone.

    With `takes_stream` its request has no body: what comes, `messages_of` returns.
    """

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]], *, takes_stream: bool) -> None:
        self.path = path
        self.takes_stream = takes_stream
        self._endpoint = endpoint

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Tell whether a request is this call."""
        return (Match.FULL if scope["path"] == self.path and RPC_CALL in scope else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer it."""
        answer = await self._endpoint(Request(scope, receive))
        await answer(scope, receive, send)


def messages_of(request: Request) -> AsyncIterator[bytes]:
    """Return the messages of a call that takes a stream of them, as they come."""
    call: RpcCall = request.scope[RPC_CALL]
    return call.messages()


# ---- what a route answers ----------------------------------------------------------------------------------------------


class RpcAnswer(Response):
    """An answer of one message."""

    media_type = _MEDIA_TYPE


class RpcFailure(Response):
    """An answer of none, but a status and what it is about. `http_status` is what the log and the figures have of it."""

    def __init__(self, status: GrpcStatus, message: str, *, http_status: int) -> None:
        super().__init__(status_code=http_status, media_type=_MEDIA_TYPE)
        self.raw_headers += _told(status, message)


class RpcEndedError(Exception):
    """A stream ends with this status, after what it has said."""

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Say(Protocol):
    """Sends messages of a stream."""

    async def __call__(self, *messages: bytes) -> None:
        """Send them, one behind the other."""
        ...


class RpcStream(Response):
    """An answer of any number of messages: `talk` is given what sends one, and is cancelled with the call.

    What sends takes messages that belong together. It may be called by several tasks at once, and returns when the client's
    side has room again. `talk` raises RpcEndedError for another end than success.
    """

    def __init__(self, talk: Callable[["Say"], Awaitable[None]]) -> None:
        super().__init__(media_type=_MEDIA_TYPE)
        self._talk = talk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        one_at_a_time = asyncio.Lock()

        async def say(*messages: bytes) -> None:
            async with one_at_a_time:
                for message in messages:
                    await send({"type": "http.response.body", "body": message, "more_body": True})

        headers = [(b"content-type", _MEDIA_TYPE.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": True})
        trailers: list[tuple[bytes, bytes]] = []
        try:
            await self._talk(say)
        except RpcEndedError as ended:
            trailers = _told(ended.status, ended.message)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        await send({"type": "http.response.trailers", "headers": trailers})


def _told(status: GrpcStatus, message: str) -> list[tuple[bytes, bytes]]:
    return [(RPC_STATUS, b"%d" % status), (RPC_MESSAGE, message.encode())]


# ---- where it is listened for ------------------------------------------------------------------------------------------


class RpcTerms(NamedTuple):
    """The terms on which a server listens: those of its HTTP. `connections` counts its calls, and has the bounds."""

    connections: Connections
    closing: Closing
    allow_remote: bool = False
    grace_seconds: float = 15.0
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_authority: Path | None = None

    @property
    def bounds(self) -> EdgeBounds:
        """What the server takes."""
        return self.connections.bounds


RpcListening = Callable[[RpcPlace, Mapping[str, RpcRoute], ASGIApp, RpcTerms], AbstractAsyncContextManager[str]]
"""Answers the calls of these paths for the length of a block, which is given the address."""


def require_grpc(source: str) -> None:
    """Raise InvalidInputError, with what to install, when the package that speaks gRPC is not there."""
    for module, package in (("grpc", "grpcio"), ("google.protobuf", "protobuf")):
        if not _is_there(module):
            problem = f"gRPC needs the package {package!r}, which is not installed: pip install 'keyplan[etcd]'"
            raise InvalidInputError(source=source, problem=problem)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def rpc_listener() -> RpcListening:
    """Return what listens. Why imported here: a server whose services speak no gRPC does without the package."""
    listening: RpcListening = import_module("keyplan.server.grpc_listener").listening
    return listening
