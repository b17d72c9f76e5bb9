"""Requests to a HEPnOS server as frames, awaited: any number are under way on one connection, and no thread takes part.

`AwaitedFrames` is for asyncio; `open_driven` puts the synchronous API on it, whose calls run inside `keyplan.aio.drive`.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakSet

from keyplan.aio import drive, is_driven, wait
from keyplan.apps.hepnos.aio_calls import Caller
from keyplan.apps.hepnos.databases import Address, Databases
from keyplan.apps.hepnos.frames import (
    FRAMES_PATH,
    FRAMES_PROTOCOL,
    MORE,
    PART,
    Frame,
    FrameKind,
    FrameOfRequest,
    SingleGet,
    frame,
    request_frame,
    single_value,
)
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.remote import RemoteServer
from keyplan.apps.hepnos.remote_awaited_pipe import TIMEOUT_SECONDS, AwaitedPipe, ComingParts
from keyplan.apps.hepnos.remote_calls import ServerPlace, authorization
from keyplan.apps.hepnos.remote_frames import (
    PARTS_AHEAD,
    NoFramesError,
    judge,
    refusal_of,
    success_of,
    without_frames,
)
from keyplan.apps.hepnos.remote_pipe import NotBegunError
from keyplan.apps.hepnos.remote_queues import RemoteQueues
from keyplan.apps.hepnos.remote_transport import ENGINE_NAME, Answer, Reader
from keyplan.errors import EngineUnavailableError, InvalidInputError
from keyplan.operations import Operation

__all__ = ["AnswerParts", "AwaitedFrames", "Driver", "open_driven"]

R = TypeVar("R")

_CLOSED: Final = "the store was closed"


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
        self.pipe: AwaitedPipe | None = None
        """The connection, once there was one; it may be at its end."""
        self._made: WeakSet[AwaitedPipe] = WeakSet()
        """Also those that the server has said farewell to, and that have something under way."""
        self._connecting = asyncio.Lock()
        self.is_closed = False

    async def connect(self) -> None:
        """Make the connection. Raises NoFramesError where the server has none for frames; UnauthorizedError."""
        await self._own_pipe()

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
                    pipe = await self.connected()
                found = await pipe.ask(request)
            except (OSError, NotBegunError) as error:
                judge(self.url, error, is_last=is_again or self.is_closed, is_write=is_write)
                is_again = True
                continue
            return self.success(found, is_write=is_write)

    def success(self, found: Frame, *, is_write: bool) -> Frame:
        """Return the frame of a success. Raises the error that any other says."""
        return success_of(self.url, found, had_token=self._has_token, is_write=is_write)

    def ask_in_parts(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> "AnswerParts":
        """Return the parts of a success, each as of one state. Nothing is asked before the first is awaited."""
        return AnswerParts(self, request_frame(operation, arguments, ring, parts=PARTS_AHEAD))

    def close(self) -> None:
        """Close the connection; what is under way fails. Closing twice is harmless."""
        self.is_closed = True
        for pipe in list(self._made):
            pipe.fail(ConnectionAbortedError(_CLOSED))

    async def connected(self) -> AwaitedPipe:
        """Return the connection, a new one where the last one is at its end. Raises EngineUnavailableError."""
        try:
            return await self._own_pipe()
        except NoFramesError as error:
            raise without_frames(self.url) from error

    async def _own_pipe(self) -> AwaitedPipe:
        async with self._connecting:
            self._check_open()
            if self.pipe is None or not self.pipe.is_good:
                try:
                    async with asyncio.timeout(TIMEOUT_SECONDS):
                        self.pipe = await self._new_pipe()
                except OSError as error:
                    problem = str(error) or "the server does not answer"  # Why: a timeout says nothing.
                    raise EngineUnavailableError(engine=ENGINE_NAME, problem=f"{self.url}: {problem}") from error
            return self.pipe

    def _check_open(self) -> None:
        if self.is_closed:
            raise EngineUnavailableError(engine=ENGINE_NAME, problem=_CLOSED)

    async def _new_pipe(self) -> AwaitedPipe:
        loop, place = asyncio.get_running_loop(), self._place
        if place.is_unix:
            transport, pipe = await loop.create_unix_connection(AwaitedPipe, place.path)
        else:
            context = ssl.create_default_context() if place.is_tls else None
            transport, pipe = await loop.create_connection(AwaitedPipe, place.host, place.port, ssl=context)
        self._made.add(pipe)
        try:
            self._check_open()  # Why again: it may have been closed meanwhile, and knew of this one not yet.
            transport.write(self._asking)
            status, body = await pipe.begun
            if status != 101:
                raise refusal_of(self.url, status, body, had_token=self._has_token)
        except BaseException:  # Why all: a task that is cancelled here is the only one that knows the connection.
            transport.abort()
            raise
        return pipe


class AnswerParts:
    """The parts of one answer. To be closed unless the last was taken."""

    def __init__(self, frames: AwaitedFrames, request: FrameOfRequest) -> None:
        self._frames = frames
        self._request = request
        self._under_way: tuple[AwaitedPipe, int, ComingParts] | None = None
        """On which connection, by which id, and what has come."""
        self._has_begun = self._is_whole = False
        self._taken = 0
        """Parts in whose place the server may not send others yet."""

    async def next(self) -> Answer | None:
        """Return the next part, None behind the last. A request whose connection ends before the first is sent again, once."""
        is_again = False
        while not self._is_whole:
            try:
                found = await self._next_frame()
            except (OSError, NotBegunError) as error:
                self._under_way = None
                self._is_whole = is_last = is_again or self._has_begun or self._frames.is_closed
                judge(self._frames.url, error, is_last=is_last, is_write=False)
                is_again = True
                continue
            self._has_begun = True
            self._taken += 1
            self._is_whole = not found.flags & PART
            success = self._frames.success(found, is_write=False)
            return Answer(success.body, bool(success.flags & MORE))
        return None

    async def _next_frame(self) -> Frame:
        if self._under_way is None:
            pipe = await self._frames.connected()
            self._under_way = (pipe, *pipe.begin(self._request))
        pipe, own, coming = self._under_way
        if 2 * self._taken >= PARTS_AHEAD:
            # Why not for each: a frame costs both sides as much as taking a part does.
            pipe.write(frame(own, FrameKind.CREDIT, number=self._taken))
            self._taken = 0
        return await pipe.frame_for(own, coming)

    def close(self) -> None:
        """Have the server send no further parts. Closing twice is harmless."""
        self._is_whole = True
        if self._under_way is not None:
            pipe, own, _ = self._under_way
            pipe.forget(own)


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
        parts = self._frames.ask_in_parts(operation, arguments, ring)
        try:
            while (part := self._awaited(parts.next())) is not None:
                yield part
        finally:
            self._call_soon(parts.close)

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
        self._call_soon(self._frames.close)

    def _call_soon(self, function: Callable[[], None]) -> None:
        # Why suppressed: the loop was closed, and its connections with it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def _awaited(self, work: Coroutine[Any, Any, R]) -> R:
        if is_driven():
            return wait(work)
        if _running_loop() is self._loop:
            work.close()
            problem = (
                "a call on the event loop's own thread would wait for itself: await the method, or `store.call` it"
            )
            raise InvalidInputError(source="hepnos.aio", problem=problem)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Driver:
    """Makes short calls in the event loop, where what they wait for is awaited, and all others in threads."""

    def __init__(self, threads: Caller) -> None:
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

    try:
        return await drive(opened)
    except (
        BaseException
    ):  # Why all: whoever opens is cancelled, or refused before there is a database that would close it.
        frames.close()
        raise
