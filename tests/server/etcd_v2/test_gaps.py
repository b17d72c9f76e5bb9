"""Changes that no event can tell, and histories that are cleared: writes go on, and who waits is told or hears every event."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from keyplan.engine import Commit, Engine, MemoryEngine, Profile, Put, open_engine
from keyplan.errors import EngineError, EngineLimitError
from keyplan.server import Access, Caller, Closing, Role, ServiceContext, Stores, Workers
from keyplan.server.etcd_v2.answers import Code, KeysFailure
from keyplan.server.etcd_v2.gateway import Gateway, Waiting
from keyplan.server.etcd_v2.ledger import Ledger
from keyplan.server.etcd_v2.operations import Done, Operation
from keyplan.server.etcd_v2.records import EVENTS, STATE_KEY, Action, state_in
from keyplan.testing.faults import FakeClock

HISTORY = 100
BYTES_MAX = 1_500_000
LONG = b"/" + b"k" * 507
"""As long as LMDB takes a key with a little less in front of it than the books have."""


class SmallCommits(MemoryEngine):
    """Takes commits of as many operations and bytes as etcd."""

    @property
    def profile(self) -> Profile:
        return replace(super().profile, commit_operations_max=128)

    def commit(self, commit: Commit) -> int:
        size = sum(len(each.value) for each in commit.mutations if isinstance(each, Put))
        if size > BYTES_MAX or len(commit.mutations) > 128:
            raise EngineLimitError(limit="commit", allowed=BYTES_MAX, actual=size)
        return super().commit(commit)


def put(engine: Engine, *puts: tuple[bytes, bytes]) -> None:
    engine.commit(Commit((), tuple(Put(key, value) for key, value in puts)))


def make_untellable(engine: Engine) -> None:
    """Change what has no event: one with the value and the value before is more than a commit, or a key has no record."""
    if isinstance(engine, MemoryEngine):
        put(engine, (b"/big", b"x" * 900_000))
        put(engine, (b"/big", b"y" * 900_000))
    else:
        put(engine, (LONG, b"1"))


@pytest.fixture(params=["memory", "lmdb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with SmallCommits() if request.param == "memory" else open_engine(f"lmdb:{tmp_path}/store") as engine:
        yield engine


class Client:
    """Asks one gateway of its own on a store."""

    def __init__(self, engine: Engine, *, history_events: int = HISTORY) -> None:
        access = Access()
        context = ServiceContext(
            "etcd-v2", Stores(engine, access), {}, access, Closing(), Workers(), CollectorRegistry()
        )
        self.ledger = Ledger(engine, context.clock, history_events=history_events)
        self.gateway = Gateway(context, self.ledger, history_events=history_events)

    async def write(self, path: str, value: str = "1") -> int:
        store = await self.gateway.store_of(Caller(Role.CLIENT, "local"))
        done = await asyncio.wait_for(self.gateway.write(store, Operation(Action.SET, path, value)), 60)
        return done.index

    async def wait(self, path: str, *, index: int = 0, is_stream: bool = False) -> Waiting:
        store = await self.gateway.store_of(Caller(Role.CLIENT, "local"))
        return await self.gateway.wait(store, path, is_recursive=False, is_stream=is_stream, wait_index=index)

    async def told(self, waiting: Waiting) -> int | None:
        """Return the number of the next event; None: the wait has ended."""
        body = await asyncio.wait_for(self.gateway.next_body(waiting), 60)
        return None if body is None else int(msgspec.json.decode(body)["node"]["modifiedIndex"])

    async def is_cleared(self, index: int) -> bool:
        """Tell whether who asks for events from a number on is answered 401, not by another event."""
        try:
            await self.wait("/w", index=index)
        except KeysFailure as failure:
            return failure.code is Code.EVENT_INDEX_CLEARED
        return False


def run(engine: Engine, story: Callable[[Client, Client], Awaitable[None]]) -> None:
    """Run a story of two gateways on one store, each with a book of its own in memory."""

    async def both() -> None:
        one, other = Client(engine), Client(engine)
        async with one.gateway.running(), other.gateway.running():
            await story(one, other)

    asyncio.run(both())


def test_a_change_without_an_event_stops_no_write_and_ends_waits_at_every_gateway(engine: Engine) -> None:
    async def story(one: Client, other: Client) -> None:
        first = await one.write("/w")
        waits = [
            await client.wait("/w", index=index, is_stream=is_stream)
            for client in (one, other)
            for index, is_stream in ((0, False), (first + 1, False), (first + 1, True))
        ]
        make_untellable(engine)
        now = await one.write("/b")
        assert now > first + HISTORY
        owners = [one] * 3 + [other] * 3
        for client, waiting in zip(owners, waits, strict=True):
            assert await client.told(waiting) is None, "the change may be one that was waited for"
        for client in (one, other):
            assert await client.is_cleared(first + 1)
            waiting = await client.wait("/w", index=now + 1)
            now = await one.write("/w")
            assert await client.told(waiting) == now, "behind the gap, nothing is missed"

    run(engine, story)


def test_a_gateway_that_was_away_over_a_gap_answers_as_one_that_was_there(engine: Engine) -> None:
    """One lost its watch, and keeps what it knows; one dies after it has gone past the change; one is new."""

    async def story(one: Client, other: Client) -> None:
        first = await one.write("/w")
        assert await other.told(await other.wait("/w", index=first)) == first
        other.ledger.stop()
        other.ledger.inbox.fail(EngineError(problem="the store is away"))
        make_untellable(engine)
        await asyncio.to_thread(one.ledger.run, ())
        late = Client(engine)
        async with late.gateway.running():
            for client in (other, late):
                assert await client.is_cleared(first)
                assert await client.write("/b") > first + HISTORY

    run(engine, story)


def test_changes_that_fit_no_commit_together_are_told_one_by_one() -> None:
    engine = SmallCommits()

    async def story(one: Client, _other: Client) -> None:
        first = await one.write("/w")
        for byte in (b"x", b"y"):
            put(engine, *((key, byte * 400_000) for key in (b"/big1", b"/big2")))
        assert await one.write("/b") == first + 5, "four events, and no gap"
        assert await one.told(await one.wait("/big2", index=first + 3)) == first + 4
        with pytest.raises(KeysFailure, match="too large"):
            await one.write("/d", "1" * BYTES_MAX)

    run(engine, story)


def test_a_shorter_history_than_the_one_kept_stops_no_write_and_hides_no_event() -> None:
    """What is too much goes little by little: at once it would be more than a commit."""
    engine = SmallCommits()
    ledger = Ledger(engine, FakeClock(), history_events=1_000)
    ledger.start(lambda _counted, _is_waiting: None)
    try:
        outcomes = ledger.run([Operation(Action.SET, f"/k{number}", "1") for number in range(400)])
    finally:
        ledger.stop()
    last = outcomes[-1]
    assert isinstance(last, Done)

    async def story(one: Client, other: Client) -> None:
        waiting = await other.wait("/w")
        written = await one.write("/w")
        assert written == last.index + 1
        assert await other.told(waiting) == written, "there is no gap"
        assert await one.is_cleared(last.index - 2 * HISTORY), "not answered with a later event"
        for _ in range(5):
            await asyncio.gather(*(one.write(f"/k{number}") for number in range(70)))
        with engine.snapshot() as snapshot:
            entry = snapshot.get(STATE_KEY)
            state = None if entry is None else state_in(entry)
            assert state is not None
            assert state.index - state.cleared == HISTORY
            assert len(list(snapshot.scan(EVENTS))) == HISTORY

    run(engine, story)


def test_who_waits_hears_each_of_more_changes_than_the_history_keeps(engine: Engine) -> None:
    """One commit may count more of them than are kept: those who follow are told all the same."""

    async def story(one: Client, other: Client) -> None:
        await one.write("/w")
        other_first = await other.write("/first")
        waiting = await other.wait("/w")
        put(engine, (b"/w", b"2"), *((b"/n%03d" % number, b"1") for number in range(120)))
        assert await other.told(waiting) == other_first + 121, "events of one commit are in the order of their keys"

    run(engine, story)


def test_a_history_of_large_values_is_kept_as_far_as_memory_goes() -> None:
    """Every gateway holds it: the one that wrote, one that followed, and one that begins."""
    engine = MemoryEngine()

    async def story(one: Client, other: Client) -> None:
        first = await one.write("/w", "0")
        last = max([await one.write("/w", f"{number}" * (4 << 20)) for number in range(1, 20)])
        late = Client(engine)
        async with late.gateway.running():
            for client in (one, other, late):
                assert await client.is_cleared(first)
                assert await client.told(await client.wait("/w", index=last)) == last
        waiting = await other.wait("/w", is_stream=True)
        for number in range(12):
            await one.write("/w", f"{number}" * (4 << 20))
        assert await other.told(waiting) is None, "who does not read is told so by the end"

    run(engine, story)
