"""Records of the v2 gateway that somebody damaged, removed or made up: they stop nobody, and no number is given twice."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from keyplan.engine import Commit, Delete, Engine, KeyRange, MemoryEngine, Mutation, Put
from keyplan.server import Access, Caller, Closing, Role, ServiceContext, Stores, Workers
from keyplan.server.etcd_member import BOOKS, IDENTITY_KEY, load_identity
from keyplan.server.etcd_v2.answers import Code, KeysFailure
from keyplan.server.etcd_v2.gateway import Gateway, Waiting
from keyplan.server.etcd_v2.ledger import Ledger
from keyplan.server.etcd_v2.operations import Operation
from keyplan.server.etcd_v2.records import (
    INDEX_END,
    STATE_KEY,
    Action,
    EventRecord,
    State,
    directory_key,
    event_key,
    file_key,
    pack,
)

HISTORY = 100
DAMAGED = b"\xc1damaged"
LARGEST = (1 << 63) - 1


def do(engine: Engine, *mutations: Mutation) -> None:
    engine.commit(Commit((), mutations))


class Client:
    """Asks one gateway of its own on a store."""

    def __init__(self, engine: Engine) -> None:
        access = Access()
        context = ServiceContext(
            "etcd-v2", Stores(engine, access), {}, access, Closing(), Workers(), CollectorRegistry()
        )
        self.gateway = Gateway(context, Ledger(engine, context.clock, history_events=HISTORY), history_events=HISTORY)

    async def write(self, path: str, *, action: Action = Action.SET, is_recursive: bool = False) -> int:
        """Write, and return the number of the event."""
        store = await self.gateway.store_of(Caller(Role.CLIENT, "local"))
        operation = Operation(action, path, "" if action is Action.DELETE else "1", is_recursive=is_recursive)
        return (await asyncio.wait_for(self.gateway.write(store, operation), 30)).index

    async def listed(self, path: str, *, is_recursive: bool = False) -> list[str]:
        """Return the paths of what is in a directory."""
        store = await self.gateway.store_of(Caller(Role.CLIENT, "local"))
        found = await asyncio.wait_for(self.gateway.get(store, path, is_recursive=is_recursive), 30)
        return [node["key"] for node in msgspec.json.decode(found.body)["node"].get("nodes", ())]

    async def wait(self, path: str, *, index: int = 0) -> Waiting:
        store = await self.gateway.store_of(Caller(Role.CLIENT, "local"))
        return await self.gateway.wait(store, path, is_recursive=False, is_stream=False, wait_index=index)

    async def told(self, waiting: Waiting) -> int | None:
        """Return the number of the next event; None: the wait has ended."""
        body = await asyncio.wait_for(self.gateway.next_body(waiting), 30)
        return None if body is None else int(msgspec.json.decode(body)["node"]["modifiedIndex"])


def run(engine: Engine, story: Callable[[Client, Client], Awaitable[None]]) -> None:
    """Run a story of two gateways on one store."""

    async def both() -> None:
        one, other = Client(engine), Client(engine)
        async with one.gateway.running(), other.gateway.running():
            await story(one, other)

    asyncio.run(both())


STATES = {
    "gone": Delete(STATE_KEY),
    "damaged": Put(STATE_KEY, DAMAGED),
    "empty": Put(STATE_KEY, b""),
    "of a store that is ahead": Put(STATE_KEY, pack(State(index=4, settled=1 << 40))),
    "with a floor that was not given": Put(STATE_KEY, pack(State(index=4, floor=1 << 40))),
    "with the largest number": Put(STATE_KEY, msgspec.msgpack.encode((LARGEST, 1, 0, 3, 0))),
    "with a number below none": Put(STATE_KEY, msgspec.msgpack.encode((-5, -1, 0, 3, 0))),
}


@pytest.mark.parametrize("change", STATES.values(), ids=STATES)
def test_a_lost_counter_goes_on_behind_every_number_and_who_waits_is_told(change: Mutation) -> None:
    engine = MemoryEngine()

    async def story(one: Client, other: Client) -> None:
        last = max([await one.write(f"/k{number}") for number in range(5)])
        waiting = await other.wait("/w")
        do(engine, change)
        do(engine, Put(b"/w", b"by somebody else"))
        assert await other.told(waiting) is None, "the change has no number: who waits asks again"
        after = await other.write("/k0")
        assert after > last + HISTORY
        with pytest.raises(KeysFailure) as failure:
            await one.wait("/k0", index=last)
        assert failure.value.code is Code.EVENT_INDEX_CLEARED
        waiting = await one.wait("/w", index=after + 1)
        now = await other.write("/w")
        assert now == after + 1
        assert await one.told(waiting) == now
        late = Client(engine)
        async with late.gateway.running():
            assert await late.listed("/") == ["/k0", "/k1", "/k2", "/k3", "/k4", "/w"]
            assert await late.write("/late") == now + 1

    run(engine, story)


def test_a_counter_near_its_end_begins_again() -> None:
    """Somebody made it up: no store counts so far. Behind it is no room, so that numbers are given again, and waits end."""
    engine = MemoryEngine()

    async def story(one: Client, other: Client) -> None:
        await one.write("/k")
        do(engine, Put(STATE_KEY, pack(State(2 * INDEX_END - 2, 1, 0, 3, 2 * INDEX_END - 3))))
        waiting = await other.wait("/w")
        for number in range(5):
            assert await one.write(f"/k{number}") > 0
        assert await other.told(waiting) is None
        assert await other.write("/w") < INDEX_END

    run(engine, story)


def test_a_store_that_is_put_back_ends_the_waits_and_tells_what_comes() -> None:
    engine = MemoryEngine()

    async def story(one: Client, other: Client) -> None:
        first = await one.write("/first")
        with engine.snapshot() as snapshot:
            books = [(entry.key, entry.value) for entry in snapshot.scan(KeyRange.of_prefix(BOOKS))]
        last = max([await one.write(f"/k{number}") for number in range(10)])
        waiting = await other.wait("/w")
        do(engine, *(Delete(event_key(index)) for index in range(first + 1, last + 1)), *(Put(*each) for each in books))
        assert await other.told(waiting) is None
        waiting = await other.wait("/w")
        now = await one.write("/w")
        assert now < last, "its numbers are given again"
        assert await other.told(waiting) == now

    run(engine, story)


@pytest.mark.parametrize("index", [4, 1 << 60, LARGEST])
def test_an_event_that_was_not_given_keeps_no_later_one_from_who_waits(index: int) -> None:
    engine = MemoryEngine()
    made_up = msgspec.msgpack.encode((index, "/w", False, "{}", False, 0))

    async def story(one: Client, other: Client) -> None:
        await one.write("/first")
        await other.write("/first")
        do(engine, Put(event_key(5), made_up), Put(event_key(1 << 60), made_up), Put(BOOKS + b"hodd", made_up))
        waiting = await other.wait("/w")
        now = await one.write("/w")
        assert await other.told(waiting) == now
        late = Client(engine)
        async with late.gateway.running():
            waiting = await late.wait("/w")
            now = await one.write("/w")
            assert await late.told(waiting) == now

    run(engine, story)


@pytest.mark.parametrize("record", [DAMAGED, b"", pack(EventRecord(4, "/d", False, "{}"))])
def test_what_is_below_a_directory_with_a_damaged_record_is_written_listed_and_removed(record: bytes) -> None:
    engine = MemoryEngine()

    async def story(one: Client, _other: Client) -> None:
        await one.write("/d/x")
        do(engine, Put(directory_key("/d"), record), Put(file_key("/d/x"), record))
        assert await one.listed("/d") == ["/d/x"]
        await one.write("/d/y")
        do(engine, Put(b"/d/z", b"by somebody else"), Delete(b"/d/x"))
        assert await one.listed("/d") == ["/d/y", "/d/z"]
        assert await one.listed("/", is_recursive=True) == ["/d"]
        await one.write("/d", action=Action.DELETE, is_recursive=True)
        with engine.snapshot() as snapshot:
            assert snapshot.get(directory_key("/d")) is None
        assert await one.write("/d") > 0, "a file may take its place"

    run(engine, story)


@pytest.mark.parametrize("name", [b"\xff", b"/a//b", b"no slash", b"/", b"", b"/x" * 300])
def test_a_directorys_record_at_an_odd_place_stops_nothing(name: bytes) -> None:
    engine = MemoryEngine()
    place = directory_key("/")[:-1] + name

    async def story(one: Client, _other: Client) -> None:
        await one.write("/d/x")
        for value in (DAMAGED, msgspec.msgpack.encode((4, 4, True, 0))):
            do(engine, Put(place, value))
            assert await one.listed("/", is_recursive=True) == ["/d"]
            assert await one.listed("/") == ["/d"]
            do(engine, Delete(place))
            assert await one.write("/d/x") > 0
            lease = engine.lease(60)
            do(engine, Put(place, value, lease.id))
            lease.revoke()
            assert await one.write("/d/x") > 0
            assert await one.listed("/d") == ["/d/x"]

    run(engine, story)


@pytest.mark.parametrize(
    "value", [DAMAGED, b"", msgspec.msgpack.encode((0, 0, 0)), msgspec.msgpack.encode((1 << 63, 5, 2))]
)
def test_an_identity_that_cannot_be_read_is_drawn_anew(value: bytes) -> None:
    engine = MemoryEngine()
    first = load_identity(engine)
    do(engine, Put(IDENTITY_KEY, value))
    drawn = load_identity(engine)
    assert drawn != first
    assert load_identity(engine) == drawn


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_done_to_the_books_every_write_is_done_and_numbers_go_up(seed: int) -> None:
    engine = MemoryEngine()
    chance = random.Random(seed)

    def damaged(value: bytes) -> bytes:
        kind = chance.randrange(4)
        if kind == 0:
            return value[: chance.randrange(len(value) + 1)]
        if kind == 1 and value:
            at = chance.randrange(len(value))
            return value[:at] + bytes([value[at] ^ (1 << chance.randrange(8))]) + value[at + 1 :]
        return chance.randbytes(chance.randrange(40)) if kind == 2 else msgspec.msgpack.encode([LARGEST] * 5)

    def damage() -> None:
        with engine.snapshot() as snapshot:
            books = list(snapshot.scan(KeyRange.of_prefix(BOOKS)))
        for entry in chance.sample(books, min(len(books), 4)):
            others = chance.choice(books).value
            changes: list[Mutation] = [
                Delete(entry.key),
                Put(entry.key, damaged(entry.value)),
                Put(entry.key, others),
            ]
            do(engine, chance.choice(changes))

    async def story(one: Client, other: Client) -> None:
        paths = [f"/d{number % 3}/k{number}" for number in range(9)]
        for turn in range(12):
            damage()
            for client in chance.sample([one, other], 2):
                for path in chance.sample(paths, 3):
                    assert await client.write(path) > 0
                do(engine, Put(chance.choice(paths).encode(), b"by somebody else"))
                await client.listed("/", is_recursive=turn % 2 == 0)
            waiting = await other.wait("/w")
            now = await one.write("/w")
            assert await other.told(waiting) in {now, None}
        late = Client(engine)
        async with late.gateway.running():
            waiting = await late.wait("/w")
            now = await other.write("/w")
            assert await late.told(waiting) == now

    run(engine, story)
