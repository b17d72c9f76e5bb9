"""The v2 keys API as coroutines: reads, writes that share commits, waits, and counts of them all. HTTP is in `endpoint`."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from keyplan.engine import Clock, KeyRange, Reads, Snapshot, WriteSet
from keyplan.errors import EngineError
from keyplan.server.access import Caller
from keyplan.server.answers import AnswerError
from keyplan.server.confined import CallerStore
from keyplan.server.etcd_member import BOOKS, Identity, load_identity
from keyplan.server.etcd_v2.answers import Code, KeysFailure, get_body
from keyplan.server.etcd_v2.backfill import Counted
from keyplan.server.etcd_v2.hub import Hub, Waiter
from keyplan.server.etcd_v2.ledger import Ledger, Outcome, counting_in, denied
from keyplan.server.etcd_v2.operations import Done, Operation
from keyplan.server.etcd_v2.reach import is_seen, may_write, part_shown
from keyplan.server.etcd_v2.records import STATE_KEY, Action, EventRecord, State, directories_of
from keyplan.server.etcd_v2.tree import Tree, below, children, is_within, keys_about, seen_below, subtree
from keyplan.server.logs import LOGGER
from keyplan.server.service import ServiceContext

__all__ = ["Gateway", "Waiting"]


# ---- counts -----------------------------------------------------------------------------------------------------------

_NAMES: Final = {
    Action.GET: "gets",
    Action.SET: "sets",
    Action.DELETE: "delete",
    Action.UPDATE: "update",
    Action.CREATE: "create",
    Action.COMPARE_AND_SWAP: "compareAndSwap",
    Action.COMPARE_AND_DELETE: "compareAndDelete",
}


class StoreStatistics:
    """Counters of one gateway."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def count(self, action: Action, *, is_success: bool) -> None:
        """Count a request."""
        if action in _NAMES:
            self._counts[_NAMES[action] + ("Success" if is_success else "Fail")] += 1

    def count_expiry(self) -> None:
        """Count a key or directory whose time was over."""
        self._counts["expireCount"] += 1

    @property
    def expired(self) -> int:
        """How many keys and directories ended by their TTL."""
        return self._counts["expireCount"]

    def operations(self) -> Iterator[tuple[str, str, int]]:
        """Yield kind, result and number of what was asked for."""
        for action, name in _NAMES.items():
            yield str(action), "success", self._counts[f"{name}Success"]
            yield str(action), "failure", self._counts[f"{name}Fail"]

    def report(self, watchers: int) -> dict[str, int]:
        """Return the counters as etcd names and orders them."""
        names = [name + outcome for name in _NAMES.values() for outcome in ("Success", "Fail")]
        return {name: self._counts[name] for name in [*names, "expireCount"]} | {"watchers": watchers}


# ---- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a read, and where the store stood."""

    body: str
    index: int
    revision: int


class Position(NamedTuple):
    """Where the counting and the store stand. `is_settled`: every change up to there has its number.

    `is_lost`: the counter is gone or damaged; what is submitted next begins it anew.
    """

    state: State
    revision: int
    is_settled: bool
    is_lost: bool = False

    def known(self) -> "Position":
        """Return it. Raises KeysFailure when the counter is lost."""
        if self.is_lost:
            raise KeysFailure(Code.RAFT_INTERNAL, "etcdserver: request timed out")
        return self


def position(ledger: Ledger, snapshot: Snapshot) -> Position:
    """Return where a snapshot stands."""
    found = counting_in(snapshot)
    if found is None:
        return Position(State(), snapshot.revision, is_settled=False, is_lost=True)
    state, is_quiet = found
    return Position(state, snapshot.revision, is_quiet or ledger.inbox.is_settled(state, snapshot.revision))


