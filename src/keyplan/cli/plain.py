"""Between what people type and read, and what layouts hold: key fields as words, records as plain JSON values."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from keyplan.codec import Element, ValueForm
from keyplan.errors import InvalidInputError, InvalidKeyError, KeyplanError
from keyplan.layout import CompiledKeys, raw_key_of, shown_key

__all__ = [
    "key_of_words",
    "plain_key",
    "plain_value",
    "prefix_of_words",
    "record_of_text",
    "text_of_value",
    "value_of_text",
]


def value_of_text(element: Element[Any], text: str) -> Any:
    """Read one key field: text, a decimal number, a UUID, bytes as text with \\xNN. Raises InvalidKeyError."""
    kind = element.value_type
    try:
        if issubclass(kind, str):
            return text
        if issubclass(kind, bool | int | float | UUID):
            return kind(text)
        if issubclass(kind, bytes):
            return raw_key_of(text)
        return element.decode(raw_key_of(text))
    except ValueError as error:
        raise InvalidKeyError(element=element.spec, value=text, problem=f"not a {kind.__name__}") from error


def text_of_value(value: object) -> str:
    """A key field for people; `value_of_text` reads it back."""
    return shown_key(value) if isinstance(value, bytes) else str(value)


def key_of_words(keys: CompiledKeys, words: Sequence[str]) -> Any:
    """Read a whole key, one word for each field. Raises InvalidKeyError, also for a wrong number of words."""
    values = prefix_of_words(keys, words, is_whole=True)
    return values[0] if keys.shape.is_scalar else keys.shape.make(*values)


def prefix_of_words(keys: CompiledKeys, words: Sequence[str], *, is_whole: bool = False) -> tuple[Any, ...]:
    """Read the first fields of a key. Raises InvalidKeyError for a wrong number of words."""
    fields = keys.template.fields
    if len(words) > len(fields) or (is_whole and len(words) < len(fields)):
        names = " ".join(field.name.upper() for field in fields)
        raise InvalidKeyError(problem=f"the key is {names or 'empty'}: {len(fields)} words, not {len(words)}")
    return tuple(value_of_text(field.element, word) for field, word in zip(fields, words, strict=False))


def plain_key(keys: CompiledKeys, key: object) -> dict[str, object]:
    """The fields of a key as JSON values."""
    values = zip(keys.template.field_names, keys.shape.split(key), strict=True)
    return {
        name: value if isinstance(value, int | float | str | bool) else text_of_value(value) for name, value in values
    }


def plain_value(value: object) -> Any:
    """A record as JSON values: dicts, lists, texts, numbers."""
    if isinstance(value, bytes):
        return shown_key(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return msgspec.to_builtins(value, enc_hook=str, str_keys=True)


def record_of_text(form: ValueForm[Any], text: str) -> Any:
    """Read a record that a person wrote: JSON for records, the bare word for a text, number or UUID.

    Raises InvalidInputError, without quoting the value.
    """
    kind = form.value_type
    if kind is None or kind is type(None):
        raise InvalidInputError(source="value", problem="records of this table have no value")
    if kind is bytes:
        return raw_key_of(text)
    if isinstance(kind, type) and issubclass(kind, str | int | float | UUID):
        try:
            return kind(text)
        except ValueError as error:
            raise InvalidInputError(source="value", problem=f"not a {kind.__name__}") from error
    try:
        plain = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(source="value", problem="the value is not JSON") from error
    try:
        if hasattr(kind, "model_validate"):
            return kind.model_validate(plain)
        return msgspec.convert(plain, kind, strict=False)
    except KeyplanError:
        raise
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidInputError(source="value", problem=f"not a {getattr(kind, '__name__', kind)}: {error}") from error
