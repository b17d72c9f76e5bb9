"""keyplan put"""

import sys
from typing import Annotated

import typer

from keyplan.cli.items import ItemArgument, opened
from keyplan.cli.options import ConfigOption, JsonOption, LayoutOption, ParameterOption, StoreOption
from keyplan.cli.output import print_json, print_text
from keyplan.cli.plain import key_of_words, record_of_text
from keyplan.errors import InvalidInputError

__all__ = ["run"]


def run(
    item: ItemArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[FIELD]... VALUE",
            help="The key's fields, then the record: JSON, or - to read it from standard input.",
        ),
    ],
    *,
    store: StoreOption = None,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
    insert: Annotated[bool, typer.Option("--insert", help="Fail when there is a record already.")] = False,
    expected_revision: Annotated[
        int | None,
        typer.Option("--expected-revision", min=0, help="Fail unless the record is at this revision (0: absent)."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the commit that this would make, and write nothing.")
    ] = False,
) -> None:
    """Write one record and its index entries, in one commit."""
    with opened(store, layout, parameter, config) as open_layout:
        table, view = open_layout.table(item)
        has_value = table.form.value_type not in (None, type(None))
        if has_value and not words:
            raise InvalidInputError(source="VALUE", problem="give the record after the key")
        key = key_of_words(table.keys, words[:-1] if has_value else words)
        record = record_of_text(table.form, sys.stdin.read() if words[-1] == "-" else words[-1]) if has_value else None
        if explain:
            over = open_layout.layout.over
            explanation = open_layout.store.explain(
                lambda tx: (
                    over(tx).view(item).insert(key, record)
                    if insert
                    else over(tx).view(item).put(key, record, expected_revision=expected_revision)
                )
            )
            print_text(str(explanation))
            return
        if insert:
            revision = view.insert(key, record)
        else:
            revision = view.put(key, record, expected_revision=expected_revision)
    if json:
        print_json({"revision": revision})
    else:
        print_text(f"revision {revision}")
