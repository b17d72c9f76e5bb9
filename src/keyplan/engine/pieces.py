"""Reading values in pieces that are bounded by bytes: one value may have as many as all others together."""

from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["values_within"]

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
