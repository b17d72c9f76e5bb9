"""How one actor at a time runs: each holds a baton, which is parked in the actor and resumed by the scheduler.

Greenlets where greenlet can be imported, else threads; schedules and their strings are the same.
"""

from collections.abc import Callable
from threading import Lock, Thread, get_ident
from typing import Final, Literal, Protocol, TypeAlias, get_args

from keyplan.errors import InvalidInputError

try:
    import greenlet as greenlets
except ImportError:  # the extra `aio` is not installed
    greenlets = None  # type: ignore[assignment]

__all__ = ["HAS_GREENLETS", "ActorKilledError", "Baton", "BatonKind", "Batons"]

HAS_GREENLETS: Final = greenlets is not None

BatonKind: TypeAlias = Literal["greenlets", "threads"]


class ActorKilledError(BaseException):
    """Raised in an actor where it is parked, when its run is over. Its `finally` blocks run; nothing that they ask is done."""


class Baton(Protocol):
    """The right of one actor to run. It is not started until it is first resumed."""

    @property
    def is_here(self) -> bool:
        """Whether the code that asks runs in this actor."""
        ...

    def park(self) -> None:
        """Give control back to whoever resumed; return when it is resumed. Called in the actor."""
        ...

    def resume(self) -> None:
        """Let the actor go on until it parks or ends. Called by the scheduler."""
        ...

    def kill(self) -> None:
        """Raise ActorKilledError where the actor is parked, and wait for its end. Nothing happens when it has ended."""
        ...


class Batons:
    """Makes batons of one kind, and ends the threads that it started for them. Not for use by two threads at once.

    Raises InvalidInputError for a kind that there is not, or greenlets where they are not installed.
    """

    def __init__(self, kind: BatonKind | None = None) -> None:
        if kind is not None and kind not in get_args(BatonKind):
            raise InvalidInputError(source="baton", problem=f"{kind!r} are no batons: use greenlets or threads")
        if kind == "greenlets" and not HAS_GREENLETS:
            raise InvalidInputError(
                source="baton", problem="greenlet is not installed: use threads, or install keyplan with the extra aio"
            )
        self.kind: BatonKind = kind or ("greenlets" if HAS_GREENLETS else "threads")
        self._idle: list[_Worker] = []
        self._workers: list[_Worker] = []
        self.refused: InvalidInputError | None = None
        """What a thread was told that called an engine and has no baton: it may keep that to itself."""

    def new(self, work: Callable[[], object]) -> Baton:
        """Return a baton for `work`, which raises nothing."""
        if self.kind == "greenlets":
            return _GreenletBaton(work)
        if not self._idle:
            self._workers.append(_Worker(self._idle))
            self._idle.append(self._workers[-1])
        return _ThreadBaton(self._idle.pop(), work)

    def close(self) -> None:
        """End the threads, and with them the actors that an error left parked: they are killed where they are."""
        for worker in self._workers:
            worker.is_closed = True
            worker.work = None
            worker.go.release()
            worker.thread.join()
        self._workers.clear()
        self._idle.clear()


class _GreenletBaton:
    __slots__ = ("_current", "_greenlet")

    def __init__(self, work: Callable[[], object]) -> None:
        assert greenlets is not None
        self._greenlet = greenlets.greenlet(work)
        self._current = greenlets.getcurrent

    @property
    def is_here(self) -> bool:
        return self._current() is self._greenlet

    def park(self) -> None:
        parent = self._greenlet.parent
        assert parent is not None
        parent.switch()

    def resume(self) -> None:
        # Why: whoever resumes is whom it comes back to, in another thread's exploration too.
        self._greenlet.switch()

    def kill(self) -> None:
        if not self._greenlet.dead and self._greenlet:
            self._greenlet.throw(ActorKilledError)


class _Worker:
    """A thread that does one work after the other. Invariant: it runs only between a release of `go` and one of `back`."""

    def __init__(self, idle: "list[_Worker]") -> None:
        self.go = Lock()
        self.back = Lock()
        self.go.acquire()
        self.back.acquire()
        self.work: Callable[[], object] | None = None
        self.is_closed = False
        """Whether nobody resumes it any more: who parks is killed instead."""
        self._idle = idle
        self.thread = Thread(target=self._serve, name="keyplan-schedules", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            self.go.acquire()
            work = self.work
            if work is None:
                return
            work()
            self.work = None
            del work
            self._idle.append(self)
            self.back.release()


class _ThreadBaton:
    __slots__ = ("_is_killed", "_is_started", "_work", "_worker")

    def __init__(self, worker: _Worker, work: Callable[[], object]) -> None:
        self._worker = worker
        self._work = work
        self._is_started = False
        self._is_killed = False

    @property
    def is_here(self) -> bool:
        return self._worker.thread.ident == get_ident() and self._is_running

    @property
    def _is_running(self) -> bool:
        return self._is_started and self._worker.work is self._work

    def park(self) -> None:
        worker = self._worker
        if not worker.is_closed:
            worker.back.release()
            worker.go.acquire()
        if self._is_killed or worker.is_closed:
            raise ActorKilledError

    def resume(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._worker.work = self._work
        self._worker.go.release()
        try:
            self._worker.back.acquire()
        except KeyboardInterrupt:
            # Why: the actor runs on; it can be killed when it is parked, and not before.
            self._worker.back.acquire()
            raise

    def kill(self) -> None:
        if self._is_running:
            self._is_killed = True
            self.resume()
