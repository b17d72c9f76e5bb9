"""Many byte strings as one body: how keys and values go between a HEPnOS server and those that use it.

A body has one or more columns, one after the other. A column is a u32 count, then a u32 length for each, then their bytes, all
little-endian; the length ffffffff is that of nothing, of a product that is not there for one.
"""

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from keyplan.errors import InvalidInputError

__all__ = ["FINGERPRINT_BYTES", "PACKED", "pack", "unpack", "whole"]

PACKED: Final = "application/vnd.keyplan.packed"
"""The media type of such a body."""

FINGERPRINT_BYTES: Final = 8
"""Of a value that was read, big-endian, where a commit relies on it."""

_NOTHING: Final = 0xFFFFFFFF
_WORD: Final = 4
_ONE: Final = Struct("<II")
"""A column of one string, before it."""


def pack(*columns: Sequence[bytes | None]) -> bytes:
    """Return the columns as one body."""
    if len(columns) == len(columns[0]) == 1:
        # Why apart: a product that is loaded alone is most of what is asked, and arrays take longer than the read.
        only = columns[0][0]
        return _ONE.pack(1, _NOTHING) if only is None else _ONE.pack(1, len(only)) + only
    parts: list[bytes] = []
    for column in columns:
        parts.append(len(column).to_bytes(_WORD, "little"))
        try:
            parts += [np.fromiter(map(len, column), "<u4", len(column)).tobytes(), *column]  # type: ignore[arg-type,list-item] # a None ends in TypeError
        except TypeError:
            lengths = (_NOTHING if each is None else len(each) for each in column)
            parts += [
                np.fromiter(lengths, "<u4", len(column)).tobytes(),
                *(each for each in column if each is not None),
            ]
    return b"".join(parts)


def unpack(body: bytes, columns: int) -> list[list[bytes | None]]:
    """Return the columns of a body. Raises InvalidInputError for what is none of so many columns."""
    if columns == 1 and len(body) >= _ONE.size:
        count, length = _ONE.unpack_from(body)  # Why apart: as in `pack`.
        if count == 1 and len(body) - _ONE.size == (0 if length == _NOTHING else length):
            return [[None if length == _NOTHING else body[_ONE.size :]]]
    found: list[list[bytes | None]] = []
    position = 0
    for _ in range(columns):
        begin = position + _WORD
        count = int.from_bytes(body[position:begin], "little")
        lengths_end = begin + _WORD * count
        if begin > len(body) or lengths_end > len(body):
            raise InvalidInputError(source="body", problem="it ends within a column")
        lengths = np.frombuffer(body, "<u4", count, begin)
        is_there = lengths != _NOTHING
        total = int(lengths[is_there].sum(dtype=np.uint64))
        position = lengths_end + total
        if position > len(body):
            raise InvalidInputError(source="body", problem="it ends within a column")
        found.append(_column(body, lengths_end, lengths, is_there))
    if position != len(body):
        raise InvalidInputError(source="body", problem="bytes are left over behind its columns")
    return found


def _column(body: bytes, begin: int, lengths: npt.NDArray[np.uint32], is_there: npt.NDArray[np.bool_]) -> list[Any]:
    if not len(lengths):
        return []
    width = int(lengths[0])
    # Why apart: keys of runs, subruns and events are of one width, and come by the million.
    if 0 < width != _NOTHING and bool((lengths == width).all()):
        found: list[Any] = np.frombuffer(body, f"V{width}", len(lengths), begin).tolist()
        return found
    ends = np.cumsum(np.where(is_there, lengths, 0), dtype=np.uint64) + np.uint64(begin)
    strings: list[Any] = [body[start:end] for start, end in pairwise([begin, *ends.tolist()])]
    if not is_there.all():
        for at in np.flatnonzero(~is_there).tolist():
            strings[at] = None
    return strings


def whole(column: Sequence[bytes | None]) -> list[bytes]:
    """Return a column that has nothing missing. Raises InvalidInputError."""
    if None in column:
        raise InvalidInputError(source="body", problem="a key or a value is missing")
    return column  # type: ignore[return-value] # Why: looked at just now.
