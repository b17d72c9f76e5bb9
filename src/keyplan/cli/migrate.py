"""The commands from one layout to another: `keyplan migrate ...`."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Annotated, Final, NamedTuple

import typer

from keyplan.cli.diff import DropOption, RenameOption, plain_change, renames_of_option
from keyplan.cli.failures import agreed, end_with_findings
from keyplan.cli.jobs import PaceOption, pace_of_option, stopped_by_signals, words_of
from keyplan.cli.migration_plans import (
    FOLDER,
    AcceptOption,
    FileSource,
    FolderOption,
    Planned,
    PlanOptions,
    PlanSource,
    bound_at,
)
from keyplan.cli.migration_reports import print_clean_up, print_report, print_rollback, print_trial
from keyplan.cli.migration_status import status_of
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    KeySpaceOption,
    LayoutOption,
    ParameterOption,
    StoreOption,
    Unfinished,
    YesOption,
    command_group,
    is_store_named,
    layout_of_option,
    spread,
    store_of_option,
)
from keyplan.cli.output import document_of, print_answer, print_grid, print_json, progress_bar
from keyplan.errors import InvalidInputError, MigrationRefusedError, StoreMissingError
from keyplan.jobs import Pace, Stop
from keyplan.layout import BoundLayout
from keyplan.maintenance import (
    MigrationFolder,
    MigrationPhase,
    MigrationPlan,
    Trial,
    clean_up_migration,
    draft_migration,
    ended_at,
    migrate,
    note_layout,
    pause_migration,
    phase_under_way,
    read_migrations,
    resume_migration,
    roll_back_migration,
    try_migration,
    under_way_at,
)
from keyplan.store import Backoff, Store

__all__ = ["migrate_app"]

# ---- migrate -----------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """The store that a migration is about: a record of options, for `spread`."""

    store: StoreOption = None
    keyspace: KeySpaceOption = None
    parameter: ParameterOption = None
    config: ConfigOption = None

    def opened(self, root: bytes, *, is_read: bool) -> Store:
        """Open the store; close it, or use it in a `with` block."""
        what = Unfinished.TOLD if is_read else Unfinished.REFUSED
        return store_of_option(
            self.store, self.config, keyspace=self.keyspace, readonly=is_read, root=root, unfinished=what
        )


class Act(NamedTuple):
    """How a run goes: what ends it, its words for who looks at the store's jobs, and its pace."""

    stop: Stop
    command: Sequence[str]
    pace: Pace | None


class Phase(NamedTuple):
    """A run of a migration: the word of its command, its steps, and what carries it out and says whether all is done."""

    word: str
    steps: tuple[MigrationPhase, ...]
    carry_out: Callable[..., bool]


class RunOptions(NamedTuple):
    """How a run goes and prints: a record of options, for `spread`."""

    pace: PaceOption = None
    yes: YesOption = False
    json: JsonOption = False


def new_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it does, as in split_orders.", show_default=False)],
    *,
    old: Annotated[
        str | None,
        typer.Option("--from", metavar="LAYOUT", help="The layout as it is; the end of the last file by default."),
    ] = None,
    new: Annotated[
        str | None,
        typer.Option("--to", metavar="LAYOUT", help="The layout as it shall be; that of the last file by default."),
    ] = None,
    folder: FolderOption = None,
    rename: RenameOption = None,
    drop: DropOption = None,
    accept: AcceptOption = None,
    place: Place,
    json: JsonOption = False,
) -> None:
    """Draft the next migration file: what changes, the steps, what is to be decided, and functions that somebody writes.

    It goes on from the layout at which the last file ends. The layouts' descriptions are kept beside the files, so that no
    class need be kept. Where a store is named, its records are counted.
    """
    read = read_migrations(folder or FOLDER)
    before, after = _ends(read, old, new, place)
    with ExitStack() as stack:
        engine = None
        if is_store_named(place.store, place.config):
            # Why: a store that is not there yet has nothing to count.
            with suppress(StoreMissingError):
                engine = stack.enter_context(place.opened(before[1].root, is_read=True)).engine
        written = draft_migration(
            read,
            name,
            before,
            after,
            renames=renames_of_option(rename),
            drops=drop or (),
            accepts=accept or (),
            engine=engine,
        )
    print_answer({"file": str(written)}, f"wrote {written}: read it, and commit it with the layout", json=json)


