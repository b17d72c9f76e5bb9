"""keyplan ls"""

from itertools import islice
from typing import Annotated

import typer

from keyplan.cli.items import FieldsArgument, OpenLayout, opened
from keyplan.cli.levels import levels
from keyplan.cli.options import ConfigOption, JsonOption, LayoutOption, ParameterOption, StoreOption
from keyplan.cli.output import print_grid, print_json
from keyplan.cli.plain import prefix_of_words, text_of_value
from keyplan.layout import CounterSpec, IndexSpec

__all__ = ["run"]


def run(
    item: Annotated[
        str | None, typer.Argument(metavar="[ITEM]", help="A table or index; without it, all of them.")
    ] = None,
    fields: FieldsArgument = None,
    *,
    store: StoreOption = None,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many values.")] = 1000,
) -> None:
    """Show the layout's items with the number of their records; of an item, the values of the next key field."""
    with opened(store, layout, parameter, config) as open_layout:
        if item is None:
            _print_items(open_layout, json=json)
            return
        bound = open_layout.listable(item)
        prefix = prefix_of_words(bound.keys, list(fields or []))
        with open_layout.store.engine.snapshot() as snapshot:
            found = (
                islice(levels(bound, prefix, snapshot), limit)
                if len(prefix) < len(bound.keys.template.fields)
                else iter(())
            )
            rows = [[text_of_value(level.value) + ("/" if level.has_more else "")] for level in found]
    if json:
        print_json([row[0].removesuffix("/") for row in rows])
    else:
        print_grid([bound.keys.template.field_names[len(prefix)].upper()] if rows else [], rows)


def _print_items(open_layout: OpenLayout, *, json: bool) -> None:
    rows = []
    for spec in open_layout.bound.spec.items:
        view = open_layout.layout.view(spec.name)
        if isinstance(spec, CounterSpec):
            kind, number = "counter", view.peek()
        else:
            kind = ("unique" if spec.is_unique else "index") if isinstance(spec, IndexSpec) else "table"
            number = view.count()
        rows.append((spec.name, kind, number, spec.template.plain))
    if json:
        print_json(
            [
                {"item": name, "kind": kind, "number": number, "template": template}
                for name, kind, number, template in rows
            ]
        )
    else:
        print_grid(
            ["ITEM", "KIND", "NUMBER", "TEMPLATE"], [[name, kind, str(n), template] for name, kind, n, template in rows]
        )
