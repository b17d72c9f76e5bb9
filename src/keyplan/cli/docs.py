"""The command `keyplan docs`."""

from pathlib import Path
from typing import Annotated

import typer

from keyplan.cli.files import write_text
from keyplan.cli.options import ConfigOption, LayoutOption, layout_of_option
from keyplan.cli.output import print_text
from keyplan.layout import render_docs

__all__ = ["run"]


def run(
    *,
    layout: LayoutOption = None,
    config: ConfigOption = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")] = None,
) -> None:
    """Print a layout's documentation as Markdown: keys, fields, indexes, lists, findings."""
    spec = layout_of_option(layout, config).spec
    text = render_docs(spec)
    if output is None:
        print_text(text)
    else:
        write_text(output, text)
        print_text(f"wrote {output}")
