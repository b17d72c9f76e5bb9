"""Numbers in keys: fixed-width big-endian integers and floats that sort as they count, and plain decimal text."""

import math
import struct
from typing import ClassVar, Final

from keyplan.codec.element import Element, FastStruct, FastText, Parameter, register_element
from keyplan.codec.language import Choice, Language
from keyplan.codec.parameters import whole_parameter
from keyplan.codec.ranges import one_of, strings_between

__all__ = ["F64", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "Decimal"]

_STRUCT_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}

DECIMAL_MOST_DEFAULT: Final = 2**64 - 1
"""Why: an unpadded number without a declared bound still has a longest spelling (20 digits), so that key lengths are known."""

DECIMAL_DIGITS_MAX: Final = 40
"""Why: numbers of 128 bits have 39; the language of a bounded number nests once a digit, and hundreds end Python's stack."""


class _FixedInteger(Element[int]):
    """An integer from `least` to `most`, stored as `value - least` in `size` big-endian bytes: they sort as numbers.

    `most` is the greatest that fits unless a smaller one is given, e.g. to keep the greatest number free as a mark.
    """

    size: ClassVar[int]
    least: ClassVar[int]

    def __init__(self, *, most: int | None = None) -> None:
        self._most_default = self.least + (1 << 8 * self.size) - 1
        self.most = (
            self._most_default
            if most is None
            else whole_parameter(self.code, "most", most, least=self.least, most=self._most_default)
        )

    @property
    def value_type(self) -> type:
        return int

    @property
    def language(self) -> Language:
        greatest = (self.most - self.least).to_bytes(self.size, "big")
        return strings_between(bytes(self.size), greatest)

    def encode(self, value: int) -> bytes:
        checked = checked_integer(self, value, least=self.least, most=self.most)
        return (checked - self.least).to_bytes(self.size, "big")

    def decode(self, raw: bytes) -> int:
        if len(raw) != self.size:
            self.refuse(raw, "wrong number of bytes", bytes_expected=self.size, bytes_found=len(raw))
        value = int.from_bytes(raw, "big") + self.least
        if value > self.most:
            self.refuse(raw, "the number is out of range", least=self.least, most=self.most)
        return value

    def parameters(self) -> dict[str, Parameter]:
        return {} if self.most == self._most_default else {"most": self.most}

    def fast_struct(self) -> FastStruct | None:
        offset = f" - {-self.least}" if self.least else ""
        is_bounded = self.most < self._most_default
        return FastStruct(
            code=_STRUCT_CODES[self.size],
            check="{v}.__class__ is int" + (f" and {{v}} <= {self.most}" if is_bounded else ""),
            pack="{v}" + offset.replace("-", "+", 1),
            parse="{raw}" + offset,
            names={},
            member=f"{{raw}} <= {self.most - self.least}" if is_bounded else "",
        )


@register_element
class U8(_FixedInteger):
    """An unsigned integer in one byte."""

    code, size, least = "u8", 1, 0


@register_element
class U16(_FixedInteger):
    """An unsigned integer in two big-endian bytes."""

    code, size, least = "u16", 2, 0


@register_element
class U32(_FixedInteger):
    """An unsigned integer in four big-endian bytes."""

    code, size, least = "u32", 4, 0


@register_element
class U64(_FixedInteger):
    """An unsigned integer in eight big-endian bytes."""

    code, size, least = "u64", 8, 0


@register_element
class I8(_FixedInteger):
    """A signed integer in one byte, offset by 2^7 so that negative numbers sort first."""

    code, size, least = "i8", 1, -(2**7)


@register_element
class I16(_FixedInteger):
    """A signed integer in two big-endian bytes, offset by 2^15."""

    code, size, least = "i16", 2, -(2**15)


@register_element
class I32(_FixedInteger):
    """A signed integer in four big-endian bytes, offset by 2^31."""

    code, size, least = "i32", 4, -(2**31)


@register_element
class I64(_FixedInteger):
    """A signed integer in eight big-endian bytes, offset by 2^63."""

    code, size, least = "i64", 8, -(2**63)


_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1
_NEGATIVE_ZERO: Final = bytes.fromhex("7fffffffffffffff")


@register_element
class F64(Element[float]):
    """A float (IEEE 754 binary64) that sorts as it counts: the sign bit of positive numbers set, negative ones inverted.

    -0.0 is stored as 0.0: the two are equal, and one value has one spelling. NaN equals nothing and is refused. Integers are
    refused too: not every one is a float.
    """

    code = "f64"

    @property
    def value_type(self) -> type:
        return float

    @property
    def language(self) -> Language:
        infinity = bytes.fromhex("fff0000000000000")
        below_zero = strings_between(bytes(b ^ 0xFF for b in infinity), bytes.fromhex("7ffffffffffffffe"))
        return Choice((below_zero, strings_between(bytes.fromhex("8000000000000000"), infinity)))

    def encode(self, value: float) -> bytes:
        if not isinstance(value, float):
            self.refuse(value, "not a float", type_found=type(value).__name__)
        if math.isnan(value):
            self.refuse(value, "NaN has no place in an order")
        # Why: adding 0.0 turns -0.0 into 0.0 and leaves every other number as it is.
        return ordered_float_bytes(struct.pack(">d", value + 0.0))

    def decode(self, raw: bytes) -> float:
        if len(raw) != 8:
            self.refuse(raw, "wrong number of bytes", bytes_expected=8, bytes_found=len(raw))
        value: float = struct.unpack(">d", plain_float_bytes(raw))[0]
        if math.isnan(value) or raw == _NEGATIVE_ZERO:
            self.refuse(raw, "the bytes of NaN or -0.0, which no key holds")
        return value


