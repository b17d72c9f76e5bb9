"""Stores that the C++ program has written: read through its own layouts, and brought into a store of the document's form.

Its databases may be of any engine that has its keys and values as they are; events' and products' keys are the document's.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from keyplan.apps.hepnos.dataset_ref import is_deleting
from keyplan.apps.hepnos.errors import DeletedError
from keyplan.apps.hepnos.keys import (
    Kind,
    dataset_key,
    number_key,
    path_of_key,
    product_item,
    product_suffix,
    split_product,
)
from keyplan.apps.hepnos.layout import (
    INVALID_NUMBER,
    DataSetKey,
    HEPnOSCppDataSets,
    HEPnOSCppEvents,
    HEPnOSCppProducts,
    HEPnOSCppRuns,
    HEPnOSCppSubRuns,
)
from keyplan.apps.hepnos.store import DataStore
from keyplan.engine import ALL_KEYS, Engine
from keyplan.errors import AlreadyExistsError, CorruptionError, InvalidInputError
from keyplan.layout import Layout, Meaning

__all__ = ["CxxStore", "Migrated"]

_LAYOUTS: Final[dict[Kind, type[Layout]]] = {
    Kind.DATASET: HEPnOSCppDataSets,
    Kind.RUN: HEPnOSCppRuns,
    Kind.SUBRUN: HEPnOSCppSubRuns,
    Kind.EVENT: HEPnOSCppEvents,
    Kind.PRODUCT: HEPnOSCppProducts,
}

_BATCH_KEYS: Final = 10_000
_BATCH_BYTES: Final = 4 << 20
_ANY: Final = "-"
_UUID_BYTES: Final = 16


class Migrated(NamedTuple):
    """How many objects of each kind were brought over; `unknown` keys, which it cannot have written, were left out."""

    datasets: int
    runs: int
    subruns: int
    events: int
    products: int
    unknown: int


class CxxStore:
    """The databases of a C++ service, by kind: {"datasets": [engine, ...], ...}. Only read; they stay the caller's.

    Where the program placed a key does not matter: all databases of a kind are read, and merged in key order.
    """

    def __init__(self, databases: Mapping[str, Sequence[Engine]]) -> None:
        missing = {kind.value for kind in Kind} ^ set(databases)
        if missing:
            raise InvalidInputError(
                source="databases", problem=f"all five kinds are needed: {', '.join(sorted(missing))}"
            )
        self._engines = {kind: tuple(databases[kind.value]) for kind in Kind}

    def meaning(self, kind: str, raw_key: bytes) -> Meaning:
        """Say what a raw key of a kind of database is. Never fails."""
        return _LAYOUTS[Kind(kind)].bound().meaning(raw_key)

    def datasets(self) -> Iterator[tuple[str, UUID]]:
        """Yield the full name, without a slash before it, and the UUID of every data set.

        Raises CorruptionError for a value that is no UUID, and InvalidInputError as `pairs`.
        """
        for key, value in self.pairs(Kind.DATASET):
            path = self._path(key)
            if path is not None:
                # Why not `uuid_of`: one byte more is a mark of ours, which the program does not write.
                if len(value) != _UUID_BYTES:
                    problem = f"its UUID has {_UUID_BYTES} bytes, not {len(value)}"
                    raise CorruptionError(table="datasets", key=path, problem=problem)
                yield path, UUID(bytes=value)

    def numbers(self, kind: str) -> Iterator[tuple[UUID, tuple[int, ...]]]:
        """Yield the data set's UUID and the numbers of every run, subrun or event."""
        keys = _LAYOUTS[Kind(kind)].bound().tables[kind].keys
        for raw, _ in self.pairs(Kind(kind)):
            key = keys.decode(raw)
            if isinstance(key, tuple):
                yield key[0], key[1:]

    def pairs(self, kind: Kind) -> Iterator[tuple[bytes, bytes]]:
        """Yield the raw keys and values of all databases of a kind, in key order.

        A key stands in two databases when there were others before: the program moves nothing, and makes it anew. It is yielded
        once. Raises InvalidInputError when its values differ: nothing says which is the later.
        """
        with ExitStack() as stack:
            snapshots = [stack.enter_context(engine.snapshot()) for engine in self._engines[kind]]
            last: tuple[bytes, bytes] | None = None
            for pair in merge(*(snapshot.pairs(ALL_KEYS) for snapshot in snapshots)):
                if last is None or pair[0] != last[0]:
                    yield pair
                elif pair[1] != last[1]:
                    problem = f"two databases have other values at the key {pair[0].hex()}: remove one of them"
                    raise InvalidInputError(source=kind.value, problem=problem)
                last = pair

    def migrate(self, store: DataStore, *, progress: Callable[[int], None] | None = None) -> Migrated:
        """Bring everything into a store of the document's form; data sets keep their UUIDs. Begun again when interrupted.

        What the store has already is left, and nothing is written over. Before anything else raises CorruptionError for a data
        set whose UUID is none, AlreadyExistsError when the store has one of the name with another UUID, DeletedError when one
        with the UUID was deleted there, or is; then AlreadyExistsError for a product that has other bytes by now. `progress` is
        called with the number of objects written since the last call.
        """
        told = progress or (lambda _: None)
        for path, uuid in self.datasets():
            _refuse_others(store, path, uuid)
        unknown = Counter[Kind]()
        counts = {kind: _put(store, kind, self._converted(kind, unknown), told) for kind in Kind}
        datasets, runs, subruns, events, products = (counts[kind] for kind in Kind)
        return Migrated(datasets, runs, subruns, events, products, unknown.total())

    def _converted(self, kind: Kind, unknown: "Counter[Kind]") -> Iterator[tuple[bytes, bytes]]:
        for key, value in self.pairs(kind):
            new = self._new_key(kind, key)
            if new is None:
                unknown[kind] += 1
            else:
                yield new, value

    def _new_key(self, kind: Kind, raw_key: bytes) -> bytes | None:
        if kind is Kind.DATASET:
            path = self._path(raw_key)
            return None if path is None else dataset_key(path)
        key = _LAYOUTS[kind].bound().tables[kind.value].keys.decode(raw_key)
        if not isinstance(key, tuple):
            return None
        return raw_key if kind in {Kind.EVENT, Kind.PRODUCT} else number_key(key[0], key[1:])

    @staticmethod
    def _path(raw_key: bytes) -> str | None:
        key = HEPnOSCppDataSets.bound().tables["datasets"].keys.decode(raw_key)
        return key.path if isinstance(key, DataSetKey) else None


