"""The commands from one layout to another: `keyplan diff|migrate`."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from keyplan.cli.failures import agreed, end_with_findings
from keyplan.cli.jobs import stopped_by_signals, words_of
from keyplan.cli.options import (
    ConfigOption,
    DryRunOption,
    JsonOption,
    KeySpaceOption,
    ParameterOption,
    StoreOption,
    Unfinished,
    YesOption,
    layout_of_option,
    root_parameters,
    store_of_option,
)
from keyplan.cli.output import document_of, print_answer, print_json, print_lines, print_text, progress_bar
from keyplan.errors import InvalidInputError
from keyplan.jobs import Stop
from keyplan.layout import (
    Impact,
    LayoutChange,
    differences,
    shown_key,
)
from keyplan.maintenance import (
    CleanUpReport,
    Conversion,
    MigrationPhase,
    MigrationPlan,
    MigrationReport,
    Verification,
    clean_up_migration,
    migrate,
    plan_migration,
)
from keyplan.store import Store

__all__ = ["diff_command", "migrate_command"]

_DIGITS_MAX: Final = 18
"""Why: Python reads no number of thousands of digits."""

# ---- diff ----------------------------------------------------------------------------------------------------------------


RenameOption = Annotated[
    list[str] | None,
    typer.Option("--rename", metavar="OLD=NEW", help="An item's old name with its new one; may be repeated."),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="NAME",
        help="A table whose records are to be removed, or TABLE.FIELD for values; may be repeated.",
    ),
]


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


def renames_of_option(given: list[str] | None) -> dict[str, str]:
    """Read `--rename OLD=NEW`. Raises InvalidInputError."""
    renames: dict[str, str] = {}
    for text in given or []:
        old, equals, new = text.partition("=")
        if not (old and equals and new) or old in renames:
            raise InvalidInputError(source="--rename", problem=f"{text!r} is not OLD=NEW, each old name once")
        renames[old] = new
    return renames


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


def migrate_command(
    context: typer.Context,
    *,
    old: Annotated[str, typer.Option("--from", metavar="LAYOUT", help="The layout as it was.", show_default=False)],
    new: Annotated[str, typer.Option("--to", metavar="LAYOUT", help="The layout as it shall be.", show_default=False)],
    store: StoreOption = None,
    keyspace: KeySpaceOption = None,
    parameter: ParameterOption = None,
    from_parameter: Annotated[
        list[str] | None,
        typer.Option("--from-parameter", metavar="NAME=VALUE", help="A parameter of the old root, where it differs."),
    ] = None,
    config: ConfigOption = None,
    rename: RenameOption = None,
    drop: DropOption = None,
    function: Annotated[
        list[str] | None,
        typer.Option(
            "--function",
            metavar="TABLE=MODULE:NAME@VERSION",
            help="Makes a new record of an old one; may be repeated.",
        ),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            metavar="NAME",
            help="A breaking change that is harmless here, as E17; from:TABLE, gone:TABLE; may be repeated.",
        ),
    ] = None,
    switched: Annotated[
        bool, typer.Option("--switched", help="No program writes by the old layout any more: finish and verify.")
    ] = False,
    clean_up: Annotated[
        bool,
        typer.Option("--clean-up", help="No program needs the old layout any more: remove the keys that only it has."),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Bring a store from one layout to another beside the programs that use it, in three runs: now, --switched, --clean-up.

    The plan is printed first, with every obstacle; nothing is written before somebody agrees to it. The same command finishes
    a run that was interrupted. Exit code 1 when obstacles or records to decide about remain.
    """
    if switched and clean_up:
        raise InvalidInputError(
            source="--clean-up", problem="it is a run of its own, after --switched: pass one of them"
        )
    before, after = layout_of_option(old), layout_of_option(new)
    bound_before = before.bound(**root_parameters(before, from_parameter or _known(before, parameter), config))
    bound_after = after.bound(**root_parameters(after, parameter, config))
    conversions = conversions_of_option(function)
    with _opened(store, config, keyspace, bound_before.root, is_read=dry_run) as opened:
        with progress_bar("examine") as shown:
            plan = plan_migration(
                opened.engine,
                bound_before,
                bound_after,
                renames=renames_of_option(rename),
                drops=drop or (),
                conversions=conversions,
                accepts=accept or (),
                progress=shown,
            )
        _print_plan(plan, json=json)
        end_with_findings(plan.obstacles)
        if dry_run or plan.is_over or not _is_agreed(plan, is_agreed=yes, switched=switched, clean_up=clean_up):
            return
        carry_out = _cleaned if clean_up else partial(_migrated, switched=switched)
        with stopped_by_signals(partial(words_of, context, with_store=True)) as stop:
            is_done = carry_out(opened, plan, stop, words_of(context, leaves_out=("switched", "clean_up")), json=json)
    end_with_findings(not is_done)


