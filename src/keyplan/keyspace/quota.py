"""The quota of an open key space: a brake that costs next to nothing while there is room.

A handle may add its part of the room that the last count has left: what is free, divided by those of the owner who have the key
space open. Commits are taken at their largest, as if they replaced nothing. When the part is used up, a commit is measured, and
what would add something is refused only after the key space was counted again; a count waits for what the handle has let
through, so that threads that share it write no more than there is room for. What a commit removes while no other one is under
way is added to the part, once it was measured: who writes and removes in turn where there is no more room is not counted each
time. Long counts take a quarter of the time at most: others wait for the threads that they are made in.

So a quota may be overrun by what others write between two counts. A write is not refused while there is room, unless others
made it within the last second, or the last count took long and is not three times as long ago.
"""

from collections.abc import Callable, Sequence
from threading import Condition
from typing import Final, NamedTuple, TypeVar

from keyplan.engine import Clock, DeleteRange, Engine, Mutation, Put
from keyplan.errors import KeyplanError, QuotaExceededError
from keyplan.keyspace.records import Quota

__all__ = ["QuotaBudget", "Size", "growth_of"]

Found = TypeVar("Found")

_RECOUNT_SECONDS: Final = 1.0
"""Why: who writes to a full key space again and again must not make it be counted each time."""

_LONG_COUNT_SECONDS: Final = 0.1
"""Why: shorter ones hold up nobody for long, also where a busy machine makes them longer."""

_PAUSES: Final = 3
"""How many times as long as it took no other count follows a long one."""

_LOOK_SECONDS: Final = 1.0
"""Why: soon enough for a changed quota to be heard of, and one read a second."""


class Size(NamedTuple):
    """Keys, and their bytes with those of their values."""

    keys: int
    bytes: int


_NOTHING: Final = Size(0, 0)


def growth_of(engine: Engine, mutations: Sequence[Mutation]) -> Size:
    """Return what a commit adds, by reading what it replaces and removes; below zero when it removes more."""
    keys = total = 0
    with engine.snapshot() as snapshot:
        for mutation in mutations:
            if isinstance(mutation, DeleteRange):
                gone = snapshot.scan(mutation.range)
            else:
                gone = filter(None, (snapshot.get(mutation.key),))
            for entry in gone:
                keys -= 1
                total -= len(entry.key) + len(entry.value)
            if isinstance(mutation, Put):
                keys += 1
                total += len(mutation.key) + len(mutation.value)
    return Size(keys, total)


