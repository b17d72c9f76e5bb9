"""Which migration files are due in a store, and which of them are planned as one."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from functools import partial
from itertools import combinations, pairwise
from typing import Final, NamedTuple

from keyplan.engine import Engine, MemoryEngine
from keyplan.layout import BoundLayout, Layout, LayoutSpec, differences, layout_class_of, pair_items
from keyplan.maintenance.migration import (
    MigrationPhase,
    MigrationPlan,
    MigrationStep,
    PastMigration,
    history_of,
    plan_migration,
)
from keyplan.maintenance.migration.marks import MigrationState, Stage, migration_of, seen_state, states_of
from keyplan.maintenance.migration.root_history import remember_layout
from keyplan.maintenance.migration_files.declared import KeptLayout
from keyplan.maintenance.migration_files.folder import MigrationFile, MigrationFolder
from keyplan.store import Backoff, layouts_at

__all__ = [
    "NEXT_COMMANDS",
    "Leg",
    "MigrationPlace",
    "StepState",
    "UnderWay",
    "ended_at",
    "phase_under_way",
    "place_in",
    "plan_leg",
    "remember_passed",
    "steps_of",
    "under_way_at",
]

Bind = Callable[[type[Layout]], BoundLayout]
"""Binds a layout to the store's root."""


NEXT_COMMANDS: Final[Mapping[str, str]] = {
    "": "run",
    Stage.FILLING: "switch",
    Stage.SWITCHING: "switch",
    Stage.SWITCHED: "finish",
    Stage.CONTRACTING: "finish",
    Stage.ROLLING_BACK: "rollback",
}
"""The command of `keyplan migrate` that comes next in a stage; without one nothing has begun."""


class StepState(StrEnum):
    """How far a step is."""

    DONE = auto()
    UNDER_WAY = "under way"
    DUE = auto()


@dataclass(frozen=True)
class Leg:
    """Migration files that are planned as one: from the layout at which the first begins to that at which the last ends."""

    files: tuple[MigrationFile, ...]
    renames: Mapping[str, str] = field(default_factory=dict)
    drops: Collection[str] = ()

    @property
    def name(self) -> str:
        """The name of the file; of several, the first and the last."""
        first, last = self.files[0].name, self.files[-1].name
        return first if first == last else f"{first} to {last}"

    @property
    def ends(self) -> tuple[KeptLayout, KeptLayout]:
        """The layouts at which it begins and ends."""
        return self.files[0].migration.old, self.files[-1].migration.new


@dataclass(frozen=True)
class MigrationPlace:
    """Where a store stands in a folder of migration files.

    done: how many files are over. stage: that of the leg under way, empty when it was not begun. leg: what is due next, None
    when nothing is. later: files behind it, which are planned when it is over; `why` they are not part of it.
    """

    done: int
    stage: str
    state: MigrationState | None
    leg: Leg | None
    later: tuple[MigrationFile, ...] = ()
    why: str = ""

    @property
    def next_command(self) -> str:
        """The command of `keyplan migrate` that comes next."""
        return NEXT_COMMANDS.get(self.stage, "run")

    @property
    def is_resting(self) -> bool:
        """Whether the step that comes next was not begun."""
        return self.stage in ("", Stage.SWITCHED)


def place_in(folder: MigrationFolder, engine: Engine, bind: Bind, *, until: str | None = None) -> MigrationPlace:
    """Find where a store stands: by the migrations that it has seen, and by the one under way.

    until: the last file to take. Raises InvalidInputError.
    """
    end = len(folder.files) if until is None else folder.named(until) + 1
    bounds = [bind(layout_class_of(folder.description(layout))) for layout in folder.layouts]
    prints = [bound.fingerprint for bound in bounds]
    done = _done(engine, prints, [bound.root for bound in bounds])
    for _, state in states_of(engine):
        parts = _parts(prints, state)
        if not state.is_cleaned and parts:
            # Why the one behind what is done: a folder may come by a layout twice.
            start, stop = next((part for part in parts if part[0] == done), parts[-1])
            files = folder.files[start:stop]
            return MigrationPlace(start, state.stage, state, _leg(folder, files), folder.files[stop:])
    # Why passed over: where both layouts store the same, no run is needed, and none leaves a trace.
    while done < end and not _steps(folder, _leg(folder, folder.files[done : done + 1]), bind):
        done += 1
    due = folder.files[done:end]
    leg, why = _longest(folder, due)
    taken = 0 if leg is None else len(leg.files)
    return MigrationPlace(done, "", None, leg, due[taken:], why)


