"""An engine that keeps to the quotas of the key spaces in it, whoever writes, and whatever the keys are known as.

For a server. What it is asked to write are raw keys, of callers who are granted prefixes, applications or everything: no key
space is opened for them. Each commit that comes to keys of a key space with a quota is weighed as a handle weighs its own
(`QuotaBudget`), in each such key space that it comes to, and refused whole when one of them is full.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final, NamedTuple

from keyplan.engine import (
    SYSTEM_CLOCK,
    Clock,
    Commit,
    DeleteRange,
    Engine,
    Fences,
    FencesHolder,
    Guard,
    KeyRange,
    Mutation,
    PrefixedEngine,
    Put,
    Snapshot,
    WrappedEngine,
    load_by_commits,
)
from keyplan.keyspace.handle import budget_for
from keyplan.keyspace.quota import QuotaBudget
from keyplan.keyspace.records import Quota, State
from keyplan.keyspace.registry import KeySpaces
from keyplan.keyspace.rows import key_of, rows_of, value_of
from keyplan.layout import Only

__all__ = ["QuotaEngine"]

_LOOK_SECONDS: Final = 1.0
"""Why, where a look is a call over a network: soon enough for a new quota to be heard of, and one read a second."""

_HEAD_KEY: Final = key_of("audit_head", Only())
"""Every act on the registry writes it."""

_NO_QUOTA: Final = Quota()


class _Bounded(NamedTuple):
    """A key space with a quota. Two of one name and generation that are under the same prefix are one."""

    prefix: bytes
    name: str
    generation: int


class _Held(NamedTuple):
    """The key spaces with a quota, by their prefixes, as they were at this head of the registry's log."""

    head: bytes | None
    prefixes: Sequence[bytes]
    budgets: Sequence[QuotaBudget]


class QuotaEngine(WrappedEngine):
    """An engine whose commits keep to the quotas of key spaces. Raises QuotaExceededError; then nothing was written.

    Reads go straight through. Where reads are local a quota counts with the first commit behind it, elsewhere within a second.
    Safe for use by several threads.
    """

    def __init__(self, inner: Engine, *, clock: Clock = SYSTEM_CLOCK, closes_inner: bool = True) -> None:
        super().__init__(inner, closes_inner=closes_inner)
        self._registry = KeySpaces(inner, clock=clock)
        self._clock = clock
        self._is_local = inner.profile.has_local_reads
        self._lock = Lock()
        self._known: dict[_Bounded, QuotaBudget] = {}
        self._held: _Held | None = None
        self._looked_at = 0.0

    def commit(self, commit: Commit) -> int:
        held = self._quotas()
        if not held.prefixes:
            return self.inner.commit(commit)
        entered: list[QuotaBudget] = []
        is_done = False
        try:
            for budget, mutations in _by_key_space(held, commit.mutations):
                budget.enter(mutations)
                entered.append(budget)
            revision = self.inner.commit(commit)
            is_done = True
        finally:
            for budget in reversed(entered):
                budget.leave(is_done=is_done)
        return revision

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        # Why by commits: each batch is weighed as it is written.
        return load_by_commits(self, entries)

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        if self._quotas().prefixes:
            # Why the default way: it goes through `commit`.
            return Engine.put_sorted(self, keys, values, guards=guards, overwrite=overwrite)
        return self.inner.put_sorted(keys, values, guards=guards, overwrite=overwrite)

    # Why these: each is faster in the engine itself than what stands in for it.

    def value(self, key: bytes) -> bytes | None:
        return self.inner.value(key)

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        return self.inner.fenced_value(key, fences)

    def fenced_reader(
        self, prefix: bytes, holder: FencesHolder, otherwise: Callable[[bytes], bytes | None]
    ) -> Callable[[bytes], bytes | None]:
        return self.inner.fenced_reader(prefix, holder, otherwise)

    def fenced_snapshot(self, prefix: bytes, fences: Fences) -> Snapshot | None:
        return self.inner.fenced_snapshot(prefix, fences)

    # ---- which key spaces have a quota ------------------------------------------------------------------------------------

    def _quotas(self) -> _Held:
        held = self._held
        if held is not None:
            if not self._is_local and self._clock.monotonic() - self._looked_at < _LOOK_SECONDS:
                return held
            self._looked_at = self._clock.monotonic()
            if self.inner.value(_HEAD_KEY) == held.head:
                return held
        with self._lock:
            return self._renewed()

    def _renewed(self) -> _Held:
        with self.inner.snapshot() as state:
            head = state.value(_HEAD_KEY)
            held = self._held
            if held is not None and held.head == head:
                return held  # Why: another thread was faster.
            found = sorted(self._bounded_in(state))
        known = self._known
        self._known = {bounded: self._budget(known.get(bounded), bounded, quota, of) for bounded, quota, of in found}
        self._looked_at = self._clock.monotonic()
        self._held = _Held(head, [bounded.prefix for bounded in self._known], list(self._known.values()))
        return self._held

    def _bounded_in(self, state: Snapshot) -> Iterator[tuple[_Bounded, Quota, str]]:
        """Yield the key spaces with a quota, and the applications whose they are."""
        for row in rows_of(state, "quotas"):
            # Why nothing of what is damaged: a brake must not be what stops everything; the doctor makes it again.
            if not row.is_read or row.value == _NO_QUOTA:
                continue
            record = value_of(state, "records", row.key)
            if record is None or not record.is_read or record.value.state is State.DELETED or not record.value.prefix:
                continue
            one = record.value
            with suppress(ValueError):
                yield _Bounded(bytes.fromhex(one.prefix), row.key, one.generation), row.value, one.application

    def _budget(self, known: QuotaBudget | None, bounded: _Bounded, quota: Quota, application: str) -> QuotaBudget:
        if known is not None:
            known.change(quota)
            return known
        share = PrefixedEngine(self.inner, bounded.prefix, closes_inner=False)
        return budget_for(
            share, self._registry, bounded.name, application, bounded.prefix, quota, clock=self._clock, others=1
        )


