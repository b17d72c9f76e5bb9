"""One record of two layouts, merged: what was changed since the last time, on which side, and the commit that follows from it.

    the mark says      the old record      the new record      then
    nothing            is there            is not              it is copied
    nothing            is there            is what the copy would be   it is marked
    both as they are   -                   -                   nothing is to be done
    the old changed    is there / is gone  as it was copied    the copy is renewed / removed
    the new changed    as it was           -                   nothing: the new one is ahead
    both changed       -                   -                   nothing is written, and a person decides

Every commit is guarded by everything that it rests on. Records that keep their key (their values alone are other ones) are
marked with what was written, so that nothing is converted twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from keyplan.engine import Commit, Delete, Entry, Guard, Mutation, Put
from keyplan.errors import InvalidKeyError, UniqueViolationError
from keyplan.jobs import Lookup, as_read
from keyplan.layout import shown_key
from keyplan.maintenance.migration.marks import PENDING, Mark, decoded, digest_of, encoded, mark_key
from keyplan.maintenance.migration.transform import UNREADABLE, Converted, Converter
from keyplan.store import IndexEntry, RecordState, Write, keys_to_observe, plan_writes

__all__ = ["Contest", "Decision", "Merger", "Outcome", "keys_read"]


class Outcome(Enum):
    """What is to be done about one record."""

    UNCHANGED = "unchanged"
    COPIED = "copied"
    RENEWED = "renewed"
    REMOVED = "removed"
    MARKED = "marked"
    CONTESTED = "contested"


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
    """What is to be done about a record, as one commit; no commit when nothing is to be written."""

    outcome: Outcome
    commit: Commit | None = None
    contest: Contest | None = None


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both records as they are, and the mark that says what they were."""

    old_key: bytes
    old: Entry | None
    new_key: bytes
    new: Entry | None
    mark_key: bytes
    mark: Entry | None
    epoch: str

    @property
    def guards(self) -> tuple[Guard, ...]:
        old = as_read(self.old_key, self.old)
        new = (as_read(self.new_key, self.new),) if self.new_key != self.old_key else ()
        return (old, *new, as_read(self.mark_key, self.mark))


def keys_read(migration: bytes, converter: Converter, old_key: bytes) -> list[bytes]:
    """The raw keys that a decision about an old record looks at first: its own, that of its mark, and its new one."""
    keys = [old_key, mark_key(migration, old_key)]
    try:
        return [*keys, converter.new_key(old_key)[1]]
    except InvalidKeyError:
        return keys


