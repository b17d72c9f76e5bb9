"""The stored state of a migration while a run works by it: begun, taken over, changed. Every write of a run is guarded by it.

So a run that was taken over, or whose migration has ended, writes nothing any more; and no migration begins beside another
one of its roots, beside a restore or a copy into them, or to convert records that were converted before.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

from msgspec import structs

from keyplan.engine import (
    SYSTEM_CLOCK,
    Commit,
    Delete,
    Engine,
    Entry,
    Guard,
    KeyRange,
    Mutation,
    Put,
    Snapshot,
    utc_time,
)
from keyplan.errors import MigrationRefusedError, StoppedError
from keyplan.jobs import UNPACED, UNSTOPPED, Held, Job, JobRecord, Pace, Seen, StopCheck, as_read, begun, operations_max
from keyplan.layout import BoundIndex, BoundLayout, shown_key
from keyplan.maintenance.claims import standing_claims
from keyplan.maintenance.definitions import index_definition, table_definition
from keyplan.maintenance.migration.marks import (
    STATE_FORM,
    MigrationState,
    RootTurn,
    Stage,
    TableStage,
    cursor_range,
    decoded,
    encoded,
    mark_range,
    origin_range,
    seen_state,
    state_key,
    states_in,
    turn_key,
)
from keyplan.maintenance.migration.plan import MigrationPlan
from keyplan.maintenance.migration.root_history import (
    NOTHING_REMEMBERED,
    Remembered,
    began,
    contracted,
    ended,
    is_current_layout,
    switched,
)
from keyplan.maintenance.migration.table_layouts import ConversionStage, conversion_stage, is_welcome, layouts_of
from keyplan.store import IndexStage, IndexState, index_state_key, index_state_value

__all__ = [
    "LEFT",
    "Run",
    "at_stage",
    "begin_run",
    "claim_obstacles",
    "end_run",
    "left_layout",
    "refuse_readers",
    "remove_leftovers",
    "take_over",
    "undo_run",
]

_TAKEN_OVER: Final = (
    "another run of this migration has taken it over, or has ended it: plan it again to see what is left"
)
_ROLLING_BACK: Final = "the migration is being rolled back: finish that, then begin it anew"
LEFT: Final = (
    "another migration has ended here since, and the store is not in the old layout any more: name the one it is in"
)
_OVER: Final = "the migration was ended since it was planned, and nothing is done twice: plan it again"


Run: TypeAlias = Job[MigrationState]
"""A migration while a run works by its state."""


def _taken_over(_problem: str) -> MigrationRefusedError:
    return MigrationRefusedError(obstacles=(_TAKEN_OVER,))


def at_stage(state: MigrationState, stage: TableStage, *tables: str) -> MigrationState:
    """Return the state with tables at another stage."""
    return structs.replace(state, tables={**state.tables, **dict.fromkeys(tables, stage)})


def end_run(run: Run, plan: MigrationPlan) -> None:
    """Write down that the migration is over, give its roots free, and remove what is left of it."""
    with run.engine.snapshot() as snapshot:
        turns = _turns(snapshot, run.record, plan.id)
        remembered = [contracted(plan, snapshot), _past(plan, run, snapshot, is_rolled_back=False)]
    # Why without the job's own: what is left of two migrations that did the same is the same.
    own = {name: getattr(JobRecord(), name) for name in JobRecord.__struct_fields__}
    done = at_stage(run.record, TableStage.DONE, *(work.name for work in plan.tables))
    over = structs.replace(done, is_settled=True, is_cleaned=True, **own)
    guards = [guard for one in (turns, *remembered) for guard in one.guards]
    mutations = [mutation for one in (turns, *remembered) for mutation in one.mutations]
    run.commit(mutations, guards=guards, record=over)
    # Why: the migration is over, and marks that are left say nothing any more.
    with suppress(StoppedError):
        _remove_marks(run.engine, plan.id, run.held, run.stops)


def undo_run(run: Run, plan: MigrationPlan) -> None:
    """Write down that the migration was rolled back, give its roots free, and forget it: it may be begun anew."""
    _remove_marks(run.engine, plan.id, run.held, run.stops)
    with run.engine.snapshot() as snapshot:
        both = _turns(snapshot, run.record, plan.id), _past(plan, run, snapshot, is_rolled_back=True)
    guards = [guard for one in both for guard in one.guards]
    run.end(mutations=[mutation for one in both for mutation in one.mutations], guards=guards)


def _past(plan: MigrationPlan, run: Run, snapshot: Snapshot, *, is_rolled_back: bool) -> Remembered:
    now = utc_time(SYSTEM_CLOCK.wall())
    return ended(plan, run.record, snapshot, now, is_rolled_back=is_rolled_back)


def begin_run(
    engine: Engine,
    plan: MigrationPlan,
    *,
    is_switched: bool,
    command: Sequence[str] = (),
    stops: StopCheck = UNSTOPPED,
    pace: Pace = UNPACED,
) -> Run:
    """Begin the migration in one commit, with the states of the indexes that it will build; or find it begun.

    With `is_switched` the run takes the migration over: an earlier one writes nothing any more. Raises MigrationRefusedError
    when something is in the way by now, CommitConflictError when somebody came between, StoppedError.
    """
    stops.check()
    stage = Stage.SWITCHING if is_switched else Stage.FILLING
    with engine.snapshot() as snapshot:
        seen = seen_state(snapshot, plan.id)
        state = seen.record
        obstacles = list(_obstacles(plan, state, snapshot))
        if obstacles:
            raise MigrationRefusedError(obstacles=tuple(obstacles))
        if state is not None and not state.is_cleaned:
            if state.stage == Stage.ROLLING_BACK:
                raise MigrationRefusedError(obstacles=(_ROLLING_BACK,))
            if is_switched:
                return take_over(engine, seen, stage, command, stops, pace, switched(plan, snapshot))
            return Job(engine, seen, STATE_FORM, lost=_taken_over, is_shared=True, stops=stops, pace=pace)
        remembered = switched(plan, snapshot) if is_switched else began(plan, snapshot)
        guards, mutations = _beginning(plan, state, snapshot, remembered)
    # Why: marks of an earlier time, left by a run that died at its end, would tell of records that are others by now.
    _remove_marks(engine, plan.id, seen.held, stops)
    fresh = MigrationState(
        old=plan.old.fingerprint,
        new=plan.new.fingerprint,
        old_root=plan.old.root,
        new_root=plan.new.root,
        indexes=plan.indexes_to_build,
        name=plan.name,
    )
    kept = fresh if state is None else structs.replace(state, is_cleaned=False, is_settled=False, was_cleaned=True)
    moving = [work.name for work in plan.tables if work.is_moving or state is None]
    record = begun(at_stage(kept, TableStage.FILLING, *moving), command=command, stage=stage)
    for root in sorted({plan.old.root, plan.new.root}):
        mutations.append(Put(turn_key(root), encoded(RootTurn(root, plan.id, record.run))))
    begin = partial(Job.begin, engine, seen, record, STATE_FORM, lost=_taken_over, is_shared=not is_switched)
    return begin(mutations=mutations, guards=guards, stops=stops, pace=pace)


def refuse_readers(run: Run, index: BoundIndex, entry: Entry | None) -> None:
    """Make an index write-only over the state that was read, while this run has the migration."""
    raw_key = index_state_key(index)
    value = index_state_value(IndexState(IndexStage.WRITE_ONLY, index_definition(index)))
    run.commit([Put(raw_key, value)], guards=[as_read(raw_key, entry)])


def take_over(
    engine: Engine,
    seen: Seen[MigrationState],
    stage: Stage,
    command: Sequence[str] = (),
    stops: StopCheck = UNSTOPPED,
    pace: Pace = UNPACED,
    remembered: Remembered = NOTHING_REMEMBERED,
) -> Run:
    """Let this run have the migration alone, and write down with it what is `remembered`.

    Raises CommitConflictError when another one took it just now.
    """
    assert seen.record is not None
    record = begun(seen.record, command=command, stage=stage)
    begin = partial(Job.begin, engine, seen, record, STATE_FORM, lost=_taken_over, stops=stops, pace=pace)
    return begin(mutations=remembered.mutations, guards=remembered.guards)


def remove_leftovers(engine: Engine, migration: bytes) -> None:
    """Remove the marks of a migration that is over, which a run left that died at its end."""
    with engine.snapshot() as snapshot:
        seen = seen_state(snapshot, migration)
    if seen.record is not None and seen.record.is_cleaned:
        _remove_marks(engine, migration, seen.held, UNSTOPPED)


def claim_obstacles(plan: MigrationPlan, snapshot: Snapshot) -> Iterator[str]:
    """Copies and restores into the migration's roots that are not finished."""
    for prefix, claim in standing_claims(snapshot, {plan.old.root, plan.new.root}):
        yield f"a {claim.kind} into {shown_key(prefix) or 'the whole store'} is not finished: give its command again first"