class QuotaBudget:
    """What one handle may still write before it must count.

    `engine` is the key space's share, `count` gives its keys and bytes, and `writers` how many handles share the room.
    `look`, if given, returns the quota: it is asked before a commit when a second has gone by, for a handle that nobody tells
    of changes.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        *,
        quota: Quota,
        count: Callable[[], tuple[int, int]],
        writers: Callable[[], int],
        clock: Clock,
        look: Callable[[], Quota] | None = None,
    ) -> None:
        self._engine = engine
        self._name = name
        self._count = count
        self._writers = writers
        self._clock = clock
        self._look = look
        self._looked_at = clock.monotonic()
        self._lock = Condition()
        self._under_way = 0
        """Commits that were let through and have not ended."""
        self._is_counting = False
        """Somebody reads from the store what there is room for."""
        self._refused_at: float | None = None
        self._counted_at: float | None = None
        self._counts_again_at = clock.monotonic()
        self._made = _NOTHING
        """The room that the one commit makes that is under way alone."""
        self._has_untold = False
        """There may be commits whose end nobody tells."""
        self._quota = quota
        self._left = Size(0, 0)
        self._others_left = _NOTHING
        """What the last count left beside this handle's part."""

    def change(self, quota: Quota) -> None:
        """Go by another quota from now on."""
        with self._lock:
            self._change(quota)

    def _change(self, quota: Quota) -> None:
        if quota != self._quota:
            self._quota, self._left, self._refused_at = quota, Size(0, 0), None
            self._others_left = _NOTHING
            self._counts_again_at = self._clock.monotonic()

    def enter(self, mutations: Sequence[Mutation]) -> None:
        """As `check`, for a commit that begins; whatever becomes of it, `leave` is called when it has ended.

        Who enters several enters them in one order everywhere: a count of one waits for those who are in it.
        """
        with self._lock:
            made = self._check(mutations)
            self._under_way += 1
            self._made = made if self._under_way == 1 else _NOTHING

    def leave(self, *, is_done: bool) -> None:
        """A commit has ended that was let through by `enter`; it is known whether it was carried out."""
        with self._lock:
            if is_done and not self._has_untold:
                self._left = _sum(self._left, self._made)
            self._made = _NOTHING
            self._under_way -= 1
            if not self._under_way:
                self._lock.notify_all()

    def check(self, mutations: Sequence[Mutation]) -> None:
        """Take the size of a commit from the part. Raises QuotaExceededError; what adds nothing is always allowed.

        For who cannot say when the commit has ended: a count that another has made meanwhile may have missed it.
        """
        with self._lock:
            self._has_untold = True
            self._check(mutations)

    def _check(self, mutations: Sequence[Mutation]) -> Size:
        # Why nobody passes a count that waits: it would wait for them, too, and for those behind them.
        self._lock.wait_for(lambda: not self._is_counting)
        self._look_again()
        if self._quota == _NO_BOUNDS:
            return _NOTHING
        # Invariant: what is measured while another commit is under way may be that one's, too.
        is_alone = not self._under_way
        most = _largest(mutations)
        # Why measured after a refusal too: a smaller value over a larger one makes room, and is a Put as any other.
        if (
            self._refused_at is not None
            or self._excess(most, self._left) is not None
            or self._may_save_a_count(mutations)
        ):
            most = self._measured(mutations)
        self._left = Size(self._left.keys - max(most.keys, 0), self._left.bytes - max(most.bytes, 0))
        if min(most) < 0:
            self._refused_at = None  # Why: this handle makes room, which only a count shows, if it is not alone.
        return Size(max(-most.keys, 0), max(-most.bytes, 0)) if is_alone else _NOTHING

    def _may_save_a_count(self, mutations: Sequence[Mutation]) -> bool:
        """Return whether a commit removes something where it was counted just now, so that there is little room."""
        if self._counted_at is None or all(isinstance(mutation, Put) for mutation in mutations):
            return False
        return self._clock.monotonic() - self._counted_at < _RECOUNT_SECONDS

    def _measured(self, mutations: Sequence[Mutation]) -> Size:
        """Return what a commit adds, counting for one that does not fit; meanwhile nobody enters. Raises QuotaExceededError."""
        self._is_counting = True
        try:
            growth = self._unlocked(lambda: growth_of(self._engine, mutations))
            if self._excess(growth, self._left) is not None:
                self._count_again(growth)
            return growth
        finally:
            self._is_counting = False
            self._lock.notify_all()

    def _unlocked(self, read: Callable[[], Found]) -> Found:
        """Read from the store without the lock: it takes as long as the key space is large.

        Whoever changes the quota has others wait for them, who write somewhere else.
        """
        self._lock.release()
        try:
            return read()
        finally:
            self._lock.acquire()

    def _look_again(self) -> None:
        if self._look is None:
            return
        now = self._clock.monotonic()
        if now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self._change(self._look())

    def _count_again(self, growth: Size) -> None:
        """Fill the part up by a count. Raises QuotaExceededError when there is no room, also when there was none just now."""
        now = self._clock.monotonic()
        is_refused_still = self._refused_at is not None and now - self._refused_at < _RECOUNT_SECONDS
        if is_refused_still or now < self._counts_again_at:
            # Why all of it: who has used up their part, and no more, is refused nothing that there was room for.
            refused = self._excess(growth, _sum(self._left, self._others_left))
            if refused is not None:
                raise refused
        self._lock.wait_for(lambda: not self._under_way)
        began = self._clock.monotonic()
        usage, writers = self._unlocked(lambda: (Size(*self._count()), max(1, self._writers())))
        self._counted_at = self._clock.monotonic()
        if (took := self._counted_at - began) > _LONG_COUNT_SECONDS:
            self._counts_again_at = self._counted_at + _PAUSES * took
        quota = self._quota
        free = Size(
            growth.keys if quota.keys is None else quota.keys - usage.keys,
            growth.bytes if quota.bytes is None else quota.bytes - usage.bytes,
        )
        refused = self._excess(growth, free)
        if refused is not None:
            self._left, self._refused_at = Size(max(free.keys, 0), max(free.bytes, 0)), now
            self._others_left = _NOTHING
            raise refused
        self._left = Size(max(free.keys // writers, growth.keys), max(free.bytes // writers, growth.bytes))
        self._others_left = Size(max(free.keys - self._left.keys, 0), max(free.bytes - self._left.bytes, 0))
        self._refused_at = None

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


_NO_BOUNDS: Final = Quota()


def _sum(one: Size, other: Size) -> Size:
    return Size(one.keys + other.keys, one.bytes + other.bytes)


def _largest(mutations: Sequence[Mutation]) -> Size:
    """What a commit adds at the most: as if no key of it were there."""
    keys = total = 0
    for mutation in mutations:
        if isinstance(mutation, Put):
            keys += 1
            total += len(mutation.key) + len(mutation.value)
    return Size(keys, total)
