"""The commits by which units are carried over: records with their index entries, the mark, the origins, each whole.

Every commit is guarded by both sides of its unit, and by whatever else it writes over.
"""

from collections.abc import Iterable, Mapping, Sequence

from keyplan.engine import Commit, Delete, Entry, Guard, Mutation, Put
from keyplan.jobs import Lookup, as_read
from keyplan.maintenance.migration.drafting import guarded_commit, planned
from keyplan.maintenance.migration.functions import UNREADABLE, Converted
from keyplan.maintenance.migration.marks import Copy, Mark, digest_of, encoded, origin_key
from keyplan.maintenance.migration.route import Route, stored_entries, table_of
from keyplan.maintenance.migration.sides import Sides, origin_of
from keyplan.store import IndexEntry, RecordState, Write

__all__ = ["UnitCommits"]


class UnitCommits:
    """Makes the commits of one route's units. `is_switched`: no program uses the old layout any more."""

    def __init__(self, migration: bytes, route: Route, *, is_switched: bool) -> None:
        self._migration = migration
        self._route = route
        self._is_switched = is_switched

    def written(self, sides: Sides, made: Sequence[Converted], read: Lookup) -> Commit:
        """Write the new records with their entries, remove those that are none any more, and write the mark."""
        lease = sides.lease
        keys = {one.raw_key for one in made}
        gone = [entry for entry in sides.standing if entry.key not in keys]
        guards, mutations = self._plan(sides, made, gone, lease, read)
        new = {one.raw_key: Entry(one.raw_key, one.raw_value, 0, 0, 0, lease) for one in made}
        copies = tuple(Copy(raw_key, digest_of(entry)) for raw_key, entry in new.items())
        # Why: a record that keeps its key is the new one from now on.
        old = digest_of(*({**sides.old, **new}[raw_key] for raw_key in sides.old))
        mutations[sides.mark_key] = Put(sides.mark_key, encoded(Mark(sides.unit, old, copies)))
        mutations |= self._origins(sides, keys)
        return guarded_commit(read, {**sides.guards, **guards}, mutations)

    def removed(self, sides: Sides, read: Lookup) -> Commit:
        """The old records went after they were carried over, and nobody changed what was made of them."""
        guards, mutations = self._plan(sides, (), sides.standing, 0, read)
        mutations[sides.mark_key] = Delete(sides.mark_key)
        mutations |= self._origins(sides, ())
        return guarded_commit(read, {**sides.guards, **guards}, mutations)

    def ahead(self, sides: Sides, copies: Sequence[Copy], read: Lookup) -> Commit:
        """Take the old records as they are for carried over: the new ones are ahead of them. Forget those that are gone."""
        keys = [copy.key for copy in copies]
        read.fetch(keys)
        # Why guarded, though they are not written: what stands there is taken for what was made of this unit.
        guards = {raw_key: as_read(raw_key, read.get(raw_key)) for raw_key in keys}
        mutations: dict[bytes, Mutation] = {sides.mark_key: Delete(sides.mark_key)}
        if sides.has_old:
            mutations[sides.mark_key] = Put(sides.mark_key, encoded(Mark(sides.unit, sides.old_digest, tuple(copies))))
        mutations |= self._origins(sides, keys if sides.has_old else ())
        return guarded_commit(read, {**sides.guards, **guards}, mutations)

    def pending(self, sides: Sides, read: Lookup) -> Commit:
        """Mark a record that could not be converted where it stands."""
        mark = Mark(sides.unit, sides.old_digest, (), is_pending=True)
        return guarded_commit(read, sides.guards, {sides.mark_key: Put(sides.mark_key, encoded(mark))})

    def with_entries(self, sides: Sides, standing: Sequence[Entry], read: Lookup) -> Commit | None:
        """The records are as they should be: give them the entries that they lack; None where they lack none."""
        stored = [(entry, self._stored_entries(entry)) for entry in standing]
        read.fetch(raw_key for _, index_entries in stored for raw_key in index_entries)
        lacking = [made for entry, own in stored if (made := self._lacking(sides, entry, own, read)) is not None]
        if not lacking:
            return None
        leases = {entry.key: entry.lease for entry in standing}
        guards: dict[bytes, Guard] = {}
        mutations: dict[bytes, Mutation] = {}
        for made in lacking:
            own_guards, own = self._plan(sides, [made], (), leases[made.raw_key], read)
            own.pop(made.raw_key, None)  # Why: the record itself stays, with its history.
            guards |= own_guards
            mutations |= own
        return guarded_commit(read, {**sides.guards, **guards}, mutations)

    def _origins(self, sides: Sides, keys: Iterable[bytes]) -> dict[bytes, Mutation]:
        """What the store has to say of the new records' origins, once they are these."""
        if not self._route.keeps_origins:
            return {}
        keys = set(keys)
        origins: dict[bytes, Mutation] = {}
        for raw_key in keys ^ sides.copies.keys():
            place = origin_key(self._migration, raw_key)
            origins[place] = Put(place, sides.unit) if raw_key in keys else Delete(place)
        return origins

    # ---- records and their entries -----------------------------------------------------------------------------------------

    def _lacking(
        self, sides: Sides, entry: Entry, index_entries: Mapping[bytes, IndexEntry], read: Lookup
    ) -> Converted | None:
        """The record with all its entries, when one of these is not as it should be."""
        for raw_key, index_entry in self._due(sides, index_entries, read).items():
            found = read.get(raw_key)
            if found is None or (found.value, found.lease) != (index_entry.raw_value, entry.lease):
                table = table_of(self._route.targets, entry.key)
                return Converted(table, table.keys.decode(entry.key), entry.key, entry.value, index_entries)
        return None

    def _plan(
        self, sides: Sides, made: Sequence[Converted], gone: Sequence[Entry], lease: int, read: Lookup
    ) -> tuple[dict[bytes, Guard], dict[bytes, Mutation]]:
        """Guards and mutations that write and remove the records with their entries, by raw key."""
        read.fetch(raw_key for one in made for raw_key in one.index_entries)
        writes = [self._removal(entry) for entry in gone]
        guards: dict[bytes, Guard] = {}
        taken: dict[bytes, IndexEntry] = {}
        for one in made:
            due = self._due(sides, one.index_entries, read)
            stale, stale_guards = self._of_stale_copies(sides, due, read)
            own = {**self._of_old_self(sides, due, read), **stale}
            rest = {raw_key: index_entry for raw_key, index_entry in due.items() if raw_key not in own}
            new = RecordState.of(one.raw_value, lease, rest, 0)
            writes.append(Write(one.table, one.key, one.raw_key, self._before(sides, read.get(one.raw_key)), new))
            guards |= stale_guards
            taken |= own
        own_guards, mutations = planned(writes, read)
        guards |= own_guards
        mutations |= {raw_key: Put(raw_key, index_entry.raw_value, lease) for raw_key, index_entry in taken.items()}
        return guards, mutations

    def _removal(self, entry: Entry) -> Write:
        table = table_of(self._route.targets, entry.key)
        return Write(table, table.keys.decode(entry.key), entry.key, self._stored(entry), None)

    def _before(self, sides: Sides, entry: Entry | None) -> RecordState | None:
        """The record that is written over, with the entries that go when the new one does not have them."""
        if entry is None or entry.key not in sides.old:
            return None if entry is None else self._stored(entry)
        # Why only those: entries of the other old indexes are removed by the clean-up.
        both = {
            raw_key: index_entry
            for raw_key, index_entry in sides.old_entries.items()
            if index_entry.source.name in self._route.kept_indexes
        }
        return RecordState.of(entry.value, entry.lease, both, entry.mod_revision)

    def _stored(self, entry: Entry) -> RecordState:
        return RecordState.of(entry.value, entry.lease, self._stored_entries(entry), entry.mod_revision)

    def _stored_entries(self, entry: Entry) -> Mapping[bytes, IndexEntry]:
        return stored_entries(table_of(self._route.targets, entry.key), entry)

    # ---- unique entries that both layouts have -----------------------------------------------------------------------------

    def _due(self, sides: Sides, index_entries: Mapping[bytes, IndexEntry], read: Lookup) -> dict[bytes, IndexEntry]:
        """The entries to write now: before the switch without those that the old record holds under the same key."""
        held = {} if self._is_switched else self._of_old_self(sides, index_entries, read)
        return {raw_key: index_entry for raw_key, index_entry in index_entries.items() if raw_key not in held}

    def _of_old_self(
        self, sides: Sides, index_entries: Mapping[bytes, IndexEntry], read: Lookup
    ) -> dict[bytes, IndexEntry]:
        """The unique entries that name the record by its old key."""
        if not sides.has_old or sides.stays:
            return {}
        held = {}
        for raw_key, index_entry in index_entries.items():
            entry = read.get(raw_key)
            if entry is None or entry.value == index_entry.raw_value:
                continue
            old = sides.old_entries.get(raw_key)
            if old is not None and entry.value == old.raw_value:
                held[raw_key] = index_entry
        return held

    def _of_stale_copies(
        self, sides: Sides, index_entries: Mapping[bytes, IndexEntry], read: Lookup
    ) -> tuple[dict[bytes, IndexEntry], dict[bytes, Guard]]:
        """The unique entries that a copy holds whose old record has given them up since; and the guards that say so.

        Why: two records that exchange a unique name would wait for one another.
        """
        taken: dict[bytes, IndexEntry] = {}
        guards: dict[bytes, Guard] = {}
        for raw_key, index_entry in index_entries.items():
            entry = read.get(raw_key)
            if entry is None or not index_entry.source.spec.is_unique or entry.value == index_entry.raw_value:
                continue
            try:
                holder = self._holder(index_entry, entry, read)
                if holder is None or holder.unit == sides.unit or holder.mark is None or not holder.has_old_changed:
                    continue
                if not holder.has_new_changed and not any(raw_key in one.index_entries for one in holder.made):
                    taken[raw_key] = index_entry
                    guards |= holder.guards
            except UNREADABLE:
                continue
        return taken, guards

    def _holder(self, index_entry: IndexEntry, entry: Entry, read: Lookup) -> Sides | None:
        """The unit of whose making the record is that a unique entry names. Raises InvalidKeyError."""
        key = index_entry.source.primary_of(entry.key, entry.value)
        if key is None:
            return None
        table = index_entry.source.table
        unit = (
            origin_of(self._migration, table.keys.encode(key), read)
            if self._route.keeps_origins
            else self._route.origin_of(table, key)
        )
        return None if unit is None else Sides.of(self._migration, self._route, unit, read)
