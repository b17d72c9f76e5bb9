"""The heart: from what records were and shall be to one commit. Pure: no store, no clock, the same answer every time.

Insert, update, delete and rename are one function, `plan_writes`: a record appears (`old` None), is replaced, disappears (`new`
None), or disappears at one key and appears at another. A transaction's writes are planned together, so that a unique entry
may pass from one of its records to another.

The data are msgspec structs: one is made in a fraction of a named tuple's time, and every write makes several.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

import msgspec

from keyplan.engine import Commit, Delete, Entry, Guard, KeyAbsent, KeyUnchanged, Mutation, Put
from keyplan.errors import RecordError, UniqueViolationError
from keyplan.layout import BoundCounter, BoundIndex, BoundTable, IndexEntry

__all__ = [
    "Count",
    "IndexEntry",
    "Plan",
    "RecordState",
    "Write",
    "given_up",
    "index_entries_of",
    "keys_to_observe",
    "plan_counts",
    "plan_insertion",
    "plan_writes",
    "stored_state",
    "unique_violation",
]


class RecordState(msgspec.Struct, frozen=True, gc=False):
    """One state of a record as bytes: value, lease, and the index entries it should have, by raw key.

    `revision` is that of the stored entry; 0 when the state is not committed yet. `unique_entries` are those of the
    entries that no other record may have.
    """

    raw_value: bytes
    lease: int
    index_entries: Mapping[bytes, IndexEntry]
    revision: int
    unique_entries: Mapping[bytes, IndexEntry]

    @classmethod
    def of(cls, raw_value: bytes, lease: int, index_entries: Mapping[bytes, IndexEntry], revision: int) -> Self:
        """Return the state whose index entries are `index_entries`."""
        unique = {
            raw_key: index_entry for raw_key, index_entry in index_entries.items() if index_entry.source.spec.is_unique
        }
        return cls(raw_value, lease, index_entries, revision, unique)


class Write(msgspec.Struct, frozen=True, gc=False):
    """What becomes of one primary key: from `old`, as the transaction found it, to `new`; None is absence.

    `is_guarded` False: `old` was not read and does not matter (only for tables without indexes). `is_insert` and
    `expected_revision` keep what the caller assumed, so that a conflict can be told in those words.
    """

    table: BoundTable
    key: object
    raw_key: bytes
    old: RecordState | None
    new: RecordState | None
    is_guarded: bool = True
    is_insert: bool = False
    expected_revision: int | None = None


class Count(NamedTuple):
    """What becomes of one counter: the stored entry as found, and the next number it shall hand out."""

    counter: BoundCounter
    old: Entry | None
    number: int


class Plan(NamedTuple):
    """What must be true and what to write, by raw key: no key twice."""

    guards: Mapping[bytes, Guard]
    mutations: Mapping[bytes, Mutation]


def index_entries_of(table: BoundTable, key: object, record: object) -> Mapping[bytes, IndexEntry]:
    """Return the index entries that the record should have, by raw key. Raises InvalidKeyError, InvalidRecordError."""
    index_entries: dict[bytes, IndexEntry] = {}
    for index in table.indexes:
        for raw_key, raw_value in index.entries(key, record):
            index_entries[raw_key] = IndexEntry(index, raw_value)
    return index_entries


def stored_state(
    table: BoundTable,
    key: object,
    entry: Entry,
    record: object,
    look_through: Callable[[Sequence[BoundIndex]], Mapping[bytes, IndexEntry]],
) -> RecordState:
    """Return a stored record as it is, with the index entries that it can have.

    A record that does not fit an index was written by another program, and must be replaceable and removable. Of an index that
    fans out it can have entries of the items that fit; of one whose function refuses it, those that `look_through` finds.
    """
    try:
        _, _, index_entries, unique = table.encoded_record(key, record, entry.value)
    except RecordError:
        possible = _possible_entries(table, key, record, look_through)
        return RecordState.of(entry.value, entry.lease, possible, entry.mod_revision)
    return RecordState(entry.value, entry.lease, index_entries, entry.mod_revision, unique)


def _possible_entries(
    table: BoundTable,
    key: object,
    record: object,
    look_through: Callable[[Sequence[BoundIndex]], Mapping[bytes, IndexEntry]],
) -> Mapping[bytes, IndexEntry]:
    index_entries: dict[bytes, IndexEntry] = {}
    silent: list[BoundIndex] = []
    for index in table.indexes:
        try:
            entries = index.possible_entries(key, record)
        except RecordError:
            silent.append(index)
        else:
            index_entries.update((raw_key, IndexEntry(index, raw_value)) for raw_key, raw_value in entries)
    if silent:
        index_entries.update(look_through(silent))
    return index_entries


def keys_to_observe(write: Write) -> list[bytes]:
    """Return the index keys whose stored entries `plan_writes` needs to see for this write.

    These are all unique entries, old and new, because another record may hold them; and the entries that stay, because one
    that is missing is put back.
    """
    old, new = write.old, write.new
    if old is None:
        return [] if new is None else list(new.unique_entries)
    if new is None:
        return list(old.unique_entries)
    unique, before = new.unique_entries, old.index_entries
    keys = list(unique)
    for raw_key in new.index_entries:
        if raw_key in before and raw_key not in unique:
            keys.append(raw_key)  # noqa: PERF401  # Why: a list of its own would be a frame more, for every write.
    for raw_key in old.unique_entries:
        if raw_key not in new.index_entries:
            keys.append(raw_key)  # noqa: PERF401
    return keys


def plan_insertion(raw_key: bytes, new: RecordState) -> Commit | None:
    """Return the commit of one record that appears where nothing is known of the store; None when it needs `plan_writes`.

    It is what `plan_writes` gives for that write alone: nothing is compared there, and nothing taken away. A record whose own
    key is also that of an entry is left to it.
    """
    index_entries, lease = new.index_entries, new.lease
    if raw_key in index_entries:
        return None
    puts = [Put(key, index_entry.raw_value, lease) for key, index_entry in index_entries.items()]
    return Commit(
        (KeyAbsent(raw_key), *map(KeyAbsent, new.unique_entries)), (Put(raw_key, new.raw_value, lease), *puts)
    )


class _Observations:
    """The stored index entries that a plan may know, each look a premise of its commit.

    What was observed reaches the functions below through this class alone, so that none of them can rely on an entry, or on its
    absence, that another writer may change before the commit.
    """

    def __init__(self, found: Mapping[bytes, Entry | None], guards: dict[bytes, Guard]) -> None:
        self._found = found
        self._guards = guards

    def shared(self, raw_key: bytes) -> Entry | None:
        """Return what stands at the key of a unique entry, which any record may come to hold: that becomes a guard."""
        entry = self._found.get(raw_key)
        self._guards[raw_key] = KeyAbsent(raw_key) if entry is None else KeyUnchanged(raw_key, entry.mod_revision)
        return entry

    def is_whole(self, raw_key: bytes, index_entry: IndexEntry, lease: int) -> bool:
        """Tell whether an entry that its record keeps is there as it should be.

        Why the record's own guard is enough: the key holds the primary key, so that the entry is this record's alone; and
        whoever removes one that its record calls for guards the record, or makes the index unreadable until a build, which
        guards the record, has put it back.
        """
        entry = self._found.get(raw_key)
        return entry is not None and entry.value == index_entry.raw_value and entry.lease == lease


def plan_writes(writes: Iterable[Write], observed: Mapping[bytes, Entry | None]) -> Plan:
    """Return the one commit that carries out all `writes`.

    `observed` holds the stored entries at `keys_to_observe` of every write; a key that is not in it counts as absent. Guards:
    each primary key is as it was found, and so is each unique entry that a record has, gets or gives up, be it there or not. So
    a build or a repair that comes between, which writes and removes unique entries of unchanged records, is noticed.

    An entry that should stay is written only when it is missing, points elsewhere or hangs on another lease; so a rewrite of
    an unchanged record restores what was lost. Raises UniqueViolationError when a record outside the plan holds an entry.
    """
    writes = tuple(writes)
    guards: dict[bytes, Guard] = {}
    puts: dict[bytes, Put] = {}
    deletes: dict[bytes, Mutation] = {}
    observations = _Observations(observed, guards)
    for write in writes:
        raw_key, old, new = write.raw_key, write.old, write.new
        if write.is_guarded:
            guards[raw_key] = KeyAbsent(raw_key) if old is None else KeyUnchanged(raw_key, old.revision)
        if new is not None:
            puts[raw_key] = Put(raw_key, new.raw_value, new.lease)
        elif old is not None or not write.is_guarded:
            deletes[raw_key] = Delete(raw_key)
        if old is not None:
            for gone in given_up(write, observations.shared):
                deletes[gone] = Delete(gone)
    for write in writes:
        if write.new is not None and write.new.index_entries:
            _put_entries(write.new, write.old, observations, deletes, puts)
    if not deletes:
        return Plan(guards, puts)
    return Plan(guards, {**{key: delete for key, delete in deletes.items() if key not in puts}, **puts})


def given_up(write: Write, look: Callable[[bytes], Entry | None]) -> Iterator[bytes]:
    """Yield the index keys that the record gives up. An entry that points at another record is not its to remove.

    `look` gives the stored entry at the key of a unique one.
    """
    old, new = write.old, {} if write.new is None else write.new.index_entries
    if old is None:
        return
    unique = old.unique_entries
    for raw_key in old.index_entries:
        if raw_key not in new:
            if raw_key not in unique:
                yield raw_key
                continue
            entry = look(raw_key)
            if entry is not None and entry.value == unique[raw_key].raw_value:
                yield raw_key


def _put_entries(
    new: RecordState,
    old: RecordState | None,
    observations: _Observations,
    deletes: Mapping[bytes, Mutation],
    puts: dict[bytes, Put],
) -> None:
    """Add the index entries of one record that must be written."""
    unique, lease = new.unique_entries, new.lease
    stays: Mapping[bytes, IndexEntry] = {} if old is None else old.index_entries
    for raw_key, index_entry in new.index_entries.items():
        raw_value = index_entry.raw_value
        if raw_key in unique:
            entry = observations.shared(raw_key)
            if entry is not None:
                if entry.value != raw_value and raw_key not in deletes:
                    raise unique_violation(index_entry.source, raw_key, entry.value)
                if entry.value == raw_value and entry.lease == lease:
                    continue
        elif raw_key in stays and observations.is_whole(raw_key, index_entry, lease):
            continue
        if raw_key in puts and puts[raw_key].value != raw_value:
            raise unique_violation(index_entry.source, raw_key, puts[raw_key].value)
        puts[raw_key] = Put(raw_key, raw_value, lease)


def plan_counts(counts: Iterable[Count]) -> Plan:
    """Return the guards and mutations that move counters. Guarded, so that no number is handed out twice."""
    guards: dict[bytes, Guard] = {}
    mutations: dict[bytes, Mutation] = {}
    for counter, old, number in counts:
        raw_key = counter.raw_key
        guards[raw_key] = KeyAbsent(raw_key) if old is None else KeyUnchanged(raw_key, old.mod_revision)
        mutations[raw_key] = Put(raw_key, counter.encode(number))
    return Plan(guards, mutations)


def unique_violation(index: BoundIndex, raw_key: bytes, raw_value: bytes) -> UniqueViolationError:
    """Return the error that names the index, its key and the primary key that the stored entry points at."""
    return UniqueViolationError(
        index=index.name, key=index.keys.decode(raw_key), holder=index.primary_key(raw_key, raw_value)
    )