def _obstacles(plan: MigrationPlan, state: MigrationState | None, snapshot: Snapshot) -> Iterator[str]:
    """What came into the way since the plan was made."""
    roots = {plan.old.root, plan.new.root}
    yield from claim_obstacles(plan, snapshot)
    for entry, other in states_in(snapshot):
        if not other.is_cleaned and entry.key != state_key(plan.id) and roots & {other.old_root, other.new_root}:
            yield f"another migration of this root is under way: {other.old} to {other.new}"
        if state is None and left_layout(entry, other, plan.id, plan.old):
            yield LEFT
    if (plan.reopens if state is None else state.is_cleaned and not plan.reopens) or (
        state is not None and state.is_cleaned and not is_current_layout(snapshot, plan.new)
    ):
        yield _OVER
    elif state is None:
        for work in plan.tables:
            stage = _stage(plan, work.name, snapshot) if work.is_in_place else ConversionStage.DUE
            if stage is not ConversionStage.DUE and f"from:{work.name}" not in plan.accepts:
                yield f"{work.name}: {_OVER}"


def left_layout(entry: Entry, state: MigrationState, migration: bytes, layout: BoundLayout) -> bool:
    """Whether another migration that has ended took what is stored out of a layout, so that none can begin there.

    One that led back to the layout since has let the store forget this one.
    """
    is_from_there = (state.old, state.old_root) == (layout.fingerprint, layout.root)
    return state.is_cleaned and is_from_there and entry.key != state_key(migration)


