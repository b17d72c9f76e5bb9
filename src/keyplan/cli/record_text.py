"""A record that a person wrote, read strictly: every field that is given must be one that the record has."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from keyplan.codec import ValueForm
from keyplan.errors import InvalidInputError
from keyplan.layout import raw_key_of, scalar_of_text

__all__ = ["has_value", "record_of_json", "record_of_word"]

_SOURCE: Final = "VALUE"
_NOT_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
"""What `keyplan get` prints for a number that JSON has no word for."""


def has_value(form: ValueForm[Any]) -> bool:
    """Tell whether records of this form have a value at all."""
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
        raise InvalidInputError(source=_SOURCE, problem=f"not a {kind.__name__}") from error
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
