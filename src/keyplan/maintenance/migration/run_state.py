"""The stored state of a migration while a run works by it: begun, taken over, changed. Every write of a run is guarded by it.

So a run that was taken over, or whose migration has ended, writes nothing any more; and no migration begins beside another
one of its roots, beside a restore or a copy into them, or to convert records that were converted before.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from uuid import uuid4

from msgspec import structs

from keyplan.engine import Commit, Delete, Engine, Entry, Guard, KeyRange, KeyUnchanged, Mutation, Put, Snapshot
from keyplan.errors import CommitConflictError, MigrationRefusedError
from keyplan.layout import shown_key
from keyplan.maintenance.batches import Held, operations_max
from keyplan.maintenance.claims import standing_claims
from keyplan.maintenance.definitions import index_definition, table_definition
from keyplan.maintenance.migration.marks import (
    MigrationState,
    RootTurn,
    as_read,
    cursor_range,
    decoded,
    encoded,
    mark_range,
    state_key,
    states_in,
    turn_key,
)
from keyplan.maintenance.migration.plan import MigrationPlan
from keyplan.maintenance.migration.table_layouts import ConversionStage, conversion_stage, layouts_of
from keyplan.store import IndexStage, IndexState, index_state_key, index_state_value

__all__ = ["RunState", "Seen", "begin_run", "remove_leftovers", "take_over"]

_TAKEN_OVER: Final = (
    "another run of this migration has taken it over, or has ended it: plan it again to see what is left"
)
_OVER: Final = "the migration was ended since it was planned, and nothing is done twice: plan it again"


class Seen(NamedTuple):
    """The entry of a migration's state as it was read, and the epoch."""

    entry: Entry
    epoch: str

    @property
    def held(self) -> Held:
        """That the state is as it was read."""
        return Held(KeyUnchanged(self.entry.key, self.entry.mod_revision), self.epoch)


class RunState:
    """The state of one migration, as this run has read or written it, in the epoch that `seen` names."""

    def __init__(self, engine: Engine, migration: bytes, seen: "Seen") -> None:
        self._engine = engine
        self._migration = migration
        self._seen = seen
        self.state: MigrationState = decoded(seen.entry)

    def commit(self, commit: Commit) -> None:
        """Commit while the state stands. Raises MigrationRefusedError when it does not, else CommitConflictError."""
        held = self._seen.held
        try:
            # Why the state's epoch: what was read since was read in it, or it is over, and the commit is refused.
            self._engine.commit(Commit((held.guard, *commit.guards), commit.mutations, held.epoch))
        except CommitConflictError:
            with self._engine.snapshot() as snapshot:
                entry = snapshot.get(self._seen.entry.key)
                epoch = snapshot.epoch
            if entry is None or Seen(entry, epoch).held != held:
                raise MigrationRefusedError(obstacles=(_TAKEN_OVER,)) from None
            raise

    def save(self, state: MigrationState, *, guards: Iterable[Guard] = (), mutations: Iterable[Mutation] = ()) -> None:
        """Write another state over this run's, with further mutations in the same commit. Raises as `commit`."""
        value = encoded(state)
        key = self._seen.entry.key
        self.commit(Commit(tuple(guards), (Put(key, value), *mutations), self._seen.epoch))
        self._seen = _written(self._engine, key, value)
        self.state = state

    def end(self) -> None:
        """Write down that the migration is over, give its roots free, and remove what is left of it."""
        with self._engine.snapshot() as snapshot:
            turns = [entry for entry in _turns(snapshot, self.state) if decoded(entry).migration == self._migration]
        # Why without the run: what is left of two migrations that did the same is the same.
        over = structs.replace(self.state, is_settled=True, is_cleaned=True, run="")
        guards = [as_read(entry.key, entry) for entry in turns]
        self.save(over, guards=guards, mutations=[Delete(entry.key) for entry in turns])
        _remove_marks(self._engine, self._migration, self._seen.held)


