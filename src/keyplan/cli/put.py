"""The command `keyplan put`."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from keyplan.cli.items import ItemArgument, LayoutOptions, table_named
from keyplan.cli.options import JsonOption
from keyplan.cli.output import print_json, print_text
from keyplan.cli.plain import key_of_words
from keyplan.cli.record_text import has_value, record_of_json, record_of_word
from keyplan.cli.unfinished import Unfinished, WriteUnfinishedOption
from keyplan.errors import InvalidInputError
from keyplan.layout import BoundTable, Layout

__all__ = ["run"]


def run(
    item: ItemArgument,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIELD... VALUE",
            help="The key's fields, then the record: JSON, or - to read it from standard input.",
        ),
    ] = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    insert: Annotated[bool, typer.Option("--insert", help="Fail when there is a record already.")] = False,
    expected_revision: Annotated[
        int | None,
        typer.Option("--expected-revision", min=0, help="Fail unless the record is at this revision (0: absent)."),
    ] = None,
    lease: Annotated[int, typer.Option("--lease", metavar="ID", min=0, help="The lease to hang on.")] = 0,
    unfinished: WriteUnfinishedOption = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the commit that this would make, and write nothing.")
    ] = False,
) -> None:
    """Write one record and its index entries, in one commit. A store that is not there is made.

    A record is JSON with the fields of its class; of a table of texts, truth values, numbers or UUIDs, the bare word. Standard
    input holds JSON for all of them, as `keyplan get` prints it. A value that begins with a minus sign follows --.
    """
    if insert and expected_revision is not None:
        raise InvalidInputError(
            source="--insert", problem="it does not go with --expected-revision, of which 0 says the same"
        )
    # Why before the store is opened: a mistake in the words must not make one.
    key, record = _key_and_record(table_named(at.bound(), item), words or [])
    allowed = Unfinished.TOLD if unfinished else None
    with at.opened(create=not explain, readonly=explain, unfinished=allowed) as open_layout:
        write = _writing(item, key, record, insert=insert, expected_revision=expected_revision, lease=lease)
        if explain:
            open_layout.print_commit(write, json=json)
            return
        revision = write(open_layout.layout)
    if json:
        print_json({"revision": revision})
    else:
        print_text(f"revision {revision}")


def _writing(
    item: str, key: Any, record: Any, *, insert: bool, expected_revision: int | None, lease: int
) -> Callable[[Layout], int]:
    def write(layout: Layout) -> int:
        view = layout.view(item)
        revision: int = (
            view.insert(key, record, lease=lease)
            if insert
            else view.put(key, record, expected_revision=expected_revision, lease=lease)
        )
        return revision

    return write


def _key_and_record(table: BoundTable, words: list[str]) -> tuple[Any, Any]:
    """Read the words. The key first: a wrong number of words is the likelier mistake than a wrong record."""
    if not has_value(table.form):
        return key_of_words(table.keys, words), None
    if len(words) == len(table.keys.template.fields):
        raise InvalidInputError(source="VALUE", problem="the record is missing: give it after the key, or - for stdin")
    key = key_of_words(table.keys, words[:-1])
    if words[-1] == "-":
        return key, record_of_json(table.form, _standard_input())
    return key, record_of_word(table.form, words[-1])


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(source="standard input", problem="not text in UTF-8") from error
