"""How a migration is planned. Nothing is written here."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from keyplan.engine import Engine
from keyplan.errors import CorruptionError
from keyplan.layout import (
    BoundLayout,
    BoundTable,
    Impact,
    IndexSpec,
    KeyRelation,
    LayoutChange,
    LayoutPairs,
    LayoutSpec,
    Literal,
    Origin,
    Template,
    compare_keys,
    differences,
    field_labels,
    has_same_entries,
    pair_items,
)
from keyplan.maintenance.definitions import table_definition
from keyplan.maintenance.findings import FindingKind
from keyplan.maintenance.migration.consents import CODES_ACCEPTED, refused_consents
from keyplan.maintenance.migration.converter import Converter
from keyplan.maintenance.migration.functions import Conversion, Resolution, Transform, described_functions
from keyplan.maintenance.migration.marks import layout_key, migration_id, seen_state, state_key, states_of
from keyplan.maintenance.migration.moved_keys import moved_keys
from keyplan.maintenance.migration.plan import MigrationPhase, MigrationPlan, MigrationStep, TableWork
from keyplan.maintenance.migration.root_history import is_current_layout
from keyplan.maintenance.migration.run_state import LEFT, left_layout
from keyplan.maintenance.migration.survey import Survey, survey_index, survey_table
from keyplan.maintenance.migration.table_layouts import ConversionStage, conversion_stage, is_welcome
from keyplan.maintenance.migration.transform_plan import bound_transforms, refused_transforms
from keyplan.store import index_state_key

__all__ = ["plan_migration"]

_MOVING: Final = {KeyRelation.MOVED, KeyRelation.UNSPELLABLE, KeyRelation.UNDECIDED}
_JUDGED_BY_RECORDS: Final = {KeyRelation.NARROWER, KeyRelation.UNSPELLABLE}
_OF_TABLES: Final = {"E5", "E6", "E8", "E9", "E10", "E11", "E15", "E20", "E23"}


def plan_migration(
    engine: Engine,
    old: BoundLayout,
    new: BoundLayout,
    *,
    renames: Mapping[str, str] | None = None,
    drops: Collection[str] = (),
    conversions: Mapping[str, Conversion] | None = None,
    transforms: Sequence[Transform] = (),
    resolutions: Mapping[str, Resolution] | None = None,
    accepts: Collection[str] = (),
    name: str = "",
    progress: Callable[[int], None] | None = None,
) -> MigrationPlan:
    """Plan the way of what is stored from one layout to another, and write nothing.

    renames, drops: as for `differences`. conversions: by the new table's name, what makes a new record of an old one.
    transforms: what makes new records of old ones, keys included.
    resolutions: by the new unique index's name, what becomes of records that claim an entry that another one has.
    accepts: what is consented to, by name: E17, E19 or E22 where it is known to do no harm here (E17 where the store is
        no ring); `from:TABLE`, records that another migration has converted are in the old layout all the same; `gone:TABLE`,
        programs of the new layout have deleted the copies that are not there any more, and the old records go as well;
        `none:TABLE`, the transform makes nothing of some of its records, and they are lost; `keys:TABLE`, values of the old
        table go on to hold keys of records that move;
        `lease:TABLE`, records that are joined hang on different leases, and what is made of them on that of the first;
        `lose:TABLE`, a rollback loses what programs of the new layout have written, and what they have deleted comes back;
        `old:TABLE` or `new:TABLE`, that side holds where both have changed a record, or another one stands at its new key.
    name: what the store's history calls the migration.
    progress: called with the number of records that were examined.

    Every record that must be converted is converted; those that cannot be are obstacles, and so are consents that name nothing
    here. Raises what `differences` raises.
    """
    pairs = pair_items(old.spec, new.spec, renames)
    functions = _Functions(dict(conversions or {}), tuple(transforms), dict(resolutions or {}))
    planner = _Planner(engine, old, new, pairs, functions, frozenset(accepts), progress)
    changes = tuple(differences(_rooted(old), _rooted(new), renames=renames, drops=drops))
    plan = replace(planner.plan(changes, drops), name=name, resolutions=functions.resolutions)
    if plan.is_over:
        return plan
    losses = differences(_rooted(old), _rooted(new), renames=renames) if drops else changes
    refused = refused_consents(pairs, losses, drops=drops, accepts=accepts, resolutions=functions.resolutions)
    return replace(plan, obstacles=(*plan.obstacles, *refused))


class _Functions(NamedTuple):
    """What was given to convert, transform and resolve."""

    conversions: dict[str, Conversion]
    transforms: tuple[Transform, ...]
    resolutions: dict[str, Resolution]


class _Planner:
    def __init__(
        self,
        engine: Engine,
        old: BoundLayout,
        new: BoundLayout,
        pairs: LayoutPairs,
        functions: _Functions,
        accepts: frozenset[str],
        progress: Callable[[int], None] | None,
    ) -> None:
        self._accepts = accepts
        self._engine, self._old, self._new, self._pairs = engine, old, new, pairs
        self._conversions, self._transforms, self._resolutions = functions
        transforms = functions.transforms
        self._transformed = frozenset(name for transform in transforms for name in transform.of)
        self._into = frozenset(name for transform in transforms for name in transform.into)
        self._progress = progress
        self._id = migration_id(old, new, described_functions(*functions))
        self._examined = 0
        self._steps: list[MigrationStep] = []
        self._obstacles: list[str] = []
        self._roots = _root_template(old), _root_template(new)

    def plan(self, changes: tuple[LayoutChange, ...], drops: Collection[str]) -> MigrationPlan:
        identity = self._id
        with self._engine.snapshot() as snapshot:
            state = seen_state(snapshot, identity).record
        is_cleaned = state is not None and state.is_cleaned
        rewritten = self._rewritten(changes)
        works = [work for pair in self._pairs.tables if (work := self._table(pair[0].name, pair[1].name, rewritten))]
        works += self._transformers(works)
        stages = {} if state is None else state.tables
        converted = {name for name, stage in stages.items() if stage.is_whole}
        if state is None:
            self._require_unconverted(works)
        counts = {work.name: self._survey(work, is_converted=work.name in converted) for work in works}
        if state is None:
            self._require_keys(works)
        moved = {work.name for work in works if work.is_moving and work.name not in self._transformed} | self._filled()
        if is_cleaned:
            # Why again: a program of the old layout came back and wrote. What was converted where it stood is done.
            works = [work for work in works if work.is_moving and counts[work.name]]
            with self._engine.snapshot() as snapshot:
                is_current = is_current_layout(snapshot, self._new)
            if not works or not is_current:
                return MigrationPlan(self._old, self._new, identity, changes, (), (), is_over=True)
        works = [work for work in works if work.is_moving or work.route.has_other_values]
        for work in works:
            self._record_steps(work, counts[work.name])
        self._shared_entries(moved)
        to_build = () if is_cleaned else self._builds(moved, {work.name for work in works})
        to_remove = self._removals()
        counters = self._counters()
        gone_tables = tuple(
            item.name for item in self._pairs.gone if item.name in self._old.tables and item.name in drops
        )
        gone_counters = tuple(
            item.name for item in self._pairs.gone if item.name in self._old.counters and item.name in drops
        )
        self._clean_up(works, to_remove, gone_tables, gone_counters, counters)
        self._judge(changes, identity, set(to_build))
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
            reopens=is_cleaned,
            accepts=self._accepts,
        )

    def _rewritten(self, changes: tuple[LayoutChange, ...]) -> set[str]:
        """The tables whose values must be written anew."""
        for name in self._conversions:
            if name not in self._new.tables or name not in self._pairs.names:
                self._obstacles.append(f"{name} is given a function, and is no table of both layouts")
        rewritten = [change for change in changes if change.rewrites_values]
        for change in rewritten:
            is_blind = _is_untyped(self._new.tables[change.item]) and change.code != "E8"
            if is_blind and change.item not in self._conversions:
                problem = "a description cannot convert records: name the new layout's class, or a function"
                self._obstacles.append(f"{change.subject}: {problem}")
        return {change.item for change in rewritten}

    def _table(self, old_name: str, new_name: str, rewritten: set[str]) -> TableWork | None:
        old, new = self._old.tables[old_name], self._new.tables[new_name]
        relation = compare_keys(old.keys.template, new.keys.template).relation
        labels = field_labels(old.keys.template, new.keys.template)
        if (
            old_name in self._transformed
            or labels is None
            or relation in {KeyRelation.MISREAD, KeyRelation.OTHER_FIELDS}
        ):
            return None
        conversion = self._conversions.get(new_name)
        has_other_values = new_name in rewritten or conversion is not None
        is_moving = relation in _MOVING
        if not (is_moving or has_other_values or relation in _JUDGED_BY_RECORDS):
            return None
        converter = Converter(
            old,
            new,
            labels,
            has_other_values=has_other_values,
            conversion=conversion,
            kept_indexes=self._kept_indexes(old_name),
            keeps_keys=not is_moving,
        )
        return TableWork(converter, is_moving)

    def _kept_indexes(self, table: str) -> list[str]:
        """The indexes of an old table whose entries the new layout has as well."""
        return [
            before.name
            for before, after in self._pairs.indexes
            if before.of == table and has_same_entries(before, after, self._pairs, self._roots)
        ]

    def _transformers(self, works: list[TableWork]) -> list[TableWork]:
        """What the transforms do, where they can be carried out."""
        refused = list(refused_transforms(self._transforms, self._old, self._new, self._pairs, self._roots))
        self._obstacles += refused
        if refused:
            return []
        taken = {work.name for work in works}
        for transform in self._transforms:
            if transform.item in taken:
                problem = f"a table of this name moves as well: let another table come first in {transform}"
                self._obstacles.append(f"{transform.item}: {problem}")
        kept = [name for table in self._transformed for name in self._kept_indexes(table)]
        return [
            TableWork(one, is_moving=True) for one in bound_transforms(self._transforms, self._old, self._new, kept)
        ]

    def _filled(self) -> set[str]:
        """The new tables all of whose records come by transforms: their copies are written with all entries."""
        stays = {
            new.name for old, new in self._pairs.tables if new.name in self._into and old.name not in self._transformed
        }
        return set(self._into) - stays

    def _require_unconverted(self, works: list[TableWork]) -> None:
        """Refuse to convert records where they stand that were converted before."""
        for work in works:
            if not work.is_in_place or f"from:{work.name}" in self._accepts:
                continue
            with self._engine.snapshot() as snapshot:
                before = snapshot.get(layout_key(self._old.root, work.route.sources[0].name))
                may_use = is_welcome(self._old, snapshot)
            old = table_definition(self._old, work.route.sources[0].name)
            new = table_definition(self._new, work.name)
            stage = conversion_stage(before, self._id, old, new, is_welcome=may_use)
            if stage is ConversionStage.DONE:
                self._obstacles.append(
                    f"{work.name}: this migration has converted its records, and others went on from there"
                )
            elif stage is ConversionStage.FOREIGN:
                problem = (
                    "another migration has converted its records, to something else than the old layout named here"
                )
                self._obstacles.append(f"{work.name}: {problem}: name that layout, or --accept from:{work.name}")

    def _require_keys(self, works: list[TableWork]) -> None:
        """Refuse to move records whose keys stand in values, unless a function writes these anew."""
        if self._obstacles:
            return
        converted = {old.name for old, new in self._pairs.tables if new.name in self._conversions}
        for found in moved_keys(self._engine, self._old, works, converted | self._transformed, self._told):
            if f"keys:{found.table}" not in self._accepts:
                held = f"values of {found.records} records ({', '.join(found.examples)}) hold keys of records that move"
                remedy = f"give a function that writes the new keys, or --accept keys:{found.table}"
                self._obstacles.append(f"{found.table}: {held}: {remedy}")

    def _told(self, keys: int) -> None:
        self._examined += keys
        if self._progress is not None:
            self._progress(self._examined)

    def _survey(self, work: TableWork, *, is_converted: bool) -> int:
        """Convert every record once; return how many there are."""
        for table in (*work.route.sources, *work.route.targets):
            for index in table.indexes:
                self._require_function(index.name, index.spec)
        if self._obstacles:
            return 0
        found = survey_table(
            self._engine,
            self._id,
            work,
            self._told,
            is_converted=is_converted,
            takes_standing=not self._accepts.isdisjoint({f"old:{work.name}", f"new:{work.name}"}),
            takes_leases=f"lease:{work.name}" in self._accepts,
        )
        if found.failed:
            self._obstacles.append(f"{work.name}: {found}")
        if found.dropped and f"none:{work.name}" not in self._accepts:
            examples = ", ".join(found.examples)
            problem = f"the function makes nothing of {found.dropped} records ({examples}), and they would be lost"
            self._obstacles.append(f"{work.name}: {problem}: make something of them, or --accept none:{work.name}")
        return found.records

    def _require_function(self, name: str, index: IndexSpec) -> None:
        is_made = any(component.origin is Origin.FUNCTION for component in index.components)
        if is_made and index.function is None:
            problem = "its entries are made by a function that a description does not carry: name the layout's class"
            self._obstacles.append(f"{name}: {problem}")

    def _record_steps(self, work: TableWork, count: int) -> None:
        new_name = work.name
        if work.is_moving:
            by = "".join(f" by {one}" for one in self._transforms if one.item == new_name)
            places = ", ".join(table.spec.template.plain for table in work.route.targets)
            what = f"copy the records to {places}{by}, with their index entries, and keep the copies up to date"
            self._steps.append(MigrationStep(MigrationPhase.FILL, new_name, what, count))
            what = "carry over what was written since, and compare count and digest"
            self._steps.append(MigrationStep(MigrationPhase.SWITCH, new_name, what))
        else:
            conversion = self._conversions.get(new_name)
            by = f" by {conversion}" if conversion else ""
            what = f"write the values anew{by}, where they stand: no program may write to the table meanwhile"
            self._steps.append(MigrationStep(MigrationPhase.SWITCH, new_name, what, count))

    def _builds(self, moved: set[str], surveyed: set[str]) -> tuple[str, ...]:
        """The indexes to build: those that are new, and those of moved records that are not readable where they are going."""
        same = {new.name for old, new in self._pairs.indexes if has_same_entries(old, new, self._pairs, self._roots)}
        states = {index_state_key(index) for index in self._old.indexes.values()}
        with self._engine.snapshot() as snapshot:
            unready = {
                name
                for name, index in self._new.indexes.items()
                if (key := index_state_key(index)) not in states and snapshot.get(key) is not None
            }
        to_build = [
            index.name
            for index in self._new.spec.indexes.values()
            if index.name in unready or (index.name not in same and index.of not in moved)
        ]
        for name in to_build:
            self._require_function(name, self._new.indexes[name].spec)
            if not self._obstacles and self._new.indexes[name].table.name not in surveyed:
                found = survey_index(self._engine, self._new.indexes[name], self._told, hides=self._old.has_secrets)
                if found.failed:
                    self._obstacles.append(f"{name}: {found}")
                self._losers(name, found)
            what = "refuse readers of the index until it is built"
            self._steps.append(MigrationStep(MigrationPhase.FILL, name, what))
            what = "build the index, verify it, and let readers in"
            self._steps.append(MigrationStep(MigrationPhase.SWITCH, name, what))
        return tuple(to_build)

    def _shared_entries(self, moved: set[str]) -> None:
        """Say of unique entries that both layouts have under the same keys, naming other records, whom they serve when."""
        same = {new.name for old, new in self._pairs.indexes if has_same_entries(old, new, self._pairs, self._roots)}
        shapes = {index.keys.template for index in self._old.indexes.values()}
        for name, index in self._new.indexes.items():
            if (
                index.spec.is_unique
                and index.table.name in moved
                and name not in same
                and index.keys.template in shapes
            ):
                left = f"leave the unique entries at {index.spec.template.plain} to the old records"
                what = f"{left}: programs of the new layout come after the switch"
                self._steps.append(MigrationStep(MigrationPhase.FILL, name, what))

    def _losers(self, name: str, found: Survey) -> None:
        """What becomes of records that claim a unique entry that another one has: it is part of the plan."""
        resolution = self._resolutions.get(name)
        if resolution is not None:
            what = f"let {resolution} change or remove the records that claim an entry that another one has"
            self._steps.append(MigrationStep(MigrationPhase.SWITCH, name, what, found.losers))
        elif found.losers:
            more = f", and {found.losers - len(found.claims)} more" if found.losers > len(found.claims) else ""
            remedy = "change them, or give a function that says what becomes of the later ones (resolutions)"
            self._obstacles.append(f"{name}: {'; '.join(found.claims)}{more}: {remedy}")

    def _removals(self) -> tuple[str, ...]:
        """The old indexes whose entries the new layout does not know: those under keys of a new index are that one's."""
        same = {old.name for old, new in self._pairs.indexes if has_same_entries(old, new, self._pairs, self._roots)}
        known = [index.keys.template for index in self._new.indexes.values()]
        return tuple(
            name for name, index in self._old.indexes.items() if name not in same and index.keys.template not in known
        )

    def _counters(self) -> tuple[tuple[str, str], ...]:
        moving = []
        for old, new in self._pairs.counters:
            if self._old.counters[old.name].raw_key != self._new.counters[new.name].raw_key:
                moving.append((old.name, new.name))
                self._require_number(old.name)
                what = f"take the number along from {old.template.plain}: no program may draw one meanwhile"
                self._steps.append(MigrationStep(MigrationPhase.SWITCH, new.name, what))
        return tuple(moving)

    def _require_number(self, name: str) -> None:
        counter = self._old.counters[name]
        with self._engine.snapshot() as snapshot:
            entry = snapshot.get(counter.raw_key)
        try:
            if entry is not None:
                counter.decode(entry.value)
        except CorruptionError:
            self._obstacles.append(
                f"{name}: {FindingKind.DAMAGED_COUNTER.summary}: {FindingKind.DAMAGED_COUNTER.advice}"
            )

    def _clean_up(
        self,
        works: list[TableWork],
        indexes: tuple[str, ...],
        tables: tuple[str, ...],
        counters: tuple[str, ...],
        moved_counters: tuple[tuple[str, str], ...],
    ) -> None:
        def add(item: str, what: str) -> None:
            self._steps.append(MigrationStep(MigrationPhase.CONTRACT, item, what))

        for work in works:
            if work.is_moving:
                places = ", ".join(table.spec.template.plain for table in work.route.sources)
                add(work.name, f"remove the old records at {places}, each beside its copy")
        for name in indexes:
            add(name, f"remove the entries at {self._old.indexes[name].spec.template.plain}")
        for name in tables:
            add(name, f"remove the records at {self._old.tables[name].spec.template.plain}")
        for name in (*counters, *(old for old, _ in moved_counters)):
            add(name, f"remove the number at {self._old.counters[name].spec.template.plain}")

    def _judge(self, changes: tuple[LayoutChange, ...], identity: bytes, to_build: set[str]) -> None:
        by_records = {
            new.name
            for old, new in self._pairs.tables
            if compare_keys(self._old.tables[old.name].keys.template, self._new.tables[new.name].keys.template).relation
            in _JUDGED_BY_RECORDS
        }
        for change in changes:
            is_judged = change.code == "E6" and change.item in by_records
            # Why: a function decides what becomes of the values, by whatever name.
            is_judged |= change.loses_values and change.item in self._conversions
            # Why not E19: no function keeps what is stored from being taken for something else.
            is_judged |= change.code in _OF_TABLES and change.item in self._transformed | self._into
            if change.impact is Impact.BREAKING and not is_judged and change.code not in self._accepts & CODES_ACCEPTED:
                self._obstacles.append(str(change))
        removed = self._removals()
        own_states = {index_state_key(self._new.indexes[name]) for name in to_build}
        with self._engine.snapshot() as snapshot:
            for old in self._old.indexes.values():
                is_kept = old.name not in removed and index_state_key(old) not in own_states
                if is_kept and snapshot.get(index_state_key(old)) is not None:
                    self._obstacles.append(f"the index {old.name} is not readable; build it first")
        roots = {self._old.root, self._new.root}
        states = states_of(self._engine)
        is_begun = any(entry.key == state_key(identity) for entry, _ in states)
        for entry, state in states:
            if not is_begun and left_layout(entry, state, identity, self._old):
                self._obstacles.append(LEFT)
            is_other = not entry.key.endswith(identity)
            if is_other and (state.old, state.new) == (self._old.fingerprint, self._new.fingerprint):
                self._obstacles.append("this migration was begun with other functions, or other versions of them")
            elif is_other and not state.is_cleaned and roots & {state.old_root, state.new_root}:
                self._obstacles.append(f"another migration of this root is under way: {state.old} to {state.new}")


def _is_untyped(table: BoundTable) -> bool:
    """Whether the table's form takes any value: it stands in for one whose classes are not here."""
    described: Any = table.form.value_type
    return described is Any or (described is bytes and table.form.code != "raw")


def _rooted(layout: BoundLayout) -> LayoutSpec:
    """The layout as it is bound: changes are those under these roots."""
    return replace(layout.spec, root=_root_template(layout), parameters={})


def _root_template(layout: BoundLayout) -> Template:
    return Template((Literal(layout.root),) if layout.root else (), layout.spec.is_text)
