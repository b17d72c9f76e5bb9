"""The threads that gRPC's calls are made in.

gRPC gives a call to a pool and asks for nothing but to be told when it has ended. `concurrent.futures` makes a future with a
condition, a work item and two turns of a semaphore for that, which is a fifth of what gRPC's own code does for a call.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from keyplan.apps.runm.logs import LOGGER

__all__ = ["CallPool"]


class _Call:
    """A call that was handed over, in the place of a future: it tells one listener that it has ended, and nothing else."""

    __slots__ = ("_arguments", "_ends", "_function", "_listener")

    def __init__(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._listener: Callable[[Any], object] | None = None
        self._ends = count()
        """Who takes 1 of it tells the listener: the call's end or the listener's coming, whichever is later."""

    def add_done_callback(self, listener: Callable[[Any], object]) -> None:
        """Call `listener` with this when the call has ended; at once, if it has."""
        assert self._listener is None, "gRPC listens to a call once"
        self._listener = listener
        if next(self._ends):
            listener(self)

    def make(self) -> None:
        """Make the call."""
        try:
            self._function(*self._arguments)
        except BaseException:  # noqa: BLE001  # Why: a thread of a pool does not end with a call.
            LOGGER.exception("gRPC failed to make a call")
        finally:
            if next(self._ends):
                assert self._listener is not None
                self._listener(self)


class CallPool(ThreadPoolExecutor):
    """At most so many threads: one at once, others as calls come. A context manager: its end waits for all calls handed over.

    Why a ThreadPoolExecutor: gRPC takes no other pool for a call's own. Nothing of it is used. Raises RuntimeError when the
    system has no thread for it.
    """

    def __init__(self, threads_max: int, name: str) -> None:
        super().__init__(threads_max, thread_name_prefix=name)
        self._name = name
        self._threads_max = threads_max
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._started: list[Thread] = []
        self._lock = Lock()
        self._is_closed = False
        self._free = 0
        """Threads that wait for a call, less the calls that wait for a thread. Changed under the lock."""
        # Why before any call: a thread that is refused then would leave it to nobody, and gRPC serves no more after an error.
        self._start()

    def submit(self, function: Callable[..., object], /, *arguments: Any) -> Any:  # type: ignore[override]  # Why: see _Call.
        """Have a thread make a call, and return what tells of its end. Raises RuntimeError after `shutdown`."""
        call = _Call(function, arguments)
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the pool is closed")
            if self._free < 1 and len(self._started) < self._threads_max:
                self._start_if_possible()
            self._free -= 1
            self._calls.put(call)
        return call

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # Why: the base's.
        """Take no more calls, and end the threads when those that were handed over are made; `wait` for that."""
        assert not cancel_futures, "a call that was taken is made"
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            if is_first:
                for _ in self._started:
                    self._calls.put(None)
        if wait:
            for thread in self._started:
                thread.join()

    def _start_if_possible(self) -> None:
        try:
            self._start()
        except RuntimeError as error:
            LOGGER.warning("%s: a call waits for one of %d threads: %s", self._name, len(self._started), error)

    def _start(self) -> None:
        # Why daemons whoever hands over the first call: nothing but `shutdown` ends them, and a process shall end without it.
        thread = Thread(target=self._work, name=f"{self._name}_{len(self._started)}", daemon=True)
        thread.start()
        self._started.append(thread)
        self._free += 1

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make()
            del call  # Why: who waits for the next call keeps nothing of the one before.
            with self._lock:
                self._free += 1
