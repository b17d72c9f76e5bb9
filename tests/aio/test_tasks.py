"""Many tasks at once, cancellation, loops: what a synchronous store does not have. On every engine, real etcd included."""

import asyncio
from contextlib import aclosing
from functools import partial
from pathlib import Path
from threading import Event as ThreadEvent
from threading import Thread, get_ident

import pytest

import keyplan.aio
from keyplan.aio import KeyplanError
from keyplan.aio.threads import Workers
from keyplan.engine import Commit, MemoryEngine, Snapshot, WrappedEngine
from keyplan.errors import (
    AlreadyExistsError,
    CommitConflictError,
    EngineOpenError,
    EngineUnavailableError,
    InvalidInputError,
    InvalidKeyError,
    UniqueViolationError,
    UnsupportedByEngineError,
)
from tests.aio.layouts import Hall, Rack, held, on, run

# ruff: noqa: PT012  # Why: what raises is the end of a transaction's block.

# ---- many tasks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline_reads", [False, True])
def test_of_64_tasks_that_insert_one_record_one_wins(any_url: str, *, inline_reads: bool) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)

        async def attempt(number: int) -> str:
            try:
                await hall.racks.insert("r1", Rack(f"room-{number}"))
            except AlreadyExistsError:
                return "exists"
            return "won"

        outcomes = await asyncio.gather(*(attempt(number) for number in range(64)))
        assert sorted(outcomes) == ["exists"] * 63 + ["won"]
        assert await hall.by_room.count() == 1

    on(any_url, scenario, inline_reads=inline_reads)


