"""The inside of a transaction: it collects reads and writes, reads its own writes, and gives the commit that they make.

Nothing is sent here; see transaction.py. Keys and records are checked and encoded when they are written, so that what the
caller does with a record afterwards does not matter. Uncommitted writes are an `Overlay` over what is stored: by raw key,
merged into scans in key order.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Final, Self

from msgspec import structs

from keyplan.engine import NO_LEASE, Commit, Engine, Entry, Guard, KeyRange, Reads, merged, transaction_ended
from keyplan.errors import AlreadyExistsError, CorruptionError, InvalidInputError, NotFoundError, StaleRecordError
from keyplan.layout import BoundCounter, BoundIndex, BoundTable, ExpectedRevision, Versioned
from keyplan.store.access import EntryReads
from keyplan.store.decoding import check_whole, decode_record, entries_pointing_at, refused_as_damaged
from keyplan.store.plan import (
    Count,
    IndexEntry,
    RecordState,
    Write,
    given_up,
    index_entries_of,
    keys_to_observe,
    plan_counts,
    plan_writes,
    stored_state,
    unique_violation,
)

__all__ = ["Overlay", "Session"]

# ---- uncommitted writes ---------------------------------------------------------------------------------------------------


class Overlay:
    """Entries that the transaction will have written, and keys that it will have removed.

    A written entry has revisions and version 0: they are not known before the commit. Why writes are laid down, and entries
    made, when something is read: most of what a transaction writes it never looks at.
    """

    def __init__(self) -> None:
        self._written: dict[bytes, RecordState | IndexEntry] = {}
        self._leases: dict[bytes, int] = {}
        """Of written keys that hang on a lease; others may be there with NO_LEASE."""
        self._removed: set[bytes] = set()
        self._unread: list[tuple[Write | None, Write, Mapping[bytes, Entry | None]]] = []

    def copy(self) -> "Overlay":
        """Return an overlay that later writes to this one leave as it is."""
        self._lay_down()
        copied = Overlay()
        copied._written, copied._leases, copied._removed = dict(self._written), dict(self._leases), set(self._removed)
        return copied

    def __contains__(self, raw_key: bytes) -> bool:
        if self._unread:
            self._lay_down()
        return raw_key in self._written or raw_key in self._removed

    def get(self, raw_key: bytes) -> Entry | None:
        """Return the entry written at a key that is in the overlay; None when it was removed."""
        if self._unread:
            self._lay_down()
        written = self._written.get(raw_key)
        if written is None:
            return None
        return Entry(raw_key, written.raw_value, 0, 0, 0, self._leases.get(raw_key, NO_LEASE))

    def put(self, raw_key: bytes, raw_value: bytes) -> None:
        """Lay an entry without a lease over the key."""
        self._lay_down()
        self._written[raw_key] = RecordState(raw_value, NO_LEASE, {}, 0, {})

    def replace(self, earlier: Write | None, write: Write, observed: Mapping[bytes, Entry | None]) -> None:
        """Take back what the transaction's `earlier` write of the same record laid down, and lay down that of `write`."""
        self._unread.append((earlier, write, observed))

    def merged(self, stored: Iterable[Entry], key_range: KeyRange, *, reverse: bool) -> Iterator[Entry]:
        """Yield `stored` with the writes of this moment in their places. Later writes are not seen by it."""
        self._lay_down()
        own = sorted((key for key in self._written.keys() | self._removed if key in key_range), reverse=not reverse)
        if not own:
            return iter(stored)
        return merged(iter(stored), [(key, self.get(key)) for key in own], reverse=reverse)

    def _lay_down(self) -> None:
        unread, self._unread = self._unread, []
        for earlier, write, observed in unread:
            self._replace(earlier, write, observed)

    def _replace(self, earlier: Write | None, write: Write, observed: Mapping[bytes, Entry | None]) -> None:
        if earlier is not None and earlier.new is not None:
            # Invariant: while a record's write stands, no other record of the transaction has an entry of it.
            for raw_key in earlier.new.index_entries:
                self._written.pop(raw_key, None)
        new = write.new
        if write.old is not None:
            self._removed.update(given_up(write, observed.get))
        if new is None:
            self._written.pop(write.raw_key, None)
            self._removed.add(write.raw_key)
            return
        self._written[write.raw_key] = new
        self._written.update(new.index_entries)
        if new.lease != NO_LEASE or self._leases:
            self._leases.update(dict.fromkeys((write.raw_key, *new.index_entries), new.lease))


