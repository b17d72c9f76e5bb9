"""Prefixes: from a number to a prefix and back, the strict rules for one that is given (R4), and whose container a key is in.

Pure. Which prefix a new key space gets: allocation.py.
"""

from typing import ClassVar, Final

from keyplan.codec import PrefixVarint, Uvarint
from keyplan.engine import KeyRange
from keyplan.errors import InvalidArgumentError, InvalidKeyError, InvalidPrefixError
from keyplan.keyspace.layout import PREFIX_BYTES_MAX
from keyplan.keyspace.records import ORDERED, PREFIX_TEXT_BYTES_MAX, UVARINT

__all__ = [
    "LEGACY_PREFIX_BYTES_MAX",
    "PREFIX_CODECS",
    "SYSTEM_BYTE",
    "OrderedPrefixes",
    "PrefixCodec",
    "UvarintPrefixes",
    "bytes_of_hex",
    "prefix_codec",
    "prefix_range",
]

SYSTEM_BYTE: Final = b"\x00"
"""R1: everything that begins with it is the registry's."""

LEGACY_PREFIX_BYTES_MAX: Final = PREFIX_TEXT_BYTES_MAX
"""A legacy prefix may be as long as any in the registry's keys."""


def prefix_range(prefix: bytes) -> KeyRange:
    """Return the keys of a key space with this prefix: up to the prefix's successor (R3)."""
    return KeyRange.of_prefix(prefix)


def bytes_of_hex(text: str, *, argument: str = "prefix") -> bytes:
    """Return the bytes that hex digits of either case spell. Raises InvalidPrefixError with the reason not_hex."""
    try:
        if not text.isalnum() and text:
            raise ValueError  # Why: fromhex takes spaces.
        return bytes.fromhex(text)
    except ValueError:
        if argument == "prefix":
            raise InvalidPrefixError(prefix=text, reason="not_hex") from None
        raise InvalidArgumentError(argument=argument, problem="it is not spelled in hex digits") from None


class PrefixCodec:
    """Numbers from 1 as prefixes, none of which is the beginning of another. `numbers_of(n)` of them have n bytes or fewer."""

    name: ClassVar[str]
    _element: Uvarint | PrefixVarint

    def __init__(self, element: Uvarint | PrefixVarint) -> None:
        self._element = element

    def encode(self, number: int) -> bytes:
        """Return the prefix of a number from 1. Raises InvalidKeyError beyond four bytes."""
        return self._element.encode(number)

    def number_of(self, prefix: bytes) -> int | None:
        """Return the number whose prefix this is; None when it is not exactly one."""
        try:
            return self._element.decode(prefix)
        except InvalidKeyError:
            return None

    @staticmethod
    def last_number(bytes_max: int) -> int:
        """Return the highest number whose prefix has at most so many bytes: 127, 16383, 2097151, 268435455."""
        return (1 << 7 * bytes_max) - 1

    def codeword_of(self, key: bytes) -> bytes | None:
        """Return the prefix that the key begins with; None when it begins with none."""
        for size in range(1, min(len(key), PREFIX_BYTES_MAX) + 1):
            if self.number_of(key[:size]) is not None:
                return key[:size]
        return None

    def checked(self, prefix: bytes, *, bytes_max: int = PREFIX_BYTES_MAX) -> int:
        """Return the number of a prefix that was given. Raises InvalidPrefixError with the reason (R4)."""
        reason = self._problem(prefix, bytes_max)
        number = None if reason else self.number_of(prefix)
        if number is None:
            raise InvalidPrefixError(prefix=prefix.hex(), reason=reason or "not_canonical")
        return number

    def _problem(self, prefix: bytes, bytes_max: int) -> str:
        if not prefix:
            return "empty"
        if prefix == SYSTEM_BYTE:
            return "reserved"
        return self._shape_problem(prefix) or ("too_long" if len(prefix) > bytes_max else "")

    def _shape_problem(self, prefix: bytes) -> str:
        raise NotImplementedError

    def container_of(self, prefix: bytes) -> bytes:
        """Return the codeword that a legacy prefix lies in (R6). Raises InvalidPrefixError: empty, reserved, unterminated."""
        reason = "empty" if not prefix else "reserved" if prefix[:1] == SYSTEM_BYTE else ""
        reason = reason or ("too_long" if len(prefix) > LEGACY_PREFIX_BYTES_MAX else "")
        container = None if reason else self.codeword_of(prefix)
        if container is None:
            raise InvalidPrefixError(prefix=prefix.hex(), reason=reason or "unterminated")
        return container


class UvarintPrefixes(PrefixCodec):
    """The RFC's code: unsigned LEB128. 01 to 7f, 80 01, 81 01, ... (KS-40)."""

    name = UVARINT

    def __init__(self) -> None:
        super().__init__(Uvarint(least=1, bytes_max=PREFIX_BYTES_MAX))

    def _shape_problem(self, prefix: bytes) -> str:
        size = next((place for place, byte in enumerate(prefix, start=1) if byte < 0x80), 0)
        if not size:
            return "unterminated"
        if size < len(prefix):
            return "trailing_bytes"
        return "not_canonical" if prefix[-1] == 0 else ""


class OrderedPrefixes(PrefixCodec):
    """A code that sorts as its numbers do: leading one bits tell how many bytes follow. 01 to 7f, 80 80, 80 81, ... (1.3)."""

    name = ORDERED

    def __init__(self) -> None:
        super().__init__(PrefixVarint(least=1, bytes_max=PREFIX_BYTES_MAX))

    def _shape_problem(self, prefix: bytes) -> str:
        size = _leading_ones(prefix[0]) + 1
        if size > len(prefix):
            return "unterminated"
        if size < len(prefix):
            return "trailing_bytes"
        return "not_canonical" if size <= PREFIX_BYTES_MAX and self.number_of(prefix) is None else ""


def _leading_ones(byte: int) -> int:
    return next((ones for ones in range(8) if not byte << ones & 0x80), 8)


PREFIX_CODECS: Final = (UvarintPrefixes.name, OrderedPrefixes.name)


def prefix_codec(name: str) -> PrefixCodec:
    """Return the code of that name: uvarint or ordered. Raises InvalidArgumentError."""
    if name == UvarintPrefixes.name:
        return UvarintPrefixes()
    if name == OrderedPrefixes.name:
        return OrderedPrefixes()
    raise InvalidArgumentError(
        argument="prefix_codec", problem=f"it is one of {', '.join(PREFIX_CODECS)}, not {name!r}"
    )
