"""An engine that is one key space's share of another: keys get the prefix, every commit and every read the fence.

A PrefixedEngine (keyplan.engine) in all else. Every get and every commit passes here, and what a key space may cost them is a
tenth.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, Protocol, TypeVar

from keyplan.engine import (
    NO_LEASE,
    Commit,
    Engine,
    Entry,
    Event,
    Fences,
    Guard,
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
    Snapshot,
    Watch,
    admit_commit,
    failures_of,
    load_by_commits,
)
from keyplan.errors import (
    CommitConflictError,
    EngineLimitError,
    HistoryCompactedError,
    InvalidInputError,
    KeyOutOfKeySpaceError,
    OwnerMismatchError,
)
from keyplan.keyspace.fence import FenceGuard, HeldFence, KeySpaceFence, again
from keyplan.keyspace.rows import key_of

__all__ = ["Budget", "KeySpaceEngine", "ReadOnlyShare"]

Found = TypeVar("Found")

_FENCE_ATTEMPTS: Final = 5
"""Why: a fence that changes between two tries changes because somebody disables and enables; nobody does that five times."""

_NO_PREFIX: Final = KeyPrefix(b"")
_NUMBER_BYTES: Final = 8
"""Of a lease in the key of its mark."""


class Budget(Protocol):
    """Says whether a commit fits the key space's quota."""

    def enter(self, mutations: Sequence[Mutation]) -> None:
        """Let a commit begin. Raises QuotaExceededError when the key space is full and the commit would add to it."""
        ...

    def leave(self, *, is_done: bool) -> None:
        """A commit that was let through has ended; it is known whether it was carried out."""
        ...

    def check(self, mutations: Sequence[Mutation]) -> None:
        """As `enter`, for a commit whose end nobody can tell."""
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
        self._profile = _beside_fence(self._profile, fence.key)
        self._is_limited = self._profile.commit_operations_max is not None or self._profile.commit_bytes_max is not None
        self._has_local_reads = self._profile.has_local_reads
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
        fence = self._fence
        if fence.closed_by is not None:
            fence.check_readable()
        own = self.inner.fenced_snapshot(self._raw_prefix, fence.fences)
        if own is not None:
            return own
        state = self.inner.snapshot()
        if not self._has_local_reads:
            return _ShareSnapshot(state, self._prefix, fence)
        # Why at once: where a look is a comparison, no read of this state needs another; over a network it would be a call.
        try:
            if not state.holds(fence.fences):
                fence.check_in(state)
        except BaseException:
            state.close()
            raise
        return PrefixedSnapshot(state, self._prefix)

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
            snapshot.read_along((fence.key, *(() if self._own is None else self._own.history_keys)))
            # Why the fence first: where the prefix is another's, so is what stands there of its history.
            fence.check_in(snapshot)
            if self._own is not None:
                self._own.check_history(snapshot, after)
        return _ShareWatch(self.inner.watch(self._prefix.add_to_range(key_range), after=after), self._prefix, fence)

    # ---- writing -------------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> int:
        if self._is_limited:
            admit_commit(self._profile, commit)
        budget = self.budget
        if budget is not None:
            budget.enter(commit.mutations)
        is_done = False
        try:
            revision = self._carry_out(self._prefix, commit, None if self._own is None else self._own.leases)
            is_done = True
        except (EngineLimitError, InvalidInputError):
            # Why: said about the keys as the caller gave them. It is refused again: the limits here are no wider.
            admit_commit(self._profile, commit)
            raise
        finally:
            if budget is not None:
                budget.leave(is_done=is_done)
        return revision

    def _fenced(self, commit: Commit) -> int:
        """Carry out a commit on raw keys, under the fence."""
        return self._carry_out(_NO_PREFIX, commit, None)

    def _carry_out(self, prefix: KeyPrefix, commit: Commit, leases: OwnedLeases | None) -> int:
        """Carry out a commit on keys below a prefix, under the fence, with leases that are among these."""
        for _ in range(_FENCE_ATTEMPTS):
            if self._fence.closed_by is not None:
                self._fence.check_readable()
            fence, epoch = self._fence.held
            if commit.epoch and commit.epoch != epoch:
                # Why: the store was replaced behind one of them. Where it was behind the caller, the engine refuses its epoch.
                fence, epoch = self._looked_again()
            whole, has_lease = prefix.add_to_commit(commit, fence, epoch)
            if has_lease and leases is not None:
                leases.check(commit.mutations)
            try:
                return self.inner.commit(whole)
            except CommitConflictError as error:
                failures = failures_of(error)
                is_of_fence = any(failure.guard == fence for failure in failures)
                if not is_of_fence and (failures or commit.epoch):
                    raise prefix.own_conflict(failures, whole.guards[:-1], commit.guards) from error
                self._looked_again(error)
        raise self._fence.changing()

    def _looked_again(self, because: CommitConflictError | None = None) -> HeldFence:
        """Return the fence as it is now. Raises why no commit may be made."""
        refused = self._fence.look()
        if refused is not None:
            raise again(refused) from because
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
        # Why by commits: a load must not pass the fence by.
        return load_by_commits(self, entries)


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


