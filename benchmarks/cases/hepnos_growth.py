"""HEPnOS as the store grows to twenty million events, and events given to worker processes: what two are worth."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from multiprocessing import get_context
from time import perf_counter, thread_time
from typing import Any, Final

import numpy as np

from benchmarks.cases.hepnos import Stand, stand
from benchmarks.extent import Extent
from benchmarks.measure import Result, compared, single
from keyplan.apps import hepnos

__all__ = ["count_batch", "measure_growth", "measure_process", "pass_by", "spend_a_millisecond"]

_EVENTS_A_RECORD: Final = 20
"""Why: the sizes of the other benchmarks end at a million records, and a HEPnOS store has twenty million events."""
_FILL_KEYS: Final = 10_000
_SUBRUN_EVENTS: Final = 100
_CALLBACK_SECONDS: Final = 1e-3
_PIECE_EVENTS: Final = 4_096
_SLOW_PIECE_EVENTS: Final = 20
_ROUNDS_MAX: Final = 5
_DRAWN: Final = 4_096
"""Places that are looked up in turn; more than a processor's cache holds the pages of."""


# ---- growth ---------------------------------------------------------------------------------------------------------------


def measure_growth(extent: Extent) -> Iterator[Result]:
    """The same work in stores of 20 times the sizes of a run: events written among the others, and a subrun's events read."""
    with stand(extent, "hepnos-growth") as both:
        filled = 0
        for size in (size * _EVENTS_A_RECORD for size in extent.sizes):
            if size > filled:
                _fill(both, filled // _SUBRUN_EVENTS, size // _SUBRUN_EVENTS)
                filled = size
            yield compared(
                "hepnos-growth",
                "10,000 among the others, durable",
                against="py-lmdb + numpy",
                subject=_scatter(both, size),
                comparator=_scatter_by_hand(both, size),
                operations=extent.operations(20_000),
                rounds=min(extent.rounds, _ROUNDS_MAX),
                size=size,
            )
            yield compared(
                "hepnos-growth",
                f"read the {_SUBRUN_EVENTS} events of a subrun",
                against="py-lmdb, a transaction each",
                subject=_read_subruns(both, size),
                comparator=_read_subruns_by_hand(both, size),
                operations=extent.operations(4_000),
                rounds=min(extent.rounds, _ROUNDS_MAX),
                size=size,
            )


def _fill(both: Stand, begin: int, end: int) -> None:
    """Add subruns to run 0, with even numbers of events; what comes among them has odd ones."""
    at_once = 20 * _FILL_KEYS // _SUBRUN_EVENTS
    own = np.arange(0, 2 * _SUBRUN_EVENTS, 2)
    for first in range(begin, end, at_once):
        subrun = np.repeat(np.arange(first, min(first + at_once, end)), _SUBRUN_EVENTS)
        event = np.tile(own, len(subrun) // _SUBRUN_EVENTS)
        both.dataset.create_items(np.zeros_like(subrun), subrun, event, parents=False)
        keys = _keys(bytes(16), subrun, event)
        for at in range(0, len(keys), _FILL_KEYS):
            with both.environment.begin(write=True) as transaction:
                pairs = [(key, b"") for key in keys[at : at + _FILL_KEYS]]
                transaction.cursor().putmulti(pairs, append=True)


def _keys(dataset: bytes, subrun: Any, event: Any) -> list[bytes]:
    matrix = np.zeros((len(subrun), 5), ">u8")
    matrix[:, :2] = np.frombuffer(dataset, ">u8")
    matrix[:, 3], matrix[:, 4] = subrun, event
    keys: list[bytes] = matrix.view("V40").ravel().tolist()
    return keys


def _among(seed: int, size: int, operations: int) -> tuple[Any, Any]:
    """Return subruns and odd events, anywhere among the others."""
    random = np.random.default_rng(seed)
    subrun = random.integers(0, max(size // _SUBRUN_EVENTS, 1), operations)
    return subrun, 2 * random.integers(0, 2**40, operations) + 1


def _scatter(both: Stand, size: int) -> Callable[[int], object]:
    seeds = count(1)

    def work(operations: int) -> None:
        subrun, event = _among(next(seeds), size, operations)
        both.dataset.create_items(np.zeros_like(subrun), subrun, event, parents=False, operation_keys=_FILL_KEYS)

    return work


def _scatter_by_hand(both: Stand, size: int) -> Callable[[int], object]:
    seeds = count(1)

    def work(operations: int) -> None:
        subrun, event = _among(next(seeds), size, operations)
        order = np.lexsort((event, subrun))
        keys = _keys(bytes(16), subrun[order], event[order])
        for at in range(0, len(keys), _FILL_KEYS):
            with both.environment.begin(write=True) as transaction:
                pairs = [(key, b"") for key in keys[at : at + _FILL_KEYS]]
                transaction.cursor().putmulti(pairs, overwrite=False)

    return work


def _drawn(size: int) -> Iterator[int]:
    numbers = np.random.default_rng(9).integers(0, max(size // _SUBRUN_EVENTS, 1), _DRAWN).tolist()
    while True:
        yield from numbers


def _read_subruns(both: Stand, size: int) -> Callable[[int], object]:
    subruns = _drawn(size)
    run = hepnos.Run(both.dataset, (0,))

    def work(operations: int) -> None:
        for number in islice(subruns, operations):
            list(run.subruns.handle(number).events.numbers())

    return work


def _read_subruns_by_hand(both: Stand, size: int) -> Callable[[int], object]:
    subruns = _drawn(size)

    def work(operations: int) -> None:
        for number in islice(subruns, operations):
            prefix = bytes(24) + number.to_bytes(8, "big")
            found: list[int] = []
            with both.environment.begin() as transaction:
                cursor = transaction.cursor()
                cursor.set_range(prefix)
                for key in cursor.iternext(values=False):
                    if not key.startswith(prefix):
                        break
                    found.append(int.from_bytes(key[32:], "big"))

    return work


# ---- workers --------------------------------------------------------------------------------------------------------------


def measure_process(extent: Extent) -> Iterator[Result]:
    """Events a second by one and by two worker processes that are up already, and what two are worth when events take 1 ms."""
    events, busy = extent.operations(400_000), extent.operations(4_000)
    rounds = min(extent.rounds, _ROUNDS_MAX)
    spawn = get_context("spawn")
    with (
        stand(extent, "hepnos-process") as both,
        ProcessPoolExecutor(1, mp_context=spawn) as lone,
        ProcessPoolExecutor(2, mp_context=spawn) as pair,
    ):
        pools = {1: lone, 2: pair}
        datasets = {size: _dataset_of(both, size) for size in (events, busy)}
        for name, function, options in (
            ("handles", pass_by, {}),
            ("handles and a product", load_one, {"preload": [("n", "f8")]}),
            ("batches", count_batch, {"vectorised": True}),
        ):
            for workers, pool in pools.items():
                # Why one more: in the first the workers start, import and open.
                figures = [_rate(pool, workers, datasets[events], function, options) for _ in range(rounds + 1)]
                yield single("hepnos-process", f"{name}, {workers} at work", figures[1:], unit="1/s", size=events)
        worth = []
        for _ in range(rounds):
            one, two = (
                _rate(pool, workers, datasets[busy], spend_a_millisecond, {}) for workers, pool in pools.items()
            )
            worth.append(100 * two / (2 * one))
        yield single("hepnos-process", "efficiency of 2 workers, 1 ms an event", worth, unit="%", size=busy)


def _dataset_of(both: Stand, events: int) -> hepnos.DataSet:
    """Return a data set of so many events, each with a product of eight bytes."""
    store = both.dataset.datastore
    assert isinstance(store, hepnos.DataStore)
    dataset = store.root.ensure(f"process-{events}")
    numbers = np.arange(events)
    columns = [numbers // 100_000, numbers // 1_000, numbers]
    dataset.create_items(*columns)
    hepnos.store_products(dataset, "n", "f8", columns, [bytes(8)] * events)
    return dataset


def _rate(
    pool: ProcessPoolExecutor,
    workers: int,
    dataset: hepnos.DataSet,
    function: Callable[..., object],
    options: dict[str, Any],
) -> float:
    piece = _SLOW_PIECE_EVENTS if function is spend_a_millisecond else _PIECE_EVENTS
    processor = hepnos.ParallelProcessor(
        dataset.datastore, executor=pool, workers=workers, piece_events=piece, **options
    )
    begun = perf_counter()
    done = processor.process(dataset, function)
    return done.events / (perf_counter() - begun)


def pass_by(event: hepnos.Event) -> None:
    """Do nothing with an event."""


def load_one(event: hepnos.Event, products: hepnos.PreloadedProducts) -> None:
    """Load the event's product."""
    event.load("n", "f8", source=products)


def count_batch(batch: hepnos.EventBatch) -> int:
    """Do nothing with a batch."""
    return len(batch)


def spend_a_millisecond(event: hepnos.Event) -> None:
    """Compute with an event for a millisecond of this thread's own time, so that a busy machine makes it no shorter."""
    del event
    end = thread_time() + _CALLBACK_SECONDS
    while thread_time() < end:
        pass
