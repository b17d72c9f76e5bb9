"""The asynchronous store: the synchronous one, used where it does not hold up the event loop."""

from asyncio import Task, get_running_loop, shield
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from keyplan.aio.binding import AwaitedBinding
from keyplan.aio.bridge import AwaitingBridge, LoopBridge, OffloadingBridge, awaited_backoff
from keyplan.aio.calls import StoreCalls
from keyplan.aio.layout_check import AwaitedChecks
from keyplan.aio.lease import Lease, LeaseRequest, TaskKeeper
from keyplan.aio.notifier import CommitNotifier
from keyplan.aio.offload import ThreadOffloadEngine
from keyplan.aio.transaction import PinnedState, Snapshot, Transaction
from keyplan.codec import SecretCipher
from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.layout import AsyncBinding
from keyplan.store import Backoff, Explanation, LayoutCheck, LayoutChecker
from keyplan.store import Lease as HeldLease
from keyplan.store import Store as SyncStore
from keyplan.store import Transaction as SyncTransaction

__all__ = ["Store"]

R = TypeVar("R")


class Store(AwaitedBinding):
    """An engine with layouts on it, for the event loop in which it is made. `CloudChamber(store)` is `CloudChamber[Async]`.

    It does what `keyplan.Store` does, with the same code. Calls of an engine that blocks (`memory:`, `lmdb:`) are made in up to
    32 threads, which end with the store; an operation takes one, and no operation takes one while it waits for anything but the
    engine. With `inline_reads`, reads of a single key are made on the loop itself: some fifty times as fast, but where a read
    must go to the disk, or ends a lease that ran out, everything else waits for it. It is for engines whose reads are answered
    from this machine's memory, and has no effect on others.

    `layout_check` is that of `keyplan.Store`; a layout is looked at before its first operation here, since binding it cannot
    wait. The store owns the engine. Use it in an `async with` block, or close it.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        backoff: Backoff | None = None,
        clock: Clock = SYSTEM_CLOCK,
        inline_reads: bool = False,
        secrets: SecretCipher | None = None,
        layout_check: LayoutCheck = "off",
    ) -> None:
        self._engine = engine
        self._bridge = bridge = _bridge_of(engine, inline_reads=inline_reads)
        self._notifier = CommitNotifier(engine, bridge.loop)
        self._store_calls = StoreCalls(bridge)
        reached = engine if engine.profile.is_awaiting else ThreadOffloadEngine(engine, bridge, self._notifier)
        self._keeper = TaskKeeper(self._store_calls, reached, clock)
        waits = awaited_backoff() if backoff is None else backoff
        self._control = SyncStore(reached, backoff=waits, clock=clock, keeper=self._keeper, secrets=secrets)
        """What runs the user's transactions. A try contains the user's coroutine, so that it stays on the loop."""
        self._records = SyncStore(
            reached, backoff=bridge.tries(waits), clock=clock, keeper=self._keeper, secrets=secrets
        )
        """What writes and watches. A try of a single write is made in a thread as a whole."""
        self._plain = SyncStore(engine, clock=clock, keeper=self._keeper, secrets=secrets)
        """What reads: a whole read is made where it does not hold up the loop, so that its engine need not be reached."""
        checks = AwaitedChecks(bridge, LayoutChecker(engine, layout_check))
        super().__init__(self._store_calls, self._plain, self._records, checks)
        self._ended: Task[None] | None = None

    @property
    def engine(self) -> Engine:
        """The engine below: raw keys and values. Its calls block."""
        return self._engine

    def transaction(self) -> Transaction:
        """Return a transaction, to be used in an `async with` block; see there for what its commit raises."""
        return Transaction(self._bridge, self._control.transaction(), self._checks)

    async def run(self, work: Callable[[Transaction], Awaitable[R]]) -> R:
        """Call the coroutine function `work` with a transaction, commit it, and return what `work` returned.

        Again from the start, with a new transaction and a growing wait, when it lost a race: `work` must do nothing but read
        and write through the transaction. Raises what `work` raises; CommitConflictError after COMMIT_RETRIES_MAX lost races;
        CommitOutcomeUnknownError, never retried. Cancelled before it commits, nothing is written.
        """
        return await self._bridge.driven(lambda: self._control.run(self._in_transaction(work)))

    def snapshot(self) -> AbstractAsyncContextManager[PinnedState]:
        """Pin the latest state for the length of a block: all reads see it, and writes raise UnsupportedByEngineError."""
        return Snapshot(self._store_calls, self._plain.snapshot(), self._checks)

    async def explain(self, work: Callable[[Transaction], Awaitable[object]]) -> Explanation:
        """Return the commit that the coroutine function `work` would make now, and write nothing."""
        return await self._bridge.driven(lambda: self._control.explain(self._in_transaction(work)))

    def lease(
        self, ttl_seconds: float, *, on_loss: Callable[[Lease], object] | None = None, keep_alive: bool = True
    ) -> LeaseRequest:
        """Grant a lease, to be awaited or entered: `async with store.lease(10) as lease`; see `Lease`.

        With `keep_alive` one task of the store renews it, as all others, at a third of its time, and tries again when that
        fails, until its time is over. Without, await its `keep_alive`. `on_loss`, a function or a coroutine function, is called
        once when it is lost. Raises UnsupportedByEngineError, InvalidInputError.
        """
        return self._leased(partial(self._records.lease, ttl_seconds, keep_alive=keep_alive), on_loss)

    def resume_lease(
        self, lease_id: int, *, on_loss: Callable[[Lease], object] | None = None, keep_alive: bool = True
    ) -> LeaseRequest:
        """Take up a living lease by its id, with the time to live that it was granted with. Raises LeaseNotFoundError.

        Its time starts again only when it is renewed, which `keep_alive` does at once.
        """
        return self._leased(partial(self._records.resume_lease, lease_id, keep_alive=keep_alive), on_loss)

    async def close(self) -> None:
        """Close the engine. Watches end, leases that are held here are lost and live out their time, threads and tasks end.

        What other tasks have under way is waited for, or raises EngineUnavailableError. Closing twice is harmless.
        """
        self._bridge.check_loop()
        if self._ended is None:
            self._ended = self._bridge.loop.create_task(self._end(), name="keyplan-close")
        await shield(self._ended)  # Why: a close that is cancelled goes on; half a close would leave threads behind.

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- what a layout asks of its binding -----------------------------------------------------------------------------

    def begin(self) -> AbstractAsyncContextManager[AsyncBinding]:
        """Begin a transaction."""
        return self.transaction()

    def pinned(self) -> AbstractAsyncContextManager[AsyncBinding]:
        """Pin the latest state for the length of a block."""
        return self.snapshot()

    def attempt(self, work: Callable[[AsyncBinding], Awaitable[R]]) -> Coroutine[Any, Any, R]:
        """Run `work` in a transaction, again when it lost a race; see `run`."""
        return self.run(work)

    # ---- pieces --------------------------------------------------------------------------------------------------------

    def _in_transaction(self, work: Callable[[Transaction], Awaitable[R]]) -> Callable[[SyncTransaction], R]:
        return lambda transaction: Transaction(self._bridge, transaction, self._checks).driven(work)

    def _leased(self, grant: Callable[..., HeldLease], on_loss: Callable[[Lease], object] | None) -> LeaseRequest:
        twins: dict[HeldLease, Lease] = {}

        def twin(held: HeldLease) -> Lease:
            return twins.setdefault(held, Lease(self._store_calls, held))

        async def granted() -> Lease:
            told = None if on_loss is None else _telling(on_loss, twin)
            return twin(await self._bridge.driven(partial(grant, on_loss=told)))

        return LeaseRequest(granted)

    async def _end(self) -> None:
        for changes in list(self._store_calls.watches):
            await changes.close()
        self._keeper.close()
        await self._keeper.ended()
        self._notifier.close()
        await self._close_engine()
        await self._bridge.close()

    async def _close_engine(self) -> None:
        await self._bridge.run_blocking(self._engine.close)


def _telling(on_loss: Callable[[Lease], object], twin: Callable[[HeldLease], Lease]) -> Callable[[HeldLease], object]:
    return lambda held: on_loss(twin(held))


def _bridge_of(engine: Engine, *, inline_reads: bool) -> LoopBridge:
    loop = get_running_loop()
    if engine.profile.is_awaiting:
        return AwaitingBridge(loop)
    return OffloadingBridge(loop, has_inline_reads=inline_reads and engine.profile.has_local_reads)
