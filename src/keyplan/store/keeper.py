"""Who renews all leases of a store at a third of their time, and notices their loss: one thread for each store.

What is due when, and what is done then, is apart from who waits: `LeaseSchedule`. The asynchronous store waits in a task.
Who waits never asks the engine: renewals are made beside it, so that one that hangs delays neither the others nor the word that
a lease's time is over.
"""

import logging
import os
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread, current_thread
from typing import Final, Protocol

from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.errors import EngineError, LeaseNotFoundError
from keyplan.store.lease import Lease

__all__ = ["STORE_CLOSED", "Keeper", "LeaseKeeper", "LeaseSchedule"]

LOGGER: Final = logging.getLogger("keyplan.leases")

_RENEWALS: Final = 3
"""A lease is renewed when a third of its time is over. Why: two renewals may fail before it ends."""

_RETRIES: Final = 12
"""A renewal that failed is tried again after this part of the time: at most eight times before the lease ends."""

_LOOKS_MAX: Final = 8
"""Leases that are renewed at once. Why so few: an engine renews thousands in a second, and more help nobody when it hangs."""

_CLOSE_SECONDS_MAX: Final = 5.0
"""Why: the thread waits for nobody else; should it do so all the same, closing must not hang with it."""

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
        self._under_way: dict[Lease, float] = {}  # since when

    def add(self, lease: Lease, *, is_resumed: bool) -> None:
        """Take in a lease. One that was resumed is renewed at once: little of its time may be left."""
        if is_resumed and lease.is_kept_alive:
            self._due[lease] = self._clock.monotonic()
        else:
            self._due[lease] = self._clock.monotonic() + _wait_seconds(lease, lease.ttl_seconds)

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

    def begin_look(self, lease: Lease) -> bool:
        """Tell whether the lease that is due is to be looked at; not, when a look at it is under way, or its time is over."""
        if lease in self._under_way or self._clock.monotonic() >= lease.lives_until:
            # Why: when its time is over by then, that is noted, whatever became of the look.
            self._due[lease] = max(lease.lives_until, self._clock.monotonic() + lease.ttl_seconds / _RETRIES)
            return False
        self._under_way[lease] = self._clock.monotonic()
        self._due[lease] = lease.lives_until
        return True

    def end_look(self, lease: Lease, seconds: float) -> None:
        """Note that a look has ended; the next one is due so long after its begin, unless the lease was let go of."""
        begun = self._under_way.pop(lease)
        if lease in self._due:
            self._due[lease] = begun + seconds

    def retry_seconds(self, lease: Lease) -> float:
        """Return how long after a look that failed the next one is due."""
        return lease.ttl_seconds / _RETRIES

    def look(self, lease: Lease) -> float:
        """Renew the lease, or see whether it still lives. Return the seconds until the next look at it.

        Whatever the engine raises is kept, for the case that the lease's time passes meanwhile; what is no error of ours is
        logged.
        """
        try:
            seconds = lease.keep_alive() if lease.is_kept_alive else lease.look()
        except LeaseNotFoundError:
            lease.lose("it expired, or was revoked by another holder")
        except EngineError as error:
            lease.note(error.summary)
            lease.check_time()
        except Exception as error:  # noqa: BLE001  # Why: a driver may raise anything, and the lease must be kept.
            self.note_fault(lease, error)
        else:
            return _wait_seconds(lease, seconds)
        return self.retry_seconds(lease)

    def note_fault(self, lease: Lease, error: BaseException) -> None:
        """Keep and log what was raised in a look and is no error of ours."""
        LOGGER.error("lease %d could not be renewed", lease.id, exc_info=error)
        lease.note(f"{type(error).__name__}: {error}")
        lease.check_time()


class LeaseKeeper(Keeper):
    """Keeps the leases of one store in a thread, which begins with the first lease and ends with the last.

    It says what is due; up to _LOOKS_MAX others do it, and end when nothing is left to do. Whatever a renewal raises, the next
    one of that lease is made in its time.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._process = os.getpid()
        self._condition = Condition()
        self._schedule = LeaseSchedule(engine, clock)
        self._thread: Thread | None = None
        self._waiting: deque[Lease] = deque()
        self._looking = 0
        self._is_closed = False

    def keep(self, lease: Lease, *, is_resumed: bool) -> None:
        with self._condition:
            if self._is_closed:
                lease.lose(STORE_CLOSED)
                return
            self._schedule.add(lease, is_resumed=is_resumed)
            if self._thread is None:
                try:
                    thread = Thread(target=self._work, name="keyplan-leases", daemon=True)
                    thread.start()
                except RuntimeError:  # Why: nobody would keep it, nor any lease that comes after it
                    self._schedule.remove(lease)
                    raise
                self._thread = thread
            self._condition.notify_all()

    def forget(self, lease: Lease) -> None:
        with self._condition:
            self._schedule.remove(lease)
            self._condition.notify_all()

    def tell(self, lease: Lease, on_loss: Callable[[Lease], object]) -> None:
        try:
            Thread(target=on_loss, args=(lease,), name=f"keyplan-lease-{lease.id}-lost", daemon=True).start()
        except RuntimeError:  # no thread can be had: told here is late for others, and not told at all is worse
            try:
                on_loss(lease)
            except Exception:
                LOGGER.exception("what was to be told of the loss of lease %d has failed", lease.id)

    def close(self) -> None:
        """End the thread and tell the holders. The leases live out their time: another process may have taken them up.

        In a forked process nothing is done: thread and leases are the parent's.
        """
        if os.getpid() != self._process:
            return
        with self._condition:
            self._is_closed = True
            leases = [] if self._thread is None else self._schedule.take_all()  # no thread: no leases
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
                if self._schedule.begin_look(lease):
                    self._begin(lease)
                    continue
            # Why unlocked: its holder is told, and it is let go of.
            lease.check_time()

    def _begin(self, lease: Lease) -> None:
        self._waiting.append(lease)
        self._add_looker()

    def _add_looker(self) -> None:
        """Have one more thread for the leases that wait, unless there are enough. With the lock."""
        if self._looking == _LOOKS_MAX:
            return
        self._looking += 1
        try:
            Thread(target=self._look, name="keyplan-lease-renewal", daemon=True).start()
        except RuntimeError:  # no thread can be had now
            self._looking -= 1
            if not self._looking:  # nobody is at work who would come to them: their next looks try again
                for lease in self._waiting:
                    self._schedule.end_look(lease, self._schedule.retry_seconds(lease))
                self._waiting.clear()

    def _look(self) -> None:
        try:
            while (lease := self._next_waiting()) is not None:
                seconds = self._schedule.retry_seconds(lease)
                try:
                    seconds = self._schedule.look(lease)
                except BaseException as error:  # noqa: BLE001  # Why: nobody waits for this thread who could take it.
                    self._schedule.note_fault(lease, error)
                finally:
                    with self._condition:
                        self._schedule.end_look(lease, seconds)
                        self._condition.notify_all()
        finally:
            with self._condition:
                self._looking -= 1
                if self._waiting:  # Why: something was raised here, or they came when this thread had just found none.
                    self._add_looker()

    def _next_waiting(self) -> Lease | None:
        with self._condition:
            return self._waiting.popleft() if self._waiting else None


def _wait_seconds(lease: Lease, seconds_left: float) -> float:
    """Return when the next look is due at a lease that has so much time. One that others renew is looked at shortly before."""
    if lease.is_kept_alive:
        return lease.ttl_seconds / _RENEWALS
    retry_seconds = lease.ttl_seconds / _RETRIES
    return max(seconds_left - 2 * retry_seconds, retry_seconds)
