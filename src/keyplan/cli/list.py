"""The command `keyplan list`."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from keyplan.cli.failures import Faults
from keyplan.cli.items import FieldsArgument, ItemArgument, LayoutOptions
from keyplan.cli.narrowing import AtLeastOption, BelowOption, StartsWithOption, narrowed
from keyplan.cli.options import JsonOption
from keyplan.cli.output import print_grid, print_json
from keyplan.cli.plain import line_of_value, plain_key, plain_value, text_of_value
from keyplan.cli.streams import ends_with_reader
from keyplan.layout import BoundTable, Damaged

__all__ = ["run"]


def run(
    item: ItemArgument,
    fields: FieldsArgument = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    starts_with: StartsWithOption = None,
    at_least: AtLeastOption = None,
    below: BelowOption = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many records.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="From the last to the first.")] = False,
    keys_only: Annotated[bool, typer.Option("--keys-only", help="The keys, without reading the records.")] = False,
) -> None:
    """Print records in key order: exactly those whose first key fields have the values given.

    One record a line. On a terminal a long line is cut; in a pipe fields are separated by tabs and nothing is cut.
    A record that cannot be read is reported on standard error.
    """
    ends_with_reader()
    with at.opened(readonly=True) as open_layout:
        prefix, bounds = narrowed(
            open_layout.listable(item), fields, starts_with=starts_with, at_least=at_least, below=below
        )
        table = open_layout.table_of(item)
        view = open_layout.layout.view(item)
        read = view.keys if keys_only else view.rows
        faults = Faults(is_json=json)
        found = _Found(read(*prefix, limit=limit, reverse=reverse, **bounds), faults)
        if json:
            for line in _documents(table, found, keys_only=keys_only):
                print_json(line)
        else:
            names = [name.upper() for name in table.keys.template.field_names]
            print_grid(names if keys_only else [*names, "RECORD"], _rows(table, found, keys_only=keys_only))
        if not found.number and limit != 0:
            open_layout.hint_when_foreign()
    faults.end()


class _Found:
    """Passes on what can be read, tells of the rest, and counts both."""

    def __init__(self, rows: Iterable[Any], faults: Faults) -> None:
        self._rows = rows
        self._faults = faults
        self.number = 0

    def __iter__(self) -> Iterator[Any]:
        for row in self._rows:
            self.number += 1
            if isinstance(row, Damaged):
                self._faults.tell(row.error)
            else:
                yield row


def _documents(table: BoundTable, found: Iterable[Any], *, keys_only: bool) -> Iterator[dict[str, Any]]:
    for one in found:
        if keys_only:
            yield {"key": plain_key(table.keys, one)}
        else:
            yield {"key": plain_key(table.keys, one.key), "record": plain_value(one.record)}


def _rows(table: BoundTable, found: Iterable[Any], *, keys_only: bool) -> Iterator[list[str]]:
    split = table.keys.shape.split
    for one in found:
        fields = [text_of_value(value) for value in split(one if keys_only else one.key)]
        yield fields if keys_only else [*fields, line_of_value(plain_value(one.record))]
