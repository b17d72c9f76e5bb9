"""What is written of roots with the steps of a migration: the layouts that programs may use there, and what has ended there."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from msgspec import structs

from keyplan.engine import Commit, Delete, Engine, Guard, Put, Snapshot
from keyplan.errors import MigrationRefusedError
from keyplan.jobs import as_read
from keyplan.layout import BoundLayout, pair_items, shown_key
from keyplan.maintenance.definitions import table_definition
from keyplan.maintenance.migration.marks import (
    MigrationState,
    PastMigration,
    TableLayout,
    decoded,
    encoded,
    history_range,
    layout_key,
    next_history_key,
    states_in,
)
from keyplan.maintenance.migration.plan import MigrationPlan
from keyplan.maintenance.migration.table_layouts import recorded
from keyplan.store import Backoff, LeftLayout, NotedLayout, RootLayouts, layouts_at, root_key, root_note

__all__ = [
    "NOTHING_REMEMBERED",
    "Remembered",
    "began",
    "contracted",
    "ended",
    "going_back",
    "history_of",
    "is_current_layout",
    "note_layout",
    "remember_layout",
    "switched",
]

_NOTED_MAX: Final = 32
"""How many layouts a root notes that programs may use, and how many that were left. Why: each release may bring one more."""


class Remembered(NamedTuple):
    """What is to be written about roots and tables along with a step of a migration, and what that rests on."""

    guards: Sequence[Guard]
    mutations: Sequence[Put | Delete]

    @classmethod
    def of(cls, snapshot: Snapshot, mutations: Iterable[Put | Delete]) -> "Remembered":
        """Guard the keys of mutations as they are."""
        mutations = list(mutations)
        keys = [mutation.key for mutation in mutations]
        guards = [as_read(key, entry) for key, entry in zip(keys, snapshot.get_many(keys), strict=True)]
        return cls(guards, mutations)


NOTHING_REMEMBERED: Final = Remembered((), ())


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


def note_layout(engine: Engine, layout: BoundLayout) -> None:
    """Note that programs use a layout at its root, where nothing was migrated yet; whoever binds another one is told.

    Where it is noted already, nothing is written; that of another application below the root stays beside it. Raises
    MigrationRefusedError where another one is noted that has something in common with it, or everything was moved.
    """
    Backoff().until_committed(partial(_note_layout, engine, layout))


def _note_layout(engine: Engine, layout: BoundLayout) -> None:
    with engine.snapshot() as snapshot:
        found = layouts_at(snapshot, layout.root)
        if found is not None and layout.fingerprint in found.layouts:
            return
        found = RootLayouts(layout.root, ()) if found is None else found
        own = found.of_application(layout)
        if own or found.moved_to is not None or any(one.fingerprint == layout.fingerprint for one in found.left):
            noted = ", ".join(map(str, own or found.noted)) or f"moved to {shown_key(found.moved_to or b'')}"
            problem = f"the store notes another layout for {shown_key(layout.root)} ({noted}): migrate it to this one"
            raise MigrationRefusedError(obstacles=(problem,))
        note = root_note(structs.replace(found, noted=(*found.noted, NotedLayout.of(layout))))
        remembered = Remembered.of(snapshot, [note])
        commit = Commit(tuple(remembered.guards), tuple(remembered.mutations), snapshot.epoch)
    engine.commit(commit)


def began(plan: MigrationPlan, snapshot: Snapshot) -> Remembered:
    """Programs of both layouts are at work from now on, and of those that fit the old one."""
    old, new = plan.old, plan.new
    if _has_led(plan, snapshot):
        return _as_it_is(plan, snapshot)
    noted = [*_fitting(plan, snapshot), NotedLayout.of(old)]
    notes = [(old.root, noted), (new.root, [NotedLayout.of(new)])]
    if old.root == new.root:
        notes = [(old.root, [*noted, NotedLayout.of(new)])]
    return Remembered.of(snapshot, [_note(plan, snapshot, *one, is_under_way=True) for one in notes])


def _has_led(plan: MigrationPlan, snapshot: Snapshot) -> bool:
    """Whether the roots are as the migration has left them, so that a run of it now is for records that came late.

    Why asked: layouts that came after the new one are noted beside it, and programs use them.
    """
    before, after = layouts_at(snapshot, plan.old.root), layouts_at(snapshot, plan.new.root)
    if before is None or after is None or plan.new.fingerprint not in after.layouts:
        return False
    return plan.old.fingerprint not in before.layouts and any(
        one.fingerprint == plan.old.fingerprint and not one.is_rolled_back for one in before.left
    )


def _as_it_is(plan: MigrationPlan, snapshot: Snapshot) -> Remembered:
    """Rest on what the roots note, and write nothing."""
    keys = sorted({root_key(plan.old.root), root_key(plan.new.root)})
    return Remembered([as_read(key, entry) for key, entry in zip(keys, snapshot.get_many(keys), strict=True)], ())


def switched(plan: MigrationPlan, snapshot: Snapshot) -> Remembered:
    """No program of the old layout is to write any more. Why from the run's begin: it may convert records where they stand."""
    old, new = plan.old, plan.new
    if _has_led(plan, snapshot):
        return _as_it_is(plan, snapshot)
    left = [
        LeftLayout(one.fingerprint, one.name, _name(plan)) for one in [*_fitting(plan, snapshot), NotedLayout.of(old)]
    ]
    notes = [_note(plan, snapshot, new.root, [NotedLayout.of(new)], left if old.root == new.root else ())]
    if old.root != new.root:
        notes.append(_note(plan, snapshot, old.root, (), left, moved_to=new.root))
    return Remembered.of(snapshot, notes)


