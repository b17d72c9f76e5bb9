"""What the server's protocol adds to uvicorn's: an answer goes out in one piece, and slow clients end, in a time of its own.

Over real sockets: test_slow_clients.py.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from keyplan.server import EdgeBounds, RefusalLog, TrustedProxies
from keyplan.server.connections import Connections
from keyplan.server.protocol import BoundedProtocol, GatheringTransport
from tests.servers.jumping import JumpingLoop

T = TypeVar("T")


class Wire(asyncio.Transport):
    """A transport that keeps what it is given, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.is_closed = False

    def writelines(self, list_of_data: "Iterable[bytes | bytearray | memoryview]") -> None:
        self.pieces.append(b"".join(list_of_data))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed


def test_what_is_written_in_one_turn_of_the_loop_is_sent_at_once() -> None:
    async def main() -> list[bytes]:
        wire = Wire()
        gathering = GatheringTransport(wire, asyncio.get_running_loop())
        gathering.write(b"head, ")
        gathering.writelines([b"bo", b"dy"])
        await asyncio.sleep(0)
        # A stream's next part waits for nothing but the turn.
        gathering.write(b"event")
        await asyncio.sleep(0)
        return wire.pieces

    assert asyncio.run(main()) == [b"head, body", b"event"]


def test_a_large_answer_is_not_gathered_whole() -> None:
    async def main() -> int:
        wire = Wire()
        gathering = GatheringTransport(wire, asyncio.get_running_loop())
        for _ in range(10):
            gathering.write(b"x" * 65_536)
        # Nothing has waited so far: an answer that is made in one turn would fill the memory.
        return sum(map(len, wire.pieces))

    assert asyncio.run(main()) >= 9 * 65_536


def test_closing_sends_what_was_written_and_aborting_does_not() -> None:
    async def main() -> list[list[bytes]]:
        wires = [Wire(), Wire()]
        closed, aborted = (GatheringTransport(wire, asyncio.get_running_loop()) for wire in wires)
        for gathering in (closed, aborted):
            gathering.write(b"last words")
        closed.close()
        aborted.abort()
        await asyncio.sleep(0)
        assert closed.is_closing()
        return [wire.pieces for wire in wires]

    assert asyncio.run(main()) == [[b"last words"], []]


# ---- slow clients ------------------------------------------------------------------------------------------------------


class SlowWire(asyncio.Transport):
    """A connection to a client that takes so many bytes a second."""

    def __init__(self, bytes_per_second: int) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 8210)})
        self.bytes_per_second = bytes_per_second
        self.is_cut = self.is_closed = False
        self.is_read = True
        self.taken = bytearray()
        self._loop = asyncio.get_running_loop()
        self._untaken = 0.0
        self._seen_at = self._loop.time()

    def get_write_buffer_size(self) -> int:
        now = self._loop.time()
        self._untaken = max(0.0, self._untaken - self.bytes_per_second * (now - self._seen_at))
        self._seen_at = now
        return math.ceil(self._untaken)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def writelines(self, list_of_data: "Iterable[bytes | bytearray | memoryview]") -> None:
        self.get_write_buffer_size()
        written = b"".join(list_of_data)
        self._untaken += len(written)
        self.taken += written

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_cut = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def in_own_time(main: Callable[[], Awaitable[T]]) -> T:
    async def awaited() -> T:
        return await main()

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(awaited())


@pytest.mark.parametrize(
    ("answer_bytes", "bytes_per_second", "is_cut"),
    [
        (100_000_000, 11_000, False),  # Two and a half hours.
        (100_000_000, 9_000, True),
        (100_000_000, 0, True),
        # Of little, all that there is in a minute.
        (100_000, 2_000, False),
        (100_000, 1_500, True),
        (1, 0, True),
    ],
)
def test_an_answer_may_take_as_long_as_it_likes_and_not_be_taken_slower_than_the_rate(
    answer_bytes: int, bytes_per_second: int, *, is_cut: bool
) -> None:
    async def main() -> bool:
        wire = SlowWire(bytes_per_second)
        gathering = GatheringTransport(wire, asyncio.get_running_loop(), unread_seconds_max=60)
        gathering.write(b"x" * answer_bytes)
        gathering.close()
        await asyncio.sleep(20_000)
        return wire.is_cut

    assert in_own_time(main) is is_cut


@pytest.mark.parametrize(("bytes_per_second", "is_cut"), [(6_000, False), (0, True)])
def test_a_stream_that_goes_on_is_taken_as_it_comes_or_cut(bytes_per_second: int, *, is_cut: bool) -> None:
    async def main() -> bool:
        wire = SlowWire(bytes_per_second)
        gathering = GatheringTransport(wire, asyncio.get_running_loop(), unread_seconds_max=60)
        # Slower than the rate, because no more comes: what there is is taken.
        for _ in range(1_000):
            gathering.write(b"x" * 5_000)
            gathering.require_progress()
            await asyncio.sleep(1)
        return wire.is_cut

    assert in_own_time(main) is is_cut


