"""A bounded pool of threads for one event loop: whole operations of engines that block. Nothing of a store is known here.

Why not the executors of the standard library: a cancelled wait must not return before its work has ended, because that work
uses a snapshot which somebody else would use next; and handing over by a queue costs half as much.
"""

from asyncio import AbstractEventLoop, CancelledError, Event, Future
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, TypeVar, cast

__all__ = ["THREADS_MAX", "Workers"]

R = TypeVar("R")

THREADS_MAX: Final = 32
"""Why: commits that come together share a flush, so more threads than processors are of use; each takes some 50 KiB."""


class _Job:
    """A piece of work, and its answer. Whoever acquires `claim` decides: a worker to do it, or the loop to give it up."""

    __slots__ = ("claim", "context", "error", "future", "is_done", "result", "work")

    def __init__(self, work: Callable[[], object], future: Future[None]) -> None:
        self.work = work
        self.context: Context = copy_context()
        self.future = future
        self.claim = Lock()
        self.is_done = False
        self.result: object = None
        self.error: BaseException | None = None


class Workers:
    """Threads that begin when there is work for them, at most THREADS_MAX, and end with `close`. Used on one loop."""

    def __init__(self, loop: AbstractEventLoop, threads_max: int = THREADS_MAX) -> None:
        self._loop = loop
        self._threads_max = threads_max
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._under_way = 0
        self._is_closed = False
        self._all_done = Event()
        self._all_done.set()
        self._answers = Lock()
        self._answered: list[_Job] = []
        """Under `_answers`: what has ended and the loop was not told yet."""

    async def run(self, work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        """Call `work` in a thread and return what it returns.

        Cancelled before it began, it is not done. Cancelled later, this waits until it has ended, lets `undo` take back its
        result in a thread, and then raises CancelledError.
        """
        if self._is_closed:
            return work()  # Why: the engine was closed before, so that it only refuses.
        job = self._submit(work)
        try:
            await job.future
        except CancelledError:
            if job.claim.acquire(blocking=False):
                self._forget()
                raise
            await self._end_of(job)
            if undo is not None and job.error is None:
                await self._end_of(self._submit(lambda: undo(cast(R, job.result))))
            raise
        if job.error is not None:
            try:
                raise job.error
            finally:
                del job  # Why: an error holds this frame, and so itself.
        return cast(R, job.result)

    async def close(self) -> None:
        """Wait for the work under way, and end the threads. What is handed in afterwards is done on the loop."""
        await self._all_done.wait()
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    # ---- on the loop ---------------------------------------------------------------------------------------------------

    def _submit(self, work: Callable[[], object]) -> _Job:
        job = _Job(work, self._loop.create_future())
        self._under_way += 1
        self._all_done.clear()
        if self._under_way > len(self._threads) < self._threads_max:
            self._add_thread()
        self._jobs.put(job)
        return job

    def _add_thread(self) -> None:
        """Begin one more thread; where none can be had, the others do the work. Raises RuntimeError without others."""
        thread = Thread(target=self._work, name=f"keyplan-aio-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                self._forget()
                raise
            return
        self._threads.append(thread)

    async def _end_of(self, job: _Job) -> None:
        """Wait until a job has ended, however often this is cancelled."""
        while not job.is_done:
            job.future = self._loop.create_future()
            try:
                await job.future
            except CancelledError:
                continue  # Why: whoever waits will be told by the error that is under way already.

    def _settle(self) -> None:
        with self._answers:
            answered, self._answered = self._answered, []
        for job in answered:
            job.is_done = True
            self._forget()
            if not job.future.done():
                job.future.set_result(None)

    def _forget(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._all_done.set()

    # ---- in a thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.claim.acquire(blocking=False):
                continue
            _do(job)
            with self._answers:
                is_first = not self._answered
                self._answered.append(job)
            # Why: one wake-up of the loop is enough for all answers that it has not seen yet.
            if is_first:
                # Why suppressed: the loop was closed without the store, so that nobody waits any more.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._settle)
            del job


def _do(job: _Job) -> None:
    work: Any = job.work
    try:
        job.result = job.context.run(work)
    except BaseException as error:  # noqa: BLE001  # Why: it is raised where the answer is awaited
        job.error = error
