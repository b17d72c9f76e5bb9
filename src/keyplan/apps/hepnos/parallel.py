"""Events in parallel: pieces of the event databases are handed to workers as they become free.

Workers are those of any `concurrent.futures.Executor`: threads, processes, mpi4py's, Dask's; or the ranks of an MPI job. A
worker in another process opens the store again, by its address, once.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import closing
from functools import partial, reduce
from itertools import chain, islice
from multiprocessing import get_context
from typing import Any, Final, NamedTuple
from uuid import uuid4

from keyplan.apps.hepnos.datasets import DataSet
from keyplan.apps.hepnos.open_store import OpenStore
from keyplan.apps.hepnos.pieces import Done, Job, Piece, known_here, pieces_of, work
from keyplan.apps.hepnos.ranks import Communicator, agree, through_ranks
from keyplan.apps.hepnos.types import product_type
from keyplan.errors import InvalidInputError, UnsupportedByEngineError

__all__ = ["ParallelProcessor", "Processed"]

_PIECES_AHEAD: Final = 2
"""Pieces that wait for each worker. Why: one to work on and one to begin at once; more would make the end uneven."""


_LOSSES_MAX: Final = 3
"""Why: an event whose work ends its process would end one after the other, without end."""


class Processed(NamedTuple):
    """What a run has done: events and pieces, and how many events each worker had, by its process (and thread) or rank."""

    events: int
    pieces: int
    by_worker: dict[str, int]


class ParallelProcessor:
    """Hands every event of a data set to exactly one worker. There is no order.

    Who works: `workers` processes, which are started anew and import the function's module; or the workers of an `executor`
    or of a Dask `client`, of which `workers` says how many there are; or the ranks of `comm`, an mpi4py communicator. With
    `comm` every rank opens the store, makes a processor and calls the same method on the same data set, all of them together;
    `map` then yields what the rank's own events gave, and `process` and `reduce` return the same on all ranks.

    A piece has at most `piece_events` events; `preload` names products, (label, type), that are read with a piece and given
    to the function as its second argument, a source for `load`. `vectorised`: the function is given an EventBatch instead.

    When a worker dies, `on_worker_loss="raise"` ends the run with the executor's error; "redo" hands the pieces that were not
    finished out again behind the others, so that their events may be seen twice, where the executor is the processor's own.
    It ends so, too, when workers have died three times and nothing was finished in between.
    """

    def __init__(
        self,
        datastore: OpenStore,
        *,
        executor: Executor | None = None,
        client: Any = None,
        comm: Communicator | None = None,
        workers: int = 2,
        piece_events: int = 1_024,
        preload: Sequence[tuple[str, Any]] = (),
        vectorised: bool = False,
        on_worker_loss: str = "raise",
    ) -> None:
        if workers < 1 or piece_events < 1 or on_worker_loss not in {"raise", "redo"}:
            problem = "at least one worker, one event a piece; on_worker_loss is raise or redo"
            raise InvalidInputError(source="parallel", problem=problem)
        givers = [each for each in (executor, client, comm) if each is not None]
        if len(givers) > 1:
            raise InvalidInputError(source="parallel", problem="one of executor, client and comm runs the workers")
        if givers and on_worker_loss == "redo":
            raise InvalidInputError(source="parallel", problem="workers that were given cannot be started again")
        is_alone = executor is not None or (comm is not None and comm.Get_size() == 1)
        if not is_alone and not datastore.databases.is_shared:
            raise UnsupportedByEngineError(engine="hepnos", capability="sharing the store with other processes")
        self._datastore = datastore
        self._executor = executor if client is None else client.get_executor()
        self._comm = comm
        self._workers = workers
        self._piece_events = piece_events
        self._preload = tuple((label, product_type(kind)) for label, kind in preload)
        self._is_vectorised = vectorised
        self._is_redone = on_worker_loss == "redo"

    def process(self, dataset: DataSet, function: Callable[..., object]) -> Processed:
        """Call `function(event)`, or `function(event, products)` with preload, for every event; return what was done.

        Raises ProcessingError, which names the event, when the function fails for one: workers finish their pieces and stop;
        InvalidInputError for a function that processes cannot be given, as a lambda.
        """
        events, pieces = 0, 0
        by_worker: dict[str, int] = {}
        for done in self._run(dataset, function, keeps_results=False):
            events, pieces = events + done.events, pieces + 1
            by_worker[done.worker] = by_worker.get(done.worker, 0) + done.events
        own = Processed(events, pieces, by_worker)
        return own if self._comm is None else _of_all(self._comm.allgather(own))

    def map(self, dataset: DataSet, function: Callable[..., Any]) -> Generator[Any, None, None]:
        """Yield what the function returns, of each event or, vectorised, of each batch, as it comes. Closed, workers stop."""
        for done in self._run(dataset, function, keeps_results=True):
            yield from done.results

    def reduce(
        self, dataset: DataSet, function: Callable[..., Any], join: Callable[[Any, Any], Any], start: Any
    ) -> Any:
        """Join what the function returns, two at a time, beginning with `start`; with `comm`, then what the ranks joined."""
        # Why closed: an error of `join` holds this frame, and so what it iterates, and other ranks wait for its end.
        with closing(self.map(dataset, function)) as found:
            if self._comm is None:
                return reduce(join, found, start)
            own = [reduce(join, found, first) for first in islice(found, 1)]
        return reduce(join, chain.from_iterable(self._comm.allgather(own)), start)

    # ---- handing out ---------------------------------------------------------------------------------------------------

    def _run(
        self, dataset: DataSet, function: Callable[..., Any], *, keeps_results: bool
    ) -> Generator[Done, None, None]:
        job = Job(
            uuid4().hex, self._datastore.address, dataset.path, dataset.uuid, self._preload, self._is_vectorised,
            function, keeps_results,
        )  # fmt: skip
        with known_here(job.token, self._datastore):
            if self._comm is not None:
                preload = [(label, kind.name) for label, kind in self._preload]
                agree(self._comm, (dataset.path, str(dataset.uuid), preload, self._is_vectorised, keeps_results))
                pieces = partial(pieces_of, dataset, self._piece_events)
                yield from through_ranks(self._comm, pieces, partial(work, job))
            elif self._executor is not None:
                yield from self._through(self._executor, job, pieces_of(dataset, self._piece_events), _Unfinished())
            else:
                yield from self._through_processes(job, pieces_of(dataset, self._piece_events))

    def _through_processes(self, job: Job, pieces: Iterator[Piece]) -> Generator[Done, None, None]:
        _check_function(job.function)
        unfinished, losses = _Unfinished(), 0
        while True:
            # Why spawned: a fork would take open LMDB files, and other threads' locks, with it.
            with (
                ProcessPoolExecutor(self._workers, mp_context=get_context("spawn")) as executor,
                closing(self._through(executor, job, pieces, unfinished)) as finished,
            ):
                try:
                    for done in finished:
                        losses = 0
                        yield done
                except BrokenExecutor:
                    losses += 1
                    if not self._is_redone or losses == _LOSSES_MAX:
                        raise
                else:
                    return

    def _through(
        self, executor: Executor, job: Job, pieces: Iterator[Piece], unfinished: "_Unfinished"
    ) -> Generator[Done, None, None]:
        running: dict[Future[Done], Piece] = {}
        try:
            while True:
                while len(running) < self._workers * _PIECES_AHEAD:
                    # Why the others first: one of these may be what ends a worker.
                    piece = next(pieces, None) or unfinished.pop()
                    if piece is None:
                        break
                    unfinished.add(piece)
                    running[executor.submit(work, job, piece)] = piece
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


def _check_function(function: Callable[..., Any]) -> None:
    """Raise InvalidInputError for a function that no other process finds by its name. Why before: none is started for it."""
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    name = getattr(inner, "__qualname__", "")
    if "<" in name:  # Python's own words: <lambda>, <locals>.
        problem = f"{name} cannot be handed to another process: give a function of a module, or an executor of threads"
        raise InvalidInputError(source="function", problem=problem)


def _of_all(ranks: Sequence[Processed]) -> Processed:
    by_worker = {worker: events for rank in ranks for worker, events in rank.by_worker.items()}
    return Processed(sum(rank.events for rank in ranks), sum(rank.pieces for rank in ranks), by_worker)


class _Unfinished:
    """The pieces that were handed out and not finished; after a loss they are handed out again."""

    def __init__(self) -> None:
        self._out: list[Piece] = []
        self._again: list[Piece] = []

    def pop(self) -> Piece | None:
        return self._again.pop() if self._again else None

    def add(self, piece: Piece) -> None:
        self._out.append(piece)

    def remove(self, piece: Piece) -> None:
        self._out.remove(piece)

    def hand_back(self) -> None:
        self._again, self._out = self._again + self._out, []
