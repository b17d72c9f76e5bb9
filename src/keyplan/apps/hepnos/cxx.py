"""Stores that the C++ program has written: read through its own layouts, and brought into a store of the document's form.

Its databases may be of any engine that has its keys and values as they are; events' and products' keys are the document's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from keyplan.apps.hepnos.dataset_ref import uuid_of
from keyplan.apps.hepnos.keys import Kind, dataset_key, number_key
from keyplan.apps.hepnos.layout import (
    DataSetKey,
    HEPnOSCppDataSets,
    HEPnOSCppEvents,
    HEPnOSCppProducts,
    HEPnOSCppRuns,
    HEPnOSCppSubRuns,
)
from keyplan.apps.hepnos.store import DataStore
from keyplan.engine import ALL_KEYS, Engine
from keyplan.errors import AlreadyExistsError, InvalidInputError
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
        """Yield the full name, without a slash before it, and the UUID of every data set."""
        for key, value in self.pairs(Kind.DATASET):
            path = self._path(key)
            if path is not None:
                yield path, uuid_of(value)

    def numbers(self, kind: str) -> Iterator[tuple[UUID, tuple[int, ...]]]:
        """Yield the data set's UUID and the numbers of every run, subrun or event."""
        keys = _LAYOUTS[Kind(kind)].bound().tables[kind].keys
        for raw, _ in self.pairs(Kind(kind)):
            key = keys.decode(raw)
            if isinstance(key, tuple):
                yield key[0], key[1:]

    def pairs(self, kind: Kind) -> Iterator[tuple[bytes, bytes]]:
        """Yield the raw keys and values of all databases of a kind, in key order."""
        snapshots = [engine.snapshot() for engine in self._engines[kind]]
        try:
            yield from merge(*(snapshot.pairs(ALL_KEYS) for snapshot in snapshots))
        finally:
            for snapshot in snapshots:
                snapshot.close()

    def migrate(self, store: DataStore, *, progress: Callable[[int], None] | None = None) -> Migrated:
        """Bring everything into a store of the document's form; data sets keep their UUIDs. Begun again when interrupted.

        Raises AlreadyExistsError when the store has a data set of one of the names with another UUID, before anything else.
        `progress` is called with the number of objects written since the last call.
        """
        told = progress or (lambda _: None)
        for path, uuid in self.datasets():
            stored = store.raw_value(Kind.DATASET, dataset_key(path))
            if stored is not None and stored != uuid.bytes:
                raise AlreadyExistsError(table="datasets", key=path, problem="it has another UUID")
        counts = {kind: _put(store, kind, self._converted(kind), told) for kind in Kind}
        unknown = sum(1 for kind in Kind for key, _ in self.pairs(kind) if self._new_key(kind, key) is None)
        datasets, runs, subruns, events, products = (counts[kind] for kind in Kind)
        return Migrated(datasets, runs, subruns, events, products, unknown)

    def _converted(self, kind: Kind) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self.pairs(kind):
            new = self._new_key(kind, key)
            if new is not None:
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
            store.databases.put(kind, database, [key for key, _ in share], [value for _, value in share])
        total += len(batch)
        told(len(batch))
    return total


def _bounded(pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    size = 0
    for pair in islice(pairs, _BATCH_KEYS):
        yield pair
        size += len(pair[1])
        if size > _BATCH_BYTES:
            return
