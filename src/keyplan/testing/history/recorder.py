"""An engine that writes down what is asked of it and what it answers, around any engine. Stores work on it unchanged."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final, Protocol

from keyplan.engine import (
    NO_LEASE,
    Commit,
    Engine,
    FailedGuard,
    Fences,
    FencesHolder,
    Guard,
    KeyAbsent,
    KeyRange,
    Lease,
    Lineage,
    Profile,
    Put,
    Snapshot,
    Watch,
    WrappedEngine,
    check_sorted,
)
from keyplan.errors import CommitConflictError, CommitOutcomeUnknownError, InvalidInputError, KeyplanError
from keyplan.testing.contract import controls
from keyplan.testing.history.journal import Journal
from keyplan.testing.history.recorded import RecordedLease, RecordedSnapshot, RecordedWatch, seen_value
from keyplan.testing.history.records import (
    NEVER,
    Compaction,
    Failure,
    Outcome,
    Seen,
    SeenFence,
    SeenPairs,
    Write,
    tagged_guard,
    tagged_mutation,
)

__all__ = ["HistoryEngine"]

_PART_KEYS_MAX: Final = 64
"""Why: a part of a load or of `put_sorted` must be one commit of every engine, so that it is found at one revision."""


@controls(Engine)
class HistoryEngine(WrappedEngine):
    """Records commits, reads, watches, leases and compactions of `inner`, each by the method that was called.

    Loads and `put_sorted` are handed on in parts of 64 keys, each of which is one commit. What `lineage` answers is not
    recorded.
    """

    def __init__(self, inner: Engine, journal: Journal, *, closes_inner: bool = True) -> None:
        super().__init__(inner, closes_inner=closes_inner)
        self._journal = journal

    @property
    def profile(self) -> Profile:
        return self.inner.profile

    def lineage(self) -> Lineage:
        return self.inner.lineage()

    def snapshot(self) -> Snapshot:
        begin = self._journal.now()
        return RecordedSnapshot(self.inner.snapshot(), self._journal, begin)

    def commit(self, commit: Commit) -> int:
        tell = self._begin_write(commit)
        revision = self._told(tell, commit, lambda: self.inner.commit(commit))
        tell(self._journal.now(), Outcome.ACKNOWLEDGED, revision)
        return revision

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        # Why the whole first: what is wrong with a later part must keep the earlier ones from being written.
        pairs = list(zip(keys, check_sorted(keys, values, self.profile), strict=True))
        new = 0
        for start in range(0, len(pairs), _PART_KEYS_MAX):
            part = pairs[start : start + _PART_KEYS_MAX]
            commit = Commit(tuple(guards), tuple(Put(key, value) for key, value in part))
            tell = self._begin_write(commit, only_absent=not overwrite)
            words = [key for key, _ in part], [value for _, value in part]
            put = partial(self.inner.put_sorted, *words, guards=guards, overwrite=overwrite)
            new += self._told(tell, commit, put)
            tell(self._journal.now(), Outcome.APPLIED)
        return new

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        loaded = 0
        pairs = iter(entries)
        previous = b""
        while part := list(islice(pairs, _PART_KEYS_MAX)):
            if loaded and part[0][0] <= previous:
                raise InvalidInputError(source="load", problem="keys must ascend", raw_key=part[0][0].hex())
            previous = part[-1][0]
            commit = Commit(tuple(KeyAbsent(key) for key, _ in part), tuple(Put(key, value) for key, value in part))
            tell = self._begin_write(commit)
            loaded += self._told(tell, commit, partial(self.inner.load, part), is_conflict_exact=False)
            tell(self._journal.now(), Outcome.APPLIED)
        return loaded

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        return RecordedWatch(partial(self.inner.watch, key_range, after=after), self._journal, key_range, after)

    def value(self, key: bytes) -> bytes | None:
        begin = self._journal.now()
        value = self.inner.value(key)
        self._journal.add(Seen(self._journal.client, begin, self._journal.now(), (seen_value(key, value),)))
        return value

    def fenced_reader(
        self, prefix: bytes, holder: FencesHolder, otherwise: Callable[[bytes], bytes | None]
    ) -> Callable[[bytes], bytes | None]:
        return Engine.fenced_reader(self, prefix, holder, otherwise)  # Why: it reads by `fenced_value`.

    def fenced_snapshot(self, prefix: bytes, fences: Fences) -> None:
        """Return None: who wants one reads by `snapshot`."""

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        begin = self._journal.now()
        holds, value = self.inner.fenced_value(key, fences)
        parts: list[SeenFence | SeenPairs] = [seen_value(key, value)] if holds else []
        for fence, wanted in fences:
            if wanted is None and holds:
                parts.append(seen_value(fence, None))
            elif wanted is not None and (holds or len(fences) == 1):
                # Why one: of several, it is not told which one does not hold.
                parts.append(SeenFence(fence, wanted, holds))
        self._journal.add(Seen(self._journal.client, begin, self._journal.now(), tuple(parts)))
        return holds, value

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        grant = partial(self.inner.lease, ttl_seconds, resume=resume)
        return RecordedLease(grant, self._journal, ttl_seconds, resume)

    def compact(self, revision: int) -> None:
        place = (self._journal.client, self._journal.next_number(), self._journal.now())
        self._journal.add(Compaction(*place, NEVER, revision))
        try:
            self.inner.compact(revision)
        except KeyplanError as error:
            self._journal.add(Compaction(*place, self._journal.now(), revision, error.code))
            raise
        self._journal.add(Compaction(*place, self._journal.now(), revision))

    def close(self) -> None:
        super().close()

    def _begin_write(self, commit: Commit, *, only_absent: bool = False) -> "_Tell":
        """Record a write that begins; return what records how it ended."""
        number, begin = self._journal.next_number(), self._journal.now()
        guards = tuple(map(tagged_guard, commit.guards))
        mutations = tuple(map(tagged_mutation, commit.mutations))

        def tell(
            end: float, outcome: Outcome, revision: int = 0, failed: Sequence[Failure] = (), error: str = ""
        ) -> None:
            client = self._journal.client
            answer = (outcome, revision, tuple(failed), error, only_absent)
            self._journal.add(Write(client, number, begin, end, guards, mutations, *answer))

        tell(NEVER, Outcome.UNKNOWN)
        return tell

    def _told(self, tell: "_Tell", commit: Commit, write: Callable[[], int], *, is_conflict_exact: bool = True) -> int:
        """Write, and record what is raised. Not `is_conflict_exact`: the error need not name every key that is there."""
        try:
            return write()
        except CommitConflictError as error:
            if is_conflict_exact:
                tell(self._journal.now(), Outcome.CONFLICT, failed=_failures(commit, error), error=error.code)
            else:
                tell(self._journal.now(), Outcome.REFUSED, error=error.code)
            raise
        except CommitOutcomeUnknownError as error:
            tell(self._journal.now(), Outcome.UNKNOWN, error=error.code)
            raise
        except KeyplanError as error:
            tell(self._journal.now(), Outcome.REFUSED, error=error.code)
            raise


class _Tell(Protocol):
    """Records how a write ended."""

    def __call__(
        self, end: float, outcome: Outcome, revision: int = 0, failed: Sequence[Failure] = (), error: str = ""
    ) -> None: ...


def _failures(commit: Commit, error: CommitConflictError) -> list[Failure]:
    failed = error.facts["failed"]
    assert isinstance(failed, tuple)
    failures: list[Failure] = []
    for failure in failed:
        assert isinstance(failure, FailedGuard)
        failures.append(Failure(commit.guards.index(failure.guard), failure.key, failure.actual_revision))
    return failures
