"""Keys of an item that a layout does not know, removed while a run has the migration."""

from collections.abc import Callable, Sequence
from functools import partial

from keyplan.engine import Delete, KeyRange
from keyplan.jobs import CommitRoom, as_read, batches_of
from keyplan.layout import BoundIndex, BoundLayout, BoundTable
from keyplan.maintenance.migration.run_state import Run
from keyplan.store import Backoff

__all__ = ["removed", "swept"]


def swept(
    run: Run, item: BoundTable | BoundIndex, known: BoundLayout, backoff: Backoff, told: Callable[[int], None]
) -> int:
    """Remove every key of an item that means nothing in the layout `known`; return how many. Raises StoppedError."""
    count = 0
    for batch in run.stops.each(batches_of(run.engine, KeyRange(*item.keys.range(())))):
        own = [
            entry.key for entry in batch if item.keys.decode(entry.key) is not None and not known.meanings(entry.key)
        ]
        # Why two less: the run's state is guarded, and may be written, as well.
        most = CommitRoom.of(run.engine.profile, operations=2).guarded
        for start in range(0, len(own), most):
            count += backoff.until_committed(partial(removed, run, own[start : start + most]))
        told(len(own))
        run.pace.spend(len(batch), run.stops)
    return count


def removed(run: Run, keys: Sequence[bytes]) -> int:
    """Remove what stands at these keys, as it is read now; return how many. Raises CommitConflictError."""
    with run.engine.snapshot() as snapshot:
        found = [entry for entry in snapshot.get_many(keys) if entry is not None]
    if found:
        run.commit([Delete(entry.key) for entry in found], guards=[as_read(entry.key, entry) for entry in found])
    return len(found)
