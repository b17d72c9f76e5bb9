"""keyplan get"""

from typing import Annotated, Any

import typer

from keyplan.cli.items import FieldsArgument, ItemArgument, OpenLayout, opened
from keyplan.cli.options import ConfigOption, JsonOption, LayoutOption, ParameterOption, StoreOption
from keyplan.cli.output import print_json, print_text
from keyplan.cli.plain import key_of_words, plain_key, plain_value
from keyplan.errors import NotFoundError

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
    value_only: Annotated[
        bool, typer.Option("--value-only", help="Print the record alone, without its history.")
    ] = False,
) -> None:
    """Print one record, by its key or by a unique index; of a counter, the next number."""
    with opened(store, layout, parameter, config) as open_layout:
        if item in open_layout.bound.counters:
            print_text(str(open_layout.layout.view(item).peek()))
            return
        found = _found(open_layout, item, list(fields or []))
    if json:
        print_json(found["record"] if value_only else found)
        return
    print_json(found["record"])
    if not value_only:
        history = ", ".join(
            f"{name} {found[name]}" for name in ("revision", "version", "create_revision") if name in found
        )
        lease = f", lease {found['lease']}" if found["lease"] else ""
        print_text(f"# {history}{lease}")


def _found(open_layout: OpenLayout, item: str, words: list[str]) -> dict[str, Any]:
    bound = open_layout.listable(item)
    view = open_layout.layout.view(item)
    table = open_layout.bound.tables.get(item) or open_layout.bound.indexes[item].table
    key = key_of_words(bound.keys, words)
    if item in open_layout.bound.indexes:
        if not open_layout.bound.indexes[item].spec.is_unique:
            key = open_layout.bound.indexes[item].primary_key(bound.keys.encode(key), b"")
        else:
            key = view.key_of(key)
        view = open_layout.layout.view(table.name)
    versioned = None if key is None else view.versioned(key)
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
