"""One unit of two layouts, merged: what was changed since the last time, on which side, and what follows from it.

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

from collections.abc import Sequence

from keyplan.engine import Entry
from keyplan.errors import InvalidKeyError, UniqueViolationError
from keyplan.jobs import Lookup
from keyplan.maintenance.migration.decision import TAKEN, Contest, Decision, Outcome, Side, contested
from keyplan.maintenance.migration.functions import UNREADABLE, Converted
from keyplan.maintenance.migration.marks import Copy, digest_of, mark_key, origin_key
from keyplan.maintenance.migration.route import Route, table_of
from keyplan.maintenance.migration.sides import Sides, keys_read, origin_of, several_leases
from keyplan.maintenance.migration.unit_commits import UnitCommits
from keyplan.maintenance.migration.unit_limits import Limits

__all__ = ["Merger"]


class Merger:
    """Merges the units of one route. `is_switched`: no program uses the old layout any more.

    `accepts` are the plan's consents: to a side, which holds of a record that both have changed, and of one at whose new key
    another record stands; and to joined records that hang on different leases. Without one a person decides about each.

    A commit that the engine does not take in one is made in two where the state between them is one of both layouts.

    Before the switch a unique entry that serves both layouts is left to the old one, and records that keep their key are left.
    """

    def __init__(
        self, migration: bytes, route: Route, limits: Limits, accepts: frozenset[str], *, is_switched: bool
    ) -> None:
        self._migration = migration
        self._limits = limits
        self._route = route
        self._is_switched = is_switched
        self._wins = next((side for side in Side if f"{side.value}:{route.item}" in accepts), None)
        self._takes_leases = f"lease:{route.item}" in accepts
        self._commits = UnitCommits(migration, route, is_switched=is_switched)

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
            return contested(unit, None, "the record has no key in the new layout")
        sides = Sides.of(self._migration, self._route, unit, read)
        shown = next(iter((*likely, *sides.copies)), None)
        try:
            return self._kept(sides, read) if sides.stays else self._moved(sides, read)
        except UniqueViolationError as error:
            reason = f"another record holds its entry of {error.facts.get('index')}"
            return self._left(sides, shown, reason, read)
        except UNREADABLE as error:
            # Why not the facts: they may hold a part of the record.
            return self._left(sides, shown, f"the record cannot be converted: {error.summary}", read)

    def _left(self, sides: Sides, shown: bytes | None, reason: str, read: Lookup) -> Decision:
        """Leave the record to a person. One that was to be converted where it stands is marked as not converted.

        Why: once the table was gone through, a record without such a mark is one of the new layout, whatever it looks like.
        """
        is_in_place = sides.stays and self._route.has_other_values and self._is_switched
        if not is_in_place:
            return contested(sides.unit, shown, reason)
        contest = Contest(sides.unit, shown, f"{reason}; write it as the new layout has it, or delete it")
        if sides.mark is not None:
            return Decision(Outcome.CONTESTED, None, contest)
        return Decision(Outcome.CONTESTED, self._commits.pending(sides, read), contest)

    # ---- records that get other keys ---------------------------------------------------------------------------------------

    def _moved(self, sides: Sides, read: Lookup) -> Decision:
        if sides.mark is None:
            return self._first(sides, read)
        if sides.taken is not None:
            return contested(sides.unit, sides.taken, TAKEN)
        has_new_changed = sides.has_new_changed
        if not sides.has_old_changed:
            return self._with_entries(sides, sides.standing, read)
        if not sides.has_old:
            if not sides.standing or not has_new_changed:
                return Decision(Outcome.REMOVED, self._commits.removed(sides, read))
        else:
            self._fetch_all(sides.made, read)
            if not has_new_changed or sides.is_as_made(sides.made, read):
                return self._copied(sides, sides.made, read, Outcome.RENEWED)
        return self._both_changed(sides, read)

    def _both_changed(self, sides: Sides, read: Lookup) -> Decision:
        if self._wins is Side.OLD:
            if not sides.has_old:
                return Decision(Outcome.REMOVED, self._commits.removed(sides, read))
            return self._copied(sides, sides.made, read, Outcome.RENEWED)
        if self._wins is Side.NEW:
            return self._ahead(sides, () if sides.mark is None else sides.mark.new, read)
        reason = "both the old and the new record were changed"
        return contested(sides.unit, next(iter(sides.copies), None), reason)

    def _ahead(self, sides: Sides, copies: Sequence[Copy], read: Lookup) -> Decision:
        return Decision(Outcome.KEPT, self._commits.ahead(sides, copies, read))

    def _written(self, sides: Sides, made: Sequence[Converted], read: Lookup, outcome: Outcome) -> Decision:
        commit = self._commits.written(sides, made, read)
        if sides.standing and not sides.stays and not self._limits.takes(commit):
            # Why not left to a person: what was made of the unit before goes first, and the next pass copies it as if it had
            # never been. Each of the two commits is one that the plan has counted.
            commit = self._commits.removed(sides, read)
        return Decision(outcome, commit)

    def _with_entries(self, sides: Sides, standing: Sequence[Entry], read: Lookup) -> Decision:
        commit = self._commits.with_entries(sides, standing, read)
        return Decision(Outcome.UNCHANGED if commit is None else Outcome.RENEWED, commit)

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
        if made and sides.hangs_on_several and not self._takes_leases:
            # Why here as well: the plan has asked, and an old program has given one of them another lease since.
            return contested(sides.unit, made[0].raw_key, several_leases(self._route.item))
        self._fetch_all(made, read)
        if sides.mark is None and self._wins is Side.NEW and all(read.get(one.raw_key) is not None for one in made):
            return self._first_ahead(sides, made, read, outcome)
        for one in made:
            entry = read.get(one.raw_key)
            if entry is None or one.raw_key in sides.copies:
                continue
            if self._is_of_another(sides, one.raw_key, read):
                return contested(sides.unit, one.raw_key, TAKEN)
            if self._wins is not Side.OLD and (entry.value, entry.lease) != (one.raw_value, sides.lease):
                return contested(sides.unit, one.raw_key, "another record stands at its new key")
        return self._written(sides, made, read, outcome)

    def _first_ahead(self, sides: Sides, made: Sequence[Converted], read: Lookup, outcome: Outcome) -> Decision:
        """Records stand at all new keys, and nothing was carried over: they are ahead, unless they are as they would be."""
        for one in made:
            if self._is_of_another(sides, one.raw_key, read):
                return contested(sides.unit, one.raw_key, TAKEN)
        if sides.is_as_made(made, read):
            return self._written(sides, made, read, outcome)
        entries = [Entry(one.raw_key, one.raw_value, 0, 0, 0, sides.lease) for one in made]
        return self._ahead(sides, [Copy(entry.key, digest_of(entry)) for entry in entries], read)

    def _fetch_all(self, made: Sequence[Converted], read: Lookup) -> None:
        """Read what stands where the new records, their entries and their origins will be."""
        keys = [raw_key for one in made for raw_key in (one.raw_key, *one.index_entries)]
        if self._route.keeps_origins:
            keys += [origin_key(self._migration, one.raw_key) for one in made]
        read.fetch(keys)

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
