"""The layout of the twin's own tests, for both uses, and a way to run them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import msgspec

import keyplan.aio
from keyplan.aio import Counter, Index, Layout, Mode, Table, Unique
from keyplan.store import open_store
from keyplan.testing.checked import assert_healthy

__all__ = ["Hall", "Rack", "held", "on", "run"]

SECONDS_MAX = 60.0
LAST_TURNS_SECONDS = 30.0


class Rack(msgspec.Struct, frozen=True):
    room: str
    tags: list[str] = []
    height: int = 42


class Hall(Layout[Mode], root="/hall/"):
    """Racks with a unique and a fan-out index, and what else there is."""

    racks = Table("racks/{rack}", key=str, value=Rack)
    by_room = Unique("by-room/{room}", of=racks, key=str)
    by_tag = Index("by-tag/{tag}/{rack}", of=racks, key=str, each={"tag": "tags"})
    members = Table("members/{member}", key=str, value=Rack, lease=True)
    ports = Counter("next-port", start=1)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario on a loop of its own, bounded in time; fail when it leaves a task or a thread behind."""
    before = {thread.ident for thread in threading.enumerate()}

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await scenario()
        # Why it may take a few turns of the loop: grpc ends a call's own task by itself, after the call is over.
        if begun := asyncio.all_tasks() - {asyncio.current_task()}:
            _, left = await asyncio.wait(begun, timeout=LAST_TURNS_SECONDS)
            assert not left, f"tasks are left: {left}"

    asyncio.run(bounded(), debug=True)
    # Why the exception: grpc has one thread a process that polls for all loops, and ends with the process.
    begun_threads = [
        thread
        for thread in threading.enumerate()
        if thread.ident not in before and not thread.name.endswith("(_poll_wrapper)")
    ]
    # Why joined: a channel of grpc that was closed ends its thread a moment later.
    for thread in begun_threads:
        thread.join(LAST_TURNS_SECONDS)
    left = [thread for thread in begun_threads if thread.is_alive()]
    assert not left, f"threads are left: {left}"


async def held(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; `run` bounds it."""
    while not condition():  # noqa: ASYNC110  # Why: what is waited for happens in threads, or nobody tells of it.
        await asyncio.sleep(0.002)


def on(url: str, scenario: Callable[[keyplan.aio.Store], Awaitable[None]], *, inline_reads: bool = False) -> None:
    """Run the scenario on a store, and check what it has written."""

    async def opened() -> None:
        async with keyplan.aio.open(url, inline_reads=inline_reads) as store:
            await scenario(store)

    with open_store(url) as kept:
        run(opened)
        assert_healthy(kept, Hall)
