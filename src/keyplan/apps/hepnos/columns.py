"""Raw keys of many runs, subruns and events at once, as columns of numbers: the layouts' keys, made by numpy.

`test_bulk.py` holds every form against the layouts. Placement, too, is found for many at once: the arithmetic of
`keyplan.ring` on arrays.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.errors import InvalidNumberError
from keyplan.apps.hepnos.layout import INVALID_NUMBER
from keyplan.ring import virtual_nodes

__all__ = ["EVENT_COLUMNS", "Columns", "checked_column", "key_matrix", "key_numbers", "places", "raw_keys"]

Columns = Sequence[npt.NDArray[np.uint64]]
"""One, two or three columns of numbers: run; run and subrun; run, subrun and event."""

EVENT_COLUMNS: Final = np.dtype([("run", "u8"), ("subrun", "u8"), ("event", "u8")])
"""What an array of events has in each row."""

_WORD: Final = 8
_FNV_OFFSET: Final = np.uint64(0xCBF29CE484222325)
_FNV_PRIME: Final = np.uint64(0x100000001B3)
_START: Final = 0xDEADBEEF + _WORD
_HALF: Final = np.uint64(0xFFFFFFFF)
_HALF_BITS: Final = np.uint64(32)


def checked_column(name: str, numbers: Any) -> npt.NDArray[np.uint64]:
    """Return numbers as a column. Raises InvalidNumberError unless they are whole numbers from 0 to 2**64 - 2."""
    # Why: to numpy what is masked has a number all the same.
    if np.ma.is_masked(numbers):
        raise InvalidNumberError(field=name, problem="a number is missing in some rows")
    try:
        column = _array(numbers)
    except ValueError as error:  # Why: what awkward and numpy raise for values that are missing, and lists in lists.
        raise InvalidNumberError(field=name, problem="a column has one number for each row") from error
    if column.ndim != 1:
        raise InvalidNumberError(field=name, problem=f"a column has one dimension, not {column.ndim}")
    if not column.size:
        return np.empty(0, np.uint64)
    if column.dtype.kind not in "iu":
        raise InvalidNumberError(field=name, problem=f"numbers are whole, not {column.dtype.name}")
    if column.dtype.kind == "i" and column.min() < 0:
        raise InvalidNumberError(field=name, problem="a number is less than 0")
    found = column.astype(np.uint64)
    if found.max() == INVALID_NUMBER:
        raise InvalidNumberError(field=name, problem="2**64 - 1 is the number of nothing")
    return found


def _array(numbers: Any) -> npt.NDArray[Any]:
    """Return numbers as numpy has them. Trap: of a list with 1 and 2**63 in it numpy makes floats."""
    column = np.asarray(numbers)
    if column.dtype.kind != "f" or isinstance(numbers, np.ndarray) or not isinstance(numbers, Sequence):
        return column
    is_whole = all(type(number) is int and 0 <= number <= INVALID_NUMBER for number in numbers)
    return np.array(numbers, np.uint64) if is_whole else column


def key_matrix(dataset: UUID, columns: Columns) -> npt.NDArray[np.uint64]:
    """Return the raw keys as rows of big-endian words: the UUID's two, then a number for each column."""
    matrix = np.empty((len(columns[0]), 2 + len(columns)), ">u8")
    matrix[:, 0] = int.from_bytes(dataset.bytes[:_WORD], "big")
    matrix[:, 1] = int.from_bytes(dataset.bytes[_WORD:], "big")
    for at, column in enumerate(columns):
        matrix[:, 2 + at] = column
    return matrix


def raw_keys(matrix: npt.NDArray[np.uint64]) -> list[bytes]:
    """Return the rows as raw keys."""
    size = matrix.shape[1] * matrix.itemsize
    # Why object: as fixed strings numpy would cut the zeros off their ends; void keeps them.
    keys: list[bytes] = np.ascontiguousarray(matrix).view(f"V{size}").ravel().tolist()
    return keys


def key_numbers(raw: bytes, names: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the numbers of raw keys that stand one after the other, in columns of these names."""
    words = np.frombuffer(raw, ">u8").reshape(-1, 2 + len(names.names or ()))
    found = np.empty(len(words), names)
    for at, name in enumerate(names.names or ()):
        found[name] = words[:, 2 + at]
    return found


# ---- placement ----------------------------------------------------------------------------------------------------------


def places(placed: npt.NDArray[np.uint64], databases: int) -> npt.NDArray[np.intp]:
    """Return the database of each row of big-endian words, the bytes that an object is placed by; as `keyplan.ring.place`."""
    if databases == 1:
        return np.zeros(len(placed), np.intp)
    digests = _fnv1a(np.ascontiguousarray(placed, ">u8").view(np.uint8).reshape(len(placed), -1))
    nearest = np.full(len(placed), np.iinfo(np.uint64).max, np.uint64)
    best = np.zeros(len(placed), np.intp)
    for at, (node, database) in enumerate(virtual_nodes(databases)):
        other = np.uint64(node)
        distance = _lookup3(np.minimum(digests, other), np.maximum(digests, other))
        is_nearer = distance < nearest if at else np.ones(len(placed), bool)
        nearest = np.where(is_nearer, distance, nearest)
        best[is_nearer] = database
    return best


def _fnv1a(octets: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    digests = np.full(len(octets), _FNV_OFFSET, np.uint64)
    for at in range(octets.shape[1]):
        digests = (digests ^ octets[:, at]) * _FNV_PRIME
    return digests


def _lookup3(value: npt.NDArray[np.uint64], seeds: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """As `keyplan.ring.lookup3`, the seeds being the low and the high half of a number."""
    start = np.uint32(_START & 0xFFFFFFFF)
    primary, secondary = _halves(seeds)
    low, high = _halves(value)
    a, b, c = start + primary + low, start + primary + high, start + primary + secondary
    c = (c ^ b) - _rotated(b, 14)
    a = (a ^ c) - _rotated(c, 11)
    b = (b ^ a) - _rotated(a, 25)
    c = (c ^ b) - _rotated(b, 16)
    a = (a ^ c) - _rotated(c, 4)
    b = (b ^ a) - _rotated(a, 14)
    c = (c ^ b) - _rotated(b, 24)
    return c.astype(np.uint64) | b.astype(np.uint64) << _HALF_BITS


def _halves(numbers: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    return (numbers & _HALF).astype(np.uint32), (numbers >> _HALF_BITS).astype(np.uint32)


def _rotated(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)
