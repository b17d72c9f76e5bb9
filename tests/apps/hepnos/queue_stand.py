"""What tests of queues share: a queue of three items whose clock is moved by hand, and answers that are lost."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from keyplan.apps import hepnos
from keyplan.apps.hepnos.aio_queues import Queues
from keyplan.apps.hepnos.queues import QueueHome, StoredQueues
from keyplan.engine import open_engine
from keyplan.errors import CommitOutcomeUnknownError
from keyplan.store import Store
from keyplan.testing.faults import FakeClock

__all__ = ["Cut", "InLoop", "cancelled_after", "queue_of_three", "queues_in_loop"]

R = TypeVar("R")

_LOST: Final = {"enter", "leave", "put", "take", "settle"}


def queue_of_three(clock: FakeClock) -> hepnos.Queues:
    """Return queues with one of three items, `q`."""
    store = Store(open_engine("memory:"))
    queues = hepnos.Queues(StoredQueues(store, Store(open_engine("memory:")), clock), clock)
    queues.create("q", int)
    with queues.open("q", int, mode="producer") as producer:
        for number in range(3):
            producer.put(number)
    return queues


class Cut:
    """Queues whose answers are lost, each after some seconds, so often."""

    def __init__(self, acts: Any, clock: FakeClock) -> None:
        self.acts, self.clock, self.lost = acts, clock, 0

    def __getattr__(self, name: str) -> Any:
        def act(*given: Any, **named: Any) -> Any:
            found = getattr(self.acts, name)(*given, **named)
            if name in _LOST and self.lost:
                self.lost -= 1
                self.clock.advance(20)
                raise CommitOutcomeUnknownError(engine="cut", problem="the answer was lost")
            return found

        return act


class InLoop:
    """Calls in the event loop itself, each a turn of it after it was asked for: what happens is the same each time."""

    async def call(self, function: Callable[[], R]) -> R:
        """Return what a call returns."""
        await asyncio.sleep(0)
        found = function()
        await asyncio.sleep(0)
        return found

    async def call_short(self, function: Callable[[], R]) -> R:
        """The same."""
        return await self.call(function)

    async def end(self, close: Callable[[], None]) -> None:
        """Close."""
        close()


def queues_in_loop(home: QueueHome) -> Queues:
    """Return queues for asyncio whose calls are made in the event loop itself."""
    from keyplan.apps.hepnos.awaited_queues import queues_at  # noqa: PLC0415  # Why: the matrix is read without greenlet, too.

    return queues_at(lambda: home, InLoop())


async def cancelled_after(turns: int, work: Any) -> tuple[list[Any], bool]:
    """Await what adds what it gets to a list, and is cancelled after so many turns of the loop; tell whether it ended first."""
    got: list[Any] = []
    task = asyncio.create_task(work(got))
    for _ in range(turns):
        await asyncio.sleep(0)
    was_done = task.done()
    task.cancel()
    await asyncio.wait({task})
    return got, was_done
