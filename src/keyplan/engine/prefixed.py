"""The share of an engine whose keys begin with a prefix, as an engine of its own."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from msgspec import structs

from keyplan.engine.admission import admit_commit, admit_pair
from keyplan.engine.interface import (
    Commit,
    Delete,
    Engine,
    Entry,
    Event,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
    Snapshot,
    Watch,
)
from keyplan.engine.profile import Profile
from keyplan.engine.sorted_keys import check_sorted
from keyplan.engine.wrap import WrappedEngine, WrappedSnapshot
from keyplan.errors import CommitConflictError

__all__ = ["PrefixedEngine"]


class PrefixedEngine(WrappedEngine):
    """The share of `inner` whose keys begin with `prefix`, as an engine of its own: keys are given and returned without it.

    Nothing outside the prefix can be read or written. Revisions, leases and compaction are those of the whole store.
    """

    def __init__(self, inner: Engine, prefix: bytes, *, closes_inner: bool = True) -> None:
        super().__init__(inner, closes_inner=closes_inner)
        self._prefix = _Prefix(prefix)
        key_bytes_max = inner.profile.key_bytes_max
        self._profile = replace(
            inner.profile,
            key_bytes_max=None if key_bytes_max is None else max(key_bytes_max - len(prefix), 0),
            empty_key=inner.profile.empty_key or bool(prefix),
        )

    @property
    def profile(self) -> Profile:
        return self._profile

    def snapshot(self) -> Snapshot:
        return _PrefixedSnapshot(self.inner.snapshot(), self._prefix)

    def commit(self, commit: Commit) -> int:
        admit_commit(self._profile, commit)
        guards = tuple(map(self._prefix.add_to_guard, commit.guards))
        mutations = tuple(map(self._prefix.add_to_mutation, commit.mutations))
        with self._own_conflicts(guards, commit.guards):
            return self.inner.commit(Commit(guards, mutations, commit.epoch))

    @contextmanager
    def _own_conflicts(self, guards: Sequence[Guard], own_guards: Sequence[Guard]) -> Generator[None, None, None]:
        """Let a conflict name the guards that the caller gave."""
        try:
            yield
        except CommitConflictError as error:
            own = dict(zip(guards, own_guards, strict=True))
            failed = tuple(self._own_failure(failure, own) for failure in _failures(error))
            raise CommitConflictError(failed=failed) from error

    def _own_failure(self, failure: FailedGuard, own: dict[Guard, Guard]) -> FailedGuard:
        key = None if failure.key is None else self._prefix.strip(failure.key)
        return FailedGuard(own[failure.guard], key, failure.actual_revision)

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        return _PrefixedWatch(self.inner.watch(self._prefix.add_to_range(key_range), after=after), self._prefix)

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        check_sorted(keys, values, self._profile)
        whole = [self._prefix.add(key) for key in keys]
        inner_guards = tuple(map(self._prefix.add_to_guard, guards))
        with self._own_conflicts(inner_guards, guards):
            return self.inner.put_sorted(whole, values, guards=inner_guards, overwrite=overwrite)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        return self.inner.load(self._with_prefix(entries))

    def _with_prefix(self, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for key, value in entries:
            admit_pair(self._profile, key, value)
            yield self._prefix.add(key), value


def _failures(error: CommitConflictError) -> tuple[FailedGuard, ...]:
    failed = error.facts["failed"]
    assert isinstance(failed, tuple)
    return failed


class _Prefix:
    """Adds the prefix to everything that names keys, and takes it away again."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._size = len(raw)
        self._end = KeyRange.of_prefix(raw).end

    def add(self, key: bytes) -> bytes:
        return self._raw + key

    def strip(self, key: bytes) -> bytes:
        return key[self._size :]

    def strip_entry(self, entry: Entry) -> Entry:
        # Why: made without NamedTuple's own Python frames, because every entry of a list passes here.
        return tuple.__new__(Entry, (entry[0][self._size :], *entry[1:]))

    def strip_event(self, event: Event) -> Event:
        return structs.replace(
            event,
            key=self.strip(event.key),
            entry=None if event.entry is None else self.strip_entry(event.entry),
            previous=None if event.previous is None else self.strip_entry(event.previous),
        )

    def add_to_range(self, key_range: KeyRange) -> KeyRange:
        return KeyRange(self._raw + key_range.start, self._end if key_range.end is None else self._raw + key_range.end)

    def add_to_mutation(self, mutation: Mutation) -> Mutation:
        if isinstance(mutation, Put | Delete):
            return structs.replace(mutation, key=self.add(mutation.key))
        return structs.replace(mutation, range=self.add_to_range(mutation.range))

    def add_to_guard(self, guard: Guard) -> Guard:
        match guard:
            case KeyAbsent() | KeyUnchanged():
                return structs.replace(guard, key=self.add(guard.key))
            case RangeEmpty():
                return RangeEmpty(self.add_to_range(guard.range))
            case RangeUnchanged():
                keys = tuple(map(self.add, guard.keys))
                return RangeUnchanged(self.add_to_range(guard.range), guard.revision, keys)


class _PrefixedSnapshot(WrappedSnapshot):
    def __init__(self, inner: Snapshot, prefix: _Prefix) -> None:
        super().__init__(inner)
        self._prefix = prefix

    def get(self, key: bytes) -> Entry | None:
        entry = self.inner.get(self._prefix.add(key))
        return None if entry is None else self._prefix.strip_entry(entry)

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        # Why: over a network many keys are one call, and a key space must not turn them into as many.
        found = self.inner.get_many([self._prefix.add(key) for key in keys])
        return [None if entry is None else self._prefix.strip_entry(entry) for entry in found]

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        inner_range = self._prefix.add_to_range(key_range)
        found = self.inner.scan(inner_range, limit=limit, reverse=reverse, keys_only=keys_only)
        return map(self._prefix.strip_entry, found)

    def count(self, key_range: KeyRange) -> int:
        return self.inner.count(self._prefix.add_to_range(key_range))


class _PrefixedWatch:
    def __init__(self, inner: Watch, prefix: _Prefix) -> None:
        self._inner = inner
        self._prefix = prefix

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        return [self._prefix.strip_event(event) for event in self._inner.poll(timeout_seconds)]

    @property
    def revision(self) -> int:
        return self._inner.revision

    def close(self) -> None:
        self._inner.close()
