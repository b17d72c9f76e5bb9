"""Watching the log. News of this process arrives by a condition, news of others by looking at the last transaction id."""

from collections.abc import Callable, Sequence
from typing import Final

import lmdb

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.interface import Event, KeyRange
from keyplan.engine.lmdb.environment import Environment
from keyplan.engine.lmdb.format import LOG_KEY, STATE_KEY, State, unpack_events
from keyplan.engine.lmdb.snapshot import unusable
from keyplan.errors import EngineUnavailableError, HistoryCompactedError

__all__ = ["LmdbWatch"]

_LOOK_SECONDS_MIN: Final = 0.001
_LOOK_SECONDS_MAX: Final = 0.006
"""Why: news of another process waits half of it on average. A wake-up with its look costs some 60 microseconds, most of them
Python's waiting, so that an idle watch takes a hundredth of a core."""

_OTHERS_SECONDS: Final = 0.25
"""How long those wait that do not look themselves. Why not for ever: the one that looks may have been interrupted twice."""

_POLL_EVENTS_MIN: Final = 1_000
"""A poll ends with the revision that brings it to this many. Why: a resumed watch must not build one huge list."""

_POLL_BYTES_MIN: Final = 8 << 20
"""It ends with the revision that brings what it read to so many bytes, too: of a thousand events each may hold megabytes."""


class LmdbWatch:
    """A watch on the commits of every process. `check_open` raises when its engine was closed."""

    def __init__(
        self, environment: Environment, key_range: KeyRange, *, after: int, check_open: Callable[[], None]
    ) -> None:
        self._environment = environment
        self._range = key_range
        self._revision = after
        self._check_engine_open = check_open
        self._is_closed = False
        self._seen_transaction_id = -1
        self._wait_seconds = _LOOK_SECONDS_MIN
        with environment.reading() as transaction:
            self._check_kept(State.unpack(transaction.get(STATE_KEY, db=environment.databases.meta)))

    @property
    def revision(self) -> int:
        """Everything up to and including this revision was delivered."""
        return self._revision

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        """Wait for changes, at most so long; see the contract."""
        environment = self._environment
        # Why: waiting takes real time, whatever clock the leases go by.
        give_up_at = SYSTEM_CLOCK.monotonic() + timeout_seconds
        while True:
            self._check_open()
            if environment.is_look_due():
                environment.look_at_leases()
            events = self._take()
            remaining = give_up_at - SYSTEM_CLOCK.monotonic()
            if events or remaining <= 0:
                return events
            self._wait_for_news(give_up_at)

    def _wait_for_news(self, give_up_at: float) -> None:
        """Wait for a commit of any process, the look at leases, the end of the watch, or the time to give up."""
        environment = self._environment
        with environment.awaiting_news():
            is_over = False
            try:
                # Why: asked under the lock that a commit notifies under, so that news cannot slip in between.
                while not self._is_closed and environment.problem is None:
                    remaining = give_up_at - SYSTEM_CLOCK.monotonic()
                    is_over = remaining <= 0
                    if is_over or not environment.is_latest(self._seen_transaction_id):
                        return
                    is_notified = environment.news.wait(min(self._seconds_to_the_next_look(), remaining))
                    # Why: only after a wait; where a lease cannot be ended, on a full disk for one, the look is due always.
                    if is_notified or environment.is_look_due():
                        return
            finally:
                if environment.looker is self:
                    environment.looker = None
                    # One of the others looks from now on; where there is news, all see it.
                    environment.news.notify(1 if is_over else environment.waiting_for_news)

    def _seconds_to_the_next_look(self) -> float:
        """Return how long this watch waits. One of all that wait looks for the commits of other processes."""
        environment = self._environment
        if environment.looker is None:
            environment.looker = self
        if environment.looker is not self:
            return _OTHERS_SECONDS
        seconds = self._wait_seconds
        self._wait_seconds = min(self._wait_seconds * 1.2, _LOOK_SECONDS_MAX)
        return seconds

    def _take(self) -> list[Event]:
        """Return the events of the next revisions, whole revisions only."""
        try:
            with self._environment.reading() as transaction:
                if transaction.id() == self._seen_transaction_id:
                    return []
                state = State.unpack(transaction.get(STATE_KEY, db=self._environment.databases.meta))
                self._check_kept(state)
                events, reached = self._read(transaction, state)
                if reached >= state.revision:
                    self._seen_transaction_id = transaction.id()
        except lmdb.Error as error:
            raise unusable(error) from error
        if reached > self._revision:
            self._revision = reached
            self._wait_seconds = _LOOK_SECONDS_MIN
        return events

    def _read(self, transaction: "lmdb.Transaction[bytes]", state: State) -> tuple[list[Event], int]:
        events: list[Event] = []
        reached, read_bytes = self._revision, 0
        cursor = transaction.cursor(self._environment.databases.log)
        if not cursor.set_range(LOG_KEY.pack(self._revision + 1, 0)):
            return events, max(state.revision, reached)
        for key, raw in cursor.iternext():
            revision, _ = LOG_KEY.unpack(key)
            if revision != reached and (len(events) >= _POLL_EVENTS_MIN or (events and read_bytes >= _POLL_BYTES_MIN)):
                return events, reached
            reached = revision
            read_bytes += len(raw)
            events += [event for event in unpack_events(revision, raw) if event.key in self._range]
        return events, reached

    def _check_kept(self, state: State) -> None:
        if self._revision < state.compacted:
            raise HistoryCompactedError(revision=self._revision, compacted_revision=state.compacted)

    def close(self) -> None:
        """End the watch, and wake who polls it."""
        self._is_closed = True
        with self._environment.news:
            self._environment.news.notify_all()

    def _check_open(self) -> None:
        self._check_engine_open()
        if self._is_closed:
            raise EngineUnavailableError(engine="lmdb", problem="the watch was closed")
