"""Events in parallel: pieces of the event databases are handed to an executor's workers as they become free.

Any `concurrent.futures.Executor` will do: threads, processes, mpi4py's, Dask's. A worker in another process opens the store
again, by its address, once.
"""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from threading import current_thread
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import numpy.typing as npt

from keyplan.apps.hepnos.columns import EVENT_COLUMNS, key_numbers
from keyplan.apps.hepnos.databases import Address
from keyplan.apps.hepnos.datasets import DataSet
from keyplan.apps.hepnos.errors import ProcessingError
from keyplan.apps.hepnos.keys import ITEM_BYTES, Kind, product_suffix
from keyplan.apps.hepnos.numbered import Event, container_of
from keyplan.apps.hepnos.prefetch import PreloadedProducts
from keyplan.apps.hepnos.store import DataStore, open_at
from keyplan.apps.hepnos.types import ProductType, product_type
from keyplan.engine import KeyRange
from keyplan.errors import InvalidInputError, UnsupportedByEngineError

__all__ = ["EventBatch", "ParallelProcessor", "Processed"]

_PIECES_AHEAD: Final = 2
"""Pieces that wait for each worker. Why: one to work on and one to begin at once; more would make the end uneven."""

_PIECES_LISTED: Final = 64
"""Why: the list of pieces is read some way ahead of the work, and no snapshot is open while workers run."""


class Processed(NamedTuple):
    """What a run has done: events and pieces, and how many events each worker had, by its process (and thread)."""

    events: int
    pieces: int
    by_worker: dict[str, int]


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
class _Piece:
    """Some events of one database, from key to key, and what is to be done with them. Goes to other processes."""

    token: str
    address: Address
    dataset: str
    uuid: UUID
    target: int
    start: bytes
    end: bytes | None
    preload: tuple[tuple[str, ProductType], ...]
    is_vectorised: bool
    function: Callable[..., Any]
    keeps_results: bool


class _Done(NamedTuple):
    events: int
    worker: str
    results: list[Any]


class ParallelProcessor:
    """Hands every event of a data set to exactly one worker. There is no order.

    `executor` runs the workers, else `workers` processes do, which are started anew and import the function's module. A piece
    has at most `piece_events` events; `preload` names products, (label, type), that are read with a piece and given to the
    function as its second argument, a source for `load`. `vectorised`: the function is given an EventBatch instead.

    When a worker dies, `on_worker_loss="raise"` ends the run with the executor's error; "redo" hands the pieces that were not
    finished out again, so that their events may be seen twice, where the executor is the processor's own.
    """

    def __init__(
        self,
        datastore: DataStore,
        *,
        executor: Executor | None = None,
        workers: int = 2,
        piece_events: int = 1_024,
        preload: Sequence[tuple[str, Any]] = (),
        vectorised: bool = False,
        on_worker_loss: str = "raise",
    ) -> None:
        if workers < 1 or piece_events < 1 or on_worker_loss not in {"raise", "redo"}:
            problem = "at least one worker, one event a piece; on_worker_loss is raise or redo"
            raise InvalidInputError(source="parallel", problem=problem)
        if executor is not None and on_worker_loss == "redo":
            raise InvalidInputError(source="parallel", problem="an executor that was given cannot be started again")
        if executor is None and not datastore.databases.is_shared:
            raise UnsupportedByEngineError(engine="hepnos", capability="sharing the store with other processes")
        self._datastore = datastore
        self._executor = executor
        self._workers = workers
        self._piece_events = piece_events
        self._preload = tuple((label, product_type(kind)) for label, kind in preload)
        self._is_vectorised = vectorised
        self._is_redone = on_worker_loss == "redo"

    def process(self, dataset: DataSet, function: Callable[..., object]) -> Processed:
        """Call `function(event)`, or `function(event, products)` with preload, for every event; return what was done.

        Raises ProcessingError, which names the event, when the function fails for one: workers finish their pieces and stop.
        """
        events, pieces = 0, 0
        by_worker: dict[str, int] = {}
        for done in self._run(dataset, function, keeps_results=False):
            events, pieces = events + done.events, pieces + 1
            by_worker[done.worker] = by_worker.get(done.worker, 0) + done.events
        return Processed(events, pieces, by_worker)

    def map(self, dataset: DataSet, function: Callable[..., Any]) -> Iterator[Any]:
        """Yield what the function returns, of each event or, vectorised, of each batch, as it comes."""
        for done in self._run(dataset, function, keeps_results=True):
            yield from done.results

    def reduce(
        self, dataset: DataSet, function: Callable[..., Any], join: Callable[[Any, Any], Any], start: Any
    ) -> Any:
        """Join what the function returns, two at a time, beginning with `start`."""
        result = start
        for each in self.map(dataset, function):
            result = join(result, each)
        return result

    # ---- handing out ---------------------------------------------------------------------------------------------------

    def _run(
        self, dataset: DataSet, function: Callable[..., Any], *, keeps_results: bool
    ) -> Generator[_Done, None, None]:
        token = uuid4().hex
        pieces = self._pieces(dataset, function, token, keeps_results=keeps_results)
        with _known_here(token, self._datastore):
            if self._executor is not None:
                yield from self._through(self._executor, pieces, _Unfinished())
                return
            unfinished = _Unfinished()
            while True:
                # Why spawned: a fork would take open LMDB files, and other threads' locks, with it.
                with ProcessPoolExecutor(self._workers, mp_context=get_context("spawn")) as executor:
                    try:
                        yield from self._through(executor, pieces, unfinished)
                    except BrokenExecutor:
                        if not self._is_redone:
                            raise
                    else:
                        return

    def _through(
        self, executor: Executor, pieces: Iterator[_Piece], unfinished: "_Unfinished"
    ) -> Generator[_Done, None, None]:
        running: dict[Future[_Done], _Piece] = {}
        try:
            while True:
                while len(running) < self._workers * _PIECES_AHEAD:
                    piece = unfinished.pop() or next(pieces, None)
                    if piece is None:
                        break
                    unfinished.add(piece)
                    running[executor.submit(_work, piece)] = piece
                if not running:
                    return
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    done = future.result()
                    unfinished.remove(running.pop(future))
                    yield done
        finally:
            unfinished.hand_back()
            for future in running:
                future.cancel()

    def _pieces(
        self, dataset: DataSet, function: Callable[..., Any], token: str, *, keeps_results: bool
    ) -> Iterator[_Piece]:
        whole = KeyRange.of_prefix(dataset.uuid.bytes)
        databases = self._datastore.databases
        for target in range(len(databases.rings[Kind.EVENT].databases)):
            start = whole.start
            while True:
                bounds = self._bounds(target, KeyRange(start, whole.end))
                for begin, end in bounds:
                    yield _Piece(
                        token, databases.address, dataset.path, dataset.uuid, target, begin, end, self._preload,
                        self._is_vectorised, function, keeps_results,
                    )  # fmt: skip
                if len(bounds) < _PIECES_LISTED:
                    break
                start = bounds[-1][1]

    def _bounds(self, target: int, key_range: KeyRange) -> list[tuple[bytes, bytes]]:
        """Return the first bounds of pieces in a range. Its snapshot is closed before any of them is handed out."""
        bounds: list[tuple[bytes, bytes]] = []
        with self._datastore.databases.snapshot(Kind.EVENT, target) as snapshot:
            keys = snapshot.keys(key_range, limit=self._piece_events * _PIECES_LISTED)
            count, first, last = 0, b"", b""
            for key in keys:
                first = key if not count else first
                last, count = key, count + 1
                if count == self._piece_events:
                    bounds.append((first, last + b"\x00"))
                    count = 0
            if count:
                bounds.append((first, last + b"\x00"))
        return bounds


