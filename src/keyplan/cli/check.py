"""The command `keyplan check`."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from shlex import quote
from typing import Annotated, Any, Final

import typer

from keyplan.cli.bar import progress_bar
from keyplan.cli.exit_codes import FINDINGS
from keyplan.cli.failures import print_hint
from keyplan.cli.items import LayoutOptions, OpenLayout
from keyplan.cli.options import JsonOption, installed_layouts, layout_of_option, root_parameters
from keyplan.cli.output import print_json, print_text, printable
from keyplan.cli.unfinished import Unfinished
from keyplan.engine import Commit, KeyRange
from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.layout import BoundLayout, shown_key
from keyplan.maintenance import (
    Check,
    Finding,
    FindingKind,
    Outcome,
    Repair,
    RepairResult,
    carry_out,
    check,
    plan_repairs,
    unfinished_work,
)
from keyplan.store import Explanation

__all__ = ["run"]

_REPAIRS_MAX: Final = 10_000
"""Why: a plan is held in memory whole and read by a person; what is beyond it is found by the next run."""


def run(
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Print what would be done about each finding, ask, and do it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --repair: do not ask.")] = False,
    beside: Annotated[
        list[str] | None,
        typer.Option("--beside", metavar="LAYOUT", help="Another layout below the same root; may be repeated."),
    ] = None,
    resume: Annotated[
        str, typer.Option("--resume", metavar="TOKEN", help="Go on where an earlier check ended.", show_default=False)
    ] = "",
    keys_max: Annotated[
        int | None, typer.Option("--keys", metavar="N", min=1, help="End after about N keys, and print the token.")
    ] = None,
) -> None:
    """Examine every key below the layout's root: records against index entries, in both directions, and what nobody can read.

    Nothing is written without --repair. Exit code 1 when something remains. With --json a line for each finding, and one for
    the whole.
    """
    if yes and not repair:
        raise InvalidInputError(source="--yes", problem="there is nothing to ask without --repair")
    others = [layout_of_option(name).bound() for name in beside or []]
    with at.opened(readonly=True, unfinished=Unfinished.PASSED) as open_layout:
        engine = open_layout.store.engine

        def total() -> int:
            with engine.snapshot() as snapshot:
                return snapshot.count(KeyRange.of_prefix(open_layout.bound.root))

        unfinished = _unfinished(open_layout)
        with progress_bar("check", total) as progress:
            examined = check(
                open_layout.store,
                open_layout.bound,
                beside=others,
                known=_of_same_root(at, open_layout.bound),
                resume=resume,
                keys_max=keys_max,
                progress=progress,
            )
            told: dict[FindingKind, bytes] = {}
            repairs, remaining = _examined(open_layout, examined, told, json=json, is_repairing=repair)
    if repairs:
        remaining += _repaired(at, repairs, json=json, is_agreed=yes)
    if not json:
        _print_advice(told)
    _print_end(examined, remaining, unfinished, json=json)
    if remaining or unfinished:
        raise typer.Exit(FINDINGS)


def _unfinished(open_layout: OpenLayout) -> list[str]:
    """Say what is being brought below the layout's root, or was when it was killed. Why first: findings are no damage then."""
    with open_layout.store.engine.snapshot() as snapshot:
        found = [problem for _, problem in unfinished_work(snapshot, [open_layout.bound.root])]
    for problem in found:
        print_hint(f"{problem}; what it has not brought yet is missing here")
    return found


def _of_same_root(at: LayoutOptions, own: BoundLayout) -> list[BoundLayout]:
    """The installed layouts that lie below the same root, as one layout with and without its indexes does."""
    found = []
    for name in installed_layouts():
        kind = layout_of_option(name)
        given = [text for text in at.parameter or [] if text.partition("=")[0] in kind.spec.root.field_names]
        with suppress(KeyplanError):
            bound = kind.bound(**root_parameters(kind, given, at.config))
            if bound.root == own.root and bound.fingerprint != own.fingerprint:
                found.append(bound)
    return found


