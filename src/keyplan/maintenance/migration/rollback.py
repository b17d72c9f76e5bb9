"""A migration rolled back, until its clean-up begins: the old layout has everything again, and of the new one nothing is left.

First what programs of the new layout wrote is taken back, record by record, where an inverse leads there; what does not come
back is left to a person, and nothing is removed as long as something is left. Then the new records go, with their entries, the
indexes that only the new layout has, and the marks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from keyplan.engine import Delete, KeyRange, Put, Snapshot
from keyplan.errors import MigrationRefusedError
from keyplan.jobs import Pace, Progress, Stop, as_read, batches_of
from keyplan.layout import BoundIndex
from keyplan.maintenance.findings import Finding
from keyplan.maintenance.index_build import build_index
from keyplan.maintenance.index_states import read_index_state
from keyplan.maintenance.migration.batching import Decider, MarkedBatch, marked_batches
from keyplan.maintenance.migration.decision import Contest, Outcome
from keyplan.maintenance.migration.marks import MigrationState, Stage, TableStage, seen_state
from keyplan.maintenance.migration.plan import MigrationPlan, TableWork
from keyplan.maintenance.migration.root_history import going_back
from keyplan.maintenance.migration.run_context import RunContext
from keyplan.maintenance.migration.run_state import Run, claim_obstacles, refuse_readers, undo_run
from keyplan.maintenance.migration.sweeping import swept
from keyplan.maintenance.migration.taking_back import Discarder, NewRecords, Returner, Withdrawer
from keyplan.store import Backoff, Store, index_state_key

__all__ = ["RollbackReport", "roll_back_migration"]


@dataclass
class RollbackReport:
    """What was done: `returned` old records that say now what was written to new ones; new `records`, `entries` removed.

    `left`: what a person must decide, the first hundred. `entries_contested`: unique entries of the old layout that two records
    claim. `is_rolled_back`: nothing of the new layout is left.
    """

    returned: int = 0
    records: int = 0
    entries: int = 0
    left: list[Contest] = field(default_factory=list)
    entries_contested: list[Finding] = field(default_factory=list)
    is_rolled_back: bool = False


def roll_back_migration(
    store: Store,
    plan: MigrationPlan,
    *,
    stop: Stop | None = None,
    command: Sequence[str] = (),
    progress: Callable[[Progress], None] | None = None,
    pace: Pace | None = None,
    backoff: Backoff | None = None,
) -> RollbackReport:
    """Take a migration back that has not been cleaned up: afterwards the old layout has everything, and it may be begun anew.

    To be called when no program writes by the new layout any more; those of the old one may go on. What the others wrote to new
    records is written to the old ones where the inverse, or the types, lead back to it; what does not come back is reported,
    and so is what both have changed: nothing is removed then. `plan_migration(accepts=["lose:TABLE"])` consents to its loss,
    `gone:TABLE` to removing old records whose copies were deleted. Killed at any moment, it goes on when it is called again.
    `stop`, `command` and `pace` as for `migrate`.

    Raises MigrationRefusedError when the migration was not begun, is over, or its clean-up has begun, and when records were
    converted where they stand; EngineError, CommitOutcomeUnknownError, StoppedError.
    """
    act = "the rollback of the migration"
    context = RunContext.of(act, store, plan, stop=stop, command=command, progress=progress, pace=pace, backoff=backoff)
    return _Rollback(context).run()


class _Rollback:
    def __init__(self, context: RunContext) -> None:
        self._context, self._engine, self._plan = context, context.engine, context.plan
        self._report = RollbackReport()
        self._done = 0

    def run(self) -> RollbackReport:
        """Roll back."""
        run = self._context.until_committed(self._begun)
        for work in self._context.moving:
            self._take_back(run, work)
        if self._report.left:
            return self._report
        for work in self._context.moving:
            self._withdraw(run, work)
        self._numbers(run)
        self._indexes(run)
        if not self._report.left and not self._report.entries_contested:
            self._context.until_committed(undo_run, run, self._plan)
            self._report.is_rolled_back = True
        return self._report

    def _begun(self) -> Run:
        """Have the migration, in the state that it is in now."""
        with self._engine.snapshot() as snapshot:
            seen = seen_state(snapshot, self._plan.id)
            obstacles = tuple(self._obstacles(seen.record, snapshot))
            remembered = going_back(self._plan, snapshot)
        if obstacles:
            raise MigrationRefusedError(obstacles=obstacles)
        return self._context.taken_over(seen, Stage.ROLLING_BACK, remembered)

    def _obstacles(self, state: MigrationState | None, snapshot: Snapshot) -> Iterator[str]:
        if state is None:
            yield "the migration was not begun"
            return
        yield from claim_obstacles(self._plan, snapshot)
        if state.is_cleaned:
            yield "the migration is over, and the old records are gone: migrate from the new layout to the old one"
        elif state.was_cleaned:
            gone = "the migration was over, and old records are gone: it was begun again for what came late"
            yield f"{gone}; finish it, and migrate from the new layout to the old one"
        contracting = [name for name, stage in state.tables.items() if stage is TableStage.CONTRACTING]
        if contracting and not (state.is_cleaned or state.was_cleaned):
            gone = f"the clean-up of {', '.join(contracting)} has begun, and old records are gone"
            yield f"{gone}: finish it, and migrate from the new layout to the old one"
        for work in self._plan.tables:
            if work.is_in_place and state.tables.get(work.name, TableStage.FILLING) is not TableStage.FILLING:
                stands = f"{work.name}: its records were converted where they stand"
                yield f"{stands}: finish the migration, and migrate from the new layout to the old one, with a function"

    # ---- records -----------------------------------------------------------------------------------------------------------

    def _take_back(self, run: Run, work: TableWork) -> None:
        """Let the old records say what programs of the new layout have written."""
        own = self._plan.id, work.route, self._plan.accepts
        self._decide(run, Returner(*own), work, self._marked(work))
        self._decide(run, NewRecords(*own), work, self._new_keys(work))

    def _withdraw(self, run: Run, work: TableWork) -> None:
        """Remove the new records."""
        own = self._plan.id, work.route, self._plan.accepts
        self._decide(run, Withdrawer(*own), work, self._marked(work))
        self._decide(run, Discarder(*own), work, self._new_keys(work))

    def _decide(self, run: Run, decider: Decider, work: TableWork, batches: Iterator[MarkedBatch]) -> None:
        committer = self._context.batches(run)
        for batch in self._context.stops.each(batches):
            for decision in (*committer.decide(decider, batch.units), *batch.unreadable):
                self._context.leave(self._report.left, decision.contest)
                self._report.returned += decision.outcome is Outcome.RETURNED
                self._report.records += decision.records
            self._tell(work.name, len(batch.units))

    def _marked(self, work: TableWork) -> Iterator[MarkedBatch]:
        """The units of a route that were carried over."""
        return marked_batches(self._engine, self._plan.id, work.route)

    def _new_keys(self, work: TableWork) -> Iterator[MarkedBatch]:
        """The raw keys of the new records, but for those that the old layout knows as well."""
        for table in work.route.targets:
            for batch in batches_of(self._engine, KeyRange(*table.keys.range(()))):
                keys = [entry.key for entry in batch if table.keys.decode(entry.key) is not None]
                yield MarkedBatch([raw_key for raw_key in keys if not self._plan.old.meanings(raw_key)], ())

    # ---- indexes and counters ----------------------------------------------------------------------------------------------

    def _indexes(self, run: Run) -> None:
        """Remove the indexes that the old layout does not have, and build those anew that it has by another definition."""
        olds = {index_state_key(index): index for index in self._plan.old.indexes.values()}
        for name, index in self._plan.new.indexes.items():
            raw_key = index_state_key(index)
            if raw_key not in olds:
                # Why it stays unreadable: a program of the new layout that comes back must not be told that there is nothing.
                self._context.until_committed(self._unreadable, run, index)
                self._report.entries += swept(
                    run, index, self._plan.old, self._context.backoff, partial(self._tell, name)
                )
            elif name in run.record.indexes:
                self._rebuild(run, olds[raw_key])

    def _rebuild(self, run: Run, index: BoundIndex) -> None:
        self._context.until_committed(self._unreadable, run, index)
        own = self._context
        report = build_index(own.store, self._plan.old, index.name, stop=own.stops, pace=own.pace, backoff=own.backoff)
        self._report.entries_contested += report.contested

    def _unreadable(self, run: Run, index: BoundIndex) -> None:
        """Let nobody read an index until it is built."""
        entry, _, _ = read_index_state(self._engine, index)
        refuse_readers(run, index, entry)

    def _numbers(self, run: Run) -> None:
        """Take numbers back where they were."""
        for old_name, new_name in self._plan.counters_to_move:
            self._context.until_committed(self._number_back, run, old_name, new_name)

    def _number_back(self, run: Run, old_name: str, new_name: str) -> None:
        old, new = self._plan.old.counters[old_name], self._plan.new.counters[new_name]
        with self._engine.snapshot() as snapshot:
            before, after = snapshot.get_many([old.raw_key, new.raw_key])
        if after is None:
            return
        number = max(new.decode(after.value), old.start if before is None else old.decode(before.value))
        guards = as_read(old.raw_key, before), as_read(new.raw_key, after)
        run.commit([Put(old.raw_key, old.encode(number)), Delete(new.raw_key)], guards=guards)

    def _tell(self, item: str, count: int) -> None:
        self._done += count
        self._context.tell("taking back", self._done, item=item)
