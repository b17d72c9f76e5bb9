"""The asynchronous store behind the synchronous names, for tests: each operation is awaited on an event loop in a thread.

So the scenarios of tests/store run on the twin as they stand. Nothing here decides anything.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import isawaitable
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

import keyplan.aio
from keyplan.aio.changes import AwaitedChanges
from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.layout import Binding
from keyplan.store import Backoff, Store

__all__ = ["Portal", "TwinStore"]

R = TypeVar("R")

END = object()


class Portal:
    """An event loop in a thread, and the way into it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, name="twin-loop")
        self._thread.start()

    def call(self, awaitable: Awaitable[R]) -> R:
        async def awaited() -> R:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(awaited(), self.loop).result()

    def made(self, make: Callable[[], R]) -> R:
        async def awaited() -> R:
            return make()

        return self.call(awaited())

    def close(self) -> None:
        self.call(self.loop.shutdown_asyncgens())
        self.call(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def plain(argument: Any) -> Any:
    """What the twin takes in the place of a lease of this module."""
    return argument.twin if isinstance(argument, TwinLease) else argument


class TwinView:
    """Any view: what it awaits is awaited, what it iterates is iterated."""

    def __init__(self, portal: Portal, view: Any) -> None:
        self._portal = portal
        self._view = view

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._view, name)

        def called(*arguments: Any, **keywords: Any) -> Any:
            answer = operation(*arguments, **{key: plain(value) for key, value in keywords.items()})
            if isinstance(answer, AwaitedChanges):
                return TwinChanges(self._portal, self._portal.call(answer))
            if isinstance(answer, AsyncIterator):
                return self._iterated(answer)
            return self._portal.call(answer)

        return called

    def _iterated(self, found: Any) -> Iterator[Any]:
        try:
            while (item := self._portal.call(anext(found, END))) is not END:
                yield item
        finally:
            if not self._portal.loop.is_closed():
                self._portal.call(found.aclose())


class TwinChanges:
    """Changes, iterated with `for`."""

    def __init__(self, portal: Portal, changes: AwaitedChanges) -> None:
        self._portal = portal
        self._changes = changes

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        change = self._portal.call(anext(self._changes, END))
        if change is END:
            raise StopIteration
        return change

    def poll(self, timeout_seconds: float = 0.0) -> Any:
        return self._portal.call(self._changes.poll(timeout_seconds))

    @property
    def token(self) -> str:
        return self._changes.token

    def close(self) -> None:
        self._portal.call(self._changes.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TwinBinding(Binding):
    """A snapshot or a transaction."""

    def __init__(self, portal: Portal, twin: Any) -> None:
        self._portal = portal
        self.twin = twin

    @property
    def revision(self) -> int:
        revision: int = self._portal.call(self.twin.revision)
        return revision

    def table_view(self, table: Any) -> Any:
        return TwinView(self._portal, self.twin.table_view(table))

    def unique_view(self, index: Any) -> Any:
        return TwinView(self._portal, self.twin.unique_view(index))

    def index_view(self, index: Any) -> Any:
        return TwinView(self._portal, self.twin.index_view(index))

    def counter_view(self, counter: Any) -> Any:
        return TwinView(self._portal, self.twin.counter_view(counter))

    @contextmanager
    def _block(self, block: Any) -> Iterator[Any]:
        inner = self._portal.call(block.__aenter__())
        try:
            yield TwinBinding(self._portal, inner)
        except BaseException as error:
            self._portal.call(block.__aexit__(type(error), error, error.__traceback__))
            raise
        else:
            self._portal.call(block.__aexit__(None, None, None))

    def begin(self) -> Any:
        return self._block(self.twin.begin())

    def pinned(self) -> Any:
        return self._block(self.twin.pinned())

    def attempt(self, work: Callable[[Any], Any]) -> Any:
        return self._portal.call(self.twin.attempt(self._worked(work)))

    def _worked(self, work: Callable[[Any], Any]) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        async def worked(twin: Any) -> Any:
            return await asyncio.to_thread(work, TwinTransaction(self._portal, twin))

        return worked


class TwinTransaction(TwinBinding):
    """A transaction."""

    def commit(self) -> Any:
        return self._portal.call(self.twin.commit())

    def close(self) -> None:
        self._portal.call(self.twin.close())

    def explained(self) -> Any:
        return self._portal.call(self.twin.explained())

    def __enter__(self) -> Self:
        self._portal.call(self.twin.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal.call(self.twin.__aexit__(kind, error, trace))


class TwinLease:
    """A lease."""

    def __init__(self, portal: Portal, twin: keyplan.aio.Lease) -> None:
        self._portal = portal
        self.twin = twin

    def __getattr__(self, name: str) -> Any:
        answer = getattr(self.twin, name)
        return (lambda: self._portal.call(answer())) if name in {"keep_alive", "revoke"} else answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._portal.call(self.twin.revoke())


class TwinStore(Store):
    """The asynchronous store. What a check of the engine's content asks of a store, the synchronous one answers."""

    def __init__(
        self, engine: Engine, *, backoff: Backoff | None = None, clock: Clock = SYSTEM_CLOCK, **options: Any
    ) -> None:
        super().__init__(engine, clock=clock)
        self.portal = portal = Portal()
        self.twin = portal.made(partial(keyplan.aio.Store, engine, backoff=backoff, clock=clock, **options))
        self._binding = TwinBinding(portal, self.twin)
        self._leases: dict[keyplan.aio.Lease, TwinLease] = {}
        self._is_closed = False

    @property
    def revision(self) -> int:
        return self._binding.revision

    def table_view(self, table: Any) -> Any:
        return self._binding.table_view(table)

    def unique_view(self, index: Any) -> Any:
        return self._binding.unique_view(index)

    def index_view(self, index: Any) -> Any:
        return self._binding.index_view(index)

    def counter_view(self, counter: Any) -> Any:
        return self._binding.counter_view(counter)

    def transaction(self) -> Any:
        return TwinTransaction(self.portal, self.twin.transaction())

    def begin(self) -> Any:
        return self.transaction()

    def run(self, work: Callable[[Any], Any]) -> Any:
        return self._binding.attempt(work)

    def attempt(self, work: Callable[[Any], Any]) -> Any:
        return self._binding.attempt(work)

    def pinned(self) -> Any:
        return self._binding.pinned()

    def explain(self, work: Callable[[Any], Any]) -> Any:
        return self.portal.call(self.twin.explain(self._binding._worked(work)))

    def lease(self, ttl_seconds: float, *, on_loss: Any = None, keep_alive: bool = True) -> Any:
        return self._leased(self.twin.lease(ttl_seconds, on_loss=self._told(on_loss), keep_alive=keep_alive))

    def resume_lease(self, lease_id: int, *, on_loss: Any = None, keep_alive: bool = True) -> Any:
        return self._leased(self.twin.resume_lease(lease_id, on_loss=self._told(on_loss), keep_alive=keep_alive))

    def _leased(self, request: Any) -> TwinLease:
        return self._twin_of(self.portal.call(request))

    def _twin_of(self, lease: keyplan.aio.Lease) -> TwinLease:
        return self._leases.setdefault(lease, TwinLease(self.portal, lease))

    def _told(self, on_loss: Any) -> Any:
        if on_loss is None:
            return None

        async def told(lease: keyplan.aio.Lease) -> None:
            answer = await asyncio.to_thread(on_loss, self._twin_of(lease))
            assert not isawaitable(answer)

        return told

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.portal.call(self.twin.close())
            self.portal.close()
