"""The clean-up of a migration: what only the old layout knows is removed, after everything was verified once more.

An old record is removed in a commit that is guarded by its being what was carried over: one that was written since is carried
over first, and one that cannot be is left and reported.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from keyplan.engine import Delete
from keyplan.errors import CommitConflictError, MigrationRefusedError
from keyplan.jobs import Pace, Progress, Stop, StopCheck, Teller, as_read
from keyplan.layout import BoundIndex, BoundTable
from keyplan.maintenance.index_states import read_index_state
from keyplan.maintenance.migration.batching import Batches, gone_batches, unit_batches, winner
from keyplan.maintenance.migration.driver import move_counter
from keyplan.maintenance.migration.marks import Stage, TableStage, seen_state
from keyplan.maintenance.migration.merge import CONTESTS_MAX, Contest, Merger
from keyplan.maintenance.migration.new_entries import EntryGiver, new_batches
from keyplan.maintenance.migration.pausing import PauseCheck
from keyplan.maintenance.migration.plan import MigrationPlan, TableWork
from keyplan.maintenance.migration.removal import Remover
from keyplan.maintenance.migration.run_state import (
    Run,
    at_stage,
    claim_obstacles,
    end_run,
    refuse_readers,
    remove_leftovers,
    take_over,
)
from keyplan.maintenance.migration.sweeping import removed, swept
from keyplan.maintenance.migration.verify import Verification, verify_table
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
    stops = PauseCheck(store.engine, plan.id, stop, "the clean-up of the migration")
    return _Cleaning(store, plan, stops, command, progress, pace, backoff or Backoff()).run()


class _Cleaning:
    def __init__(
        self,
        store: Store,
        plan: MigrationPlan,
        stops: StopCheck,
        command: Sequence[str],
        progress: Callable[[Progress], None] | None,
        pace: Pace | None,
        backoff: Backoff,
    ) -> None:
        self._engine, self._plan = store.engine, plan
        self._stops = stops
        self._command = command
        self._told = Teller(progress)
        self._pace = pace
        self._backoff = backoff
        self._report = CleanUpReport()
        self._done = 0
        self._is_rolling_back = False

    def run(self) -> CleanUpReport:
        """Clean up."""
        with self._engine.snapshot() as snapshot:
            seen = seen_state(snapshot, self._plan.id)
        state = seen.record
        if state is None:
            raise MigrationRefusedError(obstacles=("the migration was not begun",))
        self._is_rolling_back = state.stage == Stage.ROLLING_BACK
        if state.is_cleaned or not self._plan.steps:
            remove_leftovers(self._engine, self._plan.id)
            self._report.is_cleaned = True
            return self._report
        moved = [work for work in self._plan.tables if work.is_moving]
        self._report.verified = [verify_table(self._engine, self._plan.id, work, self._stops) for work in moved]
        obstacles = tuple(self._obstacles(is_settled=state.is_settled))
        if obstacles:
            raise MigrationRefusedError(obstacles=obstacles)
        self._stops.check()
        begin = partial(take_over, self._engine, seen, Stage.CLEANING, self._command, self._stops)
        run = self._backoff.until_committed(begin)
        for work in moved:
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

    def _obstacles(self, *, is_settled: bool) -> Iterator[str]:
        unequal = [found.table for found in self._report.verified if not found.is_equal]
        if self._is_rolling_back:
            yield "the migration is being rolled back: finish that"
            return
        if not is_settled or unequal:
            problem = f"not everything of {', '.join(unequal)} was carried over" if unequal else "it is not settled"
            yield f"{problem}: `keyplan migrate switch` first"
        with self._engine.snapshot() as snapshot:
            yield from claim_obstacles(self._plan, snapshot)
        for found in self._report.verified:
            if found.vanished and not self._takes_vanished(found.table):
                yield (
                    f"{found.vanished} copies of {found.table} are not there any more, and the old records would go as well:"
                    f" bring them back; or, if programs of the new layout have deleted them, --accept gone:{found.table}"
                )

    def _takes_vanished(self, table: str) -> bool:
        return f"gone:{table}" in self._plan.accepts

    # ---- records -----------------------------------------------------------------------------------------------------------

    def _remove_records(self, run: Run, work: TableWork) -> None:
        merger = Merger(self._plan.id, work.route, is_switched=True, wins=winner(self._plan, work))
        run.commit(record=at_stage(run.record, TableStage.CONTRACTING, work.name))
        takes_vanished = self._takes_vanished(work.name)
        remover = Remover(self._plan.id, work.route, takes_vanished=takes_vanished)
        batches = Batches(run, self._backoff)
        for units in self._stops.each(unit_batches(self._engine, work.route)):
            # Why first: what was written since it was verified is carried over.
            carried = batches.decide(merger, units.units)
            settled = [unit for unit, decision in zip(units.units, carried, strict=True) if decision.contest is None]
            for decision in (*(found for found in carried if found.contest), *batches.decide(remover, settled)):
                if decision.contest is not None:
                    self._leave(decision.contest)
                self._report.records += decision.records
                self._report.entries += decision.entries
            self._tell(work.name, len(units.units))
        # Why: an old program that deleted its record after the switch has left what was made of it, and the mark that says so.
        for gone in self._stops.each(gone_batches(self._engine, self._plan.id, work.route)):
            for decision in batches.decide(merger, gone):
                if decision.contest is not None:
                    self._leave(decision.contest)
        for keys in self._stops.each(new_batches(self._engine, work.route)):
            for decision in batches.decide(EntryGiver(work.route), keys):
                if decision.contest is not None:
                    self._leave(decision.contest)

    # ---- indexes, tables, numbers ------------------------------------------------------------------------------------------

    def _remove_index(self, run: Run, index: BoundIndex) -> None:
        """Refuse whoever still reads by it, and remove its entries."""
        raw_key = index_state_key(index)
        own = {index_state_key(other) for other in self._plan.new.indexes.values()}
        if raw_key not in own:
            # Why it stays: a program of the old layout that comes back must not be told that there is nothing.
            self._backoff.until_committed(partial(self._refused, run, index))
        self._report.entries += self._swept(run, index)

    def _refused(self, run: Run, index: BoundIndex) -> None:
        entry, state, _ = read_index_state(self._engine, index)
        if state is None or state.stage is not IndexStage.WRITE_ONLY:
            refuse_readers(run, index, entry)

    def _swept(self, run: Run, item: BoundTable | BoundIndex) -> int:
        """Remove every key of an item that the new layout does not know; return how many."""
        return swept(run, item, self._plan.new, self._backoff, partial(self._tell, item.name))

    def _remove_numbers(self, run: Run) -> None:
        for old_name, new_name in self._plan.counters_to_move:
            self._backoff.until_committed(partial(self._counter_removed, run, old_name, new_name))
        for name in self._plan.counters_to_remove:
            raw_key = self._plan.old.counters[name].raw_key
            self._report.numbers += self._backoff.until_committed(partial(removed, run, [raw_key]))

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

    def _leave(self, contest: Contest) -> None:
        if len(self._report.left) < CONTESTS_MAX:
            self._report.left.append(contest)

    def _tell(self, item: str, records: int) -> None:
        self._done += records
        self._told("removing", self._done, item=item)
