"""The clean-up of a migration: what only the old layout knows is removed, after everything was verified once more.

An old record is removed in a commit that is guarded by its being what was carried over: one that was written since is carried
over first, and one that cannot be is left and reported.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from keyplan.engine import Delete, Snapshot
from keyplan.errors import CommitConflictError, MigrationRefusedError
from keyplan.jobs import Pace, Progress, Stop, as_read
from keyplan.layout import BoundIndex, BoundTable
from keyplan.maintenance.index_states import read_index_state
from keyplan.maintenance.migration.batching import unit_batches
from keyplan.maintenance.migration.decision import Contest, Decision, Outcome
from keyplan.maintenance.migration.driver import move_counter
from keyplan.maintenance.migration.marks import MigrationState, Stage, TableStage, seen_state
from keyplan.maintenance.migration.plan import MigrationPlan, TableWork
from keyplan.maintenance.migration.removal import Remover
from keyplan.maintenance.migration.run_context import RunContext
from keyplan.maintenance.migration.run_state import (
    Run,
    at_stage,
    claim_obstacles,
    end_run,
    refuse_readers,
    remove_leftovers,
)
from keyplan.maintenance.migration.sweeping import removed, swept
from keyplan.maintenance.migration.unit_limits import Limits
from keyplan.maintenance.migration.verify import Verification
from keyplan.store import Backoff, IndexStage, Store, index_state_key

__all__ = ["CleanUpReport", "clean_up_migration"]


@dataclass
class CleanUpReport:
    """What was removed: old records, index entries, other keys. `left`: what could not be. `is_cleaned`: nothing is left."""

    records: int = 0
    entries: int = 0
    numbers: int = 0
    left: list[Contest] = field(default_factory=list)
    verified: list[Verification] = field(default_factory=list)
    is_cleaned: bool = False


def clean_up_migration(
    store: Store,
    plan: MigrationPlan,
    *,
    stop: Stop | None = None,
    command: Sequence[str] = (),
    progress: Callable[[Progress], None] | None = None,
    pace: Pace | None = None,
    backoff: Backoff | None = None,
) -> CleanUpReport:
    """Remove what only the old layout knows: moved records, entries of indexes that went, dropped tables, marks.

    To be called when no program needs the old layout any more, and after `migrate(is_switched=True)` settled everything, which
    is verified again. Killed at any moment, it goes on when it is called again. `stop`, `command` and `pace` as for
    `migrate`. Raises MigrationRefusedError when the migration is not settled or the plan has obstacles, EngineError,
    CommitOutcomeUnknownError, StoppedError.
    """
    if plan.obstacles:
        raise MigrationRefusedError(obstacles=plan.obstacles)
    act = "the clean-up of the migration"
    context = RunContext.of(act, store, plan, stop=stop, command=command, progress=progress, pace=pace, backoff=backoff)
    return _Cleaning(context).run()


class _Cleaning:
    def __init__(self, context: RunContext) -> None:
        self._context, self._engine, self._plan = context, context.engine, context.plan
        self._report = CleanUpReport()
        self._done = 0

    def run(self) -> CleanUpReport:
        """Clean up."""
        with self._engine.snapshot() as snapshot:
            state = seen_state(snapshot, self._plan.id).record
        if state is None:
            raise MigrationRefusedError(obstacles=("the migration was not begun",))
        if state.is_cleaned or not self._plan.steps:
            return self._over()
        self._report.verified = self._context.verified()
        run = self._context.until_committed(self._begun)
        if run is None:
            return self._over()
        for work in self._context.moving:
            self._remove_records(run, work)
        for name in self._plan.indexes_to_remove:
            self._remove_index(run, self._plan.old.indexes[name])
        for name in self._plan.tables_to_remove:
            self._report.records += self._swept(run, self._plan.old.tables[name])
        self._remove_numbers(run)
        if not self._report.left:
            end_run(run, self._plan)
            self._report.is_cleaned = True
        return self._report

    def _over(self) -> CleanUpReport:
        remove_leftovers(self._engine, self._plan.id)
        self._report.is_cleaned = True
        return self._report

    def _begun(self) -> Run | None:
        """Have the migration, in the state that it is in now; None when somebody has ended it meanwhile."""
        with self._engine.snapshot() as snapshot:
            seen = seen_state(snapshot, self._plan.id)
            if seen.record is not None and seen.record.is_cleaned:
                return None
            obstacles = tuple(self._obstacles(seen.record, snapshot))
        if obstacles:
            raise MigrationRefusedError(obstacles=obstacles)
        return self._context.taken_over(seen, Stage.CONTRACTING)

    def _obstacles(self, state: MigrationState | None, snapshot: Snapshot) -> Iterator[str]:
        unequal = [found.table for found in self._report.verified if not (found.is_equal or found.advice)]
        if state is not None and state.stage == Stage.ROLLING_BACK:
            yield "the migration is being rolled back: finish that"
            return
        if state is None or not state.is_settled or unequal:
            problem = f"not everything of {', '.join(unequal)} was carried over" if unequal else "it is not settled"
            yield f"{problem}: `keyplan migrate switch` first"
        yield from claim_obstacles(self._plan, snapshot)
        for found in self._report.verified:
            if found.advice and not found.is_equal:
                yield f"{found.table}: {found.found[0]} {found.what}: {found.advice}"
            if found.vanished and not self._takes_vanished(found.table):
                yield (
                    f"{found.vanished} copies of {found.table} are not there any more, and the old records would go as well:"
                    f" bring them back; or, if programs of the new layout have deleted them, --accept gone:{found.table}"
                )

    def _takes_vanished(self, table: str) -> bool:
        return f"gone:{table}" in self._plan.accepts

    # ---- records -----------------------------------------------------------------------------------------------------------

    def _remove_records(self, run: Run, work: TableWork) -> None:
        merger = self._context.merger(work, is_switched=True)
        run.commit(record=at_stage(run.record, TableStage.CONTRACTING, work.name))
        limits = Limits.of(self._engine.profile)
        remover = Remover(self._plan.id, work.route, limits, takes_vanished=self._takes_vanished(work.name))
        carrying, removing = self._context.batches(run, is_counted=False), self._context.batches(run)
        for units in self._context.stops.each(unit_batches(self._engine, work.route)):
            # Why first: what was written since it was verified is carried over.
            carried = carrying.decide(merger, units.units)
            self._leave(carried)
            settled = [unit for unit, decision in zip(units.units, carried, strict=True) if decision.contest is None]
            while settled:
                removed = removing.decide(remover, settled)
                self._leave(removed)
                self._report.records += sum(decision.records for decision in removed)
                self._report.entries += sum(decision.entries for decision in removed)
                both = zip(settled, removed, strict=True)
                settled = [unit for unit, decision in both if decision.outcome is Outcome.BARED]
            self._tell(work.name, len(units.units))
        # Why: an old program that deleted its record after the switch has left what was made of it, and the mark that says so.
        for gone in self._context.gone(work, merger, carrying):
            self._leave(gone)
        self._leave(self._context.given_entries(work, carrying))

    # ---- indexes, tables, numbers ------------------------------------------------------------------------------------------

    def _remove_index(self, run: Run, index: BoundIndex) -> None:
        """Refuse whoever still reads by it, and remove its entries."""
        raw_key = index_state_key(index)
        own = {index_state_key(other) for other in self._plan.new.indexes.values()}
        if raw_key not in own:
            # Why it stays: a program of the old layout that comes back must not be told that there is nothing.
            self._context.until_committed(self._refused, run, index)
        self._report.entries += self._swept(run, index)

    def _refused(self, run: Run, index: BoundIndex) -> None:
        entry, state, _ = read_index_state(self._engine, index)
        if state is None or state.stage is not IndexStage.WRITE_ONLY:
            refuse_readers(run, index, entry)

    def _swept(self, run: Run, item: BoundTable | BoundIndex) -> int:
        """Remove every key of an item that the new layout does not know; return how many."""
        return swept(run, item, self._plan.new, self._context.backoff, partial(self._tell, item.name))

    def _remove_numbers(self, run: Run) -> None:
        for old_name, new_name in self._plan.counters_to_move:
            self._context.until_committed(self._counter_removed, run, old_name, new_name)
        for name in self._plan.counters_to_remove:
            raw_key = self._plan.old.counters[name].raw_key
            self._report.numbers += self._context.until_committed(removed, run, [raw_key])

    def _counter_removed(self, run: Run, old_name: str, new_name: str) -> None:
        move_counter(run, self._plan, old_name, new_name)
        old, new = self._plan.old.counters[old_name], self._plan.new.counters[new_name]
        with self._engine.snapshot() as snapshot:
            before, after = snapshot.get_many([old.raw_key, new.raw_key])
        if before is None:
            return
        if after is None or new.decode(after.value) < old.decode(before.value):
            raise CommitConflictError(failed=())
        guards = as_read(old.raw_key, before), as_read(new.raw_key, after)
        run.commit([Delete(old.raw_key)], guards=guards)
        self._report.numbers += 1

    # ---- the report -------------------------------------------------------------------------------------------------------

    def _leave(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self._context.leave(self._report.left, decision.contest)

    def _tell(self, item: str, records: int) -> None:
        self._done += records
        self._context.tell("removing", self._done, item=item)
