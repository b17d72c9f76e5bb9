"""Leases of a store: records that live as long as their holder. Who keeps them alive: keeper.py."""

import os
from collections.abc import Callable
from threading import Lock
from types import TracebackType
from typing import Self

from keyplan.engine import NO_LEASE, Clock
from keyplan.engine import Lease as EngineLease
from keyplan.errors import EngineError, InvalidRecordError, LeaseNotFoundError
from keyplan.layout import BoundTable, LeaseHandle
from keyplan.store.decoding import check_whole

__all__ = ["Lease", "lease_id_for"]


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
