"""A commit in the making, over one state of a store: what was read, what will be written, and guards that join the two.

`Reads` is what was seen of the state, and gives the guards that reads ask for. `WriteSet` is what will be written, laid over
the reads. Transactions of records and the gateways are made of these, each with rules of its own.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import filterfalse
from typing import Self

from keyplan.engine.interface import (
    NO_LEASE,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    Entry,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
    Snapshot,
)
from keyplan.engine.profile import Capability
from keyplan.errors import InvalidInputError

__all__ = ["Reads", "WriteSet", "merged", "transaction_ended"]


def transaction_ended() -> InvalidInputError:
    """Return the error of everything that is asked of a transaction after its end."""
    return InvalidInputError(source="transaction", problem="the transaction has ended: begin another one")


# ---- reads ------------------------------------------------------------------------------------------------------------


class _RangeRead:
    """One scan: the part of its range that was consumed, with the keys found there and their revisions."""

    def __init__(self, key_range: KeyRange, *, is_reverse: bool) -> None:
        self.range = key_range
        self.is_reverse = is_reverse
        self.is_complete = False
        self.found: list[tuple[bytes, int]] = []

    @property
    def consumed(self) -> KeyRange | None:
        """The keys about which the reader learnt something; None when it did not look."""
        if self.is_complete:
            return self.range
        if not self.found:
            return None
        last = self.found[-1][0]
        return KeyRange(last, self.range.end) if self.is_reverse else KeyRange(self.range.start, last + b"\x00")


class Reads:
    """All reads of one commit in the making, from one snapshot, which is taken at the first of them.

    `fetch` and `look_through` only look; `scan`, and whatever is added to `read_set`, are reads on which the caller's decisions
    may rest: they become guards.
    """

    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine
        self._snapshot: Snapshot | None = None
        self._is_closed = False
        self.read_set: set[bytes] = set()
        """The keys that the caller has read itself."""
        self.ranges: list[_RangeRead] = []
        """The ranges that the caller has read itself."""
        self.observed: dict[bytes, Entry | None] = {}
        """Every key that was read, with what was there."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """Return the reads of a state that was taken already, of an engine with revisions. Who took it closes it."""
        reads = cls(None)
        reads._snapshot = snapshot
        return reads

    @property
    def revision(self) -> int:
        """The revision that is read; takes the snapshot when there was no read yet."""
        return self._state().revision

    @property
    def epoch(self) -> str:
        """What the commit must carry whose guards are these reads; "" when there was no read, or no need."""
        return "" if self._snapshot is None else self._snapshot.epoch

    def fetch(self, raw_key: bytes) -> Entry | None:
        """Return the stored entry without adding it to the read set."""
        observed = self.observed
        if raw_key not in observed:
            observed[raw_key] = self._state().get(raw_key)
        return observed[raw_key]

    def fetch_many(self, raw_keys: Iterable[bytes]) -> None:
        """Read the stored entries, so that `fetch` has them, without adding them to the read set."""
        observed = self.observed
        missing = list(filterfalse(observed.__contains__, raw_keys))
        if missing:
            observed.update(zip(missing, self._state().get_many(missing), strict=True))

    def look_through(
        self, key_range: KeyRange, *, limit: int | None = None, keys_only: bool = False
    ) -> Iterator[Entry]:
        """Yield the stored entries without a guard."""
        return iter(()) if key_range.is_empty else self._state().scan(key_range, limit=limit, keys_only=keys_only)

    def scan(self, key_range: KeyRange, *, reverse: bool = False, keys_only: bool = False) -> Iterator[Entry]:
        """Yield the stored entries; the range is guarded as far as they are consumed."""
        read = _RangeRead(key_range, is_reverse=reverse)
        self.ranges.append(read)
        # Why: without revisions a scan of keys alone tells nothing that a guard could compare.
        keys_only = keys_only and self._has_revisions
        for entry in self._state().scan(key_range, reverse=reverse, keys_only=keys_only):
            read.found.append((entry.key, entry.mod_revision))
            yield entry
            self._state()  # Trap: the iterator of a closed snapshot must not be touched again.
        read.is_complete = True

    @property
    def _has_revisions(self) -> bool:
        return self._engine is None or self._engine.profile.claims(Capability.REVISIONS)

    def guard_empty(self, key_range: KeyRange) -> None:
        """Let the commit fail when a key is in the range. Nothing is read."""
        read = _RangeRead(key_range, is_reverse=False)
        read.is_complete = True
        self.ranges.append(read)

    @property
    def guard_size(self) -> int:
        """How large the guards are, as engines with revisions count."""
        return len(self.read_set) + sum(1 + len(read.found) for read in self.ranges)

    def guards(self) -> Iterator[Guard]:
        """Yield the guards that the caller's reads ask for."""
        for raw_key in sorted(self.read_set):
            entry = self.fetch(raw_key)
            yield KeyAbsent(raw_key) if entry is None else KeyUnchanged(raw_key, entry.mod_revision)
        for read in self.ranges:
            yield from self._range_guards(read)

    def _range_guards(self, read: _RangeRead) -> Iterator[Guard]:
        consumed = read.consumed
        if consumed is None or consumed.is_empty:
            return
        found = sorted(read.found)
        if not found:
            yield RangeEmpty(consumed)
        elif self._has_revisions:
            yield RangeUnchanged(consumed, self.revision, tuple(raw_key for raw_key, _ in found))
        else:
            # Why: without revisions "nothing changed since" is said key by key, and of each gap between them.
            start = consumed.start
            for raw_key, revision in found:
                yield from self._gap(KeyRange(start, raw_key))
                yield KeyUnchanged(raw_key, revision)
                start = raw_key + b"\x00"
            yield from self._gap(KeyRange(start, consumed.end))

    @staticmethod
    def _gap(key_range: KeyRange) -> Iterator[Guard]:
        if not key_range.is_empty:
            yield RangeEmpty(key_range)

    def close(self) -> None:
        """Give the snapshot back. What was read stays known; anything else is refused."""
        self._is_closed = True
        if self._snapshot is not None:
            self._snapshot.close()

    def _state(self) -> Snapshot:
        if self._is_closed:
            raise transaction_ended()
        if self._snapshot is None:
            assert self._engine is not None
            self._snapshot = self._engine.snapshot()
        return self._snapshot