def _by_key_space(held: _Held, mutations: Sequence[Mutation]) -> Iterator[tuple[QuotaBudget, Sequence[Mutation]]]:
    """Yield what a commit does in each key space with a quota, on keys without its prefix."""
    found: dict[int, list[Mutation]] = {}
    prefixes = held.prefixes
    for mutation in mutations:
        if isinstance(mutation, DeleteRange):
            for at, part in _parts_of(mutation.range, prefixes):
                found.setdefault(at, []).append(DeleteRange(part))
            continue
        at = bisect_right(prefixes, mutation.key) - 1
        if at < 0 or not mutation.key.startswith(prefixes[at]):
            continue
        key = mutation.key[len(prefixes[at]) :]
        own = Put(key, mutation.value) if isinstance(mutation, Put) else type(mutation)(key)
        found.setdefault(at, []).append(own)
    # Why in this order: of two commits on the same key spaces, neither waits in one for the other to leave the next.
    for at in sorted(found):
        yield held.budgets[at], found[at]


def _parts_of(key_range: KeyRange, prefixes: Sequence[bytes]) -> Iterator[tuple[int, KeyRange]]:
    """Yield which of the prefixes a range comes to, and what of it is below each, without that."""
    first = max(bisect_right(prefixes, key_range.start) - 1, 0)
    last = len(prefixes) if key_range.end is None else bisect_left(prefixes, key_range.end)
    for at in range(first, last):
        prefix = prefixes[at]
        whole = KeyRange.of_prefix(prefix)
        start = max(whole.start, key_range.start)
        if whole.end is not None and start >= whole.end:
            continue
        end = key_range.end if key_range.end is not None and key_range.end.startswith(prefix) else None
        yield at, KeyRange(start[len(prefix) :], None if end is None else end[len(prefix) :])
