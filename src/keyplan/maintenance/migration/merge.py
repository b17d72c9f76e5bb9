"""One unit of two layouts, merged: what was changed since the last time, on which side, and the commit that follows from it.

    the mark says      the old records     the new records     then
    nothing            are there           are not             they are copied
    nothing            are there           are as they would be made   they are marked
    both as they are   -                   -                   nothing is to be done
    the old changed    are there / gone    as they were made   they are made anew / removed
    the new changed    as they were        -                   nothing: the new ones are ahead
    both changed       -                   -                   nothing is written, and a person decides

Every commit is guarded by everything that it rests on. Records that keep their key (their values alone are other ones) are
marked with what was written, so that nothing is converted twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from keyplan.engine import Commit, Delete, Entry, Guard, Mutation, Put
from keyplan.errors import InvalidKeyError, UniqueViolationError
from keyplan.jobs import Lookup, as_read
from keyplan.layout import shown_key
from keyplan.maintenance.migration.functions import UNREADABLE, Converted
from keyplan.maintenance.migration.marks import Copy, Mark, digest_of, encoded, mark_key, origin_key
from keyplan.maintenance.migration.route import Route, stored_entries, table_of
from keyplan.maintenance.migration.sides import Sides, keys_read, origin_of
from keyplan.store import IndexEntry, RecordState, Write, keys_to_observe, plan_writes

__all__ = ["CONTESTS_MAX", "TAKEN", "Contest", "Decision", "Merger", "Outcome", "Side"]


CONTESTS_MAX: Final = 100
"""How many a report names. Why: memory; what is beyond it is told when these are settled."""

TAKEN: Final = "another old record has become the one at its new key"


class Outcome(Enum):
    """What is to be done about one record."""

    UNCHANGED = "unchanged"
    COPIED = "copied"
    RENEWED = "renewed"
    REMOVED = "removed"
    MARKED = "marked"
    DROPPED = "left out"
    KEPT = "kept as the new one"
    RETURNED = "taken back"
    WITHDRAWN = "withdrawn"
    CONTESTED = "contested"


class Side(Enum):
    """Which records hold where both sides have changed: a consent of the plan says it for a whole table."""

    OLD = "old"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Contest:
    """A record that a person must decide about: both raw keys, and why."""

    old_key: bytes
    new_key: bytes | None
    reason: str

    def __str__(self) -> str:
        other = "" if self.new_key in {None, self.old_key} else f" and {shown_key(self.new_key or b'')}"
        return f"{shown_key(self.old_key)}{other}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done about a unit, as one commit; no commit when nothing is to be written.

    `records`, `entries`: how many of these it removes in the clean-up.
    """

    outcome: Outcome
    commit: Commit | None = None
    contest: Contest | None = None
    records: int = 0
    entries: int = 0


