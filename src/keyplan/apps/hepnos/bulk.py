"""Many at once: runs, subruns and events from columns of numbers, and the stored products of events. Tables are elsewhere.

The rows may come in any order and more than once; every write is idempotent, so that a loader that was killed begins again.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from heapq import merge
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.access import StoreAccess
from keyplan.apps.hepnos.columns import (
    EVENT_COLUMNS,
    Columns,
    checked_column,
    key_matrix,
    places,
    raw_keys,
)
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.keys import ITEM_BYTES, Kind, product_suffix
from keyplan.apps.hepnos.product_types import ProductType
from keyplan.apps.hepnos.types import product_type
from keyplan.engine import AscendingKeys, KeyRange
from keyplan.errors import InvalidInputError

__all__ = [
    "OPERATION_KEYS",
    "Created",
    "EventProducts",
    "create_events",
    "create_items",
    "load_event_products",
    "load_products",
    "sorted_rows",
    "store_event_products",
    "store_products",
]

OPERATION_KEYS: Final = 10_000
"""Keys of one commit. Why: the flush of a commit costs as much as writing some hundred keys; beyond this nothing is won."""

_READ_KEYS: Final = 4_096
"""Why: over a network many keys are one call, and the products of so many fit in memory."""

_OPERATION_BYTES: Final = 4 << 20
"""Why: products of a commit are held in memory, and so are LMDB's changed pages."""

_KINDS: Final = (Kind.RUN, Kind.SUBRUN, Kind.EVENT)


class Created(NamedTuple):
    """How many of what was to be created are new."""

    runs: int
    subruns: int
    events: int


def create_items(
    dataset: DataSetRef,
    run: Any,
    subrun: Any = None,
    event: Any = None,
    *,
    operation_keys: int = OPERATION_KEYS,
    parents: bool = True,
) -> Created:
    """Create runs, subruns or events from columns of equal length, in any order, repeated or not; return how many are new.

    With `parents` the runs and subruns that events are in are created too, before them. A commit has at most `operation_keys`
    keys, and is durable. Raises MissingError for a data set that is not there, InvalidNumberError, InvalidInputError, before
    anything is written.
    """
    given = [("run", run), ("subrun", subrun), ("event", event)]
    columns = [checked_column(name, numbers) for name, numbers in given if numbers is not None]
    is_whole = run is not None and (subrun is not None or event is None)
    if not is_whole or len({len(column) for column in columns}) != 1:
        problem = "columns of one length are needed: runs, with subruns each with its run, with events both"
        raise InvalidInputError(source="columns", problem=problem)
    _check_size(operation_keys)
    dataset.require()
    store, made = dataset.datastore, [0, 0, 0]
    for depth in range(1 if parents else len(columns), len(columns) + 1):
        matrix = _distinct(columns[:depth])
        made[depth - 1] = _create(store, _KINDS[depth - 1], key_matrix(dataset.uuid, matrix), operation_keys)
    return Created(*made)


def create_events(
    dataset: DataSetRef, run: int, subrun: int, events: Any, *, operation_keys: int = OPERATION_KEYS
) -> int:
    """Create events of one subrun, whose numbers may come in any order; return how many are new."""
    column = checked_column("event", events)
    parents = [checked_column(name, [number]) for name, number in (("run", run), ("subrun", subrun))]
    columns = [*(np.broadcast_to(parent, column.shape) for parent in parents), column]
    _check_size(operation_keys)
    dataset.require()
    return _create(dataset.datastore, Kind.EVENT, key_matrix(dataset.uuid, _distinct(columns)), operation_keys)


def _check_size(operation_keys: int) -> None:
    """Raise InvalidInputError for commits of no keys. Why: they would never end, or write nothing and say so to nobody."""
    if operation_keys < 1:
        raise InvalidInputError(source="operation_keys", problem="a commit has at least one key")


def _distinct(columns: Columns) -> Columns:
    """Return the rows sorted, each once."""
    ordered, _ = _sorted(columns)
    is_first = _is_first(ordered)
    return ordered if is_first.all() else [column[is_first] for column in ordered]


def sorted_rows(columns: Columns) -> tuple[Columns, npt.NDArray[np.intp], npt.NDArray[np.intp] | None]:
    """Return the rows sorted, where each event's begin, and the order in which they were taken: None where they were in order.

    Rows of one event stay in the order given.
    """
    ordered, order = _sorted(columns)
    return ordered, np.flatnonzero(_is_first(ordered)), order


