"""Events in parallel: every event once, whatever runs the workers: cases 43 to 45 of the specification."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from time import sleep

import numpy as np
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos import parallel, pieces
from keyplan.apps.hepnos.databases import Address
from keyplan.errors import InvalidInputError, UnsupportedByEngineError
from tests.apps.hepnos import work

Opened = Callable[..., hepnos.DataStore]


def filled(store: hepnos.DataStore, events: int) -> hepnos.DataSet:
    dataset = store.root.ensure("d")
    numbers = np.arange(events)
    dataset.create_items(numbers // 1_000, numbers // 100 % 10, numbers)
    return dataset


def expected(events: int) -> list[tuple[int, int, int]]:
    return [(number // 1_000, number // 100 % 10, number) for number in range(events)]


@pytest.mark.parametrize("databases", [1, 3, 4, 7])
def test_threads_are_given_every_event_exactly_once(open_store: Opened, databases: int) -> None:
    dataset = filled(open_store(events=databases), 10_240)
    with ThreadPoolExecutor(4) as executor:
        processor = hepnos.ParallelProcessor(dataset.datastore, executor=executor, workers=4, piece_events=300)
        assert sorted(processor.map(dataset, work.numbers_of)) == expected(10_240)
        done = processor.process(dataset, work.numbers_of)
    assert done.events == sum(done.by_worker.values()) == 10_240
    assert done.pieces >= 10_240 // 300


def test_preloaded_products_belong_to_their_events(open_store: Opened) -> None:
    dataset = filled(open_store(events=2, products=3), 2_000)
    numbers = np.arange(2_000)
    columns = [numbers // 1_000, numbers // 100 % 10, numbers]
    kind = hepnos.product_type("int64")
    hepnos.store_products(dataset, "a", kind, columns, [kind.encode(number * 3) for number in range(2_000)])
    text = hepnos.product_type(str)
    odd = [column[1::2] for column in columns]
    hepnos.store_products(dataset, "odd", text, odd, [text.encode(str(number)) for number in range(1, 2_000, 2)])
    with ThreadPoolExecutor(3) as executor:
        preload = [("a", "int64"), ("odd", str)]
        processor = hepnos.ParallelProcessor(dataset.datastore, executor=executor, preload=preload, piece_events=64)
        found = sorted(processor.map(dataset, work.preloaded))
        assert found == [(number, number * 3, str(number) if number % 2 else None) for number in range(2_000)]
        vectorised = hepnos.ParallelProcessor(
            dataset.datastore, executor=executor, preload=[("a", "int64")], vectorised=True
        )
        total = vectorised.reduce(dataset, work.rows_of, lambda a, b: (a[0] + b[0], a[1] + b[1]), (0, 0))
    assert total == (2_000, 3 * sum(range(2_000)))


def test_a_function_that_fails_ends_the_run_with_the_event(open_store: Opened) -> None:
    dataset = filled(open_store(), 500)
    with ThreadPoolExecutor(2) as executor:
        processor = hepnos.ParallelProcessor(dataset.datastore, executor=executor, piece_events=10)
        with pytest.raises(hepnos.ProcessingError) as caught:
            processor.process(dataset, work.fail_at_seven)
    facts = caught.value.facts
    assert (facts["dataset"], facts["run"], facts["subrun"], facts["event"]) == ("d", 0, 0, 7)
    assert facts["error"] == "ArithmeticError"
    assert isinstance(caught.value.__cause__, ArithmeticError)


def test_an_empty_data_set_is_processed_at_once(dataset: hepnos.DataSet) -> None:
    with ThreadPoolExecutor(1) as executor:
        processor = hepnos.ParallelProcessor(dataset.datastore, executor=executor)
        assert processor.process(dataset, work.numbers_of) == (0, 0, {})


def test_what_cannot_be_run_is_refused_before(dataset: hepnos.DataSet) -> None:
    with pytest.raises(UnsupportedByEngineError):
        hepnos.ParallelProcessor(dataset.datastore)  # a memory is not shared with other processes
    with ThreadPoolExecutor(1) as executor, pytest.raises(InvalidInputError):
        hepnos.ParallelProcessor(dataset.datastore, executor=executor, on_worker_loss="redo")


@pytest.mark.slow
def test_processes_share_the_work_of_one_large_subrun(open_store: Opened) -> None:
    store = open_store(events=3)
    dataset = store.root.ensure("d")
    numbers = np.arange(4_000)
    dataset.create_items(np.zeros(4_000, int), np.where(numbers < 3_600, 0, 1 + numbers % 4), numbers)
    processor = hepnos.ParallelProcessor(store, workers=2, piece_events=50)
    by_worker = Counter(processor.map(dataset, work.slowly))
    assert sum(by_worker.values()) == 4_000
    assert len(by_worker) == 2


@pytest.mark.slow
def test_an_error_in_another_process_names_the_event(open_store: Opened) -> None:
    dataset = filled(open_store(), 100)
    with pytest.raises(hepnos.ProcessingError) as caught:
        hepnos.ParallelProcessor(dataset.datastore, piece_events=10).process(dataset, work.fail_at_seven)
    assert caught.value.facts["event"] == 7


@pytest.mark.slow
@pytest.mark.parametrize("on_worker_loss", ["raise", "redo"])
def test_a_worker_that_dies(
    open_store: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_worker_loss: str
) -> None:
    monkeypatch.setenv("HEPNOS_TEST_MARKER", str(tmp_path / "died"))
    dataset = filled(open_store(events=2), 400)
    processor = hepnos.ParallelProcessor(dataset.datastore, piece_events=20, on_worker_loss=on_worker_loss)
    if on_worker_loss == "raise":
        with pytest.raises(BrokenProcessPool):
            processor.process(dataset, work.die_once)
        return
    assert set(processor.map(dataset, work.die_once)) == set(range(400))


@pytest.mark.slow
def test_an_executor_of_processes_runs_the_workers(open_store: Opened) -> None:
    dataset = filled(open_store(events=2), 1_000)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        processor = hepnos.ParallelProcessor(dataset.datastore, executor=executor, piece_events=100)
        assert sorted(processor.map(dataset, work.numbers_of)) == expected(1_000)


@pytest.mark.slow
def test_the_workers_of_a_dask_client_are_given_every_event_once(open_store: Opened) -> None:
    distributed = pytest.importorskip("distributed", reason="needs Dask: install distributed")
    dataset = filled(open_store(events=2), 1_000)
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        processor = hepnos.ParallelProcessor(dataset.datastore, client=client, piece_events=100)
        assert sorted(processor.map(dataset, work.numbers_of)) == expected(1_000)
        done = processor.process(dataset, work.number_of)
        with pytest.raises(hepnos.ProcessingError) as caught:
            processor.process(dataset, work.fail_at_seven)
    assert (done.events, len(done.by_worker)) == (1_000, 2)
    assert caught.value.facts["event"] == 7


def test_a_function_that_no_process_can_be_given_is_told_before_one_is_started(open_store: Opened) -> None:
    store = open_store()
    dataset = store.root.ensure("d")
    dataset.create_items([1], [1], [1])
    with pytest.raises(InvalidInputError, match="cannot be handed to another process"):
        hepnos.ParallelProcessor(store).process(dataset, lambda _event: None)


def test_a_damaged_product_of_a_batch_is_named_with_its_event(open_store: Opened) -> None:
    store = open_store()
    dataset = filled(store, 3)
    for event in dataset.events():
        event.store("a", event.number, type="int64")
    store.write(hepnos.Kind.PRODUCT, event.product_id("a", "int64").raw, b"short", "overwrite")
    with ThreadPoolExecutor(1) as executor, pytest.raises(hepnos.ProcessingError) as caught:
        hepnos.ParallelProcessor(store, executor=executor, preload=[("a", "int64")], vectorised=True).process(
            dataset, work.rows_of
        )
    assert (caught.value.facts["event"], caught.value.facts["error"]) == (2, "CorruptionError")
    assert "a#int64" in str(caught.value.__cause__)


def test_a_worker_has_a_store_for_each_caller_and_opens_it_once(
    open_store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tokens at one address are two callers."""
    store = open_store()
    dataset = filled(store, 1)
    opened: list[Address] = []

    def open_slowly(address: Address) -> hepnos.DataStore:
        opened.append(address)
        sleep(0.05)  # Why: so that the other threads come meanwhile.
        return store

    monkeypatch.setattr(pieces, "open_at", open_slowly)
    monkeypatch.setattr(pieces, "_stores", {})

    def done(token: str) -> pieces.Done:
        address = replace(store.address, token=token)
        job = pieces.Job(
            token, address, dataset.path, dataset.uuid, (), is_vectorised=False, function=repr, keeps_results=False
        )
        return pieces.work(job, next(pieces.pieces_of(dataset, 10)))

    with ThreadPoolExecutor(4) as executor:
        assert [each.events for each in executor.map(done, ["one", "two"] * 4)] == [1] * 8
    assert sorted(str(address.token) for address in opened) == ["one", "two"]


@pytest.mark.slow
def test_an_event_that_ends_each_worker_ends_the_run_and_the_others_are_done(
    open_store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_LOSSES_MAX", 2)
    dataset = filled(open_store(), 3)
    processor = hepnos.ParallelProcessor(dataset.datastore, workers=1, piece_events=1, on_worker_loss="redo")
    seen: list[int] = []
    with pytest.raises(BrokenProcessPool):
        seen.extend(processor.map(dataset, work.die_at_one))
    assert set(seen) <= {0, 2}


def test_pieces_that_are_listed_in_several_reads_have_each_event_once(dataset: hepnos.DataSet) -> None:
    dataset.create_items([1] * 200, [1] * 200, range(200))
    starts = [piece.start for piece in pieces.pieces_of(dataset, 1)]
    assert len(starts) == len(set(starts)) == 200
