"""Bytes in binary keys: of a fixed width, self-terminating (alone or as text), and the tail that takes the rest of a key."""

import re
from typing import Final

from keyplan.codec.element import Element, FastStruct, Parameter, register_element
from keyplan.codec.language import ANY_BYTE, Bytes, Choice, Language, Repeat, Series, byte_class, literal
from keyplan.codec.limited import (
    checked_bytes,
    limit_parameters,
    limited,
    optional_limit,
    utf8_bytes,
    utf8_text,
    within_limit,
)
from keyplan.codec.parameters import flag_parameter, whole_parameter
from keyplan.codec.utf8 import ASCII, character

__all__ = ["EscapedBytes", "EscapedText", "FixedBytes", "Tail", "TextTail"]

FIXED_BYTES_MAX: Final = 4096
"""Why: no engine takes longer keys; a width beyond it is a slip."""

_ESCAPED: Final = byte_class(b"\x00\x01")
_ESCAPED_FORM: Final = re.compile(rb"(?:[^\x00\x01]|\x01[\x01\x02])*\x00")


@register_element
class FixedBytes(Element[bytes]):
    """Exactly `width` bytes, as they are."""

    code = "fixed"

    def __init__(self, *, width: int) -> None:
        self.size = whole_parameter(self.code, "width", width, least=1, most=FIXED_BYTES_MAX)

    @property
    def value_type(self) -> type:
        return bytes

    @property
    def language(self) -> Language:
        return Repeat(Bytes(ANY_BYTE), self.size, self.size)

    def encode(self, value: bytes) -> bytes:
        return self._checked(checked_bytes(self, value))

    def decode(self, raw: bytes) -> bytes:
        return self._checked(raw)

    def encode_start(self, value: bytes) -> bytes:
        start = checked_bytes(self, value)
        if len(start) > self.size:
            self.refuse(value, "longer than the element", bytes_expected=self.size, bytes_found=len(start))
        return start

    def parameters(self) -> dict[str, Parameter]:
        return {"width": self.size}

    def fast_struct(self) -> FastStruct | None:
        return FastStruct(
            code=f"{self.size}s",
            # Why: struct pads and cuts in silence, so the length is checked here.
            check=f"{{v}}.__class__ is bytes and len({{v}}) == {self.size}",
            pack="{v}",
            parse="{raw}",
            names={},
        )

    def _checked(self, raw: bytes) -> bytes:
        if len(raw) != self.size:
            self.refuse(raw, "wrong number of bytes", bytes_expected=self.size, bytes_found=len(raw))
        return raw


@register_element
class EscapedBytes(Element[bytes]):
    """Any bytes, ended by 00; inside, 00 is written 01 01 and 01 is written 01 02, so that order is kept.

    `bytes_max` bounds the encoded length, end included.
    """

    code = "escaped"

    def __init__(self, *, bytes_max: int | None = None) -> None:
        self._limit = optional_limit(self.code, bytes_max, least=1)

    @property
    def value_type(self) -> type:
        return bytes

    @property
    def language(self) -> Language:
        unit = Choice((Bytes(ANY_BYTE & ~_ESCAPED), _escape_pair()))
        return limited(Series((Repeat(unit), literal(b"\x00"))), self._limit)

    def encode(self, value: bytes) -> bytes:
        return within_limit(self, value, escaped(checked_bytes(self, value)) + b"\x00", self._limit)

    def decode(self, raw: bytes) -> bytes:
        return unescaped(self, raw, self._limit)

    def encode_start(self, value: bytes) -> bytes:
        return escaped(checked_bytes(self, value))

    def parameters(self) -> dict[str, Parameter]:
        return limit_parameters(self._limit)


