"""What one etcd transaction does to the store, as reads that see its own writes, and as guards and mutations at the end."""

from typing import Final

from keyplan.engine import (
    Commit,
    Entry,
    KeyRange,
    RangeUnchanged,
    Reads,
    Snapshot,
    WriteSet,
)
from keyplan.grpc_status import GrpcStatus
from keyplan.server.etcd_member import RESERVED, is_reserved
from keyplan.server.etcd_v3.admission import duplicate_key
from keyplan.server.etcd_v3.failures import PERMISSION_DENIED, CallFailure, too_much_read
from keyplan.server.etcd_v3.messages import NEW_REVISION
from keyplan.server.reading import ReadAllowance

__all__ = ["Changes", "beside_reserved"]

_RESERVED_RANGE: Final = KeyRange.of_prefix(RESERVED)
_FIRST_KEY: Final = _RESERVED_RANGE.end or b""


def beside_reserved(key_range: KeyRange) -> KeyRange:
    """Return a range without keyplan's own keys, if it goes beyond them: clients ask so for all that there is."""
    if key_range.start < _FIRST_KEY and (key_range.end is None or key_range.end > _FIRST_KEY):
        return KeyRange(_FIRST_KEY, key_range.end)
    return key_range


class Changes:
    """Reads and writes over one snapshot. What was read is guarded when something is written.

    Ranges that go beyond keyplan's own keys are without them. All that is read is counted, each time that it is asked for.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._allowance = ReadAllowance(too_much_read)
        self._reads = Reads.of(snapshot)
        self._writes = WriteSet(self._reads, revision_written=NEW_REVISION)
        self._deleted: list[KeyRange] = []
        self._gone: set[bytes] = set()
        """The keys that were there, and are deleted."""
        self._delete_guards: list[RangeUnchanged] = []

    @property
    def revision(self) -> int:
        """The revision that is read."""
        return self._reads.revision

    @property
    def has_writes(self) -> bool:
        """True when there is something to commit."""
        return self._writes.has_writes

    def get(self, key: bytes) -> Entry | None:
        """Return an entry, as this transaction leaves it so far. Raises CallFailure when too much was read."""
        if key not in self._gone:
            # Why also of a key that is written: who reads it back is told its version.
            self._reads.read_set.add(key)
        entry = self._writes.get(key)
        return None if entry is None else self._allowance.take(entry)

    def range(self, key_range: KeyRange) -> list[Entry]:
        """Return the entries in a range, as this transaction leaves them so far. Raises CallFailure when too much was read."""
        key_range = beside_reserved(key_range)
        self._reads.read_set.update(self._writes.put_keys_in(key_range))
        return list(self._writes.over(list(self._allowance.taken(self._reads.scan(key_range))), key_range))

    def put(self, key: bytes, value: bytes, lease: int) -> None:
        """Write a value. Raises CallFailure for a key that was written already, and for one that is keyplan's own."""
        if is_reserved(key):
            raise _reserved()
        if self._writes.is_written(key) or any(key in deleted for deleted in self._deleted):
            raise duplicate_key()
        self._writes.put(key, value, lease)

    def delete(self, key_range: KeyRange, *, shows_values: bool = True) -> list[Entry]:
        """Remove a range; return what was there, which is counted where its values are shown. Raises CallFailure as `put` does.

        Departure: etcd takes a put in one nested transaction and its deletion in a later one, and a put behind a deletion up
        to the last key; here a key is written once.
        """
        key_range = beside_reserved(key_range)
        if key_range.start < _FIRST_KEY and (key_range.end is None or key_range.end > RESERVED):
            raise _reserved()
        if self._writes.put_keys_in(key_range):
            raise duplicate_key()
        found = self._reads.look_through(key_range, keys_only=not shows_values)
        stored = list(self._allowance.taken(found) if shows_values else found)
        self._delete_guards.append(RangeUnchanged(key_range, self.revision, tuple(entry.key for entry in stored)))
        gone = [entry for entry in stored if entry.key not in self._gone]
        if len(gone) == 1:
            self._writes.delete_unread(gone[0].key)
        elif gone:
            self._writes.delete_range(key_range)
        self._deleted.append(key_range)
        self._gone.update(entry.key for entry in gone)
        return gone

    def commit(self, *, guards_max: int | None) -> Commit:
        """Return the commit. Raises CallFailure when what was compared and read does not fit an engine's limit as guards.

        A range that is only deleted is guarded where there is room: etcd takes a delete of any range, and what came into it
        meanwhile is deleted with it.
        """
        size = self._reads.guard_size
        if guards_max is not None and self._reads.ranges and size > guards_max:
            problem = (
                f"keyplan: the transaction compares or reads {size} keys and ranges, and the store guards {guards_max}"
            )
            raise CallFailure(GrpcStatus.INVALID_ARGUMENT, f"{problem}; compare fewer keys")
        guards: list[RangeUnchanged] = []
        for guard in self._delete_guards:
            grown = size + len(guard.keys) + 1
            if guards_max is None or grown <= guards_max:
                guards.append(guard)
                size = grown
        return self._writes.commit(guards)


def _reserved() -> CallFailure:
    return CallFailure(GrpcStatus.PERMISSION_DENIED, PERMISSION_DENIED)