def _sorted(columns: Columns) -> tuple[Columns, npt.NDArray[np.intp] | None]:
    """Return the rows sorted, and the order in which they were taken: None where they were in order.

    Why a look first: a file's rows are in order as a rule, and sorting costs the most. Why lexsort: it is stable.
    """
    if _is_ascending(columns):
        return columns, None
    order = np.lexsort(columns[::-1])
    return [column[order] for column in columns], order


def _is_ascending(columns: Columns) -> bool:
    """True when no row is less than the one before it."""
    is_tied = np.ones(max(len(columns[0]) - 1, 0), bool)
    for column in columns:
        before, after = column[:-1], column[1:]
        if np.any(is_tied & (after < before)):
            return False
        is_tied &= after == before
    return True


def _is_first(columns: Columns) -> npt.NDArray[np.bool_]:
    """Tell of each sorted row whether it is another one than the row before it."""
    is_first = np.ones(len(columns[0]), bool)
    if len(is_first) > 1:
        is_first[1:] = False
        for column in columns:
            is_first[1:] |= column[1:] != column[:-1]
    return is_first


def _create(store: StoreAccess, kind: Kind, matrix: npt.NDArray[np.uint64], operation_keys: int) -> int:
    """Write sorted keys, in each database what belongs there, in commits of so many keys."""
    made = 0
    for database, chosen in _shares(store, kind, matrix):
        rows = matrix[chosen]
        for begin in range(0, len(rows), operation_keys):
            # Why ascending: the rows are sorted, each once, and big-endian words are in the order of their bytes.
            keys = AscendingKeys(raw_keys(rows[begin : begin + operation_keys]), key_bytes_max=matrix.shape[1] * 8)
            made += store.databases.put(kind, database, keys, None, mode="new")
    return made


def _shares(
    store: StoreAccess, kind: Kind, matrix: npt.NDArray[np.uint64]
) -> Iterator[tuple[int, slice | npt.NDArray[np.intp]]]:
    """Yield each database with what chooses its rows, in their order."""
    databases = len(store.databases.rings[kind].databases)
    if databases == 1 or not len(matrix):
        yield 0, slice(None)
        return
    homes = _homes(matrix[:, :-1] if kind is not Kind.PRODUCT else matrix[:, :4], databases)
    for database in np.unique(homes):
        yield int(database), np.flatnonzero(homes == database)


def _homes(placed: npt.NDArray[np.uint64], databases: int) -> npt.NDArray[np.intp]:
    """Return the database of each row; rows that are placed alike stand together, and are placed once."""
    is_first = _is_first(list(placed.T))
    homes = places(placed[is_first], databases)
    found: npt.NDArray[np.intp] = homes[np.cumsum(is_first) - 1]
    return found


# ---- products -----------------------------------------------------------------------------------------------------------


def store_products(
    dataset: DataSetRef,
    label: str,
    type: Any,  # noqa: A002  # Why: as above.
    columns: Sequence[Any],
    values: Sequence[bytes],
    *,
    mode: str = "overwrite",
    operation_keys: int = OPERATION_KEYS,
) -> int:
    """Store one product of each event, given by columns of run, subrun and event and by the stored bytes; return how many.

    For bytes that another program has serialized, and for `ProductType.encode`. Raises InvalidInputError, EngineLimitError.
    """
    store_event_products(
        dataset, [EventProducts(label, type, columns, values)], mode=mode, operation_keys=operation_keys
    )
    return len(values)


class EventProducts(NamedTuple):
    """A product of each of some events, all of a label and a type: columns of run, subrun and event, and the stored bytes."""

    label: str
    type: Any
    columns: Sequence[Any]
    values: Sequence[bytes]


def store_event_products(
    dataset: DataSetRef,
    tables: Sequence[EventProducts],
    *,
    mode: str = "overwrite",
    operation_keys: int = OPERATION_KEYS,
) -> int:
    """Store products of several labels in commits that they share; return how many are new, where the mode is no "exist".

    Why together: a file has hundreds of labels, and a commit costs as much as some hundred keys. Raises as `store_products`,
    also when two of the tables have a product of one event, label and type.
    """
    _check_size(operation_keys)
    shares: dict[int, dict[bytes, bytes]] = {}
    size = 0
    for table in tables:
        size = max(size, ITEM_BYTES + len(product_suffix(table.label, product_type(table.type).name)))
        for database, keys, values in _placed(dataset, table):
            share = shares.setdefault(database, {})
            if not share.keys().isdisjoint(keys):
                raise InvalidInputError(
                    source=table.label, problem="an event stands in two tables of one label and type"
                )
            share.update(zip(keys, values, strict=True))
    made = 0
    for database, share in shares.items():
        ordered = sorted(share) if len(tables) > 1 else list(share)
        own = [share[key] for key in ordered]
        for begin, end in _operations(own, operation_keys):
            part = AscendingKeys(ordered[begin:end], key_bytes_max=size)
            made += dataset.datastore.databases.put(Kind.PRODUCT, database, part, own[begin:end], mode=mode)
    return made


