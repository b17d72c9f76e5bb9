"""An engine that is one key space's share of another: keys get the prefix, every commit and every read the fence.

A PrefixedEngine (keyplan.engine) in all else. Every get and every commit passes here, and what a key space may cost them is a
tenth.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, Protocol

from keyplan.engine import (
    NO_LEASE,
    Commit,
    Engine,
    Entry,
    Event,
    Guard,
    KeyAbsent,
    KeyPrefix,
    KeyRange,
    Lease,
    Mutation,
    OwnedHistory,
    OwnedLeases,
    PrefixedEngine,
    PrefixedSnapshot,
    PrefixedWatch,
    Profile,
    Put,
    Snapshot,
    Watch,
    admit_commit,
    failures_of,
)
from keyplan.errors import (
    CommitConflictError,
    EngineLimitError,
    HistoryCompactedError,
    InvalidInputError,
    KeyOutOfKeySpaceError,
    OwnerMismatchError,
)
from keyplan.keyspace.fence import FenceGuard, HeldFence, KeySpaceFence
from keyplan.keyspace.rows import key_of

__all__ = ["Budget", "KeySpaceEngine", "ReadOnlyShare"]

_FENCE_ATTEMPTS: Final = 5
"""Why: a fence that changes between two tries changes because somebody disables and enables; nobody does that five times."""

_LOAD_ENTRIES: Final = 1_000
_NUMBER_BYTES: Final = 8
"""Of a lease in the key of its mark."""


class Budget(Protocol):
    """Says whether a commit fits the key space's quota."""

    def check(self, mutations: Sequence[Mutation]) -> None:
        """Raise QuotaExceededError when the key space is full and the commit would add to it."""
        ...


class KeySpaceEngine(PrefixedEngine):
    """The keys of one key space, as an engine of its own.

    A commit that the fence refuses raises KeySpaceDisabledError, KeySpaceDeletingError, KeySpaceDeletedError or
    GenerationMismatchError, and nothing was written; reads and watches raise the last three, and return nothing that was
    written after the key space was another's. An entry outside the key space raises KeyOutOfKeySpaceError.

    Leases are the key space's own, and so is the end of its history: `compact` forgets nobody else's.
    """

    def __init__(
        self, inner: Engine, name: str, prefix: bytes, fence: FenceGuard, *, closes_inner: bool = True
    ) -> None:
        super().__init__(inner, _KeysOfShare(name, prefix), closes_inner=closes_inner)
        self._name = name
        self._fence = fence
        self._profile = _beside_fence(self._profile, prefix, fence.key)
        self._is_limited = self._profile.commit_operations_max is not None or self._profile.commit_bytes_max is not None
        self._own = _Owned(inner, name, prefix, fence, self._fenced) if isinstance(fence, KeySpaceFence) else None
        self.budget: Budget | None = None
        # Why no method of ours: this is the path of every single read.
        self.value = inner.fenced_reader(prefix, fence, self._value_after_look)  # type: ignore[assignment, method-assign]

    @property
    def name(self) -> str:
        """The name that the key space was opened by."""
        return self._name

    @property
    def fence(self) -> FenceGuard:
        """The guard of this handle."""
        return self._fence

    # ---- reading -------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        if self._fence.closed_by is not None:
            self._fence.check_readable()
        return _ShareSnapshot(self.inner.snapshot(), self._prefix, self._fence)

    def _value_after_look(self, key: bytes) -> bytes | None:
        for _ in range(_FENCE_ATTEMPTS):
            self._fence.check_now()
            holds, value = self.inner.fenced_value(self._raw_prefix + key, self._fence.fences)
            if holds:
                return value
        raise self._fence.changing()

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        fence = self._fence
        fence.check_readable()
        with self.inner.snapshot() as snapshot:
            snapshot.read_along(fence.keys)
            if self._own is not None:
                self._own.check_history(snapshot, after)
            fence.check_in(snapshot)
        return _ShareWatch(self.inner.watch(self._prefix.add_to_range(key_range), after=after), self._prefix, fence)

    # ---- writing -------------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> int:
        if self._is_limited:
            admit_commit(self._profile, commit)
        if self.budget is not None:
            self.budget.check(commit.mutations)
        if self._own is not None:
            self._own.leases.check(commit.mutations)
        guards, mutations = self._prefix.add_to_commit(commit)
        try:
            return self._fenced(Commit(guards, mutations, commit.epoch))
        except CommitConflictError as error:
            raise self._prefix.own_conflict(failures_of(error), guards, commit.guards) from error
        except (EngineLimitError, InvalidInputError):
            # Why: said about the keys as the caller gave them. It is refused again: the limits here are no wider.
            admit_commit(self._profile, commit)
            raise

    def _fenced(self, commit: Commit) -> int:
        """Carry out a commit on raw keys, under the fence."""
        for _ in range(_FENCE_ATTEMPTS):
            if self._fence.closed_by is not None:
                self._fence.check_readable()
            fence, epoch = self._fence.held
            if commit.epoch not in {"", epoch}:
                # Why: the store was replaced behind one of them. Where it was behind the caller, the engine refuses its epoch.
                fence, epoch = self._looked_again()
            try:
                return self.inner.commit(Commit((*commit.guards, fence), commit.mutations, commit.epoch or epoch))
            except CommitConflictError as error:
                failures = failures_of(error)
                is_of_fence = any(failure.guard == fence for failure in failures)
                if not is_of_fence and (failures or commit.epoch):
                    raise
                self._looked_again(error)
        raise self._fence.changing()

    def _looked_again(self, because: CommitConflictError | None = None) -> HeldFence:
        """Return the fence as it is now. Raises why no commit may be made."""
        refused = self._fence.look()
        if refused is not None:
            raise refused from because
        return self._fence.held

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        if self._own is None:
            return super().lease(ttl_seconds, resume=resume)
        self._fence.check_readable()
        return self._own.leases.lease(ttl_seconds, resume=resume)

    def compact(self, revision: int) -> None:
        if self._own is None:
            super().compact(revision)
        else:
            self._fence.check_readable()
            self._own.history.compact(revision)

    def close(self) -> None:
        self._fence.end()
        super().close()

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


