"""HEPnOS for asyncio: the same names, awaited; `async for` takes containers in pieces, and nothing holds up the loop.

    async with hepnos.aio.open("lmdb:/data/nova") as store:
        dataset = await store.root.ensure("nova/nd/2019")
        subrun = await (await dataset.create_run(12096)).create_subrun(1)
        async for event in subrun.events:
            print(event.number, await event.load("energy", float))
        async for item in await store.queues.open("files", str):
            async with item:
                print(item.value)

Each call is carried out by a thread of the store's, since LMDB reads and flushes in the thread that calls it. Short ones of a
server with frames are awaited in the loop itself, any number on one connection. Methods are taken over from the synchronous
classes one by one, with their signatures; what they promise stands there. What has no name here is called by
`store.call(function, ...)`, in a thread. A call whose task is cancelled may still be carried out. A loop that is left early
keeps the state that it reads until its generator is closed: `contextlib.aclosing` does that at once.
"""

from asyncio import ensure_future
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

import numpy.typing as npt

from keyplan.apps.hepnos import access, datasets, event_set, numbered, product_id, products
from keyplan.apps.hepnos import store as stores
from keyplan.apps.hepnos.aio_calls import Caller, View, awaited, in_thread, leading, maybe
from keyplan.apps.hepnos.aio_queues import Queue, QueueItem, Queues
from keyplan.apps.hepnos.aio_threads import Threads, opened_in_thread, to_its_end
from keyplan.apps.hepnos.batch import MAX_OPERATIONS, WriteBatch
from keyplan.apps.hepnos.bulk import Created
from keyplan.apps.hepnos.databases import Address, database_counts
from keyplan.apps.hepnos.keys import Kind

__all__ = [
    "Container",
    "DataSet",
    "DataSets",
    "DataStore",
    "Event",
    "EventSet",
    "Numbers",
    "Queue",
    "QueueItem",
    "Queues",
    "Run",
    "SubRun",
    "View",
    "open",
]

R = TypeVar("R")
N = TypeVar("N", bound=numbered.Numbered)

_THREADS: Final = 4

# ---- containers ----------------------------------------------------------------------------------------------------------

C_co = TypeVar("C_co", bound=products.Container, covariant=True)
M_co = TypeVar("M_co", bound=numbered.Numbered, covariant=True)


class Container(View[C_co]):
    """What products hang on."""

    __slots__ = ()

    store = awaited(products.Container.store)
    load = awaited(products.Container.load)
    delete_product = awaited(products.Container.delete_product)

    @property
    def path(self) -> str:
        """How messages name it."""
        return self.sync.path

    def products(
        self, label: str | None = None, *, is_prefix: bool = False
    ) -> AsyncGenerator[product_id.ProductID, None]:
        """Yield the ids of its products, as `hepnos.Container.products` does."""
        return self.each(partial(self.sync.products, label, is_prefix=is_prefix))


class Numbered(Container[M_co]):
    """A run, subrun or event."""

    __slots__ = ()

    exists = awaited(numbered.Numbered.exists)
    delete = awaited(numbered.Numbered.delete)

    @property
    def number(self) -> int:
        """Its number within its parent."""
        return self.sync.number

    async def next(self) -> Self | None:
        """Return the next of its siblings, or None."""
        return self._sibling(await self.call_short(self.sync.next))

    async def previous(self) -> Self | None:
        """Return the one before it among its siblings, or None."""
        return self._sibling(await self.call_short(self.sync.previous))

    def _sibling(self, found: Any) -> Self | None:
        return None if found is None else type(self)(found, self.caller)


class Event(Numbered[numbered.Event]):
    """An event."""

    __slots__ = ()


