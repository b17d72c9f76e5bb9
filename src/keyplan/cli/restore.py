"""The command `keyplan restore`."""

from typing import Annotated

import typer

from keyplan.cli.backup import FileArgument, prefix_of_option, print_backup
from keyplan.cli.bar import progress_bar
from keyplan.cli.exit_codes import FINDINGS
from keyplan.cli.failures import print_hint
from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    LayoutOption,
    ParameterOption,
    StoreOption,
    is_layout_named,
    layout_of_option,
    root_parameters,
)
from keyplan.cli.output import print_json, print_text, printable
from keyplan.cli.targets import store_for_backup
from keyplan.maintenance import RestoreReport, read_backup, restore_store

__all__ = ["print_restored", "restored_data", "run"]


def run(
    file: FileArgument,
    *,
    store: StoreOption = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="PREFIX", help="Below this prefix instead of the backup's own.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is there; keys that the backup does not have are removed.")
    ] = False,
    look: Annotated[
        bool, typer.Option("--look", help="Verify the file, print what it holds, and write nothing.")
    ] = False,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Bring a backup into a store, and verify it by reading it back.

    Everything is checked before the first write. A restore that was interrupted is finished by the same command.

    With a layout its indexes are checked afterwards and put right, and keys in values are rewritten when the prefix changes.
    Exit code 1 when findings remain.
    """
    if look:
        print_backup(file, read_backup(file), json=json, verb="verified")
        return
    bound = None
    if is_layout_named(layout, config):
        kind = layout_of_option(layout, config)
        bound = kind.bound(**root_parameters(kind, parameter, config))
    below = None if prefix is None else prefix_of_option(prefix)
    with store_for_backup(file, store, config) as opened, progress_bar("restore") as progress:
        report = restore_store(
            opened.engine,
            file,
            prefix=below,
            is_overwriting=overwrite,
            layout=bound,
            progress=progress,
        )
    if json:
        print_json(restored_data(report))
    else:
        print_restored(report)
    if bound is None and prefix is not None:
        print_hint("without --layout no value is known to hold keys: none was rewritten, and no index was checked")
    if report.indexes is not None and report.indexes.remaining:
        raise typer.Exit(FINDINGS)


def restored_data(report: RestoreReport) -> dict[str, object]:
    """What was restored, as JSON data."""
    return {
        "name": report.name,
        "prefix": report.prefix.hex(),
        "count": report.tally.count,
        "bytes": report.tally.bytes,
        "sha256": report.tally.sha256,
        "written": report.written.puts,
        "removed": report.written.deletes,
        "unchanged": report.written.unchanged,
        "keys_rewritten": report.keys_rewritten,
        "indexes": None
        if report.indexes is None
        else {"repaired": report.indexes.repaired, "remaining": list(report.indexes.remaining)},
    }


def print_restored(report: RestoreReport) -> None:
    """Print what was restored."""
    name = f"{report.name}  {report.prefix.hex()}  " if report.name else ""
    print_text(f"{name}{report.tally.count} pairs  {report.tally.bytes} bytes  sha256 {report.tally.sha256}")
    counts = f"{report.written.puts} written, {report.written.deletes} removed, {report.written.unchanged} as they were"
    print_text(f"verified: {counts}")
    if report.keys_rewritten:
        print_text(f"{report.keys_rewritten} values hold keys and were rewritten")
    if report.indexes is not None:
        for finding in report.indexes.remaining:
            print_text(printable(finding))
        print_text(
            f"indexes: {report.indexes.repaired} entries put right, {len(report.indexes.remaining)} findings remain"
        )