@register_element
class EscapedText(Element[str]):
    """Any text in UTF-8, escaped and ended as `escaped` does.

    `bytes_max` bounds the encoded length, end included.
    """

    code = "escaped_text"

    def __init__(self, *, bytes_max: int | None = None) -> None:
        self._limit = optional_limit(self.code, bytes_max, least=1)

    @property
    def value_type(self) -> type:
        return str

    @property
    def language(self) -> Language:
        unit = Choice((character(ASCII & ~_ESCAPED), _escape_pair()))
        return limited(Series((Repeat(unit), literal(b"\x00"))), self._limit)

    def encode(self, value: str) -> bytes:
        return within_limit(self, value, escaped(utf8_bytes(self, value)) + b"\x00", self._limit)

    def decode(self, raw: bytes) -> str:
        return utf8_text(self, unescaped(self, raw, self._limit))

    def encode_start(self, value: str) -> bytes:
        return escaped(utf8_bytes(self, value))

    def parameters(self) -> dict[str, Parameter]:
        return limit_parameters(self._limit)


@register_element
class Tail(Element[bytes]):
    """The rest of the key as bytes; only the last element of a template can be one.

    `empty` allows no bytes at all; `bytes_max` bounds the length.
    """

    code = "tail"

    def __init__(self, *, empty: bool = False, bytes_max: int | None = None) -> None:
        self._is_empty_allowed = flag_parameter(self.code, "empty", empty)
        self._limit = optional_limit(self.code, bytes_max, least=1)

    @property
    def value_type(self) -> type:
        return bytes

    @property
    def language(self) -> Language:
        return limited(Repeat(Bytes(ANY_BYTE), 0 if self._is_empty_allowed else 1), self._limit)

    def encode(self, value: bytes) -> bytes:
        return self.decode(checked_bytes(self, value))

    def decode(self, raw: bytes) -> bytes:
        if not raw and not self._is_empty_allowed:
            self.refuse(raw, "empty")
        return within_limit(self, raw, raw, self._limit)

    def encode_start(self, value: bytes) -> bytes:
        return checked_bytes(self, value)

    def parameters(self) -> dict[str, Parameter]:
        return ({"empty": True} if self._is_empty_allowed else {}) | limit_parameters(self._limit)


@register_element
class TextTail(Element[str]):
    """The rest of the key as text in UTF-8, separators included; only the last element of a template can be one.

    `empty` allows no text at all; `bytes_max` bounds the length.
    """

    code = "text_tail"

    def __init__(self, *, empty: bool = False, bytes_max: int | None = None) -> None:
        self._is_empty_allowed = flag_parameter(self.code, "empty", empty)
        self._limit = optional_limit(self.code, bytes_max, least=1)

    @property
    def value_type(self) -> type:
        return str

    @property
    def language(self) -> Language:
        return limited(Repeat(character(ASCII), 0 if self._is_empty_allowed else 1), self._limit)

    def encode(self, value: str) -> bytes:
        return self._checked(utf8_bytes(self, value))

    def decode(self, raw: bytes) -> str:
        return utf8_text(self, self._checked(raw))

    def encode_start(self, value: str) -> bytes:
        return utf8_bytes(self, value)

    def parameters(self) -> dict[str, Parameter]:
        return ({"empty": True} if self._is_empty_allowed else {}) | limit_parameters(self._limit)

    def _checked(self, raw: bytes) -> bytes:
        if not raw and not self._is_empty_allowed:
            self.refuse(raw, "empty")
        return within_limit(self, raw, raw, self._limit)


def _escape_pair() -> Language:
    return Series((literal(b"\x01"), Bytes(byte_class(b"\x01\x02"))))


def escaped(plain: bytes) -> bytes:
    """`plain` without the bytes 00, in the same order: 01 becomes 01 02, and 00 becomes 01 01."""
    return plain.replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01")


def unescaped(element: Element[bytes] | Element[str], raw: bytes, limit: int | None) -> bytes:
    """The bytes that `raw`, escaped and ended by its only 00, stands for; anything else is refused."""
    if _ESCAPED_FORM.fullmatch(raw) is None:
        element.refuse(raw, "not escaped bytes that end at their only zero byte")
    within_limit(element, raw, raw, limit)
    return raw[:-1].replace(b"\x01\x01", b"\x00").replace(b"\x01\x02", b"\x01")
