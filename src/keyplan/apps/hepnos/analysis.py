"""Events for the packages that analyses are written with: coffea's NanoEvents, and arrays of dask-awkward.

Neither package is needed by anything else here; each is imported when its function is called, and its lack is told. What is
given reads a column of the events when it is computed with.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from threading import Lock
from typing import Any, Final
from uuid import UUID, uuid4
from weakref import WeakValueDictionary

import awkward as ak
import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.collection import Collection
from keyplan.apps.hepnos.columns import EVENT_COLUMNS
from keyplan.apps.hepnos.databases import Address
from keyplan.apps.hepnos.datasets import DataSet
from keyplan.apps.hepnos.errors import MissingError
from keyplan.apps.hepnos.event_selection import EventSelection
from keyplan.apps.hepnos.event_set import EventSet
from keyplan.apps.hepnos.open_store import OpenStore
from keyplan.apps.hepnos.schemas import Schema
from keyplan.apps.hepnos.store import open_at
from keyplan.errors import InvalidInputError

__all__ = ["Branches", "to_dask_awkward", "to_nano_events"]

Events = EventSet | EventSelection


class Branches(Mapping[str, Any]):
    """The columns of events by the names that a file of their kind has for its branches, each an array of awkward.

    `branches["Muon_pt"]` has an entry for each event, an empty list where one has no product of the table; `nMuon`, `run`,
    `luminosityBlock` and `event` are there as in the file. A branch is read when it is first asked for, and kept. What has
    types that no one type holds is not there. `metadata` is what coffea's sources have.
    """

    def __init__(self, events: Events, schema: str | None = None) -> None:
        selection = _selected(events)
        self._events = selection.to_numpy()
        self._collections = selection.collections(schema)
        self._read: dict[str, Any] = {}
        own: Schema = self._collections.schema
        self._numbers = {
            name: number for name, number in zip(own.numbers, EVENT_COLUMNS.names or (), strict=True) if name
        }
        self._columns: dict[str, tuple[Collection, str]] = {}
        self._counts: dict[str, Collection] = {}
        for collection in self._collections.values():
            for column in collection.columns:
                if collection.has_type(column):
                    self._columns[collection.branch_of(column)] = collection, column
            has_lists = any(map(collection.has_lists, collection.columns))
            # Why no slash: what is a branch below another is counted by that one's.
            if own.branch_names[1] and has_lists and "/" not in collection.name:
                self._counts[own.branch_names[1].format(table=collection.name)] = collection
        self.uuid = str(selection.dataset.uuid)
        self.metadata = {
            "uuid": self.uuid,
            "num_rows": len(self._events),
            "object_path": selection.dataset.path.replace("/", "_"),
        }

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            self._read[name] = self._array(name)
        return self._read[name]

    def _array(self, name: str) -> Any:
        if name in self._columns:
            collection, column = self._columns[name]
            return collection.branch(column)
        if name in self._counts:
            counts: Any = self._counts[name].counts().astype("i4")
            return ak.Array(counts)
        if name not in self._numbers:
            raise MissingError(table="branches", key=name)
        numbers = ak.Array(np.ascontiguousarray(self._events[self._numbers[name]]))
        # Why: where files have the numbers in a table of their own, it has one row.
        return ak.from_regular(numbers[:, np.newaxis]) if "/" in name else numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def _names(self) -> dict[str, None]:
        # Why once: a file may have a column that counts.
        return dict.fromkeys([*self._numbers, *self._counts, *self._columns])


def _selected(events: Events) -> EventSelection:
    return events.selection() if isinstance(events, EventSet) else events


def _package(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = what.replace("_", "-")
        problem = f"this needs the package {package!r}, which is not installed: pip install {package}"
        raise InvalidInputError(source="analysis", problem=problem) from error


# ---- coffea -------------------------------------------------------------------------------------------------------------


class _Later(Mapping[str, Any]):
    """A mapping of buffers whose values are what reads them."""

    def __init__(self, buffers: Mapping[str, Any]) -> None:
        self._buffers = buffers

    def __getitem__(self, key: str) -> Any:
        return partial(self._buffers.__getitem__, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._buffers)

    def __len__(self) -> int:
        return len(self._buffers)


def to_nano_events(
    events: Events, schemaclass: Any = None, *, metadata: Mapping[str, Any] | None = None, schema: str | None = None
) -> Any:
    """Return events as coffea's NanoEvents, which its processors take: `processor.process(to_nano_events(events))`.

    `schemaclass` is coffea's NanoAODSchema unless given, or another of its classes; `metadata` is in `events.metadata`. What
    branches are called goes by `schema`, as of `collections`. A branch is read when a processor computes with it. Raises
    InvalidInputError where coffea is not installed, and what coffea raises for columns that its vectors need.
    """
    factory = _package("coffea.nanoevents", "coffea")
    mapping = _package("coffea.nanoevents.mapping", "coffea")
    selection = _selected(events)
    source = Branches(selection, schema)
    none = Branches(selection[:0], schema)
    key = (source.uuid, source.metadata["object_path"], f"0-{len(selection)}")
    # Why of none: coffea asks for the forms of all branches first.
    forms = {name: _documented(name, each) for name, each in none.items()}
    base = mapping.PreloadedSourceMapping._extract_base_form(forms)  # noqa: SLF001  # Why: there is no public name for it.
    base["parameters"]["metadata"] = dict(metadata or {})
    buffers = mapping.PreloadedSourceMapping(mapping.PreloadedOpener({source.uuid: source}), 0, len(selection))
    buffers.preload_column_source(key[0], key[1], source)
    built = (factory.NanoAODSchema if schemaclass is None else schemaclass)(base)
    quoted = _package("coffea.nanoevents.util", "coffea").tuple_to_key(key)
    return factory.NanoEventsFactory(built, _Later(buffers), quoted, mode="virtual").events()


def _documented(name: str, array: Any) -> Any:
    """Return an array with the text that coffea expects of a branch."""
    return ak.with_parameter(array, "__doc__", name)


# ---- dask-awkward -------------------------------------------------------------------------------------------------------


_here: Final[WeakValueDictionary[str, OpenStore]] = WeakValueDictionary()
"""The stores that partitions of this process were made of; workers in others open theirs by its address, once."""
_opened: Final[dict[Address, OpenStore]] = {}
"""Why by the whole address: two tokens at one server are two principals'."""
_opening: Final = Lock()
"""Why: dask calls in several threads, and a store is opened once."""


