"""The command `keyplan get`."""

import sys
from typing import Annotated, Any

import typer

from keyplan.cli.items import FieldsArgument, ItemArgument, LayoutOptions, OpenLayout
from keyplan.cli.options import JsonOption
from keyplan.cli.output import print_json, print_record, print_text
from keyplan.cli.plain import key_of_words, plain_key, plain_value
from keyplan.errors import InvalidInputError, NotFoundError

__all__ = ["run"]


def run(
    item: ItemArgument,
    fields: FieldsArgument = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    value_only: Annotated[
        bool, typer.Option("--value-only", help="The record alone: also on a terminal, also with --json.")
    ] = False,
) -> None:
    """Print one record, by its key or by an index; of a counter, the next number.

    In a pipe the record alone, as JSON on one line. On a terminal, and with --json, its revisions, version and lease too.
    """
    with at.opened(readonly=True) as open_layout:
        if item in open_layout.bound.counters:
            _print_counter(open_layout, item, fields or [], json=json)
            return
        found = _found(open_layout, item, fields or [])
    if json:
        print_json(found["record"] if value_only else found)
        return
    print_record(found["record"])
    if sys.stdout.isatty() and not value_only:
        history = ", ".join(f"{name} {found[name]}" for name in ("revision", "version", "create_revision"))
        print_text(f"# {history.replace('_', ' ')}" + (f", lease {found['lease']}" if found["lease"] else ""))


def _print_counter(open_layout: OpenLayout, item: str, words: list[str], *, json: bool) -> None:
    if words:
        raise InvalidInputError(source="FIELD", problem=f"{item} is a counter: it has no key fields")
    number = open_layout.layout.view(item).peek()
    if json:
        print_json({"item": item, "next": number})
    else:
        print_text(str(number))


def _found(open_layout: OpenLayout, item: str, words: list[str]) -> dict[str, Any]:
    """The record at a key, with its history. Raises NotFoundError."""
    keys = open_layout.listable(item).keys
    table = open_layout.table_of(item)
    key = _primary_key(open_layout, item, key_of_words(keys, words))
    versioned = None if key is None else open_layout.layout.view(table.name).versioned(key)
    if versioned is None:
        raise NotFoundError(item=item, key=" ".join(words))
    return {
        "table": table.name,
        "key": plain_key(table.keys, versioned.key),
        "record": plain_value(versioned.record),
        "revision": versioned.revision,
        "create_revision": versioned.create_revision,
        "version": versioned.version,
        "lease": versioned.lease,
    }


def _primary_key(open_layout: OpenLayout, item: str, key: Any) -> Any:
    """The key of the record that the item has at `key`; None when an index has no such entry."""
    index = open_layout.bound.indexes.get(item)
    if index is None:
        return key
    if index.spec.is_unique:
        return open_layout.layout.view(item).key_of(key)
    return next(open_layout.layout.view(item).keys(*index.keys.shape.split(key), limit=1), None)
