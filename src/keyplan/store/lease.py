"""Leases of a store: records that live as long as their holder; and who renews them at a third of their time.

One thread for each store renews its leases, and notices their loss. What is due when, and what is done then, is apart from who
waits: `LeaseSchedule`. The asynchronous store waits in a task. Who waits never asks the engine: renewals are made beside it, so
that one that hangs delays neither the others nor the word that a lease's time is over.
"""

import logging
import os
from collections import deque
from collections.abc import Callable
from threading import Condition, Lock, Thread, current_thread
from types import TracebackType
from typing import Final, Protocol, Self

from keyplan.engine import NO_LEASE, SYSTEM_CLOCK, Clock, Engine
from keyplan.engine import Lease as EngineLease
from keyplan.errors import EngineError, InvalidRecordError, LeaseNotFoundError
from keyplan.layout import BoundTable, LeaseHandle
from keyplan.store.decoding import check_whole

__all__ = ["STORE_CLOSED", "Keeper", "Lease", "LeaseKeeper", "LeaseSchedule", "lease_id_for"]

# ---- a lease --------------------------------------------------------------------------------------------------------------


class Lease(LeaseHandle):
    """A life span that records hang on: `with store.lease(10) as lease: members.insert(key, record, lease=lease)`.

    When the block ends the lease is revoked: its records and their index entries are removed in one revision. The same happens
    when it expires, because its holder died or could not renew it in time. Its time is the engine's: it lives for `ttl_seconds`
    after each renewal.

    Loss is an end that the holder did not ask for: it expired, somebody else revoked it, or the store was closed (then it still
    lives out its time). `is_lost` says so from then on, writes with it raise LeaseNotFoundError before anything is sent, and
    `on_loss` was called once, in a thread of its own. A lease whose time is over without a renewal is lost in that moment,
    whatever the engine is doing. Safe for use by several threads.
    """

    def __init__(
        self,
        lease: EngineLease,
        *,
        clock: Clock,
        on_loss: "Callable[[Lease], object] | None",
        on_end: "Callable[[Lease], object]",
        tell: "Callable[[Lease, Callable[[Lease], object]], object]",
        is_kept_alive: bool,
        lives_until: float,
    ) -> None:
        self._lease = lease
        self._clock = clock
        self._on_loss = on_loss
        self._on_end = on_end
        self._tell = tell
        self._lock = Lock()
        self._process = os.getpid()
        self._loss = ""
        self._is_revoked = False
        self.is_kept_alive = is_kept_alive
        """True when the store renews it in the background."""
        self._problem = ""
        self.lives_until = lives_until
        """By the store's clock, how long it lives for sure, as far as is known here."""

    @property
    def id(self) -> int:
        """The id by which any process can use it, or take it up with `store.resume_lease`."""
        return self._lease.id

    @property
    def ttl_seconds(self) -> float:
        """How long it lives after it was renewed."""
        return self._lease.ttl_seconds

    @property
    def is_lost(self) -> bool:
        """True once the lease ended without this holder's doing, or its time passed and no renewal is known of."""
        self.check_time()
        return bool(self._loss)

    @property
    def loss(self) -> str:
        """Why it was lost; empty while it is not."""
        self.check_time()
        return self._loss

    @property
    def is_over(self) -> bool:
        """True when there is nothing to renew any more: it was revoked here, or lost."""
        return self._is_revoked or self.is_lost

    def keep_alive(self) -> float:
        """Renew it now; return the seconds that it has. Raises LeaseNotFoundError when it is gone, which is its loss."""
        self.check_usable()
        # Why: before the call, since the engine starts the time somewhere during it.
        begun = self._clock.monotonic()
        try:
            seconds = self._lease.keep_alive()
        except LeaseNotFoundError:
            self.lose("it expired, or was revoked by another holder")
            raise
        self._live_until(begun + seconds)
        return seconds

    def look(self) -> float:
        """See whether it lives, without renewing it; return the seconds that it has. Raises LeaseNotFoundError."""
        begun = self._clock.monotonic()
        seconds = self._lease.seconds_left()
        self._live_until(begun + seconds)
        return seconds

    def _live_until(self, moment: float) -> None:
        with self._lock:
            self._problem = ""
            # Why never back: an engine that counts in whole seconds tells less than there is.
            self.lives_until = max(self.lives_until, moment)
        self.check_usable()  # Why: whoever was told of its loss shall not be told that it lives.

    def note(self, problem: str) -> None:
        """Keep why it could not be renewed, for the case that its time passes meanwhile."""
        self._problem = problem

    def check_time(self) -> None:
        """Lose it when its time is over, as far as that is known here."""
        if not (self._loss or self._is_revoked) and self._clock.monotonic() >= self.lives_until:
            self.lose(f"it could not be renewed in time: {self._problem or 'the engine has not answered'}")

    def revoke(self) -> None:
        """End it now, with its records and their index entries in one revision. Harmless when it is gone already.

        In a forked process nothing is done: the lease is the parent's, which goes on renewing it.
        """
        self.give_up()
        if os.getpid() != self._process:
            return
        try:
            self._lease.revoke()
        except EngineError:
            # Why: of a lease that was lost with its store the holder has been told; otherwise this can be tried again.
            if not self._loss:
                raise

    def give_up(self) -> None:
        """Stop to renew it, and refuse writes with it; what `revoke` begins with. It ends when its time is over."""
        if os.getpid() != self._process:
            self._is_revoked = True  # Trap: the locks may be held here for ever, by a thread that only the parent has
            return
        with self._lock:
            self._is_revoked = True
        self._on_end(self)

    def check_usable(self) -> None:
        """Raise LeaseNotFoundError when it was revoked here or lost."""
        if self.is_over:
            raise LeaseNotFoundError(lease=self.id, problem=self._loss or "it was revoked")

    def lose(self, problem: str) -> None:
        """Note the loss and tell the holder, once; for the store's own use.

        In a forked process it is noted alone: the holder is the parent's.
        """
        if os.getpid() != self._process:
            self._loss = self._loss or problem  # Trap: as in `give_up`
            return
        with self._lock:
            if self._loss or self._is_revoked:
                return
            self._loss = problem
        self._on_end(self)
        if self._on_loss is not None:
            self._tell(self, self._on_loss)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.revoke()


def _id_of(lease: LeaseHandle) -> int:
    check_whole(getattr(lease, "id", lease), "lease")
    return lease.id


def lease_id_for(table: BoundTable, lease: int | LeaseHandle) -> int:
    """Return the id of the lease that a record of the table is written with.

    Raises InvalidRecordError when the table's declaration says otherwise, LeaseNotFoundError for one that is known to be over.
    """
    if isinstance(lease, int):
        # Why: asked first, because asking for a class that has a Protocol as its base takes Python more than a microsecond.
        lease_id = lease
        if lease_id is True or lease_id is False:
            check_whole(lease_id, "lease")
    else:
        if isinstance(lease, Lease):
            lease.check_usable()
        lease_id = _id_of(lease)
    has_lease = table.spec.has_lease
    if has_lease == (lease_id != NO_LEASE):
        return lease_id
    problem = (
        "records of this table live on a lease: give lease="
        if has_lease
        else "the table is not declared with lease=True, so its records cannot hang on a lease"
    )
    raise InvalidRecordError(table=table.name, problem=problem)


# ---- keeping leases -------------------------------------------------------------------------------------------------------


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