def begin_run(engine: Engine, plan: MigrationPlan, *, is_switched: bool) -> RunState:
    """Begin the migration in one commit, with the states of the indexes that it will build; or find it begun.

    With `is_switched` the run takes the migration over: an earlier one writes nothing any more. Raises MigrationRefusedError
    when something is in the way by now, CommitConflictError when somebody came between.
    """
    key = state_key(plan.id)
    with engine.snapshot() as snapshot:
        entry = snapshot.get(key)
        state: MigrationState | None = None if entry is None else decoded(entry)
        obstacles = list(_obstacles(plan, state, snapshot))
        if obstacles:
            raise MigrationRefusedError(obstacles=tuple(obstacles))
        epoch = snapshot.epoch
        if entry is not None and state is not None and not state.is_cleaned:
            seen = Seen(entry, epoch)
            return take_over(engine, plan.id, seen) if is_switched else RunState(engine, plan.id, seen)
        guards, mutations = _beginning(plan, state, snapshot)
    # Why: marks of an earlier time, left by a run that died at its end, would tell of records that are others by now.
    _remove_marks(engine, plan.id, Held(as_read(key, entry), epoch))
    run = uuid4().hex
    indexes = plan.indexes_to_build
    fresh = MigrationState(
        old=plan.old.fingerprint,
        new=plan.new.fingerprint,
        old_root=plan.old.root,
        new_root=plan.new.root,
        indexes=indexes,
        run=run,
    )
    begun = fresh if state is None else structs.replace(state, is_cleaned=False, is_settled=False, run=run)
    value = encoded(begun)
    for root in sorted({plan.old.root, plan.new.root}):
        mutations.append(Put(turn_key(root), encoded(RootTurn(root, plan.id, run))))
    engine.commit(Commit((as_read(key, entry), *guards), (Put(key, value), *mutations), epoch))
    return RunState(engine, plan.id, _written(engine, key, value))


def take_over(engine: Engine, migration: bytes, seen: Seen) -> RunState:
    """Let this run have the migration alone. Raises CommitConflictError when another one took it just now."""
    state: MigrationState = decoded(seen.entry)
    key, value = seen.entry.key, encoded(structs.replace(state, run=uuid4().hex))
    engine.commit(Commit((seen.held.guard,), (Put(key, value),), seen.epoch))
    return RunState(engine, migration, _written(engine, key, value))


def remove_leftovers(engine: Engine, migration: bytes) -> None:
    """Remove the marks of a migration that is over, which a run left that died at its end."""
    with engine.snapshot() as snapshot:
        entry = snapshot.get(state_key(migration))
        epoch = snapshot.epoch
    if entry is not None and decoded(entry).is_cleaned:
        _remove_marks(engine, migration, Seen(entry, epoch).held)


def _obstacles(plan: MigrationPlan, state: MigrationState | None, snapshot: Snapshot) -> Iterator[str]:
    """What came into the way since the plan was made."""
    roots = {plan.old.root, plan.new.root}
    for prefix, claim in standing_claims(snapshot, roots):
        yield f"a {claim.kind} into {shown_key(prefix) or 'the whole store'} is not finished: give its command again first"
    for entry, other in states_in(snapshot):
        if not other.is_cleaned and entry.key != state_key(plan.id) and roots & {other.old_root, other.new_root}:
            yield f"another migration of this root is under way: {other.old} to {other.new}"
    if plan.reopens if state is None else state.is_cleaned and not plan.reopens:
        yield _OVER
    elif state is None:
        for work in plan.tables:
            stage = _stage(plan, work.name, snapshot) if work.is_in_place else ConversionStage.DUE
            if stage is not ConversionStage.DUE and f"from:{work.name}" not in plan.accepts:
                yield f"{work.name}: {_OVER}"


def _stage(plan: MigrationPlan, table: str, snapshot: Snapshot) -> ConversionStage:
    old_key, _ = layouts_of(plan, table)
    old_name = next(work.converter.old.name for work in plan.tables if work.name == table)
    old, new = table_definition(plan.old, old_name), table_definition(plan.new, table)
    return conversion_stage(snapshot.get(old_key), plan.id, old, new)


def _beginning(
    plan: MigrationPlan, state: MigrationState | None, snapshot: Snapshot
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
    return [as_read(key, snapshot.get(key)) for key in dict.fromkeys(keys)], mutations


def _turns(snapshot: Snapshot, state: MigrationState) -> list[Entry]:
    keys = [turn_key(root) for root in sorted({state.old_root, state.new_root})]
    return [entry for entry in snapshot.get_many(keys) if entry is not None]


def _remove_marks(engine: Engine, migration: bytes, held: Held) -> None:
    """Remove marks and hints while the state is held: until a migration is over they keep records from a second conversion."""
    for key_range in (mark_range(migration), cursor_range(migration)):
        while True:
            with engine.snapshot() as snapshot:
                keys = _first_keys(snapshot, key_range, operations_max(engine.profile) - 1)
            if not keys:
                break
            engine.commit(Commit((held.guard,), tuple(map(Delete, keys)), held.epoch))


def _first_keys(snapshot: Snapshot, key_range: KeyRange, limit: int) -> list[bytes]:
    return [entry.key for entry in snapshot.scan(key_range, limit=limit, keys_only=True)]


def _written(engine: Engine, key: bytes, value: bytes) -> Seen:
    """The entry that was just written there. Raises CommitConflictError when it is somebody else's by now."""
    with engine.snapshot() as snapshot:
        entry = snapshot.get(key)
        epoch = snapshot.epoch
    if entry is None or entry.value != value:
        raise CommitConflictError(failed=())
    return Seen(entry, epoch)
