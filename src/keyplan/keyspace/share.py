"""An engine that is one key space's share of another: keys get the prefix, every commit the fence, answers are checked.

Like a PrefixedEngine (keyplan.engine) in all else. Why not one: every get and every commit passes here, and what a key
space may cost them is a tenth.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, Protocol

from msgspec import structs

from keyplan.engine import (
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
    Lease,
    Mutation,
    Profile,
    Put,
    RangeEmpty,
    RangeUnchanged,
    Snapshot,
    Watch,
    WrappedEngine,
    admit_commit,
)
from keyplan.errors import (
    CommitConflictError,
    EngineLimitError,
    InvalidInputError,
    KeyOutOfKeySpaceError,
    OwnerMismatchError,
)
from keyplan.keyspace.fence import FenceGuard, HeldFence

__all__ = ["Budget", "KeySpaceEngine", "ReadOnlyShare"]

_make: Final = tuple.__new__

_FENCE_ATTEMPTS: Final = 5
"""Why: a fence that changes between two tries changes because somebody disables and enables; nobody does that five times."""

_LOAD_ENTRIES: Final = 1_000


class Budget(Protocol):
    """Says whether a commit fits the key space's quota."""

    def check(self, mutations: Sequence[Mutation]) -> None:
        """Raise QuotaExceededError when the key space is full and the commit would add to it."""
        ...


class KeySpaceEngine(WrappedEngine):
    """The keys of one key space, as an engine of its own.

    A commit that the fence refuses raises KeySpaceDisabledError, KeySpaceDeletingError, KeySpaceDeletedError or
    GenerationMismatchError, and nothing was written; reads and watches raise the last three once they are known. An entry
    outside the key space raises KeyOutOfKeySpaceError.
    """

    def __init__(
        self, inner: Engine, name: str, prefix: bytes, fence: FenceGuard, *, closes_inner: bool = True
    ) -> None:
        super().__init__(inner, closes_inner=closes_inner)
        self._share = _Share(name, prefix)
        self._prefix = prefix
        self._fence = fence
        self._profile = _share_profile(inner.profile, prefix, fence.key)
        self._is_limited = self._profile.commit_operations_max is not None or self._profile.commit_bytes_max is not None
        self.budget: Budget | None = None

    @property
    def profile(self) -> Profile:
        return self._profile

    @property
    def fence(self) -> FenceGuard:
        """The guard of this handle."""
        return self._fence

    def snapshot(self) -> Snapshot:
        if self._fence.closed_by is not None:
            self._fence.check_readable()
        return _ShareSnapshot(self.inner.snapshot(), self._share)

    def value(self, key: bytes) -> bytes | None:
        # Why: past the snapshot, because this is the path of every single read; what comes back is of the key asked for.
        if self._fence.closed_by is not None:
            self._fence.check_readable()
        return self.inner.value(self._prefix + key)

    def commit(self, commit: Commit) -> int:
        if self._is_limited:
            admit_commit(self._profile, commit)
        if self.budget is not None:
            self.budget.check(commit.mutations)
        share = self._share
        guards = tuple([share.add_to_guard(guard) for guard in commit.guards])
        mutations = tuple([share.add_to_mutation(mutation) for mutation in commit.mutations])
        for _ in range(_FENCE_ATTEMPTS):
            if self._fence.closed_by is not None:
                self._fence.check_readable()
            fence, epoch = self._fence.held
            if commit.epoch not in {"", epoch}:
                # Why: the store was replaced behind one of them. Where it was behind the caller, the engine refuses its epoch.
                fence, epoch = self._looked_again()
            try:
                return self.inner.commit(Commit((*guards, fence), mutations, commit.epoch or epoch))
            except CommitConflictError as error:
                failures = _failures(error)
                is_of_fence = any(failure.guard == fence for failure in failures)
                if not is_of_fence and (failures or commit.epoch):
                    raise self._own_conflict(failures, guards, commit.guards) from error
                self._looked_again(error)
            except (EngineLimitError, InvalidInputError):
                # Why: said about the keys as the caller gave them. It is refused again: the limits here are no wider.
                admit_commit(self._profile, commit)
                raise
        raise self._fence.changing()

    def close(self) -> None:
        self._fence.end()
        super().close()

    def _looked_again(self, because: CommitConflictError | None = None) -> HeldFence:
        """Return the fence as it is now. Raises why no commit may be made."""
        refused = self._fence.look()
        if refused is not None:
            raise refused from because
        return self._fence.held

    def _own_conflict(
        self, failures: Iterable[FailedGuard], guards: Sequence[Guard], own_guards: Sequence[Guard]
    ) -> CommitConflictError:
        own = dict(zip(guards, own_guards, strict=True))
        strip = self._share.strip
        return CommitConflictError(
            failed=tuple(
                FailedGuard(
                    own[failure.guard], None if failure.key is None else strip(failure.key), failure.actual_revision
                )
                for failure in failures
            )
        )

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        self._fence.check_readable()
        return _ShareWatch(self.inner.watch(self._share.add_to_range(key_range), after=after), self._share, self._fence)

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        # Why: the default way goes through `commit`, and so past the fence and the quota.
        return Engine.put_sorted(self, keys, values, guards=guards, overwrite=overwrite)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        """As every engine's, by commits: a load must not pass the fence by."""
        most = min(_LOAD_ENTRIES, self._profile.commit_operations_max or _LOAD_ENTRIES)
        loaded = 0
        previous: bytes | None = None
        pairs = iter(entries)
        while batch := list(islice(pairs, most)):
            for key, _ in batch:
                if previous is not None and key <= previous:
                    raise InvalidInputError(source="load", problem="keys must ascend", raw_key=key.hex())
                previous = key
            for part in _within_bytes(batch, self._profile.commit_bytes_max):
                self.commit(
                    Commit((*map(KeyAbsent, (key for key, _ in part)),), tuple(Put(key, value) for key, value in part))
                )
                loaded += len(part)
        return loaded