class Numbers(View[numbered.Numbers[N]], Generic[N, R]):
    """The runs of a data set, the subruns of a run or the events of a subrun, in numeric order."""

    __slots__ = ("_view",)

    def __init__(self, sync: numbered.Numbers[N], caller: Caller, view: Callable[[N, Caller], R]) -> None:
        super().__init__(sync, caller)
        self._view = view

    async def create(self, number: int, *, into: access.Writer | None = None) -> R:
        """Create a child unless it exists, and return it."""
        return self._view(await self.call_short(self.sync.create, number, into=into), self.caller)

    async def get(self, number: int) -> R | None:
        """Return the child of that number, or None."""
        return self._one(await self.call_short(self.sync.get, number))

    async def first(self) -> R | None:
        """Return the first child, or None."""
        return self._one(await self.call_short(self.sync.first))

    async def last(self) -> R | None:
        """Return the last child, or None."""
        return self._one(await self.call_short(self.sync.last))

    async def lower_bound(self, number: int) -> R | None:
        """Return the first child whose number is not less, or None."""
        return self._one(await self.call_short(self.sync.lower_bound, number))

    async def upper_bound(self, number: int) -> R | None:
        """Return the first child whose number is greater, or None."""
        return self._one(await self.call_short(self.sync.upper_bound, number))

    async def count(self) -> int:
        """Return how many children there are."""
        return await self.call_short(self.sync.count)

    def __aiter__(self) -> AsyncIterator[R]:
        return self.range()

    async def range(
        self, at_least: int = 0, below: int | None = None, *, reverse: bool = False, limit: int | None = None
    ) -> AsyncGenerator[R, None]:
        """Yield the children with numbers in these bounds, of one state, in numeric order or reversed."""
        found = partial(self.sync.range, at_least, below, reverse=reverse, limit=limit)
        async with aclosing(self.each(found)) as children:
            async for child in children:
                yield self._view(child, self.caller)

    def _one(self, found: N | None) -> R | None:
        return None if found is None else self._view(found, self.caller)


class SubRun(Numbered[numbered.SubRun]):
    """A subrun."""

    __slots__ = ()

    create_event = leading(numbered.SubRun.create_event, Event)

    async def create_events(self, numbers: Any, **options: Any) -> int:
        """Create many events at once, and return how many are new; see `hepnos.create_events`."""
        return await self.call(self.sync.create_events, numbers, **options)

    @property
    def events(self) -> Numbers[numbered.Event, Event]:
        """Its events."""
        return Numbers(self.sync.events, self.caller, Event)


class Run(Numbered[numbered.Run]):
    """A run."""

    __slots__ = ()

    create_subrun = leading(numbered.Run.create_subrun, SubRun)

    @property
    def subruns(self) -> Numbers[numbered.SubRun, SubRun]:
        """Its subruns."""
        return Numbers(self.sync.subruns, self.caller, SubRun)


# ---- data sets -----------------------------------------------------------------------------------------------------------


class EventSet(View[event_set.EventSet]):
    """The events of a data set: of one event database, or of all."""

    __slots__ = ()

    count = awaited(event_set.EventSet.count)
    to_numpy = in_thread(event_set.EventSet.to_numpy)

    async def __aiter__(self) -> AsyncIterator[Event]:
        async with aclosing(self.each(partial(iter, self.sync))) as events:
            async for event in events:
                yield Event(event, self.caller)

    def batches(self, size: int = 65_536) -> AsyncGenerator[npt.NDArray[Any], None]:
        """Yield the events as arrays of at most `size` rows, one at a time."""
        return self.each(partial(self.sync.batches, size), at_once=1)


def _dataset(found: datasets.DataSet, caller: Caller) -> "DataSet":
    return DataSet(found, caller)


class DataSet(Container[datasets.DataSet]):
    """A data set."""

    __slots__ = ()

    create_dataset = leading(datasets.DataSet.create_dataset, _dataset)
    ensure = leading(datasets.DataSet.ensure, _dataset)
    get = leading(datasets.DataSet.get, maybe(_dataset))
    next = leading(datasets.DataSet.next, maybe(_dataset))
    previous = leading(datasets.DataSet.previous, maybe(_dataset))
    create_run = leading(datasets.DataSet.create_run, Run)
    load_table = in_thread(datasets.DataSet.load_table)
    exists = awaited(datasets.DataSet.exists)
    delete = awaited(datasets.DataSet.delete)

    async def create_items(self, run: Any, subrun: Any = None, event: Any = None, **options: Any) -> Created:
        """Create many runs, subruns or events at once; see `hepnos.create_items`."""
        return await self.call(self.sync.create_items, run, subrun, event, **options)

    async def store_table(self, label: str, table: Any, *, run: Any, subrun: Any, event: Any, **options: Any) -> int:
        """Store a table as a vector product of each event; see `hepnos.store_table`."""
        return await self.call(self.sync.store_table, label, table, run=run, subrun=subrun, event=event, **options)

    @property
    def name(self) -> str:
        """The last part of its name."""
        return self.sync.name

    @property
    def datasets(self) -> "DataSets":
        """The data sets in it."""
        return DataSets(self.sync.datasets, self.caller)

    @property
    def runs(self) -> Numbers[numbered.Run, Run]:
        """Its runs."""
        return Numbers(self.sync.runs, self.caller, Run)

    def events(self, target: int | None = None) -> EventSet:
        """Return all its events: of one event database, or of all."""
        return EventSet(self.sync.events(target), self.caller)


