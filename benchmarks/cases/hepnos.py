"""HEPnOS: events and products in bulk and one by one, against py-lmdb with numpy by hand on the same bytes."""

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import lmdb
import numpy as np

from benchmarks.extent import Extent
from benchmarks.measure import Result, compared
from keyplan.apps import hepnos

__all__ = ["Stand", "measure_products", "measure_read", "measure_write", "stand"]

_MAP_BYTES: Final = 1 << 36
_VALUE: Final = bytes(1_024)
_ITEM: Final = 40


class Stand(NamedTuple):
    """A HEPnOS store and an LMDB file beside it; `runs` gives each round a run of its own."""

    dataset: hepnos.DataSet
    environment: lmdb.Environment
    runs: Iterator[int]


@contextmanager
def stand(extent: Extent, name: str) -> Generator[Stand, None, None]:
    """Make a store and a file, both empty and durable, and remove them."""
    folder = Path(extent.stands.folder) / name
    try:
        with (
            hepnos.open(f"lmdb:{folder}/hepnos") as store,
            lmdb.open(str(folder / "by-hand"), map_size=_MAP_BYTES, lib_version=0) as environment,
        ):
            yield Stand(store.root.ensure("nova"), environment, count(1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure_write(extent: Extent) -> Iterator[Result]:
    """Durable creation of events: from columns, 1,024 and 10,000 keys a commit; one by one in a batch, and alone."""
    for keys in (1_024, 10_000):
        with stand(extent, f"hepnos-write-{keys}") as both:
            yield compared(
                "hepnos-events",
                f"durable, {keys:,} a commit",
                against="py-lmdb + numpy",
                subject=_create(both, keys),
                comparator=_create_by_hand(both, keys),
                operations=extent.operations(400_000),
                rounds=extent.rounds,
                aim=0.83 if keys == 10_000 else 0.94,
            )
    with stand(extent, "hepnos-batch") as both:
        yield compared(
            "hepnos-events",
            "handles in a batch of 4,096",
            against="py-lmdb, struct, sorted by hand",
            subject=_create_one_by_one(both),
            comparator=_create_one_by_one_by_hand(both),
            operations=extent.operations(40_000),
            rounds=extent.rounds,
        )
        yield compared(
            "hepnos-events",
            "one by one, durable",
            against="py-lmdb, a transaction each",
            subject=_create_alone(both),
            comparator=_create_alone_by_hand(both),
            operations=extent.operations(400),
            rounds=extent.rounds,
            aim=0.9,
        )


def measure_read(extent: Extent) -> Iterator[Result]:
    """All events as columns, and one by one as handles."""
    events = extent.operations(1_000_000)
    with stand(extent, "hepnos-read") as both:
        _create(both, 10_000)(events)
        _create_by_hand(both, 10_000)(events)
        found = both.dataset.events()
        yield compared(
            "hepnos-read",
            "events to numpy",
            against="py-lmdb + numpy",
            subject=lambda _: found.to_numpy(),
            comparator=lambda _: _columns_by_hand(both.environment),
            operations=events,
            rounds=extent.rounds,
        )
        yield compared(
            "hepnos-read",
            "events as handles",
            against="py-lmdb, tuples",
            subject=lambda _: sum(1 for _ in found),
            comparator=lambda _: _tuples_by_hand(both.environment),
            operations=events,
            rounds=extent.rounds,
        )


def measure_products(extent: Extent) -> Iterator[Result]:
    """Products of 1 KiB: stored in bulk, loaded in bulk, loaded one by one."""
    products = extent.operations(20_000)
    with stand(extent, "hepnos-products") as both:
        yield compared(
            "hepnos-products",
            "1 KiB, stored in bulk, durable",
            against="py-lmdb + numpy",
            subject=_store(both),
            comparator=_store_by_hand(both),
            operations=products,
            rounds=extent.rounds,
        )
    with stand(extent, "hepnos-load") as both:
        _store(both)(products)
        _store_by_hand(both)(products)
        yield compared(
            "hepnos-products",
            "1 KiB, loaded in bulk",
            against="py-lmdb, all pairs",
            subject=lambda _: sum(len(value) for _, value in hepnos.load_products(both.dataset, "p", bytes)),
            comparator=lambda _: _sum_by_hand(both.environment),
            operations=products,
            rounds=extent.rounds,
        )
        run = next(both.runs) - 2
        numbers = np.random.default_rng(1).permutation(products).tolist()
        events = [hepnos.Event(both.dataset, (run, 0, number)) for number in numbers]
        keys = [_rows(run + 1, products)[number].tobytes() + b"p#bytes" for number in numbers]
        yield compared(
            "hepnos-products",
            "1 KiB, loaded one by one",
            against="py-lmdb, a transaction each",
            subject=lambda _: [event.load("p", bytes) for event in events],
            comparator=lambda _: _loaded_by_hand(both.environment, keys),
            operations=products,
            rounds=extent.rounds,
        )


# ---- keyplan ------------------------------------------------------------------------------------------------------------


def _create(stand: Stand, keys: int) -> Callable[[int], object]:
    def work(operations: int) -> None:
        numbers = np.arange(operations, dtype=np.uint64)
        hepnos.create_events(stand.dataset, next(stand.runs), 0, numbers, operation_keys=keys)

    return work


def _create_one_by_one(stand: Stand) -> Callable[[int], object]:
    def work(operations: int) -> None:
        subrun = hepnos.SubRun(stand.dataset, (next(stand.runs), 0))
        with stand.dataset.datastore.batch() as batch:
            for number in range(operations):
                subrun.create_event(number, into=batch)

    return work


def _create_alone(stand: Stand) -> Callable[[int], object]:
    def work(operations: int) -> None:
        subrun = hepnos.SubRun(stand.dataset, (next(stand.runs), 0))
        for number in range(operations):
            subrun.create_event(number)

    return work


def _store(stand: Stand) -> Callable[[int], object]:
    def work(operations: int) -> None:
        numbers = np.arange(operations)
        columns = [np.full(operations, next(stand.runs)), np.zeros(operations, int), numbers]
        hepnos.store_products(stand.dataset, "p", bytes, columns, [_VALUE] * operations, operation_keys=1_024)

    return work


# ---- by hand ------------------------------------------------------------------------------------------------------------


def _rows(run: int, events: int) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    matrix = np.zeros((events, 5), ">u8")
    matrix[:, 2] = run
    matrix[:, 4] = np.arange(events)
    rows: np.ndarray[tuple[int], np.dtype[np.void]] = matrix.view(f"V{_ITEM}").ravel()
    return rows


def _create_by_hand(stand: Stand, keys: int) -> Callable[[int], object]:
    def work(operations: int) -> None:
        rows = _rows(next(stand.runs), operations)
        for begin in range(0, operations, keys):
            with stand.environment.begin(write=True) as transaction:
                pairs = [(key, b"") for key in rows[begin : begin + keys].tolist()]
                transaction.cursor().putmulti(pairs, append=True)

    return work


def _create_one_by_one_by_hand(stand: Stand) -> Callable[[int], object]:
    def work(operations: int) -> None:
        prefix = bytes(16) + next(stand.runs).to_bytes(8, "big") + bytes(8)
        waiting: dict[bytes, bytes] = {}
        for number in range(operations):
            waiting[prefix + number.to_bytes(8, "big")] = b""
            if len(waiting) == 4_096:
                _flush(stand.environment, waiting)
        _flush(stand.environment, waiting)

    return work


def _create_alone_by_hand(stand: Stand) -> Callable[[int], object]:
    def work(operations: int) -> None:
        prefix = bytes(16) + next(stand.runs).to_bytes(8, "big") + bytes(8)
        for number in range(operations):
            with stand.environment.begin(write=True) as transaction:
                transaction.put(prefix + number.to_bytes(8, "big"), b"", overwrite=False)

    return work


def _flush(environment: lmdb.Environment, waiting: dict[bytes, bytes]) -> None:
    with environment.begin(write=True) as transaction:
        transaction.cursor().putmulti(sorted(waiting.items()))
    waiting.clear()


def _columns_by_hand(environment: lmdb.Environment) -> object:
    with environment.begin() as transaction:
        raw = b"".join(transaction.cursor().iternext(values=False))
    return np.frombuffer(raw, ">u8").reshape(-1, 5)[:, 2:].astype("u8")


def _tuples_by_hand(environment: lmdb.Environment) -> int:
    total = 0
    with environment.begin() as transaction:
        for key in transaction.cursor().iternext(values=False):
            numbers = (
                int.from_bytes(key[16:24], "big"),
                int.from_bytes(key[24:32], "big"),
                int.from_bytes(key[32:], "big"),
            )
            total += len(numbers)
    return total


def _store_by_hand(stand: Stand) -> Callable[[int], object]:
    def work(operations: int) -> None:
        rows = _rows(next(stand.runs), operations)
        for begin in range(0, operations, 1_024):
            with stand.environment.begin(write=True) as transaction:
                pairs = [(key + b"p#bytes", _VALUE) for key in rows[begin : begin + 1_024].tolist()]
                transaction.cursor().putmulti(pairs)

    return work


def _sum_by_hand(environment: lmdb.Environment) -> int:
    with environment.begin() as transaction:
        return sum(len(value) for _, value in transaction.cursor())


def _loaded_by_hand(environment: lmdb.Environment, keys: list[bytes]) -> list[bytes | None]:
    loaded: list[bytes | None] = []
    for key in keys:
        with environment.begin() as transaction:
            loaded.append(transaction.get(key))
    return loaded