def remember_passed(folder: MigrationFolder, place: MigrationPlace, engine: Engine, bind: Bind) -> None:
    """Note the layouts of files that are over as welcome where they need no run: nothing else says that programs may use them.

    Where a store notes no layout, nothing is written.
    """
    for file in folder.files[: place.done]:
        old, new = (bind(layout_class_of(folder.description(one))) for one in (file.migration.old, file.migration.new))
        with engine.snapshot() as snapshot:
            noted = layouts_at(snapshot, new.root)
        if noted is None or new.fingerprint in noted.layouts or old.fingerprint not in noted.layouts:
            continue
        plan = plan_leg(MemoryEngine(), _leg(folder, (file,)), old=old, new=new)
        if not plan.steps:
            Backoff().until_committed(partial(remember_layout, engine, plan))


def steps_of(folder: MigrationFolder, place: MigrationPlace, bind: Bind) -> list[tuple[MigrationStep, StepState]]:
    """Return the steps of the leg that is due, as the layouts alone give them, each with how far it is.

    Why not planned in the store: that goes over every record.
    """
    if place.leg is None:
        return []
    order = list(MigrationPhase)
    now = _NOW.get(place.stage, 0)
    steps = _steps(folder, place.leg, bind)
    return [(step, _state_of(order.index(step.phase), now, place.is_resting)) for step in steps]


def _steps(folder: MigrationFolder, leg: Leg, bind: Bind) -> tuple[MigrationStep, ...]:
    old, new = (bind(layout_class_of(folder.description(layout))) for layout in leg.ends)
    return plan_leg(MemoryEngine(), leg, old=old, new=new).steps


_NOW: Final[Mapping[str, int]] = {Stage.SWITCHING: 1, Stage.SWITCHED: 2, Stage.CONTRACTING: 2}
"""The phase in which a stage is, by its place in their order."""


def _state_of(phase: int, now: int, is_resting: bool) -> StepState:  # noqa: FBT001  # Why: private, one caller.
    if phase < now:
        return StepState.DONE
    return StepState.DUE if phase > now or is_resting else StepState.UNDER_WAY


def plan_leg(
    engine: Engine,
    leg: Leg,
    *,
    old: BoundLayout,
    new: BoundLayout,
    accepts: Collection[str] = (),
    progress: Callable[[int], None] | None = None,
) -> MigrationPlan:
    """Plan the files of a leg as one migration, between the layouts of the first and the last, bound.

    Functions must be written: `MigrationFile.require_written` says it. `accepts` are consents beside those of the files.
    Raises what `plan_migration` raises.
    """
    last = leg.files[-1].migration
    return plan_migration(
        engine,
        old,
        new,
        renames=leg.renames,
        drops=leg.drops,
        conversions=last.conversions,
        transforms=last.transforms,
        resolutions=last.resolutions,
        accepts=(*last.accepts, *accepts),
        name=leg.name,
        progress=progress,
    )


def _done(engine: Engine, prints: Sequence[str], roots: Sequence[bytes]) -> int:
    """Return how many files are over, by the history of their roots; by the layout there where another way led to it."""
    done = 0
    for one in ended_at(engine, roots):
        parts = [] if one.is_rolled_back else _parts(prints, one)
        if parts:
            done = next((stop for start, stop in parts if start == done), parts[-1][1])
    with engine.snapshot() as snapshot:
        known = layouts_at(snapshot, roots[done]) if roots else None
    if known is not None and known.layouts and prints[done] not in known.layouts:
        done = max((place for place, one in enumerate(prints) if one in known.layouts), default=done)
    return done


def ended_at(engine: Engine, roots: Sequence[bytes]) -> list[PastMigration]:
    """Return the migrations that have ended at roots, each once, the first one first. Raises CorruptionError."""
    found: list[PastMigration] = []
    for root in dict.fromkeys(roots):
        # Why: a migration from one root to another has ended at both.
        known = {(one.ended_at, one.migration) for one in found}
        found += [one for one in history_of(engine, root) if (one.ended_at, one.migration) not in known]
    return sorted(found, key=lambda one: one.ended_at)


class UnderWay(NamedTuple):
    """A migration that was begun and has not ended: its name, as far as it has one, and its id."""

    name: str
    migration: bytes


def under_way_at(engine: Engine, roots: Sequence[bytes]) -> UnderWay | None:
    """Return the migration under way at one of the roots."""
    for entry, state in states_of(engine):
        if not state.is_cleaned and {state.old_root, state.new_root} & {*roots}:
            return UnderWay(state.name or f"{state.old} to {state.new}", migration_of(entry.key))
    return None


def phase_under_way(engine: Engine, migration: bytes) -> str:
    """Return the command of `keyplan migrate` whose run a migration is in; empty when it is not under way."""
    with engine.snapshot() as snapshot:
        state = seen_state(snapshot, migration).record
    if state is None or state.is_cleaned:
        return ""
    return "run" if state.stage == Stage.FILLING else NEXT_COMMANDS.get(state.stage, "run")


