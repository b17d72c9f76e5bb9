"""HEPnOS awaited: the same stores, the same errors; loops in pieces, batches, and calls beside each other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from threading import Barrier, Event, current_thread
from typing import Any

import numpy as np
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos import store as stores
from keyplan.errors import EngineUnavailableError, InvalidInputError, StoreMissingError
from tests.apps.hepnos.served import HepnosServer

Scenario = Callable[[hepnos.aio.DataStore], Awaitable[None]]


@pytest.fixture(params=["memory", "lmdb", "server"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "server":
        store = {"store": f"lmdb:{tmp_path}/store?durability=none", "databases": "events=3,products=2"}
        with HepnosServer(store) as server:
            yield server.url
    else:
        yield "memory:" if request.param == "memory" else f"lmdb:{tmp_path}/store?durability=none"


def on(url: str, scenario: Scenario) -> None:
    async def opened() -> None:
        async with hepnos.aio.open(url, databases={"events": 3, "products": 2}) as store:
            await asyncio.wait_for(scenario(store), 60)

    asyncio.run(opened(), debug=True)


def test_what_is_created_and_stored_is_found_again(url: str) -> None:
    async def scenario(store: hepnos.aio.DataStore) -> None:
        dataset = await store.root.ensure("nova/2019")
        run = await dataset.create_run(12)
        event = await (await run.create_subrun(1)).create_event(7)
        product = await event.store("energy", 1.5)
        assert await event.load("energy", float) == 1.5
        assert await store.load_product(product) == 1.5
        assert [found.label async for found in event.products()] == ["energy"]
        assert await event.exists()
        assert (run.number, event.path) == (12, "nova/2019 12 1 7")
        assert await dataset.runs.get(12) == run
        assert await dataset.runs.get(13) is None
        assert await event.delete_product("energy", float)
        await run.delete()
        assert not await event.exists()

    on(url, scenario)


def test_loops_are_in_order_and_go_on_from_piece_to_piece(url: str) -> None:
    async def scenario(store: hepnos.aio.DataStore) -> None:
        subrun = await (await (await store.root.ensure("a")).create_run(1)).create_subrun(2)
        assert await subrun.create_events(np.arange(5_000, dtype=np.uint64)[::-1]) == 5_000
        assert [event.number async for event in subrun.events] == list(range(5_000))
        assert [event.number async for event in subrun.events.range(2_000, 2_003)] == [2_000, 2_001, 2_002]
        assert [event.number async for event in subrun.events.range(reverse=True, limit=2)] == [4_999, 4_998]
        assert await subrun.events.count() == 5_000
        last = await subrun.events.last()
        assert last is not None
        assert (last.number, await last.next()) == (4_999, None)
        before = await last.previous()
        assert before is not None
        assert before.number == 4_998

    on(url, scenario)


def test_data_sets_and_their_events_as_columns(url: str) -> None:
    async def scenario(store: hepnos.aio.DataStore) -> None:
        for name in ("b", "a", "c/d"):
            await store.root.ensure(name)
        assert [dataset.name async for dataset in store.root.datasets] == ["a", "b", "c"]
        assert [dataset.path async for dataset in store.root.datasets.range("b", limit=1)] == ["b"]
        dataset = await store.root.get("a")
        assert dataset is not None
        created = await dataset.create_items([1, 1, 2], [0, 0, 5], [3, 4, 9])
        assert created.events == 3
        found = await dataset.events().to_numpy()
        assert sorted(found.tolist()) == [(1, 0, 3), (1, 0, 4), (2, 5, 9)]
        assert sum([len(batch) async for batch in dataset.events().batches(1)]) == 3
        assert {event.path async for event in dataset.events()} == {"a 1 0 3", "a 1 0 4", "a 2 5 9"}
        assert await store.root.get("nowhere") is None

    on(url, scenario)


def test_a_batch_is_written_at_its_end_and_dropped_when_its_block_fails(url: str) -> None:
    async def scenario(store: hepnos.aio.DataStore) -> None:
        run = await (await store.root.ensure("a")).create_run(1)
        async with store.batch() as batch:
            await run.create_subrun(1, into=batch)
            assert await run.subruns.count() == 0
        assert await run.subruns.count() == 1

        async def failing() -> None:
            async with store.batch() as batch:
                await run.create_subrun(2, into=batch)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await failing()
        assert await run.subruns.count() == 1

    on(url, scenario)


def test_errors_are_those_of_the_synchronous_calls(url: str) -> None:
    async def scenario(store: hepnos.aio.DataStore) -> None:
        dataset = await store.root.ensure("a")
        with pytest.raises(hepnos.InvalidNumberError):
            await dataset.create_run(-1)
        with pytest.raises(hepnos.InvalidNameError):
            await store.root.create_dataset("a/b")
        with pytest.raises(hepnos.MissingError):
            await dataset.load("energy", float, missing="raise")
        with pytest.raises(InvalidInputError):
            [batch async for batch in dataset.events().batches(0)]

    on(url, scenario)


def test_calls_run_beside_each_other_and_not_in_the_loop_s_thread(url: str) -> None:
    async def scenario(store: hepnos.aio.DataStore) -> None:
        together = Barrier(3, timeout=30)
        await asyncio.gather(*(store.call(together.wait) for _ in range(3)))
        assert await store.call(current_thread) is not current_thread()

    on(url, scenario)


def test_closing_waits_for_a_cancelled_call_and_the_loop_goes_on(url: str) -> None:
    begun, may_end, ended = Event(), Event(), list[int]()

    def slow(dataset: hepnos.DataSet) -> None:
        begun.set()
        assert may_end.wait(30)
        ended.append(dataset.create_run(1).number)

    async def scenario() -> None:
        async with hepnos.aio.open(url) as store:
            dataset = await store.root.ensure("a")
            call = asyncio.create_task(store.call(slow, dataset.sync))
            assert await asyncio.to_thread(begun.wait, 30)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            asyncio.get_running_loop().call_later(0.05, may_end.set)
        assert ended == [1]

    asyncio.run(asyncio.wait_for(scenario(), 60), debug=True)


def test_a_loop_that_is_left_gives_its_state_back(url: str) -> None:
    async def scenario(store: hepnos.aio.DataStore) -> None:
        subrun = await (await (await store.root.ensure("a")).create_run(1)).create_subrun(2)
        await subrun.create_events(np.arange(3_000, dtype=np.uint64))
        ended: list[str] = []

        def numbers() -> Iterator[int]:
            try:
                yield from subrun.sync.events.numbers()
            finally:
                ended.append("closed")

        async with aclosing(subrun.each(numbers)) as found:
            async for number in found:
                assert number == 0
                break
        assert ended == ["closed"]
        async with aclosing(subrun.events.range()) as events:
            async for event in events:
                assert event.number == 0
                break
        assert await subrun.events.count() == 3_000

    on(url, scenario)


def test_a_loop_that_is_cancelled_within_a_piece_gives_its_state_back(tmp_path: Path) -> None:
    begun, may_end = Event(), Event()
    ended: list[str] = []

    def numbers() -> Iterator[int]:
        try:
            yield 1
            begun.set()
            assert may_end.wait(30)
            yield 2
        finally:
            ended.append("closed")

    async def scenario(store: hepnos.aio.DataStore) -> None:
        async def loop() -> list[int]:
            return [number async for number in store.root.each(numbers)]

        looping = asyncio.create_task(loop())
        assert await asyncio.to_thread(begun.wait, 30)
        looping.cancel()
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await looping
        assert ended == ["closed"]

    on(f"lmdb:{tmp_path}/store?durability=none", scenario)


def test_opening_that_is_cancelled_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may have the store at once."""
    begun, may_end = Event(), Event()
    opened: list[hepnos.DataStore] = []
    plain = stores.open_hepnos

    def open_slowly(url: str, **options: Any) -> hepnos.DataStore:
        begun.set()
        assert may_end.wait(30)
        opened.append(plain(url, **options))
        return opened[0]

    async def enter(url: str) -> None:
        async with hepnos.aio.open(url):
            raise AssertionError("it was cancelled before")

    async def scenario() -> None:
        opening = asyncio.create_task(enter(f"lmdb:{tmp_path}/store?durability=none"))
        assert await asyncio.to_thread(begun.wait, 30)
        for _ in range(2):
            opening.cancel()
            await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await opening
        with pytest.raises(EngineUnavailableError):
            opened[0].root.get("a")

    monkeypatch.setattr(stores, "open_hepnos", open_slowly)
    asyncio.run(scenario(), debug=True)


