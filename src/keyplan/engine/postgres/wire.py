"""Parameters and rows in PostgreSQL's binary forms, as its documentation of messages and of COPY gives them. All big-endian."""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

__all__ = ["bytes_array", "copied_entries", "number", "number_array", "seconds"]

_ARRAY: Final = Struct(">iiIii")
_BYTES_TYPE: Final = 17
_NUMBER_TYPE: Final = 20
_LENGTH: Final = Struct(">i")
_NUMBER: Final = Struct(">q")
_NUMBER_MAX: Final = (1 << 63) - 1
_FLOAT: Final = Struct(">d")
_COPY_BEGIN: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_COPY_END: Final = b"\xff\xff"
_COPY_ROW: Final = Struct(">hi")
_COPY_REST: Final = Struct(">iqiqiqiq")
_COPY_PART_BYTES: Final = 1 << 18


def number(value: int) -> bytes:
    """Return an int8. What does not fit becomes the greatest, which no revision and no lease ever is."""
    return _NUMBER.pack(value if -_NUMBER_MAX <= value <= _NUMBER_MAX else _NUMBER_MAX)


def seconds(value: float) -> bytes:
    """Return a float8."""
    return _FLOAT.pack(value)


def bytes_array(values: Sequence[bytes]) -> bytes:
    """Return a bytea[]."""
    pack = _LENGTH.pack
    return _array(_BYTES_TYPE, len(values), b"".join([part for value in values for part in (pack(len(value)), value)]))


def number_array(values: Sequence[int]) -> bytes:
    """Return an int8[]."""
    length = _LENGTH.pack(8)
    return _array(_NUMBER_TYPE, len(values), b"".join([length + number(value) for value in values]))


def _array(kind: int, count: int, body: bytes) -> bytes:
    """Put an array's head before its body: dimensions, no NULLs, the type, and the dimension's size and first index."""
    return _ARRAY.pack(1, 0, kind, count, 1) + body if count else _ARRAY.pack(0, 0, kind, 0, 0)[:12]


def copied_entries(pairs: Iterable[tuple[bytes, bytes]], revision: int) -> Iterator[bytes]:
    """Yield, for COPY, new entries: key, value, create revision, mod revision, version 1, no lease."""
    row, length = _COPY_ROW.pack, _LENGTH.pack
    rest = _COPY_REST.pack(8, revision, 8, revision, 8, 1, 8, 0)
    parts: list[bytes] = [_COPY_BEGIN]
    size = 0
    for key, value in pairs:
        parts += (row(6, len(key)), key, length(len(value)), value, rest)
        size += len(key) + len(value)
        if size > _COPY_PART_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join([*parts, _COPY_END])
