r"""What migrations keep in the store, below the bytes `00 km` of the system area; a root's layouts are keyplan.store's.

    00 6b 6d  73 <id>             how far it is
    00 6b 6d  63 <id> "racks"     up to which old key a table was gone through once: a hint, for going on
    00 6b 6d  6d <id> <place>     a mark: one record was carried over, and what became of it
    00 6b 6d  6f <id> <place>     an origin: of which record a new one was made, where that cannot be computed
    00 6b 6d  70 <id>             that it rests until somebody resumes it
    00 6b 6d  72 <place>          a root's turn: which migration is under way there; none when none is
    00 6b 6d  74 <place>          a table's layout: which definition its records have, and by which migrations they came to it
    00 6b 6d  68 <place> <number> a root's history: a migration that has ended there, and how

The mark is what makes the copying safe: it is written in the commit that writes the copy, so that both, or neither, are there;
and it says what both records were like then, so that later it can be told which of the two was changed since.
"""

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from keyplan.codec import U32, FixedBytes, TextTail
from keyplan.engine import Engine, Entry, KeyRange, Snapshot
from keyplan.errors import CorruptionError
from keyplan.jobs import Holder, JobRecord, Seen, look
from keyplan.layout import BoundLayout, BoundTable, Layout, Table

__all__ = [
    "STATE_FORM",
    "Copy",
    "Mark",
    "MigrationPause",
    "MigrationState",
    "Migrations",
    "PastKey",
    "PastMigration",
    "RootTurn",
    "Stage",
    "TableLayout",
    "TableStage",
    "cursor_key",
    "cursor_range",
    "decoded",
    "digest_of",
    "encoded",
    "history_key",
    "history_range",
    "layout_key",
    "mark_key",
    "mark_range",
    "marks_in",
    "migration_id",
    "migration_of",
    "next_history_key",
    "origin_key",
    "origin_range",
    "pause_key",
    "seen_state",
    "state_key",
    "states_in",
    "states_of",
    "turn_key",
]

_ID_BYTES = 6
_PLACE_BYTES = 16


class Stage(StrEnum):
    """Where a migration is, as its state tells it to people, in the words of its steps."""

    FILLING = "filling"
    """Beside programs of the old layout."""
    SWITCHING = "switching"
    """The rest is carried over and verified; no program of the old layout is to write any more."""
    SWITCHED = "switched"
    """Everything is carried over and verified: the new layout counts."""
    CONTRACTING = "contracting"
    ROLLING_BACK = "rolling back"


class TableStage(StrEnum):
    """Where the records of one table are. It stands in the migration's state, by which every commit of a run is guarded."""

    FILLING = "filling"
    """The old records count; new ones are made of them, or will be."""
    CONVERTING = "converting"
    """They are being converted where they stand: some may be new ones by now, and there is no way back."""
    SWITCHED = "switched"
    """All are carried over and compared, or converted where they stand: the new ones count."""
    CONTRACTING = "contracting"
    """The old records are being removed; there is no way back."""
    DONE = "done"
    """The new ones alone are there."""

    @property
    def is_whole(self) -> bool:
        """Whether every record was carried over."""
        return self not in {TableStage.FILLING, TableStage.CONVERTING}


