"""One connection for frames to a HEPnOS server, for all threads of a process: whoever waits reads for the others.

    thread A  send 7 ............ read 9, 8, 7 | done, hands the reading over
    thread B     send 8 .. wait ......... done
    thread C        send 9 .. wait ... done

Why no thread of its own to read: handing an answer from one thread to another takes longer than the answer.
"""

import os
import select
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Lock
from types import TracebackType
from typing import Final

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

__all__ = ["ANY_SIZE", "NotBegunError", "Pipe"]

_READ_BYTES: Final = 1 << 16
_READ_BYTES_MAX: Final = 1 << 20
_BLOCKED_SECONDS: Final = 0.05
"""How long who cannot send waits before looking whether anybody still reads."""

ANY_SIZE: Final = 1 << 32
"""Why no bound of answers: the server's own is by bytes that its callers hold, and who asks knows what for."""


class NotBegunError(Exception):
    """The server has not begun this request, and will not: it may be sent again. Never leaves this package."""


class _Waiter:
    """Who waits for the answer to one request."""

    __slots__ = ("error", "frames", "turn")

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self.error: Exception | None = None
        self.turn: Event | None = None
        """There while they wait, and set when there is something for them, or when it is their turn to read."""

    def stir(self) -> None:
        """Let them look again, if they wait."""
        turn = self.turn  # Why once: they may go meanwhile.
        if turn is not None:
            turn.set()


class _EndsOnFailure:
    """A block of sending or reading: what fails in it ends its connection, and everybody who waits there is told.

    An error of the connection ends there. What is no such error interrupts the thread, and is raised. Trap: the thread may have
    sent half of a frame, or lost what was read. What is sent next would be taken for the rest of that frame, and a value be
    written that nobody has sent.
    """

    __slots__ = ("_pipe",)

    def __init__(self, pipe: "Pipe") -> None:
        self._pipe = pipe

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, ValueError) and self._pipe.is_closed:
            # Why: so the system's own names a connection that was closed meanwhile.
            error = ConnectionAbortedError("the connection was closed")
        if isinstance(error, OSError):
            self._pipe.fail(error)
            return True
        if error is not None:
            self._pipe.fail(ConnectionAbortedError("the thread that was sending or reading was interrupted"))
        return False


