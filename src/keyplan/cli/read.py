"""The commands that read by a layout: `keyplan get|list|count|watch|ls|tree`."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from typing import Annotated, Any, Final, NamedTuple

import typer

from keyplan.cli.failures import Faults, print_failure, print_hint
from keyplan.cli.items import (
    AtLeastOption,
    BelowOption,
    FieldsArgument,
    ItemArgument,
    LayoutOptions,
    OpenLayout,
    RevealOptions,
    StartsWithOption,
    item_names,
    narrowed,
)
from keyplan.cli.options import JsonOption, LimitOption
from keyplan.cli.output import (
    ends_with_reader,
    print_answer,
    print_grid,
    print_json,
    print_record,
    print_text,
    printable,
    with_progress,
)
from keyplan.engine import Snapshot
from keyplan.errors import CorruptionError, IndexNotReadyError, InvalidInputError, NotFoundError
from keyplan.layout import (
    BoundIndex,
    BoundTable,
    Change,
    Changes,
    CounterSpec,
    Damaged,
    IndexSpec,
    ItemSpec,
    key_of_words,
    line_of_value,
    plain_field,
    plain_key,
    plain_value,
    prefix_of_words,
    shown_key,
    text_of_value,
)
from keyplan.store import levels

__all__ = ["count_command", "get_command", "list_command", "ls_command", "tree_command", "watch_command"]

# ---- get -----------------------------------------------------------------------------------------------------------------


def get_command(
    item: ItemArgument,
    fields: FieldsArgument = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    value_only: Annotated[
        bool, typer.Option("--value-only", help="The record alone, also on a terminal and with --json.")
    ] = False,
    reveals: RevealOptions,
) -> None:
    """Print one record, by its key or by an index; of a counter, the next number.

    A pipe gets the record alone, as JSON on one line. A terminal, and --json, get its revisions, version and lease too.
    """
    with at.opened(readonly=True) as open_layout:
        if item in open_layout.bound.counters:
            _print_counter(open_layout, item, fields or [], json=json)
            return
        words = fields or []
        # Why not asked otherwise: what stays masked is noted nowhere.
        noted = reveals.noted(" ".join([at.keyspace or "-", item, *words])) if any(reveals) else nullcontext()
        with noted:
            found = _found(open_layout, item, words, reveals=reveals.reveal)
    if reveals.reveal:
        print_hint("the secrets of the record are printed in clear")
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
    print_answer({"item": item, "next": number}, str(number), json=json)


def _found(open_layout: OpenLayout, item: str, words: list[str], *, reveals: bool) -> dict[str, Any]:
    """Return the record at a key, with its history. Raises NotFoundError."""
    listed = open_layout.listable(item)
    key = key_of_words(listed.keys, words)
    table, name = listed, item
    if isinstance(listed, BoundIndex):
        table, name = listed.table, listed.table.name
        key = _primary_key(open_layout, listed, key)
    versioned = None if key is None else open_layout.layout.view(name).versioned(key)
    if versioned is None:
        raise NotFoundError(item=item, key=" ".join(words))
    return {
        "table": name,
        "key": plain_key(table.keys, versioned.key),
        "record": plain_value(versioned.record, reveals=reveals),
        "revision": versioned.revision,
        "create_revision": versioned.create_revision,
        "version": versioned.version,
        "lease": versioned.lease,
    }


def _primary_key(open_layout: OpenLayout, index: BoundIndex, key: Any) -> Any:
    """Return the primary key of the record that an index has at `key`; None where it has no such entry."""
    view = open_layout.layout.view(index.name)
    if index.spec.is_unique:
        return view.key_of(key)
    return next(view.keys(*index.keys.shape.split(key), limit=1), None)


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
    limit: LimitOption = None,
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="From the last to the first.")] = False,
    keys_only: Annotated[bool, typer.Option("--keys-only", help="The keys, without reading the records.")] = False,
) -> None:
    """Print records in key order: exactly those whose first key fields have the given values.

    Each line holds one record. A terminal gets long lines cut; a pipe gets whole lines, with tabs between the fields.
    Records that cannot be read are reported on standard error.
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
    """Passes on the rows that can be read, reports the others, and counts both."""

    def __init__(self, rows: Iterable[Any], faults: Faults) -> None:
        self._rows = rows
        self._faults = faults
        self.number = 0

    def __iter__(self) -> Iterator[Any]:
        for row in self._rows:
            self.number += 1
            if isinstance(row, Damaged):
                self._faults.add(row.error)
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
    """Count the records or index entries whose first key fields have the given values."""
    with at.opened(readonly=True) as open_layout:
        prefix, bounds = narrowed(
            open_layout.listable(item), fields, starts_with=starts_with, at_least=at_least, below=below
        )
        number = open_layout.layout.view(item).count(*prefix, **bounds)
        print_answer({"item": item, "count": number}, str(number), json=json)
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
        typer.Option("--after", metavar="TOKEN|REVISION", help="Begin after this; by default now."),
    ] = None,
    follow_from_start: Annotated[
        bool,
        typer.Option("--follow-from-start", help="First every record; list again when history was compacted."),
    ] = False,
    limit: _Limit = None,
) -> None:
    """Print changes as they are committed, until Ctrl-C: of a table, or of the records that have an entry of an index.

    Each line holds one change: its kind, the revision, the key, the record after it. At the end a token is printed on standard
    error, from which --after continues. Records that cannot be read are reported there too.
    """
    ends_with_reader()
    with at.opened(readonly=True) as open_layout:
        listed = open_layout.listable(item)
        prefix, bounds = narrowed(listed, fields, starts_with=starts_with, at_least=None, below=None)
        if follow_from_start and (after is not None or isinstance(listed, BoundIndex)):
            problem = "it goes neither with --after nor with an index: pass a table alone"
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
    """Read --after: digits are a revision, anything else a token."""
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
        """The token of the last change that was printed whole."""
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
    sys.stdout.flush()  # Why: readers of a pipe wait for each change.


