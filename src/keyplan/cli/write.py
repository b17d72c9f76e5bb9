"""The commands that write by a layout: `keyplan put|delete`; and how a record that a person wrote is read."""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
import typer

from keyplan.cli.items import FieldsArgument, ItemArgument, LayoutOptions, table_named
from keyplan.cli.options import JsonOption, Unfinished, WriteUnfinishedOption
from keyplan.cli.output import print_json, print_text
from keyplan.codec import ValueForm
from keyplan.errors import InvalidInputError
from keyplan.layout import BoundTable, Layout, key_of_words, kind_in_words, raw_key_of, scalar_of_text

__all__ = ["delete_command", "has_value", "put_command", "record_of_json", "record_of_word"]

# ---- put -----------------------------------------------------------------------------------------------------------------


def put_command(
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


# ---- delete --------------------------------------------------------------------------------------------------------------


def delete_command(
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


# ---- a record that a person wrote ----------------------------------------------------------------------------------------


_SOURCE: Final = "VALUE"
_NOT_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
"""What `keyplan get` prints for a number that JSON has no word for."""


def has_value(form: ValueForm[Any]) -> bool:
    """Return whether records of this form have a value at all."""
    return form.value_type not in (None, type(None))


def record_of_word(form: ValueForm[Any], word: str) -> Any:
    r"""Read a record off the command line: the bare word for a text, truth value, number or UUID, text with \xNN for bytes.

    Any other record is JSON. Raises InvalidInputError, see `record_of_json`.
    """
    kind = form.value_type
    try:
        if kind is bytes:
            return raw_key_of(word)
        if isinstance(kind, type) and issubclass(kind, str):
            return kind(word)
        if isinstance(kind, type) and issubclass(kind, bool | int | float | UUID):
            return scalar_of_text(kind, word)
    except ValueError as error:
        raise InvalidInputError(source=_SOURCE, problem=f"the record must be {kind_in_words(kind)}") from error
    return record_of_json(form, word)


def record_of_json(form: ValueForm[Any], text: str) -> Any:
    r"""Read a record as `keyplan get` prints it: JSON of any record; of a record of bytes, a text with \xNN.

    Raises InvalidInputError that names the field, also for a field that the record does not have: it would be lost in silence.
    """
    kind = form.value_type
    name = getattr(kind, "__name__", str(kind))
    try:
        plain = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidInputError(source=_SOURCE, problem=f"not JSON, of which a {name} is made: {error}") from error
    try:
        record = _record_of_plain(kind, plain)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(source=_SOURCE, problem=f"not a {name}: {error}") from error
    for place in _unknown_fields(plain, record, "$"):
        raise InvalidInputError(source=_SOURCE, problem=f"a {name} has no field {place}")
    return record


def _record_of_plain(kind: Any, plain: Any) -> Any:
    if kind is bytes and isinstance(plain, str):
        return raw_key_of(plain)
    if kind is float and plain in _NOT_NUMBERS:
        return float(plain)
    read_json = getattr(kind, "model_validate_json", None)
    if read_json is not None:  # a pydantic model
        return read_json(msgspec.json.encode(plain))
    return msgspec.convert(plain, kind, str_keys=True)


def _unknown_fields(plain: Any, record: Any, place: str) -> Iterator[str]:
    """The places in `plain` that `record`, which was made of it, has no field for."""
    if isinstance(plain, dict):
        fields = _fields(record)
        for name, value in plain.items():
            if fields is not None and name not in fields:
                yield f"{place}.{name}"
            elif fields is not None:
                yield from _unknown_fields(value, fields[name], f"{place}.{name}")
    elif isinstance(plain, list) and isinstance(record, list | tuple):
        for number, (value, made) in enumerate(zip(plain, record, strict=False)):
            yield from _unknown_fields(value, made, f"{place}[{number}]")


def _fields(record: Any) -> Mapping[str, Any] | None:
    """The values of a record's fields by their names in JSON; None when any name is as good as another."""
    if isinstance(record, msgspec.Struct):
        tag = record.__struct_config__.tag_field
        named = {field.encode_name: getattr(record, field.name) for field in msgspec.structs.fields(record)}
        return named if tag is None else {tag: record.__struct_config__.tag, **named}
    if dataclasses.is_dataclass(record):
        return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    if isinstance(record, Mapping):
        return {str(name): value for name, value in record.items()}
    if hasattr(record, "model_dump"):
        extra: Mapping[str, Any] | None = getattr(record, "model_extra", None)
        names = type(record).model_fields
        return {(names[name].alias or name): getattr(record, name) for name in names} | dict(extra or {})
    return None
