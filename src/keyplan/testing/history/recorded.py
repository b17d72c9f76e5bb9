"""What a recording engine gives out: snapshots, watches and leases that write down what they are asked and answer."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from keyplan.engine import NO_LEASE, Entry, Event, Fences, KeyRange, Lease, Snapshot, Watch, WrappedSnapshot
from keyplan.errors import KeyplanError
from keyplan.testing.contract import controls
from keyplan.testing.history.journal import Journal
from keyplan.testing.history.records import NEVER, LeaseAct, LeaseCall, Read, Seen, SeenCount, SeenPairs, Watched

__all__ = ["RecordedLease", "RecordedSnapshot", "RecordedWatch", "seen_value"]

V = TypeVar("V", bytes, None)


def seen_value(key: bytes, value: bytes | None) -> SeenPairs:
    """Return what a read of one value has seen."""
    return SeenPairs(KeyRange.of_key(key), () if value is None else ((key, value),))


@controls(Snapshot)
class RecordedSnapshot(WrappedSnapshot):
    """A snapshot that records what is read of it; `begin` is when it was asked for."""

    def __init__(self, inner: Snapshot, journal: Journal, begin: float) -> None:
        super().__init__(inner)
        self._journal = journal
        self._begin = begin

    def read_along(self, keys: Sequence[bytes]) -> None:
        self.inner.read_along(keys)

    def holds(self, fences: Fences) -> bool:
        return Snapshot.holds(self, fences)  # Why: what it reads is recorded as any read is.

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
        self._see(seen_value(key, value))
        return value

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self.inner.values(keys)
        self._see(*(seen_value(key, value) for key, value in zip(keys, found, strict=True)))
        return found

    def values_within(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        found = self.inner.values_within(keys, bytes_max)
        self._see(*(seen_value(key, value) for key, value in zip(keys, found, strict=False)))
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

    def columns(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        return super().columns(
            key_range, limit=limit, reverse=reverse
        )  # Why: it is made of `pairs`, which is recorded.

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
        self._journal.add(Seen(self._journal.client, self._begin, self._journal.now(), parts, self.inner.revision))

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
        end = self._journal.now()
        how = (limit, is_reversed, is_keys_only, is_whole)
        self._journal.add(Read(self._journal.client, self._begin, end, self.inner.revision, key_range, entries, *how))


@controls(Watch)
class RecordedWatch:
    """A watch that is opened with it, and records that and every poll, also one that brings nothing."""

    def __init__(self, open_watch: Callable[[], Watch], journal: Journal, key_range: KeyRange, after: int) -> None:
        self._journal = journal
        self._range = key_range
        self._after = self._told = after
        self._number = journal.next_number()
        begin = journal.now()
        try:
            self._inner = open_watch()
        except KeyplanError as error:
            self._record(begin, 0.0, (), error.code)
            raise

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        begin = self._journal.now()
        try:
            events = self._inner.poll(timeout_seconds)
        except KeyplanError as error:
            self._told = self._inner.revision
            self._record(begin, timeout_seconds, (), error.code)
            raise
        self._told = self._inner.revision
        self._record(begin, timeout_seconds, events)
        return events

    def _record(self, begin: float, timeout_seconds: float, events: Sequence[Event], error: str = "") -> None:
        place = (self._journal.client, self._number, self._range, self._after)
        answer = (self._told, tuple(events), error)
        self._journal.add(Watched(*place, begin, self._journal.now(), *answer, timeout_seconds))

    @property
    def revision(self) -> int:
        return self._inner.revision

    def close(self) -> None:
        self._inner.close()


@controls(Lease)
class RecordedLease:
    """A lease that is granted or taken up with it, and records that and every call."""

    def __init__(self, open_lease: Callable[[], Lease], journal: Journal, ttl_seconds: float, resume: int) -> None:
        self._journal = journal
        self._id = resume
        self._ttl_seconds = ttl_seconds
        act = LeaseAct.GRANT if resume == NO_LEASE else LeaseAct.RESUME
        with self._recorded(act):
            self._inner = open_lease()
            self._id, self._ttl_seconds = self._inner.id, self._inner.ttl_seconds

    @property
    def id(self) -> int:
        return self._inner.id

    @property
    def ttl_seconds(self) -> float:
        return self._inner.ttl_seconds

    def keep_alive(self) -> float:
        with self._recorded(LeaseAct.KEEP_ALIVE) as told:
            told.append(self._inner.keep_alive())
        return told[0]

    def seconds_left(self) -> float:
        with self._recorded(LeaseAct.SECONDS_LEFT) as told:
            told.append(self._inner.seconds_left())
        return told[0]

    def revoke(self) -> None:
        with self._recorded(LeaseAct.REVOKE):
            self._inner.revoke()

    @contextmanager
    def _recorded(self, act: LeaseAct) -> Generator[list[float], None, None]:
        """Record a call that begins, and how it ends: with the seconds that the block puts into the list, or an error."""
        number, begin = self._journal.next_number(), self._journal.now()
        told: list[float] = []
        # Why before as well: a process that is killed meanwhile may have prolonged the lease, or ended it.
        self._add(number, act, begin, NEVER, told, "")
        try:
            yield told
        except KeyplanError as error:
            self._add(number, act, begin, self._journal.now(), told, error.code)
            raise
        self._add(number, act, begin, self._journal.now(), told, "")

    def _add(self, number: int, act: LeaseAct, begin: float, end: float, told: list[float], error: str) -> None:
        seconds = told[0] if told else None
        lease = (self._id, self._ttl_seconds)
        self._journal.add(LeaseCall(self._journal.client, number, begin, end, act, *lease, seconds, error))
