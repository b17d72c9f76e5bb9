"""What the asynchronous store, its snapshots and its transactions have in common: views over synchronous bindings."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from keyplan.aio.calls import Calls
from keyplan.aio.layout_check import AwaitedChecks
from keyplan.aio.views import AwaitedCounter, AwaitedIndex, AwaitedTable, AwaitedUnique
from keyplan.layout import (
    AsyncBinding,
    AsyncCounterView,
    AsyncIndexView,
    AsyncTableView,
    AsyncUniqueView,
    Binding,
    BoundCounter,
    BoundIndex,
    BoundLayout,
    BoundTable,
)

__all__ = ["AwaitedBinding", "AwaitedBlock"]

Given = TypeVar("Given")
Entered = TypeVar("Entered")


class AwaitedBinding(AsyncBinding):
    """Views whose operations are those of the views of `reads` and `writes`, which are two on a store and one elsewhere."""

    def __init__(self, calls: Calls, reads: Binding, writes: Binding, checks: AwaitedChecks | None = None) -> None:
        self._calls = calls
        self._checks = checks
        self._reads = reads
        self._writes = writes
        self.secrets = reads.secrets

    @property
    def revision(self) -> Awaitable[int]:
        """The latest revision known, awaited: of the store, of the snapshot, or of the transaction's commit (0 before it)."""
        return self._calls.run_short(lambda: self._reads.revision)

    def _calls_of(self, layout: BoundLayout) -> Calls:
        # Why here, and not when it is bound: its first operation can wait for the store.
        return self._calls if self._checks is None else self._checks.before(self._calls, layout)

    # Why the casts: the operations are made from their names; a test compares them with the interfaces.

    def table_view(self, table: BoundTable) -> AsyncTableView[object, object]:
        view = AwaitedTable(self._calls_of(table.layout), self._reads.table_view(table), self._writes.table_view(table))
        return cast("AsyncTableView[object, object]", view)

    def unique_view(self, index: BoundIndex) -> AsyncUniqueView[object, object, object]:
        calls = self._calls_of(index.table.layout)
        view = AwaitedUnique(calls, self._reads.unique_view(index), self._writes.unique_view(index))
        return cast("AsyncUniqueView[object, object, object]", view)

    def index_view(self, index: BoundIndex) -> AsyncIndexView[object, object]:
        calls = self._calls_of(index.table.layout)
        view = AwaitedIndex(calls, self._reads.index_view(index), self._writes.index_view(index))
        return cast("AsyncIndexView[object, object]", view)

    def counter_view(self, counter: BoundCounter) -> AsyncCounterView:
        calls = self._calls_of(counter.layout)
        view = AwaitedCounter(calls, self._reads.counter_view(counter), self._writes.counter_view(counter))
        return cast("AsyncCounterView", view)


class AwaitedBlock(AbstractAsyncContextManager[Entered], Generic[Given, Entered]):
    """A `with` block of a synchronous binding as an `async with` block; `bound` makes what it gives of what that one gave."""

    def __init__(self, calls: Calls, block: AbstractContextManager[Given], bound: Callable[[Given], Entered]) -> None:
        self._calls = calls
        self._block = block
        self._bound = bound

    async def __aenter__(self) -> Entered:
        return self._bound(await self._calls.run_blocking(self._block.__enter__, self.leave))

    def leave(self, _: object = None) -> None:
        """Leave the synchronous block without an error. Leaving it twice is harmless."""
        self._block.__exit__(None, None, None)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        leave: Callable[[], Any] = partial(self._block.__exit__, kind, error, trace)
        answer: bool | None = await self._calls.run_blocking(leave)
        return answer