def connected(wire: SlowWire, app: ASGIApp) -> BoundedProtocol:
    bounds = EdgeBounds(head_seconds_max=20, idle_seconds_max=5, unread_seconds_max=60)
    config = uvicorn.Config(
        app, ws="none", lifespan="off", log_config=None, access_log=False, timeout_keep_alive=86_400
    )
    protocol = BoundedProtocol(
        config, ServerState(), {}, connections=Connections(bounds, TrustedProxies(), RefusalLog())
    )
    protocol.connection_made(wire)
    return protocol


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_who_still_takes_an_answer_is_not_idle() -> None:
    async def main() -> None:
        wire = SlowWire(20_000)
        protocol = connected(wire, PlainTextResponse("x" * 3_000_000))
        protocol.data_received(REQUEST)
        await asyncio.sleep(149)
        assert not wire.is_closing()
        protocol.data_received(REQUEST)
        await asyncio.sleep(149)
        assert not wire.is_closing()
        await asyncio.sleep(12)
        assert wire.is_closing()
        assert not wire.is_cut
        protocol.connection_lost(None)

    in_own_time(main)


def test_who_takes_nothing_of_an_answer_is_cut_though_the_connection_could_be_kept() -> None:
    async def main() -> None:
        wire = SlowWire(0)
        protocol = connected(wire, PlainTextResponse("x" * 1_000))
        protocol.data_received(REQUEST)
        await asyncio.sleep(66)
        assert wire.is_cut
        protocol.connection_lost(None)

    in_own_time(main)


def test_a_head_that_is_late_while_another_request_is_answered_is_waited_for_once_more_and_no_longer() -> None:
    async def poll(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(100)
        await PlainTextResponse("polled")(scope, receive, send)

    async def main() -> list[bool]:
        wire = SlowWire(10**9)
        protocol = connected(wire, poll)
        protocol.data_received(REQUEST + b"GET / HT")
        found: list[Any] = []
        for seconds in (99, 20, 2):
            await asyncio.sleep(seconds)
            found.append(wire.is_closed)
        protocol.connection_lost(None)
        return found

    assert in_own_time(main) == [False, False, True]


def test_a_head_that_comes_whole_in_pieces_is_answered() -> None:
    async def main() -> bool:
        wire = SlowWire(10**9)
        protocol = connected(wire, PlainTextResponse("."))
        for _ in range(3):
            for part in (REQUEST[:20], REQUEST[20:30], REQUEST[30:]):
                await asyncio.sleep(4)
                assert not wire.is_closing()
                protocol.data_received(part)
        await asyncio.sleep(4)
        assert not wire.is_closing()
        await asyncio.sleep(2)
        protocol.connection_lost(None)
        return wire.is_closed

    assert in_own_time(main)


# ---- requests that come before the answers are taken ---------------------------------------------------------------------


def test_requests_that_wait_behind_one_another_stay_bytes_and_are_read_no_further() -> None:
    async def poll(scope: Scope, receive: Receive, send: Send) -> None:
        # Who waits for the client's end reads, as streams do.
        await receive()
        await receive()

    async def main() -> None:
        wire = SlowWire(10**9)
        protocol = connected(wire, poll)
        for _ in range(20):
            if wire.is_read:
                protocol.data_received(REQUEST * 2_000)
            await asyncio.sleep(0.1)
        assert not wire.is_read
        assert len(protocol.pipeline) < 200
        protocol.connection_lost(None)

    in_own_time(main)


@pytest.mark.parametrize("part_bytes", [1_000, 4_096, 64 << 10, 1 << 20])
def test_each_of_many_requests_that_come_at_once_is_answered_in_its_turn(part_bytes: int) -> None:
    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        body = message["body"]
        while message["more_body"]:
            message = await receive()
            body += message["body"]
        text = f"<{scope['query_string'].decode()}:{len(body)}>"
        await PlainTextResponse(text)(scope, receive, send)

    requests = [
        b"POST /?%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (number, 7 * number)
        + b"\r\n\r\nGET" * number
        for number in range(300)
    ]

    async def main() -> list[bytes]:
        wire = SlowWire(10**9)
        protocol = connected(wire, echo)
        sent = b"".join(requests)
        while sent:
            if wire.is_read:
                protocol.data_received(sent[:part_bytes])
                sent = sent[part_bytes:]
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert wire.is_read
        protocol.connection_lost(None)
        return [part.partition(b">")[0] for part in bytes(wire.taken).split(b"<")[1:]]

    assert in_own_time(main) == [b"%d:%d" % (number, 7 * number) for number in range(300)]
