"""What the store remembers of its roots: which layouts programs may use there now, and which migrations have ended there."""

from collections.abc import Iterable
from typing import NamedTuple

from keyplan.engine import Commit, Delete, Engine, Guard, Put, Snapshot
from keyplan.jobs import as_read
from keyplan.layout import BoundLayout, pair_items
from keyplan.maintenance.definitions import table_definition
from keyplan.maintenance.migration.marks import (
    MigrationState,
    PastMigration,
    RootLayouts,
    TableLayout,
    decoded,
    encoded,
    history_range,
    layout_key,
    next_history_key,
    root_key,
    states_in,
)
from keyplan.maintenance.migration.plan import MigrationPlan
from keyplan.maintenance.migration.table_layouts import recorded

__all__ = [
    "Remembered",
    "began",
    "contracted",
    "ended",
    "history_of",
    "is_current_layout",
    "layouts_at",
    "remember_layout",
    "switched",
]


class Remembered(NamedTuple):
    """What is to be written about roots and tables along with a step of a migration, and what that rests on."""

    guards: list[Guard]
    mutations: list[Put | Delete]

    @classmethod
    def of(cls, snapshot: Snapshot, mutations: Iterable[Put | Delete]) -> "Remembered":
        """Guard the keys of mutations as they are."""
        mutations = list(mutations)
        keys = [mutation.key for mutation in mutations]
        guards = [as_read(key, entry) for key, entry in zip(keys, snapshot.get_many(keys), strict=True)]
        return cls(guards, mutations)


def layouts_at(snapshot: Snapshot, root: bytes) -> RootLayouts | None:
    """Return which layouts programs may use at a root now; None where nothing was ever migrated. Raises CorruptionError."""
    entry = snapshot.get(root_key(root))
    found: RootLayouts | None = None if entry is None else decoded(entry)
    return found


def is_current_layout(snapshot: Snapshot, layout: BoundLayout) -> bool:
    """Whether programs may use a layout at its root now, as far as the store knows.

    Why asked: records at the old place of a migration that is over are an old program's only as long as no later layout has it.
    """
    found = layouts_at(snapshot, layout.root)
    return found is None or layout.fingerprint in found.layouts


def history_of(engine: Engine, root: bytes) -> list[PastMigration]:
    """Return the migrations that have ended at a root, the first one first. Raises CorruptionError."""
    with engine.snapshot() as snapshot:
        return [decoded(entry) for entry in snapshot.scan(history_range(root))]


def began(plan: MigrationPlan, snapshot: Snapshot) -> Remembered:
    """Programs of both layouts are at work from now on."""
    old, new = plan.old, plan.new
    if old.root == new.root:
        return Remembered.of(snapshot, [_layouts(old.root, old.fingerprint, new.fingerprint)])
    return Remembered.of(snapshot, [_layouts(old.root, old.fingerprint), _layouts(new.root, new.fingerprint)])


def switched(plan: MigrationPlan, snapshot: Snapshot) -> Remembered:
    """No program of the old layout is to write any more."""
    mutations: list[Put | Delete] = [_layouts(plan.new.root, plan.new.fingerprint)]
    if plan.old.root != plan.new.root:
        mutations.append(_layouts(plan.old.root, moved_to=plan.new.root))
    return Remembered.of(snapshot, mutations)


def remember_layout(engine: Engine, plan: MigrationPlan) -> None:
    """Write down that programs of the new layout may use a root where nothing has to be done for them.

    Only where something was migrated before, and the old layout is one that may be used: else nobody asks, or the plan is of
    another time. Raises CommitConflictError.
    """
    with engine.snapshot() as snapshot:
        found = layouts_at(snapshot, plan.new.root)
        new, old = plan.new.fingerprint, plan.old.fingerprint
        if found is None or new in found.layouts or old not in found.layouts:
            return
        mutations = [_layouts(plan.new.root, *found.layouts, new), *_definitions(plan, snapshot).values()]
        # Why forgotten: the store comes back to the layout from which that one went, and it may be wanted again.
        mutations += [Delete(entry.key) for entry, state in states_in(snapshot) if _has_left(state, plan.new)]
        remembered = Remembered.of(snapshot, mutations)
        commit = Commit(tuple(remembered.guards), tuple(remembered.mutations), snapshot.epoch)
    engine.commit(commit)


def _has_left(state: MigrationState, layout: BoundLayout) -> bool:
    """Whether a migration that is over went from this layout."""
    return state.is_cleaned and (state.old, state.old_root) == (layout.fingerprint, layout.root)


def _definitions(plan: MigrationPlan, snapshot: Snapshot) -> dict[bytes, Put | Delete]:
    """What is remembered of tables, as of the new layout: a table whose records fit both has another definition, perhaps."""
    pairs = pair_items(plan.old.spec, plan.new.spec).tables
    mutations: dict[bytes, Put | Delete] = {}
    for old, new in pairs:
        raw_key = layout_key(plan.old.root, old.name)
        entry = snapshot.get(raw_key)
        if entry is None or decoded(entry).definition != table_definition(plan.old, old.name):
            continue
        layout = TableLayout(plan.new.root, new.name, table_definition(plan.new, new.name), decoded(entry).migrations)
        mutations.setdefault(raw_key, Delete(raw_key))
        moved = layout_key(plan.new.root, new.name)
        mutations[moved] = Put(moved, encoded(layout))
    return mutations


def contracted(plan: MigrationPlan, snapshot: Snapshot) -> Remembered:
    """What was migrated has the definitions of the new layout."""
    mutations = _definitions(plan, snapshot)
    for work in plan.tables:
        keys = [layout_key(plan.old.root, table.name) for table in work.route.sources]
        befores = snapshot.get_many(keys)
        mutations |= {entry.key: Delete(entry.key) for entry in befores if entry is not None}
        for table in work.route.targets:
            put = recorded(plan, table.name, *befores)
            mutations[put.key] = put
    return Remembered.of(snapshot, mutations.values())


def ended(
    plan: MigrationPlan, state: MigrationState, snapshot: Snapshot, ended_at: str, *, is_rolled_back: bool
) -> Remembered:
    """The migration is over, one way or the other."""
    mutations: list[Put | Delete] = [*switched(plan, snapshot).mutations]
    if is_rolled_back:
        mutations = [_layouts(plan.old.root, plan.old.fingerprint)]
        if plan.old.root != plan.new.root:
            mutations.append(Delete(root_key(plan.new.root)))
    for root in sorted({plan.old.root, plan.new.root}):
        names = plan.name or state.name, plan.id, plan.old.fingerprint, plan.new.fingerprint
        past = PastMigration(root, *names, state.begun_at, ended_at, is_rolled_back)
        mutations.append(Put(next_history_key(snapshot, root), encoded(past)))
    return Remembered.of(snapshot, mutations)


def _layouts(root: bytes, *layouts: str, moved_to: bytes | None = None) -> Put:
    return Put(root_key(root), encoded(RootLayouts(root, layouts, moved_to)))