def test_an_error_of_opening_is_told_and_one_of_a_cancelled_opening_is_not(tmp_path: Path) -> None:
    async def enter() -> None:
        async with hepnos.aio.open(f"lmdb:{tmp_path}/nowhere", create=False):
            raise AssertionError("there is none")

    async def scenario() -> None:
        with pytest.raises(StoreMissingError):
            await enter()
        opening = asyncio.create_task(enter())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(scenario(), debug=True)


def test_closing_that_is_cancelled_ends_first(url: str) -> None:
    begun, may_end = Event(), Event()
    kept: list[hepnos.DataStore] = []

    def slow() -> None:
        begun.set()
        assert may_end.wait(30)

    async def leave() -> None:
        async with hepnos.aio.open(url) as store:
            kept.append(store.sync)
            await store.queues.create("q", int)
            under_way = asyncio.create_task(store.call(slow))
            assert await asyncio.to_thread(begun.wait, 30)
        await under_way

    async def scenario() -> None:
        leaving = asyncio.create_task(leave())
        assert await asyncio.to_thread(begun.wait, 30)
        await asyncio.sleep(0.01)
        for _ in range(2):
            leaving.cancel()
            await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        with pytest.raises(EngineUnavailableError):
            await asyncio.to_thread(kept[0].root.get, "a")

    asyncio.run(asyncio.wait_for(scenario(), 60), debug=True)