def _beside_fence(share: Profile, fence: bytes) -> Profile:
    """Return the limits that are left in commits: the fence is one guard."""
    operations_max, bytes_max = share.commit_operations_max, share.commit_bytes_max
    return replace(
        share,
        commit_operations_max=None if operations_max is None else operations_max - 1,
        commit_bytes_max=None if bytes_max is None else bytes_max - len(fence),
    )


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
        self.history_keys = (self.history.key, key_of("holders", prefix))
        """What says from where on the history is the key space's."""

    def check_history(self, state: Snapshot, after: int) -> None:
        """Raise HistoryCompactedError when the history after a revision is not the key space's alone, or it forgot it."""
        floor, holder = state.get_many(self.history_keys)
        self.history.check(after, None if floor is None else floor.value)
        # Why: what was written below the prefix before it was this key space's, is another's.
        if holder is not None and after < holder.mod_revision:
            raise HistoryCompactedError(revision=after, compacted_revision=holder.mod_revision)


class _ShareSnapshot(PrefixedSnapshot):
    """A snapshot over a network: it looks at the fence with its first read, in the state that it reads.

    Invariant: whatever reads is written here, so that nothing passes the look by; a test fails for a method that is not.
    """

    __slots__ = ("_fence", "_is_checked")

    def __init__(self, inner: Snapshot, prefix: KeyPrefix, fence: FenceGuard) -> None:
        super().__init__(inner, prefix)
        self._fence = fence
        self._is_checked = False
        inner.read_along((fence.key,))

    def _checked(self, found: Found) -> Found:
        """Return what was found, in a state in which it may be. Why after the read: the fence came along with it."""
        if not self._is_checked:
            self._fence.check_in(self._inner)
            self._is_checked = True
        return found

    def read_along(self, keys: Sequence[bytes]) -> None:
        if not self._is_checked:
            self._inner.read_along([self._fence.key, *[self._raw_prefix + key for key in keys]])

    def get(self, key: bytes) -> Entry | None:
        return self._checked(super().get(key))

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        return self._checked(super().get_many(keys))

    def value(self, key: bytes) -> bytes | None:
        return self._checked(super().value(key))

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._checked(super().values(keys))

    def values_within(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        return self._checked(super().values_within(keys, bytes_max))

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        return self._checked_first(super().scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only))

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        return self._checked_first(super().keys(key_range, limit=limit, reverse=reverse))

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self._checked_first(super().pairs(key_range, limit=limit, reverse=reverse))

    def columns(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        return super().columns(key_range, limit=limit, reverse=reverse)  # Why: it is made of `pairs`, which is checked.

    def _checked_first(self, found: Iterator[Found]) -> Iterator[Found]:
        return found if self._is_checked else self._from_first(found)

    def _from_first(self, found: Iterator[Found]) -> Iterator[Found]:
        first = self._checked(list(islice(found, 1)))
        yield from first
        yield from found

    def count(self, key_range: KeyRange) -> int:
        return self._checked(super().count(key_range))

    def holds(self, fences: Fences) -> bool:
        return Snapshot.holds(self, fences)


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
