"""The command `keyplan tree`."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, NamedTuple

import typer

from keyplan.cli.items import LayoutOptions, OpenLayout, item_names
from keyplan.cli.options import JsonOption
from keyplan.cli.output import print_json, print_text, printable
from keyplan.cli.plain import text_of_value
from keyplan.cli.streams import ends_with_reader
from keyplan.engine import Snapshot
from keyplan.layout import BoundTable, shown_key
from keyplan.store import levels

__all__ = ["run"]


class _Branch(NamedTuple):
    """The values of one key field, each with the branch below it; `has_more` tells of values that are not shown."""

    values: "list[tuple[str, _Branch]]"
    has_more: bool


_LEAF = _Branch([], has_more=False)


def run(
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
            print_json(_document(open_layout, branches))
        else:
            for line in _lines(open_layout, branches):
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


def _lines(open_layout: OpenLayout, branches: dict[str, _Branch]) -> Iterator[str]:
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


def _document(open_layout: OpenLayout, branches: dict[str, _Branch]) -> dict[str, Any]:
    return {
        "layout": open_layout.bound.name,
        "root": shown_key(open_layout.bound.root),
        "tables": {name: _plain(branch) for name, branch in branches.items()},
    }


def _plain(branch: _Branch) -> dict[str, Any]:
    values = [{"value": value, **({"below": _plain(below)} if below.values else {})} for value, below in branch.values]
    return {"values": values, "has_more": branch.has_more}
