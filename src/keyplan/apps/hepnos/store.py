"""The store of a HEPnOS service: the root of the data sets, and where every read and write of the API goes through."""

from collections.abc import Iterator, Mapping, Sequence

from keyplan.apps.hepnos.databases import Address, Databases, database_counts
from keyplan.apps.hepnos.datasets import DataSet, DataSets, made_dataset
from keyplan.apps.hepnos.keys import Kind, dataset_key
from keyplan.apps.hepnos.numbered import Numbered
from keyplan.apps.hepnos.open_store import OpenStore
from keyplan.apps.hepnos.products import Container

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

    With `?keyspace=NAME` it is in that key space of the store, which is made for HEPnOS where there is none; see `shares.py`.
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


class DataStore(OpenStore):
    """An open store. Safe for use by several threads; another process opens it again, by `address`.

    Each write is durable when it returns. What is atomic is one database: a product and the event that it is of are two writes.
    """

    @property
    def root(self) -> DataSet:
        """The root, which all data sets are below."""
        return DataSet(self, "", None)

    def __getitem__(self, path: str) -> DataSet:
        """Return the data set of a full name. Raises MissingError, which is a KeyError."""
        found = self.root[path]
        assert isinstance(found, DataSet)
        return found

    def where(self, what: Container) -> tuple[str, int]:
        """Return the kind and the number of the database that keeps a data set, run, subrun or event."""
        if isinstance(what, Numbered):
            return what.kind.value, self.databases.place(what.kind, what.raw_key)
        return Kind.DATASET.value, self.databases.place(Kind.DATASET, dataset_key(what.path))

    # ---- data sets -----------------------------------------------------------------------------------------------------

    def make_dataset(self, path: str) -> DataSet:
        """Create a data set by its full name unless it exists; its parents are not looked at. Of a race, the first wins."""
        return made_dataset(self, path)

    def all_datasets(self) -> Iterator[DataSet]:
        """Yield every data set, each before those in it."""
        waiting: list[Iterator[DataSet]] = [iter(self.root.datasets)]
        while waiting:
            dataset = next(waiting[-1], None)
            if dataset is None:
                waiting.pop()
            else:
                yield dataset
                waiting.append(iter(DataSets(dataset, has_deleted=True)))
