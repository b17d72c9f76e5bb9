"""Who renews all leases of a store at a third of their time, and notices their loss: one thread for each store.

What is due when, and what is done then, is apart from who waits: `LeaseSchedule`. The asynchronous store waits in a task.
"""

import os
from collections.abc import Callable
from threading import Condition, Thread, current_thread
from typing import Final, Protocol

from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.errors import EngineError, LeaseNotFoundError
from keyplan.store.lease import Lease

__all__ = ["STORE_CLOSED", "Keeper", "LeaseKeeper", "LeaseSchedule"]

_RENEWALS: Final = 3
"""A lease is renewed when a third of its time is over. Why: two renewals may fail before it ends."""

_RETRIES: Final = 12
"""A renewal that failed is tried again after this part of the time: at most eight times before the lease ends."""

_CLOSE_SECONDS_MAX: Final = 5.0
"""Why: a renewal under way ends in milliseconds, unless the disk or the network hangs; closing must not hang with it."""

_LOOK_SECONDS_MAX: Final = 0.05
"""Why: a clock that was handed in cannot wake the thread; it is looked at this often."""

STORE_CLOSED: Final = "the store was closed"
"""Why a lease is lost whose store was closed."""


class Keeper(Protocol):
    """What a store asks of whoever keeps its leases. Called from any thread."""

    def keep(self, lease: Lease, *, is_resumed: bool) -> None:
        """Take care of a lease."""
        ...

    def forget(self, lease: Lease) -> None:
        """Let go of a lease that is over."""
        ...

    def tell(self, lease: Lease, on_loss: Callable[[Lease], object]) -> None:
        """Let `on_loss(lease)` be called soon, elsewhere: a slow or failing answer must not delay the renewal of others."""
        ...

    def close(self) -> None:
        """End the care, and lose the leases."""
        ...


class LeaseSchedule:
    """When each lease is to be looked at, and what a look is. Whoever uses it sees to it that only `look` runs unlocked.

    Invariant: it has every lease that is not over, with the time of the next look at it.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._due: dict[Lease, float] = {}

    def add(self, lease: Lease, *, is_resumed: bool) -> None:
        """Take in a lease. One that was resumed is renewed at once: how much of its time is left is not known."""
        wait_seconds = _wait_seconds(lease) if lease.is_kept_alive else lease.ttl_seconds
        is_now = is_resumed and lease.is_kept_alive
        self._due[lease] = self._clock.monotonic() + (0.0 if is_now else wait_seconds)

    def remove(self, lease: Lease) -> None:
        """Let go of a lease."""
        self._due.pop(lease, None)

    def take_all(self) -> list[Lease]:
        """Let go of all leases, and return them."""
        leases, self._due = list(self._due), {}
        return leases

    def next(self) -> tuple[Lease, float] | None:
        """Return the lease that is due first and the seconds until then, at most 0 when it is; None without leases."""
        if not self._due:
            return None
        lease, due = min(self._due.items(), key=lambda item: item[1])
        wait_seconds = due - self._clock.monotonic()
        # Why: a clock that was handed in cannot wake who waits.
        return lease, wait_seconds if self._clock is SYSTEM_CLOCK else min(wait_seconds, _LOOK_SECONDS_MAX)

    def look_again(self, lease: Lease, seconds: float) -> None:
        """Note when the next look at a lease is due, unless it was let go of."""
        if lease in self._due:
            self._due[lease] = self._clock.monotonic() + seconds

    def look(self, lease: Lease) -> float:
        """Renew the lease, or see whether it still lives. Return the seconds until the next look at it."""
        try:
            if lease.is_kept_alive:
                lease.keep_alive()
                return _wait_seconds(lease)
            self._engine.lease(lease.ttl_seconds, resume=lease.id)
        except LeaseNotFoundError:
            lease.lose("it expired, or was revoked by another holder")
        except EngineError as error:
            if self._clock.monotonic() >= lease.lives_until:
                lease.lose(f"it could not be renewed in time: {error.summary}")
        return lease.ttl_seconds / _RETRIES


class LeaseKeeper(Keeper):
    """Keeps the leases of one store in a thread, which begins with the first lease and ends with the last."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._process = os.getpid()
        self._condition = Condition()
        self._schedule = LeaseSchedule(engine, clock)
        self._thread: Thread | None = None
        self._is_closed = False

    def keep(self, lease: Lease, *, is_resumed: bool) -> None:
        with self._condition:
            if self._is_closed:
                lease.lose(STORE_CLOSED)
                return
            self._schedule.add(lease, is_resumed=is_resumed)
            if self._thread is None:
                self._thread = Thread(target=self._work, name="keyplan-leases", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def forget(self, lease: Lease) -> None:
        with self._condition:
            self._schedule.remove(lease)
            self._condition.notify_all()

    def tell(self, lease: Lease, on_loss: Callable[[Lease], object]) -> None:
        Thread(target=on_loss, args=(lease,), name=f"keyplan-lease-{lease.id}-lost", daemon=True).start()

    def close(self) -> None:
        """End the thread and tell the holders. The leases live out their time: another process may have taken them up.

        In a forked process nothing is done: thread and leases are the parent's.
        """
        if os.getpid() != self._process:
            return
        with self._condition:
            self._is_closed = True
            leases = self._schedule.take_all()
            thread = self._thread
            self._condition.notify_all()
        if thread is not None and thread is not current_thread():
            thread.join(_CLOSE_SECONDS_MAX)
        for lease in leases:
            lease.lose(STORE_CLOSED)

    def _work(self) -> None:
        while True:
            with self._condition:
                due = self._schedule.next()
                if due is None:
                    self._thread = None
                    return
                lease, wait_seconds = due
                if wait_seconds > 0:
                    self._condition.wait(wait_seconds)
                    continue
            next_seconds = self._schedule.look(lease)
            with self._condition:
                self._schedule.look_again(lease, next_seconds)


def _wait_seconds(lease: Lease) -> float:
    return lease.ttl_seconds / _RENEWALS
