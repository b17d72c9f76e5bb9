"""The quota of an open key space: a brake that costs next to nothing while there is room.

A handle may add its part of the room that the last count has left: what is free, divided by those who have the key space open.
Only when the part is used up it measures what a commit really adds, and counts again. So a quota may be overrun by what others
write between two counts; a write is not refused while there is room, unless others have filled it within the last second.
"""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final, NamedTuple

from keyplan.engine import Clock, DeleteRange, Engine, Mutation, Put
from keyplan.errors import KeyplanError, QuotaExceededError
from keyplan.keyspace.answers import Usage
from keyplan.keyspace.records import Quota

__all__ = ["QuotaBudget", "Size", "growth_of"]

_RECOUNT_SECONDS: Final = 1.0
"""Why: who writes to a full key space again and again must not make it be counted each time."""


class Size(NamedTuple):
    """Keys, and their bytes with those of their values."""

    keys: int
    bytes: int


def growth_of(engine: Engine, mutations: Sequence[Mutation]) -> Size:
    """Return what a commit adds, by reading what it replaces and removes; below zero when it removes more."""
    keys = total = 0
    with engine.snapshot() as snapshot:
        for mutation in mutations:
            if isinstance(mutation, DeleteRange):
                gone = list(snapshot.scan(mutation.range))
            else:
                entry = snapshot.get(mutation.key)
                gone = [] if entry is None else [entry]
            keys -= len(gone)
            total -= sum(len(entry.key) + len(entry.value) for entry in gone)
            if isinstance(mutation, Put):
                keys += 1
                total += len(mutation.key) + len(mutation.value)
    return Size(keys, total)


class QuotaBudget:
    """What one handle may still write before it must count.

    `engine` is the key space's share, `count` gives its usage and `writers` how many handles share the room.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        *,
        quota: Quota,
        count: Callable[[], Usage],
        writers: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._name = name
        self._count = count
        self._writers = writers
        self._clock = clock
        self._lock = Lock()
        self._counted_at: float | None = None
        self._quota = quota
        self._left = Size(0, 0)

    def change(self, quota: Quota) -> None:
        """Go by another quota from now on."""
        with self._lock:
            if quota != self._quota:
                self._quota, self._left, self._counted_at = quota, Size(0, 0), None

    def check(self, mutations: Sequence[Mutation]) -> None:
        """Take the size of a commit from the part. Raises QuotaExceededError; what adds nothing is always allowed."""
        keys = total = 0
        for mutation in mutations:
            if isinstance(mutation, Put):
                keys += 1
                total += len(mutation.key) + len(mutation.value)
        most = Size(keys, total)
        with self._lock:
            if self._excess(most, self._left) is None:
                self._take(most)
                return
            growth = growth_of(self._engine, mutations)
            if self._excess(growth, self._left) is not None:
                self._count_again(growth)
            self._take(growth)

    def _take(self, size: Size) -> None:
        self._left = Size(self._left.keys - max(size.keys, 0), self._left.bytes - max(size.bytes, 0))

    def _count_again(self, growth: Size) -> None:
        now = self._clock.monotonic()
        if self._counted_at is None or now - self._counted_at >= _RECOUNT_SECONDS:
            usage = self._count()
            self._counted_at = now
            quota = self._quota
            free = Size(
                growth.keys if quota.keys is None else quota.keys - usage.keys,
                growth.bytes if quota.bytes is None else quota.bytes - usage.bytes,
            )
            refused = self._excess(growth, free)
            if refused is None:
                writers = max(1, self._writers())
                self._left = Size(max(free.keys // writers, growth.keys), max(free.bytes // writers, growth.bytes))
                return
            self._left = Size(max(free.keys, 0), max(free.bytes, 0))
            raise refused
        refused = self._excess(growth, self._left)
        if refused is not None:
            raise refused

    def _excess(self, size: Size, left: Size) -> KeyplanError | None:
        """Return the error for what is over; None when it fits."""
        quota = self._quota
        if quota.keys is not None and size.keys > 0 and size.keys > left.keys:
            used = quota.keys - left.keys
            return QuotaExceededError(name=self._name, limit="keys", allowed=quota.keys, actual=used + size.keys)
        if quota.bytes is not None and size.bytes > 0 and size.bytes > left.bytes:
            used = quota.bytes - left.bytes
            return QuotaExceededError(name=self._name, limit="bytes", allowed=quota.bytes, actual=used + size.bytes)
        return None
