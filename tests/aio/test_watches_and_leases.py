"""Watches and leases of the asynchronous store. On every engine, real etcd included."""

import asyncio
from threading import active_count

import pytest

import keyplan.aio
from keyplan.aio import ChangeKind
from keyplan.errors import (
    EngineUnavailableError,
    LeaseNotFoundError,
)
from keyplan.layout import AsyncChanges
from tests.aio.layouts import Hall, Rack, held, on, run

# Why: what raises is the end of a transaction's block.

# ---- watches ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["racks", "by_room", "by_tag"])
def test_a_watch_sees_what_others_write_meanwhile(any_url: str, name: str) -> None:
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

    on(any_url, scenario)


def test_a_wait_for_a_change_that_times_out_loses_nothing(any_url: str) -> None:
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

    on(any_url, scenario)


def test_a_watch_is_closed_in_the_very_moment_in_which_a_wait_begins(any_url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        changes = await Hall(store).racks.watch()
        waiting = asyncio.create_task(anext(changes, None))
        await asyncio.sleep(0)  # Why: it has begun now, and what it waits for has not.
        await changes.close()
        assert await waiting is None

    on(any_url, scenario)


def test_closing_a_watch_or_its_store_wakes_who_waits(any_url: str) -> None:
    async def scenario() -> None:
        store = await keyplan.aio.open(any_url)
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


def test_a_loop_over_changes_that_is_left_leaves_nothing_behind(any_url: str) -> None:
    async def scenario(store: keyplan.aio.Store) -> None:
        hall = Hall(store)
        await hall.racks.insert("r1", Rack("a"))
        async for change in hall.racks.follow():
            assert change.key == "r1"
            break

    on(any_url, scenario)


@pytest.mark.slow
def test_many_quiet_watches_hold_no_thread_each() -> None:
    async def scenario() -> None:
        async with keyplan.aio.open("memory:") as store:
            hall = Hall(store)
            watches = [await hall.racks.watch(f"r{number:04}") for number in range(200)]
            waiting = [asyncio.create_task(changes.poll(30)) for changes in watches]
            await hall.racks.insert("r0100", Rack("a"))
            await waiting[100]
            assert active_count() < 50
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)

    run(scenario)


# ---- leases -----------------------------------------------------------------------------------------------------------------


def test_a_record_lives_as_long_as_its_lease_is_held(any_url: str) -> None:
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

    on(any_url, scenario)


@pytest.mark.slow
def test_a_lease_is_renewed_by_a_task_and_its_loss_is_told_once(any_url: str) -> None:
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

    on(any_url, scenario)


def test_closing_the_store_tells_holders_and_waits_for_their_answer(any_url: str) -> None:
    told: list[str] = []

    async def scenario(store: keyplan.aio.Store) -> None:
        async def lost(lease: keyplan.aio.Lease) -> None:
            await asyncio.sleep(0.01)
            told.append(lease.loss)

        await store.lease(600, on_loss=lost)

    on(any_url, scenario)
    assert told == ["the store was closed"]
