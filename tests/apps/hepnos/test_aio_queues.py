"""Queues awaited: what the synchronous ones do, by any number of tasks that wait without a thread each, and are cancelled."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, active_count
from typing import Any, TypeVar

import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos import awaited_queues
from keyplan.apps.hepnos import queues as sync_queues
from keyplan.apps.hepnos.awaited_queues import queues_at
from keyplan.apps.hepnos.queue_records import HEPnOSQueues, QueueKey, Taken
from keyplan.apps.hepnos.queues import QueueActs, StoredQueues
from keyplan.engine import open_engine
from keyplan.errors import EngineUnavailableError, InvalidInputError
from keyplan.store import Store
from keyplan.testing.faults import FakeClock
from tests.apps.hepnos.queue_stand import Cut, InLoop, cancelled_after, queues_in_loop
from tests.apps.hepnos.served import HepnosServer
from tests.servers.etcd import EtcdServer

R = TypeVar("R")
Scenario = Callable[[hepnos.aio.Queues], Awaitable[None]]


@pytest.fixture(params=["memory", "lmdb", "etcd", "frames", "http"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param in {"frames", "http"}:
        with HepnosServer({"store": "memory:", "frames": "true" if request.param == "frames" else "false"}) as server:
            yield server.url
    elif request.param == "etcd":
        etcd: EtcdServer = request.getfixturevalue("etcd_server")
        yield etcd.emptied().url
    else:
        yield "memory:" if request.param == "memory" else f"lmdb:{tmp_path}/store?durability=none"


def on(url: str, scenario: Scenario) -> None:
    async def opened() -> None:
        async with hepnos.aio.open(url) as store:
            await asyncio.wait_for(scenario(store.queues), 100)

    asyncio.run(opened(), debug=True)


async def filled(queues: hepnos.aio.Queues, *items: int) -> hepnos.aio.Queue:
    """A queue of these items, without a producer."""
    await queues.create("q", int)
    async with await queues.open("q", int, mode="producer") as producer:
        await producer.put_many(items)
    return await queues.open("q", int)


async def in_line(queue: hepnos.aio.Queue, number: int) -> None:
    """Wait until so many take."""
    while len(queue.sync._waiting) < number:  # noqa: ASYNC110  # Why no event: nobody tells of those that wait.
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("plain", "awaited"),
    [
        (sync_queues.Queues, hepnos.aio.Queues),
        (sync_queues.Queue, hepnos.aio.Queue),
        (sync_queues.QueueItem, hepnos.aio.QueueItem),
    ],
)
def test_what_the_synchronous_classes_have_is_awaited_under_the_same_names(plain: type, awaited: type) -> None:
    own = {
        name
        for name, each in vars(plain).items()
        if not name.startswith("_") and (callable(each) or type(each) is property)
    }
    assert own <= set(dir(awaited)), "take it over in aio_queues.py"
    for there, here in (("__iter__", "__aiter__"), ("__enter__", "__aenter__"), ("__exit__", "__aexit__")):
        assert hasattr(awaited, here) == hasattr(plain, there)


def test_items_come_out_in_the_order_they_went_in(url: str) -> None:
    async def scenario(queues: hepnos.aio.Queues) -> None:
        await queues.create("q", int)
        async with await queues.open("q", int, mode="producer") as producer:
            await producer.put(0)
            assert await producer.put_many(range(1, 300)) == 299
            assert await producer.put_many([]) == 0
        consumer = await queues.open("q", int)
        assert not await consumer.is_empty()
        item = await consumer.take()
        assert item is not None
        assert (item.number, item.value) == (0, 0)
        await item.give_back()
        taken = []
        async for each in consumer:
            async with each:
                taken.append(each.value)
        assert taken == list(range(300))
        assert await consumer.get() is None
        assert await consumer.is_empty()
        assert await queues.names() == [("q", "int64")]
        await queues.destroy("q", int)
        with pytest.raises(hepnos.MissingError):
            await queues.open("q", int)

    on(url, scenario)


def test_an_item_whose_work_fails_is_the_next_one_s(url: str) -> None:
    async def scenario(queues: hepnos.aio.Queues) -> None:
        consumer = await filled(queues, 1, 2)

        async def fail() -> None:
            async for item in consumer:
                async with item:
                    raise KeyError

        with pytest.raises(KeyError):
            await fail()
        assert [await consumer.get(), await consumer.get(), await consumer.get()] == [1, 2, None]
        with pytest.raises(TypeError):
            await (await queues.open("q", int, mode="producer")).put("text")
        with pytest.raises(InvalidInputError):
            await consumer.put(1)
        with pytest.raises(InvalidInputError):
            await consumer.put_many([])

    on(url, scenario)


def test_a_hundred_tasks_put_by_one_producer_and_a_thousand_wait_without_a_thread_each(url: str) -> None:
    async def scenario(queues: hepnos.aio.Queues) -> None:
        await queues.create("q", int)
        producer = await queues.open("q", int, mode="producer")
        consumer = await queues.open("q", int)
        number = 1_000 if url.startswith(("memory:", "http:")) else 200
        waiting = [asyncio.create_task(consumer.get()) for _ in range(number)]
        await in_line(consumer, number)
        assert active_count() < 40
        await asyncio.gather(*(producer.put(each) for each in range(100)))
        first = {await each for each in asyncio.as_completed(waiting[:50])}
        assert len(first) == 50, "who came first waits for nobody who came later"
        await producer.put_many(range(100, number - 10))
        await producer.close()
        got = await asyncio.gather(*waiting)
        assert sorted(each for each in got if each is not None) == list(range(number - 10))

    on(url, scenario)


def test_who_waits_is_woken_by_an_item_and_by_a_producer_that_closes(url: str) -> None:
    async def scenario(queues: hepnos.aio.Queues) -> None:
        for is_volatile in (False, True):
            await queues.create("q", int, volatile=is_volatile)
            async with await queues.open("q", int, mode="producer") as producer:
                consumers = [await queues.open("q", int) for _ in range(3)]
                waiting = [asyncio.create_task(each.get(60)) for each in consumers]
                assert await consumers[0].get(0) is None
                assert await consumers[0].take(0.05) is None
                await producer.put(7)
                done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                assert [task.result() for task in done] == [7]
            assert await asyncio.gather(*rest) == [None, None]
            await queues.destroy("q", int)

    on(url, scenario)


def test_closing_a_queue_ends_who_waits_by_it_and_nobody_else(url: str) -> None:
    async def scenario(queues: hepnos.aio.Queues) -> None:
        await queues.create("q", int)
        async with await queues.open("q", int, mode="producer") as producer:
            others, consumer = await queues.open("q", int), await queues.open("q", int)
            other = asyncio.create_task(others.get())
            waiting = [asyncio.create_task(consumer.take()) for _ in range(3)]
            await in_line(consumer, 3)
            await consumer.close()
            assert await asyncio.gather(*waiting) == [None] * 3
            assert not other.done()
            with pytest.raises(InvalidInputError, match="open it again"):
                await consumer.take()
            await producer.put(1)
            assert await other == 1

    on(url, scenario)


def test_who_waits_when_the_store_is_closed_is_told(url: str) -> None:
    waiting: list[asyncio.Task[object]] = []

    async def scenario(queues: hepnos.aio.Queues) -> None:
        await queues.create("q", int)
        await queues.open("q", int, mode="producer")
        consumer = await queues.open("q", int)
        waiting.extend(asyncio.create_task(consumer.take()) for _ in range(3))
        await in_line(consumer, 3)

    async def opened() -> None:
        async with hepnos.aio.open(url) as store:
            await scenario(store.queues)
        for each in waiting:
            with pytest.raises(EngineUnavailableError, match="the store was closed"):
                await each

    asyncio.run(asyncio.wait_for(opened(), 60), debug=True)


# ---- cancellation ----------------------------------------------------------------------------------------------------------


def test_who_is_cancelled_while_waiting_has_taken_nothing_and_hands_its_turn_on(url: str) -> None:
    async def scenario(queues: hepnos.aio.Queues) -> None:
        await queues.create("q", int)
        async with await queues.open("q", int, mode="producer") as producer:
            consumer = await queues.open("q", int)
            waiting = [asyncio.create_task(consumer.get()) for _ in range(4)]
            await in_line(consumer, 4)
            for task in (waiting[0], waiting[2]):
                task.cancel()
            await producer.put_many([1, 2])
            # Why sorted: what was found by one that is cancelled comes back to its place a moment later.
            assert sorted(await asyncio.gather(waiting[1], waiting[3])) == [1, 2]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await consumer.take()
            await producer.put(3)
            assert await consumer.get(60) == 3

    on(url, scenario)


def test_what_a_cancelled_take_finds_is_free_again_at_once(url: str) -> None:
    """Of many that are cancelled at any moment: none of the leases, which are a minute long, is waited for."""

    async def scenario(queues: hepnos.aio.Queues) -> None:
        consumer = await filled(queues, *range(20))
        for turns in range(40):
            task = asyncio.create_task(consumer.take())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                item = await task
                assert item is not None
                await item.give_back()
        taken = [await consumer.get() for _ in range(21)]
        assert sorted(each for each in taken if each is not None) == list(range(20))

    on(url, scenario)


class _Held:
    """Acts whose takes wait, in a thread, until they may go on."""

    def __init__(self, acts: QueueActs) -> None:
        self._acts = acts
        self.begun, self.may_end = Event(), Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._acts, name)

    def take(self, key: QueueKey, taker: str, lease_seconds: float) -> Taken:
        found = self._acts.take(key, taker, lease_seconds)
        self.begun.set()
        assert self.may_end.wait(60)
        return found


def test_closing_the_store_waits_until_what_was_taken_by_nobody_is_given_back(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store?durability=none"

    async def scenario() -> None:
        async with hepnos.aio.open(url) as store:
            consumer = await filled(store.queues, 1)
            acts: Any = consumer.sync.acts
            acts._acts = held = _Held(acts._acts)
            task = asyncio.create_task(consumer.take())
            assert await asyncio.to_thread(held.begun.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            asyncio.get_running_loop().call_later(0.05, held.may_end.set)

    asyncio.run(asyncio.wait_for(scenario(), 60), debug=True)
    with hepnos.open(url) as store:
        assert store.queues.open("q", int).get(0) == 1


_TURNS = 40
"""More than any of these calls takes."""


@pytest.mark.parametrize("turns", range(_TURNS))
@pytest.mark.parametrize("name", ["get", "take", "work", "give back"])
def test_wherever_it_is_cancelled_an_item_is_handed_over_or_still_there(name: str, turns: int) -> None:
    async def get(consumer: hepnos.aio.Queue, got: list[Any]) -> None:
        got.append(await consumer.get(0))

    async def take(consumer: hepnos.aio.Queue, got: list[Any]) -> None:
        item = await consumer.take(0)
        assert item is not None
        got.append(item)

    async def work(consumer: hepnos.aio.Queue, got: list[Any]) -> None:
        item = await consumer.take(0)
        assert item is not None
        async with item:
            got.append(item.value)

    async def give_back(consumer: hepnos.aio.Queue, _got: list[Any]) -> None:
        item = await consumer.take(0)
        assert item is not None
        async with item:
            raise KeyError

    acts = {"get": get, "take": take, "work": work, "give back": give_back}

    async def scenario() -> None:
        store = Store(open_engine("memory:"))
        queues = queues_in_loop(StoredQueues(store, Store(open_engine("memory:"))))
        consumer = await filled(queues, 1, 2)
        got, was_done = await cancelled_after(turns, lambda got: acts[name](consumer, got))
        if name == "take":
            got = [item.value for item in got if not await item.acknowledge()]
        await queues.end()
        assert sorted([*got, *queue_items(store)]) == [1, 2], "lost, or done twice"
        assert not list(HEPnOSQueues(store).taken.list("q", "int64")), "taken by nobody"
        assert was_done or turns < _TURNS - 1

    asyncio.run(asyncio.wait_for(scenario(), 60), debug=True)


@pytest.mark.parametrize("turns", range(0, _TURNS, 2))
def test_a_producer_whose_opening_is_cancelled_is_waited_for_by_nobody(turns: int) -> None:
    async def scenario() -> None:
        store = Store(open_engine("memory:"))
        queues = queues_in_loop(StoredQueues(store, Store(open_engine("memory:"))))
        await queues.create("q", int)

        async def produce(_got: list[Any]) -> None:
            async with await queues.open("q", int, mode="producer") as producer:
                await producer.put(1)

        _, was_done = await cancelled_after(turns, produce)
        await queues.end()
        assert not list(HEPnOSQueues(store).producers.list("q", "int64"))
        assert was_done or turns < _TURNS - 2

    asyncio.run(asyncio.wait_for(scenario(), 60), debug=True)


def queue_items(store: Store) -> Iterator[int]:
    """Items that nobody has."""
    for _, raw in HEPnOSQueues(store).items.list("q", "int64"):
        yield int.from_bytes(raw, "little")


def queue_of_one() -> hepnos.aio.Queues:
    return queues_in_loop(StoredQueues(Store(open_engine("memory:")), Store(open_engine("memory:"))))


def test_a_get_that_was_about_to_return_does_and_its_cancellation_comes_behind_it() -> None:
    async def scenario(turns: int) -> bool:
        queues = queue_of_one()
        consumer = await filled(queues, 1)

        async def get(got: list[Any]) -> None:
            got.append(await consumer.get(0))
            await asyncio.sleep(0)
            got.append("went on")

        got, was_done = await cancelled_after(turns, get)
        await queues.end()
        assert was_done or "went on" not in got
        return got == [1]

    assert any(asyncio.run(scenario(turns), debug=True) for turns in range(_TURNS))


def test_a_timeout_that_comes_too_late_cancels_nothing_behind_its_block() -> None:
    async def scenario(turns: int) -> bool:
        queues = queue_of_one()
        consumer = await filled(queues, 1)
        got: list[Any] = []
        deadline = asyncio.timeout(None)

        async def get() -> None:
            with suppress(TimeoutError):
                async with deadline:
                    got.append(await consumer.get(0))
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        task = asyncio.create_task(get())
        for _ in range(turns):
            await asyncio.sleep(0)
        if not (got or task.done()):
            deadline.reschedule(0)
        await task
        await queues.end()
        return deadline.expired() and got == [1]

    assert any(asyncio.run(scenario(turns), debug=True) for turns in range(1, _TURNS))


# ---- looks -----------------------------------------------------------------------------------------------------------------


class Looks(InLoop):
    """Calls in the event loop that are counted."""

    def __init__(self) -> None:
        self.made = 0

    async def call(self, function: Callable[[], R]) -> R:
        self.made += 1
        return await super().call(function)


def test_who_waits_looks_when_something_has_happened_and_not_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_queues, "LOOK_SECONDS", 3_600.0)

    async def scenario() -> None:
        looks = Looks()
        home = StoredQueues(Store(open_engine("memory:")), Store(open_engine("memory:")))
        queues = queues_at(lambda: home, looks)
        consumer = await filled(queues)
        async with await queues.open("q", int, mode="producer"):
            takes = [asyncio.create_task(consumer.take()) for _ in range(3)]
            await in_line(consumer, 3)
            for first in takes:
                begun = looks.made
                for _ in range(2_000):
                    await asyncio.sleep(0)
                assert looks.made - begun < 20
                first.cancel()
        await queues.end()

    asyncio.run(scenario())


# ---- answers that are lost -------------------------------------------------------------------------------------------------


def test_lost_answers_are_asked_for_again_and_the_loop_goes_on_meanwhile() -> None:
    clock = FakeClock()

    async def scenario() -> None:
        cut: Any = Cut(queue_home(clock), clock)
        queues = queues_in_loop(cut)
        await queues.create("q", int)
        cut.lost = 2
        producer = await queues.open("q", int, mode="producer")
        inner: Any = producer.sync.acts
        inner._acts = lossy = Cut(inner._acts, clock)
        for number in range(3):
            lossy.lost = number
            await producer.put(number)
        lossy.lost = 2
        await producer.close()
        consumer = await queues.open("q", int)
        assert [await consumer.get(0) for _ in range(4)] == [0, 1, 2, None]
        await queues.end()

    asyncio.run(asyncio.wait_for(scenario(), 60), debug=True)


def queue_home(clock: FakeClock) -> StoredQueues:
    """Queues in memory."""
    return StoredQueues(Store(open_engine("memory:")), Store(open_engine("memory:")), clock)