def _put(store: DataStore, kind: Kind, pairs: Iterator[tuple[bytes, bytes]], told: Callable[[int], None]) -> int:
    """Write pairs, in each database in order, and return how many."""
    total = 0
    while batch := list(_bounded(pairs)):
        shares: dict[int, list[tuple[bytes, bytes]]] = {}
        for pair in batch:
            shares.setdefault(store.databases.place(kind, pair[0]), []).append(pair)
        for database, share in shares.items():
            share.sort()
            keys, values = [key for key, _ in share], [value for _, value in share]
            if store.databases.put(kind, database, keys, values, mode="new") < len(keys):
                _compare(store, kind, database, share)
        total += len(batch)
        told(len(batch))
    return total


def _refuse_others(store: DataStore, path: str, uuid: UUID) -> None:
    """Raise AlreadyExistsError or DeletedError unless the data set can be brought over."""
    stored = store.raw_value(Kind.DATASET, dataset_key(path))
    if stored is not None and is_deleting(stored):
        problem = "it is deleted here at this moment, or that was interrupted: `keyplan hepnos sweep` goes on with it"
        raise DeletedError(table="datasets", key=path, problem=problem)
    if stored is not None and stored != uuid.bytes:
        raise AlreadyExistsError(table="datasets", key=path, problem="it has another UUID")
    try:
        store.raw_value(Kind.PRODUCT, product_item(uuid, ()) + product_suffix("", _ANY))
    except DeletedError as error:
        # Why: the program makes a UUID of the name, so that what was deleted is the same to every database.
        problem = "it was deleted here, and nothing with its UUID is written any more: bring it into another store"
        raise DeletedError(table="datasets", key=path, problem=problem) from error


def _compare(store: DataStore, kind: Kind, database: int, share: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise AlreadyExistsError where the store has something else. Why afterwards: so that no other writer comes between."""
    if kind not in {Kind.DATASET, Kind.PRODUCT}:
        return
    with store.databases.snapshot(kind, database) as snapshot:
        stored = snapshot.values([key for key, _ in share])
    for (key, value), found in zip(share, stored, strict=True):
        if found != value:
            problem = "the store has something else there, which stays: remove it, or bring all into another store"
            raise AlreadyExistsError(table=kind.value, key=_named(kind, key), problem=problem)


def _named(kind: Kind, key: bytes) -> str:
    product = split_product(key) if kind is Kind.PRODUCT else None
    if product is None:
        return path_of_key(key) or key.hex()
    numbers = [str(number) for number in product[1:4] if number != INVALID_NUMBER]
    return f"{' '.join([str(product.dataset), *numbers])} {product.label}#{product.type}"


def _bounded(pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    size = 0
    for pair in islice(pairs, _BATCH_KEYS):
        yield pair
        size += len(pair[1])
        if size > _BATCH_BYTES:
            return
