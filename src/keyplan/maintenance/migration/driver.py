"""A migration carried out: begun, records carried over, indexes built, everything verified. The old records stay.

It may be stopped anywhere and is finished by the same call. What is done to a record is decided from the record, its copy and
its mark alone, so that going over it twice does nothing twice; the rest of the state says which indexes are built.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from msgspec import structs

from keyplan.engine import Commit, Delete, Engine, Entry, KeyAbsent, KeyRange, Mutation, Put
from keyplan.errors import CommitConflictError, MigrationRefusedError
from keyplan.maintenance.batches import operations_max
from keyplan.maintenance.check import batch_of
from keyplan.maintenance.definitions import index_definition
from keyplan.maintenance.findings import Finding
from keyplan.maintenance.index_build import build_index
from keyplan.maintenance.migration.batching import Batches
from keyplan.maintenance.migration.marks import (
    MigrationState,
    as_read,
    cursor_key,
    cursor_range,
    decoded,
    encoded,
    mark_range,
    read_state,
    state_key,
    states_of,
)
from keyplan.maintenance.migration.merge import Contest, Decision, Merger, Outcome
from keyplan.maintenance.migration.plan import MigrationPlan, TableWork
from keyplan.maintenance.migration.verify import Verification, verify_table
from keyplan.store import (
    Backoff,
    IndexStage,
    IndexState,
    Store,
    index_state_key,
    index_state_of,
    index_state_value,
)

__all__ = [
    "MigrationProgress",
    "MigrationReport",
    "migrate",
    "move_counter",
    "remove_marks",
    "require_state",
]

_BATCH_RECORDS_MAX: Final = 64
"""Why: a batch is read in one snapshot and held whole; what one conflict makes decide again is at most this."""

_PASSES_MAX: Final = 8
"""Why: beside writers that never rest something is always left; it is carried over by the next run, or after the switch."""

_CONTESTS_MAX: Final = 100
"""Why: memory; what is beyond it is told when these are settled."""


class MigrationProgress(NamedTuple):
    """Where a migration is: what it does, to which item, and how many records it has gone through in this."""

    stage: str
    item: str
    records: int


@dataclass
class MigrationReport:
    """What a run did. `is_settled`: everything is carried over, built and verified, and the clean-up may follow.

    `counts`: records by what was done to them, the unchanged ones as of the first pass. `contested`: what a person must decide,
    the first hundred; `entries_contested`: unique entries that two records claim.
    """

    is_settled: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    contested: list[Contest] = field(default_factory=list)
    entries_contested: list[Finding] = field(default_factory=list)
    verified: list[Verification] = field(default_factory=list)
    built: list[str] = field(default_factory=list)

    def count(self, outcome: Outcome) -> None:
        """Count one record."""
        self.counts[outcome.value] = self.counts.get(outcome.value, 0) + 1


def migrate(
    store: Store,
    plan: MigrationPlan,
    *,
    is_switched: bool = False,
    progress: Callable[[MigrationProgress], None] | None = None,
    backoff: Backoff | None = None,
) -> MigrationReport:
    """Carry out a plan up to the clean-up, which is `clean_up_migration`.

    Without `is_switched`, beside programs of the old layout: readers of indexes to be built are refused, and records that get
    other keys are copied, as often as it takes until the copies are up to date. Nothing that programs of the old layout read is
    changed. With `is_switched`, when no program writes by the old layout any more: what was written since is carried over,
    values are written anew, counters taken along, indexes built, and count and digest compared.

    Every write is a commit guarded by what it rests on: a writer that comes between makes it look again, and no
    acknowledged write is lost. What was changed on both sides is left and reported. Killed at any moment, it goes on when it is
    called again.

    Raises MigrationRefusedError when the plan has obstacles, EngineError, CommitOutcomeUnknownError.
    """
    if plan.obstacles:
        raise MigrationRefusedError(obstacles=plan.obstacles)
    run = _Run(store, plan, is_switched, progress, backoff or Backoff())
    return run.run()


class _Run:
    def __init__(
        self,
        store: Store,
        plan: MigrationPlan,
        is_switched: bool,  # noqa: FBT001  # Why: private, one caller.
        progress: Callable[[MigrationProgress], None] | None,
        backoff: Backoff,
    ) -> None:
        self._store, self._engine, self._plan = store, store.engine, plan
        self._is_switched = is_switched
        self._progress = progress
        self._backoff = backoff
        self._report = MigrationReport()

    def run(self) -> MigrationReport:
        """Do what can be done now."""
        if self._plan.is_over or not self._plan.steps:
            self._report.is_settled = True
            return self._report
        state = self._begun()
        for work in self._plan.tables:
            # Why not when settled: the clean-up may have removed marks, and nothing is converted twice.
            if work.is_moving or (self._is_switched and not state.is_settled):
                self._carry_over(work)
        if self._is_switched:
            self._counters()
            self._build(state)
            self._settle(state)
        return self._report

    def _begun(self) -> MigrationState:
        """Begin the migration in one commit, with the states of the indexes that it will build; or find it begun."""
        plan = self._plan
        while True:
            entry, state = read_state(self._engine, plan.id)
            if state is not None and entry is not None:
                if not state.is_cleaned:
                    return state
                # Why: a program of the old layout wrote after the clean-up; what it wrote is carried over like the rest.
                state = structs.replace(state, is_cleaned=False, is_settled=False)
                put = Put(entry.key, encoded(state))
                try:
                    self._engine.commit(Commit((as_read(entry.key, entry),), (put,)))
                except CommitConflictError:
                    continue
                return state
            state = MigrationState(
                old=plan.old.fingerprint,
                new=plan.new.fingerprint,
                old_root=plan.old.root,
                new_root=plan.new.root,
                indexes=plan.indexes_to_build,
            )
            mutations: list[Mutation] = [Put(state_key(plan.id), encoded(state))]
            for name in plan.indexes_to_build:
                value = index_state_value(IndexState(IndexStage.WRITE_ONLY, index_definition(plan.new.indexes[name])))
                mutations.append(Put(index_state_key(plan.new.indexes[name]), value))
            mutations += self._over_before()
            try:
                self._engine.commit(Commit((KeyAbsent(state_key(plan.id)),), tuple(mutations)))
            except CommitConflictError:
                continue  # Why: another run began it.
            return state

    def _over_before(self) -> Iterator[Mutation]:
        """Forget the migrations of these roots that are over: the layout may go back and forth."""
        roots = {self._plan.old.root, self._plan.new.root}
        for entry, state in states_of(self._engine):
            if state.is_cleaned and roots & {state.old_root, state.new_root}:
                yield Delete(entry.key)

    # ---- records -----------------------------------------------------------------------------------------------------------

    def _carry_over(self, work: TableWork) -> None:
        """Go over the table until nothing is left to write; the first time from where an earlier run was."""
        merger = Merger(self._plan.id, work.converter, is_switched=self._is_switched)
        batches = Batches(self._engine, self._backoff)
        hint = cursor_key(self._plan.id, work.name)
        with self._engine.snapshot() as snapshot:
            entry = snapshot.get(hint)
        start = work.old_range.start if entry is None else entry.value
        contests: list[Contest] = []
        for number in range(_PASSES_MAX):
            written = 0
            contests = []
            for decisions in self._pass(work, merger, batches, start, hint if number == 0 else b""):
                for decision in decisions:
                    # Why: a pass that finds nothing to do any more is no news.
                    if number == 0 or decision.outcome is not Outcome.UNCHANGED:
                        self._report.count(decision.outcome)
                    written += decision.commit is not None
                    if decision.contest is not None and len(contests) < _CONTESTS_MAX:
                        contests.append(decision.contest)
            is_whole = start == work.old_range.start
            start = work.old_range.start
            if not written and is_whole:
                break
        self._report.contested += contests

    def _pass(
        self, work: TableWork, merger: Merger, batches: Batches, start: bytes, hint: bytes
    ) -> Iterator[list[Decision]]:
        """Go over the old records from a key on, then over the marks of those that are gone."""
        done = 0
        key_range = KeyRange(start, work.old_range.end)
        while batch := self._batch(key_range):
            keys = [entry.key for entry in batch if work.converter.old.keys.decode(entry.key) is not None]
            decisions = batches.decide(merger, keys)
            yield decisions
            key_range = KeyRange(batch[-1].key + b"\x00", key_range.end)
            if hint and any(decision.commit is not None for decision in decisions):
                self._engine.commit(Commit((), (Put(hint, key_range.start),)))
            done += len(keys)
            self._tell("carrying over", work.name, done)
        key_range = mark_range(self._plan.id)
        while batch := self._batch(key_range):
            marked = [decoded(entry).key for entry in batch]
            yield batches.decide(merger, self._gone(work, marked))
            key_range = KeyRange(batch[-1].key + b"\x00", key_range.end)

    def _gone(self, work: TableWork, keys: Sequence[bytes]) -> list[bytes]:
        """Those of the keys that are of the table, and where nothing stands any more."""
        own = [key for key in keys if work.converter.old.keys.decode(key) is not None]
        with self._engine.snapshot() as snapshot:
            return [key for key, entry in zip(own, snapshot.get_many(own), strict=True) if entry is None]

    def _batch(self, key_range: KeyRange) -> list[Entry]:
        if key_range.is_empty:
            return []
        with self._engine.snapshot() as snapshot:
            return batch_of(snapshot, key_range, _BATCH_RECORDS_MAX)

    def _tell(self, stage: str, item: str, records: int) -> None:
        if self._progress is not None:
            self._progress(MigrationProgress(stage, item, records))

    # ---- counters and indexes ----------------------------------------------------------------------------------------------

    def _counters(self) -> None:
        for old_name, new_name in self._plan.counters_to_move:
            self._backoff.until_committed(partial(move_counter, self._engine, self._plan, old_name, new_name))

    def _build(self, state: MigrationState) -> None:
        """Build the indexes that the migration made unreadable, one after the other."""
        for name in state.indexes:
            index = self._plan.new.indexes[name]
            with self._engine.snapshot() as snapshot:
                is_unready = index_state_of(snapshot.get(index_state_key(index))) is not None
            if is_unready:

                def told(now: object, name: str = name) -> None:
                    self._tell("building", name, getattr(now, "records", 0))

                report = build_index(self._store, self._plan.new, name, progress=told, backoff=self._backoff)
                if not report.is_readable:
                    self._report.entries_contested += report.contested
                    continue
            self._report.built.append(name)

    def _settle(self, state: MigrationState) -> None:
        """Verify, and write down that nothing is left to do but to clean up; or nothing at all."""
        report = self._report
        moved = [work for work in self._plan.tables if work.is_moving]
        report.verified = [verify_table(self._engine, self._plan.id, work) for work in moved]
        is_built = len(report.built) == len(state.indexes)
        report.is_settled = is_built and not report.contested and all(found.is_equal for found in report.verified)

        def write_down() -> None:
            entry, state = read_state(self._engine, self._plan.id)
            if entry is not None and state is not None:
                is_over = report.is_settled and not self._plan.has_clean_up
                state = structs.replace(state, is_settled=report.is_settled, is_cleaned=is_over)
                guard = as_read(entry.key, entry)
                self._engine.commit(Commit((guard,), (Put(entry.key, encoded(state)),)))

        self._backoff.until_committed(write_down)
        if report.is_settled and not self._plan.has_clean_up:
            remove_marks(self._engine, self._plan.id)


def remove_marks(engine: Engine, migration: bytes) -> None:
    """Remove what marks and hints are left when a migration is over; until then they keep records from a second conversion."""
    most = operations_max(engine.profile)
    for key_range in (mark_range(migration), cursor_range(migration)):
        while True:
            with engine.snapshot() as snapshot:
                keys = [entry.key for entry in snapshot.scan(key_range, limit=most, keys_only=True)]
            if not keys:
                break
            engine.commit(Commit((), tuple(map(Delete, keys))))


def move_counter(engine: Engine, plan: MigrationPlan, old_name: str, new_name: str) -> None:
    """Let a counter go on from the old number where that is greater. Raises CommitConflictError when somebody drew one."""
    old, new = plan.old.counters[old_name], plan.new.counters[new_name]
    with engine.snapshot() as snapshot:
        before, after = snapshot.get_many([old.raw_key, new.raw_key])
    if before is None:
        return
    number = old.decode(before.value)
    if after is not None and new.decode(after.value) >= number:
        return
    guards = as_read(old.raw_key, before), as_read(new.raw_key, after)
    engine.commit(Commit(guards, (Put(new.raw_key, new.encode(max(number, new.start))),)))


def require_state(engine: Engine, plan: MigrationPlan) -> tuple[Entry, MigrationState]:
    """Return the state of a migration that was begun. Raises MigrationRefusedError."""
    entry, state = read_state(engine, plan.id)
    if entry is None or state is None:
        raise MigrationRefusedError(obstacles=("the migration was not begun",))
    return entry, state
