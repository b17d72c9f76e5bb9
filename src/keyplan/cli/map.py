"""The command `keyplan map`."""

from pathlib import Path
from typing import Annotated

import typer

from keyplan.cli.exit_codes import FINDINGS
from keyplan.cli.files import file_or_output, read_text, write_text
from keyplan.cli.options import ConfigOption, JsonOption, LayoutOption, layout_of_option
from keyplan.cli.output import print_json, print_text
from keyplan.layout import describe, render_map

__all__ = ["run"]


def run(
    *,
    layout: LayoutOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Compare with a stored map; exit code 1 when it is stale."),
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write the map to a file.", callback=file_or_output)
    ] = None,
) -> None:
    """Print a layout's map: every template in key order, with what its keys hold.

    Kept in the repository and checked by the tests (--check), it shows every change of the layout as a changed line. With
    --json, the layout's description, which --layout FILE.json reads.
    """
    spec = layout_of_option(layout, config).spec
    text = render_map(spec)
    if check is not None:
        _check(check, text)
    elif write is not None:
        write_text(write, text)
        print_text(f"wrote {write}")
    elif json:
        print_json(describe(spec))
    else:
        print_text(text)


def _check(path: Path, current: str) -> None:
    if read_text(path) != current:
        print_text(f"{path} is stale: write it anew with `keyplan map --write {path}`, and read the difference")
        raise typer.Exit(FINDINGS)
    print_text(f"{path} is current")
