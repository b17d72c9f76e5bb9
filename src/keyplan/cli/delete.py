"""The command `keyplan delete`."""

from typing import Annotated

import typer

from keyplan.cli.items import FieldsArgument, ItemArgument, LayoutOptions
from keyplan.cli.options import JsonOption
from keyplan.cli.output import print_json, print_text
from keyplan.cli.plain import key_of_words
from keyplan.cli.unfinished import Unfinished, WriteUnfinishedOption

__all__ = ["run"]


def run(
    item: ItemArgument,
    fields: FieldsArgument = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    expected_revision: Annotated[
        int | None, typer.Option("--expected-revision", min=0, help="Fail unless the record is at this revision.")
    ] = None,
    missing_ok: Annotated[bool, typer.Option("--missing-ok", help="An absent record is no error.")] = False,
    unfinished: WriteUnfinishedOption = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the commit that this would make, and write nothing.")
    ] = False,
) -> None:
    """Delete one record and its index entries, in one commit. The key is given whole: nothing is deleted by prefix."""
    with at.opened(readonly=explain, unfinished=Unfinished.TOLD if unfinished else None) as open_layout:
        table, view = open_layout.table(item)
        key = key_of_words(table.keys, fields or [])
        if explain:
            open_layout.print_commit(
                lambda layout: layout.view(item).delete(
                    key, expected_revision=expected_revision, missing_ok=missing_ok
                ),
                json=json,
            )
            return
        revision = view.delete(key, expected_revision=expected_revision, missing_ok=missing_ok)
    if json:
        print_json({"revision": revision})
    else:
        print_text(f"revision {revision}")
