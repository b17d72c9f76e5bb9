"""What is to be done about old records in the clean-up: removed beside their copies, or left, written since."""

from collections.abc import Iterator, Sequence

from keyplan.engine import Commit, Delete
from keyplan.errors import InvalidKeyError
from keyplan.jobs import Lookup
from keyplan.maintenance.migration.decision import TAKEN, Decision, Outcome, contested
from keyplan.maintenance.migration.drafting import guarded_commit
from keyplan.maintenance.migration.route import Route, stored_entries, table_of
from keyplan.maintenance.migration.sides import Sides, keys_read
from keyplan.maintenance.migration.unit_limits import Limits

__all__ = ["Remover"]


class Remover:
    """Decides about the old records of one route, each unit from one snapshot.

    `takes_vanished`: an old record whose copy is not there any more goes as well. A record with more index entries than one
    commit takes loses a part of them first, and is to be decided about again.
    """

    def __init__(self, migration: bytes, route: Route, limits: Limits, *, takes_vanished: bool) -> None:
        self._migration = migration
        self._limits = limits
        self._takes_vanished = takes_vanished
        self._route = route

    def keys_of(self, unit: bytes) -> list[bytes]:
        """The raw keys that a decision looks at first."""
        try:
            return keys_read(self._migration, self._route, unit)
        except InvalidKeyError:
            return [unit]

    def decide(self, unit: bytes, read: Lookup) -> Decision:
        """Say what to do about a unit: its old records go when they are what its mark says that was carried over."""
        try:
            if self._route.stays(unit):
                return Decision(Outcome.UNCHANGED)
        except InvalidKeyError:
            return contested(unit, None, "the record has no key in the new layout")
        sides = Sides.of(self._migration, self._route, unit, read)
        if not sides.has_old:
            return Decision(Outcome.UNCHANGED)
        shown = next(iter(sides.copies), None)
        if sides.mark is None or sides.has_old_changed:
            reason = "it was written while it was about to be removed"
            return contested(unit, shown, reason)
        if len(sides.standing) < len(sides.copies) and not self._takes_vanished:
            return contested(unit, shown, "its copy is not there any more")
        if sides.taken is not None:
            return contested(unit, sides.taken, TAKEN)
        entries = list(self._entries(sides, read))
        records = [raw_key for raw_key, entry in sides.old.items() if entry is not None]
        # Invariant: a mark without its old record says that somebody removed it, and takes the copy along.
        gone = [*records, sides.mark_key, *sides.origins]
        commit = self._without(sides, [*gone, *entries], read)
        if not self._limits.takes(commit) and (part := self._first_of(sides, entries, read)):
            # Why the entries first: nobody reads by them any more, and without its record no entry would be found again.
            return Decision(Outcome.BARED, self._without(sides, part, read), entries=len(part))
        return Decision(Outcome.REMOVED, commit, records=len(records), entries=len(entries))

    def _first_of(self, sides: Sides, entries: Sequence[bytes], read: Lookup) -> Sequence[bytes]:
        """As many of the entries as one commit takes; none when it does not even take one."""
        part = entries
        while part and not self._limits.takes(self._without(sides, part, read)):
            part = part[: len(part) // 2]
        return part

    @staticmethod
    def _without(sides: Sides, gone: Sequence[bytes], read: Lookup) -> Commit:
        return guarded_commit(read, sides.guards, {raw_key: Delete(raw_key) for raw_key in gone})

    def _entries(self, sides: Sides, read: Lookup) -> Iterator[bytes]:
        """The entries of the old records, but for those that the new ones have as well."""
        kept = {
            raw_key
            for entry in sides.standing
            for raw_key in stored_entries(table_of(self._route.targets, entry.key), entry)
        }
        index_entries = self._route.old_entries(sides.records)
        read.fetch(index_entries)
        for raw_key, index_entry in index_entries.items():
            entry = read.get(raw_key)
            if raw_key not in kept and entry is not None and entry.value == index_entry.raw_value:
                yield raw_key
