"""Clients that are slow, idle or many: bounded, over real sockets, while those that work go on."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, closing, suppress
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from keyplan.server import Access, Edge, EdgeBounds, JsonAnswer, Role, Service, ServiceContext, Token, TrustedProxies
from keyplan.server.connections import Connections
from keyplan.server.gate import Gate
from keyplan.server.meters import Meters
from keyplan.server.peers import Peer
from keyplan.server.refusals import LINES_MAX, RefusalLog
from keyplan.server.refusals import REFUSED as REFUSED_LINE
from keyplan.server.workers import Workers
from tests.servers.edge import EdgeServer
from tests.servers.jumping import JumpingLoop

SOON: Final = 0.5
LATER: Final = 3.0
"""Why longer: a test that sends a head in time must do so on a busy machine, too."""

TOKEN: Final = "an-admin-token-of-a-test"
GUARDED: Final = Access([Token.of_text(Role.ADMIN, "ada", TOKEN)], local_role=None)

LARGE: Final = 16 << 20
"""Why: the system holds less than this of an answer, at both ends together."""

streams_ended = threading.Event()


class Flood(StreamingResponse):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            streams_ended.set()


def build(_context: ServiceContext) -> Service:
    async def take(request: Request) -> Response:
        return JsonAnswer({"bytes": len(await request.body())})

    async def lines(_request: Request) -> Response:
        async def endless() -> AsyncIterator[str]:
            yield "first\n"
            await asyncio.Event().wait()

        return StreamingResponse(endless())

    async def large(_request: Request) -> Response:
        return Response(b"x" * LARGE)

    async def flood(_request: Request) -> Response:
        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 65_536

        return Flood(endless())

    routes = [
        Route("/take", take, methods=["POST"]),
        Route("/lines", lines, methods=["GET", "POST"]),
        Route("/large", large),
        Route("/flood", flood),
    ]
    return Service("slow", routes)


def serve(access: Access | None = None, **bounds: Any) -> EdgeServer:
    return EdgeServer({"slow": build}, bounds=EdgeBounds(**bounds), access=access)


def send(opened: socket.socket, data: bytes) -> None:
    """Send on a connection that may be closed by now."""
    with suppress(ConnectionError):
        opened.sendall(data)


def rest(opened: socket.socket) -> bytes:
    heard = bytearray()
    try:
        while part := opened.recv(65_536):
            heard += part
    except ConnectionResetError:  # What was sent and not read is answered so.
        pass
    return bytes(heard)


def error_in(heard: bytes) -> tuple[int, str]:
    head, _, body = heard.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def answer(opened: socket.socket, request: bytes = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") -> bytes:
    """Ask, and return the answer, whose body ends in a brace."""
    opened.sendall(request)
    heard = bytearray()
    while not heard.endswith(b"}"):
        part = opened.recv(65_536)
        assert part, bytes(heard)
        heard += part
    return bytes(heard)


# ---- bodies ------------------------------------------------------------------------------------------------------------

HEADS: Final = {"counted": b"Content-Length: 100\r\n\r\n{", "chunked": b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"}


@pytest.mark.parametrize("head", HEADS)
def test_a_slow_body_is_refused_and_its_connection_closed(head: str) -> None:
    with serve(body_seconds_max=SOON) as server, closing(server.connect()) as opened:
        opened.sendall(b"POST /take HTTP/1.1\r\nHost: localhost\r\n" + HEADS[head])
        assert error_in(rest(opened)) == (408, "too_slow")


def test_a_hundred_connections_with_slow_bodies_end() -> None:
    with serve(body_seconds_max=SOON) as server, ExitStack() as stack:
        opened = [stack.enter_context(closing(server.connect())) for _ in range(100)]
        for one in opened:
            one.sendall(b"POST /take HTTP/1.1\r\nHost: localhost\r\n" + HEADS["counted"])
        assert {error_in(rest(one)) for one in opened} == {(408, "too_slow")}
        with closing(server.connect()) as another:
            assert b"200 OK" in answer(another)


def test_a_stream_that_waits_for_nothing_of_its_client_goes_on_and_one_whose_request_never_ends_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serve(body_seconds_max=SOON) as server, closing(server.connect()) as whole, closing(server.connect()) as half:
        whole.sendall(b"GET /lines HTTP/1.1\r\nHost: localhost\r\n\r\n")
        half.sendall(b"POST /lines HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx")
        assert b"first" in rest(half)
        whole.setblocking(False)
        heard = whole.recv(65_536)
        assert b"200 OK" in heard
        heard += b"" if b"first" in heard else whole.recv(65_536)
        with pytest.raises(BlockingIOError):  # It is open, and nothing more has come.
            whole.recv(1)
    refused = [one for one in caplog.records if one.getMessage() == REFUSED_LINE]
    assert [getattr(one, "facts")["reason"] for one in refused] == ["too_slow"]  # noqa: B009
    assert {one.name for one in caplog.records if one.levelname in {"WARNING", "ERROR"}} == {"keyplan.server"}


@pytest.mark.parametrize("rest_of_body", [b"", b"no chunk\r\n"])
def test_a_body_that_breaks_off_is_no_failure_and_many_of_them_have_few_lines(
    caplog: pytest.LogCaptureFixture, rest_of_body: bytes
) -> None:
    with serve() as server:
        for _ in range(LINES_MAX + 5):
            with closing(server.connect()) as opened:
                opened.sendall(b"POST /take HTTP/1.1\r\nHost: localhost\r\n" + HEADS["chunked"] + rest_of_body)
                opened.shutdown(socket.SHUT_WR)
                rest(opened)
    told = [getattr(one, "facts")["reason"] for one in caplog.records if one.getMessage() == REFUSED_LINE]  # noqa: B009
    assert told.count("client_gone") == LINES_MAX
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []


def taken(parts: int, part_bytes: int, seconds_each: float, *, declared: bool = True) -> tuple[int, int]:
    """Send a body in parts, so far apart, in a time of its own; return the answer's status and how many bytes were read."""
    answered: list[int] = []
    read = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal read
        has_more = True
        while has_more:
            message = await receive()
            read += len(message.get("body", b""))
            has_more = message.get("more_body", False)
        await JsonAnswer({})(scope, receive, send)

    left = parts

    async def receive() -> Message:
        nonlocal left
        await asyncio.sleep(seconds_each)
        left -= 1
        return {"type": "http.request", "body": b"x" * part_bytes, "more_body": left > 0}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answered.append(message["status"])

    headers = [(b"content-length", b"%d" % (parts * part_bytes)) if declared else (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    gate = Gate(
        app,
        access=Access(),
        open_routes=[Route("/", app)],
        meters=Meters(CollectorRegistry(), Workers(), "test"),
        clock=SYSTEM_CLOCK,
        edge=Edge(EdgeBounds(body_bytes_max=1 << 30)),
    )
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(gate({**scope, "http_version": "1.0", "client": ("127.0.0.1", 1)}, receive, send))
    return answered[0], read


@pytest.mark.parametrize("declared", [True, False])
def test_a_large_body_may_take_as_long_as_its_rate_says(*, declared: bool) -> None:
    # Ten thousand bytes a second, and twenty seconds beside: a hundred parts, each of a second's bytes.
    assert taken(100, 10_000, 1.1, declared=declared) == (200, 1_000_000)
    assert taken(100, 10_000, 1.5, declared=declared)[0] == 408
    assert taken(3, 1, 6.0, declared=declared) == (200, 3)
    assert taken(4, 1, 6.0, declared=declared)[0] == 408


def test_what_the_server_does_meanwhile_is_not_the_clients_slowness() -> None:
    answered: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(1_000)
        assert (await receive())["body"] == b"late"
        await JsonAnswer({})(scope, receive, send)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"late", "more_body": False}

    async def send(message: Message) -> None:
        answered.append(message.get("status", 0))

    gate = Gate(
        app,
        access=Access(),
        open_routes=[Route("/", app)],
        meters=Meters(CollectorRegistry(), Workers(), "test"),
        clock=SYSTEM_CLOCK,
        edge=Edge(),
    )
    headers = [(b"content-length", b"4")]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(gate({**scope, "http_version": "1.0", "client": ("127.0.0.1", 1)}, receive, send))
    assert answered[0] == 200


# ---- idle connections --------------------------------------------------------------------------------------------------


def test_a_connection_that_asks_nothing_is_closed() -> None:
    with serve(head_seconds_max=SOON) as server, closing(server.connect()) as opened:
        assert rest(opened) == b""


def test_a_connection_that_asks_nothing_more_is_closed_whatever_it_sends_instead() -> None:
    with serve(idle_seconds_max=SOON) as server, closing(server.connect()) as opened:
        assert b"200 OK" in answer(opened)
        send(opened, b"\r\n")  # No request begins so, and uvicorn's own timer ends.
        assert rest(opened) == b""


def test_a_head_that_comes_slowly_behind_another_request_is_not_waited_for() -> None:
    with serve(head_seconds_max=LATER, idle_seconds_max=600) as server, closing(server.connect()) as opened:
        answer(opened)
        send(opened, b"GET /health HT")
        assert rest(opened) == b""


REFUSED: Final = b"POST /take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"


def test_what_follows_a_refusal_is_not_waited_for() -> None:
    with serve(GUARDED, idle_seconds_max=SOON) as server, closing(server.connect()) as opened:
        assert error_in(answer(opened, REFUSED)) == (401, "unauthorized")
        send(opened, b"x")  # A byte from time to time ended uvicorn's timer.
        assert rest(opened) == b""


def test_what_follows_a_refusal_is_not_taken_without_a_bound() -> None:
    with serve(GUARDED, idle_seconds_max=600) as server, closing(server.connect()) as opened:
        answer(opened, REFUSED)
        with pytest.raises(ConnectionError):
            opened.sendall(b"x" * (256 << 20))


def test_who_asks_for_another_protocol_is_answered_and_has_no_more_of_the_connection() -> None:
    with serve() as server, closing(server.connect()) as opened:
        opened.sendall(
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        heard = rest(opened)
        assert heard.count(b"HTTP/1.1 200 OK") == 1
        assert b"connection: close" in heard


# ---- answers that nobody takes -----------------------------------------------------------------------------------------


def test_an_answer_that_its_client_does_not_take_is_given_up() -> None:
    streams_ended.clear()
    with serve(unread_seconds_max=SOON) as server, closing(server.connect()) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # The less the system takes in its place.
        opened.sendall(b"GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert streams_ended.wait(60)


@pytest.mark.parametrize("end", ["close", "keep-alive"])
def test_an_answer_that_nobody_takes_is_given_up_when_it_is_whole_too(end: str) -> None:
    with serve(unread_seconds_max=SOON, idle_seconds_max=SOON) as server, closing(server.connect()) as opened:
        opened.sendall(f"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: {end}\r\n\r\n".encode())
        # The part that the system has is here still; when it is all there is, the connection was cut.
        assert opened.recv(1, socket.MSG_PEEK)
        while server.connections:
            threading.Event().wait(0.05)
        assert len(rest(opened)) < LARGE


# ---- how many ----------------------------------------------------------------------------------------------------------


def test_an_address_has_so_many_connections_and_the_next_one_when_one_is_closed() -> None:
    with serve(idle_seconds_max=600, connections_per_address_max=3) as server, ExitStack() as stack:
        opened = [stack.enter_context(closing(server.connect())) for _ in range(3)]
        assert all(b"200 OK" in answer(one) for one in opened)
        with closing(server.connect()) as one_more:
            assert error_in(rest(one_more)) == (503, "too_many_connections")
        opened[0].close()
        heard = b""
        while b"200 OK" not in heard:  # Until the server knows that it is closed.
            with closing(server.connect()) as next_one:
                next_one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                heard = rest(next_one)


def test_who_is_on_this_machine_has_no_more_connections_for_having_more_addresses() -> None:
    with serve(connections_per_address_max=3) as server, ExitStack() as stack:

        def connect_from(address: str) -> socket.socket:
            return socket.create_connection(("127.0.0.1", server.port), timeout=60, source_address=(address, 0))

        for host in (2, 3, 4):
            stack.enter_context(closing(connect_from(f"127.0.0.{host}")))
        with closing(connect_from("127.0.0.5")) as one_more:
            assert error_in(rest(one_more)) == (503, "too_many_connections")


def test_a_request_that_is_under_way_is_not_given_up_for_another_one() -> None:
    with serve(connections_max=1) as server, closing(server.connect()) as stream, closing(server.connect()) as one_more:
        stream.sendall(b"GET /lines HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert error_in(rest(one_more)) == (503, "too_many_connections")
        assert b"200 OK" in stream.recv(65_536)


def ends(client: tuple[str, int] | None) -> Scope:
    return {"client": client, "server": ("/s", None) if client is None else ("127.0.0.1", 8210)}


def test_what_counts_as_one_address() -> None:
    class Known(Peer):
        def __init__(self, uid: int | None) -> None:
            self.uid = uid

    nobody = Known(None)
    proxies = TrustedProxies.of_texts(["192.0.2.1"])
    bounds = EdgeBounds(connections_max=5, connections_per_address_max=2)
    connections = Connections(bounds, proxies, RefusalLog())

    def place(address: str) -> str:
        return connections.place_of(ends((address, 1)), nobody)

    assert place("2001:db8::1") == place("2001:db8::2:3") != place("2001:db8:0:1::1")
    assert place("::ffff:192.0.2.7") == place("192.0.2.7") != place("192.0.2.8")
    assert place("127.0.0.1") == place("127.8.0.1") == place("::1") == connections.place_of(ends(None), nobody)
    here, there = (connections.place_of(ends(("127.0.0.1", 1)), Known(uid)) for uid in (7, 8))
    assert (
        here
        != there
        == connections.place_of(ends(("127.9.0.1", 1)), Known(8))
        == connections.place_of(ends(None), Known(8))
    )
    enter: Callable[[str], bool] = connections.enter
    assert [enter(place("192.0.2.7")) for _ in range(3)] == [True, True, False]
    # Many ask through a proxy that is trusted: of all there may be five, and the one too many is one of them while it lasts.
    assert [enter(place("192.0.2.1")) for _ in range(3)] == [True, True, False]
    connections.leave(place("192.0.2.7"))
    assert enter(place("192.0.2.7")) is False
    for _ in range(3):
        connections.leave(place("192.0.2.7"))
    assert enter(place("192.0.2.7")) is True


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_bounds_with_which_nobody_is_served_are_refused(seconds: float) -> None:
    with pytest.raises(InvalidInputError, match="more than 0"):
        EdgeBounds(body_seconds_max=seconds)


def test_half_of_all_connections_are_one_addresses() -> None:
    assert EdgeBounds(connections_max=100).of_one_address == 50
    assert EdgeBounds(connections_max=1).of_one_address == 1
    assert EdgeBounds(connections_max=10**9).connections_of_all < 10**9


def test_those_that_listen_have_no_more_connections_together_than_one_alone() -> None:
    for bounds in (EdgeBounds(connections_max=4), EdgeBounds(connections_max=100), EdgeBounds(connections_max=10**9)):
        shared = bounds.shared_by(2)
        assert shared.connections_of_all == bounds.connections_of_all // 2
        assert shared.of_one_address == shared.connections_of_all // 2
        assert bounds.shared_by(1) == bounds
