"""One connection for frames to a HEPnOS server, for one event loop: who asks awaits the answer, and no thread takes part."""

import asyncio
from collections import deque
from typing import Final, cast

from keyplan.apps.hepnos.frames import (
    IDS_MAX,
    PART,
    BrokenFrameError,
    Frame,
    FrameKind,
    FrameOfRequest,
    FrameReader,
    frame,
)
from keyplan.apps.hepnos.remote_pipe import ANY_SIZE, NotBegunError
from keyplan.apps.hepnos.remote_wire import HEAD_BYTES_MAX, BrokenAnswerError, length_of, read_head

__all__ = ["TIMEOUT_SECONDS", "AwaitedPipe", "ComingParts"]

_ANSWER: Final = int(FrameKind.ANSWER)

TIMEOUT_SECONDS: Final = 60.0
"""How long nothing may come while something is waited for."""


class ComingParts:
    """The parts of an answer that have come for one request, and who waits for the next."""

    __slots__ = ("error", "frames", "next")

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self.error: Exception | None = None
        self.next: asyncio.Future[None] | None = None
        """There while somebody waits."""

    def stir(self) -> None:
        """Let who waits look again."""
        if self.next is not None and not self.next.done():
            self.next.set_result(None)


class AwaitedPipe(asyncio.Protocol):
    """One connection. What is written in one turn of the event loop is sent at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[tuple[int, bytes]] = self._loop.create_future()
        """The status of the server's answer, and the body if it is no 101."""
        self._head = b""
        self._reader = FrameReader(ANY_SIZE)
        self._whole: dict[int, asyncio.Future[Frame]] = {}
        """By the ids of requests whose answers are one frame."""
        self._coming: dict[int, ComingParts] = {}
        """By those of requests whose answers come in parts."""
        self._next_id = 1
        self._end: Exception | None = None
        self._written: list[bytes] = []
        self._writable: asyncio.Future[None] | None = None
        """There while the server takes nothing."""
        self._last_at = self._loop.time()
        """When something has come last, or somebody has begun to wait, while nobody did."""
        self._watch: asyncio.TimerHandle | None = None

    @property
    def is_good(self) -> bool:
        """Whether it may be asked."""
        return self._end is None and self._next_id < IDS_MAX

    @property
    def takes_more(self) -> bool:
        """Whether it is good, and what is sent need not wait until the server has taken more."""
        return self._end is None and self._writable is None and self._next_id < IDS_MAX

    # ---- asking ----------------------------------------------------------------------------------------------------------

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
        if not self._whole:
            self._begin_to_wait()
        answer = self._whole[own] = self._loop.create_future()
        return own, answer

    def begin(self, request: FrameOfRequest) -> tuple[int, ComingParts]:
        """Send a request; return its id, and what the parts of its answer come into. Raises NotBegunError."""
        own = self._send(request)
        coming = self._coming[own] = ComingParts()
        return own, coming

    def _send(self, request: FrameOfRequest) -> int:
        if self._end is not None:
            raise NotBegunError(f"the connection was at its end: {self._end}") from self._end
        own = self._next_id
        self._next_id = own + 1
        self.write(request(own))
        return own

    async def frame_for(self, own: int, coming: ComingParts) -> Frame:
        """Return the next part of an answer. Raises what the connection ended with."""
        while not coming.frames:
            if coming.error is not None:
                raise coming.error
            self._begin_to_wait()
            coming.next = self._loop.create_future()
            try:
                await coming.next
            finally:
                coming.next = None
        found = coming.frames.popleft()
        if not found.flags & PART:
            self._coming.pop(own, None)
        return found

    def forget(self, own: int) -> None:
        """Want no answer any more."""
        known = self._whole.pop(own, None) or self._coming.pop(own, None)
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

    # ---- waiting ---------------------------------------------------------------------------------------------------------

    @property
    def _is_waited_for(self) -> bool:
        """Whether anybody waits for the server. Why not for each list that is open: the server may be the one that waits."""
        return (
            bool(self._whole)
            or self._writable is not None
            or any(coming.next is not None for coming in self._coming.values())
        )

    def _begin_to_wait(self) -> None:
        """Count the time from now on, unless it counts already. Called before it is known that somebody waits."""
        if not self._is_waited_for:
            self._last_at = self._loop.time()
        if self._watch is None:
            self._watch = self._loop.call_later(TIMEOUT_SECONDS, self._look)

    def _look(self) -> None:
        """Fail when nothing has come for too long."""
        self._watch = None
        if not self._is_waited_for:
            return
        left = self._last_at + TIMEOUT_SECONDS - self._loop.time()
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
        except BrokenFrameError as error:
            self.fail(ConnectionAbortedError(f"what the server sent is no frame: {error}"))
        except OSError as error:
            self.fail(error)

    def _take_head(self, data: bytes) -> bytes:
        """Take what comes before the frames; return what has come behind it. Raises BrokenAnswerError."""
        self._head += data
        raw, end, rest = self._head.partition(b"\r\n\r\n")
        if not end:
            if len(self._head) > HEAD_BYTES_MAX:
                raise BrokenAnswerError("the answer's head is too large")
            return b""
        status, headers = read_head(raw)
        length = 0 if status == 101 else min(length_of(headers), HEAD_BYTES_MAX)
        if len(rest) < length:
            return b""
        self.begun.set_result((status, rest[:length]))
        return rest if status == 101 else b""

    def _take(self, found: Frame) -> None:
        if found.kind == FrameKind.FAREWELL:
            error = NotBegunError("the server ends the connection")
            self._end = self._end or error
            for own in [own for own in (*self._whole, *self._coming) if own > found.id]:
                self._give_up(own, error)
        elif found.kind == FrameKind.ANSWER and found.id == 0:
            raise ConnectionAbortedError(f"the server refused the connection: {found.body[:200]!r}")
        elif found.kind == FrameKind.ANSWER:
            coming = self._coming.get(found.id)
            if coming is not None:  # Why None: who does not wait any more has cancelled.
                coming.frames.append(found)
                coming.stir()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._last_at = self._loop.time()
            self._writable.set_result(None)
            self._writable = None

    # ---- its end ---------------------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(exc if isinstance(exc, OSError) else ConnectionResetError("the server closed the connection"))

    def fail(self, error: OSError) -> None:
        """End it; who waits is told."""
        self._end = self._end or error
        if not self.begun.done():
            self.begun.set_exception(error)
            self.begun.exception()  # Why: who was to wait for it may be gone, and is told of nothing.
        for own in [*self._whole, *self._coming]:
            self._give_up(own, error)
        self.resume_writing()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        # Why not closed: what was written would have to be taken before, and a server that takes nothing kept the connection.
        self._transport.abort()

    def _give_up(self, own: int, error: Exception) -> None:
        answer = self._whole.pop(own, None)
        if answer is None:
            coming = self._coming.pop(own)
            coming.error = error
            coming.stir()
        elif not answer.done():
            answer.set_exception(error)
