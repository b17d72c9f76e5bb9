"""Leases of an asynchronous store, and who keeps them alive: a task."""

from asyncio import AbstractEventLoop, Event, Future, Task, ensure_future, shield, timeout, wait
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import Any, Final, Self

from keyplan.aio.calls import Calls
from keyplan.engine import Clock, Engine
from keyplan.layout import LeaseHandle
from keyplan.store import STORE_CLOSED, Keeper, LeaseSchedule
from keyplan.store import Lease as HeldLease

__all__ = ["Lease", "LeaseRequest", "TaskKeeper"]

_TELL_SECONDS_MAX: Final = 5.0
"""How long closing a store waits for what holders do about their loss; then it is cancelled."""


class Lease(LeaseHandle):
    """`keyplan.Lease`, awaited: `async with store.lease(10) as lease: await members.insert(key, record, lease=lease)`.

    When the block ends, also by cancellation, the lease is revoked. A task of the store renews it; `on_loss` is called in the
    event loop, and awaited when it is a coroutine function. What the synchronous one promises holds here.
    """

    def __init__(self, calls: Calls, held: HeldLease) -> None:
        self._calls = calls
        self.held = held
        """The synchronous lease: for keyplan's own use."""

    @property
    def id(self) -> int:
        """The id by which any process can use it, or take it up with `store.resume_lease`."""
        return self.held.id

    @property
    def ttl_seconds(self) -> float:
        """How long it lives after it was renewed."""
        return self.held.ttl_seconds

    @property
    def is_kept_alive(self) -> bool:
        """True when the store renews it in the background."""
        return self.held.is_kept_alive

    @property
    def lives_until(self) -> float:
        """By the store's clock, how long it lives for sure, as far as is known here."""
        return self.held.lives_until

    @property
    def is_lost(self) -> bool:
        """True once it is known that the lease ended without this holder's doing."""
        return self.held.is_lost

    @property
    def loss(self) -> str:
        """Why it was lost; empty while it is not."""
        return self.held.loss

    @property
    def is_over(self) -> bool:
        """True when there is nothing to renew any more: it was revoked here, or lost."""
        return self.held.is_over

    async def keep_alive(self) -> float:
        """Renew it now; return the seconds that it has. Raises LeaseNotFoundError when it is gone, which is its loss."""
        return await self._calls.run_blocking(self.held.keep_alive)

    async def revoke(self) -> None:
        """End it now, with its records and their index entries in one revision. Harmless when it is gone already.

        However this is cancelled, the lease is not renewed any more, and the call is made when there is a thread for it.
        """
        self.held.give_up()
        revoking = ensure_future(self._calls.run_blocking(self.held.revoke))
        _revoking.add(revoking)
        revoking.add_done_callback(_revoked)
        await shield(revoking)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.revoke()


_revoking: Final[set[Future[None]]] = set()
"""What is under way. Why kept: a loop holds its tasks weakly, and who waited for this one may have been cancelled."""


def _revoked(revoking: Future[None]) -> None:
    _revoking.discard(revoking)
    # Why asked: what failed with nobody waiting shall not be told as an error that was never seen; the lease expires.
    if not revoking.cancelled():
        revoking.exception()


class LeaseRequest:
    """A lease to be granted: `await` it, or enter it with `async with`."""

    def __init__(self, granted: Callable[[], Awaitable[Lease]]) -> None:
        self._granted = granted
        self._lease: Lease | None = None

    def __await__(self) -> Generator[Any, None, Lease]:
        return self._granted().__await__()

    async def __aenter__(self) -> Lease:
        self._lease = await self._granted()
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            await self._lease.revoke()


class TaskKeeper(Keeper):
    """Keeps the leases of one store in a task, which begins with the first lease and ends with the last.

    What is done when is the schedule's. Leases come and go in threads, too; all of it is handed to the loop.
    """

    def __init__(self, calls: Calls, engine: Engine, clock: Clock) -> None:
        self._calls = calls
        self._loop: AbstractEventLoop = calls.bridge.loop
        self._schedule = LeaseSchedule(engine, clock)
        self._changed = Event()
        self._task: Task[None] | None = None
        self._looks: set[Task[None]] = set()
        self._telling: set[Task[None]] = set()
        self._is_closed = False

    def keep(self, lease: HeldLease, *, is_resumed: bool) -> None:
        self._loop.call_soon_threadsafe(partial(self._keep, lease, is_resumed=is_resumed))

    def forget(self, lease: HeldLease) -> None:
        if not self._is_closed:
            self._loop.call_soon_threadsafe(self._forget, lease)

    def tell(self, lease: HeldLease, on_loss: Callable[[HeldLease], object]) -> None:
        self._loop.call_soon_threadsafe(self._tell, lease, on_loss)

    def close(self) -> None:
        """Let go of the leases and tell the holders. On the loop; `ended` waits until that is done."""
        self._is_closed = True
        for lease in self._schedule.take_all():
            lease.lose(STORE_CLOSED)
        for task in (self._task, *self._looks):
            if task is not None:
                task.cancel()

    async def ended(self) -> None:
        """Wait for the task, and for what the holders do about their loss."""
        if self._task is not None:
            await wait({self._task})
        if self._looks:
            await wait(self._looks, timeout=_TELL_SECONDS_MAX)
        await _turn(self._loop)
        if self._telling:
            _, late = await wait(self._telling, timeout=_TELL_SECONDS_MAX)
            for task in late:
                task.cancel()
            if late:
                await wait(late)

    # ---- on the loop ---------------------------------------------------------------------------------------------------

    def _keep(self, lease: HeldLease, *, is_resumed: bool) -> None:
        if self._is_closed:
            lease.lose(STORE_CLOSED)
        elif not lease.is_over:
            self._schedule.add(lease, is_resumed=is_resumed)
            self._changed.set()
            if self._task is None:
                self._task = self._loop.create_task(self._work(), name="keyplan-leases")

    def _forget(self, lease: HeldLease) -> None:
        self._schedule.remove(lease)
        self._changed.set()

    def _tell(self, lease: HeldLease, on_loss: Callable[[HeldLease], object]) -> None:
        task = self._loop.create_task(_told(lease, on_loss), name=f"keyplan-lease-{lease.id}-lost")
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _work(self) -> None:
        while (due := self._schedule.next()) is not None:
            lease, wait_seconds = due
            if wait_seconds > 0:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with timeout(wait_seconds):
                        await self._changed.wait()
                continue
            if self._schedule.begin_look(lease):
                look = self._loop.create_task(self._look(lease), name=f"keyplan-lease-{lease.id}-renewal")
                self._looks.add(look)
                look.add_done_callback(self._looks.discard)
            else:
                lease.check_time()
        self._task = None

    async def _look(self, lease: HeldLease) -> None:
        seconds = self._schedule.retry_seconds(lease)
        try:
            seconds = await self._calls.run_blocking(partial(self._schedule.look, lease))
        finally:
            self._schedule.end_look(lease, seconds)
            self._changed.set()


async def _told(lease: HeldLease, on_loss: Callable[[HeldLease], object]) -> None:
    answer = on_loss(lease)
    if isawaitable(answer):
        await answer


async def _turn(loop: AbstractEventLoop) -> None:
    """Let everything run that was handed to the loop so far."""
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned
