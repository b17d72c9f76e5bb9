"""Many tasks at once, cancellation, loops: what a synchronous store does not have. On every engine, real etcd included."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from threading import Event as ThreadEvent
from threading import active_count, get_ident

import pytest

import keyplan.aio
from keyplan.aio import ChangeKind, KeyplanError
from keyplan.engine import ALL_KEYS, Commit, DeleteRange, MemoryEngine, Snapshot, WrappedEngine
from keyplan.errors import (
    AlreadyExistsError,
    CommitConflictError,
    EngineOpenError,
    EngineUnavailableError,
    InvalidInputError,
    InvalidKeyError,
    LeaseNotFoundError,
    UniqueViolationError,
    UnsupportedByEngineError,
)
from keyplan.layout import AsyncChanges
from keyplan.store import open_store
from keyplan.testing.checked import assert_healthy
from tests.aio.layouts import Hall, Rack, held, run
from tests.servers.etcd import EtcdServer

# ruff: noqa: PT012  # Why: what raises is the end of a transaction's block.

Scenario = Callable[[keyplan.aio.Store], Awaitable[None]]


@pytest.fixture(params=["memory", "lmdb", "etcd"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory:{tmp_path.name}"
    if request.param == "lmdb":
        return f"lmdb:{tmp_path / 'store'}"
    server: EtcdServer = request.getfixturevalue("etcd_server")
    with open_store(server.url) as store:
        store.engine.commit(Commit((), (DeleteRange(ALL_KEYS),)))
    return server.url


def on(url: str, scenario: Scenario, *, inline_reads: bool = False) -> None:
    """Run the scenario on a store, and check what it has written."""

    async def opened() -> None:
        async with keyplan.aio.open(url, inline_reads=inline_reads) as store:
            await scenario(store)

    with open_store(url) as kept:
        run(opened)
        assert_healthy(kept, Hall)


# ---- many tasks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline_reads", [False, True])
def test_of_64_tasks_that_insert_one_record_one_wins(url: str, *, inline_reads: bool) -> None:
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

    on(url, scenario, inline_reads=inline_reads)


def test_tasks_that_take_numbers_in_transactions_get_each_once(url: str) -> None:
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

    on(url, scenario)


def test_modify_is_repeated_until_each_task_had_its_turn_and_calls_on_the_loop(url: str) -> None:
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

    on(url, scenario)


def test_tasks_share_a_transaction_by_turns(url: str) -> None:
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

    on(url, scenario)


def test_tasks_read_one_snapshot_while_others_write(url: str) -> None:
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

    on(url, scenario)


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


def test_a_long_list_is_one_state_and_can_be_given_up(url: str) -> None:
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

    on(url, scenario)


def test_a_transaction_s_list_is_a_premise_as_far_as_it_was_consumed(url: str) -> None:
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

    on(url, scenario)


# ---- cancellation -----------------------------------------------------------------------------------------------------------


def test_a_transaction_whose_task_is_cancelled_writes_nothing(url: str) -> None:
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

    on(url, scenario)


def test_an_error_in_the_middle_of_a_run_writes_nothing_and_is_raised_as_it_is(url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        async def failing(tx: Hall[keyplan.aio.Async]) -> None:
            await tx.racks.insert("r1", Rack("a"))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await Hall(store).run(failing)
        assert await Hall(store).racks.count() == 0

    on(url, scenario)


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


# ---- watches ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["racks", "by_room", "by_tag"])
def test_a_watch_sees_what_others_write_meanwhile(url: str, name: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)
        found: list[tuple[ChangeKind, str]] = []

        async def watch(changes: AsyncChanges[str, Rack]) -> None:
            async for change in changes:
                found.append((change.kind, change.key))
                if change.key == "r29":
                    return

        async with hall.view(name).watch() as changes:
            watching = asyncio.create_task(watch(changes))
            for number in range(30):
                await hall.racks.insert(f"r{number:02}", Rack(f"room-{number}", ["x"]))
            await watching
        assert found == [(ChangeKind.INSERTED, f"r{number:02}") for number in range(30)]

    on(url, scenario)


def test_a_wait_for_a_change_that_times_out_loses_nothing(url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)
        changes = await hall.racks.watch()
        for number in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await anext(changes)
            await hall.racks.insert(f"r{number}", Rack(f"room-{number}"))
            assert (await anext(changes)).key == f"r{number}"
        token = changes.token
        await changes.close()
        with pytest.raises(StopAsyncIteration):
            await anext(changes)
        with pytest.raises(EngineUnavailableError):
            await changes.poll()
        await hall.racks.insert("r9", Rack("room-9"))
        async with hall.racks.watch(after=token) as again:
            assert [change.key for change in await again.poll(10)] == ["r9"]

    on(url, scenario)


def test_closing_a_watch_or_its_store_wakes_who_waits(url: str) -> None:
    async def scenario() -> None:
        store = await keyplan.aio.open(url)
        hall = Hall(store)
        changes, others = await hall.racks.watch(), await hall.by_tag.watch("x")
        waiting = asyncio.create_task(anext(changes, None))
        other = asyncio.create_task(others.poll(30))
        await asyncio.sleep(0.01)
        await changes.close()
        assert await waiting is None
        await store.close()
        with pytest.raises(EngineUnavailableError):
            await other
        await store.close()

    run(scenario)


def test_a_loop_over_changes_that_is_left_leaves_nothing_behind(url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)
        await hall.racks.insert("r1", Rack("a"))
        async for change in hall.racks.follow():
            assert change.key == "r1"
            break

    on(url, scenario)


def test_many_quiet_watches_hold_no_thread_each() -> None:
    async def scenario() -> None:
        async with keyplan.aio.open("memory:") as store:
            hall = Hall(store)
            watches = [await hall.racks.watch(f"r{number:04}") for number in range(500)]
            waiting = [asyncio.create_task(changes.poll(30)) for changes in watches]
            await hall.racks.insert("r0250", Rack("a"))
            await waiting[250]
            assert active_count() < 50
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)

    run(scenario)


# ---- leases -----------------------------------------------------------------------------------------------------------------


def test_a_record_lives_as_long_as_its_lease_is_held(url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)
        async with store.lease(30) as lease:
            await hall.members.insert("m1", Rack("a"), lease=lease)
            async with hall.transaction() as tx:
                await tx.members.put("m2", Rack("b"), lease=lease)
            assert await lease.keep_alive() > 0
            assert await hall.members.count() == 2
        assert await hall.members.count() == 0
        with pytest.raises(LeaseNotFoundError):
            await hall.members.insert("m3", Rack("c"), lease=lease)

    on(url, scenario)


def test_a_lease_is_renewed_by_a_task_and_its_loss_is_told_once(url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        told = []

        async def lost(lease: keyplan.aio.Lease) -> None:
            await asyncio.sleep(0)
            told.append(lease)

        lease = await store.lease(2, on_loss=lost)
        before = lease.lives_until
        await held(lambda: lease.lives_until > before)
        await store.resume_lease(lease.id, keep_alive=False)
        other = await store.resume_lease(lease.id, keep_alive=False)
        await other.revoke()
        await held(lambda: bool(told))
        assert told == [lease]
        assert lease.loss == "it expired, or was revoked by another holder"

    on(url, scenario)


def test_closing_the_store_tells_holders_and_waits_for_their_answer(url: str) -> None:
    told: list[str] = []

    async def scenario(store: keyplan.aio.Store) -> None:
        async def lost(lease: keyplan.aio.Lease) -> None:
            await asyncio.sleep(0.01)
            told.append(lease.loss)

        await store.lease(600, on_loss=lost)

    on(url, scenario)
    assert told == ["the store was closed"]


# ---- loops, opening, closing ------------------------------------------------------------------------------------------------


def test_another_event_loop_is_refused(url: str) -> None:
    async def opened() -> keyplan.aio.Store:
        return await keyplan.aio.open(url)

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


def test_a_closed_store_refuses_everything(url: str) -> None:
    async def scenario() -> None:
        async with keyplan.aio.open(url) as store:
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
        for url in (f"lmdb:{tmp_path / 'none'}?create=false", "nonsense:", "etcd://127.0.0.1:1?timeout=1"):
            with pytest.raises(EngineOpenError):
                await keyplan.aio.open(url)

    run(scenario)


def test_errors_are_those_of_the_synchronous_store(url: str) -> None:
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

    on(url, scenario)
