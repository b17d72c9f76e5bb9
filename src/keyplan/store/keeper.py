"""One thread for each store that renews all its leases at a third of their time, and notices their loss."""

from threading import Condition, Thread, current_thread
from typing import Final

from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.errors import EngineError, LeaseNotFoundError
from keyplan.store.lease import Lease

__all__ = ["LeaseKeeper"]

_RENEWALS: Final = 3
"""A lease is renewed when a third of its time is over. Why: two renewals may fail before it ends."""

_RETRIES: Final = 12
"""A renewal that failed is tried again after this part of the time: at most eight times before the lease ends."""

_CLOSE_SECONDS_MAX: Final = 5.0
"""Why: a renewal under way ends in milliseconds, unless the disk or the network hangs; closing must not hang with it."""

_LOOK_SECONDS_MAX: Final = 0.05
"""Why: a clock that was handed in cannot wake the thread; it is looked at this often."""


class LeaseKeeper:
    """Keeps the leases of one store. The thread begins with the first lease and ends with the last.

    Invariant: `_due` has every lease that is not over, with the time of the next look at it.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._condition = Condition()
        self._due: dict[Lease, float] = {}
        self._thread: Thread | None = None
        self._is_closed = False

    def keep(self, lease: Lease, *, is_resumed: bool) -> None:
        """Take care of a lease. One that was resumed is renewed at once: how much of its time is left is not known."""
        wait_seconds = _wait_seconds(lease) if lease.is_kept_alive else lease.ttl_seconds
        with self._condition:
            if self._is_closed:
                lease.lose("the store was closed")
                return
            is_now = is_resumed and lease.is_kept_alive
            self._due[lease] = self._clock.monotonic() + (0.0 if is_now else wait_seconds)
            if self._thread is None:
                self._thread = Thread(target=self._work, name="keyplan-leases", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def forget(self, lease: Lease) -> None:
        """Let go of a lease that is over."""
        with self._condition:
            self._due.pop(lease, None)
            self._condition.notify_all()

    def close(self) -> None:
        """End the thread and tell the holders. The leases live out their time: another process may have taken them up."""
        with self._condition:
            self._is_closed = True
            leases, self._due = list(self._due), {}
            thread = self._thread
            self._condition.notify_all()
        if thread is not None and thread is not current_thread():
            thread.join(_CLOSE_SECONDS_MAX)
        for lease in leases:
            lease.lose("the store was closed")

    def _work(self) -> None:
        while True:
            with self._condition:
                if not self._due:
                    self._thread = None
                    return
                lease, due = min(self._due.items(), key=lambda item: item[1])
                wait_seconds = due - self._clock.monotonic()
                if wait_seconds > 0:
                    is_system = self._clock is SYSTEM_CLOCK
                    self._condition.wait(wait_seconds if is_system else min(wait_seconds, _LOOK_SECONDS_MAX))
                    continue
            next_seconds = self._look(lease)
            with self._condition:
                if lease in self._due:
                    self._due[lease] = self._clock.monotonic() + next_seconds

    def _look(self, lease: Lease) -> float:
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


def _wait_seconds(lease: Lease) -> float:
    return lease.ttl_seconds / _RENEWALS