# ---- ls ------------------------------------------------------------------------------------------------------------------


_UNKNOWN: Final = "?"


def ls_command(
    item: Annotated[
        str | None,
        typer.Argument(metavar="ITEM", help="A table or index; without it, all of them.", autocompletion=item_names),
    ] = None,
    fields: FieldsArgument = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many values.")] = 1000,
) -> None:
    """Show the layout's items with the number of their records; of an item, the values of the next key field.

    On a terminal, a value with more key fields after it ends in /. Reads jump from value to value: a rack of a million blades
    takes one.
    """
    ends_with_reader()
    with at.opened(readonly=True) as open_layout:
        if item is None:
            _print_items(open_layout, json=json)
        else:
            _print_values(open_layout, item, fields or [], json=json, limit=limit)


def _print_values(open_layout: OpenLayout, item: str, words: list[str], *, json: bool, limit: int) -> None:
    bound = open_layout.listable(item)
    prefix = prefix_of_words(bound.keys, words)
    names = bound.keys.template.field_names
    if len(prefix) == len(names):
        raise InvalidInputError(source="FIELD", problem=f"the key is whole: use `keyplan get {item}`")
    with open_layout.store.engine.snapshot() as snapshot:
        found = list(islice(levels(bound, prefix, snapshot), limit + 1))
    shown = found[:limit]
    if json:
        print_json([plain_field(level.value) for level in shown])
    else:
        mark = "/" if len(prefix) + 1 < len(names) and sys.stdout.isatty() else ""
        print_grid([names[len(prefix)].upper()], ([text_of_value(level.value) + mark] for level in shown))
    if len(found) > limit:
        print_hint(f"there are more than {limit} values; --limit shows more")
    if not found:
        open_layout.hint_when_foreign()


def _print_items(open_layout: OpenLayout, *, json: bool) -> None:
    items = open_layout.bound.spec.items
    faults = Faults(is_json=json)
    rows = [_item_row(open_layout, spec, faults) for spec in with_progress(items, total=len(items), title="counting")]
    if json:
        print_json([dict(zip(("item", "kind", "number", "template"), row, strict=True)) for row in rows])
    else:
        shown = ([_UNKNOWN if cell is None else str(cell) for cell in row] for row in rows)
        print_grid(["ITEM", "KIND", "NUMBER", "TEMPLATE"], shown)
    if all(number == 0 for _, kind, number, _ in rows if kind != "counter"):
        open_layout.hint_when_foreign()
    faults.end()