def _stage(plan: MigrationPlan, table: str, snapshot: Snapshot) -> ConversionStage:
    old_key, _ = layouts_of(plan, table)
    old_name = next(work.route.sources[0].name for work in plan.tables if work.name == table)
    old, new = table_definition(plan.old, old_name), table_definition(plan.new, table)
    return conversion_stage(snapshot.get(old_key), plan.id, old, new, is_welcome=is_welcome(plan.old, snapshot))


def _beginning(
    plan: MigrationPlan, state: MigrationState | None, snapshot: Snapshot, remembered: Remembered
) -> tuple[list[Guard], list[Mutation]]:
    """What else is written when the migration begins, and what that rests on."""
    keys = [turn_key(root) for root in sorted({plan.old.root, plan.new.root})]
    mutations: list[Mutation] = []
    if state is None:
        keys += [key for work in plan.tables if work.is_in_place for key in layouts_of(plan, work.name)]
        for name in plan.indexes_to_build:
            index = plan.new.indexes[name]
            value = index_state_value(IndexState(IndexStage.WRITE_ONLY, index_definition(index)))
            mutations.append(Put(index_state_key(index), value))
            keys.append(index_state_key(index))
        for entry, other in states_in(snapshot):
            # Why forgotten: the store comes back to the layout from which that one went, and it may be wanted again.
            if other.is_cleaned and other.old == plan.new.fingerprint and entry.key != state_key(plan.id):
                mutations.append(Delete(entry.key))
                keys.append(entry.key)
    guards = [*remembered.guards, *(as_read(key, snapshot.get(key)) for key in dict.fromkeys(keys))]
    return guards, [*mutations, *remembered.mutations]


def _turns(snapshot: Snapshot, state: MigrationState, migration: bytes) -> Remembered:
    """The end of the migration's turns at its roots."""
    keys = [turn_key(root) for root in sorted({state.old_root, state.new_root})]
    own = [entry for entry in snapshot.get_many(keys) if entry is not None and decoded(entry).migration == migration]
    return Remembered.of(snapshot, [Delete(entry.key) for entry in own])


def _remove_marks(engine: Engine, migration: bytes, held: Held, stops: StopCheck) -> None:
    """Remove marks and hints while the state is held: until a migration is over they keep records from a second conversion.

    Raises StoppedError.
    """
    for key_range in (mark_range(migration), origin_range(migration), cursor_range(migration)):
        while True:
            with engine.snapshot() as snapshot:
                keys = _first_keys(snapshot, key_range, operations_max(engine.profile) - 1)
            if not keys:
                break
            stops.check()
            engine.commit(Commit((held.guard,), tuple(map(Delete, keys)), held.epoch))


def _first_keys(snapshot: Snapshot, key_range: KeyRange, limit: int) -> list[bytes]:
    return [entry.key for entry in snapshot.scan(key_range, limit=limit, keys_only=True)]