class Pipe:
    """One connection, which threads share.

    Invariant: at most one thread reads, the leader. Whoever leads hands that on before doing anything else. Who sends holds
    `_sending`; ids therefore ascend on the wire.
    """

    def __init__(self, opened: socket.socket, rest: bytes, timeout_seconds: float) -> None:
        opened.settimeout(0)
        self._socket = opened
        self._timeout_seconds = timeout_seconds
        self._process = os.getpid()
        self._reader = FrameReader(ANY_SIZE)
        self._poll = select.poll()
        """The leader's."""
        self._poll.register(opened, select.POLLIN)
        self._is_tls = isinstance(opened, ssl.SSLSocket)
        self._using = Lock()
        """Why: TLS of a connection is one object, which two threads must not enter at once."""
        self._sending = Lock()
        self._lock = Lock()
        self._waiters: dict[int, _Waiter] = {}
        self._leader: _Waiter | None = None
        self._next_id = 1
        self._end: Exception | None = None
        self._unwanted: deque[int] = deque()
        """Requests whose answer nobody takes to its end. The server is told before the next one.

        Why not at once: an iterator may be ended by the garbage collector, which comes to a thread that is sending, too.
        """
        self._take(rest)

    @property
    def is_good(self) -> bool:
        """Whether it may be asked: by this process, and not at its end."""
        return self._end is None and self._process == os.getpid() and self._next_id < IDS_MAX

    def ask(self, request: FrameOfRequest) -> Frame:
        """Send a request and return the frame that answers it. Raises OSError, NotBegunError."""
        waiter = _Waiter()
        self._send_request(waiter, request)
        return self._frame_for(waiter)

    def ask_in_parts(self, request: FrameOfRequest, parts_ahead: int) -> Iterator[Frame]:
        """Send a request and yield the frames that answer it. Who stops before the last has the server stop, too.

        `parts_ahead` is how many the request lets be sent ahead.
        """
        waiter = _Waiter()
        own = self._send_request(waiter, request)
        is_whole, taken = False, 0
        try:
            while not is_whole:
                found = self._frame_for(waiter)
                is_whole = not found.flags & PART
                yield found
                taken += 1
                # Why not for each: a frame costs both sides as much as taking a part does.
                if not is_whole and 2 * taken >= parts_ahead:
                    self._send(frame(own, FrameKind.CREDIT, number=taken))
                    taken = 0
        finally:
            if not is_whole and self._waiters.pop(own, None) is not None:
                self._unwanted.append(own)

    def close(self) -> None:
        """Close it; whoever waits fails."""
        self.fail(ConnectionAbortedError("the store was closed"))

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent or read any more."""
        return self._socket.fileno() < 0

    # ---- sending ---------------------------------------------------------------------------------------------------------

    def _send_request(self, waiter: _Waiter, request: FrameOfRequest) -> int:
        with self._sending:
            if not self._waiters:
                self._look()
            if self._end is not None:
                raise NotBegunError(f"the connection was at its end: {self._end}") from self._end
            own, self._next_id = self._next_id, self._next_id + 1
            data = request(own)
            self._waiters[own] = waiter
            if self._unwanted:
                cancels = [frame(self._unwanted.popleft(), FrameKind.CANCEL) for _ in range(len(self._unwanted))]
                data = b"".join((*cancels, data))
            self._send_whole(data)
            return own

    def _send(self, data: bytes) -> None:
        with self._sending:
            self._send_whole(data)

    def _send_whole(self, data: bytes) -> None:
        view = memoryview(data)
        # Why nothing is raised: who waits for what was sent in part would wait for good, and learns that it may have been done.
        with _EndsOnFailure(self):
            while view:
                view = view[self._send_some(view) :]

    def _send_some(self, view: memoryview) -> int:
        try:
            with self._using:
                return self._socket.send(view)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._wait_to_send()
            return 0

    def _wait_to_send(self) -> None:
        """Wait until more can be sent. Why reading meanwhile: the server may take nothing while nobody takes its answers."""
        stand_in = _Waiter()
        with self._lock:
            leads = self._leader is None
            if leads:
                self._leader = stand_in
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT | (select.POLLIN if leads else 0))
        try:
            # Trap: the leader may hand on while this waits, and then nobody reads until this looks again.
            seconds = self._timeout_seconds if leads else _BLOCKED_SECONDS
            events = poll.poll(seconds * 1000)
            if leads and not events:
                raise TimeoutError("the server takes nothing")
            if leads and events[0][1] & select.POLLIN:
                self._take(self._receive())
        finally:
            if leads:
                self._hand_on()

    def _look(self) -> None:
        """Take what has come while nobody waited: a farewell, or the end."""
        with self._lock:
            if self._leader is not None:
                return
            self._leader = stand_in = _Waiter()
        try:
            with _EndsOnFailure(self):
                if self._end is None and self._poll.poll(0):
                    self._take(self._receive())
        finally:
            assert self._leader is stand_in
            self._hand_on()

    # ---- reading ---------------------------------------------------------------------------------------------------------

    def _frame_for(self, waiter: _Waiter) -> Frame:
        """Return the next frame for who waits; read for all while nobody else does. Raises what the connection ended with."""
        while not waiter.frames:
            if waiter.error is not None:
                raise waiter.error
            with self._lock:
                leads = self._leader is None
                if leads:
                    self._leader = waiter
                else:
                    waiter.turn = Event()
            if leads:
                self._lead(waiter)
            else:
                self._wait_for_turn(waiter)
        return waiter.frames.popleft()

    def _wait_for_turn(self, waiter: _Waiter) -> None:
        """Wait until there is something for who waits, or nobody reads."""
        turn = waiter.turn
        assert turn is not None
        try:
            if not waiter.frames and waiter.error is None:
                turn.wait()
        except BaseException:
            with self._lock:
                waiter.turn = None
                # Why: this thread, which is interrupted, may be the one that was to read for the others.
                if self._leader is None:
                    self._wake_one()
            raise
        with self._lock:
            # Why: who was woken to read, and is at something else, would leave all others without a reader.
            waiter.turn = None

    def _lead(self, waiter: _Waiter) -> None:
        try:
            with _EndsOnFailure(self):
                while not waiter.frames and waiter.error is None:
                    is_there = self._is_tls and isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
                    if not is_there and not self._poll.poll(self._timeout_seconds * 1000):
                        raise TimeoutError("the server does not answer")
                    self._take(self._receive())
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        """Lead no more, and wake somebody who may."""
        with self._lock:
            self._leader = None
            if self._end is not None and not self._waiters:
                self._socket.close()
                return
            self._wake_one()

    def _wake_one(self) -> None:
        """Wake one of those who wait, to read. Called under the lock, under which they begin and cease to wait."""
        for waiter in list(self._waiters.values()):
            if waiter.turn is not None and not waiter.turn.is_set() and not waiter.frames:
                waiter.turn.set()
                return

    def _receive(self) -> bytes:
        """Return what is there; nothing when that was no more than TLS's own. Raises OSError at the end."""
        size = max(_READ_BYTES, min(self._reader.missing_bytes, _READ_BYTES_MAX))
        try:
            with self._using:
                data = self._socket.recv(size)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""
        if not data:
            raise ConnectionResetError("the server closed the connection")
        return data

    def _take(self, data: bytes) -> None:
        try:
            found = self._reader.feed(data)
        except BrokenFrameError as error:
            raise ConnectionAbortedError(f"what the server sent is no frame: {error}") from error
        for each in found:
            if each.kind == FrameKind.FAREWELL:
                self._take_farewell(each.id)
            elif each.kind == FrameKind.ANSWER and each.id == 0:
                raise ConnectionAbortedError(f"the server refused the connection: {each.body[:200]!r}")
            elif each.kind == FrameKind.ANSWER:
                is_part = each.flags & PART
                waiter = self._waiters.get(each.id) if is_part else self._waiters.pop(each.id, None)
                if waiter is not None:  # Why None: who does not wait any more has cancelled.
                    waiter.frames.append(each)
                    waiter.stir()

    def _take_farewell(self, last: int) -> None:
        """Ask nothing more here. What came behind `last` was not begun."""
        error = NotBegunError("the server ends the connection")
        self._end = self._end or error
        for own in [own for own in list(self._waiters) if own > last]:
            self._give_up(own, error)

    def fail(self, error: Exception) -> None:
        """End it; whoever waits is told."""
        self._end = self._end or error
        for own in list(self._waiters):
            self._give_up(own, error)
        if self._process != os.getpid():
            return  # Why: the connection is another process's, which this one was forked from.
        with suppress(OSError):  # Why: the other side may have ended it before.
            self._socket.shutdown(socket.SHUT_RDWR)
        with self._lock:
            # Why not while somebody reads: another file may get the number. Who reads closes it then.
            if self._leader is None:
                self._socket.close()

    def _give_up(self, own: int, error: Exception) -> None:
        waiter = self._waiters.pop(own, None)
        if waiter is not None:
            waiter.error = error
            waiter.stir()

    def __del__(self) -> None:
        self._socket.close()
