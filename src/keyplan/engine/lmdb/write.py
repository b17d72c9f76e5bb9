"""One write transaction: guards, mutations, the log, leases. The state row is read at its begin and stored at its end."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from operator import attrgetter
from typing import Final

import lmdb

from keyplan.engine.clock import Clock
from keyplan.engine.guards import check_guards
from keyplan.engine.interface import (
    NO_LEASE,
    Commit,
    Delete,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
)
from keyplan.engine.lmdb.format import (
    EVENT,
    HEADER,
    LEASE_ID,
    LOG_KEY,
    STATE_KEY,
    Databases,
    LeaseRecord,
    State,
    header_of,
)
from keyplan.engine.lmdb.snapshot import HistorySnapshot, LmdbSnapshot, RawSnapshot
from keyplan.errors import CommitConflictError, InvalidInputError

__all__ = ["WriteTransaction"]

_LOG_PART_BYTES: Final = 1 << 18
"""Why: a revision of any size is written, and read again, in parts that fit in memory."""

_TRIMMED_PARTS_MAX: Final = 8
"""Why: a commit writes one part as a rule; removing up to eight catches up after `history` was lowered, and stays cheap."""

_KEY: Final = attrgetter("key")
_unpack: Final = HEADER.unpack_from


class WriteTransaction:
    """What work in the commit queue is given. LMDB lets one of them exist at a time, in all processes together.

    Nothing is written before every check of a piece of work has passed, so that one that is refused leaves no trace in a
    transaction that it shares with others.
    """

    __slots__ = (
        "_clock",
        "_databases",
        "_history_revisions_max",
        "_state_as_read",
        "_transaction",
        "has_changes",
        "has_history",
        "state",
    )

    def __init__(
        self,
        transaction: "lmdb.Transaction[bytes]",
        databases: Databases,
        clock: Clock,
        history_revisions_max: int,
    ) -> None:
        self._transaction = transaction
        self._databases = databases
        self._clock = clock
        self._history_revisions_max = history_revisions_max
        self._state_as_read = transaction.get(STATE_KEY, None, databases.meta)
        self.state = State.unpack(self._state_as_read)
        self.has_changes = False
        self.has_history = history_revisions_max > 0

    def snapshot(self) -> LmdbSnapshot:
        """Return reads of the state as this transaction has it. Not to be closed."""
        if self.has_history:
            return HistorySnapshot(self._transaction, self._databases, set(), {})
        return RawSnapshot(self._transaction, self._databases, set(), {})

    def save_state(self) -> None:
        """Store the state row, if it changed."""
        if self.has_history and (packed := self.state.pack()) != self._state_as_read:
            self._transaction.put(STATE_KEY, packed, db=self._databases.meta)
            self.has_changes = True

    # ---- commits ------------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> int:
        """Check the guards and the leases, then write. Return the revision after it."""
        guards, mutations = commit.guards, commit.mutations
        if self.has_history and guards and type(guards[0]) is KeyAbsent and self._create(guards, mutations):
            return self.state.revision
        if guards and not (self.has_history and self._hold(guards)):
            check_guards(guards, self.snapshot())  # Why again: it names every guard that does not hold.
        for mutation in mutations:
            if type(mutation) is Put and mutation.lease != NO_LEASE:
                self.living_lease(mutation.lease)
        if not self.has_history:
            return self._apply_raw(mutations)
        return self.apply(mutations, present={guard.key for guard in guards if type(guard) is KeyUnchanged})

    def _create(self, guards: Sequence[Guard], mutations: Sequence[Mutation]) -> bool:
        """Carry out a commit that only makes new entries, and return True; else False, and nothing is written.

        Why: most commits insert records. Their guards say that the keys are absent, and LMDB tells that in the descent that
        writes a key: asking first would be another. Where an entry turns out to be in the way, what was written is taken back.
        The first guard of such a commit, that of its first record, is asked before this is tried.
        """
        transaction, revision = self._transaction, self.state.revision + 1
        header, pack = HEADER.pack(revision, revision, 1, NO_LEASE), EVENT.pack
        stored: dict[bytes, bytes] = {}
        events: list[bytes] = []
        for mutation in _by_key(mutations):
            if type(mutation) is not Put or mutation.lease != NO_LEASE:
                return False
            key, raw = mutation.key, header + mutation.value
            stored[key] = raw
            events += (pack(len(key), len(raw), 0), key, raw)
        if not self._hold_beside(guards, stored):
            return False
        _, added = transaction.cursor().putmulti(stored.items(), overwrite=False)
        if added < len(stored):
            for key, raw in stored.items():
                # Invariant: nothing older has the revision in its header; what has it was written just now.
                if transaction.get(key) == raw:
                    transaction.delete(key)
            return False
        if sum(map(len, events)) <= _LOG_PART_BYTES:
            self._log_part(revision, 0, events)
        else:
            self._log(revision, ((key, raw, b"") for key, raw in stored.items()))
        self._reach(revision)
        return True

    def _hold_beside(self, guards: Sequence[Guard], stored: Mapping[bytes, bytes]) -> bool:
        """Tell whether the guards hold that writing new entries does not check. False when none says that they are new."""
        beside: list[Guard] = []
        for guard in guards:
            if type(guard) is KeyAbsent and guard.key in stored:
                continue
            if type(guard) is KeyUnchanged and guard.key in stored:
                return False
            beside.append(guard)
        return not beside or (len(beside) < len(guards) and self._hold(beside))

    def _hold(self, guards: Iterable[Guard]) -> bool:
        """Tell whether guards hold, in a store with history.

        Why not by a snapshot's entries: nearly all guards are on single keys, and ask for a number in the stored bytes.
        """
        get = self._transaction.get
        for guard in guards:
            if type(guard) is KeyUnchanged:
                raw = get(guard.key)
                if raw is None or _unpack(raw)[1] != guard.revision:
                    return False
            elif type(guard) is KeyAbsent:
                if get(guard.key) is not None:
                    return False
            else:
                try:
                    check_guards((guard,), self.snapshot())
                except CommitConflictError:
                    return False
        return True

    def apply(self, mutations: Sequence[Mutation], *, present: Set[bytes] = frozenset()) -> int:
        """Write mutations that were checked, and log them. Return the revision after it.

        `present` are keys known to be stored: others are taken for new until it shows that they are not.
        """
        revision = self.state.revision + 1
        if self._log(revision, self._changes(_by_key(mutations), revision, present)):
            self._reach(revision)
        return self.state.revision

    def _reach(self, revision: int) -> None:
        """Be at a revision whose entries and events are written."""
        state = self.state
        state.revision = revision
        state.compacted = max(state.compacted, revision - self._history_revisions_max)
        self.has_changes = True
        if state.compacted:
            self.trim_log(parts_max=_TRIMMED_PARTS_MAX)

    def _changes(
        self, mutations: Iterable[Mutation], revision: int, present: Set[bytes]
    ) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Carry out the mutations one by one; yield key, stored bytes after and before (empty for none)."""
        transaction = self._transaction
        put = transaction.put
        fresh = HEADER.pack(revision, revision, 1, NO_LEASE)
        for mutation in mutations:
            if isinstance(mutation, Put):
                key = mutation.key
                if mutation.lease == NO_LEASE and key not in present:
                    after = fresh + mutation.value
                    # Why: what is new is written in one descent of the tree; asking first would be another.
                    if put(key, after, overwrite=False):
                        yield key, after, b""
                        continue
                before = transaction.get(key, b"")
                yield key, self._put(mutation, before, revision), before
            elif isinstance(mutation, Delete):
                removed = transaction.pop(mutation.key)
                if removed is not None:
                    self._detach(mutation.key, removed)
                    yield mutation.key, b"", removed
            else:
                yield from self._delete_range(mutation.range)

    def _put(self, put: Put, before: bytes, revision: int) -> bytes:
        create, version = revision, 0
        if before:
            create, _, version, lease = header_of(put.key, before)
            if lease != NO_LEASE:
                self._detach(put.key, before)
        after = HEADER.pack(create, revision, version + 1, put.lease) + put.value
        self._transaction.put(put.key, after)
        if put.lease != NO_LEASE:
            self._transaction.put(LEASE_ID.pack(put.lease), put.key, db=self._databases.lease_keys)
        return after

    def _delete_range(self, key_range: KeyRange) -> Iterator[tuple[bytes, bytes, bytes]]:
        if key_range.is_empty:
            return
        cursor = self._transaction.cursor()
        cursor.set_range(key_range.start)
        while True:
            key, before = cursor.item()
            if not key or key not in key_range:  # an empty key is where the database ends
                return
            cursor.delete()
            self._detach(key, before)
            yield key, b"", before

    def _apply_raw(self, mutations: Iterable[Mutation]) -> int:
        put = self._transaction.put
        for mutation in mutations:
            if isinstance(mutation, Put):
                put(mutation.key, mutation.value)
                self.has_changes = True
            elif isinstance(mutation, Delete):
                self.has_changes |= self._transaction.delete(mutation.key)
            else:
                cursor = self._transaction.cursor()
                while cursor.set_range(mutation.range.start) and cursor.key() in mutation.range:
                    self.has_changes |= cursor.delete()
        return 0

    def load(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Write ascending pairs. Raises CommitConflictError when a key exists."""
        last = self._transaction.cursor()
        if last.last() and last.key() >= pairs[0][0]:
            self.commit(Commit(tuple(KeyAbsent(key) for key, _ in pairs), tuple(Put(*pair) for pair in pairs)))
            return
        # Why: beyond the last key there is nothing to compare, and LMDB fills pages without searching.
        if self.has_history:
            revision = self.state.revision + 1
            header = HEADER.pack(revision, revision, 1, NO_LEASE)
            pairs = [(key, header + value) for key, value in pairs]
            self._log(revision, ((key, after, b"") for key, after in pairs))
            self._reach(revision)
        self._transaction.cursor().putmulti(pairs, append=True)
        self.has_changes = True

    def put_sorted(self, pairs: Sequence[tuple[bytes, bytes]], guards: Sequence[Guard], *, overwrite: bool) -> int:
        """Write ascending pairs into a store without history, and return how many of the keys are new."""
        check_guards(guards, self.snapshot())
        transaction, data = self._transaction, self._databases.data
        cursor = transaction.cursor()
        # Why: beyond the last key there is nothing to compare, and LMDB fills pages without searching.
        is_beyond = not cursor.last() or cursor.key() < pairs[0][0]
        before = transaction.stat(data)["entries"]
        transaction.cursor().putmulti(pairs, overwrite=overwrite or is_beyond, append=is_beyond)
        added: int = transaction.stat(data)["entries"] - before
        self.has_changes |= overwrite or bool(added)
        return added

    # ---- the log ------------------------------------------------------------------------------------------------------

    def _log(self, revision: int, changes: Iterable[tuple[bytes, bytes, bytes]]) -> bool:
        """Write the events of one revision, in parts. Return True when there were any."""
        events: list[bytes] = []
        part, size = 0, 0
        pack = EVENT.pack
        for key, after, before in changes:
            event = pack(len(key), len(after), len(before)) + key + after + before
            size += len(event)
            if size > _LOG_PART_BYTES and events:
                self._log_part(revision, part, events)
                part, events, size = part + 1, [], len(event)
            events.append(event)
        if events:
            self._log_part(revision, part, events)
        return bool(events)

    def _log_part(self, revision: int, part: int, events: list[bytes]) -> None:
        key = LOG_KEY.pack(revision, part)
        self._transaction.put(key, b"".join(events), append=True, db=self._databases.log)

    def compact(self, revision: int) -> None:
        """Declare the history up to and including `revision` gone; `trim_log` removes it."""
        if revision > self.state.revision:
            raise InvalidInputError(source="revision", problem=f"the store is at revision {self.state.revision}")
        self.state.compacted = max(self.state.compacted, revision)

    def trim_log(self, *, parts_max: int) -> bool:
        """Remove parts of compacted revisions, at most so many. Return True when some may be left."""
        if self.state.compacted == 0:
            return False
        cursor = self._transaction.cursor(self._databases.log)
        cursor.first()
        for _ in range(parts_max):
            key = cursor.key()
            if not key or LOG_KEY.unpack(key)[0] > self.state.compacted:
                return False
            cursor.delete()
            self.has_changes = True
        return True

    # ---- leases -------------------------------------------------------------------------------------------------------

    def grant_lease(self, ttl_seconds: float) -> int:
        """Store a new lease that lives from now. Return its id."""
        self.state.leases_granted += 1
        self.state.leases_living += 1
        lease = self.state.leases_granted
        self.put_lease(lease, LeaseRecord.starting_now(ttl_seconds, self._clock, seconds=ttl_seconds))
        return lease

    def put_lease(self, lease: int, record: LeaseRecord) -> None:
        self._transaction.put(LEASE_ID.pack(lease), record.pack(), db=self._databases.leases)
        self.has_changes = True

    def living_lease(self, lease: int) -> LeaseRecord:
        """Return a lease whose time is not over. Raises LeaseNotFoundError."""
        return LeaseRecord.living(lease, self._transaction, self._databases, self._clock)

    def keep_alive(self, lease: int) -> float:
        """Start a lease's time again. Return the seconds that it now has."""
        ttl_seconds = self.living_lease(lease).ttl_seconds
        self.put_lease(lease, LeaseRecord.starting_now(ttl_seconds, self._clock, seconds=ttl_seconds))
        return ttl_seconds

    def end_lease(self, lease: int) -> None:
        """Delete a lease's entries in one revision, and the lease. One that is gone is no error."""
        lease_key = LEASE_ID.pack(lease)
        if self._transaction.pop(lease_key, db=self._databases.leases) is None:
            return
        self.state.leases_living -= 1
        self.has_changes = True
        cursor = self._transaction.cursor(self._databases.lease_keys)
        keys = list(cursor.iternext_dup()) if cursor.set_key(lease_key) else []
        self.apply([Delete(key) for key in keys])

    def expire_leases(self) -> float:
        """End every lease whose time is over, the earliest first; carry the others over to this run of the machine.

        Return in how many seconds the next one is over, infinity without one.
        """
        ended: list[tuple[float, int]] = []
        next_seconds = math.inf
        for raw_id, raw in list(self._transaction.cursor(self._databases.leases)):
            (lease,), record = LEASE_ID.unpack(raw_id), LeaseRecord.unpack(raw)
            seconds_left = record.seconds_left(self._clock)
            if seconds_left <= 0:
                ended.append((seconds_left, lease))
                continue
            next_seconds = min(next_seconds, seconds_left)
            if record.epoch != self._clock.epoch():
                moved = LeaseRecord.starting_now(record.ttl_seconds, self._clock, seconds=seconds_left)
                self.put_lease(lease, moved)
        for _, lease in sorted(ended):
            self.end_lease(lease)
        return next_seconds

    def _detach(self, key: bytes, stored: bytes) -> None:
        lease = header_of(key, stored)[3]
        if lease != NO_LEASE:
            self._transaction.delete(LEASE_ID.pack(lease), key, db=self._databases.lease_keys)


def _by_key(mutations: Sequence[Mutation]) -> Sequence[Mutation]:
    """Return the mutations in the order of keys, in which the log has them. No two touch one key, so their order is free."""
    try:
        return sorted(mutations, key=_KEY) if len(mutations) > 1 else mutations
    except AttributeError:  # a range has no key
        return sorted(mutations, key=_first_key)


def _first_key(mutation: Mutation) -> bytes:
    return mutation.key if isinstance(mutation, Put | Delete) else mutation.range.start
