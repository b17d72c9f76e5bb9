"""`memory:`, the shortest correct engine: the model that judges the others, and the engine of tests.

State is a sorted map that edits never change (`sorted_entries`), so that a snapshot is one reference. Changes are kept by
revision for watches. Leases need no thread: every call first deletes what has expired, and a waiting watch wakes for it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from threading import Condition, Lock
from typing import Final
from uuid import uuid4

from keyplan.engine.admission import admit_commit, admit_pair, admit_ttl, require
from keyplan.engine.clock import SYSTEM_CLOCK, Clock
from keyplan.engine.fences import Fences, FencesHolder
from keyplan.engine.guards import check_guards
from keyplan.engine.interface import (
    NO_LEASE,
    Commit,
    Delete,
    Engine,
    Entry,
    Event,
    EventKind,
    KeyAbsent,
    KeyRange,
    Lease,
    Mutation,
    Put,
    Snapshot,
    Watch,
)
from keyplan.engine.lease import GrantedLease
from keyplan.engine.lineage import Lineage
from keyplan.engine.memory_snapshot import MemoryShare, MemorySnapshot
from keyplan.engine.profile import Capability, Profile
from keyplan.engine.sorted_entries import Draft, SortedEntries
from keyplan.engine.url import EngineUrl
from keyplan.errors import (
    EngineUnavailableError,
    HistoryCompactedError,
    InvalidInputError,
    LeaseNotFoundError,
)

__all__ = ["HISTORY_REVISIONS_DEFAULT", "MEMORY_PROFILE", "Memory", "MemoryEngine", "open_memory"]

HISTORY_REVISIONS_DEFAULT: Final = 100_000
"""Why: a watch that is 100,000 commits behind lists faster than it replays; small commits of that many take about 50 MiB."""

_LOAD_BATCH_ENTRIES: Final = 1_000
_POLL_EVENTS_MIN: Final = 1_000
"""A poll ends after the revision that brings it to this many events. Why: a resumed watch must not build one huge list."""
_LEASE_WAIT_SECONDS_MAX: Final = 0.05
"""Why: a waiting watch looks at an injected clock this often while leases exist; such a clock cannot wake it."""

MEMORY_PROFILE: Final = Profile(
    name="memory",
    capabilities=frozenset({Capability.REVISIONS, Capability.WATCH, Capability.LEASES}),
    key_bytes_max=None,
    value_bytes_max=None,
    commit_operations_max=None,
    commit_bytes_max=None,
    has_local_reads=True,
)


_KEY_OF: Final = attrgetter("key")


@dataclass(slots=True)
class _LeaseState:
    ttl_seconds: float
    deadline: float
    keys: set[bytes] = field(default_factory=set)


class Memory:
    """What the engines of one memory share.

    Invariant: everything happens under `condition`, but for reading `entries` and looking whether there are `leases` at all.
    """

    def __init__(self, clock: Clock, history_revisions_max: int) -> None:
        self.clock = clock
        self.history_revisions_max = history_revisions_max
        self.condition = Condition()
        self.lineage = Lineage(store=uuid4().hex, epoch="0")
        self.entries = SortedEntries()
        self.revision = 0
        self.compacted = 0
        self.history: dict[int, tuple[Event, ...]] = {}
        self.leases: dict[int, _LeaseState] = {}
        self.leases_granted = 0
        self.users = 0

    def copy(self, clock: Clock) -> "Memory":
        """Return a memory of its own that begins as this one is now, by another clock. Nothing may write to this meanwhile.

        The entries are shared, since an edit makes new ones: a copy of a small store takes microseconds.
        """
        twin = Memory.__new__(Memory)
        twin.__dict__.update(self.__dict__)
        twin.clock, twin.condition, twin.users = clock, Condition(), 0
        twin.history = self.history.copy()
        twin.leases = {
            lease: _LeaseState(state.ttl_seconds, state.deadline, state.keys.copy())
            for lease, state in self.leases.items()
        }
        return twin

    def apply(self, mutations: Iterable[Mutation]) -> int:
        """Write mutations that were checked. Return the revision after it."""
        draft = Draft(self.entries)
        revision = self.revision + 1
        events: list[Event] = []
        for mutation in mutations:
            if isinstance(mutation, Put):
                events.append(self._put(draft, mutation, revision))
                continue
            key_range = KeyRange.of_key(mutation.key) if isinstance(mutation, Delete) else mutation.range
            for entry in self.entries.scan(key_range):
                draft.remove(entry.key)
                self._detach(entry)
                events.append(Event(EventKind.DELETED, entry.key, revision, None, entry))
        if events:
            events.sort(key=_KEY_OF)
            self.entries = draft.result
            self.revision = revision
            self.history[revision] = tuple(events)
            if revision - self.history_revisions_max > self.compacted:
                self.forget(revision - self.history_revisions_max)
            self.condition.notify_all()
        return self.revision

    def _put(self, draft: Draft, put: Put, revision: int) -> Event:
        previous = self.entries.get(put.key)
        if previous is None:
            entry = Entry(put.key, put.value, revision, revision, 1, put.lease)
        else:
            entry = Entry(put.key, put.value, previous.create_revision, revision, previous.version + 1, put.lease)
            self._detach(previous)
        if put.lease != NO_LEASE:
            self.leases[put.lease].keys.add(put.key)
        draft.put(entry)
        return Event(EventKind.CREATED if previous is None else EventKind.UPDATED, put.key, revision, entry, previous)

    def _detach(self, entry: Entry) -> None:
        if entry.lease != NO_LEASE:
            self.leases[entry.lease].keys.discard(entry.key)

    def forget(self, revision: int) -> None:
        """Drop the history up to and including `revision`."""
        for old in range(self.compacted + 1, revision + 1):
            del self.history[old]
        self.compacted = max(self.compacted, revision)

    def expire_leases(self) -> None:
        """End every lease whose time is over: each in one revision, the earliest first."""
        if self.leases:
            now = self.clock.monotonic()
            over = [(state.deadline, lease) for lease, state in self.leases.items() if state.deadline <= now]
            for _, lease in sorted(over):
                self.end_lease(lease)

    def end_lease(self, lease: int) -> None:
        """Delete the entries of a lease in one revision, and the lease."""
        state = self.leases.get(lease)
        if state is not None:
            self.apply([Delete(key) for key in sorted(state.keys)])
            del self.leases[lease]

    def living_lease(self, lease: int) -> _LeaseState:
        self.expire_leases()
        if lease not in self.leases:
            raise LeaseNotFoundError(lease=lease)
        return self.leases[lease]


class MemoryEngine(Engine):
    """An engine in this process's memory: nothing is durable, nothing is shared with other processes.

    `history_revisions_max` bounds what a watch may resume from. A `profile` with limits of another engine makes this one
    refuse what that one would. Engines given the same `shared` memory are one store; it then decides clock and history.
    """

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        history_revisions_max: int = HISTORY_REVISIONS_DEFAULT,
        profile: Profile = MEMORY_PROFILE,
        shared: "Memory | None" = None,
    ) -> None:
        self._profile = profile
        self.is_closed = False
        """True after `close`."""
        self._state = Memory(clock, history_revisions_max) if shared is None else shared
        with self._state.condition:
            self._state.users += 1

    @property
    def profile(self) -> Profile:
        return self._profile

    def lineage(self) -> Lineage:
        self.check_open()
        return self._state.lineage

    @property
    def memory(self) -> Memory:
        """What this engine shares with those that were given its memory."""
        return self._state

    def check_open(self) -> None:
        """Raise EngineUnavailableError after `close`."""
        if self.is_closed:
            raise EngineUnavailableError(engine=self._profile.name, problem="the engine was closed")

    def snapshot(self) -> Snapshot:
        with self._state.condition:
            if self.is_closed:
                self.check_open()
            state = self._state
            if state.leases:
                state.expire_leases()
            return MemorySnapshot(self, state.entries, state.revision)

    def fenced_snapshot(self, prefix: bytes, fences: Fences) -> Snapshot | None:
        if not self._profile.has_local_reads:
            return None  # Why: in the place of an engine over a network, which has none.
        with self._state.condition:
            if self.is_closed:
                self.check_open()
            state = self._state
            if state.leases:
                state.expire_leases()
            entries, revision = state.entries, state.revision
        return MemoryShare(self, entries, revision, prefix) if entries.holds(fences) else None

    def value(self, key: bytes) -> bytes | None:
        # Why without a snapshot: the entries that are there now never change, and a single read asks for nothing else.
        if self.is_closed:
            self.check_open()
        state = self._state
        if state.leases:
            with state.condition:
                state.expire_leases()
        entry = state.entries.get(key)
        return None if entry is None else entry.value

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        if self.is_closed:
            self.check_open()
        state = self._state
        if state.leases:
            with state.condition:
                state.expire_leases()
        entries = state.entries  # Why without a snapshot: as in `value`; these entries are one state.
        if entries.held.get(id(fences)) is not fences and not entries.holds(fences):
            return False, None
        entry = entries.get(key)
        return True, None if entry is None else entry.value

    def fenced_reader(
        self, prefix: bytes, holder: FencesHolder, otherwise: Callable[[bytes], bytes | None]
    ) -> Callable[[bytes], bytes | None]:
        state = self._state

        def value(key: bytes) -> bytes | None:
            # Why written out: the path of every single read in a key space.
            if self.is_closed:
                self.check_open()
            if state.leases:
                with state.condition:
                    state.expire_leases()
            entries = state.entries
            fences = holder.fences
            if entries.held.get(id(fences)) is not fences and not entries.holds(fences):
                return otherwise(key)
            entry = entries.get(prefix + key)
            return None if entry is None else entry.value

        return value

    def commit(self, commit: Commit) -> int:
        if self.is_closed:
            self.check_open()
        admit_commit(self._profile, commit)
        state = self._state
        with state.condition:
            if self.is_closed:
                self.check_open()
            if state.leases:
                state.expire_leases()
            entries = state.entries
            if not entries.hold(commit.guards):
                # Why again: it names every guard that does not hold.
                check_guards(commit.guards, MemorySnapshot(self, entries, state.revision))
            for mutation in commit.mutations:
                if isinstance(mutation, Put) and mutation.lease != NO_LEASE and mutation.lease not in state.leases:
                    raise LeaseNotFoundError(lease=mutation.lease)
            return state.apply(commit.mutations)

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        self.check_open()
        require(self._profile, Capability.WATCH)
        with self._state.condition:
            self._state.expire_leases()
            if after < self._state.compacted:
                raise HistoryCompactedError(revision=after, compacted_revision=self._state.compacted)
        return _MemoryWatch(self, self._state, key_range, after)

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        self.check_open()
        admit_ttl(self._profile, ttl_seconds)
        state = self._state
        with state.condition:
            if resume != NO_LEASE:
                return _MemoryLease(self, state, resume, state.living_lease(resume).ttl_seconds)
            state.leases_granted += 1
            lease = state.leases_granted
            state.leases[lease] = _LeaseState(ttl_seconds, state.clock.monotonic() + ttl_seconds)
            return _MemoryLease(self, state, lease, ttl_seconds)

    def compact(self, revision: int) -> None:
        self.check_open()
        require(self._profile, Capability.REVISIONS)
        with self._state.condition:
            if revision > self._state.revision:
                raise InvalidInputError(source="revision", problem=f"the store is at revision {self._state.revision}")
            self._state.forget(revision)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        self.check_open()
        loaded = 0
        previous: bytes | None = None
        pairs = iter(entries)
        while batch := list(islice(pairs, _LOAD_BATCH_ENTRIES)):
            for key, value in batch:
                if previous is not None and key <= previous:
                    raise InvalidInputError(source="load", problem="keys must ascend", raw_key=key.hex())
                admit_pair(self._profile, key, value)
                previous = key
            with self._state.condition:
                self.check_open()
                state = MemorySnapshot(self, self._state.entries, self._state.revision)
                check_guards([KeyAbsent(key) for key, _ in batch], state)
                self._state.apply(Put(key, value) for key, value in batch)
            loaded += len(batch)
        return loaded

    def close(self) -> None:
        with self._state.condition:
            if not self.is_closed:
                self.is_closed = True
                self._state.users -= 1
                self._state.condition.notify_all()


class _MemoryWatch:
    def __init__(self, engine: MemoryEngine, state: Memory, key_range: KeyRange, after: int) -> None:
        self._engine = engine
        self._state = state
        self._range = key_range
        self._revision = after
        self._is_closed = False

    @property
    def revision(self) -> int:
        return self._revision

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        # Why: waiting takes real time, whatever clock the leases go by.
        give_up_at = SYSTEM_CLOCK.monotonic() + timeout_seconds
        with self._state.condition:
            while True:
                self._check_open()
                self._state.expire_leases()
                events = self._take()
                remaining = give_up_at - SYSTEM_CLOCK.monotonic()
                if events or remaining <= 0:
                    return events
                if self._state.leases:
                    remaining = min(remaining, _LEASE_WAIT_SECONDS_MAX)
                self._state.condition.wait(remaining)

    def _take(self) -> list[Event]:
        if self._revision < self._state.compacted:
            raise HistoryCompactedError(revision=self._revision, compacted_revision=self._state.compacted)
        events: list[Event] = []
        while self._revision < self._state.revision and len(events) < _POLL_EVENTS_MIN:
            self._revision += 1
            events += [event for event in self._state.history[self._revision] if event.key in self._range]
        return events

    def close(self) -> None:
        with self._state.condition:
            self._is_closed = True
            self._state.condition.notify_all()

    def _check_open(self) -> None:
        self._engine.check_open()
        if self._is_closed:
            raise EngineUnavailableError(engine=self._engine.profile.name, problem="the watch was closed")


class _MemoryLease(GrantedLease):
    def __init__(self, engine: MemoryEngine, state: Memory, lease: int, ttl_seconds: float) -> None:
        super().__init__(lease, ttl_seconds)
        self._engine = engine
        self._state = state

    def keep_alive(self) -> float:
        with self._state.condition:
            self._engine.check_open()
            self._state.living_lease(self._id).deadline = self._state.clock.monotonic() + self._ttl_seconds
        return self._ttl_seconds

    def seconds_left(self) -> float:
        with self._state.condition:
            self._engine.check_open()
            left = self._state.living_lease(self._id).deadline - self._state.clock.monotonic()
            # Why: a sum and a difference of floats may be more than what was added.
            return min(left, self._ttl_seconds)

    def revoke(self) -> None:
        with self._state.condition:
            self._engine.check_open()
            self._state.expire_leases()
            self._state.end_lease(self._id)


_named: dict[str, Memory] = {}
"""The memories that have a name. Invariant: one without users is replaced by an empty one when it is opened again."""
_naming = Lock()
"""Held from the look at a name until its memory has the new user: two threads that open one name get one memory."""


def open_memory(url: EngineUrl) -> Engine:
    """Open `memory:`, or `memory:NAME`, which is shared in this process for as long as one of its engines is open."""
    url.check_options({"history"})
    history_revisions_max = url.number("history", default=HISTORY_REVISIONS_DEFAULT, minimum=1)
    if not url.address:
        return MemoryEngine(history_revisions_max=history_revisions_max)
    with _naming:
        state = _named.get(url.address)
        if state is None or state.users == 0:
            state = _named[url.address] = Memory(SYSTEM_CLOCK, history_revisions_max)
        return MemoryEngine(shared=state)
