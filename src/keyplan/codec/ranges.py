"""The language of all strings of one length between two bounds, byte by byte: exact numeric ranges of fixed-width spellings."""

from keyplan.codec.language import Bytes, Choice, Language, Repeat, Series, byte_class, literal

__all__ = ["one_of", "strings_between"]


def strings_between(low: bytes, high: bytes, *, first: int = 0x00, last: int = 0xFF) -> Language:
    """Return the language of the strings from `low` to `high` inclusive, in byte order.

    Both have the same length, and every byte stands in `first`..`last`, the alphabet (0x30..0x39 for decimal digits).
    """
    length = len(low)
    if low == high:
        return literal(low)
    if low == bytes([first]) * length and high == bytes([last]) * length:
        return Repeat(Bytes(byte_class(range(first, last + 1))), length, length)
    if low[0] == high[0]:
        return literal(low[:1]) + strings_between(low[1:], high[1:], first=first, last=last)
    options: list[Language] = []
    lowest, highest = bytes([first]) * (length - 1), bytes([last]) * (length - 1)
    middle_first, middle_last = low[0], high[0]
    if low[1:] != lowest:
        options.append(literal(low[:1]) + strings_between(low[1:], highest, first=first, last=last))
        middle_first += 1
    if high[1:] != highest:
        options.append(literal(high[:1]) + strings_between(lowest, high[1:], first=first, last=last))
        middle_last -= 1
    if middle_first <= middle_last:
        rest = Repeat(Bytes(byte_class(range(first, last + 1))), length - 1, length - 1)
        leading = Bytes(byte_class(range(middle_first, middle_last + 1)))
        options.append(leading if length == 1 else Series((leading, rest)))
    return one_of(options)


def one_of(options: list[Language]) -> Language:
    """Return the choice of `options`, or the only one."""
    return options[0] if len(options) == 1 else Choice(tuple(options))
