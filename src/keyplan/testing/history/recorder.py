"""An engine that writes down what is asked of it and what it answers, around any engine. Stores work on it unchanged."""

import itertools
import os
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from keyplan.engine import (
    SYSTEM_CLOCK,
    Commit,
    Engine,
    Entry,
    Event,
    FailedGuard,
    KeyRange,
    Snapshot,
    Watch,
    WrappedEngine,
    WrappedSnapshot,
)
from keyplan.errors import CommitConflictError, CommitOutcomeUnknownError, KeyplanError
from keyplan.testing.history.records import (
    NEVER,
    Act,
    Failure,
    Outcome,
    Read,
    Record,
    Watched,
    Write,
    encode_record,
    tagged_guard,
    tagged_mutation,
)

__all__ = ["Acting", "HistoryEngine", "Journal"]

_now = SYSTEM_CLOCK.monotonic


class Journal:
    """Takes records from the threads of one client. `descriptor`: a file open for appending; `client` names it in its records.

    A record is one write to the system, so that what a killed process had told is there.
    """

    def __init__(self, descriptor: int, client: str) -> None:
        self.client = client
        self._descriptor = descriptor
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def next_number(self) -> int:
        """Return a number that no other record of this client has."""
        return next(self._numbers)

    def add(self, record: Record) -> None:
        """Write one record down."""
        line = encode_record(record)
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]

    @contextmanager
    def act(self, kind: str) -> Generator["Acting", None, None]:
        """Record a typed operation: the block does it, leaves `mark` in what it stores and sets `revision`.

        A conflict, or another error of keyplan that says that nothing was written, ends the block and is recorded.
        """
        acting = Acting(self, kind)
        self.add(acting.record(NEVER, Outcome.UNKNOWN))
        error = ""
        try:
            yield acting
            outcome = Outcome.ACKNOWLEDGED
        except CommitOutcomeUnknownError as raised:
            outcome, error = Outcome.UNKNOWN, raised.code
        except KeyplanError as raised:
            outcome, error = Outcome.REFUSED, raised.code
        self.add(acting.record(_now(), outcome, error))


class Acting:
    """A typed operation under way."""

    def __init__(self, journal: Journal, kind: str) -> None:
        self._client = journal.client
        self._number = journal.next_number()
        self._kind = kind
        self._begin = _now()
        self.mark = f"~{journal.client}.{self._number}~"
        self.revision = 0

    def record(self, end: float, outcome: Outcome, error: str = "") -> Act:
        """Return what is known of it."""
        revision = self.revision if outcome is Outcome.ACKNOWLEDGED else 0
        begin = self._begin
        return Act(self._client, self._number, self._kind, self.mark, begin, end, outcome, revision, error)


class HistoryEngine(WrappedEngine):
    """Records commits, reads and watches of `inner`. Leases and loads are passed on unrecorded: use none of them beside it."""

    def __init__(self, inner: Engine, journal: Journal, *, closes_inner: bool = True) -> None:
        super().__init__(inner, closes_inner=closes_inner)
        self._journal = journal

    def snapshot(self) -> Snapshot:
        begin = _now()
        return _RecordedSnapshot(self.inner.snapshot(), self._journal, begin)

    def commit(self, commit: Commit) -> int:
        number, begin = self._journal.next_number(), _now()
        guards = tuple(map(tagged_guard, commit.guards))
        mutations = tuple(map(tagged_mutation, commit.mutations))

        def told(
            end: float, outcome: Outcome, revision: int = 0, failed: Sequence[Failure] = (), error: str = ""
        ) -> None:
            client = self._journal.client
            answer = (outcome, revision, tuple(failed), error)
            self._journal.add(Write(client, number, begin, end, guards, mutations, *answer))

        told(NEVER, Outcome.UNKNOWN)
        try:
            revision = self.inner.commit(commit)
        except CommitConflictError as error:
            told(_now(), Outcome.CONFLICT, failed=_failures(commit, error), error=error.code)
            raise
        except CommitOutcomeUnknownError as error:
            told(_now(), Outcome.UNKNOWN, error=error.code)
            raise
        except KeyplanError as error:
            told(_now(), Outcome.REFUSED, error=error.code)
            raise
        told(_now(), Outcome.ACKNOWLEDGED, revision)
        return revision

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        return _RecordedWatch(self.inner.watch(key_range, after=after), self._journal, key_range, after)

    def value(self, key: bytes) -> bytes | None:
        with self.snapshot() as snapshot:
            return snapshot.value(key)


def _failures(commit: Commit, error: CommitConflictError) -> list[Failure]:
    failed = error.facts["failed"]
    assert isinstance(failed, tuple)
    failures: list[Failure] = []
    for failure in failed:
        assert isinstance(failure, FailedGuard)
        failures.append(Failure(commit.guards.index(failure.guard), failure.key, failure.actual_revision))
    return failures


class _RecordedSnapshot(WrappedSnapshot):
    def __init__(self, inner: Snapshot, journal: Journal, begin: float) -> None:
        super().__init__(inner)
        self._journal = journal
        self._begin = begin

    def get(self, key: bytes) -> Entry | None:
        entry = self.inner.get(key)
        self._record(KeyRange.of_key(key), () if entry is None else (entry,))
        return entry

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        found = self.inner.get_many(keys)
        for key, entry in zip(keys, found, strict=True):
            self._record(KeyRange.of_key(key), () if entry is None else (entry,))
        return found

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        entries: list[Entry] = []
        is_whole = False
        try:
            for entry in self.inner.scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only):
                entries.append(entry)
                yield entry
            is_whole = True
        finally:
            if entries or is_whole:
                self._record(
                    key_range,
                    tuple(entries),
                    limit=limit,
                    is_reversed=reverse,
                    is_keys_only=keys_only,
                    is_whole=is_whole,
                )

    def _record(
        self,
        key_range: KeyRange,
        entries: tuple[Entry, ...],
        *,
        limit: int | None = None,
        is_reversed: bool = False,
        is_keys_only: bool = False,
        is_whole: bool = True,
    ) -> None:
        end = _now()
        how = (limit, is_reversed, is_keys_only, is_whole)
        self._journal.add(Read(self._journal.client, self._begin, end, self.inner.revision, key_range, entries, *how))


class _RecordedWatch:
    def __init__(self, inner: Watch, journal: Journal, key_range: KeyRange, after: int) -> None:
        self._inner = inner
        self._journal = journal
        self._range = key_range
        self._after = after
        self._number = journal.next_number()
        self._told = -1

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        begin = _now()
        try:
            events = self._inner.poll(timeout_seconds)
        except KeyplanError as error:
            self._record(begin, (), error.code)
            raise
        if events or self._inner.revision != self._told:
            self._record(begin, events)
        return events

    def _record(self, begin: float, events: Sequence[Event], error: str = "") -> None:
        self._told = self._inner.revision
        place = (self._journal.client, self._number, self._range, self._after)
        self._journal.add(Watched(*place, begin, _now(), self._told, tuple(events), error))

    @property
    def revision(self) -> int:
        return self._inner.revision

    def close(self) -> None:
        self._inner.close()