class _Unfinished:
    """The pieces that were handed out and not finished; after a loss they are handed out again."""

    def __init__(self) -> None:
        self._out: list[_Piece] = []
        self._again: list[_Piece] = []

    def pop(self) -> _Piece | None:
        return self._again.pop() if self._again else None

    def add(self, piece: _Piece) -> None:
        self._out.append(piece)

    def remove(self, piece: _Piece) -> None:
        self._out.remove(piece)

    def hand_back(self) -> None:
        self._again, self._out = self._again + self._out, []


# ---- in a worker ----------------------------------------------------------------------------------------------------------

_stores: Final[dict[tuple[int, str], DataStore]] = {}
"""The stores of this process: by the token of a run for the one that runs it, by address for its workers."""


@contextmanager
def _known_here(token: str, datastore: DataStore) -> Generator[None, None, None]:
    key = (os.getpid(), token)
    _stores[key] = datastore
    try:
        yield
    finally:
        _stores.pop(key, None)


def _store_of(piece: _Piece) -> DataStore:
    """Return the store that threads of the run's own process share, or this process's own, opened by address."""
    own = _stores.get((os.getpid(), piece.token))
    if own is not None:
        return own
    key = (os.getpid(), repr(piece.address))
    if key not in _stores:
        _stores[key] = open_at(piece.address)
    return _stores[key]


def _work(piece: _Piece) -> _Done:
    store = _store_of(piece)
    dataset = DataSet(store, piece.dataset, piece.uuid)
    with store.databases.snapshot(Kind.EVENT, piece.target) as snapshot:
        keys = list(snapshot.keys(KeyRange(piece.start, piece.end)))
    products = PreloadedProducts(store, piece.preload)
    products.preload(keys)
    results = (
        _vectorised(piece, dataset, keys, products) if piece.is_vectorised else _each(piece, dataset, keys, products)
    )
    return _Done(len(keys), f"{os.getpid()}/{current_thread().name}", results if piece.keeps_results else [])


def _each(piece: _Piece, dataset: DataSet, keys: list[bytes], products: PreloadedProducts) -> list[Any]:
    results: list[Any] = []
    for key in keys:
        event = container_of(dataset, Kind.EVENT, key)
        assert isinstance(event, Event)
        with _naming(event):
            result = piece.function(event, products) if piece.preload else piece.function(event)
        if piece.keeps_results:
            results.append(result)
    return results


def _vectorised(piece: _Piece, dataset: DataSet, keys: list[bytes], products: PreloadedProducts) -> list[Any]:
    columns: dict[tuple[str, str], list[Any]] = {}
    for label, kind in piece.preload:
        column: list[Any] = []
        for key in keys:
            raw = products.raw_product(key + product_suffix(label, kind.name))
            column.append(None if raw is None else kind.decode(raw))
        columns[label, kind.name] = column
    batch = EventBatch(dataset, key_numbers(b"".join(keys), EVENT_COLUMNS), columns)
    first = container_of(dataset, Kind.EVENT, keys[0]) if keys else None
    if not isinstance(first, Event):
        return []
    with _naming(first):
        return [piece.function(batch)]


class _naming:  # noqa: N801  # Why: it reads as a statement.
    """Let an error of the function name the event that it failed for; of a batch, its first."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            run, subrun, event = self._event.numbers
            raise ProcessingError(
                dataset=self._event.dataset.path, run=run, subrun=subrun, event=event, error=type(error).__name__
            ) from error


assert EVENT_COLUMNS.itemsize + 16 == ITEM_BYTES