# ---- writes -----------------------------------------------------------------------------------------------------------


class WriteSet:
    """Writes over `reads`, which see them; `commit` gives both as one commit.

    Reading here guards nothing: who decides by what was read adds it to `reads.read_set`, or scans through `reads.scan`.
    Entries that are written have the mod revision `revision_written` until they are committed.
    """

    def __init__(self, reads: Reads, *, revision_written: int) -> None:
        self.reads = reads
        self._revision_written = revision_written
        self._puts: dict[bytes, Put] = {}
        self._put_keys: list[bytes] = []
        """The keys of `_puts`, sorted."""
        self._deletes: set[bytes] = set()
        self._ranges: list[KeyRange] = []
        """Whose stored entries are removed, but for what is put there; none overlaps another."""

    @property
    def has_writes(self) -> bool:
        """True when there is something to commit."""
        return bool(self._puts or self._deletes or self._ranges)

    @property
    def has_ranges(self) -> bool:
        """True when whole ranges are removed."""
        return bool(self._ranges)

    def is_written(self, key: bytes) -> bool:
        """Tell whether the key is put or deleted, by itself or in a range."""
        return key in self._puts or self._is_removed(key)

    def _is_removed(self, key: bytes) -> bool:
        return key in self._deletes or (bool(self._ranges) and any(key in gone for gone in self._ranges))

    # ---- reading ------------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> Entry | None:
        """Return the entry as the commit leaves it."""
        put = self._puts.get(key)
        if put is None:
            return None if self._is_removed(key) else self.reads.fetch(key)
        stored, written = self.reads.fetch(key), self._revision_written
        created, version = (written, 1) if stored is None else (stored.create_revision, stored.version + 1)
        return Entry(key, put.value, created, written, version, put.lease)

    def over(self, stored: Iterable[Entry], key_range: KeyRange, *, reverse: bool = False) -> Iterator[Entry]:
        """Yield `stored`, the entries of a range, as the commit leaves them."""
        if self._deletes or self._ranges:
            stored = (entry for entry in stored if not self._is_removed(entry.key))
        own = [(key, self.get(key)) for key in self.put_keys_in(key_range)]
        return merged(iter(stored), own if reverse else own[::-1], reverse=reverse)

    def put_keys_in(self, key_range: KeyRange) -> list[bytes]:
        """Return the keys that are put, in order."""
        end = len(self._put_keys) if key_range.end is None else bisect_left(self._put_keys, key_range.end)
        return self._put_keys[bisect_left(self._put_keys, key_range.start) : end]

    def holds_any(self, key_range: KeyRange) -> bool:
        """Tell whether a key will be in the range."""
        position = bisect_left(self._put_keys, key_range.start)
        if position < len(self._put_keys) and self._put_keys[position] in key_range:
            return True
        limit = None if self._deletes or self._ranges else 1
        stored = self.reads.look_through(key_range, limit=limit, keys_only=True)
        return any(not self._is_removed(entry.key) for entry in stored)

    # ---- writing ------------------------------------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes, lease: int = NO_LEASE) -> None:
        """Write a value, on a lease."""
        self._deletes.discard(key)
        if key not in self._puts:
            insort(self._put_keys, key)
        self._puts[key] = Put(key, value, lease)

    def delete(self, key: bytes) -> None:
        """Remove a key. Removing what is not there is no write."""
        self._take_back(key)
        if self.get(key) is not None:
            self._deletes.add(key)

    def delete_unread(self, key: bytes) -> None:
        """Remove a key without a look at whether it is there."""
        self._take_back(key)
        if not self._is_removed(key):
            self._deletes.add(key)

    def delete_range(self, key_range: KeyRange) -> None:
        """Remove everything in a range, and what was put there."""
        if key_range.is_empty:
            return
        for key in self.put_keys_in(key_range):
            self._take_back(key)
        start, end = key_range.start, key_range.end
        for other in [other for other in self._ranges if _overlap(key_range, other)]:
            self._ranges.remove(other)
            start = min(start, other.start)
            end = None if end is None or other.end is None else max(end, other.end)
        joined = KeyRange(start, end)
        self._deletes = {key for key in self._deletes if key not in joined}
        self._ranges.append(joined)

    def _take_back(self, key: bytes) -> None:
        if self._puts.pop(key, None) is not None:
            del self._put_keys[bisect_left(self._put_keys, key)]

    # ---- the commit ---------------------------------------------------------------------------------------------------

    def mutations(self) -> tuple[Mutation, ...]:
        """Return the writes: no key twice."""
        deletes = map(Delete, sorted(self._deletes))
        return (*self._puts.values(), *deletes, *(DeleteRange(part) for part in self._range_parts()))

    def _range_parts(self) -> Iterator[KeyRange]:
        """Yield the removed ranges without the keys that are put in them."""
        for gone in self._ranges:
            start = gone.start
            for key in self.put_keys_in(gone):
                if start < key:
                    yield KeyRange(start, key)
                start = key + b"\x00"
            if not KeyRange(start, gone.end).is_empty:
                yield KeyRange(start, gone.end)

    @property
    def operations(self) -> int:
        """How large the commit is, as engines count."""
        ranges = sum(1 for _ in self._range_parts()) if self._ranges else 0
        return max(self.reads.guard_size, len(self._puts) + len(self._deletes) + ranges)

    def commit(self, guards: Iterable[Guard] = ()) -> Commit:
        """Return the commit, guarded by the reads and by `guards`."""
        return Commit((*self.reads.guards(), *guards), self.mutations(), self.reads.epoch)


def _overlap(one: KeyRange, other: KeyRange) -> bool:
    return (one.end is None or other.start < one.end) and (other.end is None or one.start < other.end)


def merged(stored: Iterator[Entry], own: list[tuple[bytes, Entry | None]], *, reverse: bool = False) -> Iterator[Entry]:
    """Yield stored entries with `own` in their places: written, or None where one is removed.

    `own` is in the opposite order, so that its next item is its last; it is used up.
    """
    for entry in stored:
        while own and (own[-1][0] > entry.key if reverse else own[-1][0] < entry.key):
            written = own.pop()[1]
            if written is not None:
                yield written
        if own and own[-1][0] == entry.key:
            written = own.pop()[1]
            if written is not None:
                yield written
        else:
            yield entry
    for _, written in reversed(own):
        if written is not None:
            yield written
