"""Calls of the synchronous API in threads of a store's own, which end before it does, whatever becomes of who awaits them."""

from asyncio import CancelledError, Future, get_running_loop, wait
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Steps", "Threads", "opened_in_thread", "to_its_end"]

R = TypeVar("R")
S = TypeVar("S")


class Threads:
    """Calls in threads of the store's own."""

    def __init__(self, number: int) -> None:
        self._pool = ThreadPoolExecutor(number, thread_name_prefix="keyplan-hepnos-aio")

    async def call(self, function: Callable[[], R]) -> R:
        """Return what a call returns, made in a thread. Cancelled, it may still be carried out."""
        return await get_running_loop().run_in_executor(self._pool, function)

    async def call_short(self, function: Callable[[], R]) -> R:
        """The same."""
        return await self.call(function)

    async def end(self, close: Callable[[], None]) -> None:
        """Wait for the calls that are under way, then close; to its end even if cancelled."""

        def ended() -> None:
            # Why first: a call whose task was cancelled may be under way.
            self._pool.shutdown()
            close()

        # Why in a thread: the loop must not wait for them. Why to its end: half a close would leave a store open.
        await to_its_end(get_running_loop().run_in_executor(None, ended))


async def opened_in_thread(opening: Callable[[], S], close: Callable[[S], None]) -> S:
    """Return what is opened in a thread. Cancelled meanwhile, it is closed there first, since nobody else knows of it."""
    loop = get_running_loop()
    opened = loop.run_in_executor(None, opening)
    try:
        return await to_its_end(opened)
    except CancelledError:
        if opened.exception() is None:
            await to_its_end(loop.run_in_executor(None, close, opened.result()))
        raise


async def to_its_end(work: "Future[R]") -> R:
    """Return what some work returns. Cancelled meanwhile, wait until it has ended, and raise CancelledError then."""
    cancelled: CancelledError | None = None
    while not work.done():
        try:
            await wait([work])
        except CancelledError as error:
            cancelled = error
    if cancelled is not None:
        try:
            raise cancelled
        finally:
            del cancelled  # Why: an error holds this frame, and so itself.
    return work.result()


class Steps(Generic[S]):
    """An iterator that is begun and advanced in threads, one step after the other, and closed in one.

    Why a lock: a step whose task was cancelled goes on in its thread, and who closes waits there for it.
    """

    def __init__(self, items: Callable[[], Iterator[S]]) -> None:
        self._items = items
        self._found: Iterator[S] | None = None
        self._stepping = Lock()

    def next(self, number: int) -> list[S]:
        """Return the next ones, at most so many; none at the end."""
        with self._stepping:
            if self._found is None:
                self._found = self._items()
            return list(islice(self._found, number))

    def close(self) -> None:
        """Give back what it holds."""
        with self._stepping:
            if isinstance(self._found, Generator):
                self._found.close()