def _placed(dataset: DataSetRef, table: EventProducts) -> Iterator[tuple[int, list[bytes], Sequence[bytes]]]:
    """Yield each database with the keys that belong there, in order, and their values."""
    names = ("run", "subrun", "event")
    checked = [checked_column(name, column) for name, column in zip(names, table.columns, strict=True)]
    values = table.values
    if {len(column) for column in checked} != {len(values)}:
        raise InvalidInputError(source="values", problem="a product is needed for each event")
    suffix = product_suffix(table.label, product_type(table.type).name)
    store = dataset.datastore
    store.check_key(Kind.PRODUCT, bytes(ITEM_BYTES) + suffix)
    ordered, order = _sorted(checked)
    if not _is_first(ordered).all():
        raise InvalidInputError(source="columns", problem="an event stands twice")
    if order is not None:
        values = [values[at] for at in order.tolist()]
    matrix = key_matrix(dataset.uuid, ordered)
    for database, chosen in _shares(store, Kind.PRODUCT, matrix):
        keys = [item + suffix for item in raw_keys(matrix[chosen])]
        yield database, keys, values if isinstance(chosen, slice) else [values[at] for at in chosen.tolist()]


def _operations(values: Sequence[bytes], operation_keys: int) -> Iterator[tuple[int, int]]:
    """Yield the parts that one commit takes, by number and by bytes; a value that is larger is one of its own."""
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
    begin = 0
    while begin < len(values):
        before = int(ends[begin - 1]) if begin else 0
        fitting = int(np.searchsorted(ends, before + _OPERATION_BYTES, side="right"))
        end = min(max(fitting, begin + 1), begin + operation_keys, len(values))
        yield begin, end
        begin = end


def load_products(
    dataset: DataSetRef,
    label: str,
    type: Any,  # noqa: A002  # Why: as above.
    *,
    target: int | None = None,
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the item and the stored bytes of every product of a label and type in a data set, its events' and all others.

    Of one product database, or of all (None, -1); sorted by run, subrun and event. Raises InvalidInputError for a database
    that there is not.
    """
    suffix = product_suffix(label, product_type(type).name)
    databases = dataset.datastore.databases
    with ExitStack() as stack:
        snapshots = [
            stack.enter_context(databases.snapshot(Kind.PRODUCT, database))
            for database in databases.targets(Kind.PRODUCT, target)
        ]
        found = [_with_suffix(snapshot.pairs(KeyRange.of_prefix(dataset.uuid.bytes)), suffix) for snapshot in snapshots]
        # Why not always: a merge costs as much as reading does.
        yield from found[0] if len(found) == 1 else merge(*found)


def _with_suffix(pairs: Iterator[tuple[bytes, bytes]], suffix: bytes) -> Iterator[tuple[bytes, bytes]]:
    size = ITEM_BYTES + len(suffix)
    return ((key[:ITEM_BYTES], value) for key, value in pairs if len(key) == size and key.endswith(suffix))


def load_event_products(
    dataset: DataSetRef,
    label: str,
    type: Any,  # noqa: A002  # Why: as above.
    events: Any,
) -> list[tuple[bytes, bytes]]:
    """Return the same of the events in an array of EVENT_COLUMNS, each once; those that have no product are left out."""
    return sorted(_of_events(dataset, label, product_type(type), events))


def _of_events(dataset: DataSetRef, label: str, kind: ProductType, events: Any) -> Iterator[tuple[bytes, bytes]]:
    suffix = product_suffix(label, kind.name)
    databases = dataset.datastore.databases
    columns = [checked_column(name, events[name]) for name in EVENT_COLUMNS.names or ()]
    matrix = key_matrix(dataset.uuid, _distinct(columns))
    for database, chosen in _shares(dataset.datastore, Kind.PRODUCT, matrix):
        items = raw_keys(matrix[chosen])
        with databases.snapshot(Kind.PRODUCT, database) as snapshot:
            for begin in range(0, len(items), _READ_KEYS):
                part = items[begin : begin + _READ_KEYS]
                values = snapshot.values([item + suffix for item in part])
                yield from ((item, value) for item, value in zip(part, values, strict=True) if value is not None)
