"""Many byte strings as one body: how keys and values go between a HEPnOS server and those that use it.

A body has one or more columns, one after the other. A column is a u32 count, then a u32 length for each, then their bytes, all
little-endian; the length ffffffff is that of nothing, of a product that is not there for one.
"""

from collections.abc import Sequence
from itertools import chain, pairwise
from struct import Struct
from struct import pack as pack_numbers
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from keyplan.errors import InvalidInputError

__all__ = ["FINGERPRINT_BYTES", "PACKED", "JoinedColumn", "pack", "pack_in_pieces", "unpack", "whole"]

PACKED: Final = "application/vnd.keyplan.packed"
"""The media type of such a body."""

FINGERPRINT_BYTES: Final = 8
"""Of a value that was read, big-endian, where a commit relies on it."""

_NOTHING: Final = 0xFFFFFFFF
_WORD: Final = 4
_ONE: Final = Struct("<II")
"""A column of one string, before it."""


class JoinedColumn:
    """The strings of a column, joined as they are read. Why: a processor's cache has them then, and need not hold them all."""

    __slots__ = ("_joined", "_lengths", "count", "size")

    def __init__(self) -> None:
        self._lengths: list[bytes] = []
        self._joined: list[bytes] = []
        self.count = 0
        self.size = 0
        """How many bytes the strings have."""

    def add(self, strings: Sequence[bytes]) -> None:
        """Join some more strings to it."""
        self._lengths.append(_lengths(strings))
        joined = b"".join(strings)
        self._joined.append(joined)
        self.count += len(strings)
        self.size += len(joined)

    @property
    def pieces(self) -> list[bytes]:
        """The column, in few pieces."""
        return [b"".join([self.count.to_bytes(_WORD, "little"), *self._lengths]), *self._joined]


def pack(*columns: Sequence[bytes | None] | JoinedColumn) -> bytes:
    """Return the columns as one body."""
    first = columns[0]
    if len(columns) == 1 and not isinstance(first, JoinedColumn) and len(first) == 1:
        # Why apart: a product that is loaded alone is most of what is asked, and arrays take longer than the read.
        only = first[0]
        return _ONE.pack(1, _NOTHING) if only is None else _ONE.pack(1, len(only)) + only
    return b"".join(chain.from_iterable(map(_pieces, columns)))


def pack_in_pieces(*columns: Sequence[bytes | None] | JoinedColumn) -> list[bytes]:
    """Return the columns as one body in few pieces. Why: one copy less of values that are joined."""
    joined = (column.pieces if isinstance(column, JoinedColumn) else [pack(column)] for column in columns)
    return list(chain.from_iterable(joined))


def _pieces(column: Sequence[bytes | None] | JoinedColumn) -> list[bytes]:
    if isinstance(column, JoinedColumn):
        return column.pieces
    count = len(column).to_bytes(_WORD, "little")
    try:
        return [count, _lengths(column), *column]  # type: ignore[arg-type,list-item] # a None ends in TypeError
    except TypeError:
        lengths = (_NOTHING if each is None else len(each) for each in column)
        found = [each for each in column if each is not None]
        return [count, np.fromiter(lengths, "<u4", len(column)).tobytes(), *found]


def _lengths(strings: Sequence[bytes]) -> bytes:
    # Why no array: numpy takes numbers of Python's own one by one, in twice the time.
    return pack_numbers(f"<{len(strings)}I", *map(len, strings))


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
