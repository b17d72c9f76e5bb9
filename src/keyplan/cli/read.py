"""The commands that read by a layout: `keyplan get|list|count|watch`."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any, Final

import typer

from keyplan.cli.failures import Faults, print_failure, print_hint
from keyplan.cli.items import (
    AtLeastOption,
    BelowOption,
    FieldsArgument,
    ItemArgument,
    LayoutOptions,
    OpenLayout,
    StartsWithOption,
    narrowed,
)
from keyplan.cli.options import JsonOption
from keyplan.cli.output import (
    ends_with_reader,
    print_grid,
    print_json,
    print_record,
    print_text,
    printable,
)
from keyplan.errors import CorruptionError, InvalidInputError, NotFoundError
from keyplan.layout import (
    BoundIndex,
    BoundTable,
    Change,
    Changes,
    Damaged,
    key_of_words,
    line_of_value,
    plain_key,
    plain_value,
    text_of_value,
)

__all__ = ["count_command", "get_command", "list_command", "watch_command"]

# ---- get -----------------------------------------------------------------------------------------------------------------


def get_command(
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


# ---- list ----------------------------------------------------------------------------------------------------------------


def list_command(
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
            for line in _record_documents(table, found, keys_only=keys_only):
                print_json(line)
        else:
            names = [name.upper() for name in table.keys.template.field_names]
            print_grid(names if keys_only else [*names, "RECORD"], _record_rows(table, found, keys_only=keys_only))
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


def _record_documents(table: BoundTable, found: Iterable[Any], *, keys_only: bool) -> Iterator[dict[str, Any]]:
    for one in found:
        if keys_only:
            yield {"key": plain_key(table.keys, one)}
        else:
            yield {"key": plain_key(table.keys, one.key), "record": plain_value(one.record)}


def _record_rows(table: BoundTable, found: Iterable[Any], *, keys_only: bool) -> Iterator[list[str]]:
    split = table.keys.shape.split
    for one in found:
        fields = [text_of_value(value) for value in split(one if keys_only else one.key)]
        yield fields if keys_only else [*fields, line_of_value(plain_value(one.record))]


# ---- count ---------------------------------------------------------------------------------------------------------------


def count_command(
    item: ItemArgument,
    fields: FieldsArgument = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    starts_with: StartsWithOption = None,
    at_least: AtLeastOption = None,
    below: BelowOption = None,
) -> None:
    """Count the records or index entries whose first key fields have the values given."""
    with at.opened(readonly=True) as open_layout:
        prefix, bounds = narrowed(
            open_layout.listable(item), fields, starts_with=starts_with, at_least=at_least, below=below
        )
        number = open_layout.layout.view(item).count(*prefix, **bounds)
        if json:
            print_json({"item": item, "count": number})
        else:
            print_text(str(number))
        if not number:
            open_layout.hint_when_foreign()


# ---- watch ---------------------------------------------------------------------------------------------------------------


REVISION_MAX: Final = 2**63 - 1

_Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, help="End after so many changes.")]


def watch_command(
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
