"""An etcd engine that looks like a local one: revisions count from 0 again, and a poll knows what is committed already.

So that tests with literal revisions, which poll without waiting, can share one server.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from msgspec import structs

from keyplan.engine import (
    Commit,
    Engine,
    Entry,
    Event,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    RangeEmpty,
    Snapshot,
    Watch,
    WrappedEngine,
    WrappedSnapshot,
)
from keyplan.errors import CommitConflictError, HistoryCompactedError

__all__ = ["RebasedEngine"]

_WAIT_SECONDS: Final = 0.5
_WAITS_MAX: Final = 20


class RebasedEngine(WrappedEngine):
    """The store's present revision is 0 here; later ones count from there. A key that is absent stays at revision 0."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        with inner.snapshot() as snapshot:
            self.base = snapshot.revision
        self.compacted = 0

    def snapshot(self) -> Snapshot:
        return _RebasedSnapshot(self.inner.snapshot(), self)

    def commit(self, commit: Commit) -> int:
        guards = tuple(map(self._inner_guard, commit.guards))
        try:
            return self.inner.commit(Commit(guards, commit.mutations, commit.epoch)) - self.base
        except CommitConflictError as error:
            own = dict(zip(guards, commit.guards, strict=True))
            raise CommitConflictError(
                failed=tuple(self._failure(failure, own) for failure in _failed(error))
            ) from error

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        with self.own_revisions():
            return _RebasedWatch(self.inner.watch(key_range, after=after + self.base), self)

    def compact(self, revision: int) -> None:
        self.inner.compact(revision + self.base)
        self.compacted = revision

    def _inner_guard(self, guard: Guard) -> Guard:
        if isinstance(guard, KeyAbsent | RangeEmpty) or (isinstance(guard, KeyUnchanged) and guard.revision == 0):
            return guard
        return structs.replace(guard, revision=guard.revision + self.base)

    def _failure(self, failure: FailedGuard, own: dict[Guard, Guard]) -> FailedGuard:
        actual = failure.actual_revision and failure.actual_revision - self.base
        return FailedGuard(own[failure.guard], failure.key, actual)

    def entry(self, entry: Entry) -> Entry:
        """The entry with revisions that count from the base."""
        return entry._replace(
            create_revision=entry.create_revision - self.base, mod_revision=entry.mod_revision - self.base
        )

    def event(self, event: Event) -> Event:
        """The event with revisions that count from the base."""
        return structs.replace(
            event,
            revision=event.revision - self.base,
            entry=event.entry and self.entry(event.entry),
            previous=event.previous and self.entry(event.previous),
        )

    @contextmanager
    def own_revisions(self) -> Generator[None, None, None]:
        """Let an error about compacted history tell revisions that count from the base."""
        try:
            yield
        except HistoryCompactedError as error:
            facts: dict[str, Any] = {name: value - self.base for name, value in error.facts.items()}  # type: ignore[operator]  # numbers
            raise HistoryCompactedError(**facts) from error


def _failed(error: CommitConflictError) -> tuple[FailedGuard, ...]:
    failed = error.facts["failed"]
    assert isinstance(failed, tuple)
    return failed


class _RebasedSnapshot(WrappedSnapshot):
    def __init__(self, inner: Snapshot, engine: RebasedEngine) -> None:
        super().__init__(inner)
        self._engine = engine

    @property
    def revision(self) -> int:
        return self.inner.revision - self._engine.base

    def get(self, key: bytes) -> Entry | None:
        entry = self.inner.get(key)
        return entry and self._engine.entry(entry)

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        return [entry and self._engine.entry(entry) for entry in self.inner.get_many(keys)]

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        found = self.inner.scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only)
        return self._rebased(found, self._engine.entry)

    def _rebased(self, found: Iterator[Entry], rebased: Callable[[Entry], Entry]) -> Iterator[Entry]:
        with self._engine.own_revisions():
            yield from map(rebased, found)


class _RebasedWatch:
    def __init__(self, inner: Watch, engine: RebasedEngine) -> None:
        self._inner = inner
        self._engine = engine

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        with self._engine.own_revisions():
            return [self._engine.event(event) for event in self._poll(timeout_seconds)]

    def _poll(self, timeout_seconds: float) -> Sequence[Event]:
        """Poll, and go on until everything is there that was committed before the call, as on an engine in this process.

        A watch that is behind the kept history says so, although etcd may have pushed the events before.
        """
        if self.revision < self._engine.compacted:
            compacted_revision = self._engine.compacted + self._engine.base
            raise HistoryCompactedError(revision=self._inner.revision, compacted_revision=compacted_revision)
        with self._engine.inner.snapshot() as snapshot:
            committed = snapshot.revision
        events = list(self._inner.poll(timeout_seconds))
        for _ in range(_WAITS_MAX):
            if self._inner.revision >= committed:
                break
            events += self._inner.poll(_WAIT_SECONDS)
        return events

    @property
    def revision(self) -> int:
        return self._inner.revision - self._engine.base

    def close(self) -> None:
        self._inner.close()
