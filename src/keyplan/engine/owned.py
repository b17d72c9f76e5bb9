"""Leases and history by owner: what each of several who share a store has of its leases and of its history.

A store's leases have numbers and its history has one end, for whoever speaks to it. Here each owner has its own: a lease that
another was granted is not there, and whoever forgets history forgets its own alone.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

import msgspec

from keyplan.engine.admission import require
from keyplan.engine.interface import (
    NO_LEASE,
    Commit,
    Engine,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Lease,
    Mutation,
    Put,
    Watch,
)
from keyplan.engine.lineage import Lineage
from keyplan.engine.profile import Capability
from keyplan.engine.retry import Backoff
from keyplan.errors import HistoryCompactedError, InvalidInputError, LeaseNotFoundError

__all__ = ["LEASE_MARKS", "HistoryFloor", "LeaseOwner", "Leases", "OwnedHistory", "OwnedLeases"]

LEASE_MARKS: Final = b"\x00acl"
"""Where the marks of owned leases stand. Why below the byte 00: that is in nobody's reach but an administrator's."""

_NUMBERS: Final = range(1, 1 << 64)
_NUMBER_BYTES: Final = 8

_KNOWN_MAX: Final = 10_000
"""Why: a handle that lives for years must not remember every lease that it ever had."""


class LeaseOwner(msgspec.Struct, frozen=True):
    """Whose a lease is: the value of a mark, which stands at a prefix and the lease's number in eight bytes."""

    owner: str


class HistoryFloor(msgspec.Struct, frozen=True):
    """Up to which revision an owner has forgotten its history. Another owner's floor at the same key is none."""

    owner: str
    revision: int


class Leases(Protocol):
    """The leases that somebody may put entries on."""

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        """Grant a lease, or take one of these up; as `Engine.lease`."""
        ...

    def check(self, mutations: Iterable[Mutation]) -> None:
        """Raise LeaseNotFoundError when one of the puts hangs on a lease that is none of these."""
        ...


class OwnedLeases:
    """The leases of `inner` that one owner was granted here; all others are not found.

    A grant writes a mark below the prefix `marks`, which hangs on the lease itself and so ends with it. `commit` carries the
    mark out, with the guards that it takes to be the owner; without it, `inner` does. Safe for use by several threads.
    """

    def __init__(
        self, inner: Engine, owner: str, marks: bytes, *, commit: Callable[[Commit], int] | None = None
    ) -> None:
        self._inner = inner
        self._marks = marks
        self._value = msgspec.json.encode(LeaseOwner(owner))
        self._commit = inner.commit if commit is None else commit
        self._known: tuple[Lineage, set[int]] = (inner.lineage(), set())

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        """Grant a lease, or take one of the owner's up; as `Engine.lease`. Raises LeaseNotFoundError for another's."""
        if resume != NO_LEASE:
            self._find(resume)
            return self._inner.lease(ttl_seconds, resume=resume)
        lineage = self._inner.lineage()
        lease = self._inner.lease(ttl_seconds)
        try:
            self._commit(Commit((), (Put(self._mark(lease.id), self._value, lease.id),)))
        except BaseException:
            lease.revoke()
            raise
        self._note(lease.id, lineage)
        return lease

    def check(self, mutations: Iterable[Mutation]) -> None:
        """Raise LeaseNotFoundError when one of the puts hangs on a lease that is not the owner's.

        What holds here holds when they are committed: a lease never changes hands, and one that has ended takes no entries.
        """
        for mutation in mutations:
            if type(mutation) is Put and mutation.lease != NO_LEASE and not self._is_known(mutation.lease):
                self._find(mutation.lease)

    def _is_known(self, lease: int) -> bool:
        lineage, known = self._known
        # Why the lineage: a store that went back may give a number out once more, to another owner.
        return lease in known and lineage == self._inner.lineage()

    def _find(self, lease: int) -> None:
        require(self._inner.profile, Capability.LEASES)
        # Why before the look: what was found in one line of commits says nothing about the next.
        lineage = self._inner.lineage()
        if lease not in _NUMBERS or self._inner.value(self._mark(lease)) != self._value:
            raise LeaseNotFoundError(lease=lease)
        self._note(lease, lineage)

    def _note(self, lease: int, lineage: Lineage) -> None:
        known_in, known = self._known
        if known_in != lineage or len(known) >= _KNOWN_MAX:
            known = set()
            self._known = (lineage, known)
        known.add(lease)

    def _mark(self, lease: int) -> bytes:
        return self._marks + lease.to_bytes(_NUMBER_BYTES, "big")


class OwnedHistory:
    """One owner's end of the history of `inner`: stored at `key`, and moved by its `compact` alone.

    The store's own history stays: who administers the store compacts it by its own engine. `commit` is as for OwnedLeases.
    """

    def __init__(self, inner: Engine, owner: str, key: bytes, *, commit: Callable[[Commit], int] | None = None) -> None:
        self._inner = inner
        self._owner = owner
        self._key = key
        self._commit = inner.commit if commit is None else commit

    @property
    def key(self) -> bytes:
        """Where the floor stands."""
        return self._key

    def floor_in(self, value: bytes | None) -> int:
        """Return the owner's floor, given what stands at its key; 0 where there is none, or another owner's."""
        if value is None:
            return 0
        try:
            floor = msgspec.json.decode(value, type=HistoryFloor)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            # Why: what an owner has forgotten is its own. A damaged floor must not take the rest away from it.
            return 0
        return floor.revision if floor.owner == self._owner else 0

    def compact(self, revision: int) -> None:
        """Forget the owner's history up to and including `revision`; as `Engine.compact`."""
        require(self._inner.profile, Capability.REVISIONS)
        # Why again after a conflict: another handle of the owner has moved the floor, perhaps not so far.
        Backoff().until_committed(partial(self._move_floor, revision))

    def _move_floor(self, revision: int) -> None:
        with self._inner.snapshot() as snapshot:
            entry, latest, epoch = snapshot.get(self._key), snapshot.revision, snapshot.epoch
        if revision > latest:
            raise InvalidInputError(source="revision", problem=f"the store is at revision {latest}")
        if revision <= self.floor_in(None if entry is None else entry.value):
            return
        guard: Guard = KeyAbsent(self._key) if entry is None else KeyUnchanged(self._key, entry.mod_revision)
        value = msgspec.json.encode(HistoryFloor(self._owner, revision))
        self._commit(Commit((guard,), (Put(self._key, value),), epoch))

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        """Watch as `Engine.watch` does. Raises HistoryCompactedError behind the owner's floor, too."""
        self.check(after, self._inner.value(self._key))
        return self._inner.watch(key_range, after=after)

    def check(self, after: int, value: bytes | None) -> None:
        """Raise HistoryCompactedError when the history after a revision is behind the floor, given what stands at its key."""
        floor = self.floor_in(value)
        if after < floor:
            raise HistoryCompactedError(revision=after, compacted_revision=floor)
