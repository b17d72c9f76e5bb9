"""An engine that holds what one caller may see of another engine, and nothing else.

For code that need not be trusted to ask first: whatever it calls, no key outside the caller's reach is read, counted, written,
guarded on, watched or leased to. Nothing is inherited that passes through: every method of the contract is written here, or in
`confined_reads` and `confined_commits`, and a test fails for one that is not.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from keyplan.engine.confined_commits import FencedCommits
from keyplan.engine.confined_reads import READ, WRITE, Border, ConfinedSnapshot, ConfinedWatch, Outside
from keyplan.engine.fences import Fences, FencesHolder
from keyplan.engine.interface import (
    NO_LEASE,
    Commit,
    Engine,
    Guard,
    KeyRange,
    Lease,
    Snapshot,
    Watch,
)
from keyplan.engine.lineage import Lineage
from keyplan.engine.owned import Leases, OwnedHistory
from keyplan.engine.profile import Profile
from keyplan.engine.reach import Reach, Terms
from keyplan.engine.sorted_writes import load_by_commits

__all__ = ["ConfinedEngine"]

_Read: TypeAlias = Callable[[bytes], bytes | None]


class _Under:
    """Who reads under the terms of one stretch."""

    def __init__(self, terms: Terms) -> None:
        self.fences: Fences = terms


class ConfinedEngine(Engine):
    """What is in the reach of one caller, as an engine of its own: keys are those of `inner`.

    `reach` returns the caller's reach and is asked with every call: it must be quick. Where a fence of it does not hold,
    `renewed` is asked once; by default that is `reach` again. `who` is the caller's name, for errors.

    Reads outside the reach are refused or find nothing, as `outside` says. Writes outside are always refused, the whole commit
    with them, and so are guards on what may not be read. Leases and history are the caller's own, those of `leases` and
    `history`; without these they are refused. Only a caller whose reach is everything has the store's.
    """

    def __init__(
        self,
        inner: Engine,
        reach: Callable[[], Reach],
        *,
        outside: Outside,
        who: str = "",
        renewed: Callable[[], Reach] | None = None,
        leases: Leases | None = None,
        history: OwnedHistory | None = None,
        closes_inner: bool = True,
    ) -> None:
        self._inner = inner
        self._reach = reach
        self._border = Border(reach, reach if renewed is None else renewed, outside, who)
        self._commits = FencedCommits(inner, self._border, leases)
        self._leases = leases
        self._history = history
        self._closes_inner = closes_inner
        self._is_local = inner.profile.has_local_reads
        self._latest: tuple[Reach | None, bytes, bytes | None, _Read] = (None, b"", b"", inner.value)
        """How a value was read last: in which reach, from and to which keys, by what. One object: threads replace it whole."""

    @property
    def profile(self) -> Profile:
        """The limits of the engine inside; where commits have limits, less what the fences take."""
        return self._commits.profile(self._reach())

    def lineage(self) -> Lineage:
        self._border.reach()  # Why: it says when this engine is closed and the one inside is not.
        return self._inner.lineage()

    # ---- reads -----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        return self._confined_snapshot()

    def _confined_snapshot(self) -> ConfinedSnapshot:
        self._border.reach()  # Why: as in `lineage`.
        return ConfinedSnapshot(self._inner.snapshot(), self._border, is_local=self._is_local)

    def readable_since(self, key_range: KeyRange) -> int | None:
        """Return the least revision behind which some of a range could be read all the time until now; None: none can be now.

        For what tells of changes in another way than by `watch`: a change of that revision or an earlier one is not to be told.
        0 where the right hangs on nothing.
        """
        with self._confined_snapshot() as snapshot:
            return snapshot.readable_since(key_range)

    def value(self, key: bytes) -> bytes | None:
        # Why past the snapshot where one call tells it, and kept: this is the path of every single read.
        reach = self._border.reach()
        known, start, end, read = self._latest
        if known is reach and start <= key and (end is None or key < end):
            return read(key)
        stretch = reach.at(key)
        if stretch is None:
            return self._value_in_snapshot(key)
        read = self._read_under(stretch.read)
        self._latest = (reach, stretch.range.start, stretch.range.end, read)
        return read(key)

    def _read_under(self, terms: Terms) -> _Read:
        """Return what reads values that may be read under these terms."""
        if not terms:
            return self._inner.value
        if len(terms) == 1:
            # Why the terms themselves are the fences: an engine knows the tuple again that it has seen hold.
            return self._inner.fenced_reader(b"", _Under(terms), self._value_in_snapshot)
        return self._value_in_snapshot

    def _value_in_snapshot(self, key: bytes) -> bytes | None:
        with self._confined_snapshot() as snapshot:
            return snapshot.value(key)

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        # Why the default way: the caller's fences are keys like any other, and may be outside.
        return Engine.fenced_value(self, key, fences)

    def fenced_reader(
        self, prefix: bytes, holder: FencesHolder, otherwise: Callable[[bytes], bytes | None]
    ) -> Callable[[bytes], bytes | None]:
        # Why the default way: it goes through `fenced_value`, and so past the reach.
        return Engine.fenced_reader(self, prefix, holder, otherwise)

    def fenced_snapshot(self, prefix: bytes, fences: Fences) -> Snapshot | None:
        # Why none: that of the engine inside would go past the reach.
        return None

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        with self._confined_snapshot() as snapshot:
            parts = snapshot.readable(key_range)
        if not parts and not key_range.is_empty:
            raise self._border.denied(READ, key_range)
        source = self._inner if self._history is None or self._border.reach().is_everything else self._history
        # Why all of the range, and not its parts alone: only of a watch on all keys is it sure that it comes to a revision.
        return ConfinedWatch(self._inner, source.watch(key_range, after=after), self._border, parts, key_range)

    # ---- writes ----------------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> int:
        return self._commits.commit(commit)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        # Why by commits: each batch is admitted, and guarded by the fences, as it is written.
        return load_by_commits(self, entries)

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        # Why the default way: it goes through `commit` and `snapshot`, and so past the reach and its fences.
        return Engine.put_sorted(self, keys, values, guards=guards, overwrite=overwrite)

    # ---- leases and history ----------------------------------------------------------------------------------------------

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        reach = self._border.reach()
        if reach.is_everything:
            return self._inner.lease(ttl_seconds, resume=resume)
        if self._leases is None or not reach.can_write:
            raise self._border.denied(WRITE, "a lease")
        return _ConfinedLease(self._leases.lease(ttl_seconds, resume=resume), self._border)

    def compact(self, revision: int) -> None:
        reach = self._border.reach()
        if reach.is_everything:
            self._inner.compact(revision)
        elif self._history is None or not reach.stretches:
            raise self._border.denied(WRITE, "the history")
        else:
            self._history.compact(revision)

    def close(self) -> None:
        self._border.shut(self._inner.profile.name)
        if self._closes_inner:
            self._inner.close()


class _ConfinedLease:
    """A lease of the caller's own, which is not renewed any more when nothing may be written."""

    def __init__(self, inner: Lease, border: Border) -> None:
        self._inner = inner
        self._border = border

    @property
    def id(self) -> int:
        return self._inner.id

    @property
    def ttl_seconds(self) -> float:
        return self._inner.ttl_seconds

    def keep_alive(self) -> float:
        if not self._border.reach().can_write:
            raise self._border.denied(WRITE, "a lease")
        return self._inner.keep_alive()

    def seconds_left(self) -> float:
        return self._inner.seconds_left()

    def revoke(self) -> None:
        self._inner.revoke()