class Merger:
    """Merges the units of one route. `is_switched`: no program uses the old layout any more.

    `wins`: which side holds of a record that both have changed, and of one at whose new key another record stands; neither: a
    person decides about each.

    Before the switch a unique entry that serves both layouts is left to the old one, and records that keep their key are left.
    """

    def __init__(self, migration: bytes, route: Route, *, is_switched: bool, wins: Side | None = None) -> None:
        self._migration = migration
        self._route = route
        self._is_switched = is_switched
        self._wins = wins

    def keys_of(self, unit: bytes) -> list[bytes]:
        """The raw keys that a decision looks at first."""
        try:
            return keys_read(self._migration, self._route, unit)
        except InvalidKeyError:
            return [unit, mark_key(self._migration, unit)]

    def decide(self, unit: bytes, read: Lookup) -> Decision:
        """Say what to do about a unit, from one snapshot."""
        try:
            likely = self._route.likely_keys(unit)
        except InvalidKeyError:
            return _contested(Contest(unit, None, "the record has no key in the new layout"))
        sides = Sides.of(self._migration, self._route, unit, read)
        shown = next(iter((*likely, *sides.copies)), None)
        try:
            return self._kept(sides, read) if sides.stays else self._moved(sides, read)
        except UniqueViolationError as error:
            reason = f"another record holds its entry of {error.facts.get('index')}"
            return self._left(sides, shown, reason)
        except UNREADABLE as error:
            # Why not the facts: they may hold a part of the record.
            return self._left(sides, shown, f"the record cannot be converted: {error.summary}")

    def _left(self, sides: Sides, shown: bytes | None, reason: str) -> Decision:
        """Leave the record to a person. One that was to be converted where it stands is marked as not converted.

        Why: once the table was gone through, a record without such a mark is one of the new layout, whatever it looks like.
        """
        is_in_place = sides.stays and self._route.has_other_values and self._is_switched
        if not is_in_place:
            return _contested(Contest(sides.unit, shown, reason))
        contest = Contest(sides.unit, shown, f"{reason}; write it as the new layout has it, or delete it")
        if sides.mark is not None:
            return _contested(contest)
        mark = Mark(sides.unit, sides.old_digest, (), is_pending=True)
        commit = _commit(sides, {}, {sides.mark_key: Put(sides.mark_key, encoded(mark))})
        return Decision(Outcome.CONTESTED, commit, contest)

    # ---- records that get other keys ---------------------------------------------------------------------------------------

    def _moved(self, sides: Sides, read: Lookup) -> Decision:
        if sides.mark is None:
            return self._first(sides, read)
        for raw_key in sides.copies:
            if self._is_of_another(sides, raw_key, read):
                return _contested(Contest(sides.unit, raw_key, TAKEN))
        has_new_changed = sides.has_new_changed
        if not sides.has_old_changed:
            return self._with_entries(sides, sides.standing, read)
        if not sides.has_old:
            if not sides.standing or not has_new_changed:
                return self._removed(sides, read)
        else:
            self._fetch_all(sides.made, read)
            if not has_new_changed or sides.is_as_made(sides.made, read):
                return self._copied(sides, sides.made, read, Outcome.RENEWED)
        return self._both_changed(sides, read)

    def _both_changed(self, sides: Sides, read: Lookup) -> Decision:
        if self._wins is Side.OLD:
            if not sides.has_old:
                return self._removed(sides, read)
            return self._copied(sides, sides.made, read, Outcome.RENEWED)
        if self._wins is Side.NEW:
            return self._ahead(sides, () if sides.mark is None else sides.mark.new)
        reason = "both the old and the new record were changed"
        return _contested(Contest(sides.unit, next(iter(sides.copies), None), reason))

    def _ahead(self, sides: Sides, copies: Sequence[Copy]) -> Decision:
        """Take the old records as they are for carried over: the new ones are ahead of them. Forget those that are gone."""
        mutations: dict[bytes, Mutation] = {}
        if sides.has_old:
            mutations[sides.mark_key] = Put(sides.mark_key, encoded(Mark(sides.unit, sides.old_digest, tuple(copies))))
            mutations |= self._origins(sides, [copy.key for copy in copies])
        else:
            mutations[sides.mark_key] = Delete(sides.mark_key)
            mutations |= self._origins(sides, ())
        return Decision(Outcome.KEPT, _commit(sides, {}, mutations))

    def _first(self, sides: Sides, read: Lookup) -> Decision:
        if not sides.has_old:
            return Decision(Outcome.UNCHANGED)
        made = sides.made
        if not made:
            return self._written(sides, made, read, Outcome.DROPPED)
        self._fetch_all(made, read)
        is_there = any(read.get(one.raw_key) is not None for one in made)
        return self._copied(sides, made, read, Outcome.MARKED if is_there else Outcome.COPIED)

    def _copied(self, sides: Sides, made: Sequence[Converted], read: Lookup, outcome: Outcome) -> Decision:
        """Write what the old records have become, unless something else stands there."""
        self._fetch_all(made, read)
        if sides.mark is None and self._wins is Side.NEW and all(read.get(one.raw_key) is not None for one in made):
            return self._first_ahead(sides, made, read, outcome)
        for one in made:
            entry = read.get(one.raw_key)
            if entry is None or one.raw_key in sides.copies:
                continue
            if self._is_of_another(sides, one.raw_key, read):
                return _contested(Contest(sides.unit, one.raw_key, TAKEN))
            if self._wins is not Side.OLD and (entry.value, entry.lease) != (one.raw_value, sides.lease):
                return _contested(Contest(sides.unit, one.raw_key, "another record stands at its new key"))
        return self._written(sides, made, read, outcome)

    def _first_ahead(self, sides: Sides, made: Sequence[Converted], read: Lookup, outcome: Outcome) -> Decision:
        """Records stand at all new keys, and nothing was carried over: they are ahead, unless they are as they would be."""
        for one in made:
            if self._is_of_another(sides, one.raw_key, read):
                return _contested(Contest(sides.unit, one.raw_key, TAKEN))
        if sides.is_as_made(made, read):
            return self._written(sides, made, read, outcome)
        entries = {one.raw_key: Entry(one.raw_key, one.raw_value, 0, 0, 0, sides.lease) for one in made}
        decision = self._ahead(sides, [Copy(raw_key, digest_of(entry)) for raw_key, entry in entries.items()])
        assert decision.commit is not None
        keys = [one.raw_key for one in made]
        if self._route.keeps_origins:
            # Why: no record is written here, by which two units that both lead here would see one another.
            keys += [origin_key(self._migration, one.raw_key) for one in made]
        read.fetch(keys)
        guards = [as_read(raw_key, read.get(raw_key)) for raw_key in keys]
        commit = Commit((*decision.commit.guards, *guards), decision.commit.mutations, decision.commit.epoch)
        return Decision(decision.outcome, commit)

    @staticmethod
    def _fetch_all(made: Sequence[Converted], read: Lookup) -> None:
        """Read what stands where the new records and their entries will be."""
        read.fetch(raw_key for one in made for raw_key in (one.raw_key, *one.index_entries))

    def _is_of_another(self, sides: Sides, raw_key: bytes, read: Lookup) -> bool:
        return self._route.keeps_origins and origin_of(self._migration, raw_key, read) not in {None, sides.unit}

    # ---- records that keep their key ---------------------------------------------------------------------------------------

    def _kept(self, sides: Sides, read: Lookup) -> Decision:
        """A record that keeps its key: converted once, after the switch."""
        (record,) = sides.records
        if record is None:
            return Decision(Outcome.UNCHANGED)
        if not self._route.has_other_values:
            return self._with_entries(sides, [record], read)
        if not self._is_switched:
            return Decision(Outcome.UNCHANGED)
        if sides.mark is not None:
            now = digest_of(record)
            is_converted = any(copy.digest == now for copy in sides.mark.new)
            # Why: whoever changed it since, to what the new layout reads, has written a record of the new layout.
            was_changed = now != sides.mark.old if sides.mark.is_pending else not is_converted
            if is_converted or (was_changed and self._reads(record)):
                return self._with_entries(sides, [record], read)
        try:
            made = sides.made
        except UNREADABLE:
            if self._reads(record):
                return self._with_entries(sides, [record], read)
            raise
        return self._written(sides, made, read, Outcome.RENEWED)

    def _reads(self, entry: Entry) -> bool:
        try:
            table_of(self._route.targets, entry.key).form.decode(entry.value)
        except UNREADABLE:
            return False
        return True

    # ---- commits -----------------------------------------------------------------------------------------------------------

    def _written(self, sides: Sides, made: Sequence[Converted], read: Lookup, outcome: Outcome) -> Decision:
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
        return Decision(outcome, _commit(sides, guards, mutations))

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

    def _removed(self, sides: Sides, read: Lookup) -> Decision:
        """The old records went after they were carried over, and nobody changed what was made of them."""
        guards, mutations = self._plan(sides, (), sides.standing, 0, read)
        mutations[sides.mark_key] = Delete(sides.mark_key)
        mutations |= self._origins(sides, ())
        return Decision(Outcome.REMOVED, _commit(sides, guards, mutations))

    def _with_entries(self, sides: Sides, standing: Sequence[Entry], read: Lookup) -> Decision:
        """The records are as they should be: give them the entries that they lack."""
        stored = [(entry, self._stored_entries(entry)) for entry in standing]
        read.fetch(raw_key for _, index_entries in stored for raw_key in index_entries)
        lacking = [made for entry, own in stored if (made := self._lacking(sides, entry, own, read)) is not None]
        if not lacking:
            return Decision(Outcome.UNCHANGED)
        leases = {entry.key: entry.lease for entry in standing}
        guards: dict[bytes, Guard] = {}
        mutations: dict[bytes, Mutation] = {}
        for made in lacking:
            own_guards, own = self._plan(sides, [made], (), leases[made.raw_key], read)
            own.pop(made.raw_key, None)  # Why: the record itself stays, with its history.
            guards |= own_guards
            mutations |= own
        return Decision(Outcome.RENEWED, _commit(sides, guards, mutations))

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
        plan = plan_writes(writes, _observed(writes, read))
        guards |= plan.guards
        mutations = dict(plan.mutations)
        records = {write.raw_key for write in writes}
        for raw_key in mutations:
            # Why: another copy may take over an entry that this one gives up.
            if raw_key not in records:
                guards.setdefault(raw_key, as_read(raw_key, read.get(raw_key)))
        for raw_key, index_entry in taken.items():
            guards[raw_key] = as_read(raw_key, read.get(raw_key))
            mutations[raw_key] = Put(raw_key, index_entry.raw_value, lease)
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


def _observed(writes: Sequence[Write], read: Lookup) -> dict[bytes, Entry | None]:
    keys = [raw_key for write in writes for raw_key in keys_to_observe(write)]
    read.fetch(keys)
    return {raw_key: read.get(raw_key) for raw_key in keys}


def _commit(sides: Sides, guards: Mapping[bytes, Guard], mutations: Mapping[bytes, Mutation]) -> Commit:
    return Commit(tuple({**sides.guards, **guards}.values()), tuple(mutations.values()), sides.epoch)


def _contested(contest: Contest) -> Decision:
    return Decision(Outcome.CONTESTED, None, contest)