class Merger:
    """Merges the records of one table. `is_switched`: no program uses the old layout any more.

    Before the switch a unique entry that serves both layouts is left to the old one, and records that keep their key are left.
    """

    def __init__(self, migration: bytes, converter: Converter, *, is_switched: bool) -> None:
        self._migration = migration
        self._converter = converter
        self._is_switched = is_switched

    def keys_of(self, old_key: bytes) -> list[bytes]:
        """The raw keys that a decision looks at first."""
        return keys_read(self._migration, self._converter, old_key)

    def decide(self, old_key: bytes, read: Lookup) -> Decision:
        """Say what to do about the record at an old raw key, from one snapshot."""
        try:
            new_key = self._converter.new_key(old_key)[1]
        except InvalidKeyError:
            return _contested(Contest(old_key, None, "the record has no key in the new layout"))
        place = mark_key(self._migration, old_key)
        sides = _Sides(old_key, read.get(old_key), new_key, read.get(new_key), place, read.get(place), read.epoch)
        try:
            return self._decided(sides, read)
        except UniqueViolationError as error:
            reason = f"another record holds its entry of {error.facts.get('index')}"
            return self._left(sides, reason)
        except UNREADABLE as error:
            # Why not the facts: they may hold a part of the record.
            return self._left(sides, f"the record cannot be converted: {error.summary}")

    def _left(self, sides: _Sides, reason: str) -> Decision:
        """Leave the record to a person. One that was to be converted where it stands is marked as not converted.

        Why: once the table was gone through, a record without such a mark is one of the new layout, whatever it looks like.
        """
        is_in_place = sides.new_key == sides.old_key and self._converter.has_other_values and self._is_switched
        if not is_in_place:
            return _contested(Contest(sides.old_key, sides.new_key, reason))
        contest = Contest(sides.old_key, sides.new_key, f"{reason}; write it as the new layout has it, or delete it")
        if sides.mark is not None:
            return _contested(contest)
        mark = Mark(sides.old_key, digest_of(sides.old), PENDING)
        return Decision(
            Outcome.CONTESTED, _commit(sides, {}, {sides.mark_key: Put(sides.mark_key, encoded(mark))}), contest
        )

    def _decided(self, sides: _Sides, read: Lookup) -> Decision:
        if sides.new_key == sides.old_key:
            return self._kept(sides, read)
        mark: Mark | None = None if sides.mark is None else decoded(sides.mark)
        if mark is None:
            return self._first(sides, read)
        has_old_changed = digest_of(sides.old) != mark.old
        has_new_changed = digest_of(sides.new) != mark.new
        if not has_old_changed:
            return self._with_entries(sides, read)
        if sides.old is None and (sides.new is None or not has_new_changed):
            return self._removed(sides, read)
        if sides.old is not None and (not has_new_changed or self._is_as_copied(sides)):
            return self._copied(sides, read, Outcome.RENEWED)
        return _contested(Contest(sides.old_key, sides.new_key, "both the old and the new record were changed"))

    def _first(self, sides: _Sides, read: Lookup) -> Decision:
        if sides.old is None:
            return Decision(Outcome.UNCHANGED)
        if sides.new is None or self._is_as_copied(sides):
            return self._copied(sides, read, Outcome.COPIED if sides.new is None else Outcome.MARKED)
        return _contested(Contest(sides.old_key, sides.new_key, "another record stands at its new key"))

    def _kept(self, sides: _Sides, read: Lookup) -> Decision:
        """A record that keeps its key: converted once, after the switch."""
        if sides.old is None:
            return Decision(Outcome.UNCHANGED)
        if not self._converter.has_other_values:
            return self._with_entries(sides, read)
        if not self._is_switched:
            return Decision(Outcome.UNCHANGED)
        if sides.mark is not None:
            mark: Mark = decoded(sides.mark)
            now = digest_of(sides.old)
            # Why: whoever changed it since, to what the new layout reads, has written a record of the new layout.
            was_changed = now != (mark.old if mark.new == PENDING else mark.new)
            if now == mark.new or (was_changed and self._reads(sides.old)):
                return self._with_entries(sides, read)
        try:
            made = self._converter.converted(sides.old)
        except UNREADABLE:
            if self._reads(sides.old):
                return self._with_entries(sides, read)
            raise
        return self._written(sides, made, sides.old.lease, read, Outcome.RENEWED)

    def _copied(self, sides: _Sides, read: Lookup, outcome: Outcome) -> Decision:
        assert sides.old is not None
        return self._written(sides, self._converter.converted(sides.old), sides.old.lease, read, outcome)

    def _is_as_copied(self, sides: _Sides) -> bool:
        assert sides.old is not None
        if sides.new is None:
            return False
        made = self._converter.converted(sides.old)
        return (sides.new.value, sides.new.lease) == (made.raw_value, sides.old.lease)

    def _reads(self, entry: Entry) -> bool:
        try:
            self._converter.new.form.decode(entry.value)
        except UNREADABLE:
            return False
        return True

    # ---- commits -----------------------------------------------------------------------------------------------------------

    def _written(self, sides: _Sides, made: Converted, lease: int, read: Lookup, outcome: Outcome) -> Decision:
        """Write the record, its entries and its mark."""
        guards, mutations = self._plan(sides, made, lease, read)
        new = Entry(made.raw_key, made.raw_value, 0, 0, 0, lease)
        old = new if sides.new_key == sides.old_key else sides.old
        mark = Mark(sides.old_key, digest_of(old), digest_of(new))
        mutations[sides.mark_key] = Put(sides.mark_key, encoded(mark))
        return Decision(outcome, _commit(sides, guards, mutations))

    def _removed(self, sides: _Sides, read: Lookup) -> Decision:
        """The old record went after it was copied, and nobody changed the copy."""
        mutations: dict[bytes, Mutation] = {sides.mark_key: Delete(sides.mark_key)}
        guards: dict[bytes, Guard] = {}
        if sides.new is not None:
            key = self._converter.new.keys.decode(sides.new_key)
            state = self._stored(sides.new)
            write = Write(self._converter.new, key, sides.new_key, state, None)
            observed = _observed(write, read)
            plan = plan_writes([write], observed)
            guards, mutations = dict(plan.guards), {**plan.mutations, **mutations}
        return Decision(Outcome.REMOVED, _commit(sides, guards, mutations))

    def _with_entries(self, sides: _Sides, read: Lookup) -> Decision:
        """The record is as it should be: give it the entries that it lacks."""
        new = sides.new
        if new is None or not self._converter.new.indexes:
            return Decision(Outcome.UNCHANGED)
        index_entries = self._converter.stored_entries(new)
        read.fetch(index_entries)
        for raw_key, index_entry in self._due(sides, index_entries, read).items():
            entry = read.get(raw_key)
            if entry is None or (entry.value, entry.lease) != (index_entry.raw_value, new.lease):
                break
        else:
            return Decision(Outcome.UNCHANGED)
        key = self._converter.new.keys.decode(sides.new_key)
        made = Converted(key, sides.new_key, new.value, index_entries)
        guards, mutations = self._plan(sides, made, new.lease, read)
        mutations.pop(sides.new_key, None)  # Why: the record itself stays, with its history.
        return Decision(Outcome.RENEWED, _commit(sides, guards, mutations))

    def _plan(
        self, sides: _Sides, made: Converted, lease: int, read: Lookup
    ) -> tuple[dict[bytes, Guard], dict[bytes, Mutation]]:
        """Guards and mutations that write the record with its entries, by raw key."""
        read.fetch(made.index_entries)
        due = self._due(sides, made.index_entries, read)
        before = self._before(sides)
        stale, stale_guards = self._of_stale_copies(due, read)
        taken = {**self._of_old_self(sides, due, read), **stale}
        rest = {raw_key: index_entry for raw_key, index_entry in due.items() if raw_key not in taken}
        new = RecordState.of(made.raw_value, lease, rest, 0)
        write = Write(self._converter.new, made.key, made.raw_key, before, new)
        plan = plan_writes([write], _observed(write, read))
        guards, mutations = {**stale_guards, **plan.guards}, dict(plan.mutations)
        for raw_key in mutations:
            # Why: another copy may take over an entry that this one gives up.
            if raw_key != made.raw_key:
                guards.setdefault(raw_key, as_read(raw_key, read.get(raw_key)))
        for raw_key, index_entry in taken.items():
            guards[raw_key] = as_read(raw_key, read.get(raw_key))
            mutations[raw_key] = Put(raw_key, index_entry.raw_value, lease)
        return guards, mutations

    def _before(self, sides: _Sides) -> RecordState | None:
        """The record that is written over, with the entries that go when the new one does not have them."""
        if sides.new is None:
            return None
        if sides.new_key != sides.old_key:
            return self._stored(sides.new)
        # Why only those: entries of the other old indexes are removed by the clean-up.
        both = {
            raw_key: index_entry
            for raw_key, index_entry in self._converter.old_entries(sides.new).items()
            if index_entry.source.name in self._converter.kept_indexes
        }
        return RecordState.of(sides.new.value, sides.new.lease, both, sides.new.mod_revision)

    def _stored(self, entry: Entry) -> RecordState:
        return RecordState.of(entry.value, entry.lease, self._converter.stored_entries(entry), entry.mod_revision)

    def _due(self, sides: _Sides, index_entries: Mapping[bytes, IndexEntry], read: Lookup) -> dict[bytes, IndexEntry]:
        """The entries to write now: before the switch without those that the old record holds under the same key."""
        held = {} if self._is_switched else self._of_old_self(sides, index_entries, read)
        return {raw_key: index_entry for raw_key, index_entry in index_entries.items() if raw_key not in held}

    def _of_old_self(
        self, sides: _Sides, index_entries: Mapping[bytes, IndexEntry], read: Lookup
    ) -> dict[bytes, IndexEntry]:
        """The unique entries that name the record by its old key."""
        if sides.old is None or sides.old_key == sides.new_key:
            return {}
        own = self._converter.old_entries(sides.old)
        held = {}
        for raw_key, index_entry in index_entries.items():
            old = own.get(raw_key)
            entry = read.get(raw_key)
            if old is not None and entry is not None and entry.value == old.raw_value != index_entry.raw_value:
                held[raw_key] = index_entry
        return held

    def _of_stale_copies(
        self, index_entries: Mapping[bytes, IndexEntry], read: Lookup
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
            key = index_entry.source.primary_of(raw_key, entry.value)
            if key is None:
                continue
            try:
                old_key, new_key = self._converter.old_key(key), self._converter.new.keys.encode(key)
                place = mark_key(self._migration, old_key)
                old, new, mark = read.get(old_key), read.get(new_key), read.get(place)
                is_copy = (
                    mark is not None and digest_of(new) == decoded(mark).new and digest_of(old) != decoded(mark).old
                )
                if is_copy and (old is None or raw_key not in self._converter.converted(old).index_entries):
                    taken[raw_key] = index_entry
                    guards |= {old_key: as_read(old_key, old), new_key: as_read(new_key, new)}
                    guards[place] = as_read(place, mark)
            except UNREADABLE:
                continue
        return taken, guards


def _observed(write: Write, read: Lookup) -> dict[bytes, Entry | None]:
    keys = keys_to_observe(write)
    read.fetch(keys)
    return {raw_key: read.get(raw_key) for raw_key in keys}


def _commit(sides: _Sides, guards: Mapping[bytes, Guard], mutations: Mapping[bytes, Mutation]) -> Commit:
    return Commit(tuple(dict.fromkeys((*sides.guards, *guards.values()))), tuple(mutations.values()), sides.epoch)


def _contested(contest: Contest) -> Decision:
    return Decision(Outcome.CONTESTED, None, contest)
