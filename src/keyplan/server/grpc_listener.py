"""The listener of gRPC: calls become requests of ASGI, and answers messages and a status. Needs grpcio.

One handler has all calls, as streams of messages in both directions: over the wire a call of one message is a stream of one,
and only of a stream is it known when the client has taken what was written.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any, Final
from weakref import WeakValueDictionary

import grpc
import grpc.aio
import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Scope

from keyplan.errors import InvalidInputError
from keyplan.grpc_status import GrpcStatus
from keyplan.server.bounds import BODY_BYTES_PER_SECOND_MIN, HEADER_BYTES_MAX, EdgeBounds
from keyplan.server.connections import Connections
from keyplan.server.holding import Holding, holding_of_request
from keyplan.server.listen import resolved_address
from keyplan.server.peers import Peer, set_peer, set_whole
from keyplan.server.proxies import address_of
from keyplan.server.rpc import RPC_CALL, RPC_MESSAGE, RPC_STATUS, RpcPlace, RpcRoute, RpcTerms, status_of_http
from keyplan.server.rpc_asking import RpcPeer, end_of
from keyplan.server.rpc_tls import rpc_tls

__all__ = ["listening"]

_OVERHEAD_BYTES: Final = 512 << 10
"""What a message may have beyond a body's bytes. Why: one a little too large is refused in its protocol's words, as etcd's."""

_CALLS_OF_CONNECTION_MAX: Final = 1_000
"""Calls of one connection at once. Why so many: clients of etcd keep one connection, and all their calls are on it."""

_READS_MAX: Final = 256
"""Messages that are being read at once, but those of streams. Why: each has up to a body's bytes in memory, not yet counted."""

_READS_OF_ONE_MAX: Final = 16
"""Of one who asks, nobody's by address. Why: whose message is announced and does not come keeps a turn, without a token too."""

_PING_SECONDS_MIN: Final = 1
"""Why: etcd's clients look every few seconds whether the server is there, and gRPC would take that for an attack."""

_DEAD_SECONDS: Final = 60
"""After how long a client is asked whether it is there that says nothing."""

_TOO_MANY: Final = "as many calls are under way as one address, or all, may have (--connections-per-address): end some"

_TEXT_MAX: Final = 1_000
"""Characters of a status's text. Why: it travels in a header, and clients refuse long ones."""

