"""The one place where v2 writes happen: a batch of operations becomes one commit, guarded by the event counter.

Every gateway on a store goes through the same State, so that they agree on numbers, whoever writes. What others changed is
counted by the gateway; what a caller writes who is confined goes through the caller's own engine.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from keyplan.engine import (
    NO_LEASE,
    Backoff,
    Capability,
    Clock,
    Commit,
    DeleteRange,
    Engine,
    Entry,
    Event,
    KeyAbsent,
    KeyUnchanged,
    Lease,
    Mutation,
    Put,
    Reads,
    Snapshot,
    WriteSet,
    ended_lease_is_conflict,
)
from keyplan.errors import (
    AccessDeniedError,
    CommitConflictError,
    CorruptionError,
    EngineError,
    EngineLimitError,
    HistoryCompactedError,
    KeyplanError,
    LeaseNotFoundError,
    QuotaExceededError,
    UnsupportedByEngineError,
)
from keyplan.server.confined import CallerStore
from keyplan.server.etcd_member import NO_SPACE, Follower
from keyplan.server.etcd_v2.answers import Code, KeysFailure
from keyplan.server.etcd_v2.backfill import Backfill, Counted, Inbox, Uncounted, kept_events
from keyplan.server.etcd_v2.operations import Done, Journal, Operation, Work
from keyplan.server.etcd_v2.reach import has_directory
from keyplan.server.etcd_v2.records import EVENTS, FIRST_INDEX, INDEX_END, STATE_KEY, State, last_number, pack, state_in
from keyplan.server.etcd_v2.tree import Tree, is_within, keys_about, seen_below
from keyplan.server.logs import LOGGER

__all__ = ["Ledger", "Outcome", "counting_in", "denied"]

Outcome = Done | KeysFailure

_OPERATIONS_MAX: Final = 1_000
"""Why: a commit of this many writes takes some 20 ms; those who wait behind it should not wait for longer."""

_SETTLING_ROUNDS_MAX: Final = 3
"""Why: where others write without a pause there is always something to count. A confined write then goes before what does not
concern it, whose number is a higher one."""

_OF_ONE: Final = (EngineLimitError, CorruptionError, AccessDeniedError, QuotaExceededError)
"""Failures of a commit for which only one of the operations in it may be to blame."""

_ROUND_OPERATIONS: Final = 16
"""What one write may add to a commit: its key, its record, its event, the event that is dropped, and levels above it."""


def counting_in(snapshot: Snapshot) -> tuple[State, bool] | None:
    """Return where the counting stood, and whether nothing was changed since by anybody else.

    None: nobody can tell, before it began, and when its State is gone or damaged.
    """
    entry = snapshot.get(STATE_KEY)
    state = None if entry is None else state_in(entry)
    if entry is None or state is None:
        return None
    is_quiet = entry.mod_revision == snapshot.revision and (state.settled, state.position) == (snapshot.revision - 1, 0)
    return state, is_quiet


class Ledger:
    """Writes on one store. `start` before use; `run` is called by one thread at a time."""

    def __init__(self, engine: Engine, clock: Clock, *, history_events: int, backoff: Backoff | None = None) -> None:
        for capability in (Capability.REVISIONS, Capability.WATCH, Capability.LEASES):
            if not engine.profile.claims(capability):
                raise UnsupportedByEngineError(engine=engine.profile.name, capability=capability.value)
        self._engine = engine
        self._clock = clock
        self._history_events = history_events
        self._backoff = backoff or Backoff()
        self.leases: Final = LeasePool(engine, clock)
        self._follower: Follower | None = None
        self.inbox = Inbox(0)
        self.revision = 0
        """The revision after the latest commit made here."""
        allowed = engine.profile.commit_operations_max
        self._operations_max = min(_OPERATIONS_MAX, allowed or _OPERATIONS_MAX)

    # ---- starting -------------------------------------------------------------------------------------------------------

    def start(self, sink: Callable[[Sequence[Counted], bool], None]) -> Counted:
        """Begin to count, where the store's counting stands; return the kept history.

        `sink` gets what is counted as it is committed, by whomever, and whether changes wait for a number; from another thread.
        """
        while True:
            with self._engine.snapshot() as snapshot:
                found = counting_in(snapshot)
                history = None if found is None else kept_events(snapshot, found[0])
                self.revision = revision = snapshot.revision
            if found is None or history is None:
                self._begin()
                continue
            state = found[0]
            inbox = self.inbox = Inbox(state.settled, told=revision, index=state.index)
            try:
                self._follow(inbox, state.settled, sink)
            except HistoryCompactedError:
                self._skip_gap()
                continue
            return history

    def _follow(self, inbox: Inbox, after: int, sink: Callable[[Sequence[Counted], bool], None]) -> None:
        # Why a level of calls: the sink is told of what the inbox makes of a batch.
        def take(events: Sequence[Event], reached: int) -> None:
            counted, is_waiting = inbox.add(events, reached)
            if counted or is_waiting:
                sink(counted, is_waiting)

        def lose(error: KeyplanError) -> None:
            inbox.fail(error)
            sink((), True)  # noqa: FBT003 # a callable cannot name its arguments

        self._follower = Follower(self._engine, after=after, sink=take, lost=lose)

    def stop(self) -> None:
        """End following. Stopping twice is harmless."""
        if self._follower is not None:
            self._follower.stop()
            self._follower = None

    def _begin(self) -> None:
        """Write the first State; where one was lost, one behind all numbers that were given. Another gateway may be faster."""
        with self._engine.snapshot() as snapshot:
            if counting_in(snapshot) is not None:
                return
            entry = snapshot.get(STATE_KEY)
            last = max(last_number(snapshot), self.inbox.index if self.inbox.index < INDEX_END else 0)
            if entry is not None or last:
                self._leap(snapshot, entry, last=max(last, FIRST_INDEX), settled=snapshot.revision, position=0)
                LOGGER.error("the event counter was gone or damaged; it goes on behind every number that is known")
            else:
                state = State(settled=snapshot.revision)
                self._try(Commit((KeyAbsent(STATE_KEY),), (Put(STATE_KEY, pack(state)),), snapshot.epoch))

    def _skip_gap(self) -> None:
        """Go on counting where changes are no longer known."""
        with self._engine.snapshot() as snapshot:
            self._leap_from(snapshot, settled=snapshot.revision, position=0)

    def _leap_from(self, snapshot: Snapshot, *, settled: int, position: int) -> None:
        found = counting_in(snapshot)
        if found is not None:
            self._leap(snapshot, snapshot.get(STATE_KEY), last=found[0].index, settled=settled, position=position)

    def _leap(self, snapshot: Snapshot, entry: Entry | None, *, last: int, settled: int, position: int) -> None:
        """Go on counting behind what nobody can be told of: a new floor, no history, and a number that nobody has seen."""
        index = last + self._history_events + 1
        state = State(index, settled, position, index, index)
        guard = KeyAbsent(STATE_KEY) if entry is None else KeyUnchanged(STATE_KEY, entry.mod_revision)
        self._try(Commit((guard,), (Put(STATE_KEY, pack(state)), DeleteRange(EVENTS)), snapshot.epoch))

    def _try(self, commit: Commit) -> None:
        try:
            self._engine.commit(commit)
        except CommitConflictError:
            return  # Why: another gateway did the same; its State is there now.

    # ---- writing --------------------------------------------------------------------------------------------------------

    def run(self, operations: Sequence[Operation], store: CallerStore | None = None) -> list[Outcome]:
        """Carry out operations in order, as few commits as possible, and count what others changed before them.

        They are those of the caller whose store it is; None: of callers who may do everything. Without operations, it only
        counts. What fails for all is each one's failure.
        """
        confined = None if store is None or store.is_whole else store
        outcomes: list[Outcome] = []
        rounds = 0
        is_refused = False
        while not outcomes or len(outcomes) < len(operations):
            rest = operations[len(outcomes) :]
            attempt = partial(self._attempt, rest, confined, must_settle=rounds < _SETTLING_ROUNDS_MAX)
            try:
                if is_refused:
                    self._count_apart()
                    is_refused = False
                done, is_settled = self._backoff.until_committed(attempt)
            except CommitConflictError:
                return outcomes + [_timed_out()] * len(rest)
            except KeysFailure as failure:
                return outcomes + [failure] * max(1, len(rest))
            except KeyplanError as error:
                # Why again: it may be others' changes that are too much for a commit, and no operation's fault.
                is_refused = isinstance(error, EngineLimitError) and rounds < _SETTLING_ROUNDS_MAX
                if is_refused:
                    rounds += 1
                else:
                    outcomes += self._failed(rest, error, confined)
                continue
            rounds = 0 if done else rounds + 1
            outcomes += done
            if not operations and is_settled:
                break
        return outcomes

    def _count_apart(self) -> None:
        """Count what others changed, as many changes in a commit as the store takes, and go past one that it takes in none.

        Why: nobody could write before they are counted.
        """
        changes_max, is_settled = self._operations_max, False
        while not is_settled:
            settle = partial(self._attempt, (), None, must_settle=True, changes_max=changes_max)
            try:
                _, is_settled = self._backoff.until_committed(settle)
                changes_max = min(2 * changes_max, self._operations_max)
            except EngineLimitError as error:
                if changes_max == 1:
                    self._go_past_one(error)
                changes_max = max(1, changes_max // 2)

    def _go_past_one(self, error: EngineLimitError) -> None:
        """Leave the first change that waits for its number without an event: who waits is told of a gap."""
        with self._engine.snapshot() as snapshot:
            found = counting_in(snapshot)
            pending = self.inbox.pending(found[0], snapshot.revision) if found is not None else []
            if pending:
                first = pending[0]
                facts = {"revision": first.revision, "path": first.path, "error": str(error)}
                LOGGER.error("a change is too large for an event; the history ends before it", extra={"facts": facts})
                self._leap_from(snapshot, settled=first.revision - 1, position=first.position + 1)

    def _failed(self, rest: Sequence[Operation], error: KeyplanError, store: CallerStore | None) -> list[Outcome]:
        """Return what an error of the engine is to those who wait; where only one of many may be to blame, try each alone."""
        if isinstance(error, _OF_ONE) and len(rest) > 1:
            return [outcome for operation in rest for outcome in self.run([operation], store)]
        if isinstance(error, AccessDeniedError):
            return [denied()]
        if isinstance(error, QuotaExceededError):
            return [KeysFailure(Code.RAFT_INTERNAL, NO_SPACE, is_refusal=True)]
        if isinstance(error, EngineLimitError):
            return [KeysFailure(Code.RAFT_INTERNAL, "etcdserver: request is too large", is_refusal=True)]
        if isinstance(error, CorruptionError):
            return [KeysFailure(Code.RAFT_INTERNAL, f"keyplan: {error}")]
        if isinstance(error, EngineError):
            return [_timed_out()] * max(1, len(rest))
        raise error

    def _attempt(
        self,
        operations: Sequence[Operation],
        store: CallerStore | None,
        *,
        must_settle: bool,
        changes_max: int = _OPERATIONS_MAX,
    ) -> tuple[list[Outcome], bool]:
        try:
            with ended_lease_is_conflict():
                found = self._round(operations, store, must_settle=must_settle, changes_max=changes_max)
                if found is not None:
                    return found
                # Why apart, and as the gateway: what others changed is not the caller's to write.
                self._round((), None, must_settle=True, changes_max=changes_max)
                return [], False
        except CommitConflictError:
            # Why: the lease may have ended between its grant and the commit, on a machine that stood still.
            self.leases.forget()
            raise

    def _round(
        self, operations: Sequence[Operation], store: CallerStore | None, *, must_settle: bool, changes_max: int
    ) -> tuple[list[Outcome], bool] | None:
        """Make one commit: of what others changed, then of as many operations as fit.

        None where others' changes have to be counted first and the operations are a confined caller's: all of them with
        `must_settle`, else those that concern the operations.
        """
        engine = self._engine if store is None else store.shown
        with engine.snapshot() as snapshot:
            found = counting_in(snapshot)
            if found is None:
                # Why the gateway: the counter is no caller's to begin.
                self._begin()
                raise CommitConflictError(failed=())
            state, is_quiet = found
            pending = [] if is_quiet else self.inbox.pending(state, snapshot.revision)
            if pending and store is not None and (must_settle or _is_any_about(pending, operations)):
                return None
            writes = WriteSet(Reads.of(snapshot), revision_written=snapshot.revision + 1)
            journal = Journal(
                writes, state, now_nanoseconds=int(self._clock.wall() * 1e9), history_events=self._history_events
            )
            may_make: Callable[[str], bool] = _always
            if store is None:
                tree = Tree(writes, writes.holds_any, state, lambda: journal.index)
                operations_max = self._operations_max - 1  # Why one less: the State.
                backfill = Backfill(writes, tree, journal, state, self._is_over, operations_max, changes_max)
                settled, position, is_settled = backfill.settle(pending, up_to=snapshot.revision)
            else:
                tree = Tree(writes, seen_below(writes.holds_any), state, lambda: journal.index)
                settled, position = (state.settled, state.position) if pending else (snapshot.revision, 0)
                is_settled, may_make = True, partial(has_directory, store.reach())
            done: list[Outcome] = []
            if is_settled:
                done = self._carry_out(operations, Work(writes, tree, journal, self.leases.lease_for, may_make))
            if not writes.has_writes:
                return done, is_settled
            writes.reads.read_set.add(STATE_KEY)
            writes.put(STATE_KEY, pack(journal.state(settled=settled, position=position)))
            commit = writes.commit()
        self.revision = revision = engine.commit(commit)
        return [one if isinstance(one, KeysFailure) else replace(one, revision=revision) for one in done], is_settled

    def _carry_out(self, operations: Sequence[Operation], work: Work) -> list[Outcome]:
        writes = work.writes
        writes.reads.fetch_many(
            dict.fromkeys(key for operation in operations[: self._operations_max] for key in keys_about(operation.path))
        )
        done: list[Outcome] = []
        for operation in operations:
            if done and not self._fits(operation, writes):
                break
            try:
                done.append(work.carry_out(operation))
            except KeysFailure as failure:
                done.append(failure)
        return done

    def _fits(self, operation: Operation, writes: WriteSet) -> bool:
        """Tell whether an operation may share the commit.

        Not one on a key that the commit writes already: v3 clients and watches are to see every value that was acknowledged.
        And none beside one that removes a directory.
        """
        if (
            writes.operations + _ROUND_OPERATIONS + operation.path.count("/") > self._operations_max
            or writes.has_ranges
        ):
            return False
        if operation.is_deletion:
            return not writes.has_writes
        return not writes.is_written(operation.path.encode())

    def _is_over(self, lease: int) -> bool:
        try:
            self._engine.lease(1.0, resume=lease)
        except LeaseNotFoundError:
            return True
        return False


def _always(_path: str) -> bool:
    return True


def _is_any_about(pending: Iterable[Uncounted], operations: Iterable[Operation]) -> bool:
    """Tell whether a change that waits for its number is of what an operation is on, above it or below it."""
    paths = {operation.path for operation in operations}
    return any(
        change.path in paths or any(is_within(change.path, path) or is_within(path, change.path) for path in paths)
        for change in pending
    )


def denied() -> KeysFailure:
    """Return what etcd tells those whose role has no permission there: its number for that, with index 0."""
    return KeysFailure(Code.UNAUTHORIZED, "Insufficient credentials")


def _timed_out() -> KeysFailure:
    return KeysFailure(Code.RAFT_INTERNAL, "etcdserver: request timed out")


# ---- leases -----------------------------------------------------------------------------------------------------------

SHARING_SECONDS: Final = 0.25
"""How long a lease takes more keys, and by how much it outlives a TTL at most. Why: etcd itself ends keys up to 0.5 s late."""

_PRUNE_AT: Final = 64
_NUMBERS_MAX: Final = 10_000


class LeasePool:
    """Leases for TTLs: keys written at about the same time for the same time share one, so that heartbeats share its cost.

    None is renewed: it ends with the keys that were not written again. They are the gateway's: callers share them, and none has
    one, so that nobody who reads its number off a key can take it up.

    Why not one lease for each key: renewing it and writing the key are two commits, and many clients' writes share one here.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._granted: dict[int, tuple[Lease, float]] = {}
        self._numbers: set[int] = set()

    def lease_for(self, ttl_seconds: int) -> int:
        """Return the id of a lease that lives at least `ttl_seconds` from now, and at most SHARING_SECONDS longer."""
        now = self._clock.monotonic()
        held = self._granted.get(ttl_seconds)
        if held is not None and now - held[1] < SHARING_SECONDS:
            return held[0].id
        if len(self._granted) >= _PRUNE_AT:
            self.forget()
        lease = self._engine.lease(ttl_seconds + SHARING_SECONDS)
        assert lease.id != NO_LEASE
        self._granted[ttl_seconds] = (lease, now)
        if len(self._numbers) >= _NUMBERS_MAX:
            self._numbers.clear()
        self._numbers.add(lease.id)
        return lease.id

    def forget(self) -> None:
        """Grant new leases from now on."""
        self._granted.clear()

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        """Refuse: the API has no leases. Raises LeaseNotFoundError."""
        raise LeaseNotFoundError(lease=resume)

    def check(self, mutations: Iterable[Mutation]) -> None:
        """Raise LeaseNotFoundError when one of the puts hangs on a lease that was not granted here lately."""
        for mutation in mutations:
            if isinstance(mutation, Put) and mutation.lease != NO_LEASE and mutation.lease not in self._numbers:
                raise LeaseNotFoundError(lease=mutation.lease)
