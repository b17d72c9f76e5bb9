"""The command `keyplan docs`."""

from keyplan.cli.files import OutputOption, write_text
from keyplan.cli.options import ConfigOption, LayoutOption, layout_of_option
from keyplan.cli.output import print_text
from keyplan.layout import render_docs

__all__ = ["run"]


def run(
    *,
    layout: LayoutOption = None,
    config: ConfigOption = None,
    output: OutputOption = None,
) -> None:
    """Print a layout's documentation as Markdown: keys, fields, indexes, lists, findings."""
    spec = layout_of_option(layout, config).spec
    text = render_docs(spec)
    if output is None:
        print_text(text)
    else:
        write_text(output, text)
        print_text(f"wrote {output}")
