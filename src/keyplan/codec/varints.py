"""Unsigned integers of 1 to 10 bytes: small numbers in short keys. Only the shortest spelling of a number decodes.

uvarint        7 bits a byte, lowest first, the top bit set on all but the last (LEB128)    300 = ac 02
prefix_varint  as many leading one bits as bytes follow, then the number, highest first     300 = 81 2c

Both take `least` 0 or 1 (the byte 00 may be kept for something else) and `bytes_max`.
"""

from typing import ClassVar, Final

from keyplan.codec.element import Element, Parameter, register_element
from keyplan.codec.language import Bytes, Language, Repeat, Series, byte_class, literal
from keyplan.codec.numbers import checked_integer
from keyplan.codec.parameters import whole_parameter
from keyplan.codec.ranges import one_of, strings_between

__all__ = ["PrefixVarint", "Uvarint"]

_MOST: Final = 2**64 - 1
_UVARINT_BYTES_MAX: Final = 10
_PREFIX_VARINT_BYTES_MAX: Final = 9


class _Varint(Element[int]):
    """What the two codecs share: their parameters, and the range that these leave."""

    _BYTES_MAX: ClassVar[int]

    def __init__(self, *, least: int = 0, bytes_max: int | None = None) -> None:
        longest = self._BYTES_MAX
        self.least = whole_parameter(self.code, "least", least, least=0, most=1)
        self._longest = (
            longest if bytes_max is None else whole_parameter(self.code, "bytes_max", bytes_max, least=1, most=longest)
        )
        self.most = min(_MOST, (1 << 7 * self._longest) - 1) if self._longest < longest else _MOST

    @property
    def value_type(self) -> type:
        return int

    def parameters(self) -> dict[str, Parameter]:
        declared: dict[str, Parameter] = {"least": self.least} if self.least else {}
        return declared | ({"bytes_max": self._longest} if self._longest < self._BYTES_MAX else {})

    def _checked(self, value: object) -> int:
        return checked_integer(self, value, least=self.least, most=self.most)


@register_element
class Uvarint(_Varint):
    """A number below 2^64 in canonical unsigned LEB128. No spelling is the start of another."""

    _BYTES_MAX = _UVARINT_BYTES_MAX

    code = "uvarint"
    is_ordered = False
    disorder = "numbers from 128 on: 256 (80 02) before 129 (81 01)"

    @property
    def language(self) -> Language:
        more, last = Bytes(byte_class(range(0x80, 0x100))), Bytes(byte_class(range(0x01, 0x80)))
        extra = self._BYTES_MAX - 1
        options: list[Language] = [Bytes(byte_class(range(self.least, 0x80)))]
        if self._longest > 1:
            options.append(Series((Repeat(more, 1, min(self._longest - 1, extra - 1)), last)))
        if self._longest > extra:
            options.append(Series((Repeat(more, extra, extra), literal(b"\x01"))))
        return one_of(options)

    def encode(self, value: int) -> bytes:
        rest = self._checked(value)
        raw = bytearray()
        while rest >= 0x80:
            raw.append(rest & 0x7F | 0x80)
            rest >>= 7
        raw.append(rest)
        return bytes(raw)

    def decode(self, raw: bytes) -> int:
        if not 1 <= len(raw) <= self._longest:
            self.refuse(raw, "wrong number of bytes", bytes_max=self._longest, bytes_found=len(raw))
        value = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(raw))
        if not self.least <= value <= self.most:
            self.refuse(raw, "the number is out of range", least=self.least, most=self.most)
        if self.encode(value) != raw:
            self.refuse(raw, "not the shortest spelling of one number")
        return value


@register_element
class PrefixVarint(_Varint):
    """A number below 2^64 whose first byte tells the length, so that bytes sort as numbers."""

    _BYTES_MAX = _PREFIX_VARINT_BYTES_MAX

    code = "prefix_varint"

    @property
    def language(self) -> Language:
        firsts = [self.least, *(1 << 7 * extra for extra in range(1, self._longest))]
        lasts = [*(first - 1 for first in firsts[1:]), self.most]
        return one_of(
            [strings_between(self.encode(first), self.encode(last)) for first, last in zip(firsts, lasts, strict=True)]
        )

    def encode(self, value: int) -> bytes:
        number = self._checked(value)
        # Why: each byte that follows gives 7 bits more, save the eighth, which gives 8: no zero bit ends the ones then.
        extra = 8 if number >> 56 else max(0, (number.bit_length() - 1) // 7)
        return (_ones(extra) << 8 * extra | number).to_bytes(extra + 1, "big")

    def decode(self, raw: bytes) -> int:
        extra = len(raw) - 1
        if not 0 <= extra < self._longest:
            self.refuse(raw, "wrong number of bytes", bytes_max=self._longest, bytes_found=len(raw))
        value = int.from_bytes(raw, "big") - (_ones(extra) << 8 * extra)
        if not self.least <= value <= self.most or self.encode(value) != raw:
            self.refuse(raw, "not the shortest spelling of one number")
        return value


def _ones(count: int) -> int:
    """A byte with its `count` highest bits set."""
    return 0xFF00 >> count & 0xFF