def read(
    ledger: Ledger,
    store: CallerStore,
    clock: Clock,
    path: str,
    *,
    is_recursive: bool,
    must_settle: bool,
    entries_max: int | None = None,
) -> Found | Position | None:
    """Return what is at a path; or the position, when changes without a number must be counted first.

    None: a listing takes the reading of more than `entries_max` keys. Raises KeysFailure. With `must_settle` false such changes
    show the number of the counter as it is.
    """
    with store.shown.snapshot() as snapshot:
        place = position(ledger, snapshot)
        if must_settle and not place.is_settled:
            return place
        # Why the counter for what is not counted: a client that waits from X-Etcd-Index + 1 gets that change as an event.
        state = place.known().state if place.is_settled else _with_floor(place.state)
        writes = WriteSet(Reads.of(snapshot), revision_written=snapshot.revision + 1)
        writes.reads.fetch_many(keys_about(path))
        node = Tree(writes, writes.holds_any if store.is_whole else seen_below(writes.holds_any), state).find(path)
        if node.is_directory:
            if is_recursive:
                listed = subtree(snapshot, node, state, entries_max=entries_max)
            else:
                listed = children(snapshot, node, state, entries_max=entries_max)
            if listed is None:
                return None
            node = node._replace(nodes=listed)
        return Found(get_body(node, int(clock.wall() * 1e9)), state.index, place.revision)


def _with_floor(state: State) -> State:
    return State(state.index, state.settled, state.position, state.index, state.cleared)


# ---- the gateway ------------------------------------------------------------------------------------------------------

_SETTLE_ROUNDS_MAX: Final = 3
"""Why: while others write without a pause, a read shows what was not counted with the counter as it is."""

_READ_AT_ONCE_ENTRIES_MAX: Final = 64
"""Why: reading a cluster's dozen keys costs less than handing it to a thread; a long listing would hold up others."""

_BATCH_OPERATIONS_MAX: Final = 200
"""Why: those who wait for a batch's answer should not wait for longer than a few flushes of the disk."""

_PENDING_OPERATIONS_MAX: Final = 10_000

