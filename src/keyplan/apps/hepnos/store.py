"""The store of a HEPnOS service: the root of the data sets, and where every read and write of the API goes through."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from math import inf
from threading import Lock
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from keyplan.apps.hepnos.batch import MAX_OPERATIONS, AsyncEngine, WriteBatch
from keyplan.apps.hepnos.databases import Address, Databases, database_counts
from keyplan.apps.hepnos.datasets import DataSet, new_uuid, uuid_of
from keyplan.apps.hepnos.keys import Kind, dataset_key
from keyplan.apps.hepnos.numbered import Numbered
from keyplan.apps.hepnos.prefetch import Prefetcher
from keyplan.apps.hepnos.products import Container, ProductID
from keyplan.apps.hepnos.queues import Queues
from keyplan.apps.hepnos.references import Ref
from keyplan.apps.hepnos.types import product_type, type_named
from keyplan.engine import Commit, DeleteRange, KeyRange, open_engine
from keyplan.errors import EngineLimitError
from keyplan.store import Backoff, Store

__all__ = ["DataStore", "open_at", "open_databases", "open_hepnos"]


def open_hepnos(
    url: str,
    *,
    databases: Mapping[str, int] | None = None,
    create: bool = True,
    readonly: bool = False,
    token: str | None = None,
) -> "DataStore":
    """Open a HEPnOS store: `lmdb:PATH` a folder of LMDB files, `memory:NAME`, `etcd://...` one store for all.

    `http://HOST:PORT`, `https://HOST` or `unix:PATH` is that of a server, which is asked with `token`; see `service.py`.
    `databases` says how many there are of each kind, {"events": 4, "products": 4}, one where nothing is said; for a store that
    exists it may be left out. Raises RingMismatchError when the data was written with other numbers.
    """
    address = Address(url, is_readonly=readonly, token=token)
    return DataStore(Databases.open(address, database_counts(databases), create=create and not readonly))


def open_databases(urls: Mapping[str, Sequence[str]], *, create: bool = True, readonly: bool = False) -> "DataStore":
    """Open a HEPnOS store whose databases have URLs of their own: {"datasets": [...], "runs": [...], ...}, all five kinds."""
    listed = tuple((name, tuple(each)) for name, each in sorted(urls.items()))
    database_counts({name: len(each) for name, each in listed})
    address = Address("", listed, is_readonly=readonly)
    return DataStore(Databases.open(address, {}, create=create and not readonly))


def open_at(address: Address) -> "DataStore":
    """Open a store that exists by its address, in another process for one."""
    return DataStore(Databases.open(address, {}, create=False))


class DataStore:
    """An open store. Safe for use by several threads; another process opens it again, by `address`.

    Each write is durable when it returns. What is atomic is one database: a product and the event that it is of are two writes.
    """

    def __init__(self, databases: Databases) -> None:
        self.databases = databases
        self.raw_product: Callable[[bytes], bytes | None] = databases.rings[Kind.PRODUCT].value
        """Returns a product's stored bytes by its raw key, or None. Why no method: it is called for each of many products."""
        self._lock = Lock()
        self._queues: Queues | None = None
        self._queue_stores: list[Store] = []
        self.key_bytes_max: dict[Kind, float] = {
            kind: inf if ring.profile.key_bytes_max is None else ring.profile.key_bytes_max
            for kind, ring in databases.rings.items()
        }

    @property
    def address(self) -> Address:
        """By what another process opens it."""
        return self.databases.address

    @property
    def root(self) -> DataSet:
        """The root, which all data sets are below."""
        return DataSet(self, "", None)

    def __getitem__(self, path: str) -> DataSet:
        """Return the data set of a full name. Raises MissingError, which is a KeyError."""
        found = self.root[path]
        assert isinstance(found, DataSet)
        return found

    def counts(self) -> dict[str, int]:
        """Return how many databases of each kind there are."""
        return {kind.value: len(ring.databases) for kind, ring in self.databases.rings.items()}

    def load_product(self, product: ProductID, type: Any = None) -> Any:  # noqa: A002  # Why: the word of the document.
        """Return a product by its id, or None; its type is the one that its id names unless given."""
        raw = self.raw_product(product.raw)
        if raw is None:
            return None
        return (type_named(product.type) if type is None else product_type(type)).decode(raw)

    def resolve(self, ref: Ref, type: Any = None) -> Any:  # noqa: A002  # Why: as above.
        """Return what a reference points at. Raises MissingError when that is gone."""
        return ref.load(self, type)

    def where(self, what: Container) -> tuple[str, int]:
        """Return the kind and the number of the database that keeps a data set, run, subrun or event."""
        if isinstance(what, Numbered):
            return what.kind.value, self.databases.place(what.kind, what.raw_key)
        return Kind.DATASET.value, self.databases.place(Kind.DATASET, dataset_key(what.path))

    # ---- many at once --------------------------------------------------------------------------------------------------

    def batch(
        self, *, max_operations: int = MAX_OPERATIONS, atomic: bool = False, engine: AsyncEngine | None = None
    ) -> WriteBatch:
        """Return a batch that gathers writes, for a `with` block: `create(..., into=batch)`; see `WriteBatch`."""
        return WriteBatch(self, max_operations=max_operations, atomic=atomic, engine=engine)

    def async_engine(self, *, threads: int = 1, executor: Executor | None = None) -> AsyncEngine:
        """Return what writes in the background, for a `with` block: `create(..., into=engine)`; see `AsyncEngine`."""
        return AsyncEngine(self, threads=threads, executor=executor)

    def prefetch(
        self, *, cache: int = 1_024, batch: int = 1_024, products: Sequence[tuple[str, Any]] = ()
    ) -> Prefetcher:
        """Return what reads containers and products ahead; see `Prefetcher`."""
        return Prefetcher(self, cache=cache, batch=batch, products=products)

    @property
    def queues(self) -> Queues:
        """The queues of the store, in a database of their own, which is made when it is first asked for."""
        with self._lock:
            if self._queues is None:
                durable, volatile = Store(self.address.queues()), Store(open_engine("memory:"))
                self._queues = Queues(durable, volatile)
                self._queue_stores = [durable, volatile]
            return self._queues

    # ---- raw reads and writes, of which the rest is made ---------------------------------------------------------------

    def raw_value(self, kind: Kind, raw_key: bytes) -> bytes | None:
        """Return the value at a raw key of a kind, or None."""
        return self.databases.value(kind, raw_key)

    def write(self, kind: Kind, raw_key: bytes, value: bytes, mode: str) -> None:
        """Write one key, durably; see `Writer`."""
        self.check_key(kind, raw_key)
        self.databases.put(kind, self.databases.place(kind, raw_key), [raw_key], [value], mode=mode)

    def check_key(self, kind: Kind, raw_key: bytes) -> None:
        """Raise EngineLimitError for a key that the databases of the kind cannot hold, before it waits in a batch."""
        allowed = self.key_bytes_max[kind]
        if len(raw_key) > allowed:
            raise EngineLimitError(limit="key_bytes_max", allowed=allowed, actual=len(raw_key))

    def remove(self, kind: Kind, raw_key: bytes) -> bool:
        """Remove one key; return False when it was not there, or another has removed it meanwhile."""
        return Backoff().until_committed(partial(self.databases.remove, kind, raw_key))

    # ---- data sets -----------------------------------------------------------------------------------------------------

    def make_dataset(self, path: str) -> DataSet:
        """Create a data set by its full name unless it exists; its parents are not looked at. Of a race, the first wins."""
        raw_key = dataset_key(path)
        self.check_key(Kind.DATASET, raw_key)
        stored = self.raw_value(Kind.DATASET, raw_key)
        while stored is None:
            uuid = new_uuid()
            self.databases.put(
                Kind.DATASET, self.databases.place(Kind.DATASET, raw_key), [raw_key], [uuid.bytes], mode="new"
            )
            stored = self.raw_value(Kind.DATASET, raw_key)
        return DataSet(self, path, uuid_of(stored))

    def all_datasets(self) -> Iterator[DataSet]:
        """Yield every data set, each before those in it."""
        waiting: list[Iterator[DataSet]] = [iter(self.root.datasets)]
        while waiting:
            dataset = next(waiting[-1], None)
            if dataset is None:
                waiting.pop()
            else:
                yield dataset
                waiting.append(iter(dataset.datasets))

    # ---- removing ------------------------------------------------------------------------------------------------------

    def remove_container(self, container: Numbered) -> None:
        """Remove a run, subrun or event with all that it holds; what is held goes first, so that none is left without it."""
        below = (Kind.PRODUCT, *_BELOW[container.kind])
        prefix = container.raw_key
        for kind in below:
            self._remove_range(kind, KeyRange.of_prefix(prefix))
        self._remove_range(container.kind, KeyRange.of_key(prefix))

    def remove_dataset(self, dataset: DataSet) -> None:
        """Remove a data set with all that it holds, those in it first; of one that was made again, what the old one held."""
        children = list(dataset.datasets)
        # Why asked: by its name alone, the data sets and the record of one that was made again would go. Why after the list:
        # what was listed before is not in one that was made since, and each child is asked for its own UUID.
        if dataset.is_root or dataset.exists():
            for child in children:
                self.remove_dataset(child)
        if dataset.is_root:
            return
        self.remove_contents(dataset.uuid)
        self._remove_record(dataset)
        # Why again: who looked before the record was gone may have written meanwhile.
        self.remove_contents(dataset.uuid)

    def remove_contents(self, uuid: UUID) -> None:
        """Remove the runs, subruns, events and products of a data set's UUID."""
        for kind in (Kind.PRODUCT, Kind.EVENT, Kind.SUBRUN, Kind.RUN):
            self._remove_range(kind, KeyRange.of_prefix(uuid.bytes))

    def _remove_record(self, dataset: DataSet) -> None:
        """Remove the record of a data set, if it is still this one's.

        Raises CommitConflictError when it changes meanwhile.
        """
        self.databases.remove(Kind.DATASET, dataset_key(dataset.path), value=dataset.uuid.bytes)

    def _remove_range(self, kind: Kind, key_range: KeyRange) -> None:
        ring = self.databases.rings[kind]
        for number, engine in enumerate(ring.databases):
            engine.commit(Commit((ring.fence(number),), (DeleteRange(key_range),), ""))

    # ---- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the databases. Closing twice is harmless."""
        self.databases.close()
        for store in self._queue_stores:
            store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_BELOW = {Kind.RUN: (Kind.EVENT, Kind.SUBRUN), Kind.SUBRUN: (Kind.EVENT,), Kind.EVENT: ()}
