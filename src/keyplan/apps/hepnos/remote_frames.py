"""Requests to a HEPnOS server as frames, for threads; what the client for asyncio judges in the same way."""

from collections.abc import Iterator, Mapping
from functools import partial
from threading import Lock
from typing import Any, Final
from weakref import WeakSet

from keyplan.apps.hepnos.frames import (
    FRAMES_PATH,
    FRAMES_PROTOCOL,
    MORE,
    Frame,
    FrameOfRequest,
    SingleGet,
    request_frame,
    single_value,
)
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.remote_calls import Calls, ServerPlace, authorization
from keyplan.apps.hepnos.remote_pipe import NotBegunError, Pipe
from keyplan.apps.hepnos.remote_transport import ENGINE_NAME, Answer, Reader, Transport, failure_of
from keyplan.apps.hepnos.remote_wire import Wire
from keyplan.errors import CommitOutcomeUnknownError, EngineUnavailableError
from keyplan.operations import Operation

__all__ = [
    "PARTS_AHEAD",
    "FramedCalls",
    "NoFramesError",
    "answer_of",
    "judge",
    "refusal_of",
    "success_of",
    "transport_to",
    "without_frames",
]

PARTS_AHEAD: Final = 16
"""Parts of an answer that the server may send before the first of them is used: of values 4 MiB where its reads are local, and
8 MiB where they are not."""

_REFUSALS: Final = frozenset({401, 403, 429, 503})
"""What a server with frames refuses a connection with. Every other answer is that of one without, or of a proxy before it."""


def transport_to(url: str, *, token: str | None) -> Transport:
    """Return what a server is asked by: frames where it has them, else HTTP. Raises as asking it does."""
    frames = FramedCalls(url, token=token)
    return frames if frames.connect() else Calls(url, token=token)


class FramedCalls:
    """A server by its URL, as `Calls` has it. Safe for use by several threads, which share one connection."""

    def __init__(self, url: str, *, token: str | None = None, timeout_seconds: float = 60.0) -> None:
        self.url = url
        self._has_token = bool(token)
        place = ServerPlace.of(url)
        headers = {"Connection": "Upgrade", "Upgrade": FRAMES_PROTOCOL, **authorization(token)}
        self._path = place.base + FRAMES_PATH
        self._new_wire = partial(Wire, place.connector(timeout_seconds), place.named, headers)
        self._timeout_seconds = timeout_seconds
        self._lock = Lock()
        self._pipe: Pipe | None = None
        self._made: WeakSet[Pipe] = WeakSet()
        """Also those that the server has said farewell to, and that have something under way."""
        self._is_closed = False

    def connect(self) -> bool:
        """Make the connection; return False where the server, or what stands before it, has none for frames.

        Raises EngineUnavailableError; UnauthorizedError and what else a connection is refused with.
        """
        try:
            self._own_pipe()
        except NoFramesError:
            return False
        return True

    def ask(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> Answer:
        """Send a request; see `Transport`."""
        found = self._asked(request_frame(operation, arguments, ring), is_write=operation.changes)
        return Answer(found.body, bool(found.flags & MORE))

    def reader(self, kind: Kind, number: int, ring: str) -> Reader:
        """Return what reads one value of a database; see `Transport`."""
        single = SingleGet(kind, number, bytes.fromhex(ring))

        def value(key: bytes) -> bytes | None:
            return single_value(self._asked(partial(single.frame, key), is_write=False).body)

        return value

    def _asked(self, request: FrameOfRequest, *, is_write: bool) -> Frame:
        """Send a request, and return the frame of its success."""
        is_again = False
        while True:
            try:
                found = self._connected().ask(request)
            except (OSError, NotBegunError) as error:
                judge(self.url, error, is_last=is_again or self._is_closed, is_write=is_write)
                is_again = True
                continue
            return success_of(self.url, found, had_token=self._has_token, is_write=is_write)

    def ask_in_parts(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> Iterator[Answer]:
        """Send a request, and yield its success in parts; see `Transport`."""
        request = request_frame(operation, arguments, ring, parts=PARTS_AHEAD)
        is_again = has_begun = False
        while True:
            pipe = self._connected()
            try:
                for found in pipe.ask_in_parts(request, PARTS_AHEAD):
                    has_begun = True
                    yield answer_of(self.url, found, had_token=self._has_token)
            except (OSError, NotBegunError) as error:
                judge(self.url, error, is_last=is_again or has_begun or self._is_closed, is_write=False)
                is_again = True
            else:
                return

    def close(self) -> None:
        """Close the connection. Closing twice is harmless."""
        with self._lock:
            self._is_closed = True
            self._pipe = None
            made = list(self._made)
        for pipe in made:
            pipe.close()

    def _connected(self) -> Pipe:
        pipe = self._pipe
        if pipe is not None and pipe.is_good:
            return pipe
        try:
            return self._own_pipe()
        except NoFramesError as error:
            raise without_frames(self.url) from error

    def _own_pipe(self) -> Pipe:
        """Return the connection, a new one where the last one is at its end, or another process's."""
        with self._lock:
            if self._is_closed:
                raise EngineUnavailableError(engine=ENGINE_NAME, problem="the store was closed")
            if self._pipe is None or not self._pipe.is_good:
                wire = self._new_wire()
                try:
                    answer, opened, rest = wire.upgrade(self._path)
                except OSError as error:
                    raise EngineUnavailableError(engine=ENGINE_NAME, problem=f"{self.url}: {error}") from error
                if opened is None:
                    wire.close()
                    raise refusal_of(self.url, answer.status, answer.body, had_token=self._has_token)
                try:
                    self._pipe = Pipe(opened, rest, self._timeout_seconds)
                except OSError as error:
                    raise EngineUnavailableError(engine=ENGINE_NAME, problem=f"{self.url}: {error}") from error
                self._made.add(self._pipe)
            return self._pipe


class NoFramesError(Exception):
    """The server answered as one does that has no frames. Never leaves this package."""


def refusal_of(url: str, status: int, body: bytes, *, had_token: bool) -> Exception:
    """Return what a connection for frames was refused with: NoFramesError by a server that has none."""
    if status not in _REFUSALS:
        return NoFramesError(status)
    return failure_of(url, status, body, had_token=had_token, is_write=False)


def without_frames(url: str) -> EngineUnavailableError:
    """Return what is raised for a server that had frames when it was opened, and has none now."""
    return EngineUnavailableError(engine=ENGINE_NAME, problem=f"{url} has no frames any more")


def success_of(url: str, found: Frame, *, had_token: bool, is_write: bool) -> Frame:
    """Return the frame of a success. Raises the error that any other says."""
    if found.number >= 300:
        raise failure_of(url, found.number, found.body, had_token=had_token, is_write=is_write)
    return found


def answer_of(url: str, found: Frame, *, had_token: bool) -> Answer:
    """Return the success that a part of an answer says. Raises the error that it says."""
    success_of(url, found, had_token=had_token, is_write=False)
    return Answer(found.body, bool(found.flags & MORE))


def judge(url: str, error: Exception, *, is_last: bool, is_write: bool) -> None:
    """Return if a request that had no answer may be sent again. Raises what it failed with."""
    if is_write and isinstance(error, OSError):
        raise CommitOutcomeUnknownError(engine=ENGINE_NAME, mutations=1) from error
    if is_last:
        raise EngineUnavailableError(engine=ENGINE_NAME, problem=f"{url}: {error}") from error
