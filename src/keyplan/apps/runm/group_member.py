"""What a process has that serves beside others behind one port: a pipe to the process that started it, and what goes over it.

It says that it takes calls, or why it cannot; it has lines of the audit log written, of which there is one chain for all; it
gives its figures when it is asked. The end of the pipe is the end of whoever started it, and so its own.
"""

from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from multiprocessing.connection import Connection
from threading import Event, Lock, Thread
from typing import Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest

from keyplan.audit_log import Event as LineEvent
from keyplan.errors import AuditLogError, AuditLogIncompleteError, KeyplanError

__all__ = ["AskFigures", "Failed", "FiguresGiven", "LineAsked", "LineWritten", "Member", "Ready", "SharedPipe"]


class Ready(NamedTuple):
    """The member takes calls."""

    kind: Literal["ready"] = "ready"


class Failed(NamedTuple):
    """The member cannot serve, and ends."""

    error: KeyplanError


class LineAsked(NamedTuple):
    """A line of the audit log is to be written."""

    number: int
    event: LineEvent
    fields: dict[str, Any]


class LineWritten(NamedTuple):
    """What became of a line: its number in the log, or an error."""

    number: int
    result: int | KeyplanError


class AskFigures(NamedTuple):
    """The member's figures are asked for."""

    kind: Literal["figures"] = "figures"


class FiguresGiven(NamedTuple):
    """They are these, as Prometheus reads them."""

    text: str


class SharedPipe:
    """A pipe over which all threads may send, and one receives."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe
        self._sending = Lock()

    def send(self, message: object) -> bool:
        """Send a message; return whether there was still a pipe."""
        try:
            with self._sending:
                self._pipe.send(message)
        except (OSError, ValueError):
            return False
        return True

    def receive(self) -> Any:
        """Wait for a message. Raises EOFError at the end of the pipe, OSError when it breaks."""
        return self._pipe.recv()

    def close(self) -> None:
        """Close this end, once nobody sends."""
        with self._sending:
            self._pipe.close()


class Member:
    """One process of several. `stop` is set when the process that started it is gone. For all threads."""

    def __init__(self, pipe: "Connection[Any, Any]", number: int, stop: Event) -> None:
        self.number = number
        self._pipe = SharedPipe(pipe)
        self._stop = stop
        self._numbers = count(1)
        self._asked: dict[int, Future[int]] = {}
        self._is_over = False
        self._figures: Callable[[], str] = str
        Thread(target=self._hear, name="runm-group", daemon=True).start()

    @property
    def is_first(self) -> bool:
        """Whether this is the one that does what one of them has to do."""
        return self.number == 0

    def tell(self, message: Ready | Failed) -> None:
        """Say how the member stands."""
        self._pipe.send(message)

    def give_figures(self, registry: CollectorRegistry) -> None:
        """Give these figures from now on when they are asked for."""
        self._figures = lambda: generate_latest(registry).decode()

    def append(self, event: LineEvent, **fields: Any) -> "Future[int]":
        """Have a line of the audit log written, as `AuditLog.append` does."""
        asked: Future[int] = Future()
        number = next(self._numbers)
        self._asked[number] = asked
        # Why behind the note: whoever hears the end of the pipe meanwhile answers what is noted.
        if self._is_over or not self._pipe.send(LineAsked(number, event, fields)):
            self._answer(number, AuditLogError(problem="the process that writes it is gone"))
        return asked

    def _hear(self) -> None:
        try:
            while True:
                message = self._pipe.receive()
                if isinstance(message, LineWritten):
                    self._answer(message.number, message.result)
                elif isinstance(message, AskFigures):
                    self._pipe.send(FiguresGiven(self._figures()))
        except (EOFError, OSError):
            self._is_over = True
            for number in list(self._asked):
                # Why this error: the line may be written all the same.
                self._answer(number, AuditLogIncompleteError(problem="the process that writes it is gone"))
            self._stop.set()

    def _answer(self, number: int, result: int | KeyplanError) -> None:
        asked = self._asked.pop(number, None)
        if asked is None or not asked.set_running_or_notify_cancel():
            return
        if isinstance(result, int):
            asked.set_result(result)
        else:
            asked.set_exception(result)
