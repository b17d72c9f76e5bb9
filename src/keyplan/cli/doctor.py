"""The command `keyplan doctor`."""

import sys
from shlex import quote
from typing import Annotated, Any

import typer

from keyplan.cli.exit_codes import FINDINGS
from keyplan.cli.failures import print_hint
from keyplan.cli.options import store_url_of_option
from keyplan.cli.output import print_record, print_text, printable
from keyplan.cli.registries import RegistryOptions
from keyplan.engine import exposed_files
from keyplan.errors import InvalidInputError
from keyplan.keyspace import Diagnosis, Fault, Unmanaged
from keyplan.layout import shown_key

__all__ = ["run"]


def run(
    *,
    at: RegistryOptions,
    fix: Annotated[
        bool, typer.Option("--repair", help="Put right what the records of the key spaces decide; asks before.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --repair: do not ask.")] = False,
    with_unmanaged: Annotated[
        bool, typer.Option("--unmanaged/--no-unmanaged", help="Look for keys that are nobody's, too.")
    ] = True,
) -> None:
    """Examine the registry of key spaces, its audit log, and whose the keys of the store are.

    Exit code 1 when the registry has a fault. Keys that are nobody's are no fault: applications without a key space have them.
    """
    if yes and not fix:
        raise InvalidInputError(source="--yes", problem="there is nothing to ask without --repair")
    _tell_exposed(at)
    with at.opened(readonly=True) as registry:
        diagnosis = registry.diagnose(with_unmanaged=with_unmanaged)
    repaired: list[Fault] = []
    if fix and any(fault.is_repairable for fault in diagnosis.faults) and _is_agreed(diagnosis, is_agreed=yes):
        # Why opened again: who finds nothing to repair waits for nobody who writes.
        with at.opened() as registry:
            repaired = registry.repair()
            diagnosis = registry.diagnose(with_unmanaged=with_unmanaged)
    if at.json:
        print_record({**diagnosis.to_json(), "repaired": [fault.to_json() for fault in repaired]})
    else:
        _print(diagnosis, repaired)
    if not diagnosis.is_sound:
        raise typer.Exit(FINDINGS)


def _tell_exposed(at: RegistryOptions) -> None:
    """Name files of the store that are open to others. Why before it is opened: whatever becomes of that, they are."""
    if at.server is None:
        for found in exposed_files(store_url_of_option(at.store, at.config)):
            print_hint(f"open to others: {found.path} has mode {found.mode:04o}; run: {found.remedy}")


def _is_agreed(diagnosis: Diagnosis, *, is_agreed: bool) -> bool:
    if is_agreed:
        return True
    if not sys.stdin.isatty():
        raise InvalidInputError(source="--repair", problem="there is nobody to ask: add --yes to repair")
    for fault in diagnosis.faults:
        print_hint(_line(fault))
    if typer.confirm("Put right what can be?", err=True):
        return True
    print_hint("nothing was written")
    return False


def _print(diagnosis: Diagnosis, repaired: list[Fault]) -> None:
    lines = [f"repaired: {_line(fault._replace(remedy=''))}" for fault in repaired]
    lines += [f"{'repairable' if fault.is_repairable else 'fault'}: {_line(fault)}" for fault in diagnosis.faults]
    lines += [_unmanaged_line(found) for found in diagnosis.unmanaged]
    verdict = "sound" if diagnosis.is_sound else f"{len(diagnosis.faults)} faults"
    lines.append(f"{verdict}: {diagnosis.keyspaces} key spaces, {diagnosis.audit_entries} entries of the audit log")
    print_text("\n".join(map(printable, lines)))


def _line(fault: Fault) -> str:
    kind = str(fault.kind).replace("_", " ")
    line = f"{kind} {fault.name}: {fault.problem}" if fault.name else f"{kind}: {fault.problem}"
    key = f"; key {quote(shown_key(bytes.fromhex(fault.raw_key)))}" if fault.raw_key else ""
    return line + key + (f"; {fault.remedy}" if fault.remedy else "")


def _unmanaged_line(found: Unmanaged) -> str:
    facts: dict[str, Any] = {"number": found.number, "first key": shown_key(found.first_key)}
    count = f"more than {found.keys}" if found.is_more else str(found.keys)
    words = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
    return f"unmanaged: {count} keys below {found.prefix.hex()} ({words})"
