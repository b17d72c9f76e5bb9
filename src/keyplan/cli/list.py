"""keyplan list"""

from typing import Annotated, Any

import typer

from keyplan.cli.items import FieldsArgument, ItemArgument, opened
from keyplan.cli.options import ConfigOption, JsonOption, LayoutOption, ParameterOption, StoreOption
from keyplan.cli.output import print_grid, print_json
from keyplan.cli.plain import plain_key, plain_value, prefix_of_words, text_of_value, value_of_text

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
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many records.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="From the last to the first.")] = False,
    keys_only: Annotated[
        bool, typer.Option("--keys-only", help="Print the keys, without reading the records.")
    ] = False,
) -> None:
    """Print records in key order: exactly those whose first key fields have the values given."""
    with opened(store, layout, parameter, config) as open_layout:
        bound = open_layout.listable(item)
        index = open_layout.bound.indexes.get(item)
        table = index.table if index is not None else open_layout.bound.tables[item]
        prefix = prefix_of_words(bound.keys, list(fields or []))
        narrowed: dict[str, Any] = {"limit": limit, "reverse": reverse}
        if starts_with is not None:
            field = bound.keys.template.fields[min(len(prefix), len(bound.keys.template.fields) - 1)]
            narrowed["starts_with"] = value_of_text(field.element, starts_with)
        view = open_layout.layout.view(item)
        pairs = ((key, None) for key in view.keys(*prefix, **narrowed)) if keys_only else view.list(*prefix, **narrowed)
        if json:
            for key, record in pairs:
                shown: dict[str, Any] = {"key": plain_key(table.keys, key)}
                print_json(shown if keys_only else shown | {"record": plain_value(record)})
            return
        names = [name.upper() for name in table.keys.template.field_names]
        rows = (
            [*(text_of_value(value) for value in table.keys.shape.split(key)), *([] if keys_only else [_shown(record)])]
            for key, record in pairs
        )
        print_grid(names if keys_only else [*names, "RECORD"], rows)


def _shown(record: object) -> str:
    plain = plain_value(record)
    if isinstance(plain, dict):
        return "  ".join(f"{name}={_word(value)}" for name, value in plain.items())
    return "" if plain is None else str(plain)


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + " ".join(f"{name}={_word(inner)}" for name, inner in value.items()) + "}"
    return str(value)
