"""Snapshots and transactions of an asynchronous store."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from keyplan.aio.binding import AwaitedBinding, AwaitedBlock
from keyplan.aio.bridge import LoopBridge
from keyplan.aio.calls import Calls, PinnedCalls, TransactionCalls
from keyplan.aio.greenlets import wait
from keyplan.aio.layout_check import AwaitedChecks
from keyplan.layout import AsyncBinding, Binding
from keyplan.store import Explanation, KeyRef
from keyplan.store import PinnedState as SyncPinnedState
from keyplan.store import Transaction as SyncTransaction

__all__ = ["PinnedState", "Snapshot", "Transaction"]

R = TypeVar("R")


class PinnedState(AwaitedBinding):
    """`keyplan.store.PinnedState`, awaited: one state to read from. Several tasks may use it; their reads take turns."""

    def __init__(self, calls: Calls, pinned: Binding, checks: AwaitedChecks | None = None) -> None:
        super().__init__(calls, pinned, pinned, checks)

    def begin(self) -> AbstractAsyncContextManager[AsyncBinding]:
        """Return a block that raises UnsupportedByEngineError when entered, as the synchronous one does."""
        return AwaitedBlock(self._calls, self._reads.begin(), lambda _: self)

    async def attempt(self, work: Callable[[AsyncBinding], Awaitable[R]]) -> R:
        """Raise UnsupportedByEngineError, as `begin` does."""
        return await self._calls.bridge.driven(lambda: self._reads.attempt(lambda _: wait(work(self))))

    def pinned(self) -> AbstractAsyncContextManager[AsyncBinding]:
        """Give this state: it is pinned already."""
        return AwaitedBlock(self._calls, self._reads.pinned(), lambda _: self)


class Transaction(AwaitedBinding):
    """`keyplan.Transaction`, awaited: `async with store.transaction() as tx: await CloudChamber(tx).racks.insert(...)`.

    Commits when its block ends; when the block fails, or its task is cancelled inside it, nothing is written. Where the task is
    cancelled while the commit is under way, the outcome is unknown, and CancelledError is raised all the same.

    Its operations take turns, so that the tasks of one block may share it. Those that come after the block has ended raise
    InvalidInputError.
    """

    def __init__(self, bridge: LoopBridge, transaction: SyncTransaction, checks: AwaitedChecks | None = None) -> None:
        self._serial = TransactionCalls(bridge)
        super().__init__(self._serial, transaction, transaction, checks)
        self._transaction = transaction

    @property
    def revision(self) -> Awaitable[int]:
        """The revision of the commit, awaited; 0 before it. Of one that wrote nothing: the revision that it has read."""
        return self._known_revision()

    async def _known_revision(self) -> int:
        return self._transaction.revision

    async def read_ahead(self, *refs: KeyRef) -> None:
        """Read what stands at these keys at once, for the transaction's reads to come; no premise of the commit."""
        await self._serial.run_blocking(lambda: self._transaction.read_ahead(*refs))

    async def commit(self) -> int:
        """Commit now, and end the transaction. Return the revision. Raises what the synchronous one does."""
        return await self._serial.run_blocking(self._transaction.commit)

    async def explained(self) -> Explanation:
        """Return the commit that the transaction would make now, in a form for people."""
        return await self._serial.run_blocking(self._transaction.explained)

    async def close(self) -> None:
        """End the transaction without writing anything; after a commit, do nothing."""
        await self._serial.last(self._transaction.close)

    async def __aenter__(self) -> Self:
        self._transaction.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._serial.last(self._transaction.close, partial(self._transaction.__exit__, kind, error, trace))

    # ---- what a layout asks of its binding -----------------------------------------------------------------------------

    def begin(self) -> AbstractAsyncContextManager[AsyncBinding]:
        """Join this transaction: the block's writes are committed with it, or undone when the block fails."""
        return AwaitedBlock(self._serial, self._transaction.begin(), lambda _: self)

    def pinned(self) -> AbstractAsyncContextManager[AsyncBinding]:
        """Give the transaction's own view without the right to write."""
        return AwaitedBlock(
            self._serial, self._transaction.pinned(), partial(PinnedState, self._serial, checks=self._checks)
        )

    async def attempt(self, work: Callable[[AsyncBinding], Awaitable[R]]) -> R:
        """Run `work` once, as a part of this transaction. Who began the transaction decides about another try."""
        async with self.begin() as binding:
            return await work(binding)

    # ---- for the store that runs it ------------------------------------------------------------------------------------

    def driven(self, work: Callable[[Self], Awaitable[R]]) -> R:
        """Run `work` and wait for it and everything that it has begun here; driven, inside the synchronous transaction."""
        try:
            return wait(work(self))
        finally:
            wait(self._serial.last(_nothing))


class Snapshot(AwaitedBlock[SyncPinnedState, PinnedState]):
    """The block of a snapshot, which ends after everything that is under way on it."""

    def __init__(
        self, calls: Calls, block: AbstractContextManager[SyncPinnedState], checks: AwaitedChecks | None = None
    ) -> None:
        self._reads = PinnedCalls(calls.bridge)
        super().__init__(calls, block, partial(PinnedState, self._reads, checks=checks))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._reads.last(self.leave)


def _nothing() -> None:
    pass
