"""What a transaction has read, at one snapshot, and the guards that make its reads premises of its commit."""

from collections.abc import Iterable, Iterator
from itertools import filterfalse

from keyplan.engine import (
    Capability,
    Engine,
    Entry,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    RangeEmpty,
    RangeUnchanged,
    Snapshot,
)
from keyplan.errors import InvalidInputError

__all__ = ["Reads", "transaction_ended"]


def transaction_ended() -> InvalidInputError:
    """Return the error of everything that is asked of a transaction after its end."""
    return InvalidInputError(source="transaction", problem="the transaction has ended: begin another one")


class _RangeRead:
    """One scan: the part of its range that was consumed, with the keys found there and their revisions."""

    def __init__(self, key_range: KeyRange, *, is_reverse: bool) -> None:
        self.range = key_range
        self.is_reverse = is_reverse
        self.is_complete = False
        self.found: list[tuple[bytes, int]] = []

    @property
    def consumed(self) -> KeyRange | None:
        """The keys about which the transaction learnt something; None when it did not look."""
        if self.is_complete:
            return self.range
        if not self.found:
            return None
        last = self.found[-1][0]
        return KeyRange(last, self.range.end) if self.is_reverse else KeyRange(self.range.start, last + b"\x00")


class Reads:
    """All reads of one transaction, from one snapshot, which is taken at the first of them.

    `fetch` only looks; `get` and `scan` are the caller's own reads, on which its decisions may rest: they become guards.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._snapshot: Snapshot | None = None
        self._is_closed = False
        self.read_set: set[bytes] = set()
        """The keys that the caller has read itself."""
        self.ranges: list[_RangeRead] = []
        """The ranges that the caller has read itself."""
        self.observed: dict[bytes, Entry | None] = {}
        """Every key that was read, with what was there."""

    @property
    def revision(self) -> int:
        """The revision that is read; takes the snapshot when there was no read yet."""
        return self._state().revision

    @property
    def epoch(self) -> str:
        """What the commit must carry whose guards are these reads; "" when there was no read, or no need."""
        return "" if self._snapshot is None else self._snapshot.epoch

    def fetch(self, raw_key: bytes) -> Entry | None:
        """Return the stored entry without making it a premise."""
        observed = self.observed
        if raw_key not in observed:
            observed[raw_key] = self._state().get(raw_key)
        return observed[raw_key]

    def fetch_many(self, raw_keys: Iterable[bytes]) -> None:
        """Read the stored entries, so that `fetch` has them, without making them premises."""
        observed = self.observed
        missing = list(filterfalse(observed.__contains__, raw_keys))
        if missing:
            observed.update(zip(missing, self._state().get_many(missing), strict=True))

    def look_through(self, key_range: KeyRange) -> Iterator[Entry]:
        """Yield the stored entries without making them premises."""
        return iter(()) if key_range.is_empty else self._state().scan(key_range)

    def scan(self, key_range: KeyRange, *, reverse: bool, keys_only: bool) -> Iterator[Entry]:
        """Yield the stored entries; as far as they are consumed, the range becomes a premise."""
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
        return self._engine.profile.claims(Capability.REVISIONS)

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
            self._snapshot = self._engine.snapshot()
        return self._snapshot
