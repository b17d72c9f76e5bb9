"""keyplan tree"""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from keyplan.cli.items import OpenLayout, opened
from keyplan.cli.levels import levels
from keyplan.cli.options import ConfigOption, LayoutOption, ParameterOption, StoreOption
from keyplan.cli.output import print_text
from keyplan.cli.plain import text_of_value
from keyplan.engine import Snapshot
from keyplan.layout import BoundTable

__all__ = ["run"]


def run(
    item: Annotated[list[str] | None, typer.Argument(metavar="[ITEM]...", help="Only these tables.")] = None,
    *,
    store: StoreOption = None,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    config: ConfigOption = None,
    depth: Annotated[int, typer.Option("--depth", "-d", min=1, help="At most so many fields deep.")] = 3,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many values at each level.")] = 10,
) -> None:
    """Show the records as a tree of their keys' fields: by meaning, not by the slashes of the keys."""
    with opened(store, layout, parameter, config) as open_layout:
        for name in item or list(open_layout.bound.tables):
            open_layout.table(name)
        with open_layout.store.engine.snapshot() as snapshot:
            for line in _lines(open_layout, item, snapshot, depth=depth, limit=limit):
                print_text(line)


def _lines(
    open_layout: OpenLayout, only: list[str] | None, snapshot: Snapshot, *, depth: int, limit: int
) -> Iterator[str]:
    yield f"{open_layout.bound.name}  {open_layout.bound.root.decode(errors='backslashreplace')}"
    for name, table in open_layout.bound.tables.items():
        if only and name not in only:
            continue
        below = list(_branch(table, (), snapshot, indent="  ", depth=depth, limit=limit))
        yield f"  {name}  {table.spec.template.plain}" + ("" if below else "  (none)")
        yield from below


def _branch(
    table: BoundTable, prefix: tuple[Any, ...], snapshot: Snapshot, *, indent: str, depth: int, limit: int
) -> Iterator[str]:
    if depth == 0 or len(prefix) == len(table.keys.template.fields):
        return
    inner = indent + "  "
    found = levels(table, prefix, snapshot)
    for level in islice(found, limit):
        yield f"{inner}{text_of_value(level.value)}"
        yield from _branch(table, (*prefix, level.value), snapshot, indent=inner, depth=depth - 1, limit=limit)
    if next(found, None) is not None:
        yield f"{inner}..."
