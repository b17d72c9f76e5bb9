"""How the operations of one binding are carried out: freely on a store, one after the other on a snapshot or a transaction."""

from abc import ABC, abstractmethod
from asyncio import CancelledError, Lock, run_coroutine_threadsafe
from collections.abc import AsyncGenerator, Callable, Iterator, MutableSet
from typing import TypeVar
from weakref import WeakSet

from keyplan.aio.bridge import LoopBridge
from keyplan.aio.changes import AwaitedChanges
from keyplan.aio.lists import in_parts, one_by_one
from keyplan.engine import transaction_ended
from keyplan.layout import Changes

__all__ = ["Calls", "PinnedCalls", "StoreCalls", "TransactionCalls"]

R = TypeVar("R")
T = TypeVar("T")


class Calls(ABC):
    """The ways in which an operation is carried out; what is handed in are calls of synchronous views."""

    def __init__(self, bridge: LoopBridge) -> None:
        self.bridge = bridge

    @abstractmethod
    async def run_short(self, work: Callable[[], R]) -> R:
        """A read of a few keys."""

    @abstractmethod
    async def run_blocking(self, work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        """A read of any size, or an end; `undo` takes back what was done for a task that was cancelled meanwhile."""

    @abstractmethod
    async def written(self, work: Callable[[], R]) -> R:
        """A write."""

    @abstractmethod
    def listed(self, found: Iterator[T]) -> AsyncGenerator[T, None]:
        """A list."""

    def watched(self, begin: Callable[[], Changes[object, object]]) -> AwaitedChanges:
        """A watch."""
        return AwaitedChanges(self.bridge, begin, self.watches)

    @property
    def watches(self) -> MutableSet[AwaitedChanges]:
        """The watches that live, where there can be any."""
        return WeakSet()

    def on_loop(self, function: Callable[[T], R]) -> Callable[[T], R]:
        """Return a function that calls this one of the user's in the loop's thread, wherever it is called itself."""

        async def awaited(argument: T) -> R:
            return function(argument)

        def called(argument: T) -> R:
            if self.bridge.is_on_loop:
                return function(argument)
            return run_coroutine_threadsafe(awaited(argument), self.bridge.loop).result()

        return called


class StoreCalls(Calls):
    """On a store: any number at once."""

    def __init__(self, bridge: LoopBridge) -> None:
        super().__init__(bridge)
        self._watches: WeakSet[AwaitedChanges] = WeakSet()
        # Why: kept here, since every single read asks for them.
        self.run_short = bridge.run_short  # type: ignore[method-assign]  # Why: one coroutine less for each read.
        self.run_blocking = bridge.run_blocking  # type: ignore[method-assign]

    async def run_short(self, work: Callable[[], R]) -> R:
        return await self.bridge.run_short(work)

    async def run_blocking(self, work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        return await self.bridge.run_blocking(work, undo)

    async def written(self, work: Callable[[], R]) -> R:
        return await self.bridge.driven(work)

    def listed(self, found: Iterator[T]) -> AsyncGenerator[T, None]:
        return in_parts(self.bridge.run_blocking, found)

    @property
    def watches(self) -> MutableSet[AwaitedChanges]:
        return self._watches


class _SerialCalls(Calls):
    """One after the other: a snapshot is not for use by two threads at once, nor is what a transaction collects."""

    def __init__(self, bridge: LoopBridge) -> None:
        super().__init__(bridge)
        self._lock = Lock()
        self._is_over = False

    async def run_short(self, work: Callable[[], R]) -> R:
        async with self._lock:
            self._check_open()
            return await self.bridge.run_short(work)

    async def run_blocking(self, work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        async with self._lock:
            self._check_open()
            return await self.bridge.run_blocking(work, undo)

    async def written(self, work: Callable[[], R]) -> R:
        # Why as a point: a transaction's write reads a few keys and sends nothing; a snapshot refuses it.
        return await self.run_short(work)

    async def last(self, end: Callable[[], object], work: Callable[[], R] | None = None) -> R | None:
        """Do `work` after everything that is under way, then refuse all that comes; `end` in any case, even when cancelled."""
        cancelled = await self._acquired_surely()
        try:
            if cancelled is not None:
                raise cancelled
            return None if work is None else await self.bridge.run_blocking(work)
        finally:
            self._is_over = True
            end()
            self._lock.release()

    def _check_open(self) -> None:
        """Raise the error of what has ended, where that does not say so itself."""

    async def _acquired_surely(self) -> CancelledError | None:
        """Acquire the lock, however often this is cancelled; return the first cancellation."""
        first: CancelledError | None = None
        while True:
            try:
                await self._lock.acquire()
            except CancelledError as error:
                first = first or error
            else:
                return first


class PinnedCalls(_SerialCalls):
    """On a snapshot."""

    def listed(self, found: Iterator[T]) -> AsyncGenerator[T, None]:
        return in_parts(self.run_blocking, found)


class TransactionCalls(_SerialCalls):
    """On a transaction: a list is a premise of the commit as far as it was consumed, and not a record further."""

    def listed(self, found: Iterator[T]) -> AsyncGenerator[T, None]:
        return one_by_one(self._driven, found)

    def _check_open(self) -> None:
        # Why: between the end of the user's coroutine and the commit, the synchronous transaction is still open.
        if self._is_over:
            raise transaction_ended()

    async def _driven(self, work: Callable[[], R]) -> R:
        async with self._lock:
            self._check_open()
            return await self.bridge.driven(work)
