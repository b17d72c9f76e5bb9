"""The command `keyplan watch`."""

import sys
from itertools import islice
from typing import Annotated, Any, Final

import typer

from keyplan.cli.failures import print_failure, print_hint
from keyplan.cli.items import FieldsArgument, ItemArgument, LayoutOptions
from keyplan.cli.narrowing import StartsWithOption, narrowed
from keyplan.cli.options import JsonOption
from keyplan.cli.output import print_json, print_text, printable
from keyplan.cli.plain import line_of_value, plain_key, plain_value, text_of_value
from keyplan.cli.streams import ends_with_reader
from keyplan.errors import CorruptionError, InvalidInputError
from keyplan.layout import BoundIndex, BoundTable, Change, Changes

__all__ = ["run"]

REVISION_MAX: Final = 2**63 - 1

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
    ends_with_reader()
    with at.opened(readonly=True) as open_layout:
        listed = open_layout.listable(item)
        prefix, bounds = narrowed(listed, fields, starts_with=starts_with, at_least=None, below=None)
        if follow_from_start and (after is not None or isinstance(listed, BoundIndex)):
            problem = "it begins with every record of a table: not with --after, and not for an index"
            raise InvalidInputError(source="--follow-from-start", problem=problem)
        view = open_layout.layout.view(item)
        begin = _begin(after)
        changes = view.follow(*prefix, **bounds) if follow_from_start else view.watch(*prefix, after=begin, **bounds)
        with changes:
            printed = _Printed(changes)
            try:
                printed.print_all(open_layout.table_of(item), limit, is_json=json)
            finally:
                if printed.token:
                    print_hint(f"to continue: --after {printed.token}")


def _begin(after: str | None) -> int | str | None:
    """Read the place to begin after: digits are a revision, anything else a token."""
    if after is None or not (after.isascii() and after.isdecimal()):
        return after
    if len(after) > len(str(REVISION_MAX)) or int(after) > REVISION_MAX:
        raise InvalidInputError(source="--after", problem=f"revisions are at most {REVISION_MAX}")
    return int(after)


class _Printed:
    """Changes on their way to a reader."""

    def __init__(self, changes: Changes[Any, Any]) -> None:
        self._changes = changes
        self._is_printing = False
        self._token = changes.token

    @property
    def token(self) -> str:
        """Where the reader stands: a change whose printing was cut off is for the next time."""
        return self._token if self._is_printing else self._changes.token

    def print_all(self, table: BoundTable, limit: int | None, *, is_json: bool) -> None:
        """Print changes, at most `limit`."""
        printed = 0
        while limit is None or printed < limit:
            try:
                for change in islice(self._changes, None if limit is None else limit - printed):
                    self._is_printing = True
                    _print_change(change, table, is_json=is_json)
                    self._token = change.token
                    self._is_printing = False
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
