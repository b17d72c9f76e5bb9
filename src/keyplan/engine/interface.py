"""The engine contract: bytes in order, and nothing about their meaning.

An engine is judged by `keyplan.testing.engine_suite`; its capabilities and limits stand in its `profile`, and nowhere else.
Everything here is plain data or an abstract method: at most nine methods in an engine. A method that is not abstract is right
for every engine, and may be made faster. The data are msgspec structs: one is made in an eighth of a frozen dataclass's time,
and a commit is made of ten. `gc=False`: they hold nothing that could refer back to them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from operator import itemgetter
from typing import Final, NamedTuple, Protocol, Self

import msgspec

from keyplan.engine.fences import Fences, FencesHolder
from keyplan.engine.lineage import Lineage
from keyplan.engine.pieces import columns_of, values_within
from keyplan.engine.profile import Profile
from keyplan.engine.retry import until_put
from keyplan.engine.sorted_keys import check_sorted, commit_parts

__all__ = [
    "ALL_KEYS",
    "NO_LEASE",
    "Commit",
    "Delete",
    "DeleteRange",
    "Engine",
    "Entry",
    "Event",
    "EventKind",
    "FailedGuard",
    "Guard",
    "KeyAbsent",
    "KeyRange",
    "KeyUnchanged",
    "Lease",
    "Mutation",
    "Put",
    "RangeEmpty",
    "RangeUnchanged",
    "Snapshot",
    "Watch",
]

NO_LEASE: Final = 0


class KeyRange(msgspec.Struct, frozen=True, gc=False):
    """The keys k with start <= k < end, as unsigned bytes. `end` None: no upper end."""

    start: bytes
    end: bytes | None

    @classmethod
    def of_prefix(cls, prefix: bytes) -> Self:
        """Every key that begins with `prefix`: up to the prefix's successor, never `prefix + ff`.

        The successor drops trailing ff bytes and adds one to the last byte left; a prefix of ff bytes alone has no end.
        """
        stem = prefix.rstrip(b"\xff")
        return cls(prefix, stem[:-1] + bytes([stem[-1] + 1]) if stem else None)

    @classmethod
    def of_key(cls, key: bytes) -> Self:
        """Exactly one key."""
        return cls(key, key + b"\x00")

    def __contains__(self, key: bytes) -> bool:
        return self.start <= key and (self.end is None or key < self.end)

    @property
    def is_empty(self) -> bool:
        """True when no key can be in the range."""
        return self.end is not None and self.start >= self.end


ALL_KEYS: Final = KeyRange(b"", None)


class Entry(NamedTuple):
    """A key with its value and its history. `version` counts the writes since creation, from 1.

    `create_revision` and `mod_revision` are the store's revision at the first and the latest write. `lease` is NO_LEASE when
    the entry hangs on none. Under a keys-only scan `value` is empty. An engine without the REVISIONS capability gives 0 for
    create revision and version, and as `mod_revision` a fingerprint of the value: equal while the value is, but not ordered,
    and 0 under a keys-only scan.
    """

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


# ---- a commit is a value: what must be true, and what to write --------------------------------------------------------


class KeyAbsent(msgspec.Struct, frozen=True, gc=False):
    """Nothing is stored at `key`."""

    key: bytes


class KeyUnchanged(msgspec.Struct, frozen=True, gc=False):
    """The entry at `key` exists and its `mod_revision` is `revision`."""

    key: bytes
    revision: int


class RangeEmpty(msgspec.Struct, frozen=True, gc=False):
    """No key is stored in `range`."""

    range: KeyRange


class RangeUnchanged(msgspec.Struct, frozen=True, gc=False):
    """The keys in `range` are exactly `keys`, and none was written after `revision`: no insert, update or delete since.

    `keys` are those that were read, in order; an engine that can only compare single keys needs them.
    """

    range: KeyRange
    revision: int
    keys: tuple[bytes, ...]


Guard = KeyAbsent | KeyUnchanged | RangeEmpty | RangeUnchanged


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write `value` at `key`, hanging on `lease`. Writing without a lease takes the entry off the lease it was on."""

    key: bytes
    value: bytes
    lease: int = NO_LEASE


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Remove `key`. Removing what is not there is no change, and no error."""

    key: bytes


class DeleteRange(msgspec.Struct, frozen=True, gc=False):
    """Remove every key in `range`."""

    range: KeyRange


Mutation = Put | Delete | DeleteRange


class Commit(msgspec.Struct, frozen=True, gc=False):
    """All guards hold and all mutations are applied, at one revision; or nothing happens.

    No key may be written twice: not by two puts or deletes, and not by a put or delete inside a deleted range. `epoch` is that
    of the snapshot whose revisions the guards name, see `Snapshot.epoch`; in another epoch none of them holds.
    """

    guards: tuple[Guard, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    epoch: str = ""


class FailedGuard(msgspec.Struct, frozen=True):
    """A guard that did not hold. `actual_revision` is the mod revision found at its key (0: absent).

    For a range guard, `key` is one key that broke it, where the engine knows one, and `actual_revision` belongs to it.
    """

    guard: Guard
    key: bytes | None
    actual_revision: int


# ---- watching ---------------------------------------------------------------------------------------------------------


class EventKind(Enum):
    """What happened to a key."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


