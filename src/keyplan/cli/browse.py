"""The commands that show what a store holds, level by level of meaning: `keyplan ls|tree`."""

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Final, NamedTuple

import typer

from keyplan.cli.failures import Faults, print_hint
from keyplan.cli.items import (
    FieldsArgument,
    LayoutOptions,
    OpenLayout,
    item_names,
)
from keyplan.cli.options import JsonOption
from keyplan.cli.output import (
    ends_with_reader,
    print_grid,
    print_json,
    print_text,
    printable,
    with_progress,
)
from keyplan.engine import Snapshot
from keyplan.errors import CorruptionError, IndexNotReadyError, InvalidInputError
from keyplan.layout import (
    BoundTable,
    CounterSpec,
    IndexSpec,
    ItemSpec,
    plain_field,
    prefix_of_words,
    shown_key,
    text_of_value,
)
from keyplan.store import levels

__all__ = ["ls_command", "tree_command"]

# ---- ls ------------------------------------------------------------------------------------------------------------------


_UNKNOWN: Final = "?"


def ls_command(
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
        print_json([plain_field(level.value) for level in shown])
    else:
        mark = "/" if len(prefix) + 1 < len(names) and sys.stdout.isatty() else ""
        print_grid([names[len(prefix)].upper()], ([text_of_value(level.value) + mark] for level in shown))
    if len(found) > limit:
        print_hint(f"there are more than {limit} values; --limit shows more")
    if not found:
        open_layout.hint_when_foreign()


def _print_items(open_layout: OpenLayout, *, json: bool) -> None:
    items = open_layout.bound.spec.items
    faults = Faults(is_json=json)
    rows = [_item_row(open_layout, spec, faults) for spec in with_progress(items, total=len(items), title="counting")]
    if json:
        print_json([dict(zip(("item", "kind", "number", "template"), row, strict=True)) for row in rows])
    else:
        shown = ([_UNKNOWN if cell is None else str(cell) for cell in row] for row in rows)
        print_grid(["ITEM", "KIND", "NUMBER", "TEMPLATE"], shown)
    if all(number == 0 for _, kind, number, _ in rows if kind != "counter"):
        open_layout.hint_when_foreign()
    faults.end()


def _item_row(open_layout: OpenLayout, spec: ItemSpec, faults: Faults) -> tuple[str, str, int | None, str]:
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


# ---- tree ----------------------------------------------------------------------------------------------------------------


class _Branch(NamedTuple):
    """The values of one key field, each with the branch below it; `has_more` tells of values that are not shown."""

    values: "list[tuple[str, _Branch]]"
    has_more: bool


_LEAF = _Branch([], has_more=False)


def tree_command(
    item: Annotated[
        list[str] | None,
        typer.Argument(metavar="ITEM", help="Only these tables.", autocompletion=item_names),
    ] = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    depth: Annotated[int, typer.Option("--depth", "-d", min=1, help="At most so many fields deep.")] = 3,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many values at each level.")] = 10,
) -> None:
    """Show the records as a tree of their keys' fields: by meaning, not by the slashes of the keys."""
    ends_with_reader()
    with at.opened(readonly=True) as open_layout:
        tables = [open_layout.table(name)[0] for name in item or list(open_layout.bound.tables)]
        with open_layout.store.engine.snapshot() as snapshot:
            branches = {
                table.name: _branch(table, (), snapshot, depth=depth, limit=limit) for table in dict.fromkeys(tables)
            }
        if json:
            print_json(_tree_document(open_layout, branches))
        else:
            for line in _tree_lines(open_layout, branches):
                print_text(line)
        if not any(branch.values for branch in branches.values()):
            open_layout.hint_when_foreign()


def _branch(table: BoundTable, prefix: tuple[Any, ...], snapshot: Snapshot, *, depth: int, limit: int) -> _Branch:
    if depth == 0 or len(prefix) == len(table.keys.template.fields):
        return _LEAF
    found = levels(table, prefix, snapshot)
    values = [
        (
            text_of_value(level.value),
            _branch(table, (*prefix, level.value), snapshot, depth=depth - 1, limit=limit),
        )
        for level in islice(found, limit)
    ]
    return _Branch(values, next(found, None) is not None)


def _tree_lines(open_layout: OpenLayout, branches: dict[str, _Branch]) -> Iterator[str]:
    bound = open_layout.bound
    yield f"{bound.name}  {shown_key(bound.root)}".rstrip()
    for name, branch in branches.items():
        yield f"  {name}  {bound.tables[name].spec.template.plain}" + ("" if branch.values else "  (none)")
        yield from _branch_lines(branch, "    ")


def _branch_lines(branch: _Branch, indent: str) -> Iterator[str]:
    for value, below in branch.values:
        yield indent + printable(value)
        yield from _branch_lines(below, indent + "  ")
    if branch.has_more:
        yield f"{indent}..."


def _tree_document(open_layout: OpenLayout, branches: dict[str, _Branch]) -> dict[str, Any]:
    return {
        "layout": open_layout.bound.name,
        "root": shown_key(open_layout.bound.root),
        "tables": {name: _plain_branch(branch) for name, branch in branches.items()},
    }


def _plain_branch(branch: _Branch) -> dict[str, Any]:
    values = [
        {"value": value, **({"below": _plain_branch(below)} if below.values else {})} for value, below in branch.values
    ]
    return {"values": values, "has_more": branch.has_more}
