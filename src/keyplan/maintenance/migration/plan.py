"""A migration planned: what changes, what stands in the way, and the steps in their order, with what they are about.

Nothing is written here. Every record that is to be converted is converted once, to see that it can be.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from keyplan.engine import Engine, Entry, KeyRange
from keyplan.layout import (
    BoundLayout,
    Impact,
    KeyRelation,
    LayoutChange,
    LayoutPairs,
    Literal,
    Template,
    compare_keys,
    differences,
    field_labels,
    has_same_entries,
    pair_items,
    shown_key,
)
from keyplan.maintenance.check import batch_of
from keyplan.maintenance.migration.marks import mark_key, migration_id, read_state, states_of
from keyplan.maintenance.migration.transform import UNREADABLE, Conversion, Converter, described_conversions
from keyplan.store import index_state_key

__all__ = ["MigrationPhase", "MigrationPlan", "MigrationStep", "TableWork", "plan_migration"]

_MOVING: Final = {KeyRelation.MOVED, KeyRelation.UNSPELLABLE, KeyRelation.UNDECIDED}
_JUDGED_BY_RECORDS: Final = {KeyRelation.NARROWER, KeyRelation.UNSPELLABLE}
_FAILURES_SHOWN: Final = 5


class MigrationPhase(Enum):
    """When a step is taken."""

    PREPARE = "beside programs of the old layout"
    FINISH = "when no program writes by the old layout any more"
    CLEAN_UP = "when no program needs the old layout any more"


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """One thing that is done: when, to which item, in a sentence; `records` is how many it is about, where that is known."""

    phase: MigrationPhase
    item: str
    what: str
    records: int | None = None


@dataclass(frozen=True)
class TableWork:
    """What is to be done with the records of one table. `is_moving`: they get other keys; else only their values are others."""

    converter: Converter
    is_moving: bool

    @property
    def name(self) -> str:
        """The table's name in the new layout."""
        return self.converter.new.name

    @property
    def old_range(self) -> KeyRange:
        """Where the old records stand, among others perhaps."""
        return KeyRange(*self.converter.old.keys.range(()))


@dataclass(frozen=True)
class MigrationPlan:
    """The changes, the steps, and what stands in the way: a plan with obstacles is not carried out.

    `id` tells one migration from another in the store.
    """

    old: BoundLayout
    new: BoundLayout
    id: bytes
    changes: tuple[LayoutChange, ...]
    steps: tuple[MigrationStep, ...]
    obstacles: tuple[str, ...]
    tables: tuple[TableWork, ...] = field(repr=False, default=())
    indexes_to_build: tuple[str, ...] = ()
    indexes_to_remove: tuple[str, ...] = ()
    tables_to_remove: tuple[str, ...] = ()
    counters_to_move: tuple[tuple[str, str], ...] = ()
    counters_to_remove: tuple[str, ...] = ()
    is_over: bool = False

    def lines(self) -> list[str]:
        """The plan for people."""
        lines = [str(change) for change in self.changes]
        if self.is_over:
            lines.append("the migration is over: nothing of the old layout is left")
        for phase in MigrationPhase:
            steps = [step for step in self.steps if step.phase is phase]
            if steps:
                lines.append(f"{phase.value}:")
            for step in steps:
                count = "" if step.records is None else f" ({step.records} records)"
                lines.append(f"  {step.item}: {step.what}{count}")
        lines += [f"in the way: {obstacle}" for obstacle in self.obstacles]
        return lines


def plan_migration(
    engine: Engine,
    old: BoundLayout,
    new: BoundLayout,
    *,
    renames: Mapping[str, str] | None = None,
    drops: Collection[str] = (),
    conversions: Mapping[str, Conversion] | None = None,
    accepts: Collection[str] = (),
    progress: Callable[[int], None] | None = None,
) -> MigrationPlan:
    """Plan the way of what is stored from one layout to another, and write nothing.

    renames, drops: as for `differences`. conversions: by the new table's name, what makes a new record of an old one. accepts:
        codes of breaking changes that are known to do no harm here (E17 where the store is no ring).
    progress: called with the number of records that were examined.

    Every record that must be converted is converted; those that cannot be are obstacles. Raises what `differences` raises.
    """
    pairs = pair_items(old.spec, new.spec, renames)
    planner = _Planner(engine, old, new, pairs, dict(conversions or {}), progress)
    changes = tuple(differences(old.spec, new.spec, renames=renames, drops=drops))
    return planner.plan(changes, drops, accepts)


