"""Requests to a HEPnOS server as frames, awaited: any number are under way on one connection, and no thread takes part.

`AwaitedFrames` is for asyncio; `open_driven` puts the synchronous API on it, whose calls run inside `keyplan.aio.drive`.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

from keyplan.aio import drive, is_driven, wait
from keyplan.apps.hepnos.databases import Address, Databases
from keyplan.apps.hepnos.frames import (
    FRAMES_PATH,
    FRAMES_PROTOCOL,
    IDS_MAX,
    MORE,
    PART,
    BrokenFrameError,
    Frame,
    FrameKind,
    FrameOfRequest,
    FrameReader,
    SingleGet,
    frame,
    request_frame,
    single_value,
)
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.remote import RemoteServer
from keyplan.apps.hepnos.remote_calls import ServerPlace, authorization
from keyplan.apps.hepnos.remote_frames import (
    PARTS_AHEAD,
    NoFramesError,
    answer_of,
    judge,
    refusal_of,
    success_of,
)
from keyplan.apps.hepnos.remote_pipe import ANY_SIZE, NotBegunError
from keyplan.apps.hepnos.remote_queues import RemoteQueues
from keyplan.apps.hepnos.remote_transport import ENGINE_NAME, Answer, Reader
from keyplan.apps.hepnos.remote_wire import HEAD_BYTES_MAX, BrokenAnswerError, read_head
from keyplan.errors import EngineUnavailableError
from keyplan.operations import Operation

__all__ = ["AnswerParts", "AwaitedFrames", "Driver", "open_driven"]

R = TypeVar("R")

_ANSWER: Final = int(FrameKind.ANSWER)
_TIMEOUT_SECONDS: Final = 60.0
"""How long nothing may come while something is waited for."""


class AwaitedFrames:
    """A server by its URL, for one event loop. Raises what `Transport` raises, under the same conditions."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        self.url = url
        self._place = ServerPlace.of(url)
        self._has_token = bool(token)
        headers = {
            "Host": self._place.named,
            "Connection": "Upgrade",
            "Upgrade": FRAMES_PROTOCOL,
            **authorization(token),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._asking = f"GET {self._place.base}{FRAMES_PATH} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
        self.pipe: _AwaitedPipe | None = None
        """The connection, once there was one; it may be at its end."""
        self._connecting = asyncio.Lock()
        self.is_closed = False

    async def connect(self) -> None:
        """Make the connection. Raises NoFramesError where the server has none for frames; UnauthorizedError."""
        await self._connected()

    async def ask(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> Answer:
        """Send a request, and return its success. A cancelled one that reads is ended on the server, too."""
        found = await self.asked(request_frame(operation, arguments, ring), is_write=operation.changes)
        return Answer(found.body, bool(found.flags & MORE))

    async def asked(self, request: FrameOfRequest, *, is_write: bool, is_again: bool = False) -> Frame:
        """Send a request, and return the frame of its success. Where it `is_again`, it was sent before."""
        while True:
            try:
                pipe = self.pipe
                if pipe is None or not pipe.is_good:
                    pipe = await self._connected()
                found = await pipe.ask(request)
            except (OSError, NotBegunError) as error:
                judge(self.url, error, is_last=is_again or self.is_closed, is_write=is_write)
                is_again = True
                continue
            return self.success(found, is_write=is_write)

    def success(self, found: Frame, *, is_write: bool) -> Frame:
        """Return the frame of a success. Raises the error that any other says."""
        return success_of(self.url, found, had_token=self._has_token, is_write=is_write)

    async def begin_parts(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> "AnswerParts":
        """Send a request whose success comes in parts, each as of one state."""
        request = request_frame(operation, arguments, ring, parts=PARTS_AHEAD)
        return AnswerParts(self.url, await self._connected(), request, had_token=self._has_token)

    def close(self) -> None:
        """Close the connection; what is under way fails. Closing twice is harmless."""
        self.is_closed = True
        if self.pipe is not None:
            self.pipe.fail(ConnectionAbortedError("the store was closed"))

    async def _connected(self) -> "_AwaitedPipe":
        async with self._connecting:
            if self.is_closed:
                raise EngineUnavailableError(engine=ENGINE_NAME, problem="the store was closed")
            if self.pipe is None or not self.pipe.is_good:
                try:
                    async with asyncio.timeout(_TIMEOUT_SECONDS):
                        self.pipe = await self._new_pipe()
                except (OSError, TimeoutError) as error:
                    raise EngineUnavailableError(engine=ENGINE_NAME, problem=f"{self.url}: {error}") from error
            return self.pipe

    async def _new_pipe(self) -> "_AwaitedPipe":
        loop, place = asyncio.get_running_loop(), self._place
        if place.is_unix:
            transport, pipe = await loop.create_unix_connection(_AwaitedPipe, place.path)
        else:
            context = ssl.create_default_context() if place.is_tls else None
            transport, pipe = await loop.create_connection(_AwaitedPipe, place.host, place.port, ssl=context)
        transport.write(self._asking)
        try:
            status, body = await pipe.begun
            if status != 101:
                raise refusal_of(self.url, status, body, had_token=self._has_token)
        except BaseException:  # Why all: a task that is cancelled here is the only one that knows the connection.
            transport.close()
            raise
        return pipe


class AnswerParts:
    """The parts of one answer, for `async for`. To be closed unless the last was taken."""

    def __init__(self, url: str, pipe: "_AwaitedPipe", request: FrameOfRequest, *, had_token: bool) -> None:
        self._url = url
        self._pipe = pipe
        self._had_token = had_token
        self._own, self._waiting = pipe.begin(request)
        self._is_whole = False
        self._taken = 0

    async def next(self) -> Answer | None:
        """Return the next part, None behind the last."""
        if self._is_whole:
            return None
        if 2 * self._taken >= PARTS_AHEAD:
            # Why not for each: a frame costs both sides as much as taking a part does.
            self._pipe.write(frame(self._own, FrameKind.CREDIT, number=self._taken))
            self._taken = 0
        self._taken += 1
        try:
            found = await self._pipe.frame_for(self._own, self._waiting)
        except (OSError, NotBegunError) as error:
            self._is_whole = True
            raise EngineUnavailableError(engine=ENGINE_NAME, problem=f"{self._url}: {error}") from error
        self._is_whole = not found.flags & PART
        return answer_of(self._url, found, had_token=self._had_token)

    def close(self) -> None:
        """Have the server send no further parts. Closing twice is harmless."""
        if not self._is_whole:
            self._is_whole = True
            self._pipe.forget(self._own)


class _Waiting:
    """The parts of an answer that have come for one request, and who waits for the next."""

    __slots__ = ("error", "frames", "next")

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self.error: Exception | None = None
        self.next: asyncio.Future[None] | None = None

    def stir(self) -> None:
        if self.next is not None and not self.next.done():
            self.next.set_result(None)


class _AwaitedPipe(asyncio.Protocol):
    """One connection. What is written in one turn of the event loop is sent at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[tuple[int, bytes]] = self._loop.create_future()
        """The status of the server's answer, and the body if it is no 101."""
        self._head = b""
        self._reader = FrameReader(ANY_SIZE)
        self._whole: dict[int, asyncio.Future[Frame]] = {}
        """By the ids of requests whose answers are one frame."""
        self._waiting: dict[int, _Waiting] = {}
        """By those of requests whose answers come in parts."""
        self._next_id = 1
        self._end: Exception | None = None
        self._written: list[bytes] = []
        self._writable: asyncio.Future[None] | None = None
        self._last_at = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None

    @property
    def is_good(self) -> bool:
        """Whether it may be asked."""
        return self._end is None and self._next_id < IDS_MAX

    # ---- asking ----------------------------------------------------------------------------------------------------------

    @property
    def takes_more(self) -> bool:
        """Whether it is good, and what is sent need not wait until the server has taken more."""
        return self._end is None and self._writable is None and self._next_id < IDS_MAX

    async def ask(self, request: FrameOfRequest) -> Frame:
        """Send a request and return the frame that answers it. Raises OSError, NotBegunError."""
        while self._writable is not None:
            await asyncio.shield(self._writable)
        own, answer = self.send(request)
        try:
            return await answer
        except asyncio.CancelledError:
            self.forget(own)
            raise

    def send(self, request: FrameOfRequest) -> tuple[int, asyncio.Future[Frame]]:
        """Send a request; return its id, and the frame that answers it, once it is there. Raises NotBegunError."""
        own = self._send(request)
        answer = self._whole[own] = self._loop.create_future()
        return own, answer

    def begin(self, request: FrameOfRequest) -> tuple[int, _Waiting]:
        """Send a request; return its id, and what the parts of its answer come into. Raises NotBegunError."""
        own = self._send(request)
        waiting = self._waiting[own] = _Waiting()
        return own, waiting

    def _send(self, request: FrameOfRequest) -> int:
        if self._end is not None:
            raise NotBegunError("the connection was at its end") from self._end
        own = self._next_id
        self._next_id = own + 1
        self.write(request(own))
        if self._watch is None:
            self._last_at = self._loop.time()
            self._watch = self._loop.call_later(_TIMEOUT_SECONDS, self._look)
        return own

    async def frame_for(self, own: int, waiting: _Waiting) -> Frame:
        """Return the next part of an answer. Raises what the connection ended with."""
        while not waiting.frames:
            if waiting.error is not None:
                raise waiting.error
            waiting.next = self._loop.create_future()
            await waiting.next
        found = waiting.frames.popleft()
        if not found.flags & PART:
            self._waiting.pop(own, None)
        return found

    def forget(self, own: int) -> None:
        """Want no answer any more."""
        known = self._whole.pop(own, None) or self._waiting.pop(own, None)
        if known is not None and self._end is None:
            self.write(frame(own, FrameKind.CANCEL))

    def write(self, data: bytes) -> None:
        """Send a frame with what else is written in this turn."""
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written.append(data)

    def _flush(self) -> None:
        written, self._written = self._written, []
        if self._end is None or isinstance(self._end, NotBegunError):
            self._transport.write(b"".join(written))

    def _look(self) -> None:
        """Fail when nothing has come for too long."""
        self._watch = None
        if not self._waiting and not self._whole:
            return
        left = self._last_at + _TIMEOUT_SECONDS - self._loop.time()
        if left <= 0:
            self.fail(TimeoutError("the server does not answer"))
        else:
            self._watch = self._loop.call_later(left, self._look)

    # ---- what comes ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # Why no check: uvloop's is none of asyncio's.

    def data_received(self, data: bytes) -> None:
        self._last_at = self._loop.time()
        try:
            if not self.begun.done():
                data = self._take_head(data)
            whole = self._whole
            for each in self._reader.feed(data):
                answer = whole.pop(each.id, None) if each.kind == _ANSWER else None
                if answer is None:
                    self._take(each)
                elif not answer.done():
                    answer.set_result(each)
        except (BrokenFrameError, BrokenAnswerError) as error:
            self.fail(ConnectionAbortedError(f"what the server sent is no frame: {error}"))

    def _take_head(self, data: bytes) -> bytes:
        """Take what comes before the frames; return what has come behind it."""
        self._head += data
        raw, end, rest = self._head.partition(b"\r\n\r\n")
        if not end:
            if len(self._head) > HEAD_BYTES_MAX:
                raise BrokenAnswerError("the answer's head is too large")
            return b""
        status, headers = read_head(raw)
        length = 0 if status == 101 else min(int(headers.get("content-length", "0")), HEAD_BYTES_MAX)
        if len(rest) < length:
            return b""
        self.begun.set_result((status, rest[:length]))
        return rest if status == 101 else b""

    def _take(self, found: Frame) -> None:
        if found.kind == FrameKind.FAREWELL:
            error = NotBegunError("the server ends the connection")
            self._end = self._end or error
            for own in [own for own in (*self._whole, *self._waiting) if own > found.id]:
                self._give_up(own, error)
        elif found.kind == FrameKind.ANSWER:
            waiting = self._waiting.get(found.id)
            if waiting is not None:  # Why None: who does not wait any more has cancelled.
                waiting.frames.append(found)
                waiting.stir()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(exc if isinstance(exc, OSError) else ConnectionResetError("the server closed the connection"))

    def fail(self, error: OSError) -> None:
        """End it; who waits is told."""
        self._end = self._end or error
        if not self.begun.done():
            self.begun.set_exception(error)
        for own in [*self._whole, *self._waiting]:
            self._give_up(own, error)
        self.resume_writing()
        if self._watch is not None:
            self._watch.cancel()
        self._transport.close()

    def _give_up(self, own: int, error: Exception) -> None:
        answer = self._whole.pop(own, None)
        if answer is None:
            waiting = self._waiting.pop(own)
            waiting.error = error
            waiting.stir()
        elif not answer.done():
            answer.set_exception(error)


class _DrivenCalls:
    """The transport of synchronous code that runs inside `drive`, or in a thread beside the event loop; see `Transport`."""

    def __init__(self, frames: AwaitedFrames) -> None:
        self.url = frames.url
        self._frames = frames
        self._loop = asyncio.get_running_loop()

    def ask(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> Answer:
        """Send a request, and return its success."""
        return self._awaited(self._frames.ask(operation, arguments, ring))

    def ask_in_parts(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> Iterator[Answer]:
        """Send a request, and yield its success in parts."""
        parts = self._awaited(self._frames.begin_parts(operation, arguments, ring))
        try:
            while (part := self._awaited(parts.next())) is not None:
                yield part
        finally:
            self._loop.call_soon_threadsafe(parts.close)

    def reader(self, kind: Kind, number: int, ring: str) -> Reader:
        """Return what reads one value of a database."""
        single, frames = SingleGet(kind, number, bytes.fromhex(ring)), self._frames

        def value(key: bytes) -> bytes | None:
            request, pipe, is_again = partial(single.frame, key), frames.pipe, False
            # Why past `asked`: a coroutine, and those that it awaits, take as long as all else here.
            if pipe is not None and pipe.takes_more and is_driven():
                own, answer = pipe.send(request)
                try:
                    return single_value(frames.success(wait(answer), is_write=False).body)
                except asyncio.CancelledError:
                    pipe.forget(own)
                    raise
                except (OSError, NotBegunError) as error:
                    judge(frames.url, error, is_last=frames.is_closed, is_write=False)
                    is_again = True
            return single_value(self._awaited(frames.asked(request, is_write=False, is_again=is_again)).body)

        return value

    def close(self) -> None:
        """Close the connection."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._frames.close)

    def _awaited(self, work: Coroutine[Any, Any, R]) -> R:
        return wait(work) if is_driven() else asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Threads(Protocol):
    """Where calls are made that take a while."""

    async def call(self, function: Callable[[], R]) -> R:
        """Return what a call returns."""
        ...

    async def end(self, close: Callable[[], None]) -> None:
        """Wait for the calls that are under way, then close."""
        ...


class Driver:
    """Makes short calls in the event loop, where what they wait for is awaited, and all others in threads."""

    def __init__(self, threads: _Threads) -> None:
        self._threads = threads

    async def call(self, function: Callable[[], R]) -> R:
        """Return what a call returns, made in a thread."""
        return await self._threads.call(function)

    def call_short(self, function: Callable[[], R]) -> Coroutine[Any, Any, R]:
        """Return what a call returns, made here."""
        return drive(function)

    async def end(self, close: Callable[[], None]) -> None:
        """Wait for the calls that are under way in threads, then close."""
        await self._threads.end(close)


async def open_driven(address: Address, counts: Mapping[Kind, int]) -> tuple[Databases, RemoteQueues] | None:
    """Open a server's databases and queues for calls that a Driver makes; None where the server has no frames."""
    frames = AwaitedFrames(address.url, token=address.token)
    try:
        await frames.connect()
    except NoFramesError:
        return None

    def opened() -> tuple[Databases, RemoteQueues]:
        calls = _DrivenCalls(frames)
        opener = address.opener_at(RemoteServer(calls))
        return Databases.open(address, counts, create=False, opener=opener), RemoteQueues(calls)

    return await drive(opened)
