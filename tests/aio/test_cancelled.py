"""What is left of a lease whose block was cancelled, and of a watch that was closed under who waits for it."""

import asyncio
from pathlib import Path
from threading import Event

import pytest

import keyplan.aio
from keyplan.errors import EngineUnavailableError, LeaseNotFoundError
from tests.aio.layouts import Hall, Rack, run

_THREADS = 32
_SECONDS_MAX = 60.0


def test_a_lease_of_a_block_that_was_cancelled_twice_while_all_threads_are_busy_is_revoked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await keyplan.aio.open(f"lmdb:{tmp_path}") as store:
            granted: asyncio.Future[keyplan.aio.Lease] = asyncio.get_running_loop().create_future()

            async def hold() -> None:
                async with store.lease(600) as lease:
                    granted.set_result(lease)
                    await asyncio.Event().wait()

            holder = asyncio.create_task(hold())
            lease = await granted
            go_on = Event()
            busy = [
                asyncio.create_task(store._bridge.run_blocking(lambda: go_on.wait(_SECONDS_MAX)))
                for _ in range(2 * _THREADS)
            ]
            await asyncio.sleep(0)
            for _ in range(2):
                holder.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await holder
            assert lease.is_over, "it is not renewed any more"
            go_on.set()
            await asyncio.gather(*busy)
            async with asyncio.timeout(_SECONDS_MAX):
                while True:
                    try:
                        await store._bridge.run_blocking(lease.held._lease.seconds_left)
                    except LeaseNotFoundError:
                        return
                    await asyncio.sleep(0.01)

    run(scenario)


def test_a_poll_whose_watch_is_closed_meanwhile_says_so() -> None:
    async def scenario() -> None:
        async with await keyplan.aio.open("memory:") as store:
            changes = await Hall(store).racks.watch()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(changes)  # a wait that is cancelled goes on
            polled = asyncio.create_task(changes.poll(_SECONDS_MAX))
            await asyncio.sleep(0)
            await changes.close()
            with pytest.raises(EngineUnavailableError, match="closed"):
                await polled

    run(scenario)


def test_two_polls_of_one_cancelled_wait_hand_over_each_change_once() -> None:
    async def scenario() -> None:
        async with await keyplan.aio.open("memory:") as store:
            hall = Hall(store)
            changes = await hall.racks.watch()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(changes)
            polls = [asyncio.create_task(changes.poll(1)) for _ in range(2)]
            await asyncio.sleep(0)
            await hall.racks.insert("r1", Rack("hall"))
            found = [change.key for delivered in await asyncio.gather(*polls) for change in delivered]
            assert found == ["r1"]
            await changes.close()

    run(scenario)
