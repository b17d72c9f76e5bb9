"""What becomes of units when a migration is rolled back: the old records are to say again what was written, the new ones go.

Programs of the new layout have written new records, perhaps; an inverse takes them back. What it does not lead back to, and
what both sides have changed, is left to a person. Only then are the new records removed, each as its mark says.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from keyplan.engine import Delete, Entry, Mutation, Put
from keyplan.errors import UniqueViolationError
from keyplan.jobs import Lookup
from keyplan.maintenance.migration.decision import Decision, Outcome, contested
from keyplan.maintenance.migration.drafting import Draft
from keyplan.maintenance.migration.functions import UNREADABLE, Converted
from keyplan.maintenance.migration.marks import Copy, Mark, digest_of, encoded, mark_key, origin_key
from keyplan.maintenance.migration.route import Route, stored_entries, table_of
from keyplan.maintenance.migration.sides import Sides, origin_of
from keyplan.store import IndexEntry, RecordState, Write

__all__ = ["Discarder", "NewRecords", "Returner", "Withdrawer"]

_LOST: Final = "a program of the new layout wrote it, and it would be lost"


class _Decider:
    def __init__(self, migration: bytes, route: Route, accepts: frozenset[str]) -> None:
        self._migration, self._route = migration, route
        self._takes_loss = f"lose:{route.item}" in accepts
        self._takes_vanished = f"gone:{route.item}" in accepts

    def keys_of(self, unit: bytes) -> list[bytes]:
        """The raw keys that a decision looks at first."""
        return [unit, mark_key(self._migration, unit)]

    def _stored(self, entry: Entry, index_entries: Mapping[bytes, IndexEntry] | None = None) -> RecordState:
        if index_entries is None:
            index_entries = stored_entries(table_of(self._route.targets, entry.key), entry)
        return RecordState.of(entry.value, entry.lease, index_entries, entry.mod_revision)

    def _removal(self, entry: Entry, kept: Mapping[bytes, IndexEntry]) -> Write:
        """A write that removes a new record with its entries, but for those that old records have just so."""
        table = table_of(self._route.targets, entry.key)
        own = {
            raw_key: one
            for raw_key, one in stored_entries(table, entry).items()
            if raw_key not in kept or kept[raw_key].raw_value != one.raw_value
        }
        return Write(table, table.keys.decode(entry.key), entry.key, self._stored(entry, own), None)

    def _old_writes(self, sides: Sides, made: Mapping[bytes, Converted], lease: int) -> list[Write]:
        """Writes that make the old records of a unit these; those that it does not have any more go."""
        writes = []
        for raw_key, table in zip(sides.old, self._route.sources, strict=True):
            before, one = sides.old[raw_key], made.get(raw_key)
            old = None if before is None else self._stored(before, stored_entries(table, before))
            new = None if one is None else RecordState.of(one.raw_value, lease, one.index_entries, 0)
            if old is not None or new is not None:
                writes.append(Write(table, table.keys.decode(raw_key), raw_key, old, new))
        return writes

    def _returned(self, sides: Sides, entry: Entry, read: Lookup) -> Decision:
        """Write the old records of which just this new one is made; or leave them, when there are none."""
        try:
            made = {one.raw_key: one for one in self._route.taken_back(entry)}
            if not made.keys() <= sides.old.keys():
                return contested(sides.unit, entry.key, "its inverse gives it another old key")
            back = [
                None if one is None else Entry(raw_key, one.raw_value, 0, 0, 0, entry.lease)
                for raw_key, one in ((raw_key, made.get(raw_key)) for raw_key in sides.old)
            ]
            again = self._route.made(back)
            if [(one.raw_key, one.raw_value) for one in again] != [(entry.key, entry.value)]:
                return contested(sides.unit, entry.key, "its inverse does not lead back to it")
            draft = Draft(read)
            old = self._old_writes(sides, made, entry.lease)
            draft.write([self._without(entry, old), *old], kept=[entry.key])
        except UniqueViolationError as error:
            return contested(sides.unit, entry.key, f"another record holds its entry of {error.facts.get('index')}")
        except UNREADABLE as error:
            return contested(sides.unit, entry.key, f"it cannot be taken back: {error.summary}")
        mark = Mark(sides.unit, digest_of(*back), (Copy(entry.key, digest_of(entry)),))
        draft.mutations[sides.mark_key] = Put(sides.mark_key, encoded(mark))
        if self._route.keeps_origins and entry.key not in sides.copies:
            place = origin_key(self._migration, entry.key)
            draft.mutations[place] = Put(place, sides.unit)
        return Decision(Outcome.RETURNED, draft.commit(sides.guards))

    def _without(self, entry: Entry, others: Sequence[Write]) -> Write:
        """A write by which a new record stays, and gives up the unique entries that others have under the same keys."""
        state = self._stored(entry)
        taken: dict[bytes, bytes] = {}
        for write in others:
            if write.new is not None:
                taken |= {raw_key: one.raw_value for raw_key, one in write.new.index_entries.items()}
        rest = {
            raw_key: one
            for raw_key, one in state.index_entries.items()
            if taken.get(raw_key, one.raw_value) == one.raw_value
        }
        table = table_of(self._route.targets, entry.key)
        return Write(table, table.keys.decode(entry.key), entry.key, state, self._stored(entry, rest))


class Returner(_Decider):
    """Decides about units that were carried over: what was written to a new record since is written to the old ones."""

    def decide(self, unit: bytes, read: Lookup) -> Decision:
        """Say what to do about a unit, from one snapshot."""
        sides = Sides.of(self._migration, self._route, unit, read)
        if sides.mark is None or not sides.has_new_changed or sides.taken is not None:
            return Decision(Outcome.UNCHANGED)
        shown = next(iter(sides.copies), None)
        if self._route.stays(unit):
            return contested(unit, shown, "it was converted where it stands: write it as the old layout has it")
        if _is_gone(sides):
            return Decision(Outcome.UNCHANGED)
        if sides.has_old_changed:
            return self._unless_lost(sides, shown, "both the old and the new record were changed")
        if not sides.standing:
            return self._deleted(sides, shown, read)
        if len(sides.standing) < len(sides.copies):
            return self._unless_lost(sides, shown, "a part of what was made of it is not there any more")
        if not self._route.has_inverse or len(sides.standing) != 1:
            return self._unless_lost(sides, shown, _LOST)
        return self._returned(sides, sides.standing[0], read)

    def _deleted(self, sides: Sides, shown: bytes | None, read: Lookup) -> Decision:
        """All that was made of a unit is gone: its old records go as well, or stay, as somebody consents to."""
        if self._takes_loss:
            return Decision(Outcome.UNCHANGED)
        if not self._takes_vanished:
            item = self._route.item
            remedy = f"--accept gone:{item} removes the old one, --accept lose:{item} keeps it"
            return contested(sides.unit, shown, f"its copy is not there any more: {remedy}")
        draft = Draft(read)
        draft.write(self._old_writes(sides, {}, 0))
        draft.mutations |= _forgotten(sides)
        return Decision(Outcome.RETURNED, draft.commit(sides.guards))

    def _unless_lost(self, sides: Sides, shown: bytes | None, reason: str) -> Decision:
        if self._takes_loss:
            return Decision(Outcome.UNCHANGED)
        return contested(sides.unit, shown, f"{reason}: --accept lose:{self._route.item} keeps the old one")


class NewRecords(_Decider):
    """Decides about new records, by their own raw keys, that programs of the new layout wrote: none was made of an old one."""

    def keys_of(self, unit: bytes) -> list[bytes]:
        """The raw keys that a decision looks at first."""
        return [unit, origin_key(self._migration, unit)]

    def decide(self, unit: bytes, read: Lookup) -> Decision:
        """Say what to do about the new record at a raw key, from one snapshot."""
        entry = read.get(unit)
        if entry is None:
            return Decision(Outcome.UNCHANGED)
        try:
            owner = self._owner(entry, read)
        except UNREADABLE as error:
            return self._unless_lost(unit, f"it cannot be taken back: {error.summary}")
        if owner is None:
            return self._unless_lost(unit, _LOST)
        sides = Sides.of(self._migration, self._route, owner, read)
        if unit in sides.copies and sides.taken is None:
            return Decision(Outcome.UNCHANGED)  # Why: it was made of an old one, and that is looked at for itself.
        if not self._route.has_inverse:
            return self._unless_lost(unit, _LOST)
        if sides.has_old or sides.mark is not None:
            return self._unless_lost(unit, "another record stands at its old key")
        return self._returned(sides, entry, read)

    def _owner(self, entry: Entry, read: Lookup) -> bytes | None:
        """The unit that a new record is of, or would be; None when nothing says it. Raises what is in UNREADABLE."""
        if not self._route.keeps_origins:
            table = table_of(self._route.targets, entry.key)
            return self._route.origin_of(table, table.keys.decode(entry.key))
        known = origin_of(self._migration, entry.key, read)
        if known is not None or not self._route.has_inverse:
            return known
        made = self._route.taken_back(entry)
        return self._route.unit_of(made[0].raw_key) if made else None

    def _unless_lost(self, unit: bytes, reason: str) -> Decision:
        if self._takes_loss:
            return Decision(Outcome.UNCHANGED)
        remedy = f"give an inverse, or --accept lose:{self._route.item} and it goes"
        return contested(unit, unit, f"{reason}: {remedy}")


class Discarder(_Decider):
    """Decides about new records that nothing was taken back of: they go where that is consented to, and else stay."""

    def keys_of(self, unit: bytes) -> list[bytes]:
        """The raw keys that a decision looks at first."""
        return [unit]

    def decide(self, unit: bytes, read: Lookup) -> Decision:
        """Say what to do about the new record at a raw key, from one snapshot."""
        entry = read.get(unit)
        if entry is None:
            return Decision(Outcome.UNCHANGED)
        if not self._takes_loss:
            return contested(unit, unit, "it was written while the migration was rolled back: give the command again")
        draft = Draft(read)
        draft.write([self._removal(entry, {})])
        return Decision(Outcome.WITHDRAWN, draft.commit({}), records=1)


class Withdrawer(_Decider):
    """Decides about units whose new records are to go: each while it is what the mark says, or its loss is consented to."""

    def decide(self, unit: bytes, read: Lookup) -> Decision:
        """Say what to do about a unit, from one snapshot."""
        sides = Sides.of(self._migration, self._route, unit, read)
        if sides.mark is None or self._route.stays(unit):
            return Decision(Outcome.UNCHANGED)
        if sides.taken is not None:
            return Decision(Outcome.UNCHANGED)
        if sides.has_new_changed and not (self._takes_loss or _is_gone(sides)):
            return contested(unit, next(iter(sides.copies), None), "it was written while it was about to be taken back")
        draft = Draft(read)
        try:
            kept = self._route.old_entries(sides.records)
            removals = [self._removal(entry, kept) for entry in sides.standing]
            draft.write([*removals, *self._as_they_are(sides)], kept=sides.old)
        except UniqueViolationError as error:
            return contested(unit, unit, f"another record holds its entry of {error.facts.get('index')}")
        except UNREADABLE as error:
            return contested(unit, unit, f"its entries cannot be put right: {error.summary}")
        draft.mutations |= _forgotten(sides)
        return Decision(Outcome.WITHDRAWN, draft.commit(sides.guards), records=len(sides.standing))

    def _as_they_are(self, sides: Sides) -> list[Write]:
        """Writes that put back the old records' entries: a unique one may name the new record by now."""
        writes = []
        for (raw_key, entry), table in zip(sides.old.items(), self._route.sources, strict=True):
            if entry is not None:
                state = self._stored(entry, stored_entries(table, entry))
                writes.append(Write(table, table.keys.decode(raw_key), raw_key, state, state))
        return writes


def _forgotten(sides: Sides) -> dict[bytes, Mutation]:
    """The end of what the store says of a unit: its mark, and the origins of what was made of it."""
    return {raw_key: Delete(raw_key) for raw_key in (sides.mark_key, *sides.origins)}


def _is_gone(sides: Sides) -> bool:
    """Whether both sides were deleted: there is nothing to take back, and nothing to remove but the mark."""
    return not sides.has_old and not sides.standing
