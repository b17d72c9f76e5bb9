"""Reading values in pieces that are bounded by bytes: one value may have as many as all others together."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

__all__ = ["PIECE_BYTES", "PIECE_PAIRS_MAX", "columns_of", "take_piece", "values_within"]

PIECE_PAIRS_MAX: Final = 256
PIECE_BYTES: Final = 256 << 10
"""Why so little: a processor's cache has a piece while something is done with all of it."""

_VALUES_FIRST: Final = 4
_VALUES_MAX: Final = 128
"""Why no more: across a network as many are one call, and all of them may be large."""


def values_within(
    values: Callable[[Sequence[bytes]], list[bytes | None]], keys: Sequence[bytes], bytes_max: int
) -> list[bytes | None]:
    """Return what `Snapshot.values_within` does, by `values`: of few keys first, then of up to 128 at once.

    The last of those calls may bring more than it was to: all that it asks for.
    """
    found: list[bytes | None] = []
    number = _VALUES_FIRST
    while len(found) < len(keys) and bytes_max >= 0:
        for value in values(keys[len(found) : len(found) + number]):
            found.append(value)
            bytes_max -= 0 if value is None else len(value)
        number = min(2 * number, _VALUES_MAX)
    return found


def columns_of(pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield what `Snapshot.columns` does, by `pairs`."""
    while piece := take_piece(pairs, PIECE_PAIRS_MAX):
        yield [key for key, _ in piece], [value for _, value in piece]


def take_piece(pairs: Iterator[tuple[bytes, bytes]], number: int) -> list[tuple[bytes, bytes]]:
    """Return the next pairs: at most so many, and none behind that with which their values have over PIECE_BYTES."""
    found: list[tuple[bytes, bytes]] = []
    left = PIECE_BYTES
    for pair in islice(pairs, number):
        found.append(pair)
        left -= len(pair[1])
        if left < 0:
            break
    return found