class ReadOnlyShare(KeySpaceEngine):
    """A key space opened by an application that does not own it: whatever would write raises OwnerMismatchError."""

    def __init__(
        self,
        inner: Engine,
        name: str,
        prefix: bytes,
        fence: FenceGuard,
        *,
        application: str,
        owner: str,
        closes_inner: bool = True,
    ) -> None:
        super().__init__(inner, name, prefix, fence, closes_inner=closes_inner)
        self._refusal = {"name": name, "application": application, "owner": owner}

    def commit(self, commit: Commit) -> int:
        raise OwnerMismatchError(**self._refusal)

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        raise OwnerMismatchError(**self._refusal)

    def compact(self, revision: int) -> None:
        raise OwnerMismatchError(**self._refusal)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        raise OwnerMismatchError(**self._refusal)


def _share_profile(inner: Profile, prefix: bytes, fence: bytes) -> Profile:
    """Return the limits that are left: the prefix is in every key, and the fence is one guard."""
    operations_max, bytes_max = inner.commit_operations_max, inner.commit_bytes_max
    if bytes_max is not None:
        # Why: a range has two keys; each operation may be guarded as well as written.
        bytes_max -= len(fence) + 4 * len(prefix) * (operations_max or 0)
    return replace(
        inner,
        key_bytes_max=None if inner.key_bytes_max is None else max(inner.key_bytes_max - len(prefix), 0),
        commit_operations_max=None if operations_max is None else operations_max - 1,
        commit_bytes_max=bytes_max,
        empty_key=inner.empty_key or bool(prefix),
    )


def _within_bytes(batch: list[tuple[bytes, bytes]], bytes_max: int | None) -> Iterator[list[tuple[bytes, bytes]]]:
    """Cut a batch where a commit of it, each key guarded and written, would be too large."""
    part: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in batch:
        size += 2 * len(key) + len(value)
        if part and bytes_max is not None and size > bytes_max:
            yield part
            part, size = [], 2 * len(key) + len(value)
        part.append((key, value))
    if part:
        yield part


def _failures(error: CommitConflictError) -> tuple[FailedGuard, ...]:
    failed = error.facts["failed"]
    assert isinstance(failed, tuple)
    return failed


