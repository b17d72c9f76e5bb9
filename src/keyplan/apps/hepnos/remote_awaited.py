"""Requests to a HEPnOS server as frames, awaited: any number are under way on one connection, and no thread takes part.

`AwaitedFrames` is for asyncio; `open_driven` puts the synchronous API on it, whose calls run inside `keyplan.aio.drive`.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, Protocol, TypeVar, cast

from keyplan.aio import drive, is_driven, wait
from keyplan.apps.hepnos.databases import Address, Databases
from keyplan.apps.hepnos.frames import (
    FRAMES_PATH,
    FRAMES_PROTOCOL,
    IDS_MAX,
    PART,
    BrokenFrameError,
    Frame,
    FrameKind,
    FrameReader,
    frame,
    kind_of,
    request_body,
)
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.remote import RemoteServer
from keyplan.apps.hepnos.remote_calls import ServerPlace, authorization
from keyplan.apps.hepnos.remote_frames import (
    ANY_SIZE,
    PARTS_AHEAD,
    NoFramesError,
    NotBegunError,
    answer_of,
    judge,
    refusal_of,
)
from keyplan.apps.hepnos.remote_transport import ENGINE_NAME, Answer
from keyplan.apps.hepnos.remote_wire import HEAD_BYTES_MAX, BrokenAnswerError, read_head
from keyplan.errors import EngineUnavailableError
from keyplan.operations import Operation

__all__ = ["AnswerParts", "AwaitedFrames", "Driver", "open_driven"]

R = TypeVar("R")

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
        self._pipe: _AwaitedPipe | None = None
        self._connecting = asyncio.Lock()
        self._is_closed = False

    async def connect(self) -> None:
        """Make the connection. Raises NoFramesError where the server has none for frames; UnauthorizedError."""
        await self._connected()

    async def ask(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> Answer:
        """Send a request, and return its success. A cancelled one that reads is ended on the server, too."""
        kind, number = kind_of(operation), arguments.get("number", 0)
        body = request_body(operation, arguments, bytes.fromhex(ring))
        is_again = False
        while True:
            try:
                pipe = self._pipe
                if pipe is None or not pipe.is_good:
                    pipe = await self._connected()
                found = await pipe.ask(kind, number, body)
            except (OSError, NotBegunError) as error:
                judge(self.url, error, is_last=is_again or self._is_closed, is_write=operation.changes)
                is_again = True
                continue
            return answer_of(self.url, found, had_token=self._has_token, is_write=operation.changes)

    async def begin_parts(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> "AnswerParts":
        """Send a request whose success comes in parts, each as of one state."""
        body = request_body(operation, arguments, bytes.fromhex(ring), parts=PARTS_AHEAD)
        pipe = await self._connected()
        return AnswerParts(
            self.url, pipe, kind_of(operation), arguments.get("number", 0), body, had_token=self._has_token
        )

    def close(self) -> None:
        """Close the connection; what is under way fails. Closing twice is harmless."""
        self._is_closed = True
        if self._pipe is not None:
            self._pipe.fail(ConnectionAbortedError("the store was closed"))

    async def _connected(self) -> "_AwaitedPipe":
        async with self._connecting:
            if self._is_closed:
                raise EngineUnavailableError(engine=ENGINE_NAME, problem="the store was closed")
            if self._pipe is None or not self._pipe.is_good:
                try:
                    async with asyncio.timeout(_TIMEOUT_SECONDS):
                        self._pipe = await self._new_pipe()
                except (OSError, TimeoutError) as error:
                    raise EngineUnavailableError(engine=ENGINE_NAME, problem=f"{self.url}: {error}") from error
            return self._pipe

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

    def __init__(
        self, url: str, pipe: "_AwaitedPipe", kind: int, number: int, body: tuple[bytes, ...], *, had_token: bool
    ) -> None:
        self._url = url
        self._pipe = pipe
        self._had_token = had_token
        self._own, self._waiting = pipe.begin(kind, number, body)
        self._is_whole = False
        self._is_first = True

    async def next(self) -> Answer | None:
        """Return the next part, None behind the last."""
        if self._is_whole:
            return None
        if not self._is_first:
            self._pipe.write(frame(self._own, FrameKind.CREDIT, number=1))
        self._is_first = False
        try:
            found = await self._pipe.frame_for(self._own, self._waiting)
        except (OSError, NotBegunError) as error:
            self._is_whole = True
            raise EngineUnavailableError(engine=ENGINE_NAME, problem=f"{self._url}: {error}") from error
        self._is_whole = not found.flags & PART
        return answer_of(self._url, found, had_token=self._had_token, is_write=False)

    def close(self) -> None:
        """Have the server send no further parts. Closing twice is harmless."""
        if not self._is_whole:
            self._is_whole = True
            self._pipe.forget(self._own)


class _Waiting:
    """The frames that have come for one request, and who waits for the next."""

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
        self._waiting: dict[int, _Waiting] = {}
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

    async def ask(self, kind: int, number: int, body: tuple[bytes, ...]) -> Frame:
        """Send a request and return the frame that answers it. Raises OSError, NotBegunError."""
        while self._writable is not None:
            await asyncio.shield(self._writable)
        own, waiting = self.begin(kind, number, body)
        try:
            return await self.frame_for(own, waiting)
        except asyncio.CancelledError:
            self.forget(own)
            raise

    def begin(self, kind: int, number: int, body: tuple[bytes, ...]) -> tuple[int, _Waiting]:
        """Send a request; return its id, and what its answer comes into. Raises NotBegunError."""
        if self._end is not None:
            raise NotBegunError("the connection was at its end") from self._end
        own, self._next_id = self._next_id, self._next_id + 1
        waiting = self._waiting[own] = _Waiting()
        self.write(frame(own, kind, *body, number=number))
        if self._watch is None:
            self._last_at = self._loop.time()
            self._watch = self._loop.call_later(_TIMEOUT_SECONDS, self._look)
        return own, waiting

    async def frame_for(self, own: int, waiting: _Waiting) -> Frame:
        """Return the next frame of a request. Raises what the connection ended with."""
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
        if self._waiting.pop(own, None) is not None and self._end is None:
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
        if not self._waiting:
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
            for each in self._reader.feed(data):
                self._take(each)
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
            for own in [own for own in self._waiting if own > found.id]:
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
        for own in list(self._waiting):
            self._give_up(own, error)
        self.resume_writing()
        if self._watch is not None:
            self._watch.cancel()
        self._transport.close()

    def _give_up(self, own: int, error: Exception) -> None:
        waiting = self._waiting.pop(own)
        waiting.error = error
        waiting.stir()


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

    async def call_short(self, function: Callable[[], R]) -> R:
        """Return what a call returns, made here."""
        return await drive(function)

    async def end(self, close: Callable[[], None]) -> None:
        """Wait for the calls that are under way in threads, then close."""
        await self._threads.end(close)


async def open_driven(address: Address, counts: Mapping[Kind, int]) -> Databases | None:
    """Open a server's databases for calls that a Driver makes; None where the server has no frames."""
    frames = AwaitedFrames(address.url, token=address.token)
    try:
        await frames.connect()
    except NoFramesError:
        return None

    def opened() -> Databases:
        opener = address.opener_at(RemoteServer(_DrivenCalls(frames)))
        return Databases.open(address, counts, create=False, opener=opener)

    return await drive(opened)
