"""The share of an engine whose keys begin with a prefix, as an engine of its own."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from keyplan.engine.admission import admit_commit, admit_pair
from keyplan.engine.interface import (
    NO_LEASE,
    Commit,
    Delete,
    DeleteRange,
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
from keyplan.engine.wrap import WrappedEngine
from keyplan.errors import CommitConflictError, CorruptionError, KeyplanError

__all__ = ["KeyPrefix", "PrefixedEngine", "PrefixedSnapshot", "PrefixedWatch", "failures_of", "prefix_of"]

_PREFIXES_SHARE: Final = 16
"""Of the bytes of a commit, a sixteenth is kept for prefixes where an engine does not limit how many operations there are."""

_make: Final = tuple.__new__
"""Makes an entry without NamedTuple's own Python frames, because every entry of a list passes here."""


class PrefixedEngine(WrappedEngine):
    """The share of `inner` whose keys begin with `prefix`, as an engine of its own: keys are given and returned without it.

    Nothing outside the prefix can be read or written. Revisions, leases and compaction are those of the whole store.
    """

    def __init__(self, inner: Engine, prefix: "bytes | KeyPrefix", *, closes_inner: bool = True) -> None:
        super().__init__(inner, closes_inner=closes_inner)
        self._prefix = prefix if isinstance(prefix, KeyPrefix) else KeyPrefix(prefix)
        self._raw_prefix = self._prefix.raw
        self._profile = _within(inner.profile, self._raw_prefix)

    @property
    def raw_prefix(self) -> bytes:
        """What the keys begin with in the engine inside."""
        return self._raw_prefix

    @property
    def profile(self) -> Profile:
        return self._profile

    def snapshot(self) -> Snapshot:
        return PrefixedSnapshot(self.inner.snapshot(), self._prefix)

    def value(self, key: bytes) -> bytes | None:
        # Why: past the snapshot, because this is the path of every single read; what comes back is of the key asked for.
        return self.inner.value(self._raw_prefix + key)

    def commit(self, commit: Commit) -> int:
        admit_commit(self._profile, commit)
        whole, _ = self._prefix.add_to_commit(commit)
        try:
            return self.inner.commit(whole)
        except CommitConflictError as error:
            raise self._prefix.own_conflict(failures_of(error), whole.guards, commit.guards) from error

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        return PrefixedWatch(self.inner.watch(self._prefix.add_to_range(key_range), after=after), self._prefix)

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        check_sorted(keys, values, self._profile)
        whole = [self._raw_prefix + key for key in keys]
        inner_guards = tuple(map(self._prefix.add_to_guard, guards))
        try:
            return self.inner.put_sorted(whole, values, guards=inner_guards, overwrite=overwrite)
        except CommitConflictError as error:
            raise self._prefix.own_conflict(failures_of(error), inner_guards, guards) from error

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        return self.inner.load(self._with_prefix(entries))

    def _with_prefix(self, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for key, value in entries:
            admit_pair(self._profile, key, value)
            yield self._raw_prefix + key, value


def _within(profile: Profile, prefix: bytes) -> Profile:
    """Return the limits that are left: the prefix is in every key."""
    key_bytes_max, operations_max = profile.key_bytes_max, profile.commit_operations_max
    bytes_max = profile.commit_bytes_max
    if bytes_max is not None and prefix:
        # Why four: an operation may be guarded as well as written, and a range has two keys.
        each = 4 * len(prefix)
        if operations_max is None:
            # Why a limit that the engine inside does not have: any number of prefixes would leave no bytes to promise.
            operations_max = max(bytes_max // (_PREFIXES_SHARE * each), 1)
        bytes_max = max(bytes_max - each * operations_max, 0)
    return replace(
        profile,
        key_bytes_max=None if key_bytes_max is None else max(key_bytes_max - len(prefix), 0),
        commit_operations_max=operations_max,
        commit_bytes_max=bytes_max,
        empty_key=profile.empty_key or bool(prefix),
    )


def failures_of(error: CommitConflictError) -> tuple[FailedGuard, ...]:
    """Return the guards that a conflict names."""
    failed = error.facts["failed"]
    assert isinstance(failed, tuple)
    return failed


def prefix_of(engine: Engine) -> bytes:
    """Return what the keys of a share begin with in the whole store, whatever is around it; nothing when it is no share."""
    prefix = b""
    while isinstance(engine, WrappedEngine):
        if isinstance(engine, PrefixedEngine):
            prefix = engine.raw_prefix + prefix
        engine = engine.inner
    return prefix


class KeyPrefix:
    """Adds a prefix to everything that names keys; takes it away from what comes back, after a look at it."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.size = len(raw)
        self._end = KeyRange.of_prefix(raw).end

    def foreign(self, key: bytes) -> KeyplanError:
        """Return the error of a key outside the prefix, which the engine inside gave although nobody asked for it."""
        return CorruptionError(problem=f"the engine returned a key outside the prefix {self.raw!r}", raw_key=key.hex())

    def strip(self, key: bytes) -> bytes:
        """Return a key without the prefix. Raises the error of `foreign`."""
        if not key.startswith(self.raw):
            raise self.foreign(key)
        return key[self.size :]

    def strip_entry(self, entry: Entry) -> Entry:
        """Return an entry whose key has no prefix. Raises as `strip` does."""
        return _make(Entry, (self.strip(entry[0]), *entry[1:]))

    def strip_event(self, event: Event) -> Event:
        """Return an event whose keys have no prefix. Raises as `strip` does."""
        return structs.replace(
            event,
            key=self.strip(event.key),
            entry=None if event.entry is None else self.strip_entry(event.entry),
            previous=None if event.previous is None else self.strip_entry(event.previous),
        )

    def add_to_range(self, key_range: KeyRange) -> KeyRange:
        """Return the range with the prefix; what had no upper end ends with the prefix."""
        end = self._end if key_range.end is None else self.raw + key_range.end
        return KeyRange(self.raw + key_range.start, end)

    def add_to_commit(self, commit: Commit, fence: Guard | None = None, epoch: str = "") -> tuple[Commit, bool]:
        """Return a commit with the prefix, whose last guard is the fence, and whether one of its puts hangs on a lease.

        `epoch` is that of the fence, for a commit that has none.
        """
        # Why at once, and by the class itself: all of every commit passes here, and each call in between is felt.
        raw, has_lease = self.raw, False
        guards: list[Guard] = []
        for guard in commit.guards:
            if type(guard) is KeyUnchanged:
                guards.append(KeyUnchanged(raw + guard.key, guard.revision))
            elif type(guard) is KeyAbsent:
                guards.append(KeyAbsent(raw + guard.key))
            else:
                guards.append(self.add_to_guard(guard))
        mutations: list[Mutation] = []
        for mutation in commit.mutations:
            if type(mutation) is Put:
                lease = mutation.lease
                if lease != NO_LEASE:
                    has_lease = True
                mutations.append(Put(raw + mutation.key, mutation.value, lease))
            elif type(mutation) is Delete:
                mutations.append(Delete(raw + mutation.key))
            else:
                assert isinstance(mutation, DeleteRange)
                mutations.append(DeleteRange(self.add_to_range(mutation.range)))
        if fence is not None:
            guards.append(fence)
        return Commit(tuple(guards), tuple(mutations), commit.epoch or epoch), has_lease

    def add_to_guard(self, guard: Guard) -> Guard:
        """Return the guard with the prefix."""
        if isinstance(guard, KeyUnchanged):
            return KeyUnchanged(self.raw + guard.key, guard.revision)
        if isinstance(guard, KeyAbsent):
            return KeyAbsent(self.raw + guard.key)
        if isinstance(guard, RangeEmpty):
            return RangeEmpty(self.add_to_range(guard.range))
        keys = tuple(map(self.raw.__add__, guard.keys))
        return RangeUnchanged(self.add_to_range(guard.range), guard.revision, keys)

    def own_conflict(
        self, failures: Iterable[FailedGuard], guards: Sequence[Guard], own_guards: Sequence[Guard]
    ) -> CommitConflictError:
        """Return the conflict that names the guards which the caller gave: `own_guards`, which became `guards`."""
        own = dict(zip(guards, own_guards, strict=True))
        failed = (
            FailedGuard(
                own[failure.guard], None if failure.key is None else self.strip(failure.key), failure.actual_revision
            )
            for failure in failures
        )
        return CommitConflictError(failed=tuple(failed))


class PrefixedSnapshot(Snapshot):
    """The part of a snapshot below a prefix."""

    __slots__ = ("_inner", "_inner_get", "_prefix", "_raw_prefix")

    def __init__(self, inner: Snapshot, prefix: KeyPrefix) -> None:
        self._inner = inner
        self._inner_get = inner.get
        self._prefix = prefix
        self._raw_prefix = prefix.raw

    @property
    def revision(self) -> int:
        return self._inner.revision

    @property
    def epoch(self) -> str:
        return self._inner.epoch

    def read_along(self, keys: Sequence[bytes]) -> None:
        self._inner.read_along([self._raw_prefix + key for key in keys])

    def get(self, key: bytes) -> Entry | None:
        raw_key = self._raw_prefix + key
        entry = self._inner_get(raw_key)
        if entry is None:
            return None
        if entry[0] != raw_key:
            raise self._prefix.foreign(entry[0])
        return _make(Entry, (key,) + entry[1:])  # noqa: RUF005  # Why: as in `get_many`.

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        # Why: over a network many keys are one call, and a prefix must not turn them into as many.
        raw_keys = list(map(self._raw_prefix.__add__, keys))
        found: list[Entry | None] = []
        for key, raw_key, entry in zip(keys, raw_keys, self._inner.get_many(raw_keys), strict=True):
            if entry is None:
                found.append(None)
                continue
            if entry[0] != raw_key:
                raise self._prefix.foreign(entry[0])
            found.append(_make(Entry, (key,) + entry[1:]))  # noqa: RUF005  # Why: the shortest way to an equal entry.
        return found

    def value(self, key: bytes) -> bytes | None:
        return self._inner.value(self._raw_prefix + key)

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._inner.values(list(map(self._raw_prefix.__add__, keys)))

    def values_within(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        return self._inner.values_within(list(map(self._raw_prefix.__add__, keys)), bytes_max)

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        inner_range = self._prefix.add_to_range(key_range)
        return self._stripped(self._inner.scan(inner_range, limit=limit, reverse=reverse, keys_only=keys_only))

    def _stripped(self, found: Iterator[Entry]) -> Iterator[Entry]:
        # Why: written out, because every entry of every list passes here.
        prefix, size, make = self._raw_prefix, self._prefix.size, _make
        for entry in found:
            key = entry[0]
            if not key.startswith(prefix):
                raise self._prefix.foreign(key)
            yield make(Entry, (key[size:],) + entry[1:])  # noqa: RUF005  # Why: as in `get_many`.

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        return self._stripped_keys(self._inner.keys(self._prefix.add_to_range(key_range), limit=limit, reverse=reverse))

    def _stripped_keys(self, found: Iterator[bytes]) -> Iterator[bytes]:
        prefix, size = self._raw_prefix, self._prefix.size
        for key in found:
            if not key.startswith(prefix):
                raise self._prefix.foreign(key)
            yield key[size:]

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        # Why not by entries: an engine that gives pairs faster does so here, too.
        return self._stripped_pairs(
            self._inner.pairs(self._prefix.add_to_range(key_range), limit=limit, reverse=reverse)
        )

    def _stripped_pairs(self, found: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        prefix, size = self._raw_prefix, self._prefix.size
        for key, value in found:
            if not key.startswith(prefix):
                raise self._prefix.foreign(key)
            yield key[size:], value

    def count(self, key_range: KeyRange) -> int:
        return self._inner.count(self._prefix.add_to_range(key_range))

    def close(self) -> None:
        self._inner.close()


class PrefixedWatch:
    """A watch of what is below a prefix."""

    def __init__(self, inner: Watch, prefix: KeyPrefix) -> None:
        self._inner = inner
        self._prefix = prefix

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        return [self._prefix.strip_event(event) for event in self._inner.poll(timeout_seconds)]

    @property
    def revision(self) -> int:
        return self._inner.revision

    def close(self) -> None:
        self._inner.close()