# ---- the session ----------------------------------------------------------------------------------------------------------


_WENT_BACK: Final = (
    "the store went back since the record was read, so that its revision may be another state's: read it again"
)
_OWN_WRITE: Final = "the transaction itself wrote the record"


class Session:
    """The reads and writes of one transaction. Not for use by two threads at once."""

    def __init__(self, engine: Engine) -> None:
        self.reads = Reads(engine)
        self._writes: dict[bytes, Write] = {}
        self._counts: dict[bytes, Count] = {}
        self._overlay = Overlay()
        self._is_ended = False
        self.known_epoch = ""
        """The epoch that bare revisions are of: that of an earlier try of the same call. Empty: whatever is read now."""

    # ---- reading: the Reader interface -------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        return self.reads.revision

    @property
    def epoch(self) -> str:
        return self.reads.epoch

    def get(self, raw_key: bytes) -> Entry | None:
        self._check_open()
        if raw_key in self._overlay:
            return self._overlay.get(raw_key)
        self.reads.read_set.add(raw_key)
        return self.reads.fetch(raw_key)

    def get_with_epoch(self, raw_key: bytes) -> tuple[Entry | None, str]:
        return self.get(raw_key), self.reads.epoch

    def value(self, raw_key: bytes) -> bytes | None:
        entry = self.get(raw_key)
        return None if entry is None else entry.value

    def get_many(self, raw_keys: Sequence[bytes]) -> list[Entry | None]:
        self._check_open()
        stored = [raw_key for raw_key in raw_keys if raw_key not in self._overlay]
        self.reads.read_set.update(stored)
        self.reads.fetch_many(stored)
        return [self.get(raw_key) for raw_key in raw_keys]

    def values(self, raw_keys: Sequence[bytes]) -> list[bytes | None]:
        return [None if entry is None else entry.value for entry in self.get_many(raw_keys)]

    def read_ahead(self, raw_keys: Sequence[bytes]) -> None:
        self._check_open()
        self.reads.fetch_many(list(dict.fromkeys(raw_keys)))

    def scan(self, key_range: KeyRange, *, reverse: bool, keys_only: bool) -> Iterator[Entry]:
        self._check_open()
        stored = self.reads.scan(key_range, reverse=reverse, keys_only=keys_only)
        yield from self._overlay.merged(stored, key_range, reverse=reverse)

    def pairs(self, key_range: KeyRange, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        # Why entries: their revisions become premises.
        return ((entry.key, entry.value) for entry in self.scan(key_range, reverse=reverse, keys_only=False))

    def pinned(self) -> AbstractContextManager[EntryReads]:
        return nullcontext(self)

    # ---- writing: the Writer interface; 0 stands for the revision that is not known yet ---------------------------------

    def insert(self, table: BoundTable, key: object, record: object, *, lease: int) -> int:
        raw_key, raw_value, index_entries, unique = table.encoded_record(key, record)
        new = RecordState(raw_value, lease, index_entries, 0, unique)
        write = self._write_of(table, key, raw_key, unique)
        if write.new is not None:
            raise self._already_there(write, write.new)
        self._apply(structs.replace(write, new=new, is_insert=write.old is None))
        return 0

    def put(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        lease: int,
        damaged_ok: bool = False,
    ) -> int:
        raw_key, raw_value, index_entries, unique = table.encoded_record(key, record)
        new = RecordState(raw_value, lease, index_entries, 0, unique)
        is_blind = expected_revision is None and not table.indexes
        write = self._write_of(table, key, raw_key, unique, is_blind=is_blind, damaged_ok=damaged_ok)
        if expected_revision is not None:
            write = self._expecting(write, expected_revision)
        self._apply(structs.replace(write, new=new))
        return 0

    def update(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        damaged_ok: bool = False,
    ) -> int:
        raw_key, raw_value, index_entries, unique = table.encoded_record(key, record)
        write = self._write_of(table, key, raw_key, unique, damaged_ok=damaged_ok)
        current = self._present(write)
        if expected_revision is not None:
            write = self._expecting(write, expected_revision)
        self._apply(structs.replace(write, new=RecordState(raw_value, current.lease, index_entries, 0, unique)))
        return 0

    def modify(self, table: BoundTable, key: object, change: Callable[[object], object]) -> int:
        raw_key = table.keys.encode(key)
        current = self._present(self._write_of(table, key, raw_key))
        record = change(decode_record(table, raw_key, current.raw_value))
        return self.update(table, key, record, expected_revision=None)

    def delete(
        self,
        table: BoundTable,
        key: object,
        *,
        expected_revision: ExpectedRevision | None,
        missing_ok: bool,
        damaged_ok: bool = False,
    ) -> int:
        raw_key = table.keys.encode(key)
        is_blind = expected_revision is None and missing_ok and not table.indexes
        write = self._write_of(table, key, raw_key, is_blind=is_blind, damaged_ok=damaged_ok)
        is_absent = write.new is None and (write.is_guarded or raw_key in self._writes)
        if expected_revision is not None:
            write = self._expecting(write, expected_revision)
        if is_absent and expected_revision is not None:
            self.get(raw_key)  # Why: that it is absent was expected, so it is a premise of the commit.
        elif is_absent and not missing_ok:
            self._present(write)
        elif not is_absent:
            self._apply(structs.replace(write, new=None))
        return 0

    def rename(self, table: BoundTable, key: object, new_key: object) -> int:
        raw_key, new_raw_key = table.keys.encode(key), table.keys.encode(new_key)
        leaving = self._write_of(table, key, raw_key)
        record = self._present(leaving)
        if new_raw_key == raw_key:
            return 0
        coming = self._write_of(table, new_key, new_raw_key)
        if coming.new is not None:
            raise self._already_there(coming, coming.new)
        decoded = decode_record(table, raw_key, record.raw_value) if table.indexes else None
        raw_value = record.raw_value if table.seal is None else table.seal.resealed(key, record.raw_value, new_key)
        moved = RecordState.of(raw_value, record.lease, index_entries_of(table, new_key, decoded), 0)
        with self.savepoint():
            self._apply(structs.replace(leaving, new=None))
            self._apply(structs.replace(coming, new=moved, is_insert=coming.old is None))
        return 0

    def move_counter(self, counter: BoundCounter, choose: Callable[[int], int]) -> tuple[int, int]:
        raw_key = counter.raw_key
        entry = self.get(raw_key)
        before = counter.start if entry is None else counter.decode(entry.value)
        after = choose(before)
        if after != before:
            self._counts[raw_key] = Count(counter, self.reads.fetch(raw_key), after)
            self._overlay.put(raw_key, counter.encode(after))
        return before, after

    # ---- the commit ----------------------------------------------------------------------------------------------------

    @property
    def writes(self) -> dict[bytes, Write]:
        """What was written so far, by raw primary key."""
        return self._writes

    def commit(self) -> Commit:
        """Return the guards and mutations of everything collected. Two writes of one record are one mutation."""
        records = plan_writes(self._writes.values(), self.reads.observed)
        if not (self._counts or self.reads.read_set or self.reads.ranges):
            return Commit(tuple(records.guards.values()), tuple(records.mutations.values()), self.reads.epoch)
        counters = plan_counts(self._counts.values())
        guards: dict[Guard, None] = dict.fromkeys((*records.guards.values(), *counters.guards.values()))
        guards.update(dict.fromkeys(self.reads.guards()))
        mutations = (*records.mutations.values(), *counters.mutations.values())
        return Commit(tuple(guards), mutations, self.reads.epoch)

    def end(self) -> None:
        """Refuse everything from now on and give the snapshot back."""
        # Why in this order: who is interrupted in between ends it again.
        self.reads.close()
        self._is_ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_ended:
            self.end()

    @contextmanager
    def savepoint(self) -> Generator[None, None, None]:
        """Undo the writes of the block when it fails. What it has read remains a premise."""
        writes, counts, overlay = dict(self._writes), dict(self._counts), self._overlay.copy()
        try:
            yield
        except BaseException:
            self._writes, self._counts, self._overlay = writes, counts, overlay
            raise

    # ---- pieces --------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_ended:
            raise transaction_ended()

    def _write_of(
        self,
        table: BoundTable,
        key: object,
        raw_key: bytes,
        ahead: Iterable[bytes] = (),
        *,
        is_blind: bool = False,
        damaged_ok: bool = False,
    ) -> Write:
        """Return what the transaction did to the record so far; for the first time, from the stored record unless blind.

        `ahead` are keys that are looked at next: they are read in the same call. Raises CorruptionError for a record that does
        not decode, unless `damaged_ok`.
        """
        if self._is_ended:
            raise transaction_ended()
        write = self._writes.get(raw_key)
        if write is None:
            if is_blind:
                return Write(table, key, raw_key, None, None, is_guarded=False)
            self.reads.fetch_many((raw_key, *ahead))
            stored = self._stored(table, key, self.reads.observed[raw_key], damaged_ok=damaged_ok)
            return Write(table, key, raw_key, stored, stored)
        return write

    def _stored(
        self, table: BoundTable, key: object, entry: Entry | None, *, damaged_ok: bool = False
    ) -> RecordState | None:
        if entry is None:
            return None
        raw_key = entry.key
        if not table.indexes:
            return RecordState(entry.value, entry.lease, {}, entry.mod_revision, {})
        try:
            record = decode_record(table, raw_key, entry.value)
        except CorruptionError as error:
            if not damaged_ok:
                raise refused_as_damaged(error, key) from error
            return RecordState.of(entry.value, entry.lease, self._look_through(table, raw_key), entry.mod_revision)
        return stored_state(table, key, entry, record, partial(self._look_through, table, raw_key))

    def _look_through(
        self, table: BoundTable, raw_key: bytes, indexes: Iterable[BoundIndex] | None = None
    ) -> dict[bytes, IndexEntry]:
        return entries_pointing_at(
            table, raw_key, table.indexes if indexes is None else indexes, self.reads.look_through
        )

    def _apply(self, write: Write) -> None:
        """Take a write in, after making sure that no other record holds a unique entry of it."""
        observe = keys_to_observe(write)
        if observe:
            self.reads.fetch_many(observe)
            if write.new is not None:
                for raw_key, index_entry in write.new.unique_entries.items():
                    self._require_free(index_entry, raw_key)
        earlier = self._writes.get(write.raw_key)
        self._overlay.replace(earlier, write, self.reads.observed)
        self._writes[write.raw_key] = write

    # Why: the four errors below tell something about the store; who catches one and goes on rests on it, so that what was
    # seen becomes a premise of the commit.

    def _already_there(self, write: Write, found: RecordState) -> AlreadyExistsError:
        self.get(write.raw_key)
        return AlreadyExistsError(table=write.table.name, key=write.key, revision=found.revision)

    def _present(self, write: Write) -> RecordState:
        if write.new is None:
            self.get(write.raw_key)
            raise NotFoundError(table=write.table.name, key=write.key)
        return write.new

    def _require_free(self, index_entry: IndexEntry, raw_key: bytes) -> None:
        entry = self._overlay.get(raw_key) if raw_key in self._overlay else self.reads.observed[raw_key]
        if entry is not None and entry.value != index_entry.raw_value:
            self.get(raw_key)
            raise unique_violation(index_entry.source, raw_key, entry.value)

    def _expecting(self, write: Write, expected_revision: ExpectedRevision) -> Write:
        """Return the write with the caller's expectation, which is about the state that the transaction found."""
        revision, epoch = self._seen_by_caller(write, expected_revision)
        if not write.is_guarded:
            old = self._stored(write.table, write.key, self.reads.fetch(write.raw_key))
            write = structs.replace(write, old=old, is_guarded=True)
        actual = write.old.revision if write.old is not None and write.new is not None else 0
        is_own = write.old is None and write.new is not None
        is_of_before = epoch not in ("", self.reads.epoch)
        if actual != revision or is_own or is_of_before:
            self.get(write.raw_key)
            problem = _WENT_BACK if is_of_before else _OWN_WRITE if is_own else ""
            raise StaleRecordError(
                table=write.table.name,
                key=write.key,
                expected_revision=revision,
                actual_revision=actual,
                **({"problem": problem} if problem else {}),
            )
        return structs.replace(write, expected_revision=revision)

    def _seen_by_caller(self, write: Write, expected: ExpectedRevision) -> tuple[int, str]:
        """Return the revision that the caller expects and its epoch. Raises InvalidInputError for another record's."""
        if not isinstance(expected, Versioned):
            check_whole(expected, "expected_revision")
            return expected, self.known_epoch
        # Why by raw keys: a key may be written in several ways. Records of one commit share its revision.
        if write.table.keys.encode(expected.key) != write.raw_key:
            raise InvalidInputError(
                source="expected_revision",
                problem=f"it was read at the key {expected.key!r}, not at {write.key!r}: hand in what was read at this key",
            )
        return expected.revision, expected.epoch