_EXPIRE: Final = '{"action":"expire"'
_TIMED_OUT: Final = KeysFailure(Code.RAFT_INTERNAL, "etcdserver: request timed out")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A wait that has begun, whose it is, and where the counting stood then."""

    waiter: Waiter
    store: CallerStore
    index: int
    revision: int


class Gateway:
    """One store's v2 keys. Begins to count with the first request: a store without v2 clients pays nothing.

    What is asked is asked of the store of a caller. The ledger alone has all of it: it counts what others change.
    """

    def __init__(self, context: ServiceContext, ledger: Ledger, *, history_events: int) -> None:
        self._context = context
        self._ledger = ledger
        self._own = context.own(BOOKS)
        self.hub = Hub(history_events=history_events)
        self.statistics = StoreStatistics()
        self._identity: Identity | None = None
        self._starting = asyncio.Lock()
        self._is_started = False
        self._pending: list[_Submitted] = []
        self._writing: asyncio.Task[None] | None = None

    @property
    def revision(self) -> int:
        """The revision after the latest commit made here."""
        return self._ledger.revision

    @property
    def pending(self) -> int:
        """How many operations wait for a commit."""
        return len(self._pending)

    @property
    def uncounted(self) -> int:
        """How many changes of others wait for a number."""
        return self._ledger.inbox.uncounted

    @property
    def identity(self) -> Identity:
        """Who the store is; known once the service runs."""
        assert self._identity is not None
        return self._identity

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Surround the requests."""
        self._identity = await self._context.run(load_identity, self._own)
        ending = asyncio.create_task(self._end_waits())
        try:
            yield
        finally:
            ending.cancel()
            self.hub.close()
            if self._writing is not None:
                await asyncio.wait([self._writing])
            await asyncio.to_thread(self._ledger.stop)

    async def _end_waits(self) -> None:
        await self._context.closing.wait()
        self.hub.close()

    # ---- starting -------------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        """Begin to count, or begin again after the engine was away."""
        if self._is_started and self._ledger.inbox.error is None:
            return
        async with self._starting:
            if self._is_started and self._ledger.inbox.error is None:
                return
            loop = asyncio.get_running_loop()
            early: list[tuple[Sequence[Counted], bool]] = []
            is_early = True

            def take(counted: Sequence[Counted], is_waiting: bool) -> None:  # noqa: FBT001 # as below
                if is_early:
                    early.append((counted, is_waiting))
                else:
                    self._take(counted, is_waiting)

            def sink(counted: Sequence[Counted], is_waiting: bool) -> None:  # noqa: FBT001 # called by the ledger
                loop.call_soon_threadsafe(take, counted, is_waiting)

            try:
                await self._context.run(self._ledger.stop)
                history = await self._context.run(self._ledger.start, sink)
            except EngineError as error:
                raise KeysFailure(Code.RAFT_INTERNAL, "etcdserver: request timed out") from error
            # Invariant: the hub is told of events in their order, so that what the follower brings waits for the history.
            self.hub.deliver([history])
            is_early = False
            for counted, is_waiting in early:
                self._take(counted, is_waiting)
            self._is_started = True

    def _take(self, counted: Sequence[Counted], is_waiting: bool) -> None:  # noqa: FBT001 # as above
        self.hub.deliver(counted)
        for record in (record for each in counted for record in each.records):
            if record.body.startswith(_EXPIRE):
                self.statistics.count_expiry()
        if self._ledger.inbox.error is not None:
            self.hub.end_waits()  # Why: nobody would tell them; their clients ask again, which begins anew.
        elif is_waiting and not self._pending:
            self._submit(None)

    # ---- reading --------------------------------------------------------------------------------------------------------

    async def store_of(self, caller: Caller) -> CallerStore:
        """Return the store of who asks, for one request."""
        return await self._context.store_of(caller)

    async def get(self, store: CallerStore, path: str, *, is_recursive: bool) -> Found:
        """Return what is at a path; of a directory, what the caller may see of it. Raises KeysFailure (110: nothing)."""
        if not is_seen(store.reach(), path):
            raise denied()
        await self._start()
        context = self._context
        look = partial(read, self._ledger, store, context.clock, path, is_recursive=is_recursive)
        entries_max = _READ_AT_ONCE_ENTRIES_MAX if context.profile.has_local_reads else None
        for attempt in range(_SETTLE_ROUNDS_MAX + 1):
            must_settle = attempt < _SETTLE_ROUNDS_MAX
            found = await context.read(look, must_settle=must_settle, entries_max=entries_max)
            if found is None:
                found = await context.run(look, must_settle=must_settle)
            if isinstance(found, Found):
                return found
            await self._submit(None)
        raise AssertionError("the last attempt does not wait")

    async def is_readable(self) -> bool:
        """Tell whether the store can be read."""

        def read_one() -> None:
            with self._own.snapshot() as snapshot:
                snapshot.get(STATE_KEY)

        try:
            await self._context.run(read_one)
        except (EngineError, AnswerError):
            return False
        return True

    async def wait(
        self, store: CallerStore, path: str, *, is_recursive: bool, is_stream: bool, wait_index: int
    ) -> Waiting:
        """Begin to wait. Raises KeysFailure: 110 as `get`, 401 when events from `wait_index` on are no longer kept."""
        if not is_seen(store.reach(), path):
            raise denied()
        await self._start()
        place = await self._context.read(self._position)
        if not place.is_settled:
            await self._submit(None)
            place = await self._context.read(self._position)
        state = place.known().state
        if 0 < wait_index <= state.cleared:
            raise _cleared(state.cleared, wait_index, state.index)
        # Why known before: a stream takes so many events at once, and those of a former owner are none of them.
        behind = await self._context.read(_readable_since, store, path) if wait_index and not store.is_whole else 0

        def may_show(record: EventRecord) -> bool:
            is_inside = record.path == path or is_within(record.path, path)
            return (record.revision > behind or not is_inside) and part_shown(store.reach(), record) is not None

        since = wait_index or state.index + 1
        waiter = Waiter(
            path,
            is_recursive=is_recursive,
            is_stream=is_stream,
            since=since,
            may_show=None if store.is_whole else may_show,
        )
        if not self.hub.wait(waiter):
            raise _cleared(self.hub.cleared, since, self.hub.index)
        return Waiting(waiter, store, state.index, place.revision)

    async def next_body(self, waiting: Waiting) -> str | None:
        """Return the JSON of the next event that the caller may be shown; None at the end, and at that of their right.

        Raises EngineError when that cannot be found out.
        """
        waiter, store = waiting.waiter, waiting.store
        while (record := await waiter.next_event()) is not None:
            if store.is_whole:
                return record.body
            part = part_shown(store.reach(), record)
            if part is None:
                return None
            # Why at the end, and by the change's own revision: what was another's then is not told to the next owner.
            since = await self._context.read(store.readable_since, part)
            if since is None:
                return None
            if record.revision > since:
                return record.body
            if not waiter.is_stream:
                waiter.resume()
                if not self.hub.wait(waiter):
                    return None
        return None

    def _position(self) -> Position:
        with self._own.snapshot() as snapshot:
            return position(self._ledger, snapshot)

    # ---- writing --------------------------------------------------------------------------------------------------------

    async def write(self, store: CallerStore, operation: Operation) -> Done:
        """Carry out a write. Raises KeysFailure, 110 where the caller may not write."""
        if not may_write(store.reach(), operation):
            raise denied()
        await self._start()
        outcome = await self._submit(operation, store)
        if isinstance(outcome, KeysFailure):
            raise outcome.again()
        assert outcome is not None
        return outcome

    def _submit(
        self, operation: Operation | None, store: CallerStore | None = None
    ) -> "asyncio.Future[Outcome | None]":
        """Queue an operation; None only has changes counted."""
        future: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        if len(self._pending) >= _PENDING_OPERATIONS_MAX:
            future.set_result(KeysFailure(Code.RAFT_INTERNAL, "etcdserver: too many requests", is_refusal=True))
            return future
        self._pending.append(_Submitted(operation, store, future))
        if self._writing is None or self._writing.done():
            self._begin_writing()
        return future

    def _begin_writing(self) -> None:
        # Why a context of its own: it commits for many, and what it does is noted with each of them.
        self._writing = asyncio.create_task(self._write_pending(), context=Context())
        self._writing.add_done_callback(self._go_on_writing)

    def _go_on_writing(self, ended: "asyncio.Task[None]") -> None:
        """Log what a batch failed with. Others wait behind it, and nobody else would write for them."""
        if not ended.cancelled() and ended.exception() is not None:
            LOGGER.error("a batch of writes failed", exc_info=ended.exception())
        if self._pending and ended is self._writing:
            self._begin_writing()

    async def _write_pending(self) -> None:
        """Carry out what is queued, batch by batch: while one commits, the next gathers."""
        while self._pending:
            batch, self._pending = self._pending[:_BATCH_OPERATIONS_MAX], self._pending[_BATCH_OPERATIONS_MAX:]
            try:
                for store, submitted in _by_store(batch).items():
                    await self._write_together(store, submitted)
            finally:
                for one in batch:
                    if not one.future.done():
                        one.future.set_result(None if one.operation is None else _TIMED_OUT)

    async def _write_together(self, store: CallerStore | None, submitted: Sequence["_Submitted"]) -> None:
        """Carry out what one caller submitted, or all who may do everything."""
        operations = [one.operation for one in submitted if one.operation is not None]
        try:
            outcomes = iter(await self._context.run(self._ledger.run, operations, store))
        except AnswerError:
            outcomes = iter(())  # Why: more is asked of the server than its threads can do; those who wait are told so.
        for one in submitted:
            outcome = None if one.operation is None else next(outcomes, _TIMED_OUT)
            if not one.future.done():
                one.future.set_result(outcome)


