"""The command `keyplan dump`."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from keyplan.cli.files import file_or_output
from keyplan.cli.options import (
    ConfigOption,
    KeySpaceOption,
    LayoutOption,
    ParameterOption,
    StoreOption,
    layout_of_option,
    root_parameters,
    store_of_option,
)
from keyplan.cli.output import json_line, with_progress
from keyplan.cli.plain import plain_value, text_of_value
from keyplan.cli.streams import ends_with_reader
from keyplan.engine import ALL_KEYS, Entry, KeyRange
from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.files import new_file
from keyplan.layout import BoundLayout, Kind, raw_key_of, shown_key

__all__ = ["run"]


def run(
    prefix: Annotated[
        str, typer.Argument(metavar="PREFIX", help="Only keys that begin so; \\xNN for other bytes.")
    ] = "",
    *,
    store: StoreOption = None,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    keyspace: KeySpaceOption = None,
    config: ConfigOption = None,
    raw: Annotated[bool, typer.Option("--raw", help="Keys and values in hexadecimal, without a layout.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A new file to write instead of standard output.",
            callback=file_or_output,
        ),
    ] = None,
) -> None:
    """Print every key and value, from one snapshot, as JSON lines with revisions, version and lease.

    With a layout each line says what its key means; keys that the layout does not know are dumped too, and values that do not
    decode are dumped in hexadecimal.
    """
    ends_with_reader()
    bound = None
    if not raw:
        kind = layout_of_option(layout, config)
        bound = kind.bound(**root_parameters(kind, parameter, config))
    try:
        key_range = KeyRange.of_prefix(raw_key_of(prefix)) if prefix else ALL_KEYS
    except ValueError as error:
        raise InvalidInputError(source="PREFIX", problem=str(error)) from error
    with ExitStack() as stack:
        opened = stack.enter_context(store_of_option(store, config, readonly=True, keyspace=keyspace))
        snapshot = stack.enter_context(opened.engine.snapshot())
        target: TextIO = sys.stdout if output is None else stack.enter_context(_created(output))
        entries: Iterator[Entry] = snapshot.scan(key_range)
        if output is not None and sys.stderr.isatty():
            entries = with_progress(entries, total=snapshot.count(key_range), title="dump")
        for entry in entries:
            line = _raw_line(entry) if bound is None else _line(bound, entry)
            target.write(json_line(line, encoding=target.encoding))


@contextmanager
def _created(path: Path) -> Iterator[TextIO]:
    """A new file, which has its name when it is written to its end."""
    with new_file(path) as file:
        text = TextIOWrapper(file, encoding="utf-8")
        try:
            yield text
        finally:
            text.detach()  # Why not closed: the file is brought to disk and named by whom it was opened by.


def _raw_line(entry: Entry) -> dict[str, Any]:
    return {"key": entry.key.hex(), "value": entry.value.hex(), **_history(entry)}


def _line(bound: BoundLayout, entry: Entry) -> dict[str, Any]:
    meaning = bound.meaning(entry.key)
    line: dict[str, Any] = {"key": shown_key(entry.key), "kind": meaning.kind.value, "item": meaning.item}
    if meaning.kind in (Kind.UNKNOWN, Kind.NAMESPACE):
        return line | {"item": None, "value": entry.value.hex(), **_history(entry)}
    line["fields"] = {name: text_of_value(value) for name, value in meaning.fields.items()}
    if meaning.kind is Kind.RECORD:
        try:
            line["record"] = plain_value(bound.tables[str(meaning.item)].form.decode(entry.value))
        except KeyplanError as error:
            line |= {"damaged": str(error), "value": entry.value.hex()}
    elif entry.value:
        line["value"] = text_of_value(entry.value)
    return line | _history(entry)


def _history(entry: Entry) -> dict[str, int]:
    return {
        "create_revision": entry.create_revision,
        "mod_revision": entry.mod_revision,
        "version": entry.version,
        "lease": entry.lease,
    }
