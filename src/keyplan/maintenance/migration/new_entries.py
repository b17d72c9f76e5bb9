"""Index entries of new records that old programs have taken along: where both layouts have the same entries.

A record that a program of the new layout wrote has no unit while nothing of the old one stands at its place. An old program
that deletes its record there removes the entries of both.
"""

from collections.abc import Iterator

from keyplan.engine import Engine, KeyRange
from keyplan.errors import UniqueViolationError
from keyplan.jobs import Lookup, batches_of
from keyplan.maintenance.migration.decision import Decision, Outcome, contested
from keyplan.maintenance.migration.drafting import Draft
from keyplan.maintenance.migration.functions import UNREADABLE
from keyplan.maintenance.migration.route import Route, stored_entries, table_of
from keyplan.store import RecordState, Write

__all__ = ["EntryGiver", "new_batches"]


class EntryGiver:
    """Decides about new records of a route, by their own raw keys: each gets the entries that it lacks."""

    def __init__(self, route: Route) -> None:
        self._route = route

    def keys_of(self, unit: bytes) -> list[bytes]:
        """The raw keys that a decision looks at first."""
        return [unit]

    def decide(self, unit: bytes, read: Lookup) -> Decision:
        """Say what to do about the new record at a raw key, from one snapshot."""
        entry = read.get(unit)
        if entry is None:
            return Decision(Outcome.UNCHANGED)
        table = table_of(self._route.targets, unit)
        index_entries = stored_entries(table, entry)
        read.fetch(index_entries)
        if all(read.get(raw_key) is not None for raw_key in index_entries):
            return Decision(Outcome.UNCHANGED)
        state = RecordState.of(entry.value, entry.lease, index_entries, entry.mod_revision)
        draft = Draft(read)
        try:
            draft.write([Write(table, table.keys.decode(unit), unit, state, state)], kept=[unit])
        except UniqueViolationError as error:
            reason = f"another record holds its entry of {error.facts.get('index')}"
            return contested(unit, unit, reason)
        except UNREADABLE as error:
            return contested(unit, unit, f"its entries cannot be made: {error.summary}")
        return Decision(Outcome.RENEWED, draft.commit({}))


def new_batches(engine: Engine, route: Route) -> Iterator[list[bytes]]:
    """Yield the raw keys of a route's new records, batch by batch, where old programs could have taken entries along."""
    for table in route.targets if route.kept_indexes else ():
        for batch in batches_of(engine, KeyRange(*table.keys.range(()))):
            yield [entry.key for entry in batch if table.keys.decode(entry.key) is not None]
