"""Layouts of an asynchronous store compared with what it notes: each before its first operation, since binding cannot wait."""

from asyncio import Lock
from collections.abc import AsyncGenerator, Callable, Iterator, MutableSet
from functools import partial
from typing import TypeVar

from keyplan.aio.bridge import LoopBridge
from keyplan.aio.calls import Calls
from keyplan.aio.changes import AwaitedChanges
from keyplan.layout import BoundLayout, Changes
from keyplan.store import LayoutChecker

__all__ = ["AwaitedChecks"]

R = TypeVar("R")
T = TypeVar("T")


class AwaitedChecks:
    """The checks of one store, and of its snapshots and transactions."""

    def __init__(self, bridge: LoopBridge, checker: LayoutChecker) -> None:
        self._bridge = bridge
        self._checker = checker
        self._lock = Lock()
        """Why: what several tasks do first is one look, and one warning."""

    def before(self, calls: Calls, layout: BoundLayout) -> Calls:
        """Return the same calls, which look at the layout before the first of them where it is due."""
        return _CheckedCalls(calls, self, layout) if self._checker.is_due(layout) else calls

    async def check(self, layout: BoundLayout) -> None:
        """Look at a layout, where it is due still. Raises LayoutMismatchError."""
        if self._checker.is_due(layout):
            async with self._lock:
                await self._bridge.driven(partial(self.check_driven, layout))

    def check_driven(self, layout: BoundLayout) -> None:
        """`check`, for code that is driven."""
        if self._checker.is_due(layout):
            self._checker.say(layout, self._bridge.offload(partial(self._checker.mismatch, layout)))


class _CheckedCalls(Calls):
    """Calls of views of a layout that was not looked at when they were made."""

    def __init__(self, calls: Calls, checks: AwaitedChecks, layout: BoundLayout) -> None:
        super().__init__(calls.bridge)
        self._calls, self._checks, self._layout = calls, checks, layout

    async def run_short(self, work: Callable[[], R]) -> R:
        await self._checks.check(self._layout)
        return await self._calls.run_short(work)

    async def run_blocking(self, work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        await self._checks.check(self._layout)
        return await self._calls.run_blocking(work, undo)

    async def written(self, work: Callable[[], R]) -> R:
        await self._checks.check(self._layout)
        return await self._calls.written(work)

    async def listed(self, found: Iterator[T]) -> AsyncGenerator[T, None]:
        await self._checks.check(self._layout)
        async for one in self._calls.listed(found):
            yield one

    def watched(self, begin: Callable[[], Changes[object, object]]) -> AwaitedChanges:
        def begun() -> Changes[object, object]:
            self._checks.check_driven(self._layout)
            return begin()

        return self._calls.watched(begun)

    @property
    def watches(self) -> MutableSet[AwaitedChanges]:
        return self._calls.watches