def _item_row(open_layout: OpenLayout, spec: ItemSpec, faults: Faults) -> tuple[str, str, int | None, str]:
    """Return name, kind, number (of a counter the next one; None where it cannot be read), the template below the root."""
    view = open_layout.layout.view(spec.name)
    if isinstance(spec, CounterSpec):
        kind, count = "counter", view.peek
    else:
        kind = ("unique" if spec.is_unique else "index") if isinstance(spec, IndexSpec) else "table"
        count = view.count
    number: int | None = None
    try:
        number = count()
    except (CorruptionError, IndexNotReadyError) as error:
        faults.add(error)
    return spec.name, kind, number, spec.template.plain


# ---- tree ----------------------------------------------------------------------------------------------------------------


class _Branch(NamedTuple):
    """The values of one key field, each with the branch below it; `has_more`: some values are not shown."""

    values: "list[tuple[str, _Branch]]"
    has_more: bool


_LEAF = _Branch([], has_more=False)


def tree_command(
    item: Annotated[
        list[str] | None,
        typer.Argument(metavar="ITEM", help="Only these tables.", autocompletion=item_names),
    ] = None,
    *,
    at: LayoutOptions,
    json: JsonOption = False,
    depth: Annotated[int, typer.Option("--depth", "-d", min=1, help="At most so many fields deep.")] = 3,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many values at each level.")] = 10,
) -> None:
    """Show the records as a tree of their keys' fields, whatever the separators in the keys are."""
    ends_with_reader()
    with at.opened(readonly=True) as open_layout:
        tables = [open_layout.table(name)[0] for name in item or list(open_layout.bound.tables)]
        with open_layout.store.engine.snapshot() as snapshot:
            branches = {
                table.name: _branch(table, (), snapshot, depth=depth, limit=limit) for table in dict.fromkeys(tables)
            }
        if json:
            print_json(_tree_document(open_layout, branches))
        else:
            for line in _tree_lines(open_layout, branches):
                print_text(line)
        if not any(branch.values for branch in branches.values()):
            open_layout.hint_when_foreign()


def _branch(table: BoundTable, prefix: tuple[Any, ...], snapshot: Snapshot, *, depth: int, limit: int) -> _Branch:
    if depth == 0 or len(prefix) == len(table.keys.template.fields):
        return _LEAF
    found = levels(table, prefix, snapshot)
    values = [
        (
            text_of_value(level.value),
            _branch(table, (*prefix, level.value), snapshot, depth=depth - 1, limit=limit),
        )
        for level in islice(found, limit)
    ]
    return _Branch(values, next(found, None) is not None)


def _tree_lines(open_layout: OpenLayout, branches: dict[str, _Branch]) -> Iterator[str]:
    bound = open_layout.bound
    yield f"{bound.name}  {shown_key(bound.root)}".rstrip()
    for name, branch in branches.items():
        yield f"  {name}  {bound.tables[name].spec.template.plain}" + ("" if branch.values else "  (none)")
        yield from _branch_lines(branch, "    ")


def _branch_lines(branch: _Branch, indent: str) -> Iterator[str]:
    for value, below in branch.values:
        yield indent + printable(value)
        yield from _branch_lines(below, indent + "  ")
    if branch.has_more:
        yield f"{indent}..."


def _tree_document(open_layout: OpenLayout, branches: dict[str, _Branch]) -> dict[str, Any]:
    return {
        "layout": open_layout.bound.name,
        "root": shown_key(open_layout.bound.root),
        "tables": {name: _plain_branch(branch) for name, branch in branches.items()},
    }


def _plain_branch(branch: _Branch) -> dict[str, Any]:
    values = [
        {"value": value, **({"below": _plain_branch(below)} if below.values else {})} for value, below in branch.values
    ]
    return {"values": values, "has_more": branch.has_more}
