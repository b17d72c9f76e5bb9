"""A sample of what streams by, the same in every order and in every run: the members with the least hashes."""

from collections.abc import Iterator
from hashlib import blake2b
from heapq import heappush, heapreplace
from typing import Final, Generic, TypeVar

__all__ = ["Sample"]

T = TypeVar("T")

_HASHES: Final = 1 << 64


class Sample(Generic[T]):
    """At most `size` members, each with what was kept beside it; and an estimate of how many different ones there were.

    Which members are kept is decided by their hashes alone, so that samples of two streams merge into that of both, and a
    member counts once however often it comes.
    """

    __slots__ = ("_heap", "_kept", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._heap: list[tuple[int, bytes]] = []  # Why: negative hashes, since heapq keeps the least in front.
        self._kept: dict[bytes, T] = {}

    def add(self, member: bytes, beside: T) -> None:
        """Offer a member; what comes beside it is kept with the first of equal ones."""
        if member in self._kept:
            return
        order = (-int.from_bytes(blake2b(member, digest_size=8).digest(), "big"), member)
        if len(self._heap) < self.size:
            heappush(self._heap, order)
        elif order > self._heap[0]:
            _, dropped = heapreplace(self._heap, order)
            del self._kept[dropped]
        else:
            return
        self._kept[member] = beside

    def merge(self, other: "Sample[T]") -> None:
        """Take in another sample."""
        for member, beside in other.items():
            self.add(member, beside)

    def distinct(self) -> int:
        """How many different members came: exact up to `size`, an estimate beyond it."""
        if len(self._heap) < self.size:
            return len(self._heap)
        return max(self.size, round((self.size - 1) * _HASHES / (1 - self._heap[0][0])))

    def __iter__(self) -> Iterator[bytes]:
        return iter(sorted(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    def items(self) -> list[tuple[bytes, T]]:
        """The members with what was kept beside them, in their own order."""
        return sorted(self._kept.items(), key=lambda item: item[0])