def _beside_fence(share: Profile, prefix: bytes, fence: bytes) -> Profile:
    """Return the limits that are left in commits: the prefix is in every key, and the fence is one guard."""
    operations_max, bytes_max = share.commit_operations_max, share.commit_bytes_max
    if bytes_max is not None:
        # Why: a range has two keys; each operation may be guarded as well as written.
        bytes_max -= len(fence) + 4 * len(prefix) * (operations_max or 0)
    return replace(
        share,
        commit_operations_max=None if operations_max is None else operations_max - 1,
        commit_bytes_max=bytes_max,
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


class _KeysOfShare(KeyPrefix):
    """The prefix of a key space: a key outside it is named with the key space."""

    def __init__(self, name: str, raw: bytes) -> None:
        super().__init__(raw)
        self._name = name

    def foreign(self, key: bytes) -> KeyOutOfKeySpaceError:
        return KeyOutOfKeySpaceError(name=self._name, raw_key=key.hex())


class _Owned:
    """What of the store's leases and history is one key space's: those of its generation, in the registry."""

    def __init__(
        self, inner: Engine, name: str, prefix: bytes, fence: KeySpaceFence, commit: Callable[[Commit], int]
    ) -> None:
        owner = f"{name}#{fence.generation}"
        marks = key_of("leases", 0)[:-_NUMBER_BYTES]
        self.leases = OwnedLeases(inner, owner, marks, commit=commit)
        self.history = OwnedHistory(inner, owner, key_of("floors", name), commit=commit)
        self._holder_key = key_of("holders", prefix)

    def check_history(self, state: Snapshot, after: int) -> None:
        """Raise HistoryCompactedError when the history after a revision is not the key space's alone, or it forgot it."""
        floor, holder = state.get_many((self.history.key, self._holder_key))
        self.history.check(after, None if floor is None else floor.value)
        # Why: what was written below the prefix before it was this key space's, is another's.
        if holder is not None and after < holder.mod_revision:
            raise HistoryCompactedError(revision=after, compacted_revision=holder.mod_revision)


class _ShareSnapshot(PrefixedSnapshot):
    """A snapshot that looks at the fence with its first read, in the state that it reads."""

    __slots__ = ("_fence", "_is_checked")

    def __init__(self, inner: Snapshot, prefix: KeyPrefix, fence: FenceGuard) -> None:
        super().__init__(inner, prefix)
        self._fence = fence
        self._is_checked = False
        inner.read_along(fence.keys)

    def _check(self) -> None:
        self._fence.check_in(self._inner)
        self._is_checked = True

    def read_along(self, keys: Sequence[bytes]) -> None:
        if not self._is_checked:
            self._inner.read_along([*self._fence.keys, *[self._raw_prefix + key for key in keys]])

    def get(self, key: bytes) -> Entry | None:
        # Why after the read: over a network, the fence comes along with it.
        entry = super().get(key)
        if not self._is_checked:
            self._check()
        return entry

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        found = super().get_many(keys)
        if not self._is_checked:
            self._check()
        return found

    def _stripped(self, found: Iterator[Entry]) -> Iterator[Entry]:
        own = super()._stripped(found)
        return own if self._is_checked else self._checked_first(own)

    def _checked_first(self, found: Iterator[Entry]) -> Iterator[Entry]:
        first = next(found, None)
        if not self._is_checked:
            self._check()
        if first is not None:
            yield first
            yield from found

    def count(self, key_range: KeyRange) -> int:
        count = super().count(key_range)
        if not self._is_checked:
            self._check()
        return count


class _ShareWatch(PrefixedWatch):
    """A watch that ends with the right to read.

    Generations only grow. So whatever came before a look that finds the key space's own is the key space's own: each batch is
    followed by one look, and delivered only then.
    """

    def __init__(self, inner: Watch, prefix: KeyPrefix, fence: FenceGuard) -> None:
        super().__init__(inner, prefix)
        self._fence = fence
        self._revision = inner.revision
        self._pending: Sequence[Event] = ()

    @property
    def revision(self) -> int:
        return self._revision

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        # Why kept until the look: the watch below brings them once, and the look may fail.
        self._pending = self._pending or self._inner.poll(timeout_seconds)
        if self._pending:
            self._fence.check_now()
        else:
            self._fence.check_readable()
        events = [self._prefix.strip_event(event) for event in self._pending]
        self._pending = ()
        self._revision = self._inner.revision
        return events