class Event(msgspec.Struct, frozen=True):
    """One change of one key.

    `entry` is what the key holds after the change (None when deleted); `previous` what it held before (None when created).
    """

    kind: EventKind
    key: bytes
    revision: int
    entry: Entry | None
    previous: Entry | None


class Watch(Protocol):
    """Changes as they are committed: by revision, then by key; each once; none left out."""

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        """Wait at most `timeout_seconds` for changes and return them; empty when there were none in time.

        All events of one revision come in the same batch. Raises HistoryCompactedError when the watch fell behind the kept
        history, EngineUnavailableError when the engine was closed.
        """
        ...

    @property
    def revision(self) -> int:
        """Everything up to and including this revision was delivered: resume with `after=revision`."""
        ...

    def close(self) -> None:
        """End the watch. Closing twice is harmless."""


# ---- leases -----------------------------------------------------------------------------------------------------------


class Lease(Protocol):
    """Entries put with a lease are deleted, in one revision, when it expires or is revoked."""

    @property
    def id(self) -> int:
        """The id that `Put.lease` takes; never NO_LEASE."""
        ...

    @property
    def ttl_seconds(self) -> float:
        """How long the lease lives after a keep-alive."""
        ...

    def keep_alive(self) -> float:
        """Start the lease's time again; return the seconds it now has. Raises LeaseNotFoundError when it is gone."""
        ...

    def seconds_left(self) -> float:
        """Return how long it still lives unless it is kept alive; at most `ttl_seconds`. Raises LeaseNotFoundError.

        An engine that counts in whole seconds may tell up to one less than there are.
        """
        ...

    def revoke(self) -> None:
        """End the lease and delete its entries, now. Revoking a lease that is gone is harmless."""


# ---- engine -----------------------------------------------------------------------------------------------------------


