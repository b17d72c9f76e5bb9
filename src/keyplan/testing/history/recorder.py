"""An engine that writes down what is asked of it and what it answers, around any engine. Stores work on it unchanged."""

import itertools
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final, Protocol, TypeVar

from keyplan.engine import (
    NO_LEASE,
    SYSTEM_CLOCK,
    Commit,
    Engine,
    Entry,
    Event,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyRange,
    Lease,
    Lineage,
    Profile,
    Put,
    Snapshot,
    Watch,
    WrappedEngine,
    WrappedSnapshot,
    check_sorted,
)
from keyplan.errors import CommitConflictError, CommitOutcomeUnknownError, InvalidInputError, KeyplanError
from keyplan.testing.contract import controls
from keyplan.testing.history.records import (
    NEVER,
    Act,
    Failure,
    Outcome,
    Read,
    Record,
    Seen,
    SeenCount,
    SeenFence,
    SeenPairs,
    Watched,
    Write,
    encode_record,
    tagged_guard,
    tagged_mutation,
)

__all__ = ["Acting", "HistoryEngine", "Journal"]

V = TypeVar("V", bytes, None)

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


_PART_KEYS_MAX: Final = 64
"""Why: a part of a load or of `put_sorted` must be one commit of every engine, so that it is found at one revision."""


@controls(Engine)
class HistoryEngine(WrappedEngine):
    """Records commits, reads and watches of `inner`, each by the method that was called.

    Loads and `put_sorted` are handed on in parts of 64 keys, each of which is one commit. Leases are handed on; what their ends
    remove is known by the log. What `lineage`, `compact` and the leases themselves answer is not recorded.
    """

    def __init__(self, inner: Engine, journal: Journal, *, closes_inner: bool = True) -> None:
        super().__init__(inner, closes_inner=closes_inner)
        self._journal = journal

    @property
    def profile(self) -> Profile:
        return self.inner.profile

    def lineage(self) -> Lineage:
        return self.inner.lineage()

    def snapshot(self) -> Snapshot:
        begin = _now()
        return _RecordedSnapshot(self.inner.snapshot(), self._journal, begin)

    def commit(self, commit: Commit) -> int:
        tell = self._begin_write(commit)
        revision = self._told(tell, commit, lambda: self.inner.commit(commit))
        tell(_now(), Outcome.ACKNOWLEDGED, revision)
        return revision

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        # Why the whole first: what is wrong with a later part must keep the earlier ones from being written.
        pairs = list(zip(keys, check_sorted(keys, values, self.profile), strict=True))
        new = 0
        for start in range(0, len(pairs), _PART_KEYS_MAX):
            part = pairs[start : start + _PART_KEYS_MAX]
            commit = Commit(tuple(guards), tuple(Put(key, value) for key, value in part))
            tell = self._begin_write(commit, only_absent=not overwrite)
            words = [key for key, _ in part], [value for _, value in part]
            put = partial(self.inner.put_sorted, *words, guards=guards, overwrite=overwrite)
            new += self._told(tell, commit, put)
            tell(_now(), Outcome.APPLIED)
        return new

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        loaded = 0
        pairs = iter(entries)
        previous = b""
        while part := list(islice(pairs, _PART_KEYS_MAX)):
            if loaded and part[0][0] <= previous:
                raise InvalidInputError(source="load", problem="keys must ascend", raw_key=part[0][0].hex())
            previous = part[-1][0]
            commit = Commit(tuple(KeyAbsent(key) for key, _ in part), tuple(Put(key, value) for key, value in part))
            tell = self._begin_write(commit)
            loaded += self._told(tell, commit, partial(self.inner.load, part), is_conflict_exact=False)
            tell(_now(), Outcome.APPLIED)
        return loaded

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        return _RecordedWatch(self.inner.watch(key_range, after=after), self._journal, key_range, after)

    def value(self, key: bytes) -> bytes | None:
        begin = _now()
        value = self.inner.value(key)
        self._journal.add(Seen(self._journal.client, begin, _now(), (_seen_value(key, value),)))
        return value

    def fenced_value(self, key: bytes, fence_key: bytes, fence: bytes) -> tuple[bool, bytes | None]:
        begin = _now()
        holds, value = self.inner.fenced_value(key, fence_key, fence)
        parts = SeenFence(fence_key, fence, holds), _seen_value(key, value)
        self._journal.add(Seen(self._journal.client, begin, _now(), parts))
        return holds, value

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        return self.inner.lease(ttl_seconds, resume=resume)

    def compact(self, revision: int) -> None:
        self.inner.compact(revision)

    def close(self) -> None:
        super().close()

    def _begin_write(self, commit: Commit, *, only_absent: bool = False) -> "_Tell":
        """Record a write that begins; return what records how it ended."""
        number, begin = self._journal.next_number(), _now()
        guards = tuple(map(tagged_guard, commit.guards))
        mutations = tuple(map(tagged_mutation, commit.mutations))

        def tell(
            end: float, outcome: Outcome, revision: int = 0, failed: Sequence[Failure] = (), error: str = ""
        ) -> None:
            client = self._journal.client
            answer = (outcome, revision, tuple(failed), error, only_absent)
            self._journal.add(Write(client, number, begin, end, guards, mutations, *answer))

        tell(NEVER, Outcome.UNKNOWN)
        return tell

    def _told(self, tell: "_Tell", commit: Commit, write: Callable[[], int], *, is_conflict_exact: bool = True) -> int:
        """Write, and record what is raised. Not `is_conflict_exact`: the error need not name every key that is there."""
        try:
            return write()
        except CommitConflictError as error:
            if is_conflict_exact:
                tell(_now(), Outcome.CONFLICT, failed=_failures(commit, error), error=error.code)
            else:
                tell(_now(), Outcome.REFUSED, error=error.code)
            raise
        except CommitOutcomeUnknownError as error:
            tell(_now(), Outcome.UNKNOWN, error=error.code)
            raise
        except KeyplanError as error:
            tell(_now(), Outcome.REFUSED, error=error.code)
            raise


