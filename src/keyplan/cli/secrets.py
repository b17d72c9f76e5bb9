"""The commands `keyplan secrets`: the keys that secrets are sealed with, what each has sealed, sealing and opening all."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Annotated, Any, Final

import typer

from keyplan.cli.failures import FINDINGS, agreed, end_with_findings, print_hint
from keyplan.cli.items import LayoutOptions
from keyplan.cli.jobs import PaceOption, pace_of_option, stopped_by_signals, words_of
from keyplan.cli.options import (
    SETTINGS_FILE,
    ConfigOption,
    JsonOption,
    SecretsOption,
    Unfinished,
    YesOption,
    command_group,
    secrets_of_option,
    spread,
)
from keyplan.cli.output import print_answer, print_grid, print_json, print_text, progress_bar
from keyplan.engine import KeyRange
from keyplan.errors import InvalidInputError
from keyplan.jobs import Pace
from keyplan.layout import shown_key
from keyplan.maintenance import RotationReport, SecretCounts, open_secrets, rotate_secrets, secret_counts
from keyplan.secret_keys import KEY_BYTES, add_secret_key

__all__ = ["secrets_app"]

secrets_app: Final = command_group("Seal the secrets of records: keys, which secret is sealed with which, rotation.")

_ID_DIGITS: Final = 4
"""Bytes of chance in a key's id. Why: ids of one file differ, and nobody mistakes one for another's."""


@secrets_app.command("new")
def new_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The key file.", show_default=False)],
    *,
    key_id: Annotated[
        str, typer.Option("--id", metavar="ID", help="The key's id; otherwise one is drawn.", show_default=False)
    ] = "",
) -> None:
    """Make a key, add it to a key file, and let it be the current one. A missing file is made, with mode 0600.

    The other keys stay: what is sealed with them is opened with them, until `keyplan secrets rotate` has sealed it anew.
    """
    made = key_id or f"k{token_hex(_ID_DIGITS)}"
    add_secret_key(file, made, token_bytes(KEY_BYTES))
    print_text(made)
    print_hint(f"{file} has the key now, and whoever loses the file loses the secrets: keep a copy of it elsewhere")


@secrets_app.command("list")
def list_command(*, secrets: SecretsOption = None, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Print the ids of the keys, and which of them is the current one. No key is printed."""
    keys = secrets_of_option(secrets, config)
    if keys is None:
        raise InvalidInputError(
            source="--secrets", problem=f"name the keys: --secrets FILE, KEYPLAN_SECRETS, or secrets in {SETTINGS_FILE}"
        )
    rows = [{"id": key_id, "is_current": key_id == keys.current} for key_id in keys.ids]
    if json:
        print_json(rows)
    else:
        print_grid(("key", ""), [(str(row["id"]), "current" if row["is_current"] else "") for row in rows])


@secrets_app.command("status")
@spread
def status_command(*, at: LayoutOptions, json: JsonOption = False) -> None:
    """Count the secrets of each table by the key that they are sealed with, and those in clear. No key is needed.

    Exit code 1 when there are secrets in clear, when some are sealed with another key than the current one of --secrets, or
    with one that is not among them.
    """
    with at.opened(readonly=True, unfinished=Unfinished.TOLD) as open_layout:
        counts = secret_counts(open_layout.store, open_layout.layout)
    if json:
        print_json([_plain(each) for each in counts])
    elif not counts:
        print_text(f"{open_layout.bound.name} has no secrets")
    else:
        print_grid(("table", "records", "secrets", "key"), [row for each in counts for row in _rows(each)])
    keys = secrets_of_option(at.secrets, at.config)
    current = {keys.current} if keys is not None else {key_id for each in counts for key_id in each.sealed}
    end_with_findings(any(each.clear or each.damaged or each.sealed.keys() - current for each in counts))


def _rows(counts: SecretCounts) -> list[tuple[str, ...]]:
    found = [(str(number), key_id) for key_id, number in sorted(counts.sealed.items())]
    found += [(str(counts.clear), "in clear")] if counts.clear else []
    found += [(str(counts.damaged), "damaged")] if counts.damaged else []
    return [(counts.table, str(counts.records), *row) for row in found or [("0", "")]]


def _plain(counts: SecretCounts) -> dict[str, Any]:
    return {
        "table": counts.table,
        "records": counts.records,
        "sealed": dict(sorted(counts.sealed.items())),
        "clear": counts.clear,
        "damaged": counts.damaged,
    }


@secrets_app.command("rotate")
@spread
def rotate_command(
    context: typer.Context, *, at: LayoutOptions, pace: PaceOption = None, json: JsonOption = False
) -> None:
    """Seal the secrets of all records with the current key, those in clear too, while the store is in use.

    The same command resumes a rotation that was interrupted. Exit code 1 when records are left that do not open.
    """
    report = _carried_out(context, at, rotate_secrets, pace_of_option(pace))
    _print_report(report, f"sealed anew with {report.key_id}", json=json)


@secrets_app.command("open")
@spread
def open_command(
    context: typer.Context,
    *,
    at: LayoutOptions,
    pace: PaceOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Leave the secrets of all records in clear, while the store is in use: `keyplan secrets rotate` is the way back.

    The same command resumes one that was interrupted. Programs that have keys go on to seal what they write. Exit code 1 when
    records are left that do not open.
    """
    if not agreed("Whoever reads the store's bytes can read its secrets then. Open them?", is_agreed=yes):
        return
    _print_report(_carried_out(context, at, open_secrets, pace_of_option(pace)), "opened", json=json)


def _carried_out(
    context: typer.Context,
    at: LayoutOptions,
    carry_out: Callable[..., RotationReport],
    pace: Pace | None,
) -> RotationReport:
    keys = secrets_of_option(at.secrets, at.config)
    replaced = {} if keys is None else {"secrets": keys.from_any_folder()}
    # Why named: of a layout without secrets no other keys are asked for than those that are named.
    with at._replace(secrets=replaced.get("secrets", at.secrets)).opened() as open_layout:

        def total() -> int:
            every = open_layout.bound.tables.values()
            tables = [table for table in every if table.spec.is_sealed and table.form.secrets]
            with open_layout.store.engine.snapshot() as snapshot:
                return sum(snapshot.count(KeyRange(*table.keys.range(()))) for table in tables)

        with (
            stopped_by_signals(partial(words_of, context, replaced=replaced, with_store=True)) as stop,
            progress_bar(str(context.info_name), total) as shown,
        ):
            return carry_out(
                open_layout.store,
                open_layout.layout,
                pace=pace,
                stop=stop,
                command=words_of(context, replaced=replaced),
                progress=shown.told,
            )


def _print_report(report: RotationReport, done: str, *, json: bool) -> None:
    for left in report.left:
        print_hint(f"{left.table} {shown_key(left.raw_key)} is left as it was: {left.problem}")
    answer = {"key": report.key_id, "records": report.records, "written": report.written, "failed": report.failed}
    print_answer(answer, f"{report.written} of {report.records} records {done}", json=json)
    if report.failed:
        raise typer.Exit(FINDINGS)
