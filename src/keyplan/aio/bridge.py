"""Where synchronous store code meets the event loop: what runs where, and that it is the right loop.

An engine that blocks is used in threads: a whole operation at once, or single calls of code that runs on the loop. An engine
that awaits (its calls `wait` inside a greenlet) needs no thread at all.
"""

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, get_running_loop, sleep
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from typing import TypeVar

from keyplan.aio.greenlets import drive, is_driven, wait
from keyplan.aio.threads import Workers
from keyplan.errors import CommitConflictError, InvalidInputError
from keyplan.store import Backoff

__all__ = ["AwaitingBridge", "LoopBridge", "OffloadingBridge", "awaited_backoff"]

R = TypeVar("R")


class LoopBridge(ABC):
    """How the operations of one store run on one event loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self._loop_thread = get_ident()

    @property
    def is_on_loop(self) -> bool:
        """True in the loop's thread."""
        return get_ident() == self._loop_thread

    @abstractmethod
    async def run_blocking(self, work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        """Run an operation that reads or commits, without the loop waiting for it; see `Workers.run` for `undo`."""

    @abstractmethod
    async def run_short(self, work: Callable[[], R]) -> R:
        """Run an operation that reads a few keys: as `run_blocking`, or on the loop where the store's user chose so."""

    async def driven(self, work: Callable[[], R]) -> R:
        """Run code on the loop whose waits are awaited: its engine awaits, or is a `ThreadOffloadEngine`."""
        self.check_loop()
        return await drive(work)

    @abstractmethod
    def offload(self, work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        """For an engine's call from driven code: do it where it does not hold up the loop. From elsewhere, do it here."""

    @abstractmethod
    def tries(self, backoff: Backoff) -> Backoff:
        """Return the same waits for tries that are offloaded as a whole."""

    @abstractmethod
    async def close(self) -> None:
        """End what runs. Nothing may be run afterwards."""

    def check_loop(self) -> None:
        """Raise InvalidInputError on another event loop than the store's."""
        if get_running_loop() is not self.loop:
            raise InvalidInputError(
                source="event loop",
                problem="the store was opened on another event loop: open one on each, and close it there",
            )


def awaited_backoff() -> Backoff:
    """Return the waits of driven code: they are awaited."""
    return Backoff(sleep=_pause)


def _pause(seconds: float) -> None:
    wait(sleep(seconds))


class AwaitingBridge(LoopBridge):
    """The bridge to an engine that awaits: everything is driven."""

    async def run_blocking(self, work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        self.check_loop()
        return await drive(work)

    async def run_short(self, work: Callable[[], R]) -> R:
        self.check_loop()
        return await drive(work)

    def offload(self, work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        return work()

    def tries(self, backoff: Backoff) -> Backoff:
        return backoff

    async def close(self) -> None:
        """There is nothing to end."""


class OffloadingBridge(LoopBridge):
    """The bridge to an engine that blocks: threads. With `has_inline_reads`, reads of a few keys are made on the loop."""

    def __init__(self, loop: AbstractEventLoop, *, has_inline_reads: bool) -> None:
        super().__init__(loop)
        self._workers = Workers(loop)
        self._has_inline_reads = has_inline_reads

    async def run_blocking(self, work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        self.check_loop()
        return await self._workers.run(work, undo)

    async def run_short(self, work: Callable[[], R]) -> R:
        self.check_loop()
        return work() if self._has_inline_reads else await self._workers.run(work)

    def offload(self, work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        return wait(self._workers.run(work, undo)) if is_driven() else work()

    def tries(self, backoff: Backoff) -> Backoff:
        return _OffloadedTries(backoff.sleep, backoff.chance, bridge=self)

    async def close(self) -> None:
        await self._workers.close()


@dataclass(frozen=True, slots=True)
class _OffloadedTries(Backoff):
    """Each try is made in a thread as a whole; the waits in between are awaited, and hold no thread."""

    bridge: LoopBridge = field(kw_only=True)

    def until_committed(
        self, attempt: Callable[[], R], *, is_lost: Callable[[CommitConflictError], bool] = lambda _: True
    ) -> R:
        # Why not super(): a dataclass with slots is made twice, and super() means the first.
        return Backoff.until_committed(self, partial(self.bridge.offload, attempt), is_lost=is_lost)