class MigrationState(JobRecord, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a migration is, and the run that works by it.

    `name` is the migration's, for people. `indexes`: those that it has to build, made write-only when it began; `built` of them
    are. `tables`: the stage of each table, by the name that its plan has. `is_settled`: everything was carried over and
    verified. `is_cleaned`: nothing of the old layout is left, and the migration is over. `was_cleaned`: it was over, and
    was begun again for records that came late.
    """

    old: str
    new: str
    old_root: bytes
    new_root: bytes
    indexes: tuple[str, ...] = ()
    built: tuple[str, ...] = ()
    tables: dict[str, TableStage] = msgspec.field(default_factory=dict)
    name: str = ""
    is_settled: bool = False
    is_cleaned: bool = False
    was_cleaned: bool = False


class Copy(NamedTuple):
    """A new record as it was written: its raw key, and what it was like (`digest_of`)."""

    key: bytes
    digest: bytes


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A unit that was carried over: its raw key, what its old records were like (`digest_of`), and what was made of them.

    `is_pending`: the record could not be converted where it stands, and is as `old` says as long as nobody decided.
    """

    key: bytes
    old: bytes
    new: tuple[Copy, ...]
    is_pending: bool = False


class MigrationPause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That a migration is to rest until somebody resumes it: who said so, and when."""

    by: Holder
    paused_at: str


class RootTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The migration under way at a root. `run` is the one that began it: no two turns have the same bytes."""

    root: bytes
    migration: bytes
    run: str


class TableLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The definition that the records of a table have, and the migrations that brought them there, in order."""

    root: bytes
    table: str
    definition: str
    migrations: tuple[bytes, ...]


class PastMigration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A migration that has ended at a root: its name, its id, both layouts' fingerprints, and whether it was rolled back."""

    root: bytes
    name: str
    migration: bytes
    old: str
    new: str
    begun_at: str
    ended_at: str
    is_rolled_back: bool = False


class PastKey(NamedTuple):
    """A root's place, and the number of a migration in the order in which they ended there."""

    place: Annotated[bytes, FixedBytes(width=_PLACE_BYTES)]
    number: Annotated[int, U32()]


class MarkKey(NamedTuple):
    """A migration, and the place of a record's old key: keys themselves may be too long for a longer key."""

    migration: Annotated[bytes, FixedBytes(width=_ID_BYTES)]
    place: Annotated[bytes, FixedBytes(width=_PLACE_BYTES)]


class CursorKey(NamedTuple):
    """A table of a migration."""

    migration: Annotated[bytes, FixedBytes(width=_ID_BYTES)]
    table: Annotated[str, TextTail()]


class Migrations(Layout, root=b"\x00km"):
    """The migrations of a store's layouts."""

    states = Table(f"s{{migration:fixed(width={_ID_BYTES})}}".encode(), key=bytes, value=MigrationState)
    cursors = Table(b"c{migration}{table}", key=CursorKey, value=bytes)
    marks = Table(b"m{migration}{place}", key=MarkKey, value=Mark, form="msgpack")
    pauses = Table(f"p{{migration:fixed(width={_ID_BYTES})}}".encode(), key=bytes, value=MigrationPause)
    origins = Table(b"o{migration}{place}", key=MarkKey, value=bytes)
    turns = Table(f"r{{place:fixed(width={_PLACE_BYTES})}}".encode(), key=bytes, value=RootTurn)
    layouts = Table(f"t{{place:fixed(width={_PLACE_BYTES})}}".encode(), key=bytes, value=TableLayout)
    history = Table(b"h{place}{number}", key=PastKey, value=PastMigration)


@cache
def _table(name: str) -> BoundTable:
    return Migrations.bound().tables[name]


STATE_FORM: Final = _table("states").form


def migration_id(old: BoundLayout, new: BoundLayout, conversions: str) -> bytes:
    """Return the id of a migration: another one when either layout, a root, or a function's name or version differs."""
    text = f"{old.fingerprint}.{new.fingerprint}.{conversions}"
    return hashlib.sha256(text.encode()).digest()[:_ID_BYTES]


def pause_key(migration: bytes) -> bytes:
    """Return the raw key that says that a migration is to rest."""
    return _table("pauses").keys.encode(migration)


def state_key(migration: bytes) -> bytes:
    """Return the raw key of a migration's state."""
    return _table("states").keys.encode(migration)


def cursor_key(migration: bytes, table: str) -> bytes:
    """Return the raw key of the hint how far a table is."""
    return _table("cursors").keys.encode(CursorKey(migration, table))


def mark_key(migration: bytes, old_key: bytes) -> bytes:
    """Return the raw key of the mark of the record at an old raw key."""
    return _table("marks").keys.encode(MarkKey(migration, _place(old_key)))


def origin_key(migration: bytes, new_key: bytes) -> bytes:
    """Return the raw key that says of which unit the record at a new raw key was made: its value is the unit's raw key."""
    return _table("origins").keys.encode(MarkKey(migration, _place(new_key)))


def _place(raw_key: bytes) -> bytes:
    return hashlib.sha256(raw_key).digest()[:_PLACE_BYTES]


def turn_key(root: bytes) -> bytes:
    """Return the raw key of a root's turn. Why a digest: a root may be too long for a longer key."""
    return _table("turns").keys.encode(_place(root))


def history_range(root: bytes) -> KeyRange:
    """Return the range of all migrations that have ended at a root, the first one first."""
    return KeyRange(*_table("history").keys.range((_place(root),)))


def history_key(root: bytes, number: int) -> bytes:
    """Return the raw key of a migration that has ended at a root, by its number."""
    return _table("history").keys.encode(PastKey(_place(root), number))


def next_history_key(snapshot: Snapshot, root: bytes) -> bytes:
    """Return the raw key at which the next migration that ends at a root is written down."""
    last = next(iter(snapshot.scan(history_range(root), limit=1, reverse=True)), None)
    before: Any = None if last is None else _table("history").keys.decode(last.key)
    return history_key(root, 0 if before is None else before.number + 1)


def layout_key(root: bytes, table: str) -> bytes:
    """Return the raw key of a table's layout."""
    place = hashlib.sha256(root + b"\x00" + table.encode()).digest()[:_PLACE_BYTES]
    return _table("layouts").keys.encode(place)


def mark_range(migration: bytes) -> KeyRange:
    """Return the range of all marks of a migration."""
    return KeyRange(*_table("marks").keys.range((migration,)))


def origin_range(migration: bytes) -> KeyRange:
    """Return the range of all origins of a migration."""
    return KeyRange(*_table("origins").keys.range((migration,)))


def cursor_range(migration: bytes) -> KeyRange:
    """Return the range of all hints of a migration."""
    return KeyRange(*_table("cursors").keys.range((migration,)))


_TABLES: Final = {
    MigrationState: "states",
    Mark: "marks",
    RootTurn: "turns",
    TableLayout: "layouts",
    PastMigration: "history",
    MigrationPause: "pauses",
}


def encoded(
    record: MigrationState | Mark | RootTurn | TableLayout | PastMigration | MigrationPause,
) -> bytes:
    """Return the bytes to store."""
    return _table(_TABLES[type(record)]).form.encode(record)


def decoded(entry: Entry) -> Any:
    """Return the state, mark, turn or layout that an entry holds. Raises CorruptionError."""
    table = next(table for name in _TABLES.values() if (table := _table(name)).keys.decode(entry.key) is not None)
    try:
        return table.form.decode(entry.value)
    except CorruptionError as error:
        raise CorruptionError(**{**error.facts, "table": table.name, "raw_key": entry.key.hex()}) from error


def marks_in(entries: Iterable[Entry]) -> tuple[list[Mark], list[bytes]]:
    """Return the marks that can be read, and the raw keys of those that cannot."""
    marks: list[Mark] = []
    unreadable: list[bytes] = []
    for entry in entries:
        try:
            marks.append(decoded(entry))
        except CorruptionError:
            unreadable.append(entry.key)
    return marks, unreadable


def digest_of(*entries: Entry | None) -> bytes:
    """Return what a record is like, or several together: of their values and leases; nothing for no record."""
    if all(entry is None for entry in entries):
        return b""
    whole = hashlib.sha256()
    for entry in entries:
        # Why the length: several values are not to be read as others, and one that is empty is not none.
        value = b"" if entry is None else entry.lease.to_bytes(8, "big", signed=True) + entry.value
        whole.update(value if len(entries) == 1 else len(value).to_bytes(8, "big") + value)
    return whole.digest()[:_PLACE_BYTES]


def seen_state(snapshot: Snapshot, migration: bytes) -> Seen[MigrationState]:
    """Return the state of a migration as it was read; without a record, when it never began."""
    return look(snapshot, state_key(migration), STATE_FORM)


def migration_of(key: bytes) -> bytes:
    """Return the id of the migration whose state stands at a raw key."""
    return key[-_ID_BYTES:]


def states_of(engine: Engine) -> list[tuple[Entry, MigrationState]]:
    """Return the states of all migrations of the store, those that are over included."""
    with engine.snapshot() as snapshot:
        return states_in(snapshot)


def states_in(snapshot: Snapshot) -> list[tuple[Entry, MigrationState]]:
    """Return the states of all migrations as of a snapshot."""
    return [(entry, decoded(entry)) for entry in snapshot.scan(KeyRange(*_table("states").keys.range(())))]
