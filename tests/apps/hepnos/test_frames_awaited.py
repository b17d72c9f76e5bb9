"""The client for frames of one event loop, and a server by hand: time that passes, ends of all kinds, what is left behind."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Self

import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.databases import Address
from keyplan.apps.hepnos.frames import (
    OPERATIONS,
    PART,
    Frame,
    FrameKind,
    FrameReader,
    SingleGet,
    frame,
    single_answer,
    single_value,
)
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.packed import pack
from keyplan.apps.hepnos.remote_awaited import AnswerParts, AwaitedFrames, open_driven
from keyplan.apps.hepnos.remote_awaited_pipe import TIMEOUT_SECONDS, AwaitedPipe
from keyplan.engine import KeyRange
from keyplan.errors import CommitOutcomeUnknownError, EngineUnavailableError, InvalidInputError, KeyplanError
from tests.apps.hepnos.served import HepnosServer

UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
RING = bytes(8)
MOST_SECONDS = 0.7 * TIMEOUT_SECONDS
"""Two of them are too long, and one is not, however slow the machine is."""
LARGE_BYTES = 32 << 20
"""More than any socket takes that nobody reads from."""


@pytest.fixture(autouse=True)
def _one_part_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyplan.apps.hepnos.remote_awaited.PARTS_AHEAD", 1)


class PassingLoop(asyncio.SelectorEventLoop):
    """An event loop for which time passes when a test says so."""

    passed = 0.0

    def time(self) -> float:
        return super().time() + self.passed


async def pass_seconds(seconds: float) -> None:
    """Let time pass, and all that was to be done by then be done."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PassingLoop)
    loop.passed += seconds
    await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Line:
    """A connection that a client has made, as the server by hand sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = FrameReader()
        self._found: list[Frame] = []

    async def frame(self) -> Frame:
        """Return the next frame that the client has sent."""
        while not self._found:
            data = await self.reader.read(1 << 16)
            assert data, "the client has closed the connection"
            self._found = self._frames.feed(data)
        return self._found.pop(0)

    def answer(self, own: int, value: bytes = b"value") -> None:
        self.writer.write(b"".join(single_answer(own, value)))

    def part(self, own: int, key: bytes, *, is_last: bool = False) -> None:
        self.writer.write(frame(own, FrameKind.ANSWER, pack([key]), flags=0 if is_last else PART, number=200))

    async def ended(self) -> None:
        """Wait until the client has closed the connection."""
        with suppress(ConnectionError):
            while await self.reader.read(1 << 16):
                pass


class ByHand:
    """A server by hand, for an `async with` block: it takes connections, and says of each what `greeting` is."""

    def __init__(self, greeting: bytes = UPGRADED) -> None:
        self.greeting = greeting
        self.connections = 0
        self._lines: asyncio.Queue[Line] = asyncio.Queue()
        self._all: list[Line] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._greet, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        for line in self._all:
            line.writer.transport.abort()
        await settle()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        line = Line(reader, writer)
        self._all.append(line)
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.greeting)
        self._lines.put_nowait(line)

    async def line(self) -> Line:
        """Return the next connection that was made."""
        return await self._lines.get()


def run(scenario: Callable[[ByHand, AwaitedFrames], Awaitable[None]], greeting: bytes = UPGRADED) -> None:
    """Run it; nothing may be raised where nobody sees it."""
    unseen: list[dict[str, Any]] = []

    async def served() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unseen.append(context))
        async with ByHand(greeting) as server:
            frames = AwaitedFrames(server.url)
            try:
                await scenario(server, frames)
            finally:
                frames.close()
        gc.collect()

    with asyncio.Runner(loop_factory=PassingLoop) as runner:
        runner.run(served())
    assert unseen == []


def ask(frames: AwaitedFrames, key: bytes, *, is_write: bool = False) -> "asyncio.Task[Frame]":
    request = partial(SingleGet(Kind.EVENT, 0, RING).frame, key)
    return asyncio.create_task(frames.asked(request, is_write=is_write))


def list_keys(frames: AwaitedFrames) -> AnswerParts:
    asked = {"key_range": KeyRange(b"", None), "limit": 10, "reverse": False, "values": False}
    return frames.ask_in_parts(OPERATIONS[FrameKind.LIST], {"kind": Kind.EVENT, "number": 0, **asked}, RING.hex())


async def full(frames: AwaitedFrames) -> AwaitedPipe:
    """Wait until the connection takes nothing more; return it."""
    while frames.pipe is None or frames.pipe.takes_more:  # noqa: ASYNC110  # Why: nothing tells of it.
        await asyncio.sleep(0)
    return frames.pipe


@contextmanager
def unreachable(problem: str) -> Iterator[None]:
    with pytest.raises(EngineUnavailableError) as told:
        yield
    assert problem in str(told.value)


# ---- time ----------------------------------------------------------------------------------------------------------------


def test_a_request_has_its_own_minute_whatever_was_asked_a_minute_ago() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        first = ask(frames, b"first")
        line = await server.line()
        line.answer((await line.frame()).id)
        await first
        await pass_seconds(MOST_SECONDS)
        second = ask(frames, b"second", is_write=True)
        asked = await line.frame()
        await pass_seconds(MOST_SECONDS)
        line.answer(asked.id)
        assert single_value((await second).body) == b"value"

    run(scenario)


def test_a_server_that_answers_nothing_for_a_minute_is_given_up() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        asked = ask(frames, b"first", is_write=True)
        line = await server.line()
        await line.frame()
        await pass_seconds(TIMEOUT_SECONDS + 1)
        with pytest.raises(CommitOutcomeUnknownError) as told:
            await asked
        assert "does not answer" in str(told.value.__cause__)
        await line.ended()

    run(scenario)


def test_a_list_whose_first_part_does_not_come_for_a_minute_is_given_up() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        listed = asyncio.create_task(list_keys(frames).next())
        for _ in range(2):  # It is sent again, once.
            line = await server.line()
            await line.frame()
            await pass_seconds(TIMEOUT_SECONDS + 1)
        with unreachable("does not answer"):
            await listed

    run(scenario)


def test_who_takes_an_hour_between_two_parts_of_a_list_ends_nobody() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        parts = list_keys(frames)
        listed = asyncio.create_task(parts.next())
        line = await server.line()
        own = (await line.frame()).id
        line.part(own, b"a")
        await listed
        await pass_seconds(3_600)
        other = ask(frames, b"other", is_write=True)
        asked = await line.frame()
        await pass_seconds(MOST_SECONDS)
        line.answer(asked.id)
        await other
        listed = asyncio.create_task(parts.next())
        assert (await line.frame()).kind == FrameKind.CREDIT
        line.part(own, b"b", is_last=True)
        assert await listed is not None
        assert await parts.next() is None

    run(scenario)


def test_a_server_that_takes_nothing_is_given_up_and_its_connection_with_it() -> None:
    """Also where nobody waits for what was sent: who asks next would wait behind it."""

    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        sent = ask(frames, bytes(LARGE_BYTES))
        line = await server.line()
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of asyncio's own
        pipe = await full(frames)
        sent.cancel()
        behind = ask(frames, b"behind", is_write=True)
        await pass_seconds(TIMEOUT_SECONDS + 1)
        second = await server.line()
        second.answer((await second.frame()).id)
        await behind  # It was not sent there.
        assert pipe._transport.get_extra_info("socket").fileno() == -1

    run(scenario)


def test_a_request_that_takes_a_minute_to_be_sent_has_another_to_be_answered() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        asked = ask(frames, bytes(LARGE_BYTES))
        line = await server.line()
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of asyncio's own
        await full(frames)
        await pass_seconds(MOST_SECONDS)
        line.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
        own = (await line.frame()).id
        await settle()
        await pass_seconds(MOST_SECONDS)
        line.answer(own)
        await asked

    run(scenario)


def test_a_server_that_does_not_even_begin_is_told_in_words() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        connecting = asyncio.create_task(frames.connect())
        await server.line()
        await pass_seconds(TIMEOUT_SECONDS + 1)
        with unreachable("the server does not answer"):
            await connecting

    run(scenario, greeting=b"")


# ---- ends ----------------------------------------------------------------------------------------------------------------


def test_a_server_that_has_no_frames_any_more_is_told_so() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        await frames.connect()
        (await server.line()).writer.close()
        server.greeting = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
        await settle()
        with unreachable("has no frames any more"):
            await ask(frames, b"key")
        with unreachable("has no frames any more"):
            await list_keys(frames).next()

    run(scenario)


@pytest.mark.parametrize(
    ("greeting", "problem"),
    [
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: many\r\n\r\n", "does not say how long"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "this is not HTTP/1.1"),
        (UPGRADED + bytes(12), "no frame"),
    ],
    ids=["length", "ssh", "frame"],
)
def test_what_is_no_answer_is_told_in_words(greeting: bytes, problem: str) -> None:
    async def scenario(_server: ByHand, frames: AwaitedFrames) -> None:
        with unreachable(problem):
            await frames.connect()
            await ask(frames, b"key")

    run(scenario, greeting=greeting)


def test_why_a_connection_was_refused_is_told() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        asked = ask(frames, b"key", is_write=True)
        line = await server.line()
        await line.frame()
        line.writer.write(frame(0, FrameKind.ANSWER, b"ids ascend", number=400))
        with pytest.raises(CommitOutcomeUnknownError) as told:
            await asked
        assert "ids ascend" in str(told.value.__cause__)

    run(scenario)


@pytest.mark.parametrize("end", ["drop", "farewell"])
def test_a_list_whose_connection_ends_before_it_has_begun_is_asked_for_again_once(end: str) -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        parts = list_keys(frames)
        listed = asyncio.create_task(parts.next())
        line = await server.line()
        await line.frame()
        if end == "farewell":
            line.writer.write(frame(0, FrameKind.FAREWELL))
        line.writer.close()
        line = await server.line()
        line.part((await line.frame()).id, b"a")
        assert await listed is not None
        listed = asyncio.create_task(parts.next())
        await line.frame()
        line.writer.close()
        with unreachable("closed"):
            await listed
        assert await parts.next() is None

    run(scenario)


def test_a_list_that_was_asked_for_twice_is_given_up() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        listed = asyncio.create_task(list_keys(frames).next())
        for _ in range(2):
            line = await server.line()
            await line.frame()
            line.writer.close()
        with unreachable("closed"):
            await listed

    run(scenario)


def test_closing_ends_what_is_under_way_also_where_the_server_has_said_farewell() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        under_way = ask(frames, b"first")
        first = await server.line()
        first.writer.write(frame((await first.frame()).id, FrameKind.FAREWELL))
        await first.writer.drain()
        other = ask(frames, b"second")
        await settle()
        second = await server.line()
        second.answer((await second.frame()).id)
        await other
        frames.close()
        with unreachable("was closed"):
            await under_way
        await asyncio.gather(first.ended(), second.ended())

    run(scenario)


def test_closing_while_the_connection_is_made_leaves_none() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        connecting = asyncio.create_task(frames.connect())
        line = await server.line()
        frames.close()
        with unreachable("was closed"):
            await connecting
        await line.ended()
        early = AwaitedFrames(server.url)
        connecting = asyncio.create_task(early.connect())
        await asyncio.sleep(0)  # It has begun, and has no connection.
        early.close()
        with unreachable("was closed"):
            await connecting
        await (await server.line()).ended()

    run(scenario, greeting=b"")


def test_connecting_that_is_cancelled_at_any_step_leaves_no_connection() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        for steps in range(20):
            connecting = asyncio.create_task(frames.connect())
            for _ in range(steps):
                await asyncio.sleep(0)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
        await settle()
        for _ in range(server.connections):
            await (await server.line()).ended()
        assert server.connections > 0

    run(scenario, greeting=b"")


def test_a_request_that_is_cancelled_is_ended_on_the_server_too() -> None:
    async def scenario(server: ByHand, frames: AwaitedFrames) -> None:
        asked = ask(frames, b"key")
        line = await server.line()
        own = (await line.frame()).id
        asked.cancel()
        assert await line.frame() == Frame(own, FrameKind.CANCEL, 0, 0, b"")
        parts = list_keys(frames)
        listed = asyncio.create_task(parts.next())
        own = (await line.frame()).id
        await settle()
        listed.cancel()
        parts.close()
        assert await line.frame() == Frame(own, FrameKind.CANCEL, 0, 0, b"")

    run(scenario)


# ---- opening -------------------------------------------------------------------------------------------------------------


def test_opening_that_is_cancelled_or_refused_leaves_no_connection() -> None:
    async def scenario(server: ByHand, _frames: AwaitedFrames) -> None:
        opening = asyncio.create_task(open_driven(Address(server.url), {}))
        line = await server.line()
        await line.frame()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await line.ended()
        opening = asyncio.create_task(open_driven(Address(server.url), {}))
        line = await server.line()
        own = (await line.frame()).id
        line.writer.write(frame(own, FrameKind.ANSWER, b'{"databases":{}}', number=200))
        with pytest.raises(KeyplanError):
            await opening
        await line.ended()

    run(scenario)


def test_a_call_on_the_event_loop_s_own_thread_is_refused_and_waits_not_for_itself() -> None:
    async def scenario(url: str) -> None:
        async with hepnos.aio.open(url) as store:
            await store.root.ensure("a")
            calls: list[Callable[[], Any]] = [
                lambda: store.sync.root.get("a"),
                lambda: list(store.sync.root.datasets),
                lambda: store.sync.root.ensure("b"),
            ]
            for call in calls:
                with pytest.raises(InvalidInputError, match="would wait for itself"):
                    call()
            assert await store.call(lambda: [found.path for found in store.sync.root.datasets]) == ["a"]

    with HepnosServer({"store": "memory:own-thread"}) as server:
        asyncio.run(scenario(server.url), debug=True)