def plan_command(*, options: PlanOptions, place: Place, json: JsonOption = False) -> None:
    """Print what would be done next, with every obstacle, and write nothing. Exit code 1 when something is in the way."""
    source = options.source(place.parameter, place.config)
    with place.opened(source.root, is_read=True) as store:
        plan = _planned(store, source, json=json)
    end_with_findings(plan is not None and plan.obstacles)


def try_command(
    *,
    options: PlanOptions,
    place: Place,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", min=1, help="So many records of each table; all by default.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Convert stored records and write nothing: how many are converted, refused, lost, collide, each with examples.

    Exit code 1 when something is refused, collides, or is lost without a consent.
    """
    source = options.source(place.parameter, place.config)
    with place.opened(source.root, is_read=True) as store, progress_bar("try") as shown:
        planned = source.planned(store.engine, shown, is_drafted=True)
        trial = (
            Trial()
            if planned.plan is None
            else try_migration(store.engine, planned.plan, sample=sample, progress=shown)
        )
    obstacles = () if planned.plan is None else planned.plan.obstacles
    print_trial(planned.lines, trial, obstacles, json=json)
    accepts = frozenset() if planned.plan is None else planned.plan.accepts
    end_with_findings(obstacles or trial.problems(accepts))


def run_command(context: typer.Context, *, options: PlanOptions, place: Place, running: RunOptions) -> None:
    """Do what can be done beside programs of the old layout; the same command goes on with a run that was interrupted.

    The plan is printed first, with every obstacle; nothing is written before somebody agrees to it. Exit code 1 when obstacles
    or records to decide about remain.
    """
    _carry_out(context, RUN, options, place, running)


def switch_command(context: typer.Context, *, options: PlanOptions, place: Place, running: RunOptions) -> None:
    """Do the rest and verify it, when no program writes by the old layout any more. Exit code 1 when it is not settled."""
    _carry_out(context, SWITCH, options, place, running)


def finish_command(context: typer.Context, *, options: PlanOptions, place: Place, running: RunOptions) -> None:
    """Remove what only the old layout knows, when no program needs it any more. Exit code 1 when something is left."""
    _carry_out(context, FINISH, options, place, running)


def rollback_command(context: typer.Context, *, options: PlanOptions, place: Place, running: RunOptions) -> None:
    """Take back what is under way, when no program writes by the new layout any more; until `finish` was begun.

    What programs of the new layout wrote goes to the old records, where the types or an inverse function lead there. Exit code
    1 when something is left to decide: nothing is removed then.
    """
    _carry_out(context, ROLLBACK, options, place, running)


def resume_command(context: typer.Context, *, options: PlanOptions, place: Place, running: RunOptions) -> None:
    """Go on with what is under way, paused or interrupted, in the run that it was in."""
    _carry_out(context, None, options, place, running)


def pause_command(*, options: PlanOptions, place: Place, json: JsonOption = False) -> None:
    """Let the migration that is under way rest, whichever machine runs it: it ends within seconds, and keeps its place."""
    source = options.source(place.parameter, place.config)
    with place.opened(source.root, is_read=False) as store:
        found = under_way_at(store.engine, source.roots)
        if found is None:
            raise MigrationRefusedError(obstacles=("nothing is under way, so there is nothing to pause",))
        Backoff().until_committed(partial(pause_migration, store.engine, found.migration))
    print_answer({"paused": found.name}, f"{found.name} rests: `keyplan migrate resume` goes on with it", json=json)


def history_command(
    *, folder: FolderOption = None, layout: LayoutOption = None, place: Place, json: JsonOption = False
) -> None:
    """Print the migrations that have ended in a store, the first one first: those of the files' roots, or of a layout's."""
    if layout is None:
        source = PlanOptions(folder=folder).source(place.parameter, place.config)
        roots = source.roots
    else:
        roots = [bound_at(layout_of_option(layout), place.parameter, place.config).root]
    with place.opened(roots[-1], is_read=True) as store:
        past = ended_at(store.engine, roots)
    if json:
        for one in past:
            print_json({**document_of(one), "migration": one.migration.hex()})
        return
    rows = ((one.ended_at, "rolled back" if one.is_rolled_back else "done", one.name, one.old, one.new) for one in past)
    print_grid(("ended", "how", "migration", "from", "to"), rows)


def note_command(*, layout: LayoutOption = None, place: Place, json: JsonOption = False) -> None:
    """Note in a store that was never migrated that programs use a layout: whoever binds another one is told from then on."""
    bound = bound_at(layout_of_option(layout, place.config), place.parameter, place.config)
    with place.opened(bound.root, is_read=False) as store:
        note_layout(store.engine, bound)
    said = f"noted: programs use {bound.name} ({bound.fingerprint})"
    print_answer({"layout": bound.name, "fingerprint": bound.fingerprint}, said, json=json)


def status_command(*, folder: FolderOption = None, place: Place, json: JsonOption = False) -> None:
    """Print which migration files are done, which one is under way and in which step, and the command that comes next."""
    source = PlanOptions(folder=folder).source(place.parameter, place.config)
    assert isinstance(source, FileSource)
    with place.opened(source.root, is_read=True) as store:
        shown = status_of(source, store.engine)
    print_answer(shown.document, *shown.lines, json=json)


migrate_app: Final = command_group("Bring a store from one layout to another beside its programs, by files; resumable.")

for _name, _command in (
    ("new", new_command),
    ("plan", plan_command),
    ("try", try_command),
    ("run", run_command),
    ("switch", switch_command),
    ("finish", finish_command),
    ("rollback", rollback_command),
    ("pause", pause_command),
    ("resume", resume_command),
    ("status", status_command),
    ("history", history_command),
    ("note", note_command),
):
    migrate_app.command(_name)(spread(_command))


def _ends(
    folder: MigrationFolder, old: str | None, new: str | None, place: Place
) -> tuple[tuple[str, BoundLayout], tuple[str, BoundLayout]]:
    """Return the layouts of a new file with their names: those of the options, or as the last file has them."""
    last = folder.files[-1].migration.new if folder.files else None
    if last is None and (old is None or new is None):
        problem = "the first migration of a folder needs both: --from OLD --to NEW"
        raise InvalidInputError(source="--from" if old is None else "--to", problem=problem)
    new = new or (last.name if last is not None else None)
    if not new:
        raise InvalidInputError(source="--to", problem="the last file names no class: name the layout as it shall be")
    after = layout_of_option(new)
    if old is not None:
        before, name = layout_of_option(old), "" if old.endswith(".json") else old
    else:
        assert last is not None
        before, name = folder.end()
    return (name, bound_at(before, place.parameter, place.config)), (
        "" if new.endswith(".json") else new,
        bound_at(after, place.parameter, place.config),
    )


def _planned(store: Store, source: PlanSource, *, json: bool) -> MigrationPlan | None:
    """Plan what is due and print it; None: nothing is."""
    with progress_bar("examine") as shown:
        planned = source.planned(store.engine, shown)
    _print_plan(planned, json=json)
    return planned.plan


def _carry_out(
    context: typer.Context, phase: Phase | None, options: PlanOptions, place: Place, running: RunOptions
) -> None:
    """Plan what is due and carry out a phase of it; without one that which is under way, which is resumed."""
    source = options.source(place.parameter, place.config)
    pace = pace_of_option(running.pace)
    with place.opened(source.root, is_read=False) as store:
        plan = _planned(store, source, json=running.json)
        if phase is ROLLBACK and (plan is None or plan.is_over):
            remedy = "what has been finished goes back by a migration from its layout to the earlier one"
            raise MigrationRefusedError(
                obstacles=(f"nothing is under way, so there is nothing to roll back: {remedy}",)
            )
        if plan is None:
            source.remember(store.engine)
            return
        if phase is not ROLLBACK:
            end_with_findings(plan.obstacles)
        if plan.is_over or not _is_agreed(plan, phase, is_agreed=running.yes):
            return
        if phase is None:
            phase = _resumed(store, plan)
        source.remember(store.engine)
        words = partial(words_of, context, replaced=source.told)
        with stopped_by_signals(partial(words, with_store=True)) as stop:
            is_done = phase.carry_out(store, plan, Act(stop, words(), pace), json=running.json)
    end_with_findings(not is_done)


def _resumed(store: Store, plan: MigrationPlan) -> Phase:
    """Let a paused migration go on, and return the phase that it is in. Raises MigrationRefusedError."""
    word = phase_under_way(store.engine, plan.id)
    if not word:
        raise MigrationRefusedError(obstacles=("nothing is under way: `keyplan migrate run` begins",))
    Backoff().until_committed(partial(resume_migration, store.engine, plan.id))
    return _UNDER_WAY[word]


def _is_agreed(plan: MigrationPlan, phase: Phase | None, *, is_agreed: bool) -> bool:
    count = sum(step.phase in phase.steps for step in plan.steps) if phase is not None else 0
    question = f"Take {count} steps?" if count else "Take it back?" if phase is ROLLBACK else "Go on with it?"
    return agreed(question, is_agreed=is_agreed, instead=" to carry out the plan; `keyplan migrate plan` prints it")


def _migrated(store: Store, plan: MigrationPlan, act: Act, *, json: bool, is_switched: bool) -> bool:
    with progress_bar("migrate") as shown:
        report = migrate(store, plan, is_switched=is_switched, progress=shown.told, **act._asdict())
    print_report(report, is_switched=is_switched, is_over=not plan.has_clean_up, json=json)
    return not report.contested and not report.entries_contested and (report.is_settled or not is_switched)


def _cleaned(store: Store, plan: MigrationPlan, act: Act, *, json: bool) -> bool:
    with progress_bar("clean up") as shown:
        report = clean_up_migration(store, plan, progress=shown.told, **act._asdict())
    print_clean_up(report, json=json)
    return report.is_cleaned


def _rolled_back(store: Store, plan: MigrationPlan, act: Act, *, json: bool) -> bool:
    with progress_bar("take back") as shown:
        report = roll_back_migration(store, plan, progress=shown.told, **act._asdict())
    print_rollback(report, json=json)
    return report.is_rolled_back


RUN: Final = Phase("run", (MigrationPhase.FILL,), partial(_migrated, is_switched=False))
SWITCH: Final = Phase("switch", (MigrationPhase.FILL, MigrationPhase.SWITCH), partial(_migrated, is_switched=True))
FINISH: Final = Phase("finish", (MigrationPhase.CONTRACT,), _cleaned)
ROLLBACK: Final = Phase("rollback", (), _rolled_back)

_UNDER_WAY: Final = {"run": RUN, "switch": SWITCH, "finish": FINISH, "rollback": ROLLBACK}


# ---- printing --------------------------------------------------------------------------------------------------------------


def _print_plan(planned: Planned, *, json: bool) -> None:
    plan = planned.plan
    if plan is None:
        print_answer({"name": None}, *planned.lines, json=json)
        return
    document = {
        "name": planned.name,
        "migration": plan.id.hex(),
        "is_over": plan.is_over,
        "changes": [plain_change(change) for change in plan.changes],
        "steps": [{**document_of(step), "phase": step.phase.name.lower()} for step in plan.steps],
        "obstacles": list(plan.obstacles),
    }
    print_answer(document, *planned.lines, *(plan.lines() or ["nothing to do"]), json=json)
