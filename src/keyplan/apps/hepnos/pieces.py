"""Pieces of a data set's events, and the work on one, in this process or another. Who hands them out is elsewhere."""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from threading import Lock, current_thread
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy.typing as npt

from keyplan.apps.hepnos.columns import EVENT_COLUMNS, key_numbers
from keyplan.apps.hepnos.databases import Address
from keyplan.apps.hepnos.datasets import DataSet
from keyplan.apps.hepnos.errors import ProcessingError
from keyplan.apps.hepnos.keys import Kind, event_numbers, product_suffix
from keyplan.apps.hepnos.numbered import Event
from keyplan.apps.hepnos.open_store import OpenStore
from keyplan.apps.hepnos.prefetch import PreloadedProducts
from keyplan.apps.hepnos.store import open_at
from keyplan.apps.hepnos.types import ProductType, product_type
from keyplan.engine import KeyRange
from keyplan.errors import CorruptionError

__all__ = ["Done", "EventBatch", "Job", "Piece", "known_here", "pieces_of", "work"]

_PIECES_LISTED: Final = 64
"""Why: the list of pieces is read some way ahead of the work, and no snapshot is open while workers run."""


@dataclass(frozen=True)
class EventBatch:
    """What a vectorised function is given: an array of EVENT_COLUMNS, and for each preloaded product a value for each event."""

    dataset: DataSet
    events: npt.NDArray[Any]
    products: dict[tuple[str, str], list[Any]]

    def product(self, label: str, type: Any) -> list[Any]:  # noqa: A002  # Why: the word of the document.
        """Return the preloaded products of a label and type, None for events that have none."""
        return self.products[label, product_type(type).name]

    def __len__(self) -> int:
        return len(self.events)


@dataclass(frozen=True)
class Job:
    """What is done with every piece of a run. `token` is the run's own. Goes to other processes."""

    token: str
    address: Address
    dataset: str
    uuid: UUID
    preload: tuple[tuple[str, ProductType], ...]
    is_vectorised: bool
    function: Callable[..., Any]
    keeps_results: bool


class Piece(NamedTuple):
    """Some events of one event database, from raw key to raw key."""

    target: int
    start: bytes
    end: bytes


class Done(NamedTuple):
    """What became of a piece: how many events it had, who did it, and what the function returned, where that is kept."""

    events: int
    worker: str
    results: list[Any]


def pieces_of(dataset: DataSet, events_max: int) -> Iterator[Piece]:
    """Yield the pieces of a data set, of at most so many events; databases are read some way ahead, and closed meanwhile."""
    whole = KeyRange.of_prefix(dataset.uuid.bytes)
    for target in range(len(dataset.datastore.databases.rings[Kind.EVENT].databases)):
        start = whole.start
        while True:
            found = _some_pieces(dataset.datastore, target, KeyRange(start, whole.end), events_max)
            yield from found
            if len(found) < _PIECES_LISTED:
                break
            start = found[-1].end


def _some_pieces(store: OpenStore, target: int, key_range: KeyRange, events_max: int) -> list[Piece]:
    """Return the first pieces in a range. Its snapshot is closed before any of them is handed out."""
    pieces: list[Piece] = []
    with store.databases.snapshot(Kind.EVENT, target) as snapshot:
        found = snapshot.keys(key_range, limit=events_max * _PIECES_LISTED)
        while keys := list(islice(found, events_max)):
            pieces.append(Piece(target, keys[0], keys[-1] + b"\x00"))
    return pieces


# ---- in a worker ----------------------------------------------------------------------------------------------------------

_stores: Final[dict[tuple[int, str | Address], OpenStore]] = {}
"""The stores of this process: by the token of a run for the one that runs it, by address for its workers."""


_opening: Final = Lock()
"""Why: a worker of several threads opens the store once."""


@contextmanager
def known_here(token: str, datastore: OpenStore) -> Generator[None, None, None]:
    """Let workers in this very process use the store of the run that has this token."""
    key = (os.getpid(), token)
    _stores[key] = datastore
    try:
        yield
    finally:
        _stores.pop(key, None)


def _store_of(job: Job) -> OpenStore:
    """Return the store that threads of the run's own process share, or this process's own, opened by address."""
    own = _stores.get((os.getpid(), job.token))
    if own is not None:
        return own
    # Why the address itself: another token is another caller, and an address shows none.
    key = (os.getpid(), job.address)
    with _opening:
        if key not in _stores:
            _stores[key] = open_at(job.address)
        return _stores[key]


def work(job: Job, piece: Piece) -> Done:
    """Call the job's function for every event of a piece. Raises ProcessingError, which names the event that it failed for."""
    store = _store_of(job)
    dataset = DataSet(store, job.dataset, job.uuid)
    with store.databases.snapshot(Kind.EVENT, piece.target) as snapshot:
        keys = list(snapshot.keys(KeyRange(piece.start, piece.end)))
    products = PreloadedProducts(store, job.preload)
    products.preload(keys)
    results = (_vectorised if job.is_vectorised else _each)(job, dataset, keys, products)
    return Done(len(keys), f"{os.getpid()}/{current_thread().name}", results if job.keeps_results else [])


def _each(job: Job, dataset: DataSet, keys: list[bytes], products: PreloadedProducts) -> list[Any]:
    results: list[Any] = []
    function = partial(_with_products, job.function, products) if job.preload else job.function
    naming = _naming()
    with naming:
        for event in map(Event, repeat(dataset), event_numbers(keys), keys):
            naming.event = event
            result = function(event)
            if job.keeps_results:
                results.append(result)
    return results


def _with_products(function: Callable[..., Any], products: PreloadedProducts, event: Event) -> Any:
    return function(event, products)


def _vectorised(job: Job, dataset: DataSet, keys: list[bytes], products: PreloadedProducts) -> list[Any]:
    columns: dict[tuple[str, str], list[Any]] = {}
    for label, kind in job.preload:
        raws = products.raw_products(keys, product_suffix(label, kind.name))
        try:
            columns[label, kind.name] = kind.decode_many(raws)
        except CorruptionError:
            _name_damaged(dataset, keys, label, kind)
            raise
    if not keys:
        return []
    batch = EventBatch(dataset, key_numbers(b"".join(keys), EVENT_COLUMNS), columns)
    with _naming(Event(dataset, next(event_numbers(keys[:1])), keys[0])):
        return [job.function(batch)]


def _name_damaged(dataset: DataSet, keys: list[bytes], label: str, kind: ProductType) -> None:
    """Raise ProcessingError for the first event whose product is damaged. Why again: of many, nothing says which."""
    for event in map(Event, repeat(dataset), event_numbers(keys), keys):
        with _naming(event):
            event.load(label, kind)


class _naming:  # noqa: N801  # Why: it reads as a statement.
    """Let an error of the function name the event that it failed for; of a batch, its first."""

    def __init__(self, event: Event | None = None) -> None:
        self.event = event

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and self.event is not None:
            run, subrun, event = self.event.numbers
            raise ProcessingError(
                dataset=self.event.dataset.path, run=run, subrun=subrun, event=event, error=type(error).__name__
            ) from error