def _cleared(cleared: int, wait_index: int, index: int) -> KeysFailure:
    cause = f"the requested history has been cleared [{cleared + 1}/{wait_index}]"
    return KeysFailure(Code.EVENT_INDEX_CLEARED, cause, index)


def _readable_since(store: CallerStore, path: str) -> int:
    """Return the revision up to which a caller is told nothing of a path and of what is below it."""
    inside = (KeyRange.of_key(path.encode()), below(path))
    found = [store.readable_since(part) for keys in inside for part in (keys, directories_of(keys))]
    return min((since for since in found if since is not None), default=0)


class _Submitted(NamedTuple):
    """An operation of a caller that waits to be carried out; without both, others' changes are to be counted."""

    operation: Operation | None
    store: CallerStore | None
    future: "asyncio.Future[Outcome | None]"


def _by_store(batch: Sequence[_Submitted]) -> dict[CallerStore | None, list[_Submitted]]:
    """Return what was submitted by whose store it is on; None: by who may do everything, and of nobody's."""
    by_store: dict[CallerStore | None, list[_Submitted]] = {}
    for one in batch:
        # Why only when it is carried out: who could do everything when they asked may have lost it while they waited.
        store = None if one.store is None or one.store.is_whole else one.store
        by_store.setdefault(store, []).append(one)
    return by_store
