"""An engine that is one key space's share of another: keys get the prefix, every commit the fence, answers are checked.

A PrefixedEngine (keyplan.engine) in all else. Every get and every commit passes here, and what a key space may cost them is a
tenth.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, Protocol

from keyplan.engine import (
    NO_LEASE,
    Commit,
    Engine,
    Event,
    Guard,
    KeyAbsent,
    KeyPrefix,
    KeyRange,
    Lease,
    Mutation,
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
    InvalidInputError,
    KeyOutOfKeySpaceError,
    OwnerMismatchError,
)
from keyplan.keyspace.fence import FenceGuard, HeldFence

__all__ = ["Budget", "KeySpaceEngine", "ReadOnlyShare"]

_FENCE_ATTEMPTS: Final = 5
"""Why: a fence that changes between two tries changes because somebody disables and enables; nobody does that five times."""

_LOAD_ENTRIES: Final = 1_000


class Budget(Protocol):
    """Says whether a commit fits the key space's quota."""

    def check(self, mutations: Sequence[Mutation]) -> None:
        """Raise QuotaExceededError when the key space is full and the commit would add to it."""
        ...


class KeySpaceEngine(PrefixedEngine):
    """The keys of one key space, as an engine of its own.

    A commit that the fence refuses raises KeySpaceDisabledError, KeySpaceDeletingError, KeySpaceDeletedError or
    GenerationMismatchError, and nothing was written; reads and watches raise the last three once they are known. An entry
    outside the key space raises KeyOutOfKeySpaceError.
    """

    def __init__(
        self, inner: Engine, name: str, prefix: bytes, fence: FenceGuard, *, closes_inner: bool = True
    ) -> None:
        super().__init__(inner, _KeysOfShare(name, prefix), closes_inner=closes_inner)
        self._fence = fence
        self._profile = _beside_fence(self._profile, prefix, fence.key)
        self._is_limited = self._profile.commit_operations_max is not None or self._profile.commit_bytes_max is not None
        self.budget: Budget | None = None

    @property
    def fence(self) -> FenceGuard:
        """The guard of this handle."""
        return self._fence

    def snapshot(self) -> Snapshot:
        if self._fence.closed_by is not None:
            self._fence.check_readable()
        return PrefixedSnapshot(self.inner.snapshot(), self._prefix)

    def value(self, key: bytes) -> bytes | None:
        # Why: written out, because this is the path of every single read.
        if self._fence.closed_by is not None:
            self._fence.check_readable()
        return self.inner.value(self._raw_prefix + key)

    def commit(self, commit: Commit) -> int:
        if self._is_limited:
            admit_commit(self._profile, commit)
        if self.budget is not None:
            self.budget.check(commit.mutations)
        guards, mutations = self._prefix.add_to_commit(commit)
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
                failures = failures_of(error)
                is_of_fence = any(failure.guard == fence for failure in failures)
                if not is_of_fence and (failures or commit.epoch):
                    raise self._prefix.own_conflict(failures, guards, commit.guards) from error
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

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        self._fence.check_readable()
        return _ShareWatch(
            self.inner.watch(self._prefix.add_to_range(key_range), after=after), self._prefix, self._fence
        )

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


class _ShareWatch(PrefixedWatch):
    """A watch that ends with the right to read."""

    def __init__(self, inner: Watch, prefix: KeyPrefix, fence: FenceGuard) -> None:
        super().__init__(inner, prefix)
        self._fence = fence

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        events = super().poll(timeout_seconds)
        if not events:
            self._fence.check_readable()
        return events