def _parts(prints: Sequence[str], state: MigrationState | PastMigration) -> list[tuple[int, int]]:
    """Return the parts of the folder that lead between the layouts of a state."""
    ways = combinations(range(len(prints)), 2)
    return [(start, stop) for start, stop in ways if (prints[start], prints[stop]) == (state.old, state.new)]


# ---- several as one ------------------------------------------------------------------------------------------------------


def _longest(folder: MigrationFolder, due: Sequence[MigrationFile]) -> tuple[Leg | None, str]:
    """Return as many of the due files as can be planned as one, from the first on, and why no more can."""
    if not due:
        return None, ""
    why = ""
    count = 1
    while count < len(due):
        why = _why_apart(folder, due[: count + 1])
        if why:
            break
        count += 1
    files = tuple(due[:count])
    return _leg(folder, files), why


def _leg(folder: MigrationFolder, files: tuple[MigrationFile, ...]) -> Leg:
    return Leg(files, *_together(folder, files))


def _why_apart(folder: MigrationFolder, files: Sequence[MigrationFile]) -> str:
    """Return why files are not planned as one; empty: they are.

    One plan of them leads to the same as one after the other, or they stay apart.
    """
    last = files[-1]
    by_function = [file.name for file in files if file.migration.functions]
    if by_function:
        return f"{by_function[0]} has functions, which take records of its own layouts"
    for file in files:
        if set(file.migration.accepts) != set(last.migration.accepts):
            return f"{file.name} and {last.name} consent to different things"
        if file is not last and file.migration.drops:
            return f"{file.name} drops what it names"
    specs = _specs(folder, files)
    rewritten = _rewritten(folder, files, specs)
    gone: set[str] = set()
    for number, ((old, new), file) in enumerate(zip(pairwise(specs), files, strict=True)):
        origins = _composed(specs[: number + 2], files[: number + 1])
        changes = differences(old, new, renames=file.migration.renames, drops=file.migration.drops)
        for change in changes:
            # Why only these: who writes a record anew writes the default that it is read with, and which one that is would
            # depend on how many files are one. What is left as it is has no default in it.
            if change.code == "E20" and origins.get(change.item) in rewritten:
                return f"{file.name} changes the default of {change.subject}, whose records are written anew"
            if change.code == "E9" and change.subject in gone:
                return f"{file.name} brings {change.subject} again, which an earlier one removed"
        gone |= {change.subject for change in changes if change.code == "E10"}
    renames, _ = _together(folder, files)
    if dict(pair_items(specs[0], specs[-1], renames).names) != _composed(specs, files):
        return f"{last.name} gives to something else a name that is gone"
    return ""


def _rewritten(folder: MigrationFolder, files: Sequence[MigrationFile], specs: Sequence[LayoutSpec]) -> set[str]:
    """The tables, as the first layout calls them, whose records are written anew by a file, or by all of them as one."""
    renames, drops = _together(folder, files)
    found: set[str] = set()
    ways = [
        (old, new, file.migration.renames, file.migration.drops, _composed(specs[: number + 2], files[: number + 1]))
        for number, ((old, new), file) in enumerate(zip(pairwise(specs), files, strict=True))
    ]
    for old, new, renamed, dropped, origins in [*ways, (specs[0], specs[-1], renames, drops, _composed(specs, files))]:
        changes = differences(old, new, renames=renamed, drops=dropped)
        found |= {origins.get(change.item, "") for change in changes if change.rewrites_values}
    return found


def _together(folder: MigrationFolder, files: Sequence[MigrationFile]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the renames and the drops of files as one plan has them."""
    last = files[-1].migration
    if len(files) == 1:
        return dict(last.renames), tuple(last.drops)
    specs = _specs(folder, files)
    composed = _composed(specs, files)
    renames = {old: new for new, old in composed.items() if old != new}
    before = _composed(specs[:-1], files[:-1])
    drops = [before.get(name, name) if "." not in name else name for name in last.drops]
    return renames, tuple(drops)


def _specs(folder: MigrationFolder, files: Sequence[MigrationFile]) -> list[LayoutSpec]:
    first = folder.files.index(files[0])
    return [folder.description(layout) for layout in folder.layouts[first : first + len(files) + 1]]


def _composed(specs: Sequence[LayoutSpec], files: Sequence[MigrationFile]) -> dict[str, str]:
    """Return the last layout's items with what each was called in the first, as one file after the other says."""
    names = {item.name: item.name for item in specs[0].items}
    for (old, new), file in zip(pairwise(specs), files, strict=True):
        pairs = pair_items(old, new, file.migration.renames)
        names = {after: names[before] for after, before in pairs.names.items() if before in names}
    return names
