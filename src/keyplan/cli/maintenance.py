"""The commands that examine and mend: `keyplan check|index|doctor`; and `keyplan who`."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from shlex import quote
from typing import Annotated, Any, Final

import typer

from keyplan.cli.failures import FINDINGS, agreed, end_with_findings, print_hint
from keyplan.cli.items import LayoutOptions, OpenLayout
from keyplan.cli.jobs import PaceOption, pace_of_option, stopped_by_signals, words_of
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    StoreOption,
    Unfinished,
    absolute_url,
    command_group,
    count_below,
    installed_layouts,
    layout_of_option,
    root_parameters,
    spread,
    store_url_of_option,
)
from keyplan.cli.output import (
    print_answer,
    print_grid,
    print_json,
    print_lines,
    print_record,
    print_text,
    progress_bar,
)
from keyplan.cli.registries import RegistryOptions
from keyplan.engine import Commit, KeyRange, StoreUser, exposed_files, store_users, utc_time
from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.keyspace import Diagnosis, Fault, Unmanaged
from keyplan.layout import BoundLayout, shown_key
from keyplan.maintenance import (
    Check,
    Finding,
    FindingKind,
    Outcome,
    Repair,
    RepairResult,
    build_index,
    carry_out,
    check,
    drop_index,
    list_indexes,
    plan_repairs,
    prepare_index,
    unfinished_work,
)
from keyplan.store import Explanation

__all__ = ["check_command", "doctor_command", "index_app", "who_command"]

# ---- check ---------------------------------------------------------------------------------------------------------------


_REPAIRS_MAX: Final = 10_000
"""Why: memory holds the whole plan and a person reads it. The next run finds the rest."""

_PLAN: Final = " to carry out the plan"


def check_command(
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Print a repair for each finding, ask, and carry them out.")
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
    """Examine every key below the layout's root: records against index entries, in both directions, and damage.

    Nothing is written without --repair. Exit code 1 when findings remain. --json prints a line for each finding, and one for
    the whole.
    """
    if yes and not repair:
        raise InvalidInputError(source="--yes", problem="--yes belongs to --repair: pass both")
    others = [layout_of_option(name).bound() for name in beside or []]
    with at.opened(readonly=True, unfinished=Unfinished.PASSED) as open_layout:
        unfinished = _unfinished(open_layout, at)
        with progress_bar("check", lambda: count_below(open_layout.store.engine, open_layout.bound.root)) as shown:
            examined = check(
                open_layout.store,
                open_layout.bound,
                beside=others,
                known=_of_same_root(at, open_layout.bound),
                resume=resume,
                keys_max=keys_max,
                progress=shown.told,
            )
            first: dict[FindingKind, bytes] = {}
            repairs, remaining = _examined(open_layout, examined, first, json=json, is_repairing=repair)
    if repairs:
        remaining += _repaired(at, repairs, json=json, is_agreed=yes)
    if not json:
        _print_advice(first)
    _print_end(examined, remaining, unfinished, json=json)
    end_with_findings(remaining or unfinished)


def _unfinished(open_layout: OpenLayout, at: LayoutOptions) -> list[str]:
    """Print the transfers into the layout's root that have not ended. Why first: with one, findings are no damage."""
    url = absolute_url(store_url_of_option(at.store, at.config))
    with open_layout.store.engine.snapshot() as snapshot:
        found = [problem for _, problem in unfinished_work(snapshot, [open_layout.bound.root], store=url)]
    for problem in found:
        print_hint(f"{problem}; keys that it has not brought yet are missing here")
    return found


def _of_same_root(at: LayoutOptions, own: BoundLayout) -> list[BoundLayout]:
    """Return the installed layouts below the same root, such as one layout with and without its indexes."""
    found = []
    for name in installed_layouts():
        kind = layout_of_option(name)
        given = [text for text in at.parameter or [] if text.partition("=")[0] in kind.spec.root.field_names]
        with suppress(KeyplanError):  # Why: a layout that these parameters do not fit lies below another root.
            bound = kind.bound(**root_parameters(kind, given, at.config))
            if bound.root == own.root and bound.fingerprint != own.fingerprint:
                found.append(bound)
    return found


def _examined(
    open_layout: OpenLayout, examined: Check, first: dict[FindingKind, bytes], *, json: bool, is_repairing: bool
) -> tuple[list[Repair], int]:
    """Print the findings, or with their repairs; return the repairs to carry out, and how many findings have none.

    `first` gets the first key of each kind of finding.
    """
    remaining = 0
    if not is_repairing:
        for finding in examined:
            print_answer(_plain(finding), str(finding), json=json)
            first.setdefault(finding.kind, finding.raw_key)
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
    """Ask, carry the repairs out, print the outcome of each; return how many remain.

    Why the store is opened again: a check that finds nothing to repair does not wait for writers.
    """
    if not agreed(f"Carry out {len(repairs)} repairs?", is_agreed=is_agreed, source="--repair", instead=_PLAN):
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
    document = {"key": key, "result": outcome.result.value, "revision": outcome.revision, "problem": problem}
    print_answer(document, f"{outcome.result.value}: {key}" + (f": {problem}" if problem else ""), json=json)


