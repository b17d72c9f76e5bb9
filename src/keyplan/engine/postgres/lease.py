"""Leases: rows with a deadline by the server's clock. They end when somebody looks: any process, each in one revision."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.lease import GrantedLease
from keyplan.engine.postgres.commits import Transaction, Writer
from keyplan.engine.postgres.pool import Pool
from keyplan.engine.postgres.statements import Statements
from keyplan.engine.postgres.wire import number, seconds
from keyplan.errors import CommitOutcomeUnknownError, EngineUnavailableError, LeaseNotFoundError

__all__ = ["Leases", "PostgresLease"]

_LOOK_SECONDS_MAX: Final = 1.0
"""Why: other processes grant leases, too; so long may one of them be over before anybody notices."""
_LOOK_PATIENCE_SECONDS: Final = 1.0
"""Why: a look comes before another call, whose time shall not be doubled by it."""
_TTL_SECONDS_MAX: Final = 3e9
"""Why: a century is as good as for ever, and PostgreSQL's times end somewhere."""


class Leases:
    """The leases of one store, for one engine. `can_end`: False where nothing may be written."""

    def __init__(self, pool: Pool, statements: Statements, writer: Writer, *, can_end: bool) -> None:
        self._pool = pool
        self._statements = statements
        self._writer = writer
        self._can_end = can_end
        self._look_at = 0.0

    def is_look_due(self) -> bool:
        """Tell whether it is time to look for leases that are over."""
        return self._can_end and SYSTEM_CLOCK.monotonic() >= self._look_at

    def look(self) -> None:
        """End what is over, and note when to look again. Where the server does not answer soon, the next look does it."""
        # Why before: other threads shall not look meanwhile.
        self._look_at = SYSTEM_CLOCK.monotonic() + _LOOK_SECONDS_MAX
        # Why suppressed: what is read or written next says it, if the server is still away.
        with suppress(EngineUnavailableError, CommitOutcomeUnknownError):
            left = self._seconds_to_next_end()
            while left is not None and left <= 0:
                self._writer.write(self._end_those_over, mutations=0)
                left = self._seconds_to_next_end()
            if left is not None:
                self._look_again_in(left)

    def _seconds_to_next_end(self) -> float | None:
        left: float | None = self._pool.call((self._statements.next_end, ()), seconds_max=_LOOK_PATIENCE_SECONDS)[
            0
        ].row()[0]
        return left

    def _look_again_in(self, left: float) -> None:
        self._look_at = min(self._look_at, SYSTEM_CLOCK.monotonic() + left)

    def _end_those_over(self, transaction: Transaction) -> None:
        (over,) = transaction.begin((self._statements.over, ()))
        self._end(transaction, [row[0] for row in over.rows(tuple)])

    def _end(self, transaction: Transaction, leases: list[int]) -> None:
        """Delete the leases' entries, each lease's in one revision, and the leases."""
        requests = [(self._statements.end_lease, (number(lease),)) for lease in leases]
        for result in transaction.run(*requests):
            revision = result.row()[0]
            if revision is None:
                transaction.must_commit()
            else:
                transaction.has_written(revision)
        transaction.end()

    # ---- one lease -------------------------------------------------------------------------------------------------------

    def grant(self, ttl_seconds: float) -> int:
        """Store a lease that lives from now; return its id.

        Done again when the answer is lost: a lease that nobody knows of ends by itself.
        """
        ttl = seconds(min(ttl_seconds, _TTL_SECONDS_MAX))
        lease: int = self._pool.call((self._statements.grant, (ttl,)))[0].row()[0]
        self._look_again_in(ttl_seconds)
        return lease

    def living(self, lease: int) -> tuple[float, float]:
        """Return the time of a living lease and what is left of it, in seconds. Raises LeaseNotFoundError."""
        rows = self._pool.call((self._statements.living, (number(lease),)))[0].rows(tuple)
        if not rows:
            raise LeaseNotFoundError(lease=lease)
        ttl_seconds, left = rows[0]
        return ttl_seconds, min(left, ttl_seconds)

    def keep_alive(self, lease: int, *, seconds_max: float) -> float:
        """Start a living lease's time again; return it. Raises LeaseNotFoundError, and EngineUnavailableError after so long."""
        rows = self._pool.call((self._statements.keep_alive, (number(lease),)), seconds_max=seconds_max)[0].rows(tuple)
        if not rows:
            raise LeaseNotFoundError(lease=lease)
        return float(rows[0][0])

    def revoke(self, lease: int) -> None:
        """End a lease now. One that is gone is no error."""

        def end(transaction: Transaction) -> None:
            transaction.begin()
            self._end(transaction, [lease])

        self._writer.write(end, mutations=0)


class PostgresLease(GrantedLease):
    """A lease by its id. `check_writable` raises when nothing may be written through its engine."""

    def __init__(self, leases: Leases, lease: int, *, ttl_seconds: float, check_writable: Callable[[], None]) -> None:
        super().__init__(lease, ttl_seconds)
        self._leases = leases
        self._check_writable = check_writable

    def keep_alive(self) -> float:
        """Start the lease's time again; see the contract."""
        self._check_writable()
        # Why not the whole time-out: an answer that comes when the lease is over is of no use, and another try may be.
        return self._leases.keep_alive(self._id, seconds_max=self._ttl_seconds / 3)

    def seconds_left(self) -> float:
        """Return how long it still lives; see the contract."""
        return self._leases.living(self._id)[1]

    def revoke(self) -> None:
        """End the lease; see the contract."""
        self._check_writable()
        self._leases.revoke(self._id)