def going_back(plan: MigrationPlan, snapshot: Snapshot) -> Remembered:
    """No program of the new layout is to write any more; those of the old one, and of what fitted it, are welcome again."""
    old, new = plan.old, plan.new
    before = layouts_at(snapshot, old.root)
    again = [
        one
        for one in (() if before is None else before.left)
        if one.migration == _name(plan) and not one.is_rolled_back
    ]
    noted = [NotedLayout(one.fingerprint, one.name) for one in again if one.fingerprint != old.fingerprint]
    noted = noted or list(_fitting(plan, snapshot))
    left = [LeftLayout(new.fingerprint, new.name, _name(plan), is_rolled_back=True)]
    notes = [_note(plan, snapshot, old.root, [*noted, NotedLayout.of(old)], left if old.root == new.root else ())]
    if old.root != new.root:
        notes.append(_note(plan, snapshot, new.root, (), left, moved_to=old.root))
    return Remembered.of(snapshot, notes)


def _fitting(plan: MigrationPlan, snapshot: Snapshot) -> Iterator[NotedLayout]:
    """The layouts noted beside the old one, which differ from it in nothing that took a migration."""
    found = layouts_at(snapshot, plan.old.root)
    if found is not None and plan.old.fingerprint in found.layouts:
        for one in found.of_application(plan.old):
            if one.fingerprint not in {plan.old.fingerprint, plan.new.fingerprint}:
                # Why without: a layout is compared with those that the migration is between.
                yield structs.replace(one, description="")


def _note(
    plan: MigrationPlan,
    snapshot: Snapshot,
    root: bytes,
    noted: Sequence[NotedLayout],
    left: Sequence[LeftLayout] = (),
    *,
    moved_to: bytes | None = None,
    is_under_way: bool = False,
) -> Put:
    """Note the layouts of a root behind those of other applications, and those that have left it behind earlier ones."""
    before = layouts_at(snapshot, root) or RootLayouts(root, ())
    again = {one.fingerprint for one in noted} | {one.fingerprint for one in left}
    own = {one.fingerprint for one in before.of_application(plan.old, plan.new)} | again
    others = [one for one in before.noted if one.fingerprint not in own]
    every = (*(one for one in before.left if one.fingerprint not in again), *left)
    both = (*others, *noted)
    return root_note(RootLayouts(root, both, moved_to, _name(plan), every[-_NOTED_MAX:], is_under_way))


def _name(plan: MigrationPlan) -> str:
    return plan.name or f"the migration from {plan.old.name} to {plan.new.name}"


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
        # Why without: layouts are compared with the newest one, and the others are known by their fingerprints.
        own = found.of_application(plan.old, plan.new)
        others = [one for one in found.noted if one not in own]
        earlier = [structs.replace(one, description="") for one in own[1 - _NOTED_MAX :]]
        noted = structs.replace(found, noted=(*others, *earlier, NotedLayout.of(plan.new)))
        mutations = [root_note(noted), *_definitions(plan, snapshot).values()]
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
    notes = going_back(plan, snapshot) if is_rolled_back else switched(plan, snapshot)
    mutations: list[Put | Delete] = []
    for root in sorted({plan.old.root, plan.new.root}):
        names = plan.name or state.name, plan.id, plan.old.fingerprint, plan.new.fingerprint
        past = PastMigration(root, *names, state.begun_at, ended_at, is_rolled_back)
        mutations.append(Put(next_history_key(snapshot, root), encoded(past)))
    history = Remembered.of(snapshot, mutations)
    return Remembered((*notes.guards, *history.guards), (*notes.mutations, *history.mutations))