class Snapshot(ABC):
    """Reads of one state of the store: every commit up to `revision`, none after it. Close it soon: it holds resources.

    Not for use by two threads at once.
    """

    @property
    @abstractmethod
    def revision(self) -> int:
        """The revision that is read; 0 for an engine without the REVISIONS capability."""

    @property
    def epoch(self) -> str:
        """What a commit must carry whose guards come from this snapshot; "" where no two epochs have a revision in common."""
        return ""

    @abstractmethod
    def get(self, key: bytes) -> Entry | None:
        """Return the entry at `key`, or None."""

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Return the entry or None for each key, in the order asked."""
        return [self.get(key) for key in keys]

    @abstractmethod
    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        """Yield the entries in `key_range`, in key order or reversed, at most `limit` of them.

        Reads as it goes: memory does not grow with the range. The iterator must not be used after the snapshot is closed.
        """

    @abstractmethod
    def count(self, key_range: KeyRange) -> int:
        """Return the number of entries in `key_range`."""

    # ---- the same reads without histories: an engine overrides those that it can do faster ------------------------------

    def value(self, key: bytes) -> bytes | None:
        """Return the value at `key`, or None."""
        entry = self.get(key)
        return None if entry is None else entry.value

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value or None for each key, in the order asked."""
        return [None if entry is None else entry.value for entry in self.get_many(keys)]

    def values_within(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        """Return those of the first keys: one at least, and none behind that with which they have over `bytes_max` bytes."""
        return values_within(self.values, keys, bytes_max)

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        """Yield the keys in `key_range`, in the order and under the terms of `scan`."""
        for entry in self.scan(key_range, limit=limit, reverse=reverse, keys_only=True):
            yield entry.key

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in `key_range`, in the order and under the terms of `scan`."""
        return map(itemgetter(0, 1), self.scan(key_range, limit=limit, reverse=reverse))

    def columns(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield the keys and the values of the same pairs, one to 256 at a time, as two lists.

        None are behind the value with which a list has over 256 KiB. Why beside `pairs`: who joins many has no loop for each.
        """
        return columns_of(self.pairs(key_range, limit=limit, reverse=reverse))

    # ---- what a read rests on -------------------------------------------------------------------------------------------

    def read_along(self, keys: Sequence[bytes]) -> None:  # noqa: B027  # Why: it changes no answer.
        """Say before the first read what will be asked for beside it: over a network, it comes along in the same call."""

    def holds(self, fences: Fences) -> bool:
        """Return whether each key of `fences` has its value in this state."""
        return self.values([key for key, _ in fences]) == [value for _, value in fences]

    @abstractmethod
    def close(self) -> None:
        """Release the snapshot. Closing twice is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine(ABC):
    """An ordered map of byte keys with atomic guarded commits. Safe for use by several threads.

    Whatever exceeds the limits in `profile` is refused with EngineLimitError before anything is written. Calls that need a
    capability which `profile` does not claim raise UnsupportedByEngineError. After `close`, everything but `close` raises
    EngineUnavailableError.
    """

    @property
    @abstractmethod
    def profile(self) -> Profile:
        """What this engine can do, and its limits."""

    @abstractmethod
    def lineage(self) -> Lineage:
        """Return which store this is, and the epoch of its revisions, as far as this engine has seen. May ask the store.

        Within an epoch revisions only grow. An engine that counts them itself lets them leap beyond all that were given out
        before the first commit of a new epoch (`lineage.leapt`), and declares the history before that gone.
        """

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return a consistent view of the latest committed state, including every commit acknowledged before the call."""

    @abstractmethod
    def commit(self, commit: Commit) -> int:
        """Apply `commit` whole or not at all, and return the store's revision after it.

        The revision grows by one when a key was written or removed, and stays when nothing changed. When this returns, the
        commit is as durable as the profile claims. Raises CommitConflictError with the failed guards, of which there are none
        when the commit is of another epoch (nothing was written),
        EngineLimitError (nothing was written), LeaseNotFoundError for a put on a dead lease (nothing was written), or
        CommitOutcomeUnknownError.
        """

    @abstractmethod
    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        """Watch the changes in `key_range` with a revision greater than `after`, from history where needed.

        A revision that is yet to come is waited for. Raises HistoryCompactedError when that history is gone; a watch does so,
        too, once it finds that the store went back.
        """

    @abstractmethod
    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        """Grant a lease; or, with `resume`, take up a living lease by its id (its time is not restarted).

        The lease lives on if its holder dies, and expires all the same. Raises LeaseNotFoundError when `resume` is gone.
        """

    @abstractmethod
    def compact(self, revision: int) -> None:
        """Forget the history up to and including `revision`. What is stored now is not touched."""

    @abstractmethod
    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        """Write sorted, distinct key-value pairs into a range that holds none yet, fast; return how many.

        For filling a store: unlike a commit it may be left half done when it fails (whole batches, in order, each atomic).
        Raises InvalidInputError when keys are not in ascending order, CommitConflictError when a key exists.
        """

    def value(self, key: bytes) -> bytes | None:
        """Return the latest value at `key`, or None: what a snapshot taken now would, for an engine that can do it faster."""
        snapshot = self.snapshot()
        try:
            return snapshot.value(key)
        finally:
            snapshot.close()

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        """Return whether each key of `fences` has its value, and if so the value at `key` or None: all of the latest state."""
        snapshot = self.snapshot()
        try:
            # Why together: over a network that is one call.
            value, *found = snapshot.values((key, *[fence for fence, _ in fences]))
        finally:
            snapshot.close()
        return (True, value) if found == [wanted for _, wanted in fences] else (False, None)

    def fenced_reader(
        self, prefix: bytes, holder: FencesHolder, otherwise: Callable[[bytes], bytes | None]
    ) -> Callable[[bytes], bytes | None]:
        """Return what reads values below a prefix, as `fenced_value`; where the fences do not hold, it asks `otherwise`."""

        def value(key: bytes) -> bytes | None:
            holds, found = self.fenced_value(prefix + key, holder.fences)
            return found if holds else otherwise(key)

        return value

    def fenced_snapshot(self, prefix: bytes, fences: Fences) -> Snapshot | None:
        """Return a snapshot of the keys below a prefix, given and returned without it, of a state in which the fences hold.

        None where they do not, and from an engine that has no shorter way than `snapshot`, `Snapshot.holds` and a prefix.
        """
        return None

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        """Write many keys in ascending order, whether or not they exist, and return how many of them are new.

        `values` has one for each key; None: all are empty. Without `overwrite`, what stands at a key that exists is left. It is
        one commit where the profile has no limits for commits, else as few as fit, in order, each under `guards` and each as
        durable as any commit. Raises what `commit` does, and InvalidInputError when keys are not in ascending order.

        This default is correct everywhere, and as fast as `commit`; an engine that can write sorted keys faster overrides it.
        """
        return sum(
            _put_part(self, part, tuple(guards), overwrite=overwrite)
            for part in commit_parts(keys, check_sorted(keys, values, self.profile), self.profile, guards=len(guards))
        )

    @abstractmethod
    def close(self) -> None:
        """Release everything. Closing twice is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- many sorted keys by commits ------------------------------------------------------------------------------------------


def _put_part(engine: Engine, part: list[tuple[bytes, bytes]], guards: tuple[Guard, ...], *, overwrite: bool) -> int:
    """Commit one part and return how many keys are new. Again, when another writer made one of the keys meanwhile."""

    def attempt() -> int:
        with engine.snapshot() as snapshot:
            found = snapshot.get_many([key for key, _ in part])
        absent = [pair for pair, entry in zip(part, found, strict=True) if entry is None]
        own = tuple(KeyAbsent(key) for key, _ in absent)
        puts = tuple(Put(key, value) for key, value in (part if overwrite else absent))
        engine.commit(Commit((*guards, *own), puts))
        return len(absent)

    return until_put(engine.profile.name, attempt, guards)
