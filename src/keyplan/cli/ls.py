"""The command `keyplan ls`."""

import sys
from itertools import islice
from typing import Annotated, Any, Final

import typer

from keyplan.cli.failures import Faults, print_hint
from keyplan.cli.items import FieldsArgument, LayoutOptions, OpenLayout, item_names
from keyplan.cli.options import JsonOption
from keyplan.cli.output import print_grid, print_json, with_progress
from keyplan.cli.plain import prefix_of_words, text_of_value
from keyplan.cli.streams import ends_with_reader
from keyplan.errors import CorruptionError, IndexNotReadyError, InvalidInputError
from keyplan.layout import CounterSpec, IndexSpec, ItemSpec
from keyplan.store import levels

__all__ = ["run"]

_UNKNOWN: Final = "?"


def run(
    item: Annotated[
        str | None,
        typer.Argument(metavar="ITEM", help="A table or index; without it, all of them.", autocompletion=item_names),
    ] = None,
    fields: FieldsArgument = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many values.")] = 1000,
) -> None:
    """Show the layout's items with the number of their records; of an item, the values of the next key field.

    A value with more key fields behind it ends in / on a terminal. Values are found by jumping: a rack of a million blades is
    one read.
    """
    ends_with_reader()
    with at.opened(readonly=True) as open_layout:
        if item is None:
            _print_items(open_layout, json=json)
        else:
            _print_values(open_layout, item, fields or [], json=json, limit=limit)


def _print_values(open_layout: OpenLayout, item: str, words: list[str], *, json: bool, limit: int) -> None:
    bound = open_layout.listable(item)
    prefix = prefix_of_words(bound.keys, words)
    names = bound.keys.template.field_names
    if len(prefix) == len(names):
        raise InvalidInputError(source="FIELD", problem=f"the key is whole: use `keyplan get {item}`")
    with open_layout.store.engine.snapshot() as snapshot:
        found = list(islice(levels(bound, prefix, snapshot), limit + 1))
    shown = found[:limit]
    if json:
        print_json([_plain(level.value) for level in shown])
    else:
        mark = "/" if len(prefix) + 1 < len(names) and sys.stdout.isatty() else ""
        print_grid([names[len(prefix)].upper()], ([text_of_value(level.value) + mark] for level in shown))
    if len(found) > limit:
        print_hint(f"there are more than {limit} values; --limit shows more")
    if not found:
        open_layout.hint_when_foreign()


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | str) else text_of_value(value)


def _print_items(open_layout: OpenLayout, *, json: bool) -> None:
    items = open_layout.bound.spec.items
    faults = Faults(is_json=json)
    rows = [_row(open_layout, spec, faults) for spec in with_progress(items, total=len(items), title="counting")]
    if json:
        print_json([dict(zip(("item", "kind", "number", "template"), row, strict=True)) for row in rows])
    else:
        shown = ([_UNKNOWN if cell is None else str(cell) for cell in row] for row in rows)
        print_grid(["ITEM", "KIND", "NUMBER", "TEMPLATE"], shown)
    if all(number == 0 for _, kind, number, _ in rows if kind != "counter"):
        open_layout.hint_when_foreign()
    faults.end()


def _row(open_layout: OpenLayout, spec: ItemSpec, faults: Faults) -> tuple[str, str, int | None, str]:
    """Name, kind, how many there are (of a counter: the next number; None: it cannot be told), the template below the root."""
    view = open_layout.layout.view(spec.name)
    if isinstance(spec, CounterSpec):
        kind, count = "counter", view.peek
    else:
        kind = ("unique" if spec.is_unique else "index") if isinstance(spec, IndexSpec) else "table"
        count = view.count
    number: int | None = None
    try:
        number = count()
    except (CorruptionError, IndexNotReadyError) as error:
        faults.tell(error)
    return spec.name, kind, number, spec.template.plain
