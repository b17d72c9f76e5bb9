"""Data sets: named, nested, and each with a UUID of its own that the keys of its runs begin with."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any
from uuid import UUID, uuid4

from keyplan.apps.hepnos.access import ProductSource, Writer
from keyplan.apps.hepnos.bulk import Created, create_items
from keyplan.apps.hepnos.dataset_ref import DELETING, DataSetRef, is_deleting, uuid_of
from keyplan.apps.hepnos.errors import DeletedError, InvalidNameError, MissingError
from keyplan.apps.hepnos.event_set import EventSet
from keyplan.apps.hepnos.keys import Kind, dataset_key, dataset_range, path_of_key
from keyplan.apps.hepnos.labels import load_by_label, load_table
from keyplan.apps.hepnos.numbered import Numbers, Run
from keyplan.apps.hepnos.open_store import OpenStore
from keyplan.apps.hepnos.products import Container
from keyplan.apps.hepnos.tables import Table, TableRows, Tables, store_table
from keyplan.engine import KeyRange
from keyplan.errors import CommitConflictError
from keyplan.store import Backoff

__all__ = ["DataSet", "DataSets", "made_dataset", "new_uuid"]


class DataSet(DataSetRef):
    """A data set: its full name and its UUID. The root has the name "", and neither runs nor products.

    Two handles are equal when they are of the same data set of the same store. A handle is of the data set that it was made of:
    when that is deleted, whatever makes or finds something in it raises DeletedError, though another has its name.
    """

    __slots__ = ()

    # ---- data sets in it -----------------------------------------------------------------------------------------------

    @property
    def datasets(self) -> "DataSets":
        """The data sets in it."""
        return DataSets(self)

    def create_dataset(self, name: str) -> "DataSet":
        """Create a data set in it, unless it exists, and return it. The winner of a race gives it its UUID.

        Raises InvalidNameError: the name is empty, or holds a slash or a NUL, or would be on the 257th level; DeletedError.
        """
        if "/" in name:
            raise InvalidNameError(problem="a name holds no slash; `ensure` creates a whole path", value=name)
        if self.is_root:
            return made_dataset(self.datastore, name)
        return made_dataset(self.datastore, f"{self.name_path}/{name}", parent=self)

    def ensure(self, path: str) -> "DataSet":
        """Create the data sets on a path below this one, as far as they do not exist, and return the last.

        Raises InvalidNameError, EngineLimitError, before any of them is created.
        """
        dataset, below = self, _stripped(path)
        # Why the whole first: the last name may be the one that cannot be.
        self.datastore.check_key(Kind.DATASET, dataset_key(f"{self.name_path}/{below}" if self.name_path else below))
        for name in below.split("/"):
            dataset = dataset.create_dataset(name)
        return dataset

    def get(self, path: str) -> "DataSet | None":
        """Return the data set of a path below this one, or None."""
        below = _stripped(path)
        whole = f"{self.name_path}/{below}" if self.name_path else below
        raw = self.datastore.raw_value(Kind.DATASET, dataset_key(whole))
        self._require_unless_root()  # Why afterwards: what was found before is of it, if it is still there.
        return None if raw is None else DataSet(self.datastore, whole, uuid_of(raw, whole))

    def _require_unless_root(self) -> None:
        if not self.is_root:
            self.require()

    def __getitem__(self, child: "str | int") -> "DataSet | Run":
        """Return the data set of a path below this one, or the run of a number. Raises MissingError, which is a KeyError."""
        if not isinstance(child, str):
            return self.runs[child]
        found = self.get(child)
        if found is None:
            raise MissingError(table="datasets", key=f"{self.name_path}/{_stripped(child)}".lstrip("/"))
        return found

    def __contains__(self, child: "str | int") -> bool:
        return self.get(child) is not None if isinstance(child, str) else child in self.runs

    def __iter__(self) -> "Iterator[DataSet]":
        return iter(self.datasets)

    def next(self) -> "DataSet | None":
        """Return the next data set in the same one, or None."""
        return self._siblings.upper_bound(self.name)

    def previous(self) -> "DataSet | None":
        """Return the data set before it in the same one, or None."""
        return self._siblings.before(self.name)

    @property
    def _siblings(self) -> "DataSets":
        return DataSets(DataSet(self.datastore, self.container, None))

    # ---- runs and events -----------------------------------------------------------------------------------------------

    @property
    def runs(self) -> Numbers[Run]:
        """Its runs."""
        return Numbers(self, (), Run)

    def create_run(self, number: int, *, into: Writer | None = None) -> Run:
        """Create a run, unless it exists, and return it; see `Numbers.create`."""
        return self.runs.create(number, into=into)

    def events(self, target: int | None = None) -> EventSet:
        """Return all its events, sorted: of one event database, or of all (None, -1).

        Raises InvalidInputError for a database that there is not.
        """
        return EventSet(self, target)

    def create_items(self, run: Any, subrun: Any = None, event: Any = None, **options: Any) -> Created:
        """Create many runs, subruns or events at once; see `bulk.create_items`."""
        return create_items(self, run, subrun, event, **options)

    def load_by_label(self, label: str, source: ProductSource | None = None) -> Any:
        return load_by_label(self, self, label, source)

    def load_of(self, container: Container, label: str, source: ProductSource | None) -> Any:
        return load_by_label(self, container, label, source)

    # ---- tables --------------------------------------------------------------------------------------------------------

    @property
    def tables(self) -> Tables:
        """Its tables by label, wherever they came from: `dataset.tables["Muon"]`."""
        return Tables(self)

    def table(self, label: str) -> Table:
        """Return the table of a label. Raises MissingError; InvalidInputError when several tables share it."""
        return self.tables[label]

    def store_table(self, label: str, table: Any, *, run: Any, subrun: Any, event: Any, **options: Any) -> int:
        """Store a table, its rows of each event as a product; see `tables.store_table`."""
        return store_table(self, label, table, run=run, subrun=subrun, event=event, **options)

    def load_table(
        self,
        label: str,
        type: Any = None,  # noqa: A002  # Why: the document's word.
        *,
        events: Any = None,
        columns: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        missing: Any = "null",
    ) -> TableRows:
        """Load a table by its label, or the rows that are stored as a type; see `labels.load_table`."""
        return load_table(self, label, type, events=events, columns=columns, exclude=exclude, missing=missing)

    def delete(self) -> None:
        """Remove it with all that it holds: products, events, subruns, runs, the data sets in it.

        From its beginning on nobody makes a data set in it, and from its end on nobody anything, whatever handle of it they
        have. Much is removed by many commits, so that others write meanwhile, and readers may find a part of it. One that was
        interrupted is gone on with by deleting it again, or by `keyplan hepnos sweep`. One that was made again by somebody else
        is another, and stays.
        """
        self._is_known = False
        _remove(self)


class DataSets:
    """The data sets in one, by name, in the order of their bytes. They lie in all databases, and are merged."""

    __slots__ = ("has_deleted", "parent")

    def __init__(self, parent: DataSet, *, has_deleted: bool = False) -> None:
        """`has_deleted`: also those in one that is deleted, for whoever removes them."""
        self.parent = parent
        self.has_deleted = has_deleted

    def __iter__(self) -> Iterator[DataSet]:
        return self.range()

    def __contains__(self, name: str) -> bool:
        return self.parent.get(name) is not None

    def __getitem__(self, name: str) -> DataSet:
        found = self.get(name)
        if found is None:
            raise MissingError(table="datasets", key=f"{self.parent.path}/{name}".lstrip("/"))
        return found

    def get(self, name: str) -> DataSet | None:
        """Return the data set of that name, or None."""
        return self.parent.get(name)

    def range(
        self, at_least: str = "", *, starts_with: str | None = None, reverse: bool = False, limit: int | None = None
    ) -> Iterator[DataSet]:
        """Yield the data sets from a name on, or those whose names begin with something, in byte order or reversed."""
        store = self.parent.datastore
        key_range = dataset_range(self.parent.path, at_least=at_least, starts_with=starts_with)
        yield from self._found(store, key_range, reverse=reverse, limit=limit)

    def first(self) -> DataSet | None:
        """Return the first, or None."""
        return next(self.range(limit=1), None)

    def last(self) -> DataSet | None:
        """Return the last, or None."""
        return next(self.range(reverse=True, limit=1), None)

    def lower_bound(self, name: str) -> DataSet | None:
        """Return the first whose name is not less, or None. "" is before all names."""
        return next(self.range(name, limit=1), None)

    def upper_bound(self, name: str) -> DataSet | None:
        """Return the first whose name is greater, or None."""
        return next((each for each in self.range(name, limit=2) if each.name != name), None)

    def before(self, name: str) -> DataSet | None:
        """Return the last whose name is less, or None."""
        key_range = KeyRange(
            dataset_range(self.parent.path).start, dataset_range(self.parent.path, at_least=name).start
        )
        return next(self._found(self.parent.datastore, key_range, reverse=True, limit=1), None)

    def count(self) -> int:
        """Return how many there are."""
        return sum(1 for _ in self)

    def _found(self, store: OpenStore, key_range: KeyRange, *, reverse: bool, limit: int | None) -> Iterator[DataSet]:
        parent = self.parent.path
        with store.databases.rings[Kind.DATASET].snapshot() as snapshot:
            if not self.parent.is_root and not self.has_deleted:
                self.parent.require()  # Why now: what the snapshot shows is of it, if it is still there.
            named = ((path_of_key(key), value) for key, value in snapshot.pairs(key_range, reverse=reverse))
            # Why not others: a key that the layout does not explain is no child; `check` tells of it.
            found = ((path, value) for path, value in named if path is not None and path.rpartition("/")[0] == parent)
            for path, value in islice(found, limit):
                yield DataSet(store, path, uuid_of(value, path))


def _stripped(path: str) -> str:
    """Return a path without one slash at each end, as the C++ program writes names."""
    return path.removeprefix("/").removesuffix("/")


def new_uuid() -> UUID:
    """Return the UUID of a data set that is made now."""
    return uuid4()


def made_dataset(store: OpenStore, path: str, *, parent: DataSetRef | None = None) -> DataSet:
    """Create a data set by its full name unless it exists. Of a race, the first wins.

    In a `parent` that is there: raises DeletedError, and makes nothing, when it is not. Without one nothing is looked at.
    """
    raw_key = dataset_key(path)
    store.check_key(Kind.DATASET, raw_key)
    stored = store.raw_value(Kind.DATASET, raw_key)
    while stored is None:
        _make(store, raw_key, parent)
        stored = store.raw_value(Kind.DATASET, raw_key)
    if parent is not None:
        parent.require()  # Why: what exists may be in another data set of the parent's name.
    if is_deleting(stored):
        problem = "its deletion is not finished: delete it again, or run `keyplan hepnos sweep`"
        raise DeletedError(table="datasets", key=path, problem=problem)
    return DataSet(store, path, uuid_of(stored, path))


def _make(store: OpenStore, raw_key: bytes, parent: DataSetRef | None) -> None:
    """Write the record of a data set unless it is there. Raises DeletedError."""
    databases, uuid = store.databases, new_uuid().bytes
    place = databases.place(Kind.DATASET, raw_key)
    if parent is not None and databases.place(Kind.DATASET, parent.record[0]) == place:
        with suppress(
            CommitConflictError
        ):  # Why: who was faster has made it, or the parent is gone; both are looked at.
            if not databases.put_new(Kind.DATASET, raw_key, uuid, beside=parent.record):
                parent.require()
        return
    if parent is not None:
        parent.require()
    databases.put(Kind.DATASET, place, [raw_key], [uuid], mode="new")
    if parent is not None:
        # Why again: who deletes the parent has marked its record before looking for what is in it. So one of the two sees
        # the other, in databases that have no commit together.
        try:
            parent.require()
        except DeletedError:
            Backoff().until_committed(partial(databases.remove, Kind.DATASET, raw_key, value=uuid))
            raise


def _remove(dataset: DataSet) -> None:
    """Remove a data set with all that it holds, those in it first; of one that was made again, what the old one held.

    marked     the record says that it is deleted: nobody makes anything in it, and who has made a data set meanwhile undoes it
    emptied    the data sets in it are gone, then what has its UUID, with the fence of each database in the same commit
    gone       the record is removed

    Each step is done again by whoever deletes it next.
    """
    store, databases = dataset.datastore, dataset.datastore.databases
    if dataset.is_root:
        for child in list(dataset.datasets):
            _remove(child)
        return
    raw_key, value = dataset.record
    marked = value + DELETING
    Backoff().until_committed(partial(databases.replace, Kind.DATASET, raw_key, value, marked))
    # Why asked: the data sets of one that was made again are not in this one.
    if store.raw_value(Kind.DATASET, raw_key) == marked:
        for child in list(DataSets(dataset, has_deleted=True)):
            _remove(child)
    store.remove_contents(dataset.uuid)
    Backoff().until_committed(partial(databases.remove, Kind.DATASET, raw_key, value=marked))
