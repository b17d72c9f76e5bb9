"""Records that claim a unique entry that another one has: a function of the plan says what becomes of them."""

from collections.abc import Iterable
from functools import partial

from keyplan.engine import Entry, ended_lease_is_conflict
from keyplan.errors import UniqueViolationError
from keyplan.jobs import Lookup
from keyplan.layout import BoundIndex
from keyplan.maintenance.findings import Finding
from keyplan.maintenance.migration.functions import UNREADABLE, Resolution, called
from keyplan.maintenance.migration.route import stored_entries
from keyplan.maintenance.migration.run_state import Run
from keyplan.store import Backoff, RecordState, Write, index_entries_of, keys_to_observe, plan_writes

__all__ = ["resolved"]


def resolved(run: Run, index: BoundIndex, resolution: Resolution, found: Iterable[Finding], backoff: Backoff) -> int:
    """Let the function change the records that these findings name; return how many it changed. What it cannot is left."""
    keys = dict.fromkeys(finding.record_key for finding in found if finding.record_key is not None)
    return sum(backoff.until_committed(partial(_resolved, run, index, resolution, raw_key)) for raw_key in keys)


def _resolved(run: Run, index: BoundIndex, resolution: Resolution, raw_key: bytes) -> bool:
    """Change one record, as it is read now. Raises CommitConflictError."""
    table = index.table
    with run.engine.snapshot() as snapshot:
        read = Lookup(snapshot)
        entry = read.get(raw_key)
        if entry is None or not _is_loser(index, entry, read):
            return False
        key = table.keys.decode(raw_key)
        try:
            record = called(table.name, partial(resolution.function, key, table.form.decode(entry.value)))
            old = RecordState.of(entry.value, entry.lease, stored_entries(table, entry), entry.mod_revision)
            new = None
            if record is not None:
                raw_value = table.form.encode(record)
                new = RecordState.of(raw_value, entry.lease, index_entries_of(table, key, record), 0)
            write = Write(table, key, raw_key, old, new)
            keys = keys_to_observe(write)
            read.fetch(keys)
            plan = plan_writes([write], {observed: read.get(observed) for observed in keys})
        except (UniqueViolationError, *UNREADABLE):
            return False  # Why: it is reported as one that is left, by the build that comes next.
    with ended_lease_is_conflict():
        run.commit(plan.mutations.values(), guards=plan.guards.values())
    return True


def _is_loser(index: BoundIndex, entry: Entry, read: Lookup) -> bool:
    """Whether the record claims an entry that names another one."""
    own = {raw_key: one for raw_key, one in stored_entries(index.table, entry).items() if one.source is index}
    read.fetch(own)
    return any(
        (found := read.get(raw_key)) is not None and found.value != one.raw_value for raw_key, one in own.items()
    )
