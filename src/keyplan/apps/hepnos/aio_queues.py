"""The queues of `hepnos.aio`: views of the synchronous ones, which have the code. How those wait: `awaited_queues.py`."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from keyplan.apps.hepnos import queues
from keyplan.apps.hepnos.aio_calls import Caller, View, awaited, leading, maybe

__all__ = ["Queue", "QueueItem", "Queues"]


class QueueItem(View[queues.QueueItem]):
    """An item that was taken; see `hepnos.QueueItem`. For `async with`: acknowledged at the end, given back when it fails.

    Neither is given up halfway: a cancellation that comes meanwhile is raised at the next `await`.
    """

    __slots__ = ()

    acknowledge = awaited(queues.QueueItem.acknowledge)
    give_back = awaited(queues.QueueItem.give_back)

    @property
    def number(self) -> int:
        """Its place in the queue, from 0; no other item of the queue ever has it."""
        return self.sync.number

    @property
    def value(self) -> Any:
        """What the producer put. Raises CorruptionError, which names the queue and the item."""
        return self.sync.value

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.call_short(self.sync.__exit__, kind, error, trace)


class Queue(View[queues.Queue]):
    """An open queue; see `hepnos.Queue`. For `async for`, which takes one item after the other, and for `async with`.

    Any number of tasks may use it at once, and wait: one of them looks at the queue for all. Cancelled while it waits, a `take`
    has taken nothing; cancelled while it looks, it gives back what it finds, at once. A `get` that is cancelled gives back its
    item, or returns it where it is being acknowledged: the cancellation is raised at the next `await` then. Of a `put` that is
    cancelled it is not known whether it is in the queue.
    """

    __slots__ = ()

    put = awaited(queues.Queue.put)
    put_many = awaited(queues.Queue.put_many)
    get = awaited(queues.Queue.get)
    take = leading(queues.Queue.take, maybe(QueueItem))
    is_empty = awaited(queues.Queue.is_empty)
    close = awaited(queues.Queue.close)

    async def __aiter__(self) -> AsyncGenerator[QueueItem, None]:
        while (item := await self.take()) is not None:
            yield item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Queues(View[queues.Queues]):
    """The queues of a store, by name and type; see `hepnos.Queues`."""

    __slots__ = ("end",)

    create = awaited(queues.Queues.create)
    open = leading(queues.Queues.open, Queue)
    destroy = awaited(queues.Queues.destroy)
    names = awaited(queues.Queues.names)

    def __init__(self, sync: queues.Queues, caller: Caller, end: Callable[[], Awaitable[None]]) -> None:
        """`end` is called when the store is closed: it wakes who waits, and awaits what is under way."""
        super().__init__(sync, caller)
        self.end = end
