"""Well-formed UTF-8 as a language of bytes: no overlong spelling, no surrogate, nothing above U+10FFFF."""

from typing import Final

from keyplan.codec.language import Bytes, Choice, Language, Series, byte_class

__all__ = ["ASCII", "CONTROL", "MULTIBYTE", "PRINTABLE", "character"]

ASCII: Final = byte_class(range(0x80))
CONTROL: Final = byte_class(range(0x20), 0x7F)
PRINTABLE: Final = ASCII & ~CONTROL


def _spelled(*ranges: tuple[int, int]) -> Language:
    return Series(tuple(Bytes(byte_class(range(first, last + 1))) for first, last in ranges))


_TRAIL: Final = (0x80, 0xBF)

MULTIBYTE: Final[Language] = Choice(
    (
        _spelled((0xC2, 0xDF), _TRAIL),
        _spelled((0xE0, 0xE0), (0xA0, 0xBF), _TRAIL),
        _spelled((0xE1, 0xEC), _TRAIL, _TRAIL),
        _spelled((0xED, 0xED), (0x80, 0x9F), _TRAIL),
        _spelled((0xEE, 0xEF), _TRAIL, _TRAIL),
        _spelled((0xF0, 0xF0), (0x90, 0xBF), _TRAIL, _TRAIL),
        _spelled((0xF1, 0xF3), _TRAIL, _TRAIL, _TRAIL),
        _spelled((0xF4, 0xF4), (0x80, 0x8F), _TRAIL, _TRAIL),
    )
)
"""Every character above U+007F."""


def character(ascii_allowed: int) -> Language:
    """Return the language of one character: of the ASCII class `ascii_allowed`, or any above it."""
    return Choice((Bytes(ascii_allowed), MULTIBYTE))