class _Share:
    """Adds the prefix to everything that names keys; takes it away from what comes back, after a look at it."""

    def __init__(self, name: str, prefix: bytes) -> None:
        self.name = name
        self.prefix = prefix
        self.size = len(prefix)
        self._end = KeyRange.of_prefix(prefix).end

    def strip(self, key: bytes) -> bytes:
        if not key.startswith(self.prefix):
            raise self.foreign(key)
        return key[self.size :]

    def foreign(self, key: bytes) -> KeyOutOfKeySpaceError:
        return KeyOutOfKeySpaceError(name=self.name, raw_key=key.hex())

    def strip_entry(self, entry: Entry) -> Entry:
        # Why: made without NamedTuple's own Python frames, because every entry of a list passes here.
        return _make(Entry, (self.strip(entry[0]), *entry[1:]))

    def strip_event(self, event: Event) -> Event:
        return structs.replace(
            event,
            key=self.strip(event.key),
            entry=None if event.entry is None else self.strip_entry(event.entry),
            previous=None if event.previous is None else self.strip_entry(event.previous),
        )

    def add_to_range(self, key_range: KeyRange) -> KeyRange:
        end = self._end if key_range.end is None else self.prefix + key_range.end
        return KeyRange(self.prefix + key_range.start, end)

    def add_to_mutation(self, mutation: Mutation) -> Mutation:
        if isinstance(mutation, Put):
            return Put(self.prefix + mutation.key, mutation.value, mutation.lease)
        if isinstance(mutation, Delete):
            return Delete(self.prefix + mutation.key)
        return DeleteRange(self.add_to_range(mutation.range))

    def add_to_guard(self, guard: Guard) -> Guard:
        if isinstance(guard, KeyUnchanged):
            return KeyUnchanged(self.prefix + guard.key, guard.revision)
        if isinstance(guard, KeyAbsent):
            return KeyAbsent(self.prefix + guard.key)
        if isinstance(guard, RangeEmpty):
            return RangeEmpty(self.add_to_range(guard.range))
        keys = tuple(self.prefix + key for key in guard.keys)
        return RangeUnchanged(self.add_to_range(guard.range), guard.revision, keys)


class _ShareSnapshot(Snapshot):
    __slots__ = ("_inner", "_inner_get", "_prefix", "_share")

    def __init__(self, inner: Snapshot, share: _Share) -> None:
        self._inner = inner
        self._inner_get = inner.get
        self._share = share
        self._prefix = share.prefix

    @property
    def revision(self) -> int:
        return self._inner.revision

    @property
    def epoch(self) -> str:
        return self._inner.epoch

    def get(self, key: bytes) -> Entry | None:
        raw_key = self._prefix + key
        entry = self._inner_get(raw_key)
        if entry is None:
            return None
        if entry[0] != raw_key:
            raise self._share.foreign(entry[0])
        return _make(Entry, (key, entry[1], entry[2], entry[3], entry[4], entry[5]))

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        prefix, strip = self._prefix, self._share.strip_entry
        found = self._inner.get_many([prefix + key for key in keys])
        return [None if entry is None else strip(entry) for entry in found]

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        inner_range = self._share.add_to_range(key_range)
        return self._stripped(self._inner.scan(inner_range, limit=limit, reverse=reverse, keys_only=keys_only))

    def _stripped(self, found: Iterator[Entry]) -> Iterator[Entry]:
        # Why: written out, because every entry of every list passes here.
        prefix, size, make = self._prefix, self._share.size, _make
        for entry in found:
            key = entry[0]
            if not key.startswith(prefix):
                raise self._share.foreign(key)
            yield make(Entry, (key[size:], entry[1], entry[2], entry[3], entry[4], entry[5]))

    def count(self, key_range: KeyRange) -> int:
        return self._inner.count(self._share.add_to_range(key_range))

    def close(self) -> None:
        self._inner.close()


class _ShareWatch:
    def __init__(self, inner: Watch, share: _Share, fence: FenceGuard) -> None:
        self._inner = inner
        self._share = share
        self._fence = fence

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        events = [self._share.strip_event(event) for event in self._inner.poll(timeout_seconds)]
        if not events:
            self._fence.check_readable()
        return events

    @property
    def revision(self) -> int:
        return self._inner.revision

    def close(self) -> None:
        self._inner.close()