def conversions_of_option(given: list[str] | None) -> dict[str, Conversion]:
    """Read `--function TABLE=MODULE:NAME@VERSION`; without a version it is 1. Raises InvalidInputError."""
    conversions: dict[str, Conversion] = {}
    for text in given or []:
        table, equals, named = text.partition("=")
        name, at, version = named.partition("@")
        if not (table and equals and ":" in name) or (at and not (version.isdecimal() and len(version) <= _DIGITS_MAX)):
            raise InvalidInputError(source="--function", problem=f"{text!r} is not TABLE=MODULE:NAME@VERSION")
        conversions[table] = Conversion(_imported(name), name, int(version or 1))
    return conversions


def _opened(url: str | None, config: Path | None, keyspace: str | None, root: bytes, *, is_read: bool) -> Store:
    what = Unfinished.TOLD if is_read else Unfinished.REFUSED
    return store_of_option(url, config, keyspace=keyspace, readonly=is_read, root=root, unfinished=what)


def _imported(name: str) -> Callable[[Any], Any]:
    module_name, _, attribute = name.partition(":")
    # Why: a console script's path holds its own folder; people name modules of the folder that they are in.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(source="--function", problem=f"cannot import {name}: {error}") from error
    if not callable(function):
        raise InvalidInputError(source="--function", problem=f"{name} is no function")
    found: Callable[[Any], Any] = function
    return found


def _known(layout: Any, given: list[str] | None) -> list[str]:
    """Return those of the parameters that the old root has too."""
    return [text for text in given or [] if text.partition("=")[0] in layout.spec.root.field_names]


def _is_agreed(plan: MigrationPlan, *, is_agreed: bool, switched: bool, clean_up: bool) -> bool:
    phases = (MigrationPhase.CLEAN_UP,) if clean_up else (MigrationPhase.PREPARE, MigrationPhase.FINISH)[: 1 + switched]
    count = sum(step.phase in phases for step in plan.steps)
    return agreed(f"Take {count} steps?", is_agreed=is_agreed, instead=" to carry out the plan, or --dry-run")


def _migrated(
    store: Store, plan: MigrationPlan, stop: Stop, command: Sequence[str], *, json: bool, switched: bool
) -> bool:
    with progress_bar("migrate") as shown:
        report = migrate(store, plan, is_switched=switched, stop=stop, command=command, progress=shown.told)
    if json:
        print_json(_plain_report(report))
    else:
        _print_report(report, switched=switched)
    return not report.contested and not report.entries_contested and (report.is_settled or not switched)


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


def _print_plan(plan: MigrationPlan, *, json: bool) -> None:
    document = {
        "migration": plan.id.hex(),
        "is_over": plan.is_over,
        "changes": [plain_change(change) for change in plan.changes],
        "steps": [{**document_of(step), "phase": step.phase.name.lower()} for step in plan.steps],
        "obstacles": list(plan.obstacles),
    }
    print_answer(document, *(plan.lines() or ["nothing to do"]), json=json)


def _print_report(report: MigrationReport, *, switched: bool) -> None:
    counts = ", ".join(f"{count} {name}" for name, count in sorted(report.counts.items()))
    if counts:
        print_text(f"records: {counts}")
    for name in report.built:
        print_text(f"{name} is readable")
    for verification in report.verified:
        print_text(_verified(verification))
    print_lines(*(f"left: {one}" for one in (*report.contested, *report.entries_contested)))
    if report.is_settled:
        print_text("settled: --clean-up may follow")
    elif switched:
        print_text("not settled: decide about the records left, and run the command again")
    else:
        print_text("prepared: upgrade the programs, then run the command with --switched")


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
