"""Watching the history: rows after a revision, with the store's revision of the same instant."""

from collections.abc import Sequence
from typing import Any, Final

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.interface import Entry, Event, EventKind, KeyRange
from keyplan.engine.postgres.failures import NAME
from keyplan.engine.postgres.lease import Leases
from keyplan.engine.postgres.notifier import CommitNotifier
from keyplan.engine.postgres.pool import Pool
from keyplan.engine.postgres.statements import Statements
from keyplan.engine.postgres.transactions import end_of
from keyplan.engine.postgres.wire import number
from keyplan.errors import EngineUnavailableError, HistoryCompactedError

__all__ = ["PostgresWatch"]

_POLL_EVENTS_MIN: Final = 1_000
"""A poll ends with the revision that brings it to this many. Why: a resumed watch must not build one huge list."""


class PostgresWatch:
    """A watch on the commits of every process."""

    def __init__(
        self,
        pool: Pool,
        statements: Statements,
        *,
        leases: Leases,
        notifier: CommitNotifier,
        key_range: KeyRange,
        after: int,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._leases = leases
        self._notifier = notifier
        self._range = key_range
        self._revision = after
        self._is_closed = False
        _, compacted = pool.call((statements.revision, ()))[0].row()
        self._check_kept(compacted)
        notifier.listen()

    @property
    def revision(self) -> int:
        """Everything up to and including this revision was delivered."""
        return self._revision

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        """Wait for changes, at most so long; see the contract."""
        give_up_at = SYSTEM_CLOCK.monotonic() + timeout_seconds
        while True:
            self._check_open()
            known = self._notifier.number
            if self._leases.is_look_due():
                self._leases.look()
            events = self._take()
            remaining = give_up_at - SYSTEM_CLOCK.monotonic()
            if events or remaining <= 0:
                return events
            self._notifier.wait(known, seconds=remaining)

    def _take(self) -> list[Event]:
        """Return the events of the next revisions, whole revisions only."""
        parameters = (number(self._revision), self._range.start, end_of(self._range), number(_POLL_EVENTS_MIN))
        rows: list[tuple[Any, ...]] = self._pool.call((self._statements.events, parameters))[0].rows(tuple)
        reached, compacted, first = rows[0][:3]
        self._check_kept(compacted)
        events = [_event(*row[2:]) for row in rows] if first is not None else []
        if len(events) >= _POLL_EVENTS_MIN:
            reached = events[-1].revision
        self._revision = max(self._revision, reached)
        return events

    def _check_kept(self, compacted: int) -> None:
        if self._revision < compacted:
            raise HistoryCompactedError(revision=self._revision, compacted_revision=compacted)

    def close(self) -> None:
        """End the watch, and wake who polls it."""
        self._is_closed = True
        self._notifier.tell()

    def _check_open(self) -> None:
        self._pool.check_open()
        if self._is_closed:
            raise EngineUnavailableError(engine=NAME, problem="the watch was closed")


def _event(  # Why: the columns of a row, in order.
    revision: int,
    key: bytes,
    value: bytes | None,
    create: int,
    version: int,
    lease: int,
    before: bytes | None,
    before_create: int,
    before_mod: int,
    before_version: int,
    before_lease: int,
) -> Event:
    after = None if value is None else Entry(key, value, create, revision, version, lease)
    previous = None if before is None else Entry(key, before, before_create, before_mod, before_version, before_lease)
    kind = EventKind.DELETED if after is None else EventKind.CREATED if previous is None else EventKind.UPDATED
    return Event(kind, key, revision, after, previous)