def _examined(
    open_layout: OpenLayout, examined: Check, told: dict[FindingKind, bytes], *, json: bool, is_repairing: bool
) -> tuple[list[Repair], int]:
    """Print the findings, or with their repairs; return the repairs to carry out, and how many findings have none."""
    remaining = 0
    if not is_repairing:
        for finding in examined:
            _print_finding(finding, json=json)
            told.setdefault(finding.kind, finding.raw_key)
            remaining += not finding.kind.is_note
        return [], remaining
    repairs: list[Repair] = []
    for finding in islice(examined, _REPAIRS_MAX):
        for repair in plan_repairs(open_layout.store, open_layout.bound, [finding]):
            _print_repair(open_layout, repair, json=json)
            if repair.needs_decision:
                remaining += not repair.finding.kind.is_note
            else:
                repairs.append(repair)
    return repairs, remaining


def _repaired(at: LayoutOptions, repairs: list[Repair], *, json: bool, is_agreed: bool) -> int:
    """Ask, carry out, print what became of each; return how many remain.

    Why the store is opened again: who only examines, and finds nothing to repair, waits for nobody who writes.
    """
    if not is_agreed and not _is_confirmed(len(repairs)):
        print_hint("nothing was written")
        return len(repairs)
    remaining = 0
    with at.opened() as open_layout:
        for outcome in carry_out(open_layout.store, open_layout.bound, repairs):
            remaining += outcome.result in {RepairResult.LEFT, RepairResult.CONTENDED, RepairResult.FAILED}
            _print_outcome(outcome, json=json)
    return remaining


def _print_outcome(outcome: Outcome, *, json: bool) -> None:
    key = shown_key(outcome.repair.finding.raw_key)
    problem = "" if outcome.error is None else str(outcome.error)
    if json:
        print_json({"key": key, "result": outcome.result.value, "revision": outcome.revision, "problem": problem})
    else:
        print_text(printable(f"{outcome.result.value}: {key}" + (f": {problem}" if problem else "")))


def _is_confirmed(count: int) -> bool:
    if not sys.stdin.isatty():
        raise InvalidInputError(source="--repair", problem="not a terminal: pass --yes to carry out the plan")
    return typer.confirm(f"Carry out {count} repairs?", err=True)


def _print_finding(finding: Finding, *, json: bool) -> None:
    if json:
        print_json(_plain(finding))
    else:
        print_text(printable(str(finding)))


def _print_repair(open_layout: OpenLayout, repair: Repair, *, json: bool) -> None:
    lines = list(_commit_lines(open_layout, repair.commit))
    if json:
        print_json({**_plain(repair.finding), "repair": repair.what, "commit": lines})
    else:
        print_text("\n".join(map(printable, [str(repair.finding), f"  {repair.what}", *lines])))


def _commit_lines(open_layout: OpenLayout, commit: Commit | None) -> Iterator[str]:
    if commit is not None:
        yield from (f"    {line}" for line in Explanation(commit, (open_layout.bound,)).lines())


def _plain(finding: Finding) -> dict[str, Any]:
    return {
        "finding": finding.kind.value,
        "key": shown_key(finding.raw_key),
        "hex": finding.raw_key.hex(),
        "item": finding.item,
        "record": None if finding.record_key is None else shown_key(finding.record_key),
        "detail": finding.detail,
        "is_note": finding.kind.is_note,
        "is_repairable": finding.kind.is_repairable,
        "advice": _advice(finding.kind, finding.raw_key),
    }


def _print_advice(told: dict[FindingKind, bytes]) -> None:
    """Say once for each kind of finding which command mends the first of it; the others have their own keys."""
    for kind in FindingKind:
        if kind in told:
            print_hint(f"{kind.value}: {_advice(kind, told[kind])}")


def _advice(kind: FindingKind, raw_key: bytes) -> str:
    return kind.advice.replace("KEY", quote(shown_key(raw_key)))


def _print_end(examined: Check, remaining: int, unfinished: list[str], *, json: bool) -> None:
    if json:
        end = {"keys": examined.keys_examined, "remaining": remaining, "resume": examined.cursor}
        print_json({**end, "unfinished": unfinished})
        return
    print_text(f"{examined.keys_examined} keys examined, {remaining} findings remain")
    if examined.cursor is not None:
        print_hint(f"not all keys were examined; go on with --resume {examined.cursor}")