def _print_repair(open_layout: OpenLayout, repair: Repair, *, json: bool) -> None:
    lines = list(_commit_lines(open_layout, repair.commit))
    document = {**_plain(repair.finding), "repair": repair.what, "commit": lines}
    print_answer(document, str(repair.finding), f"  {repair.what}", *lines, json=json)


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


def _print_advice(first: dict[FindingKind, bytes]) -> None:
    """Print, once for each kind of finding, the command that mends the first; the others have their own keys."""
    for kind in FindingKind:
        if kind in first:
            print_hint(f"{kind.value}: {_advice(kind, first[kind])}")


def _advice(kind: FindingKind, raw_key: bytes) -> str:
    return kind.advice.replace("KEY", quote(shown_key(raw_key)))


def _print_end(examined: Check, remaining: int, unfinished: list[str], *, json: bool) -> None:
    if json:
        end = {"keys": examined.keys_examined, "remaining": remaining, "resume": examined.cursor}
        print_json({**end, "unfinished": unfinished})
        return
    print_text(f"{examined.keys_examined} keys examined, {remaining} findings remain")
    if examined.cursor is not None:
        print_hint(f"some keys were not examined: pass --resume {examined.cursor}")


# ---- index ---------------------------------------------------------------------------------------------------------------


index_app: Final = command_group("See, build and drop indexes of a store in use.")

IndexArgument = Annotated[str, typer.Argument(metavar="INDEX", help="An index of the layout.", show_default=False)]


@index_app.command("list")
@spread
def index_list_command(
    *,
    at: LayoutOptions,
    json: JsonOption = False,
) -> None:
    """Print the indexes, and whether each is readable, write-only, building, verifying or sweeping."""
    with at.opened(readonly=True) as open_layout:
        indexes = list_indexes(open_layout.store, open_layout.bound)
    if json:
        for index in indexes:
            print_json(
                {
                    "index": index.name,
                    "table": index.table,
                    "is_unique": index.is_unique,
                    "state": index.stage,
                    "records": index.records,
                }
            )
        return
    rows = [(index.name, index.table, index.stage, str(index.records) if index.records else "") for index in indexes]
    print_grid(("index", "table", "state", "gone through"), rows)


@index_app.command("prepare")
@spread
def index_prepare_command(
    context: typer.Context,
    index: IndexArgument,
    *,
    at: LayoutOptions,
) -> None:
    """Make an index write-only: writers keep it, readers get an error until it is built. This is the first step."""
    with at.opened() as open_layout:
        is_new = prepare_index(open_layout.store, open_layout.bound, index, command=_building(context))
    print_text(f"{index} is write-only" if is_new else f"{index} was not readable before: nothing was written")


@index_app.command("build")
@spread
def index_build_command(
    context: typer.Context,
    index: IndexArgument,
    *,
    at: LayoutOptions,
    pace: PaceOption = None,
) -> None:
    """Build an index while the store is in use, verify it, and make it readable.

    The same command resumes a build that was interrupted.
    """
    asked = pace_of_option(pace)
    with at.opened() as open_layout:
        open_layout.bound.spec.item(index)

        def total() -> int:
            table = open_layout.bound.indexes[index].table
            with open_layout.store.engine.snapshot() as snapshot:
                return snapshot.count(KeyRange(*table.keys.range(())))

        with (
            stopped_by_signals(partial(words_of, context, with_store=True)) as stop,
            progress_bar(f"build {index}", total) as shown,
        ):
            report = build_index(
                open_layout.store,
                open_layout.bound,
                index,
                pace=asked,
                stop=stop,
                command=_building(context),
                progress=shown.told,
            )
    print_lines(*map(str, report.contested))
    if report.unfit:
        print_hint(f"{report.unfit} records have no entry: `keyplan check` names each")
    if not report.is_readable:
        print_text(f"{index} is not readable: change one of the records that claim the same entry, and build it again")
        raise typer.Exit(FINDINGS)
    print_text(f"{index} is readable: {report.entries_written} entries written")


@index_app.command("drop")
@spread
def index_drop_command(
    context: typer.Context,
    index: IndexArgument,
    *,
    at: LayoutOptions,
) -> None:
    """Make an index write-only, then remove its entries. Records stay as they are; `build` makes the entries again."""
    with at.opened() as open_layout, stopped_by_signals(partial(words_of, context, with_store=True)) as stop:
        removed = drop_index(
            open_layout.store,
            open_layout.bound,
            index,
            stop=stop,
            command=words_of(context),
            command_afterwards=_building(context),
        )
    print_text(f"{index} is write-only: {removed} entries removed")


def _building(context: typer.Context) -> tuple[str, ...]:
    """The words that build the index which a command of this group is about."""
    return ("index", "build", *words_of(context)[2:])


