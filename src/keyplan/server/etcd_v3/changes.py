"""What one etcd transaction does to the store, as reads that see its own writes, and as guards and mutations at the end."""

from typing import Final

from keyplan.engine import (
    Commit,
    Delete,
    DeleteRange,
    Entry,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeUnchanged,
    Snapshot,
)
from keyplan.grpc_status import GrpcStatus
from keyplan.server.etcd_member import RESERVED, is_reserved
from keyplan.server.etcd_v3.failures import CallFailure
from keyplan.server.etcd_v3.fields import NEW_REVISION

__all__ = ["Changes"]

_RESERVED_RANGE: Final = KeyRange.of_prefix(RESERVED)


class Changes:
    """Reads and writes over one snapshot. Everything that was read is guarded when something is written."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._written: dict[bytes, Entry | None] = {}
        self._puts: dict[bytes, Put] = {}
        self._ranges: list[KeyRange] = []
        self._deletes: set[bytes] = set()
        self._guards: dict[bytes, Guard] = {}
        self._read_guards: list[RangeUnchanged] = []
        self._delete_guards: list[RangeUnchanged] = []
        self._replaced: dict[bytes, Guard] = {}

    @property
    def revision(self) -> int:
        """The revision that is read."""
        return self._snapshot.revision

    @property
    def has_writes(self) -> bool:
        """True when there is something to commit."""
        return bool(self._puts or self._ranges or self._deletes)

    def get(self, key: bytes) -> Entry | None:
        """Return an entry, as this transaction leaves it so far."""
        if key in self._written:
            self._guard_replaced(key)
            return self._written[key]
        entry = self._snapshot.get(key)
        self._guards[key] = _guard_of(key, entry)
        return entry

    def _guard_replaced(self, key: bytes) -> None:
        """Guard what a written entry took the place of: who reads it back is told its version."""
        if key in self._replaced:
            self._guards[key] = self._replaced[key]

    def range(self, key_range: KeyRange) -> list[Entry]:
        """Return the entries in a range, as this transaction leaves them so far."""
        for key in self._replaced:
            if key in key_range:
                self._guard_replaced(key)
        return self._range(key_range, self._read_guards)

    def _range(self, key_range: KeyRange, guards: list[RangeUnchanged]) -> list[Entry]:
        stored = list(self._snapshot.scan(key_range))
        keys = tuple(entry.key for entry in stored)
        guards.append(RangeUnchanged(key_range, self._snapshot.revision, keys))
        found = {entry.key: entry for entry in stored}
        for key, entry in self._written.items():
            if key in key_range:
                if entry is None:
                    found.pop(key, None)
                else:
                    found[key] = entry
        return [found[key] for key in sorted(found)]

    def put(self, key: bytes, value: bytes, lease: int) -> None:
        """Write a value. Raises CallFailure for a key that was written already, and for one that is keyplan's own."""
        if is_reserved(key):
            raise _reserved()
        if key in self._written:
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request")
        previous = self._snapshot.get(key)
        self._replaced[key] = _guard_of(key, previous)
        created = NEW_REVISION if previous is None else previous.create_revision
        version = 1 if previous is None else previous.version + 1
        self._written[key] = Entry(key, value, created, NEW_REVISION, version, lease)
        self._puts[key] = Put(key, value, lease)

    def delete(self, key_range: KeyRange) -> list[Entry]:
        """Remove a range; return what was there. Raises CallFailure as `put` does."""
        if key_range.start < (_RESERVED_RANGE.end or b"") and (key_range.end is None or key_range.end > RESERVED):
            raise _reserved()
        if any(key in key_range for key in self._puts):
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request")
        gone = self._range(key_range, self._delete_guards)
        overlaps = any(_overlap(key_range, other) for other in self._ranges)
        if overlaps or any(key in key_range for key in self._deletes):
            self._deletes.update(entry.key for entry in gone)
        elif len(gone) == 1:
            self._deletes.add(gone[0].key)
        elif gone:
            self._ranges.append(key_range)
        self._written.update((entry.key, None) for entry in gone)
        return gone

    def commit(self, *, guards_max: int | None) -> Commit:
        """Return the commit. Raises CallFailure when what was compared and read does not fit an engine's limit as guards.

        A range that is only deleted is guarded where there is room: etcd takes a delete of any range, and what came into it
        meanwhile is deleted with it.
        """
        mutations: list[Mutation] = [*self._puts.values()]
        mutations += [Delete(key) for key in sorted(self._deletes)]
        mutations += [DeleteRange(key_range) for key_range in self._ranges]
        range_guards: list[Guard] = [*self._read_guards]
        size = len(self._guards) + sum(len(guard.keys) + 1 for guard in self._read_guards)
        if guards_max is not None and self._read_guards and size > guards_max:
            problem = (
                f"keyplan: the transaction compares or reads {size} keys and ranges, and the store guards {guards_max}"
            )
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, f"{problem}; compare fewer keys")
        for guard in self._delete_guards:
            grown = size + len(guard.keys) + 1
            if guards_max is None or grown <= guards_max:
                range_guards.append(guard)
                size = grown
        return Commit((*self._guards.values(), *range_guards), tuple(mutations), self._snapshot.epoch)


def _guard_of(key: bytes, entry: Entry | None) -> Guard:
    return KeyAbsent(key) if entry is None else KeyUnchanged(key, entry.mod_revision)


def _overlap(one: KeyRange, other: KeyRange) -> bool:
    return (one.end is None or other.start < one.end) and (other.end is None or one.start < other.end)


def _reserved() -> CallFailure:
    return CallFailure(GrpcStatus.PERMISSION_DENIED, "etcdserver: permission denied")
