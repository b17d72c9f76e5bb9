"""A migration carried out: begun, records carried over, indexes built, everything verified. The old records stay.

It may be stopped anywhere and is finished by the same call. What is done to a record is decided from the record, its copy and
its mark alone, so that going over it twice does nothing twice; the rest of the state says which indexes are built.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec import structs

from keyplan.engine import Delete, Put
from keyplan.errors import MigrationRefusedError
from keyplan.jobs import Pace, Progress, Stop, as_read
from keyplan.maintenance.findings import Finding
from keyplan.maintenance.index_build import BuildReport, build_index
from keyplan.maintenance.index_states import read_index_state
from keyplan.maintenance.migration.batching import Batches, marked_batches, unit_batches
from keyplan.maintenance.migration.decision import Contest, Decision, Outcome
from keyplan.maintenance.migration.losers import resolved
from keyplan.maintenance.migration.marks import Stage, TableStage, cursor_key
from keyplan.maintenance.migration.merge import Merger
from keyplan.maintenance.migration.plan import MigrationPlan, TableWork
from keyplan.maintenance.migration.root_history import remember_layout
from keyplan.maintenance.migration.run_context import RunContext
from keyplan.maintenance.migration.run_state import Run, at_stage, begin_run, end_run, refuse_readers, remove_leftovers
from keyplan.maintenance.migration.table_layouts import layouts_of, recorded
from keyplan.maintenance.migration.verify import Verification, verify_counters
from keyplan.store import Backoff, Store

__all__ = [
    "MigrationReport",
    "migrate",
    "move_counter",
]

_BATCH_RECORDS_MAX: Final = 64
"""Why: a batch is read in one snapshot and held whole; what one conflict makes decide again is at most this."""

_PASSES_MAX: Final = 8
"""Why: beside writers that never rest something is always left; it is carried over by the next run, or after the switch.