class _Planner:
    def __init__(
        self,
        engine: Engine,
        old: BoundLayout,
        new: BoundLayout,
        pairs: LayoutPairs,
        conversions: dict[str, Conversion],
        progress: Callable[[int], None] | None,
    ) -> None:
        self._engine, self._old, self._new, self._pairs = engine, old, new, pairs
        self._conversions = conversions
        self._progress = progress
        self._id = migration_id(old, new, described_conversions(conversions))
        self._examined = 0
        self._steps: list[MigrationStep] = []
        self._obstacles: list[str] = []
        self._roots = _root_template(old), _root_template(new)

    def plan(
        self, changes: tuple[LayoutChange, ...], drops: Collection[str], accepts: Collection[str]
    ) -> MigrationPlan:
        identity = self._id
        _, state = read_state(self._engine, identity)
        if state is not None and state.is_cleaned:
            return MigrationPlan(self._old, self._new, identity, changes, (), (), is_over=True)
        judged = self._judge_conversions(changes)
        works = [work for pair in self._pairs.tables if (work := self._table(pair[0].name, pair[1].name, judged))]
        moved = {work.name for work in works if work.is_moving}
        to_build = self._builds(moved)
        to_remove = self._removals()
        counters = self._counters()
        gone_tables = tuple(
            item.name for item in self._pairs.gone if item.name in self._old.tables and item.name in drops
        )
        gone_counters = tuple(
            item.name for item in self._pairs.gone if item.name in self._old.counters and item.name in drops
        )
        self._clean_up(works, to_remove, gone_tables, gone_counters, counters)
        self._judge(changes, accepts, identity, set(to_build))
        return MigrationPlan(
            self._old,
            self._new,
            identity,
            changes,
            tuple(sorted(self._steps, key=lambda step: list(MigrationPhase).index(step.phase))),
            tuple(self._obstacles),
            tuple(works),
            to_build,
            to_remove,
            gone_tables,
            counters,
            gone_counters,
        )

    def _judge_conversions(self, changes: tuple[LayoutChange, ...]) -> set[str]:
        """The tables whose values must be written anew."""
        for name in self._conversions:
            if name not in self._new.tables or name not in self._pairs.names:
                self._obstacles.append(f"{name} is given a function, and is no table of both layouts")
        return {
            change.item
            for change in changes
            if change.code in {"E8", "E9", "E10", "E11"} and change.impact is Impact.REWRITE
        }

    def _table(self, old_name: str, new_name: str, rewritten: set[str]) -> TableWork | None:
        old, new = self._old.tables[old_name], self._new.tables[new_name]
        relation = compare_keys(old.keys.template, new.keys.template).relation
        labels = field_labels(old.keys.template, new.keys.template)
        if labels is None or relation in {KeyRelation.MISREAD, KeyRelation.OTHER_FIELDS}:
            return None
        conversion = self._conversions.get(new_name)
        has_other_values = new_name in rewritten or conversion is not None
        is_moving = relation in _MOVING
        if not (is_moving or has_other_values or relation in _JUDGED_BY_RECORDS):
            return None
        kept = [
            before.name
            for before, after in self._pairs.indexes
            if before.of == old_name and has_same_entries(before, after, self._pairs, self._roots)
        ]
        converter = Converter(
            old, new, labels, has_other_values=has_other_values, conversion=conversion, kept_indexes=kept
        )
        work = TableWork(converter, is_moving)
        count = self._examine(work)
        if is_moving:
            what = f"copy the records to {new.spec.template.plain}, with their index entries, and keep the copies up to date"
            self._steps.append(MigrationStep(MigrationPhase.PREPARE, new_name, what, count))
            what = "carry over what was written since, and compare count and digest"
            self._steps.append(MigrationStep(MigrationPhase.FINISH, new_name, what))
        if has_other_values and not is_moving:
            by = f" by {conversion}" if conversion else ""
            what = f"write the values anew{by}, where they stand: no program may write to the table meanwhile"
            self._steps.append(MigrationStep(MigrationPhase.FINISH, new_name, what, count))
        return work if is_moving or has_other_values else None

    def _examine(self, work: TableWork) -> int:
        """Convert every record; return how many there are."""
        count = 0
        failures: list[str] = []
        failed = 0
        key_range = work.old_range
        while True:
            with self._engine.snapshot() as snapshot:
                batch = batch_of(snapshot, key_range)
            if not batch:
                break
            records = [entry for entry in batch if work.converter.old.keys.decode(entry.key) is not None]
            with self._engine.snapshot() as snapshot:
                marks = snapshot.get_many([mark_key(self._id, entry.key) for entry in records])
            for entry, mark in zip(records, marks, strict=True):
                count += 1
                is_done = mark is not None and not work.is_moving
                if not is_done and (reason := _failure(work, entry)):
                    failed += 1
                    failures += [f"{shown_key(entry.key)}: {reason}"] if len(failures) < _FAILURES_SHOWN else []
            self._examined += len(batch)
            if self._progress is not None:
                self._progress(self._examined)
            key_range = KeyRange(batch[-1].key + b"\x00", key_range.end)
        if failed:
            more = f", and {failed - len(failures)} more" if failed > len(failures) else ""
            self._obstacles.append(f"{work.name}: {'; '.join(failures)}{more}")
        return count

    def _builds(self, moved: set[str]) -> tuple[str, ...]:
        same = {new.name for old, new in self._pairs.indexes if has_same_entries(old, new, self._pairs, self._roots)}
        to_build = [
            index.name for index in self._new.spec.indexes.values() if index.name not in same and index.of not in moved
        ]
        for name in to_build:
            what = "refuse readers of the index until it is built"
            self._steps.append(MigrationStep(MigrationPhase.PREPARE, name, what))
            what = "build the index, verify it, and let readers in"
            self._steps.append(MigrationStep(MigrationPhase.FINISH, name, what))
        return tuple(to_build)

    def _removals(self) -> tuple[str, ...]:
        same = {old.name for old, new in self._pairs.indexes if has_same_entries(old, new, self._pairs, self._roots)}
        return tuple(name for name in self._old.indexes if name not in same)

    def _counters(self) -> tuple[tuple[str, str], ...]:
        moving = []
        for old, new in self._pairs.counters:
            if self._old.counters[old.name].raw_key != self._new.counters[new.name].raw_key:
                moving.append((old.name, new.name))
                what = f"take the number along from {old.template.plain}: no program may draw one meanwhile"
                self._steps.append(MigrationStep(MigrationPhase.FINISH, new.name, what))
        return tuple(moving)

    def _clean_up(
        self,
        works: list[TableWork],
        indexes: tuple[str, ...],
        tables: tuple[str, ...],
        counters: tuple[str, ...],
        moved_counters: tuple[tuple[str, str], ...],
    ) -> None:
        def add(item: str, what: str) -> None:
            self._steps.append(MigrationStep(MigrationPhase.CLEAN_UP, item, what))

        for work in works:
            if work.is_moving:
                add(
                    work.name,
                    f"remove the old records at {work.converter.old.spec.template.plain}, each beside its copy",
                )
        for name in indexes:
            add(name, f"remove the entries at {self._old.indexes[name].spec.template.plain}")
        for name in tables:
            add(name, f"remove the records at {self._old.tables[name].spec.template.plain}")
        for name in (*counters, *(old for old, _ in moved_counters)):
            add(name, f"remove the number at {self._old.counters[name].spec.template.plain}")

    def _judge(
        self, changes: tuple[LayoutChange, ...], accepts: Collection[str], identity: bytes, to_build: set[str]
    ) -> None:
        by_records = {
            new.name
            for old, new in self._pairs.tables
            if compare_keys(self._old.tables[old.name].keys.template, self._new.tables[new.name].keys.template).relation
            in _JUDGED_BY_RECORDS
        }
        for change in changes:
            is_judged = change.code == "E6" and change.item in by_records
            if change.impact is Impact.BREAKING and not is_judged and change.code not in accepts:
                self._obstacles.append(str(change))
        removed = self._removals()
        states = {index_state_key(self._new.indexes[name]) for name in to_build}
        with self._engine.snapshot() as snapshot:
            for old in self._old.indexes.values():
                is_kept = old.name not in removed and index_state_key(old) not in states
                if is_kept and snapshot.get(index_state_key(old)) is not None:
                    self._obstacles.append(f"the index {old.name} is not readable; build it first")
        roots = {self._old.root, self._new.root}
        for entry, state in states_of(self._engine):
            is_other = not entry.key.endswith(identity)
            if is_other and not state.is_cleaned and roots & {state.old_root, state.new_root}:
                self._obstacles.append(f"another migration of this root is under way: {state.old} to {state.new}")


def _failure(work: TableWork, entry: Entry) -> str:
    """Why a record cannot be converted; empty when it can."""
    try:
        work.converter.new_key(entry.key)
        if work.is_moving or work.converter.has_other_values:
            work.converter.converted(entry)
    except UNREADABLE as error:
        if not work.is_moving and _is_new(work, entry):
            return ""  # Why: a program of the new layout wrote it.
        return f"{error.summary}: {error.facts.get('problem', '')}"
    return ""


def _is_new(work: TableWork, entry: Entry) -> bool:
    try:
        work.converter.new.form.decode(entry.value)
    except UNREADABLE:
        return False
    return work.converter.has_other_values


def _root_template(layout: BoundLayout) -> Template:
    return Template((Literal(layout.root),) if layout.root else (), layout.spec.is_text)
