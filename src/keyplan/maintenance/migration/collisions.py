"""Records that would get one key, or one unique entry, told from one another before anything is written."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from keyplan.maintenance.migration.functions import Converted
from keyplan.maintenance.migration.route import Route

__all__ = ["Claims", "Collision"]

_KEYS_COMPARED: Final = 1 << 20
"""Why: so many keys' digests are held in memory at once, some 100 MB, and in further passes those of the first one beside them.

A larger table is gone through several times.
"""


class Collision(NamedTuple):
    """Two that claim a key, the first one first: units the key of a record, or records the unique entry of `index_name`."""

    raw_key: bytes
    first: bytes
    second: bytes
    index_name: str = ""


class Claims:
    """Who claims which key: two that claim one are told from one another, in as many passes as memory takes, each time once."""

    def __init__(self) -> None:
        self._first: dict[bytes, bytes] = {}
        self._told: frozenset[bytes] = frozenset()
        self._count = 0
        self._slice: tuple[int, int] | None = None

    def other(self, raw_key: bytes, claimant: bytes) -> bytes | None:
        """Note a claim; return who has claimed the key before, in this pass."""
        digest = _digest_of(raw_key)
        if self._slice is None:
            self._count += 1
            if digest not in self._first and len(self._first) >= _KEYS_COMPARED:
                return None
        elif digest[0] * self._slice[1] >> 8 != self._slice[0] or digest in self._told:
            return None
        before = self._first.setdefault(digest, claimant)
        return None if before == claimant else before

    def collisions(self, route: Route, unit: bytes, made: Sequence[Converted]) -> Iterator[Collision]:
        """Note what a unit's new records claim, and yield what another unit, or another of its records, has claimed before."""
        for one in made:
            if route.keeps_origins and (other := self.other(one.raw_key, unit)) is not None:
                yield Collision(one.raw_key, other, unit)
            for raw_key, index_entry in one.index_entries.items():
                # Why the record, and not its unit: two that are made of one unit can claim one entry.
                if index_entry.source.spec.is_unique and (other := self.other(raw_key, one.raw_key)) is not None:
                    yield Collision(raw_key, other, one.raw_key, index_entry.source.name)

    def further_passes(self) -> Iterator[None]:
        """Yield once for each pass that is needed, after one that noted all claims: each looks at a part of the keys."""
        passes = -(-self._count // _KEYS_COMPARED)
        if passes > 1:
            # Why: the first pass has told who else claims these.
            self._told = frozenset(self._first)
        for number in range(passes if passes > 1 else 0):
            self._first, self._slice = {}, (number, passes)
            yield


def _digest_of(raw_key: bytes) -> bytes:
    """What stands for a key in memory: two of ten million are alike with a chance below one in a million millions."""
    return hashlib.sha256(raw_key).digest()[:16]