def _opened_at(address: Address) -> OpenStore:
    with _opening:
        if address not in _opened:
            _opened[address] = open_at(address)
        return _opened[address]


class _Partitions:
    """Reads some events: what dask-awkward calls for each partition, with the columns that are computed with."""

    use_optimization = True
    behavior = None
    attrs = None

    def __init__(
        self,
        store: tuple[str, Address],
        dataset: tuple[str, UUID],
        schema: str | None,
        form: Any,
        columns: Mapping[str, Sequence[str]],
    ) -> None:
        self._store = store
        self._dataset = dataset
        self._schema = schema
        self._whole = form
        self._columns = columns
        self.form = form

    def __call__(self, events: npt.NDArray[Any]) -> Any:
        found = _records(EventSelection(self._opened_dataset(), events), self._schema, self._columns)
        unproject = _package("dask_awkward.lib.unproject_layout", "dask_awkward").unproject_layout
        return ak.Array(unproject(self._whole, found.layout))

    def _opened_dataset(self) -> DataSet:
        token, address = self._store
        return DataSet(_here.get(token) or _opened_at(address), *self._dataset)

    # What follows is how dask-awkward learns which columns are needed.

    def mock(self) -> Any:
        return self._mixin.mock(self)

    def mock_empty(self, backend: str = "cpu") -> Any:
        return self._mixin.mock_empty(self, backend)

    def prepare_for_projection(self) -> Any:
        return self._mixin.prepare_for_projection(self)

    def necessary_columns(self, report: Any, state: Any) -> Any:
        return self._mixin.necessary_columns(self, report, state)

    def project(self, report: Any, state: Any) -> Any:
        return self._mixin.project(self, report, state)

    def project_columns(self, columns: frozenset[str]) -> "_Partitions":
        chosen = {
            name: own
            for name, known in self._columns.items()
            if (own := [each for each in known if _is_needed(".".join(part for part in (name, each) if part), columns)])
        }
        return _Partitions(self._store, self._dataset, self._schema, self._whole, chosen)

    def project_manually(self, columns: frozenset[str]) -> "_Partitions":
        return self.project_columns(columns)

    @property
    def _mixin(self) -> Any:
        return _package("dask_awkward.lib.io.columnar", "dask_awkward").ColumnProjectionMixin


def _is_needed(path: str, columns: frozenset[str]) -> bool:
    return any(each == path or each.startswith(f"{path}.") for each in columns)


def _records(selection: EventSelection, schema: str | None, columns: Mapping[str, Sequence[str]]) -> Any:
    """Return a record for each event: its numbers and the columns of collections; `_NUMBERS` names the former."""
    events = selection.to_numpy()
    collections = selection.collections(schema)
    fields: dict[str, Any] = {name: np.ascontiguousarray(events[name]) for name in columns.get(_NUMBERS, ())}
    fields |= {name: collections[name].filled(own) for name, own in columns.items() if name != _NUMBERS}
    return ak.zip(fields, depth_limit=1) if fields else ak.Array([{}] * len(events))


_NUMBERS: Final = ""


def to_dask_awkward(
    events: Events, names: Sequence[str] = (), *, partition_events: int = 50_000, schema: str | None = None
) -> Any:
    """Return events as an array of dask-awkward: records of run, subrun, event and collections, all unless `names` are given.

    A partition has `partition_events` events. What is computed reads the columns that it needs, and no others. Workers in other
    processes open the store by its address. An event without a product of a table has an empty list. Raises InvalidInputError
    where dask-awkward is not installed; MissingError for a name.
    """
    dask_awkward = _package("dask_awkward", "dask_awkward")
    if partition_events < 1:
        raise InvalidInputError(source="partition_events", problem="a partition has at least one event")
    selection = _selected(events)
    none = selection[:0]
    known = none.collections(schema)
    columns: dict[str, Sequence[str]] = {
        name: [column for column in known[name].columns if known[name].has_type(column)] for name in (names or known)
    }
    columns = {_NUMBERS: EVENT_COLUMNS.names or (), **{name: own for name, own in columns.items() if own}}
    form = _records(none, schema, columns).layout.form
    dataset = selection.dataset
    token = uuid4().hex
    _here[token] = dataset.datastore
    reader = _Partitions((token, dataset.datastore.address), (dataset.path, dataset.uuid), schema, form, columns)
    whole = selection.to_numpy()
    begins = range(0, max(1, len(whole)), partition_events)
    parts = [whole[begin : begin + partition_events] for begin in begins]
    divisions = (0, *np.cumsum([len(part) for part in parts]).tolist())
    return dask_awkward.from_map(reader, parts, label="hepnos", token=token, divisions=divisions)
