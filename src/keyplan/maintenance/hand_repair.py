r"""Repairs by hand: any raw key read, written, deleted or set aside, planned first, with what else belongs to it.

A plan is one guarded commit: it is carried out only while everything that it rests on is as it was shown. Where a layout knows
the key as a record, the record's index entries are part of the plan, also when the record cannot be read.

What is set aside stands out of everybody's way, and is not lost:

    00 6b 71 <digest of the key>    what stood at one key, with the key itself, when it was set aside, and why
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from keyplan.codec import Secret
from keyplan.engine import (
    NO_LEASE,
    SYSTEM_CLOCK,
    Clock,
    Commit,
    Delete,
    Engine,
    Entry,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Put,
    Snapshot,
)
from keyplan.errors import CorruptionError, InvalidInputError, NotFoundError
from keyplan.jobs import Lookup
from keyplan.keyspace import KeySpaceRegistry, KeySpaces, OwnerKind
from keyplan.layout import BoundIndex, BoundLayout, BoundTable, IndexEntry, Kind, Layout, Only, Table
from keyplan.maintenance.backup_file import utc_text
from keyplan.maintenance.beside import guard_of_turn
from keyplan.maintenance.examine import SYSTEM_AREA
from keyplan.store import (
    RecordState,
    Write,
    entries_pointing_at,
    index_entries_of,
    keys_to_observe,
    plan_writes,
    stored_state,
)

__all__ = [
    "Quarantine",
    "Quarantined",
    "RawChange",
    "carry_out_change",
    "list_quarantined",
    "plan_delete",
    "plan_put",
    "plan_quarantine",
    "plan_release",
]


# ---- entries that are set aside --------------------------------------------------------------------------------------


_PLACE_BYTES: Final = 16


class Quarantined(msgspec.Struct, frozen=True):
    """An entry that was set aside. The lease that it hung on is not kept: it may end.

    Why a secret: of whatever record the value is, nothing here knows whether it has secrets.
    """

    raw_key: bytes
    value: Secret[bytes]
    set_aside_at: str
    reason: str = ""


class Quarantine(Layout, root=b"\x00kq"):
    """What was set aside in this store."""

    entries = Table(f"{{place:fixed(width={_PLACE_BYTES})}}".encode(), key=bytes, value=Quarantined, form="msgpack")


def _table() -> BoundTable:
    return Quarantine.bound().tables["entries"]


def _quarantined_at(raw_key: bytes) -> bytes:
    """Return the raw key at which the entry of a raw key is kept. Why a digest: the key may be too long for a longer one."""
    return _table().keys.encode(hashlib.sha256(raw_key).digest()[:_PLACE_BYTES])


def _quarantined_value(entry: Entry, reason: str, clock: Clock) -> bytes:
    """Return the bytes that keep an entry."""
    return _table().form.encode(Quarantined(entry.key, Secret(entry.value), utc_text(clock), reason))


def list_quarantined(engine: Engine) -> list[Quarantined]:
    """Return what was set aside in the store, or in the key space."""
    table = _table()
    with engine.snapshot() as snapshot:
        return [table.form.decode(entry.value) for entry in snapshot.scan(KeyRange(*table.keys.range(())))]


# ---- changes by hand -------------------------------------------------------------------------------------------------


_REGISTRY_HEADER: Final = KeySpaceRegistry.bound().tables["header"].keys.encode(Only())


@dataclass(frozen=True, slots=True)
class RawChange:
    """What would be done to a raw key, as one commit; `before` is what stands there. `notes` say what to know first."""

    raw_key: bytes
    before: Entry | None
    commit: Commit
    notes: tuple[str, ...] = ()


def plan_put(
    engine: Engine,
    raw_key: bytes,
    value: bytes,
    *,
    layout: BoundLayout | None = None,
    lease: int | None = None,
    only_absent: bool = False,
    past_fence: bool = False,
) -> RawChange:
    """Plan to write a value at a raw key, exactly these bytes; of a record, with its index entries.

    lease: None keeps the lease that the entry hangs on. only_absent: refuse to write over anything. past_fence: also where the
    key is of a registered key space, or keyplan's own.

    Raises InvalidInputError when the key is not to be written so, RecordError or UniqueViolationError when the record does not
    fit an index.
    """
    owner = _owner(engine, raw_key, past_fence=past_fence)
    with engine.snapshot() as snapshot:
        before = snapshot.get(raw_key)
        if only_absent and before is not None:
            raise InvalidInputError(
                source=repr(raw_key), problem="there is an entry at this key: overwrite it, or leave it"
            )
        own_lease = lease if lease is not None else before.lease if before is not None else NO_LEASE
        table = _table_of(layout, raw_key)
        if table is None:
            commit = _plain(before, Put(raw_key, value, own_lease), snapshot)
            notes = _notes_of_key(layout, raw_key) + _notes_of_value(layout, raw_key, value)
            return owner.change(raw_key, before, commit, notes)
        key = table.keys.decode(raw_key)
        notes = ()
        try:
            entries = index_entries_of(table, key, table.form.decode(value))
        except CorruptionError as error:
            notes = (f"{table.name} cannot read this value: {error.facts.get('problem')}; it gets no index entries",)
            entries = {}
        new = RecordState.of(value, own_lease, entries, 0)
        return owner.change(raw_key, before, _planned(table, raw_key, before, new, snapshot), notes)


def plan_delete(
    engine: Engine, raw_key: bytes, *, layout: BoundLayout | None = None, past_fence: bool = False
) -> RawChange:
    """Plan to delete a raw key; of a record, with the index entries that point at it.

    Raises NotFoundError, InvalidInputError as `plan_put`.
    """
    owner = _owner(engine, raw_key, past_fence=past_fence)
    with engine.snapshot() as snapshot:
        before = _present(snapshot, raw_key)
        return owner.change(raw_key, before, _removal(layout, before, snapshot), _notes_of_key(layout, raw_key))


def plan_quarantine(
    engine: Engine,
    raw_key: bytes,
    *,
    layout: BoundLayout | None = None,
    reason: str = "",
    past_fence: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> RawChange:
    """Plan to set an entry aside: it is kept in the system area, and its key is free. Raises as `plan_delete`.

    Raises InvalidInputError when an earlier entry of this key is set aside already: release or delete that first.
    """
    owner = _owner(engine, raw_key, past_fence=past_fence)
    place = _quarantined_at(raw_key)
    with engine.snapshot() as snapshot:
        before = _present(snapshot, raw_key)
        if snapshot.get(place) is not None:
            problem = "an earlier entry of this key is set aside already: release it, or delete it there"
            raise InvalidInputError(source=repr(raw_key), problem=problem)
        removal = _removal(layout, before, snapshot)
    kept = Put(place, _quarantined_value(before, reason, clock))
    commit = Commit((KeyAbsent(place), *removal.guards), (kept, *removal.mutations), removal.epoch)
    return owner.change(raw_key, before, commit, _notes_of_key(layout, raw_key))


def plan_release(
    engine: Engine, kept: Quarantined, *, layout: BoundLayout | None = None, past_fence: bool = False
) -> RawChange:
    """Plan to put an entry back that was set aside, where nothing stands by now. Raises as `plan_put`, NotFoundError."""
    place = _quarantined_at(kept.raw_key)
    change = plan_put(engine, kept.raw_key, kept.value.reveal(), layout=layout, only_absent=True, past_fence=past_fence)
    with engine.snapshot() as snapshot:
        entry = _present(snapshot, place)
    # Why the first snapshot's epoch: where another one began between the two, the commit is refused.
    guards = (_as_read(place, entry), *change.commit.guards)
    commit = Commit(guards, (Delete(place), *change.commit.mutations), change.commit.epoch)
    return RawChange(kept.raw_key, change.before, commit, change.notes)


def carry_out_change(engine: Engine, change: RawChange) -> int:
    """Make the change, and return its revision. Raises CommitConflictError when something is not as it was shown any more."""
    return engine.commit(change.commit)


# ---- plans -----------------------------------------------------------------------------------------------------------------


def _present(snapshot: Snapshot, raw_key: bytes) -> Entry:
    entry = snapshot.get(raw_key)
    if entry is None:
        raise NotFoundError(raw_key=raw_key.hex())
    return entry


def _table_of(layout: BoundLayout | None, raw_key: bytes) -> BoundTable | None:
    """The table of which the key is a record; None where the layout does not say, or says two things."""
    meanings = () if layout is None else layout.meanings(raw_key)
    if layout is None or len(meanings) != 1 or meanings[0].kind is not Kind.RECORD:
        return None
    return layout.table(str(meanings[0].item))


def _removal(layout: BoundLayout | None, before: Entry, snapshot: Snapshot) -> Commit:
    table = _table_of(layout, before.key)
    if table is None:
        return _plain(before, Delete(before.key), snapshot)
    return _planned(table, before.key, before, None, snapshot)


def _plain(before: Entry | None, mutation: Put | Delete, snapshot: Snapshot) -> Commit:
    return Commit((_as_read(mutation.key, before),), (mutation,), snapshot.epoch)


def _planned(
    table: BoundTable, raw_key: bytes, before: Entry | None, new: RecordState | None, snapshot: Snapshot
) -> Commit:
    """The commit that brings a record and its entries from one state to another, each entry guarded as it was read."""
    key = table.keys.decode(raw_key)
    old = None if before is None else _state_of(table, key, before, snapshot)
    write = Write(table, key, raw_key, old, new)
    read = Lookup(snapshot)
    read.fetch(keys_to_observe(write))
    plan = plan_writes([write], {place: read.get(place) for place in keys_to_observe(write)})
    guards: dict[bytes, Guard] = dict(plan.guards)
    read.fetch(plan.mutations)
    for place in plan.mutations:
        guards.setdefault(place, _as_read(place, read.get(place)))
    return Commit(tuple(guards.values()), tuple(plan.mutations.values()), snapshot.epoch)


def _state_of(table: BoundTable, key: object, entry: Entry, snapshot: Snapshot) -> RecordState:
    def pointing(indexes: Iterable[BoundIndex] | None = None) -> dict[bytes, IndexEntry]:
        return entries_pointing_at(table, entry.key, table.indexes if indexes is None else indexes, snapshot.scan)

    try:
        record = table.form.decode(entry.value)
    except CorruptionError:
        return RecordState.of(entry.value, entry.lease, pointing(), entry.mod_revision)
    return stored_state(table, key, entry, record, pointing)


def _as_read(raw_key: bytes, entry: Entry | None) -> Guard:
    return KeyAbsent(raw_key) if entry is None else KeyUnchanged(raw_key, entry.mod_revision)


# ---- what to know first ----------------------------------------------------------------------------------------------------


class _Owner(NamedTuple):
    """Whose a key is, as notes; with the guards that it is still so, and the epoch in which they hold."""

    notes: tuple[str, ...]
    guards: tuple[Guard, ...]
    epoch: str

    def change(self, raw_key: bytes, before: Entry | None, commit: Commit, notes: tuple[str, ...]) -> RawChange:
        """Return the change with what is known of the owner."""
        # Why the first epoch: where another one began since, the commit is refused.
        guarded = Commit((*self.guards, *commit.guards), commit.mutations, self.epoch)
        return RawChange(raw_key, before, guarded, self.notes + notes)


def _owner(engine: Engine, raw_key: bytes, *, past_fence: bool) -> _Owner:
    """Look whose the key is. Raises InvalidInputError where it is somebody's, unless `past_fence`."""
    with engine.snapshot() as snapshot:
        # Why before the look: what is registered behind it is seen by the guard. Past a fence whose it is decides nothing.
        guards = () if past_fence else (guard_of_turn(snapshot),)
        epoch = snapshot.epoch
    owner = KeySpaces(engine).owner_of(raw_key) if engine.value(_REGISTRY_HEADER) is not None else None
    if owner is not None and owner.kind is OwnerKind.KEYSPACE and owner.keyspace is not None:
        whose = f"the key is of the key space {owner.keyspace.name}, whose fence this write would pass by"
        remedy = f"name it, --keyspace {owner.keyspace.name}, or say --past-fence"
    elif raw_key.startswith(SYSTEM_AREA) or (owner is not None and owner.kind is OwnerKind.SYSTEM):
        whose, remedy = "the key is keyplan's own", "say --past-fence"
    else:
        return _Owner((), guards, epoch)
    if not past_fence:
        raise InvalidInputError(source=repr(raw_key), problem=f"{whose}: {remedy}")
    return _Owner((whose,), guards, epoch)


def _notes_of_key(layout: BoundLayout | None, raw_key: bytes) -> tuple[str, ...]:
    if layout is None:
        return ("no layout is named: what else belongs to the key is not known",)
    meanings = layout.meanings(raw_key)
    if len(meanings) > 1:
        return ("two templates spell this key: its index entries are left, and `keyplan check` finds them",)
    if meanings and meanings[0].kind is Kind.INDEX_ENTRY:
        return ("this is an index entry: `keyplan check --repair` writes the one that the record calls for",)
    return ()


def _notes_of_value(layout: BoundLayout | None, raw_key: bytes, value: bytes) -> tuple[str, ...]:
    """Say so where the value is none that the layout reads at the key. Why no refusal: exactly these bytes were asked for."""
    meanings = () if layout is None else layout.meanings(raw_key)
    if layout is None or len(meanings) != 1:
        return ()
    item = str(meanings[0].item)
    try:
        if meanings[0].kind is Kind.INDEX_ENTRY:
            layout.indexes[item].primary_key(raw_key, value)
        elif meanings[0].kind is Kind.COUNTER:
            layout.counters[item].decode(value)
    except CorruptionError as error:
        return (f"{item} cannot read this value: {error.facts.get('problem')}",)
    return ()
