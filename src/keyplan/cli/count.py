"""keyplan count"""

from typing import Annotated, Any

import typer

from keyplan.cli.items import FieldsArgument, ItemArgument, opened
from keyplan.cli.options import ConfigOption, JsonOption, LayoutOption, ParameterOption, StoreOption
from keyplan.cli.output import print_json, print_text
from keyplan.cli.plain import prefix_of_words, value_of_text

__all__ = ["run"]


def run(
    item: ItemArgument,
    fields: FieldsArgument = None,
    *,
    store: StoreOption = None,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
    starts_with: Annotated[
        str | None,
        typer.Option("--starts-with", metavar="TEXT", help="Only values of the next field that begin with TEXT."),
    ] = None,
) -> None:
    """Count the records or index entries whose first key fields have the values given."""
    with opened(store, layout, parameter, config) as open_layout:
        bound = open_layout.listable(item)
        prefix = prefix_of_words(bound.keys, list(fields or []))
        narrowed: dict[str, Any] = {}
        if starts_with is not None:
            field = bound.keys.template.fields[min(len(prefix), len(bound.keys.template.fields) - 1)]
            narrowed["starts_with"] = value_of_text(field.element, starts_with)
        number = open_layout.layout.view(item).count(*prefix, **narrowed)
    if json:
        print_json({"item": item, "count": number})
    else:
        print_text(str(number))