class _Tell(Protocol):
    """Records how a write ended."""

    def __call__(
        self, end: float, outcome: Outcome, revision: int = 0, failed: Sequence[Failure] = (), error: str = ""
    ) -> None: ...


def _seen_value(key: bytes, value: bytes | None) -> SeenPairs:
    return SeenPairs(KeyRange.of_key(key), () if value is None else ((key, value),))


def _failures(commit: Commit, error: CommitConflictError) -> list[Failure]:
    failed = error.facts["failed"]
    assert isinstance(failed, tuple)
    failures: list[Failure] = []
    for failure in failed:
        assert isinstance(failure, FailedGuard)
        failures.append(Failure(commit.guards.index(failure.guard), failure.key, failure.actual_revision))
    return failures


@controls(Snapshot)
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

    @property
    def revision(self) -> int:
        return self.inner.revision

    @property
    def epoch(self) -> str:
        return self.inner.epoch

    def value(self, key: bytes) -> bytes | None:
        value = self.inner.value(key)
        self._see(_seen_value(key, value))
        return value

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self.inner.values(keys)
        self._see(*(_seen_value(key, value) for key, value in zip(keys, found, strict=True)))
        return found

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        pairs = ((key, None) for key in self.inner.keys(key_range, limit=limit, reverse=reverse))
        for key, _ in self._seen_along(pairs, key_range, limit, is_reversed=reverse):
            yield key

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        pairs = self.inner.pairs(key_range, limit=limit, reverse=reverse)
        return self._seen_along(pairs, key_range, limit, is_reversed=reverse)

    def count(self, key_range: KeyRange) -> int:
        count = self.inner.count(key_range)
        self._see(SeenCount(key_range, count))
        return count

    def close(self) -> None:
        self.inner.close()

    def _seen_along(
        self, pairs: Iterator[tuple[bytes, V]], key_range: KeyRange, limit: int | None, *, is_reversed: bool
    ) -> Iterator[tuple[bytes, V]]:
        """Hand pairs on, and record those that were taken."""
        seen: list[tuple[bytes, V]] = []
        is_whole = False
        try:
            for pair in pairs:
                seen.append(pair)
                yield pair
            is_whole = True
        finally:
            if seen or is_whole:
                self._see(SeenPairs(key_range, tuple(seen), limit, is_reversed, is_whole))

    def _see(self, *parts: SeenPairs | SeenCount) -> None:
        self._journal.add(Seen(self._journal.client, self._begin, _now(), parts, self.inner.revision))

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


@controls(Watch)
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
