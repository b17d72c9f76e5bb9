"""The commands from one layout to another: `keyplan diff` and `keyplan migrate ...`."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any, Final, NamedTuple

import typer

from keyplan.cli.failures import agreed, end_with_findings
from keyplan.cli.jobs import stopped_by_signals, words_of
from keyplan.cli.migration_plans import (
    FOLDER,
    AcceptOption,
    DropOption,
    FileSource,
    FolderOption,
    Planned,
    PlanOptions,
    PlanSource,
    RenameOption,
    bound_at,
    renames_of_option,
)
from keyplan.cli.migration_status import status_of
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    KeySpaceOption,
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
from keyplan.cli.output import document_of, print_answer, print_json, print_lines, print_text, progress_bar
from keyplan.errors import InvalidInputError
from keyplan.jobs import Stop
from keyplan.layout import BoundLayout, Impact, LayoutChange, differences, shown_key
from keyplan.maintenance import (
    CleanUpReport,
    MigrationFolder,
    MigrationPhase,
    MigrationPlan,
    MigrationReport,
    Verification,
    clean_up_migration,
    draft_migration,
    migrate,
    read_migrations,
)
from keyplan.store import Store

__all__ = ["diff_command", "migrate_app"]

# ---- diff ----------------------------------------------------------------------------------------------------------------


def diff_command(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The old layout: a name, module:Class, or FILE.json.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The new layout.")],
    *,
    rename: RenameOption = None,
    drop: DropOption = None,
    allow: Annotated[
        Impact, typer.Option("--allow", help="Exit code 1 only for changes beyond this class.")
    ] = Impact.COMPATIBLE,
    json: JsonOption = False,
) -> None:
    """Compare two layouts: each change, its effect on programs and stored data, and the remedy.

    Exit code 1 when a change is beyond --allow.
    """
    before, after = layout_of_option(old).spec, layout_of_option(new).spec
    changes = differences(before, after, renames=renames_of_option(rename), drops=drop or ())
    beyond = [change for change in changes if change.impact.rank > allow.rank]
    worst = max((change.impact for change in changes), key=lambda impact: impact.rank, default=Impact.COMPATIBLE)
    document = {
        "old": before.name,
        "new": after.name,
        "impact": worst.value,
        "beyond": len(beyond),
        "changes": [plain_change(change) for change in changes],
    }
    number = "1 change" if len(changes) == 1 else f"{len(changes)} changes"
    end = f"{before.name} to {after.name}: {number}, {len(beyond)} beyond {allow.value}"
    print_answer(document, *map(str, changes), end, json=json)
    end_with_findings(beyond)


def plain_change(change: LayoutChange) -> dict[str, Any]:
    """Return a change as JSON values."""
    return {
        "code": change.code,
        "item": change.item or None,
        "field": change.field or None,
        "impact": change.impact.value,
        "message": change.message,
        "advice": change.advice,
        "witness": None if change.witness is None else shown_key(change.witness),
        "second": None if change.second is None else shown_key(change.second),
        "loses_values": change.loses_values,
        "renamed_to": list(change.renamed_to),
    }


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


class Phase(NamedTuple):
    """A run of a migration: the word of its command, its steps, and what carries it out."""

    word: str
    steps: tuple[MigrationPhase, ...]
    is_switched: bool = False


RUN: Final = Phase("run", (MigrationPhase.PREPARE,))
SWITCH: Final = Phase("switch", (MigrationPhase.PREPARE, MigrationPhase.FINISH), is_switched=True)
FINISH: Final = Phase("finish", (MigrationPhase.CLEAN_UP,))


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


def run_command(
    context: typer.Context, *, options: PlanOptions, place: Place, yes: YesOption = False, json: JsonOption = False
) -> None:
    """Do what can be done beside programs of the old layout; the same command goes on with a run that was interrupted.

    The plan is printed first, with every obstacle; nothing is written before somebody agrees to it. Exit code 1 when obstacles
    or records to decide about remain.
    """
    _carry_out(context, RUN, options, place, is_agreed=yes, json=json)


def switch_command(
    context: typer.Context, *, options: PlanOptions, place: Place, yes: YesOption = False, json: JsonOption = False
) -> None:
    """Do the rest and verify it, when no program writes by the old layout any more. Exit code 1 when it is not settled."""
    _carry_out(context, SWITCH, options, place, is_agreed=yes, json=json)


def finish_command(
    context: typer.Context, *, options: PlanOptions, place: Place, yes: YesOption = False, json: JsonOption = False
) -> None:
    """Remove what only the old layout knows, when no program needs it any more. Exit code 1 when something is left."""
    _carry_out(context, FINISH, options, place, is_agreed=yes, json=json)


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
    ("run", run_command),
    ("switch", switch_command),
    ("finish", finish_command),
    ("status", status_command),
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
    context: typer.Context, phase: Phase, options: PlanOptions, place: Place, *, is_agreed: bool, json: bool
) -> None:
    source = options.source(place.parameter, place.config)
    with place.opened(source.root, is_read=False) as store:
        plan = _planned(store, source, json=json)
        if plan is None:
            return
        end_with_findings(plan.obstacles)
        if plan.is_over or not _is_agreed(plan, phase, is_agreed=is_agreed):
            return
        act = _cleaned if phase is FINISH else partial(_migrated, phase=phase)
        words = partial(words_of, context, replaced=source.told)
        with stopped_by_signals(partial(words, with_store=True)) as stop:
            is_done = act(store, plan, stop, words(), json=json)
    end_with_findings(not is_done)


def _is_agreed(plan: MigrationPlan, phase: Phase, *, is_agreed: bool) -> bool:
    count = sum(step.phase in phase.steps for step in plan.steps)
    return agreed(
        f"Take {count} steps?", is_agreed=is_agreed, instead=" to carry out the plan; `keyplan migrate plan` prints it"
    )


def _migrated(
    store: Store, plan: MigrationPlan, stop: Stop, command: Sequence[str], *, phase: Phase, json: bool
) -> bool:
    with progress_bar("migrate") as shown:
        report = migrate(store, plan, is_switched=phase.is_switched, stop=stop, command=command, progress=shown.told)
    if json:
        print_json(_plain_report(report))
    else:
        _print_report(report, is_switched=phase.is_switched)
    return not report.contested and not report.entries_contested and (report.is_settled or not phase.is_switched)


def _cleaned(store: Store, plan: MigrationPlan, stop: Stop, command: Sequence[str], *, json: bool) -> bool:
    with progress_bar("clean up") as shown:
        report = clean_up_migration(store, plan, stop=stop, command=command, progress=shown.told)
    if json:
        print_json(_plain_clean_up(report))
        return report.is_cleaned
    for verification in report.verified:
        print_text(_verified(verification))
    print_lines(*(f"left: {contest}" for contest in report.left))
    print_text(f"removed {report.records} records, {report.entries} index entries, {report.numbers} numbers")
    return report.is_cleaned


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


def _print_report(report: MigrationReport, *, is_switched: bool) -> None:
    counts = ", ".join(f"{count} {name}" for name, count in sorted(report.counts.items()))
    if counts:
        print_text(f"records: {counts}")
    for name in report.built:
        print_text(f"{name} is readable")
    for verification in report.verified:
        print_text(_verified(verification))
    print_lines(*(f"left: {one}" for one in (*report.contested, *report.entries_contested)))
    if report.is_settled:
        print_text("settled: `keyplan migrate finish` follows when no program needs the old layout any more")
    elif is_switched:
        print_text("not settled: decide about the records left, and give the command again")
    else:
        print_text("prepared: upgrade the programs, then `keyplan migrate switch`")


def _verified(found: Verification) -> str:
    verdict = "verified" if found.is_equal else "NOT EQUAL"
    count, digest = found.found
    return (
        f"{found.table}: {verdict}, {count} records, digest {digest[:16]}, {found.ahead} ahead, {found.missing} missing"
    )


def _plain_report(report: MigrationReport) -> dict[str, Any]:
    return {
        "is_settled": report.is_settled,
        "counts": report.counts,
        "built": report.built,
        "verified": [_plain_verification(found) for found in report.verified],
        "contested": [
            {"old": shown_key(contest.old_key), "new": shown_key(contest.new_key or b""), "reason": contest.reason}
            for contest in report.contested
        ],
        "entries_contested": [str(finding) for finding in report.entries_contested],
    }


def _plain_clean_up(report: CleanUpReport) -> dict[str, Any]:
    return {
        "is_cleaned": report.is_cleaned,
        "records": report.records,
        "entries": report.entries,
        "numbers": report.numbers,
        "verified": [_plain_verification(found) for found in report.verified],
        "left": [{"old": shown_key(contest.old_key), "reason": contest.reason} for contest in report.left],
    }


def _plain_verification(found: Verification) -> dict[str, Any]:
    return {
        "table": found.table,
        "is_equal": found.is_equal,
        "expected": list(found.expected),
        "found": list(found.found),
        "ahead": found.ahead,
        "missing": found.missing,
    }
