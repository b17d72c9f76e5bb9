"""Where a small page of a long range can be read without the rest of it: etcd counts that for every page.

Up to 3.6, a server visits all keys up to the end of a range, whatever the limit: fifty of a hundred thousand cost as much as
counting them. So a page is asked for up to an early end first, where the keys that earlier pages brought say that enough lie
before it. Such a guess costs a small call when it is wrong, and never a key: what is missing is read up to the next end.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, TypeVar

from keyplan.engine.etcd.ranges import NO_END
from keyplan.engine.interface import KeyRange

__all__ = ["Crowds"]

K = TypeVar("K")
V = TypeVar("V")

_CROWDED: Final = 2_000
"""Keys in a range from which on an early end is worth a call. Why: counting these takes about as long as one."""
_SAMPLE_MIN: Final = 16
_STOPS_MAX: Final = 3
_REMEMBERED_MAX: Final = 1_024
"""Ranges that are remembered. Why: their ends come from clients."""


class Crowds:
    """What is known of crowded ranges. Safe for use by several threads: each entry is written at once."""

    def __init__(self) -> None:
        self._depths: dict[bytes, int] = {}  # by a range's end, the length of what neighbours in it have in common
        self._firsts: dict[tuple[bytes, bytes], bytes] = {}

    def stops(self, start: bytes, end: bytes) -> list[bytes]:
        """Return early ends of a range, each above the one before, all inside; none where nothing is known."""
        depth = self._depths.get(end, 0)
        near = start if len(start) >= depth else self._firsts.get((start, end), b"")
        found: list[bytes] = []
        for length in range(min(depth, len(near)), 0, -1):
            stop = KeyRange.of_prefix(near[:length]).end
            if stop is None or (end != NO_END and stop >= end) or len(found) == _STOPS_MAX:
                break
            if stop > (found[-1] if found else start):
                found.append(stop)
        return found

    def learn(self, start: bytes, end: bytes, keys: Sequence[bytes], count: int) -> None:
        """Note what the first page of a range brought, and how many keys there are in all of it."""
        if count <= _CROWDED:
            self._depths.pop(end, None)
        elif len(keys) >= _SAMPLE_MIN:
            middle = keys[len(keys) // 2]
            # Why the longer of both: one half may lie across the place where an early digit changes.
            depth = max(_common(keys[0], middle), _common(middle, keys[-1]))
            _remember(self._depths, end, depth)
            _remember(self._firsts, (start, end), keys[0])


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two keys begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _remember(known: dict[K, V], key: K, value: V) -> None:
    if len(known) >= _REMEMBERED_MAX and key not in known:
        known.clear()
    known[key] = value
