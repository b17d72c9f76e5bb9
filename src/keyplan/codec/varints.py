"""Unsigned integers of 1 to 10 bytes: small numbers in short keys. Only the shortest spelling of a number decodes.

uvarint        7 bits a byte, lowest first, the top bit set on all but the last (LEB128)    300 = ac 02
prefix_varint  as many leading one bits as bytes follow, then the number, highest first     300 = 81 2c
"""

from typing import Final

from keyplan.codec.element import Element, register_element
from keyplan.codec.language import Bytes, Language, Repeat, Series, byte_class, literal
from keyplan.codec.numbers import checked_integer
from keyplan.codec.ranges import one_of, strings_between

__all__ = ["PrefixVarint", "Uvarint"]

_MOST: Final = 2**64 - 1
_UVARINT_BYTES_MAX: Final = 10


@register_element
class Uvarint(Element[int]):
    """A number below 2^64 in canonical unsigned LEB128. No spelling is the start of another."""

    code = "uvarint"
    is_ordered = False
    disorder = "numbers from 128 on: 256 (80 02) before 129 (81 01)"

    @property
    def value_type(self) -> type:
        return int

    @property
    def language(self) -> Language:
        more, last = Bytes(byte_class(range(0x80, 0x100))), Bytes(byte_class(range(0x01, 0x80)))
        return one_of(
            [
                Bytes(byte_class(range(0x80))),
                Series((Repeat(more, 1, _UVARINT_BYTES_MAX - 2), last)),
                Series((Repeat(more, _UVARINT_BYTES_MAX - 1, _UVARINT_BYTES_MAX - 1), literal(b"\x01"))),
            ]
        )

    def encode(self, value: int) -> bytes:
        rest = checked_integer(self, value, least=0, most=_MOST)
        raw = bytearray()
        while rest >= 0x80:
            raw.append(rest & 0x7F | 0x80)
            rest >>= 7
        raw.append(rest)
        return bytes(raw)

    def decode(self, raw: bytes) -> int:
        if not 1 <= len(raw) <= _UVARINT_BYTES_MAX:
            self.refuse(raw, "wrong number of bytes", bytes_max=_UVARINT_BYTES_MAX, bytes_found=len(raw))
        value = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(raw))
        if value > _MOST or self.encode(value) != raw:
            self.refuse(raw, "not the shortest spelling of one number")
        return value


@register_element
class PrefixVarint(Element[int]):
    """A number below 2^64 whose first byte tells the length, so that bytes sort as numbers."""

    code = "prefix_varint"

    @property
    def value_type(self) -> type:
        return int

    @property
    def language(self) -> Language:
        firsts = [0, *(1 << 7 * extra for extra in range(1, 9))]
        lasts = [*(first - 1 for first in firsts[1:]), _MOST]
        return one_of(
            [strings_between(self.encode(first), self.encode(last)) for first, last in zip(firsts, lasts, strict=True)]
        )

    def encode(self, value: int) -> bytes:
        number = checked_integer(self, value, least=0, most=_MOST)
        # Why: each byte that follows gives 7 bits more, save the eighth, which gives 8: no zero bit ends the ones then.
        extra = 8 if number >> 56 else max(0, (number.bit_length() - 1) // 7)
        return (_ones(extra) << 8 * extra | number).to_bytes(extra + 1, "big")

    def decode(self, raw: bytes) -> int:
        extra = len(raw) - 1
        if not 0 <= extra <= 8:
            self.refuse(raw, "wrong number of bytes", bytes_max=9, bytes_found=len(raw))
        value = int.from_bytes(raw, "big") - (_ones(extra) << 8 * extra)
        if not 0 <= value <= _MOST or self.encode(value) != raw:
            self.refuse(raw, "not the shortest spelling of one number")
        return value


def _ones(count: int) -> int:
    """A byte with its `count` highest bits set."""
    return 0xFF00 >> count & 0xFF