# ---- doctor --------------------------------------------------------------------------------------------------------------


def doctor_command(
    *,
    at: RegistryOptions,
    fix: Annotated[
        bool, typer.Option("--repair", help="Ask, then repair the faults that the key spaces' records decide.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --repair: do not ask.")] = False,
    with_unmanaged: Annotated[
        bool, typer.Option("--unmanaged/--no-unmanaged", help="Also look for keys without an owner.")
    ] = True,
) -> None:
    """Examine the registry of key spaces, its audit log, and the owners of the store's keys.

    Exit code 1 when the registry has a fault. Keys without an owner are no fault: applications without a key space have them.
    """
    if yes and not fix:
        raise InvalidInputError(source="--yes", problem="--yes belongs to --repair: pass both")
    _hint_exposed(at)
    with at.opened(readonly=True) as registry:
        diagnosis = registry.diagnose(with_unmanaged=with_unmanaged)
    repaired: list[Fault] = []
    if fix and any(fault.is_repairable for fault in diagnosis.faults) and _is_repair_agreed(diagnosis, is_agreed=yes):
        # Why opened again: a look that finds nothing to repair does not wait for writers.
        with at.opened() as registry:
            repaired = registry.repair()
            diagnosis = registry.diagnose(with_unmanaged=with_unmanaged)
    if at.json:
        print_record({**diagnosis.to_json(), "repaired": [fault.to_json() for fault in repaired]})
    else:
        _print_diagnosis(diagnosis, repaired)
    end_with_findings(not diagnosis.is_sound)


def _hint_exposed(at: RegistryOptions) -> None:
    """Print the files of the store that are open to others. Why before it is opened: opening it may fail."""
    if at.server is None:
        for found in exposed_files(store_url_of_option(at.store, at.config)):
            print_hint(f"open to others: {found.path} has mode {found.mode:04o}; run: {found.remedy}")


def _is_repair_agreed(diagnosis: Diagnosis, *, is_agreed: bool) -> bool:
    if not is_agreed:
        for fault in diagnosis.faults:
            print_hint(_fault_line(fault))
    question = "Repair the repairable faults?"
    return agreed(question, is_agreed=is_agreed, source="--repair", instead=" to repair")


def _print_diagnosis(diagnosis: Diagnosis, repaired: list[Fault]) -> None:
    lines = [f"repaired: {_fault_line(fault._replace(remedy=''))}" for fault in repaired]
    lines += [f"{'repairable' if fault.is_repairable else 'fault'}: {_fault_line(fault)}" for fault in diagnosis.faults]
    lines += [_unmanaged_line(found) for found in diagnosis.unmanaged]
    verdict = "sound" if diagnosis.is_sound else f"{len(diagnosis.faults)} faults"
    lines.append(f"{verdict}: {diagnosis.keyspaces} key spaces, {diagnosis.audit_entries} entries of the audit log")
    print_lines(*lines)


def _fault_line(fault: Fault) -> str:
    kind = str(fault.kind).replace("_", " ")
    line = f"{kind} {fault.name}: {fault.problem}" if fault.name else f"{kind}: {fault.problem}"
    key = f"; key {quote(shown_key(bytes.fromhex(fault.raw_key)))}" if fault.raw_key else ""
    return line + key + (f"; {fault.remedy}" if fault.remedy else "")


def _unmanaged_line(found: Unmanaged) -> str:
    facts: dict[str, Any] = {"number": found.number, "first key": shown_key(found.first_key)}
    count = f"more than {found.keys}" if found.is_more else str(found.keys)
    words = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
    return f"unmanaged: {count} keys below {found.prefix.hex()} ({words})"


# ---- who -----------------------------------------------------------------------------------------------------------------


def who_command(*, store: StoreOption = None, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Show which processes have an LMDB store open: the writer and since when, those that wait for their turn, the readers.

    Nothing is written, and the command waits for nobody.
    """
    url = store_url_of_option(store, config)
    users, exposed = store_users(url), exposed_files(url)
    if json:
        users_json = [
            {**user._asdict(), "since": None if user.since is None else utc_time(user.since)} for user in users
        ]
        exposed_json = [{"path": one.path, "mode": f"{one.mode:04o}", "remedy": one.remedy} for one in exposed]
        print_record({"users": users_json, "exposed": exposed_json})
        return
    lines = [_user_line(user) for user in users] or ["no process has the store open"]
    lines += [f"open to others: {one.path} has mode {one.mode:04o}; run: {one.remedy}" for one in exposed]
    print_lines(*lines)


def _user_line(user: StoreUser) -> str:
    process = f"process {user.process}" if user.process else "a process of another container"
    since = "" if user.since is None else f" since {utc_time(user.since)}"
    command = f": {user.command}" if user.command else ""
    dead = "" if user.is_alive else " (dead: the next process that opens the store removes its snapshot)"
    return f"{process}, {user.activity}{since}{command}{dead}"
