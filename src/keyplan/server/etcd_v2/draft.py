"""A commit in the making: a snapshot, the writes collected over it, and the guards that make both one."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from keyplan.engine import (
    NO_LEASE,
    Commit,
    Delete,
    DeleteRange,
    Entry,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Put,
    RangeEmpty,
    Snapshot,
)

__all__ = ["Draft"]

_ABSENT: Final = object()


class Draft:
    """Reads see what was collected. Nothing is guarded by reading it: whoever writes says what must not have changed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._read: dict[bytes, Entry | None] = {}
        self._puts: dict[bytes, Put] = {}
        self._put_keys: list[bytes] = []
        """The keys of `_puts`, sorted."""
        self._deletes: set[bytes] = set()
        self._ranges: list[KeyRange] = []
        self._guards: dict[bytes, Guard] = {}
        self._range_guards: list[Guard] = []

    @property
    def revision(self) -> int:
        """The revision of the state that the draft is drawn over."""
        return self._snapshot.revision

    @property
    def operations(self) -> int:
        """How large the commit is, as engines count."""
        guards = len(self._guards) + len(self._range_guards)
        return max(guards, len(self._puts) + len(self._deletes) + len(self._ranges))

    @property
    def has_writes(self) -> bool:
        """True when there is something to commit."""
        return bool(self._puts or self._deletes or self._ranges)

    # ---- reading ------------------------------------------------------------------------------------------------------

    def prefetch(self, keys: Iterable[bytes]) -> None:
        """Read many keys at once, which saves an engine across a network its round trips."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._read]
        if missing:
            self._read.update(zip(missing, self._snapshot.get_many(missing), strict=True))

    def get(self, key: bytes) -> Entry | None:
        """Return the entry as it will be. One that the draft writes has the revision after the snapshot's."""
        put = self._puts.get(key)
        if put is not None:
            revision = self._snapshot.revision + 1
            return Entry(key, put.value, revision, revision, 1, put.lease)
        if key in self._deletes or any(key in gone for gone in self._ranges):
            return None
        return self._stored(key)

    def _stored(self, key: bytes) -> Entry | None:
        found = self._read.get(key, _ABSENT)
        if found is _ABSENT:
            entry = self._read[key] = self._snapshot.get(key)
            return entry
        return self._read[key]

    def holds_any(self, key_range: KeyRange) -> bool:
        """Tell whether a key will be in the range."""
        position = bisect_left(self._put_keys, key_range.start)
        if position < len(self._put_keys) and self._put_keys[position] in key_range:
            return True
        return next(self.scan(key_range, keys_only=True), None) is not None

    def scan(self, key_range: KeyRange, *, keys_only: bool = False) -> Iterator[Entry]:
        """Yield the stored entries in the range that the draft neither writes nor removes."""
        limit = 1 if keys_only and not self.has_writes else None
        for entry in self._snapshot.scan(key_range, limit=limit, keys_only=keys_only):
            if entry.key in self._puts or entry.key in self._deletes or any(entry.key in gone for gone in self._ranges):
                continue
            yield entry

    # ---- writing ------------------------------------------------------------------------------------------------------

    def guard(self, key: bytes) -> None:
        """Let the commit fail when the entry at `key` is not as in the snapshot any more."""
        stored = self._stored(key)
        self._guards[key] = KeyAbsent(key) if stored is None else KeyUnchanged(key, stored.mod_revision)

    def guard_empty(self, key_range: KeyRange) -> None:
        """Let the commit fail when a key is in the range."""
        self._range_guards.append(RangeEmpty(key_range))

    def put(self, key: bytes, value: bytes, lease: int = NO_LEASE) -> None:
        """Write a value, on a lease."""
        self._deletes.discard(key)
        if key not in self._puts:
            insort(self._put_keys, key)
        self._puts[key] = Put(key, value, lease)

    def delete(self, key: bytes) -> None:
        """Remove a key; removing what is not there is no write."""
        self._take_back(key)
        if self.get(key) is not None:
            self._deletes.add(key)

    def remove(self, key: bytes) -> None:
        """Remove a key that was not looked at, if it is there."""
        self._take_back(key)
        self._deletes.add(key)

    def delete_range(self, key_range: KeyRange) -> None:
        """Remove everything in a range, and what the draft itself wrote there."""
        for key in [key for key in self._puts if key in key_range]:
            self._take_back(key)
        self._deletes = {key for key in self._deletes if key not in key_range}
        self._ranges.append(key_range)

    def _take_back(self, key: bytes) -> None:
        if self._puts.pop(key, None) is not None:
            self._put_keys.remove(key)

    def is_written(self, keys: Collection[bytes]) -> bool:
        """Tell whether the draft writes one of these keys."""
        return any(key in self._puts or key in self._deletes for key in keys)

    @property
    def has_ranges(self) -> bool:
        """True when whole ranges are removed: nothing more may be written in them by this commit."""
        return bool(self._ranges)

    def commit(self) -> Commit:
        """Return the commit."""
        return Commit(
            (*self._guards.values(), *self._range_guards),
            (
                *self._puts.values(),
                *(Delete(key) for key in sorted(self._deletes)),
                *(DeleteRange(key_range) for key_range in self._ranges),
            ),
            self._snapshot.epoch,
        )