@pytest.mark.slow
def test_tasks_that_take_numbers_in_transactions_get_each_once(any_url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        async def take(tx: keyplan.aio.Transaction) -> int:
            hall = Hall(tx)
            number = await hall.ports.next()
            await asyncio.sleep(0)
            await hall.racks.insert(f"r{number}", Rack(f"room-{number}"))
            return number

        numbers = await asyncio.gather(*(store.run(take) for _ in range(16)))
        assert sorted(numbers) == list(range(1, 17))
        assert await Hall(store).racks.count() == 16

    on(any_url, scenario)


@pytest.mark.slow
def test_modify_is_repeated_until_each_task_had_its_turn_and_calls_on_the_loop(any_url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)
        await hall.racks.insert("r1", Rack("a", height=0))
        threads: set[int] = set()

        def raised(rack: Rack) -> Rack:
            threads.add(get_ident())
            return Rack(rack.room, height=rack.height + 1)

        await asyncio.gather(*(hall.racks.modify("r1", raised) for _ in range(16)))
        assert (await hall.racks.require("r1")).height == 16
        assert threads == {get_ident()}

    on(any_url, scenario)


def test_tasks_share_a_transaction_by_turns(any_url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)
        async with hall.transaction() as tx:
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(tx.racks.insert(f"r{number:02}", Rack(f"room-{number}")))
            assert await tx.racks.count() == 20
            assert await hall.racks.count() == 0
        assert await hall.racks.count() == 20
        with pytest.raises(InvalidInputError, match="the transaction has ended"):
            await tx.racks.get("r00")

    on(any_url, scenario)


def test_tasks_read_one_snapshot_while_others_write(any_url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)
        for number in range(40):
            await hall.racks.insert(f"r{number:02}", Rack(f"room-{number}"))
        async with hall.snapshot() as pinned:
            await pinned.revision

            async def listed() -> list[str]:
                return [key async for key, _ in pinned.racks.list()]

            found = await asyncio.gather(listed(), hall.racks.delete("r07"), listed(), pinned.racks.get("r07"))
            assert found[0] == found[2] == [f"r{number:02}" for number in range(40)]
            assert found[3] == Rack("room-7")
            with pytest.raises(UnsupportedByEngineError):
                await pinned.racks.delete("r01")
        assert not await hall.racks.exists("r07")

    on(any_url, scenario)


def test_the_loop_turns_while_an_engine_blocks() -> None:
    release = ThreadEvent()

    class Stuck(WrappedEngine):
        def commit(self, commit: Commit) -> int:
            release.wait(30)
            return self.inner.commit(commit)

    async def scenario() -> None:
        async with keyplan.aio.Store(Stuck(MemoryEngine())) as store:
            writes = [asyncio.create_task(Hall(store).racks.insert(f"r{n}", Rack(f"a{n}"))) for n in range(8)]
            for _ in range(20):
                await asyncio.sleep(0)
            assert await Hall(store).racks.get("r1") is None
            release.set()
            assert sorted(await asyncio.gather(*writes)) == [1, 2, 3, 4, 5, 6, 7, 8]

    run(scenario)


# ---- lists ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_long_list_is_one_state_and_can_be_given_up(any_url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)
        keys = [f"r{number:04}" for number in range(600)]
        for part in range(0, 600, 30):
            async with hall.transaction() as tx:
                for key in keys[part : part + 30]:
                    await tx.racks.insert(key, Rack(f"room-{key}"))
        found: list[str] = []
        async for key, rack in hall.racks.list():
            if not found:
                await hall.racks.delete("r0599")
            found.append(key)
            assert rack.room == f"room-{key}"
        assert found == keys
        async with aclosing(hall.racks.keys(reverse=True, limit=50)) as listed:
            assert await anext(listed) == "r0598"
        assert [key async for key in hall.racks.keys(starts_with="r005", limit=3)] == ["r0050", "r0051", "r0052"]
        with pytest.raises(InvalidKeyError):
            hall.racks.list("a", "b", "c")

    on(any_url, scenario)


def test_a_transaction_s_list_is_a_premise_as_far_as_it_was_consumed(any_url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)
        for key in ("a", "c", "e"):
            await hall.racks.insert(key, Rack(key))
        async with hall.transaction() as tx:
            async for key in tx.racks.keys():
                if key == "c":
                    break
            await hall.racks.insert("d", Rack("d"))
            await tx.racks.insert("z", Rack("z"))
        with pytest.raises(CommitConflictError):
            async with hall.transaction() as tx:
                assert [key async for key, _ in tx.racks.list()] == ["a", "c", "d", "e", "z"]
                await hall.racks.insert("b", Rack("b"))
                await tx.racks.insert("y", Rack("y"))
        assert not await hall.racks.exists("y")

    on(any_url, scenario)


# ---- cancellation -----------------------------------------------------------------------------------------------------------


def test_a_transaction_whose_task_is_cancelled_writes_nothing(any_url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)
        inside = asyncio.Event()

        async def stuck(tx: Hall[keyplan.aio.Async]) -> None:
            await tx.racks.insert("r1", Rack("a"))
            inside.set()
            await asyncio.Event().wait()

        async def by_block() -> None:
            async with hall.transaction() as tx:
                await stuck(tx)

        for work in (hall.run(stuck), by_block()):
            inside.clear()
            task = asyncio.ensure_future(work)
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await hall.racks.count() == 0

    on(any_url, scenario)


def test_an_error_in_the_middle_of_a_run_writes_nothing_and_is_raised_as_it_is(any_url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        async def failing(tx: Hall[keyplan.aio.Async]) -> None:
            await tx.racks.insert("r1", Rack("a"))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await Hall(store).run(failing)
        assert await Hall(store).racks.count() == 0

    on(any_url, scenario)


def test_a_commit_that_was_cancelled_while_under_way_may_have_happened_and_the_store_goes_on() -> None:
    begun, release = ThreadEvent(), ThreadEvent()

    class Slow(WrappedEngine):
        def commit(self, commit: Commit) -> int:
            begun.set()
            release.wait(30)
            return self.inner.commit(commit)

    async def scenario() -> None:
        async with keyplan.aio.Store(Slow(MemoryEngine())) as store:
            hall = Hall(store)
            task = asyncio.create_task(hall.racks.insert("r1", Rack("a")))
            await held(begun.is_set)
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done(), "what it has begun uses the store; it is waited for"
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await hall.racks.get("r1") == Rack("a")

    run(scenario)


def test_a_snapshot_whose_opening_was_cancelled_is_closed() -> None:
    begun, release = ThreadEvent(), ThreadEvent()
    opened: list[Snapshot] = []

    class Slow(WrappedEngine):
        def snapshot(self) -> Snapshot:
            begun.set()
            release.wait(30)
            opened.append(self.inner.snapshot())
            return opened[-1]

    async def scenario() -> None:
        async with keyplan.aio.Store(Slow(MemoryEngine())) as store:

            async def read() -> None:
                async with store.snapshot():
                    raise AssertionError("it was cancelled before")

            task = asyncio.create_task(read())
            await held(begun.is_set)
            task.cancel()
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(EngineUnavailableError):
                opened[0].get(b"x")

    run(scenario)


# ---- loops, opening, closing ------------------------------------------------------------------------------------------------


def test_another_event_loop_is_refused(any_url: str) -> None:
    async def opened() -> keyplan.aio.Store:
        return await keyplan.aio.open(any_url)

    async def elsewhere() -> None:
        hall = Hall(store)
        for use in (hall.racks.get("r1"), hall.racks.insert("r1", Rack("a")), hall.run(ended), store.close()):
            with pytest.raises(InvalidInputError, match="another event loop"):
                await use
        with pytest.raises(InvalidInputError, match="another event loop"):
            await anext(hall.racks.list())
        with pytest.raises(InvalidInputError, match="another event loop"):
            await hall.racks.watch()

    async def ended(tx: Hall[keyplan.aio.Async]) -> None:
        raise AssertionError("not called")

    with asyncio.Runner() as runner:
        store = runner.run(opened())
        asyncio.run(elsewhere())
        runner.run(store.close())


def test_a_store_needs_a_running_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        keyplan.aio.Store(MemoryEngine())


def test_a_closed_store_refuses_everything(any_url: str) -> None:
    async def scenario() -> None:
        async with keyplan.aio.open(any_url) as store:
            hall = Hall(store)
        for use in (hall.racks.get("r1"), hall.racks.insert("r1", Rack("a")), hall.ports.next(), hall.racks.count()):
            with pytest.raises(EngineUnavailableError):
                await use
        with pytest.raises(EngineUnavailableError):
            await hall.racks.watch()
        with pytest.raises(EngineUnavailableError):
            await anext(hall.racks.list())

    run(scenario)


def test_a_place_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        for place in (f"lmdb:{tmp_path / 'none'}?create=false", "nonsense:", "etcd://127.0.0.1:1?timeout=1"):
            with pytest.raises(EngineOpenError):
                await keyplan.aio.open(place)

    run(scenario)


def test_errors_are_those_of_the_synchronous_store(any_url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)
        await hall.racks.insert("r1", Rack("a"))
        with pytest.raises(UniqueViolationError):
            await hall.racks.insert("r2", Rack("a"))
        with pytest.raises(KeyplanError):
            async with hall.transaction() as tx:
                await tx.racks.insert("r1", Rack("b"))
        explanation = await store.explain(lambda tx: Hall(tx).racks.delete("r1"))
        assert len(explanation.commit.mutations) == 2
        assert await hall.racks.exists("r1")

    on(any_url, scenario)


def test_where_no_thread_can_be_had_the_others_do_the_work_and_a_store_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    start, begun = Thread.start, list[Thread]()

    def started(thread: Thread) -> None:
        """The second alone begins."""
        begun.append(thread)
        if len(begun) != 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    async def scenario() -> None:
        workers = Workers(asyncio.get_running_loop())
        with pytest.raises(RuntimeError, match="can't start"):
            await workers.run(int)  # nobody would do it
        answers = await asyncio.gather(*(workers.run(partial(abs, number)) for number in range(4)))
        assert (answers, len(begun) > 2) == ([0, 1, 2, 3], True)
        await asyncio.wait_for(workers.close(), 30)

    monkeypatch.setattr(Thread, "start", started)
    asyncio.run(scenario())