def ordered_float_bytes(plain: bytes) -> bytes:
    """Big-endian IEEE bytes of any width, changed so that they sort as the numbers do."""
    if plain[0] & 0x80:
        return bytes(byte ^ 0xFF for byte in plain)
    return bytes([plain[0] ^ 0x80]) + plain[1:]


def plain_float_bytes(ordered: bytes) -> bytes:
    """The reverse of `ordered_float_bytes`."""
    if ordered[0] & 0x80:
        return bytes([ordered[0] ^ 0x80]) + ordered[1:]
    return bytes(byte ^ 0xFF for byte in ordered)


@register_element
class Decimal(Element[int]):
    """A non-negative integer in decimal digits, without sign.

    Without `width` it has no leading zeros and does not sort as it counts ("10" before "9"); with `width` it is padded with
    zeros to exactly that many digits and sorts. No number has more than 40 digits. `least` and `most` bound it; `most` is
    10^width - 1 when only a width is given and 2^64 - 1 when neither is.
    """

    code = "decimal"

    def __init__(self, *, least: int = 0, most: int | None = None, width: int | None = None) -> None:
        self.least = whole_parameter(self.code, "least", least, least=0)
        self.digits = (
            None if width is None else whole_parameter(self.code, "width", width, least=1, most=DECIMAL_DIGITS_MAX)
        )
        most_possible = 10**DECIMAL_DIGITS_MAX - 1 if self.digits is None else 10**self.digits - 1
        most_default = DECIMAL_MOST_DEFAULT if self.digits is None else most_possible
        self.most = (
            max(most_default, self.least)
            if most is None
            else whole_parameter(self.code, "most", most, least=self.least, most=most_possible)
        )
        whole_parameter(self.code, "least", least, least=0, most=most_possible)
        self._is_most_default = self.most == most_default
        if self.digits is None and len(str(self.least)) != len(str(self.most)):
            self.is_ordered = False  # type: ignore[misc]  # Why: whether decimals sort depends on the declared range.
            self.disorder = "numbers of different lengths: 10 sorts before 9"  # type: ignore[misc]  # Why: as above.

    @property
    def value_type(self) -> type:
        return int

    @property
    def language(self) -> Language:
        if self.digits is not None:
            return _digits_between(str(self.least).zfill(self.digits), str(self.most).zfill(self.digits))
        shortest, longest = len(str(self.least)), len(str(self.most))
        return one_of(
            [
                _digits_between(
                    str(max(self.least, 0 if length == 1 else 10 ** (length - 1))), str(min(self.most, 10**length - 1))
                )
                for length in range(shortest, longest + 1)
            ]
        )

    def encode(self, value: int) -> bytes:
        checked = checked_integer(self, value, least=self.least, most=self.most)
        return str(checked).zfill(self.digits or 0).encode()

    def decode(self, raw: bytes) -> int:
        if not raw.isdigit() or len(raw) > DECIMAL_DIGITS_MAX:
            self.refuse(raw, "not a decimal number")
        value = int(raw)
        if raw != str(value).zfill(self.digits or 0).encode():
            self.refuse(
                raw, "not padded to the declared width" if self.digits else "leading zeros", digits_expected=self.digits
            )
        if not self.least <= value <= self.most:
            self.refuse(raw, "the number is out of range", least=self.least, most=self.most)
        return value

    def parameters(self) -> dict[str, Parameter]:
        parameters: dict[str, Parameter] = {}
        if self.least:
            parameters["least"] = self.least
        if not self._is_most_default:
            parameters["most"] = self.most
        if self.digits is not None:
            parameters["width"] = self.digits
        return parameters

    def fast_text(self) -> FastText | None:
        return FastText(
            check=f"{{v}}.__class__ is int and {self.least} <= {{v}} <= {self.most}",
            format="{v}" if self.digits is None else f"{{v}}:0{self.digits}d",
            parse="int({raw})",
            names={},
        )


def checked_integer(element: Element[int], value: object, *, least: int, most: int) -> int:
    """Return `value` as an int when it is one in range. Refuses bool: True is not the number 1 in a key."""
    if not isinstance(value, int) or isinstance(value, bool):
        element.refuse(value, "not an integer", type_found=type(value).__name__)
    if not least <= value <= most:
        element.refuse(value, "the number is out of range", least=least, most=most)
    return int(value)


def _digits_between(low: str, high: str) -> Language:
    return strings_between(low.encode(), high.encode(), first=0x30, last=0x39)