_CODES: Final[Mapping[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}

_GoneError: Final[type[Exception]] = vars(grpc.aio)["InternalError"]
"""What gRPC raises for what is done to a call whose client is gone. Why so: the stubs leave it out."""

_AUTHORIZATION: Final = "token"
"""What clients of etcd call in a call's metadata what HTTP calls the authorization."""


@asynccontextmanager
async def listening(
    place: RpcPlace, routes: Mapping[str, RpcRoute], asgi: ASGIApp, terms: RpcTerms
) -> AsyncIterator[str]:
    """Answer the calls of these paths for the length of a block, which is given the address.

    Raises InvalidInputError for an address that cannot be listened on, or that others could reach who are not to, and for
    certificates that cannot be used.
    """
    host, port = resolved_address(place.address, source=place.source, allow_remote=terms.allow_remote)
    credentials = _credentials(terms)
    own = _Own("http" if credentials is None else "https", host)
    server = grpc.aio.server(
        handlers=[_Handlers(asgi, routes, terms.connections, own, _Reads())],
        options=_options(terms.bounds),
        maximum_concurrent_rpcs=terms.bounds.connections_of_all,
    )
    shown = f"[{host}]" if ":" in host else host
    try:
        bound = (
            server.add_insecure_port(f"{shown}:{port}")
            if credentials is None
            else server.add_secure_port(f"{shown}:{port}", credentials)
        )
    except RuntimeError as error:
        raise InvalidInputError(source=place.source, problem=f"{place.address} cannot be listened on") from error
    own.port = bound
    await server.start()
    ending = asyncio.create_task(_stopped(server, terms))
    try:
        yield f"{'grpc' if credentials is None else 'grpcs'}://{shown}:{bound}"
    finally:
        terms.closing.set()
        await ending


def _credentials(terms: RpcTerms) -> grpc.ServerCredentials | None:
    if terms.tls_certificate is None:
        return None
    key = terms.tls_key or terms.tls_certificate
    found = rpc_tls(terms.tls_certificate, key, terms.tls_client_authority, source="--tls-certificate")
    has_authority = found.authority is not None
    return grpc.ssl_server_credentials(
        [(found.key, found.chain)], root_certificates=found.authority, require_client_auth=has_authority
    )


async def _stopped(server: "grpc.aio.Server", terms: RpcTerms) -> None:
    """Take no more calls once the server is to stop, and let those under way end."""
    await terms.closing.wait()
    await server.stop(terms.grace_seconds)


def _options(bounds: EdgeBounds) -> list[tuple[str, int]]:
    return [
        # Why not shared: two servers on one port would share its calls without anybody's knowing.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", bounds.body_bytes_max + _OVERHEAD_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", _CALLS_OF_CONNECTION_MAX),
        ("grpc.max_metadata_size", HEADER_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", HEADER_BYTES_MAX),
        # Trap: gRPC bounds none of one address, and closes idle ones without a word, under calls that are on their way.
        ("grpc.max_allowed_incoming_connections", bounds.connections_of_all),
        ("grpc.server_handshake_timeout_ms", round(bounds.head_seconds_max * 1_000)),
        ("grpc.http2.min_ping_interval_without_data_ms", _PING_SECONDS_MIN * 1_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", _DEAD_SECONDS * 1_000),
    ]


class _Reads:
    """Turns to read a message: so many in all, and of each who asks."""

    def __init__(self) -> None:
        self._of_all = asyncio.Semaphore(_READS_MAX)
        self._of_one: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, holding: Holding | None) -> AsyncIterator[None]:
        """Wait for a turn, and keep it for a block."""
        who = "" if holding is None else holding.who
        of_one = self._of_one.setdefault(who, asyncio.Semaphore(_READS_OF_ONE_MAX))
        async with of_one, self._of_all:
            yield


class _Own:
    """Where this listener is: the port is known once it is bound."""

    def __init__(self, scheme: str, host: str) -> None:
        self.scheme = scheme
        self.host = host
        self.port = 0

    def at(self, client: tuple[str, int] | None) -> tuple[str, int]:
        """Return the end that a client's connection has here. Why of its address: within a machine the two are the same."""
        is_any = ip_address(self.host.partition("%")[0]).is_unspecified
        return (client[0] if is_any and client else self.host), self.port


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # Why: it takes arguments in the stubs alone.
    """Finds the handler of a call by its path."""

    def __init__(
        self,
        asgi: ASGIApp,
        routes: Mapping[str, RpcRoute],
        calls: Connections,
        own: _Own,
        reads: "_Reads",
    ) -> None:
        self._asgi = asgi
        # Why counted as connections: over HTTP/1.1 each call that is under way is one.
        self._calls = calls
        self._own = own
        self._reads = reads
        self._known = {path: _handler(self._answering(path, route)) for path, route in routes.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        return self._known.get(handler_call_details.method) or _ABSENT

    def _answering(self, path: str, route: RpcRoute) -> "_Answer":
        async def answer(_messages: Any, context: Any) -> None:
            call = _Call(context, self._calls.bounds, self._reads, takes_stream=route.takes_stream)
            client = end_of(context)
            ends: Scope = {"client": client, "server": self._own.at(client)}
            peer = RpcPeer(context, (client, ends["server"]), call.cut)
            place = self._calls.place_of(ends, peer)
            try:
                if self._calls.enter(place):
                    await answer_in_its_place(call, ends, peer)
                else:
                    self._refuse(call, ends)
                await call.finish()
            finally:
                self._calls.leave(place)

        async def answer_in_its_place(call: "_Call", ends: Scope, peer: Peer) -> None:
            try:
                await self._asgi(self._scope(path, call, ends, peer), call.receive, call.send)
            except Exception:  # noqa: BLE001  # Why: the outermost place. The gate has logged it, and sends it on.
                call.fail(GrpcStatus.INTERNAL, "the server failed; its log says more")

        return answer

    def _refuse(self, call: "_Call", ends: Scope) -> None:
        call.fail(GrpcStatus.RESOURCE_EXHAUSTED, f"keyplan: {_TOO_MANY}")
        address = address_of(ends)
        facts = {"status": 429, "client": address, "reason": "too_many_connections", "why": _TOO_MANY}
        self._calls.refusals.tell(address, "too_many_connections", facts)

    def _scope(self, path: str, call: "_Call", ends: Scope, peer: Peer) -> Scope:
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "2",
            "method": "POST",
            "scheme": self._own.scheme,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": _headers(call.context),
            **ends,
            RPC_CALL: call,
        }
        set_peer(scope, peer)
        set_whole(scope)
        return scope


_Answer = Callable[[Any, Any], Awaitable[None]]


def _handler(answer: _Answer) -> "grpc.RpcMethodHandler[bytes, bytes]":
    spoken: Any = answer  # Why: the stubs know the synchronous form alone.
    return grpc.stream_stream_rpc_method_handler(spoken)


async def _tell_absent(_messages: Any, context: Any) -> None:
    await context.abort(
        grpc.StatusCode.UNIMPLEMENTED, "keyplan: this call is not served here; see the guide of the service"
    )


_ABSENT: Final = _handler(_tell_absent)


def _headers(context: Any) -> list[tuple[bytes, bytes]]:
    """Return a call's metadata as headers."""
    found: list[tuple[bytes, bytes]] = []
    for name, value in context.invocation_metadata() or ():
        if isinstance(value, str):
            raw_name = b"authorization" if name == _AUTHORIZATION else name.encode("latin-1", "replace")
            found.append((raw_name, value.encode("latin-1", "replace")))
    return found


class _Call:
    """One call as ASGI has it: `receive` and `send` of its request, and how it ended."""

    def __init__(self, context: Any, bounds: EdgeBounds, reads: "_Reads", *, takes_stream: bool) -> None:
        self.context = context
        self._bounds = bounds
        self._reads = reads
        self._takes_stream = takes_stream
        self._is_read = False
        self._is_gone = False
        self._is_cut = asyncio.Event()
        self._status = 0
        self._told: tuple[GrpcStatus, str] | None = None
        self._failure_body = b""

    # ---- what comes --------------------------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """Return the call's message as the whole body; after that, wait until the call is cut."""
        if self._is_read:
            await self._is_cut.wait()
            return {"type": "http.disconnect"}
        self._is_read = True
        body = b"" if self._takes_stream else await self._read_whole()
        return {"type": "http.request", "body": body, "more_body": False}

    async def _read_whole(self) -> bytes:
        allowed = self._bounds.body_seconds_max + self._bounds.body_bytes_max / BODY_BYTES_PER_SECOND_MIN
        try:
            async with asyncio.timeout(allowed), self._reads.turn(holding_of_request()):
                message = await self.context.read()
        except (TimeoutError, _GoneError) as error:
            raise self._left(error, "the message did not come in time") from error
        if not isinstance(message, bytes):
            raise self._left(None, "the call has no message")
        return message

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield the messages of a stream. Raises ClientDisconnect."""
        try:
            while isinstance(message := await self.context.read(), bytes):
                yield message
        except _GoneError as error:
            raise self._left(error, "") from error

    # ---- what goes ---------------------------------------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        """Take a part of the answer, and return when the client's side has room again. Raises ClientDisconnect."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._hear(message["headers"])
        elif message["type"] == "http.response.trailers":
            self._hear(message["headers"])
        elif self._told is None and self._status != 200:
            self._failure_body += message.get("body", b"")
        elif body := message.get("body", b""):
            await self._write(body)

    async def _write(self, body: bytes) -> None:
        # Why both: a large answer over a slow link takes its time, and who takes nothing is not waited for.
        allowed = self._bounds.unread_seconds_max + len(body) / BODY_BYTES_PER_SECOND_MIN
        try:
            async with asyncio.timeout(allowed):
                await self.context.write(body)
        except (TimeoutError, _GoneError) as error:
            raise self._left(error, "the answer was not taken in time") from error

    def _left(self, error: Exception | None, why: str) -> ClientDisconnect:
        """Return what the gate is told of a client that is gone, or is not waited for any longer: then that is its status."""
        self._is_gone = isinstance(error, _GoneError)
        self.fail(GrpcStatus.CANCELLED, f"keyplan: {why}")
        return ClientDisconnect()

    def _hear(self, headers: Any) -> None:
        found = dict(headers)
        if RPC_STATUS in found:
            self._told = GrpcStatus(int(found[RPC_STATUS])), found.get(RPC_MESSAGE, b"").decode()

    def cut(self) -> None:
        """End the call, whatever was answered: nobody is to take it for whole."""
        self.fail(GrpcStatus.UNAUTHENTICATED, "keyplan: who asked is not known any more, or may not have this any more")
        self._is_cut.set()

    def fail(self, status: GrpcStatus, text: str) -> None:
        """Let the call end with this."""
        self._told = status, text

    async def finish(self) -> None:
        """End the call with its status."""
        if self._is_gone:
            # Why so: nobody is there to be told, and gRPC logs all else as a fault of the server.
            raise asyncio.CancelledError
        if self._told is None and self._status != 200:
            self._told = status_of_http(self._status), _text_in(self._failure_body)
        if self._told is not None and self._told[0] is not GrpcStatus.OK:
            status, text = self._told
            try:
                await self.context.abort(_CODES[status], text[:_TEXT_MAX])
            except _GoneError as error:
                raise asyncio.CancelledError from error


class _Fault(msgspec.Struct):
    message: str = ""


class _Failure(msgspec.Struct):
    error: _Fault


def _text_in(body: bytes) -> str:
    """Return the sentence of a failure that stands in JSON, as the gate's do."""
    try:
        return f"keyplan: {msgspec.json.decode(body, type=_Failure).error.message}"
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "keyplan: the server failed; its log says more"