So a run beside them ends as soon as a pass leaves more than half of what the one before it left.
"""


@dataclass
class MigrationReport:
    """What a run did. `is_settled`: everything is carried over, built and verified, and the clean-up may follow.

    `counts`: records by what was done to them, the unchanged ones as of the first pass. `contested`: what a person must decide,
    the first hundred; `entries_contested`: unique entries that two records claim. `resolved`: records that claimed a unique
    entry of another, and were changed by the plan's function.
    """

    is_settled: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    contested: list[Contest] = field(default_factory=list)
    entries_contested: list[Finding] = field(default_factory=list)
    verified: list[Verification] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    resolved: int = 0

    def count(self, outcome: Outcome, records: int = 1) -> None:
        """Count records to which the same was done."""
        if records:
            self.counts[outcome.value] = self.counts.get(outcome.value, 0) + records


def migrate(
    store: Store,
    plan: MigrationPlan,
    *,
    is_switched: bool = False,
    stop: Stop | None = None,
    command: Sequence[str] = (),
    progress: Callable[[Progress], None] | None = None,
    pace: Pace | None = None,
    backoff: Backoff | None = None,
) -> MigrationReport:
    """Carry out a plan up to the clean-up, which is `clean_up_migration`.

    Without `is_switched`, beside programs of the old layout: readers of indexes to be built are refused, and records that get
    other keys are copied until the copies are up to date, or until writers keep up with the run: what they write meanwhile
    is carried over by the next one. Nothing that programs of the old layout read is changed. With `is_switched`, when no
    program writes by the old layout any more: what was written since is carried over, values are written anew, counters taken
    along, indexes built, and count and digest compared.

    Every write is a commit guarded by what it rests on, and by the migration's state. A writer that comes between makes it look
    again, and no acknowledged write is lost. A run with `is_switched` takes the migration over: an earlier run ends with
    MigrationRefusedError instead of converting anything twice. What was changed on both sides is left and reported. Killed at
    any moment, it goes on when it is called again.

    stop: when this is set the run ends between two commits, with StoppedError, and the migration goes on when this is called
        again.
    command: the words behind `keyplan` that give the plan again, `migrate` and a phase first, for who looks at the jobs.
    pace: how fast records are gone through, verified and indexes built. Without one it gives way to other writers
        (`YieldingPace`); `Pace()` is as fast as it goes.

    A migration that is paused (`pause_migration`) ends with StoppedError as well. Raises MigrationRefusedError when the plan
    has obstacles or the store is no longer as it was planned for, EngineError, CommitOutcomeUnknownError.
    """
    if plan.obstacles:
        raise MigrationRefusedError(obstacles=plan.obstacles)
    context = RunContext.of(
        "the migration", store, plan, stop=stop, command=command, progress=progress, pace=pace, backoff=backoff
    )
    return _Run(context, is_switched=is_switched).run()


class _Run:
    def __init__(self, context: RunContext, *, is_switched: bool) -> None:
        self._context, self._engine, self._plan = context, context.engine, context.plan
        self._is_switched = is_switched
        self._report = MigrationReport()

    def run(self) -> MigrationReport:
        """Do what can be done now."""
        if self._plan.is_over or not self._plan.steps:
            if self._plan.is_over:
                remove_leftovers(self._engine, self._plan.id)
            else:
                self._context.until_committed(remember_layout, self._engine, self._plan)
            self._report.is_settled = True
            return self._report
        given = self._context
        run = given.until_committed(
            begin_run,
            self._engine,
            self._plan,
            is_switched=self._is_switched,
            command=given.command,
            stops=given.stops,
            pace=given.pace,
        )
        for work in self._plan.tables:
            if work.is_moving:
                self._carry_over(run, work)
                if self._is_switched:
                    self._note(self._context.given_entries(work, self._context.batches(run)))
            elif self._is_switched:
                self._convert(run, work)
        if self._is_switched:
            self._counters(run)
            self._build(run)
            self._settle(run)
        return self._report

    # ---- records -----------------------------------------------------------------------------------------------------------

    def _convert(self, run: Run, work: TableWork) -> None:
        """Convert the records where they stand, once: afterwards only those that were left are looked at again."""
        stage = run.record.tables.get(work.name)
        if stage is not None and not stage.is_whole:
            if stage is TableStage.FILLING:
                # Why before the first one: from now on nothing may take the table for one of the old layout.
                run.commit(record=at_stage(run.record, TableStage.CONVERTING, work.name))
            if not self._carry_over(run, work):
                return
            self._context.until_committed(self._converted, run, work)
            return
        merger, batches = self._context.merger(work, is_switched=True), self._context.batches(run)
        pending = marked_batches(
            self._engine, self._plan.id, work.route, only_pending=True, keys_max=_BATCH_RECORDS_MAX
        )
        for batch in self._context.stops.each(pending):
            self._note([*batches.decide(merger, batch.units), *batch.unreadable])

    def _note(self, decisions: Iterable[Decision]) -> None:
        """Report what was done, and what a person must decide."""
        for decision in decisions:
            if decision.outcome is not Outcome.UNCHANGED:
                self._report.count(decision.outcome)
            self._context.leave(self._report.contested, decision.contest)

    def _converted(self, run: Run, work: TableWork) -> None:
        """Write down that the records of a table are converted, each once, in the layout that the table has from now on."""
        with self._engine.snapshot() as snapshot:
            old_key, new_key = layouts_of(self._plan, work.name)
            before, after = snapshot.get_many([old_key, new_key])
        put = recorded(self._plan, work.name, before)
        gone = [Delete(old_key)] if before is not None and old_key != new_key else []
        state = at_stage(run.record, TableStage.SWITCHED, work.name)
        run.commit([put, *gone], guards={as_read(old_key, before), as_read(new_key, after)}, record=state)

    def _carry_over(self, run: Run, work: TableWork) -> bool:
        """Go over the table until nothing is left to write, or writers keep up with it; first from where an earlier run was.

        Return whether the last pass went over the whole table and wrote nothing.
        """
        merger, batches = self._context.merger(work, is_switched=self._is_switched), self._context.batches(run)
        hint = cursor_key(self._plan.id, work.name)
        with self._engine.snapshot() as snapshot:
            entry = snapshot.get(hint)
        start = b"" if entry is None else entry.value
        contests: list[Contest] = []
        is_done = False
        written = contested = 0
        for number in range(_PASSES_MAX):
            before, written, contested = written, 0, 0
            contests = []
            for decisions in self._pass(run, work, merger, batches, start, hint if number == 0 else b""):
                for decision in decisions:
                    # Why: a pass that finds nothing to do any more is no news.
                    if decision.contest is None and (number == 0 or decision.outcome is not Outcome.UNCHANGED):
                        self._report.count(decision.outcome)
                    contested += decision.contest is not None
                    written += decision.commit is not None
                    self._context.leave(contests, decision.contest)
            is_done = not written and not start
            start = b""
            # Why the third: the first one writes everything, or what a run left that was stopped.
            is_level = number > 1 and 2 * written > before and not self._is_switched
            if is_done or is_level:
                break
        # Why of the last pass: each one meets the same again.
        self._report.count(Outcome.CONTESTED, contested)
        for contest in contests:
            self._context.leave(self._report.contested, contest)
        return is_done

    def _pass(
        self, run: Run, work: TableWork, merger: Merger, batches: Batches, start: bytes, hint: bytes
    ) -> Iterator[list[Decision]]:
        """Go over the old records, those of the first source from a key on; then over the marks of those that are gone."""
        done = 0
        found = unit_batches(self._engine, work.route, start=start, keys_max=_BATCH_RECORDS_MAX)
        for units in self._context.stops.each(found):
            decisions = batches.decide(merger, units.units)
            yield decisions
            if hint and not units.place and any(decision.commit is not None for decision in decisions):
                run.commit([Put(hint, units.end)])
            done += len(units.units)
            run.tell(run.record.stage, done)
            self._context.tell("carrying over", done, item=work.name)
        yield from self._context.gone(work, merger, batches)

    # ---- counters and indexes ----------------------------------------------------------------------------------------------

    def _counters(self, run: Run) -> None:
        for old_name, new_name in self._plan.counters_to_move:
            self._context.until_committed(move_counter, run, self._plan, old_name, new_name)

    def _build(self, run: Run) -> None:
        """Build the indexes that the migration made unreadable, one after the other.

        One that somebody else has built meanwhile is built again: nobody knows by which definition that was.
        """
        for name in run.record.indexes:
            if name not in run.record.built:

                def told(now: Progress, name: str = name) -> None:
                    self._context.tell("building", now.done, item=name)

                self._context.until_committed(self._prepared, run, name)
                build = partial(
                    build_index,
                    self._context.store,
                    self._plan.new,
                    name,
                    stop=self._context.stops,
                    progress=told,
                    pace=self._context.pace,
                    backoff=self._context.backoff,
                )
                report = build()
                while not report.is_readable and self._resolved(run, name, report):
                    report = build()
                if not report.is_readable:
                    self._report.entries_contested += report.contested
                    continue
                run.commit(record=structs.replace(run.record, built=(*run.record.built, name)))
            self._report.built.append(name)

    def _resolved(self, run: Run, name: str, report: BuildReport) -> int:
        """Let the plan's function change the records that claim what others have; return how many it changed."""
        resolution = self._plan.resolutions.get(name)
        if resolution is None:
            return 0
        changed = resolved(run, self._plan.new.indexes[name], resolution, report.contested, self._context.backoff)
        self._report.resolved += changed
        return changed

    def _prepared(self, run: Run, name: str) -> None:
        """Let nobody read an index that is to be built, while this run has the migration: else it is built by now."""
        index = self._plan.new.indexes[name]
        entry, state, _ = read_index_state(self._engine, index)
        if state is None:
            refuse_readers(run, index, entry)

    def _settle(self, run: Run) -> None:
        """Verify, and write down that nothing is left to do but to clean up; or nothing at all."""
        report = self._report
        # Why here alone: the clean-up takes each counter along in the commits that remove it.
        report.verified = [*self._context.verified(), *verify_counters(self._engine, self._plan)]
        in_place = [work.name for work in self._plan.tables if work.is_in_place]
        stages = [run.record.tables[name] for name in in_place if name in run.record.tables]
        is_whole = len(report.built) == len(run.record.indexes) and all(found.is_whole for found in stages)
        report.is_settled = is_whole and not report.contested and all(found.is_equal for found in report.verified)
        if report.is_settled and not self._plan.has_clean_up:
            end_run(run, self._plan)
            return
        stage = Stage.SWITCHED if report.is_settled else Stage.SWITCHING
        # Why the stage, too: a run that takes a settled migration over has written that it goes on with it.
        if (report.is_settled, stage) != (run.record.is_settled, run.record.stage):
            self._context.until_committed(self._written_down, run, stage)

    def _written_down(self, run: Run, stage: Stage) -> None:
        """Write down whether everything is carried over and compared."""
        state = structs.replace(run.record, is_settled=self._report.is_settled, stage=stage)
        if state.is_settled:
            names = [work.name for work in self._plan.tables]
            # Why only these: a table whose clean-up has begun has no way back, whatever runs again.
            filled = [name for name in names if not state.tables.get(name, TableStage.FILLING).is_whole]
            state = at_stage(state, TableStage.SWITCHED, *filled)
        run.commit(record=state)


def move_counter(run: Run, plan: MigrationPlan, old_name: str, new_name: str) -> None:
    """Let a counter go on from the old number where that is greater. Raises CommitConflictError when somebody drew one."""
    old, new = plan.old.counters[old_name], plan.new.counters[new_name]
    with run.engine.snapshot() as snapshot:
        before, after = snapshot.get_many([old.raw_key, new.raw_key])
    if before is None:
        return
    number = old.decode(before.value)
    if after is not None and new.decode(after.value) >= number:
        return
    guards = as_read(old.raw_key, before), as_read(new.raw_key, after)
    run.commit([Put(new.raw_key, new.encode(max(number, new.start)))], guards=guards)