class DataSets(View[datasets.DataSets]):
    """The data sets in one, by name."""

    __slots__ = ()

    get = leading(datasets.DataSets.get, maybe(DataSet))
    first = leading(datasets.DataSets.first, maybe(DataSet))
    last = leading(datasets.DataSets.last, maybe(DataSet))
    lower_bound = leading(datasets.DataSets.lower_bound, maybe(DataSet))
    upper_bound = leading(datasets.DataSets.upper_bound, maybe(DataSet))
    count = awaited(datasets.DataSets.count)

    def __aiter__(self) -> AsyncIterator[DataSet]:
        return self.range()

    async def range(
        self, at_least: str = "", *, starts_with: str | None = None, reverse: bool = False, limit: int | None = None
    ) -> AsyncGenerator[DataSet, None]:
        """Yield the data sets from a name on, or those whose names begin with something, in byte order or reversed."""
        found = partial(self.sync.range, at_least, starts_with=starts_with, reverse=reverse, limit=limit)
        async with aclosing(self.each(found)) as children:
            async for dataset in children:
                yield DataSet(dataset, self.caller)


# ---- the store -----------------------------------------------------------------------------------------------------------


class DataStore(View[stores.DataStore]):
    """An open store. For one event loop."""

    __slots__ = ("_queues",)

    def __init__(self, sync: stores.DataStore, caller: Caller) -> None:
        super().__init__(sync, caller)
        self._queues: Queues | None = None

    load_product = awaited(stores.DataStore.load_product)
    resolve = awaited(stores.DataStore.resolve)

    @property
    def root(self) -> DataSet:
        """The root, which all data sets are below."""
        return DataSet(self.sync.root, self.caller)

    @property
    def queues(self) -> Queues:
        """The queues of the store, as `hepnos.DataStore.queues`. Raises ModuleNotFoundError without the package greenlet."""
        if self._queues is None:
            from keyplan.apps.hepnos import awaited_queues  # noqa: PLC0415  # Why: it needs greenlet, which is an extra.

            self._queues = awaited_queues.queues_at(self.sync.queue_home, self.caller)
        return self._queues

    async def end(self) -> None:
        """Wait for what is under way, and close it. Cancelled, it ends first all the same."""
        try:
            if self._queues is not None:
                await to_its_end(ensure_future(self._queues.end()))
        finally:
            await self.caller.end(self.sync.close)

    @asynccontextmanager
    async def batch(self, *, max_operations: int = MAX_OPERATIONS, atomic: bool = False) -> AsyncIterator[WriteBatch]:
        """Give a batch that gathers writes, for an `async with` block: `await run.create_subrun(1, into=batch)`.

        What it holds is written when the block ends, and dropped when the block fails; see `hepnos.WriteBatch`.
        """
        batch = self.sync.batch(max_operations=max_operations, atomic=atomic)
        await self.call(batch.__enter__)
        try:
            yield batch
        except BaseException as error:
            await self.call(batch.__exit__, type(error), error, error.__traceback__)
            raise
        await self.call(batch.__exit__, None, None, None)


@asynccontextmanager
async def open(  # noqa: A001  # Why: `hepnos.aio.open(url)` reads as it should.
    url: str,
    *,
    databases: Mapping[str, int] | None = None,
    create: bool = True,
    readonly: bool = False,
    token: str | None = None,
    threads: int = _THREADS,
) -> AsyncIterator[DataStore]:
    """Open a HEPnOS store for an `async with` block, as `hepnos.open` does; at most `threads` calls are under way at once.

    Of a server with frames any number are, on one connection and without threads, where the package greenlet is installed.
    """
    address, counts = Address(url, is_readonly=readonly, token=token), database_counts(databases)
    pool: Caller = Threads(threads)
    driven = await _driven(address, counts, pool) if address.is_server else None
    if driven is None:
        opening = partial(stores.open_hepnos, url, databases=databases, create=create, readonly=readonly, token=token)
        store, caller = await opened_in_thread(opening, stores.DataStore.close), pool
    else:
        store, caller = driven
    opened = DataStore(store, caller)
    try:
        yield opened
    finally:
        await opened.end()


async def _driven(
    address: Address, counts: Mapping[Kind, int], threads: Caller
) -> tuple[stores.DataStore, Caller] | None:
    """Open a server's store whose calls are awaited; None where that needs what is not installed, or the server has not."""
    try:
        from keyplan.apps.hepnos import remote_awaited  # noqa: PLC0415  # Why: it needs greenlet, which is an extra.
    except ModuleNotFoundError as error:
        if error.name != "greenlet":
            raise
        return None
    found = await remote_awaited.open_driven(address, counts)
    return None if found is None else (stores.DataStore(*found), remote_awaited.Driver(threads))
