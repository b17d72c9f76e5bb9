"""The command `keyplan watch`."""

import sys
from itertools import islice
from typing import Annotated, Any

import typer

from keyplan.cli.failures import print_failure, print_hint
from keyplan.cli.items import FieldsArgument, ItemArgument, LayoutOptions
from keyplan.cli.narrowing import StartsWithOption, narrowed
from keyplan.cli.options import JsonOption
from keyplan.cli.output import print_json, print_text, printable
from keyplan.cli.plain import line_of_value, plain_key, plain_value, text_of_value
from keyplan.errors import CorruptionError, InvalidInputError
from keyplan.layout import BoundIndex, BoundTable, Change

__all__ = ["run"]

_Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, help="End after so many changes.")]


def run(
    item: ItemArgument,
    fields: FieldsArgument = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    starts_with: StartsWithOption = None,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="TOKEN|REVISION", help="Begin after this, from history; by default now."),
    ] = None,
    follow_from_start: Annotated[
        bool,
        typer.Option("--follow-from-start", help="First every record there is; list again when history was compacted."),
    ] = False,
    limit: _Limit = None,
) -> None:
    """Print changes as they are committed, until Ctrl-C: of a table, or of the records that have an entry of an index.

    One change a line: what happened, the revision, the key, the record after it. At the end a token is printed on standard
    error; with --after it continues where this ended. A record that cannot be read is reported there, too.
    """
    with at.opened(readonly=True) as open_layout:
        listed = open_layout.listable(item)
        prefix, bounds = narrowed(listed, fields, starts_with=starts_with, at_least=None, below=None)
        if follow_from_start and (after is not None or isinstance(listed, BoundIndex)):
            problem = "it begins with every record of a table: not with --after, and not for an index"
            raise InvalidInputError(source="--follow-from-start", problem=problem)
        view = open_layout.layout.view(item)
        begin = int(after) if after is not None and after.isdecimal() else after
        changes = view.follow(*prefix, **bounds) if follow_from_start else view.watch(*prefix, after=begin, **bounds)
        with changes:
            try:
                _print_all(changes, open_layout.table_of(item), limit, is_json=json)
            finally:
                if changes.token:
                    print_hint(f"to continue: --after {changes.token}")


def _print_all(changes: Any, table: BoundTable, limit: int | None, *, is_json: bool) -> None:
    printed = 0
    while limit is None or printed < limit:
        try:
            for change in islice(changes, None if limit is None else limit - printed):
                _print_change(change, table, is_json=is_json)
                printed += 1
        except CorruptionError as error:
            print_failure(error, is_json=is_json)


def _print_change(change: Change[Any, Any], table: BoundTable, *, is_json: bool) -> None:
    if is_json:
        print_json(
            {
                "kind": change.kind.value,
                "key": plain_key(table.keys, change.key),
                "old": plain_value(change.old),
                "new": plain_value(change.new),
                "revision": change.revision,
                "token": change.token,
            }
        )
    else:
        fields = [text_of_value(value) for value in table.keys.shape.split(change.key)]
        words = [change.kind.value, str(change.revision), *fields, line_of_value(plain_value(change.new))]
        print_text("\t".join(printable(word) for word in words))
    sys.stdout.flush()  # Why: who reads a pipe wants each change when it happens.
