"""Between what people type and read, and what layouts hold: key fields as words, records as plain JSON values."""

import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn
from uuid import UUID

import msgspec

from keyplan.codec import REVEALED, Element, Secret
from keyplan.errors import CorruptionError, InvalidKeyError
from keyplan.layout.compile import CompiledKeys
from keyplan.layout.meaning import raw_key_of, shown_key

__all__ = [
    "key_of_words",
    "kind_in_words",
    "line_of_value",
    "plain_field",
    "plain_key",
    "plain_value",
    "prefix_of_words",
    "scalar_of_text",
    "text_of_value",
    "value_of_text",
    "word_of_value",
]


_TRUTHS: Final = {"true": True, "false": False}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")

LINE_NESTING_MAX: Final = 32
"""Why: a line is read by people; and a record can be nested deeper than the interpreter's stack."""


_PLAIN: Final = (int, float, str, bool)
_KINDS: Final = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (UUID, "a UUID"),
    (bytes, r"text with \xNN for bytes"),
)
"""Why bool before int: the one is a kind of the other."""


# ---- keys ------------------------------------------------------------------------------------------------------------


def value_of_text(element: Element[Any], text: str) -> Any:
    r"""Read one key field: text, a decimal number, a UUID, bytes as text with \xNN. Raises InvalidKeyError."""
    kind = element.value_type
    try:
        if issubclass(kind, str):
            return text
        if issubclass(kind, bool | int | float | UUID):
            return scalar_of_text(kind, text)
        if issubclass(kind, bytes):
            return raw_key_of(text)
        return element.decode(raw_key_of(text))
    except ValueError as error:
        raise InvalidKeyError(
            element=element.spec, value=text, problem=f"must be {kind_in_words(kind)}, got {text!r}"
        ) from error


def kind_in_words(kind: type) -> str:
    """What a word of the command line must be to be read as this type."""
    return next((words for base, words in _KINDS if issubclass(kind, base)), kind.__name__)


def scalar_of_text(kind: Any, text: str) -> Any:
    """Read a truth value, number or UUID as it is spelled here, and not as Python would take it. Raises ValueError."""
    if issubclass(kind, bool):
        # Why not bool(text): every text but the empty one is true to Python, the word false among them.
        return kind(_TRUTHS[text]) if text in _TRUTHS else _refuse(text)
    if issubclass(kind, int):
        return kind(text) if _INTEGER.fullmatch(text) else _refuse(text)
    if (issubclass(kind, float) and not text.isascii()) or "_" in text or text != text.strip():
        _refuse(text)
    return kind(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def text_of_value(value: object) -> str:
    """A key field for people; `value_of_text` reads it back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return shown_key(value) if isinstance(value, bytes) else str(value)


def word_of_value(element: Element[Any], value: object) -> str:
    """A key field as a word that `value_of_text` reads back, for every element; for those people type as `text_of_value`."""
    if issubclass(element.value_type, str | int | float | UUID | bytes):
        return text_of_value(value)
    return shown_key(element.encode(value))


def key_of_words(keys: CompiledKeys, words: Sequence[str]) -> Any:
    """Read a whole key, one word for each field. Raises InvalidKeyError, also for a wrong number of words."""
    values = prefix_of_words(keys, words, is_whole=True)
    return values[0] if keys.shape.is_scalar else keys.shape.make(*values)


def prefix_of_words(keys: CompiledKeys, words: Sequence[str], *, is_whole: bool = False) -> tuple[Any, ...]:
    """Read the first fields of a key. Raises InvalidKeyError for a wrong number of words."""
    fields = keys.template.fields
    if len(words) > len(fields) or (is_whole and len(words) < len(fields)):
        names = " ".join(field.name.upper() for field in fields)
        expected = f"{names}, {len(fields)} words" if len(fields) > 1 else f"{names}, 1 word" if fields else "empty"
        raise InvalidKeyError(problem=f"the key is {expected}; {len(words)} given")
    values: list[Any] = []
    for field, word in zip(fields, words, strict=False):
        try:
            values.append(value_of_text(field.element, word))
        except InvalidKeyError as error:
            raise InvalidKeyError(field=field.name, **error.facts) from error
    return tuple(values)


def plain_key(keys: CompiledKeys, key: object) -> dict[str, object]:
    """The fields of a key as JSON values."""
    values = zip(keys.template.field_names, keys.shape.split(key), strict=True)
    # Why asked here, too: numbers and texts are the most, and need no call.
    return {name: value if isinstance(value, _PLAIN) else plain_field(value) for name, value in values}


def plain_field(value: object) -> object:
    """The value of a key's field as a JSON value: a number stays one; what JSON has no form for is text."""
    return value if isinstance(value, _PLAIN) else text_of_value(value)


# ---- records ---------------------------------------------------------------------------------------------------------


def plain_value(value: Any, *, reveals: bool = False) -> Any:
    r"""A record as JSON values: dicts, lists, texts, numbers. Its secrets are masks, unless it `reveals` them.

    A record of raw bytes is text with \xNN; bytes inside a record are base64, as msgspec has it. Raises CorruptionError for a
    record that is nested too deeply to be walked, and where it reveals what `Secret.reveal` raises.
    """
    if reveals and isinstance(value, Secret):
        value = value.reveal()
    if isinstance(value, bytes):
        return shown_key(value)
    try:
        if hasattr(value, "model_dump"):
            return value.model_dump(mode="json", context=REVEALED if reveals else None)
        return msgspec.to_builtins(value, enc_hook=_revealed if reveals else str, str_keys=True)
    except RecursionError as error:
        raise CorruptionError(problem="the record is nested too deeply to be shown") from error


def _revealed(value: object) -> Any:
    return value.reveal() if isinstance(value, Secret) else str(value)


def line_of_value(plain: Any) -> str:
    """A record's JSON values on one line: `name=value` each, nested ones in braces; what is not there is left out.

    What is nested deeper than LINE_NESTING_MAX is shown as `...`.
    """
    if isinstance(plain, dict):
        return "  ".join(_named_words(plain, LINE_NESTING_MAX))
    return _word(plain, LINE_NESTING_MAX)


def _named_words(plain: dict[str, Any], depth: int) -> list[str]:
    return [f"{name}={_word(value, depth)}" for name, value in plain.items() if value is not None]


def _word(value: Any, depth: int) -> str:
    match value:
        case dict():
            return "{" + " ".join(_named_words(value, depth - 1) if depth else ["..."]) + "}"
        case list():
            return "[" + " ".join([_word(part, depth - 1) for part in value] if depth else ["..."]) + "]"
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)
