"""Columns, batches, the asynchronous engine and prefetch: cases 33 to 42 of the specification."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import awkward as ak
import numpy as np
import pyarrow as pa
import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.bulk import EventProducts, load_products, store_event_products
from keyplan.apps.hepnos.columns import key_matrix, key_numbers, places, raw_keys
from keyplan.apps.hepnos.keys import child_prefix, event_numbers, number_key
from keyplan.engine import Engine, Guard, WrappedEngine
from keyplan.errors import CorruptionError, EngineError, InvalidInputError, SplitCommitError
from keyplan.ring import fnv1a_64, place

UUID_HEX = "00112233445566778899aabbccddeeff"


def events_of(dataset: hepnos.DataSet) -> set[tuple[int, ...]]:
    return {event.numbers for event in dataset.events()}


# ---- columns --------------------------------------------------------------------------------------------------------------


def test_columns_make_the_layouts_keys() -> None:
    columns = [np.array(column, "u8") for column in ((1, 300), (2, 2**64 - 2), (5, 0))]
    dataset = UUID(UUID_HEX)
    one, two, five, last, many = "0" * 15 + "1", "0" * 15 + "2", "0" * 15 + "5", "f" * 15 + "e", "0" * 13 + "12c"
    assert [key.hex() for key in raw_keys(key_matrix(dataset, columns))] == [
        UUID_HEX + one + two + five,
        UUID_HEX + many + last + "0" * 16,
    ]
    assert [key.hex() for key in raw_keys(key_matrix(dataset, columns[:1]))] == [UUID_HEX + one, UUID_HEX + many]
    raw = b"".join(raw_keys(key_matrix(dataset, columns)))
    assert key_numbers(raw, hepnos.EVENT_COLUMNS).tolist() == [(1, 2, 5), (300, 2**64 - 2, 0)]
    assert list(event_numbers(raw_keys(key_matrix(dataset, columns)))) == [(1, 2, 5), (300, 2**64 - 2, 0)]


def test_what_the_children_of_a_parent_begin_with_is_the_layouts_key_without_the_number() -> None:
    dataset = UUID(UUID_HEX)
    assert child_prefix(dataset, ()).hex() == UUID_HEX
    assert child_prefix(dataset, (300,)).hex() == UUID_HEX + "000000000000012c"
    assert child_prefix(dataset, (300, 2**64 - 2)).hex() == UUID_HEX + "000000000000012c" + "fffffffffffffffe"
    for parents in ((), (300,), (300, 2**64 - 2)):
        assert number_key(dataset, (*parents, 7)) == child_prefix(dataset, parents) + (7).to_bytes(8, "big")


def test_placement_of_columns_is_that_of_the_ring() -> None:
    rows = np.random.default_rng(1).integers(0, 2**63, (200, 4), dtype=np.uint64).astype(">u8")
    for databases in (1, 2, 3, 4, 8, 16):
        expected = [place(fnv1a_64(row.tobytes()), databases) for row in rows]
        assert places(rows, databases).tolist() == expected


def test_many_shuffled_and_repeated_events_are_the_set_of_them(dataset: hepnos.DataSet) -> None:
    random = np.random.default_rng(7)
    run, subrun, event = (random.integers(0, most, 30_000, dtype=np.uint64) for most in (6, 8, 1_000))
    expected = set(zip(run.tolist(), subrun.tolist(), event.tolist(), strict=True))
    made = dataset.create_items(run, subrun, event, operation_keys=700)
    assert made == (6, 48, len(expected))
    assert events_of(dataset) == expected
    assert [each.number for each in dataset.runs] == list(range(6))
    assert dataset.create_items(run, subrun, event) == (0, 0, 0)
    assert dataset.create_items([7], [1]) == (1, 1, 0)
    assert dataset.create_items([8, 9], parents=False) == (2, 0, 0)


@pytest.mark.slow
def test_a_million_shuffled_events_with_repeats(open_store: Callable[..., hepnos.DataStore]) -> None:
    dataset = open_store(events=2).root.ensure("d")
    random = np.random.default_rng(3)
    numbers = random.permutation(np.concatenate([np.arange(950_000), random.integers(0, 950_000, 50_000)]))
    made = dataset.create_items(numbers // 100_000, numbers // 1_000 % 100, numbers % 1_000)
    assert made == (10, 950, 950_000)
    found = dataset.events().to_numpy()
    whole = found["run"] * 100_000 + found["subrun"] * 1_000 + found["event"]
    assert np.array_equal(np.sort(whole), np.arange(950_000))


@pytest.mark.parametrize(
    "bad", [[1.5], [-1], [2**64 - 1], ["a"], [[1]], [True]], ids=["real", "negative", "invalid", "text", "two", "bool"]
)
def test_a_column_of_what_is_no_number_is_refused_whole(dataset: hepnos.DataSet, bad: list[object]) -> None:
    with pytest.raises(hepnos.InvalidNumberError):
        dataset.create_items(np.array([0]), np.array([0]), np.array(bad))
    assert list(dataset.runs) == []


def test_columns_of_different_lengths_are_refused(dataset: hepnos.DataSet) -> None:
    for columns in (([1, 2], [1]), ([1], None, [1])):
        with pytest.raises(InvalidInputError):
            dataset.create_items(*columns)
    assert dataset.create_items([], [], []) == (0, 0, 0)


# ---- tables ---------------------------------------------------------------------------------------------------------------


def test_rows_of_an_event_are_one_product_wherever_they_stand(dataset: hepnos.DataSet) -> None:
    table = {"x": np.array([1.0, 2.0, 3.0, 4.0, 5.0]), "n": np.array([10, 20, 30, 40, 50], ">u4")}
    stored = dataset.store_table(
        "hits", table, run=[1, 1, 1, 2, 1], subrun=[1, 1, 1, 1, 1], event=[7, 8, 7, 7, 8], create=True
    )
    assert stored == 3
    assert events_of(dataset) == {(1, 1, 7), (1, 1, 8), (2, 1, 7)}
    kind = hepnos.vector([("x", "f8"), ("n", "u4")])
    subrun = dataset.runs[1].subruns[1]
    assert subrun.events[7].load("hits", kind).tolist() == [(1.0, 10), (3.0, 30)]
    assert subrun.events[8].load("hits", kind).tolist() == [(2.0, 20), (5.0, 50)]
    events, offsets, rows = dataset.load_table("hits", kind)
    found = {tuple(events[at].tolist()): rows["n"][offsets[at] : offsets[at + 1]].tolist() for at in range(len(events))}
    assert found == {(1, 1, 7): [10, 30], (1, 1, 8): [20, 50], (2, 1, 7): [40]}
    chosen = np.array([(2, 1, 7), (9, 9, 9)], hepnos.EVENT_COLUMNS)
    events, offsets, rows = dataset.load_table("hits", kind, events=chosen)
    assert (events.tolist(), offsets.tolist(), rows["x"].tolist()) == ([(2, 1, 7)], [0, 1], [4.0])


@pytest.mark.leaves("no-container")
def test_one_column_is_a_table_too(dataset: hepnos.DataSet) -> None:
    dataset.store_table("e", np.arange(4, dtype="f4"), run=[1] * 4, subrun=[1] * 4, event=[2, 2, 1, 1])
    event = dataset.runs.handle(1).subruns.handle(1).events.handle(2)
    assert event.load("e", hepnos.vector("f4")).tolist() == [0.0, 1.0]
    assert len(dataset.load_table("none", hepnos.vector("f4")).events) == 0


@pytest.mark.leaves("no-container")
def test_tables_that_do_not_fit_are_refused(dataset: hepnos.DataSet) -> None:
    with pytest.raises(InvalidInputError):
        dataset.store_table("t", np.ones(3), run=[1], subrun=[1], event=[1])
    with pytest.raises(InvalidInputError):
        dataset.store_table("t", {"a": [1], "b": [1, 2]}, run=[1], subrun=[1], event=[1])
    hepnos.store_products(dataset, "t", hepnos.vector("f8"), [[1], [1], [1]], [b"\x09" + b"\x00" * 7])
    with pytest.raises(CorruptionError):
        dataset.load_table("t", hepnos.vector("f8"))
    with pytest.raises(InvalidInputError):
        hepnos.store_products(dataset, "t", bytes, [[1, 1], [1, 1], [1, 1]], [b"a", b"b"])
    with pytest.raises(InvalidInputError, match="an event stands in two tables of one label and type"):
        store_event_products(dataset, [EventProducts("u", bytes, [[1], [1], [1]], [value]) for value in (b"a", b"b")])
    assert not list(load_products(dataset, "u", bytes))


@pytest.mark.leaves("no-container")
def test_products_given_as_bytes_in_any_order(dataset: hepnos.DataSet) -> None:
    values = [b"%d" % number for number in range(50)]
    order = list(range(50))[::-1]
    hepnos.store_products(dataset, "p", bytes, [[1] * 50, order, [3] * 50], values, operation_keys=7)
    run = dataset.runs.handle(1)
    assert [run.subruns.handle(at).events.handle(3).load("p", bytes) for at in range(50)] == values[::-1]
    assert sorted(value for _, value in hepnos.load_products(dataset, "p", bytes)) == sorted(values)


# ---- batches --------------------------------------------------------------------------------------------------------------


class FailingEngine(WrappedEngine):
    """Fails at the writes of these numbers, counted from 1."""

    def __init__(self, inner: Engine, at: set[int]) -> None:
        super().__init__(inner)
        self.at = at
        self.writes = 0

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        self.writes += 1
        if self.writes in self.at:
            raise EngineError(engine="test", problem="the disk is full")
        return self.inner.put_sorted(keys, values, guards=guards, overwrite=overwrite)


def failing(dataset: hepnos.DataSet, kind: hepnos.Kind, at: set[int]) -> None:
    ring = dataset.datastore.databases.rings[kind]
    ring.databases = tuple(FailingEngine(engine, at) for engine in ring.databases)


def test_a_batch_writes_all_at_its_end(dataset: hepnos.DataSet) -> None:
    with dataset.datastore.batch() as batch:
        batch.flush()  # of nothing
        for number in range(10):
            run = dataset.create_run(number, into=batch)
            event = run.create_subrun(number, into=batch).create_event(number, into=batch)
            event.store("a", number, into=batch)
            event.store("b", str(number), into=batch)
        assert batch.pending == 50
        assert list(dataset.runs) == []
    assert events_of(dataset) == {(number,) * 3 for number in range(10)}
    for event in dataset.events():
        assert (event.load("a", "int64"), event.load("b", str)) == (event.number, str(event.number))
    assert batch.statistics.keys == 50
    assert batch.statistics.key_bytes == 10 * (24 + 32 + 40 + 40 + len("a#int64") + 40 + len("b#str"))


@pytest.mark.leaves("no-parent")
def test_a_batch_flushes_by_itself_when_a_database_s_share_is_full(dataset: hepnos.DataSet) -> None:
    with dataset.datastore.batch(max_operations=128) as batch:
        for number in range(1_000):
            dataset.runs.handle(number % 20).subruns.handle(0).create_event(number, into=batch)
            assert all(batch.pending_in("events", database) < 128 for database in range(4))
        assert dataset.events().count() == 1_000 - batch.pending > 0
    assert dataset.events().count() == 1_000


def test_a_block_that_fails_drops_what_was_not_flushed(dataset: hepnos.DataSet) -> None:
    def fail() -> None:
        with dataset.datastore.batch() as batch:
            dataset.create_run(1, into=batch)
            batch.flush()
            dataset.create_run(2, into=batch)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [run.number for run in dataset.runs] == [1]


def test_a_flush_that_fails_names_its_keys_and_the_earlier_ones_are_written() -> None:
    dataset = hepnos.open("memory:").root.ensure("d")
    failing(dataset, hepnos.Kind.RUN, {3})
    batch = dataset.datastore.batch(max_operations=2)
    for number in range(5):
        dataset.create_run(number, into=batch)
    with pytest.raises(hepnos.BatchError) as caught:
        dataset.create_run(5, into=batch)
    assert caught.value.facts["failed"] == [(dataset.uuid.bytes + bytes(7) + bytes([n])).hex() for n in (4, 5)]
    assert [run.number for run in dataset.runs] == [0, 1, 2, 3]


def test_an_atomic_batch_is_one_commit_of_one_database(dataset: hepnos.DataSet) -> None:
    store = dataset.datastore
    with store.batch(atomic=True, max_operations=2) as batch:
        for number in range(10):
            dataset.create_run(number, into=batch)
        assert list(dataset.runs) == []
    assert dataset.runs.count() == 10

    def both() -> None:
        with store.batch(atomic=True) as batch:
            dataset.create_run(50, into=batch).store("p", 1, into=batch)

    with pytest.raises(SplitCommitError):
        both()
    assert 50 not in dataset.runs
    with pytest.raises(InvalidInputError):
        store.batch(max_operations=0)


_KILLED = """
import sys
from keyplan.apps import hepnos
with hepnos.open(sys.argv[1]) as store, store.batch(atomic=True) as batch:
    dataset = store["d"]
    for number in range(500):
        dataset.create_run(number, into=batch)
    if sys.argv[2] == "flush":
        batch.flush()
    print("added", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("how", "expected"), [("wait", 0), ("flush", 500)])
def test_an_atomic_batch_that_is_killed_leaves_all_or_nothing(tmp_path: Path, how: str, expected: int) -> None:
    url = f"lmdb:{tmp_path}/s"
    with hepnos.open(url) as store:
        store.root.ensure("d")
    command = [sys.executable, "-c", _KILLED, url, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"added\n"
        os.kill(running.pid, signal.SIGKILL)
    with hepnos.open(url) as store:
        assert len(list(store["d"].runs)) == expected


# ---- in the background ----------------------------------------------------------------------------------------------------


def test_an_asynchronous_engine_writes_all(dataset: hepnos.DataSet) -> None:
    with dataset.datastore.async_engine(threads=3) as engine:
        for number in range(2_000):
            dataset.create_run(number, into=engine)
        engine.wait()
        assert engine.errors == []
        assert dataset.runs.count() == 2_000
        with dataset.datastore.batch(max_operations=100, engine=engine) as batch:
            for number in range(500):
                dataset.runs.handle(1).create_subrun(number, into=batch)
    assert dataset.runs[1].subruns.count() == 500


def test_what_fails_in_the_background_is_told() -> None:
    dataset = hepnos.open("memory:").root.ensure("d")
    failing(dataset, hepnos.Kind.RUN, {2})
    with ThreadPoolExecutor(1) as executor:
        engine = dataset.datastore.async_engine(executor=executor)
        for number in range(4):
            dataset.create_run(number, into=engine)
        engine.wait()
        (error,) = engine.errors
    assert error.facts["failed"] == [(dataset.uuid.bytes + bytes(7) + b"\x01").hex()]
    assert [run.number for run in dataset.runs] == [0, 2, 3]

    def fail() -> None:
        with dataset.datastore.async_engine() as other:
            other.put(hepnos.Kind.RUN, 0, [b""], [b""], "overwrite")

    with pytest.raises(hepnos.BatchError):
        fail()


# ---- reading ahead --------------------------------------------------------------------------------------------------------


def test_products_read_ahead_are_hits_and_others_come_from_the_store(dataset: hepnos.DataSet) -> None:
    subrun = dataset.create_run(1).create_subrun(1)
    for number in range(100):
        event = subrun.create_event(number)
        event.store("a", number)
        event.store("b", str(number))
    with dataset.datastore.prefetch(cache=32, batch=10, products=[("a", "int64")]) as prefetch:
        for event in prefetch(subrun.events):
            assert prefetch.resident <= 42
            assert event.load("a", "int64", source=prefetch) == event.number
            if event.number < 7:
                assert prefetch.load(event, "b", str) == str(event.number)
    statistics = prefetch.statistics
    assert (statistics.hits, statistics.misses, statistics.evicted, statistics.products) == (100, 7, 0, 100)
    with dataset.datastore.prefetch(cache=16, batch=16, products=[("a", "int64"), ("none", "int64")]) as prefetch:
        assert sum(1 for _ in prefetch(subrun.events)) == 100
        assert prefetch.resident <= 32
        assert prefetch.statistics.evicted == 200 - 32
    with pytest.raises(InvalidInputError):
        dataset.datastore.prefetch(cache=0)


@pytest.mark.parametrize("form", ["dict", "structured", "awkward", "Arrow", "pandas"])
def test_a_table_of_any_package_is_the_same_table(dataset: hepnos.DataSet, form: str) -> None:
    columns = {"energy": np.array([1.5, 2.5, 3.5], "f4"), "cell": np.array([7, 8, 9], "u2")}
    structured = np.empty(3, [("energy", "f4"), ("cell", "u2")])
    for name, column in columns.items():
        structured[name] = column
    tables: dict[str, Callable[[], Any]] = {
        "dict": lambda: columns,
        "structured": lambda: structured,
        "awkward": lambda: ak.zip(columns),
        "Arrow": lambda: pa.table(columns),
        "pandas": lambda: pytest.importorskip("pandas").DataFrame(columns),
    }
    stored = dataset.store_table("cells", tables[form](), run=[1, 1, 1], subrun=[1, 1, 1], event=[4, 5, 4], create=True)
    assert stored == 2
    found = dataset.runs[1].subruns[1].events[4].load("cells", hepnos.vector([("energy", "f4"), ("cell", "u2")]))
    assert found.tolist() == [(1.5, 7), (3.5, 9)]


# ---- what is refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1])
def test_a_commit_has_at_least_one_key(dataset: hepnos.DataSet, size: int) -> None:
    kind = hepnos.product_type("int64")
    acts: list[Callable[[], object]] = [
        lambda: dataset.create_items([1], [1], [1], operation_keys=size),
        lambda: hepnos.create_events(dataset, 1, 1, [1], operation_keys=size),
        lambda: hepnos.store_products(dataset, "a", kind, [[1]] * 3, [bytes(8)], operation_keys=size),
    ]
    for act in acts:
        with pytest.raises(InvalidInputError, match="at least one key"):
            act()
    assert dataset.events().count() == 0


def test_a_subrun_without_its_run_and_a_missing_number_are_no_columns(dataset: hepnos.DataSet) -> None:
    with pytest.raises(InvalidInputError, match="each with its run"):
        dataset.create_items(None, [1])
    masked = np.ma.MaskedArray([1, 2], mask=[False, True])
    with pytest.raises(hepnos.InvalidNumberError, match="missing"):
        dataset.create_items(masked)
    assert dataset.runs.count() == 0
    assert dataset.create_items(np.ma.MaskedArray([1, 2])).runs == 2


def test_a_mode_of_another_name_writes_nothing(dataset: hepnos.DataSet) -> None:
    kind = hepnos.product_type("int64")
    with pytest.raises(InvalidInputError, match="a mode is one of"):
        hepnos.store_products(dataset, "a", kind, [[1]] * 3, [bytes(8)], mode="replace")
    assert list(load_products(dataset, "a", kind)) == []


@pytest.mark.leaves("no-container")
def test_products_are_read_of_a_database_that_there_is(dataset: hepnos.DataSet) -> None:
    kind = hepnos.product_type("int64")
    columns = [np.arange(30)] * 3
    hepnos.store_products(dataset, "a", kind, columns, [bytes(8)] * 30)
    whole = list(load_products(dataset, "a", kind))
    assert sorted(pair for target in range(3) for pair in load_products(dataset, "a", kind, target=target)) == whole
    assert list(load_products(dataset, "a", kind, target=-1)) == whole
    for target in (3, -2, True):
        with pytest.raises(InvalidInputError, match="there are 3 product databases"):
            list(load_products(dataset, "a", kind, target=target))


def test_an_atomic_batch_counts_what_it_has_written_and_refuses_a_key_in_two_modes(dataset: hepnos.DataSet) -> None:
    store, event = dataset.datastore, dataset.create_run(1).create_subrun(1).create_event(1)
    with store.batch(atomic=True) as batch:
        event.store("a", b"12345678", type=bytes, into=batch)
    assert batch.statistics[:2] == (1, 1)
    assert batch.statistics.value_bytes == 8
    batch = store.batch(atomic=True)
    event.store("a", b"new", type=bytes, mode="new", into=batch)
    event.store("a", b"over", type=bytes, into=batch)
    with pytest.raises(InvalidInputError, match="two modes"):
        batch.flush()
    assert event.load("a", bytes) == b"12345678"


def test_everything_that_has_failed_in_the_background_is_told_and_who_comes_late_keeps_no_room() -> None:
    dataset = hepnos.open("memory:").root.ensure("d")
    failing(dataset, hepnos.Kind.RUN, {1, 3})
    with ThreadPoolExecutor(1) as executor:
        engine = dataset.datastore.async_engine(executor=executor)
        for number in range(4):
            dataset.create_run(number, into=engine)
        with pytest.raises(hepnos.BatchError) as told:
            engine.__exit__(None, None, None)
    keys = [number_key(dataset.uuid, (number,)).hex() for number in (0, 2)]
    assert told.value.facts["failed"] == keys
    for _ in range(1_100):  # more than may wait
        with pytest.raises(RuntimeError):
            dataset.create_run(9, into=engine)


# ---- commits and labels -----------------------------------------------------------------------------------------------------


@pytest.mark.leaves("no-container")
def test_a_product_that_is_larger_than_a_commit_is_one_of_its_own(
    dataset: hepnos.DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keyplan.apps.hepnos.bulk._OPERATION_BYTES", 10)
    values = [b"x" * size for size in (20, 3, 3, 30)]
    assert hepnos.store_products(dataset, "a", bytes, [[1] * 4, [1] * 4, range(4)], values) == 4
    assert [value for _, value in load_products(dataset, "a", bytes)] == values


@pytest.mark.leaves("no-container")
def test_products_of_a_label_that_ends_as_another_are_others(dataset: hepnos.DataSet) -> None:
    for label in ("a", "ba"):
        hepnos.store_products(dataset, label, bytes, [[1], [1], [1]], [label.encode()])
    assert [value for _, value in load_products(dataset, "a", bytes)] == [b"a"]


@pytest.mark.parametrize(
    "column",
    [ak.Array([1, None]), ak.Array([[1], [1, 2]]), [[1], [1, 2]], [1, None]],
    ids=["missing", "lists", "list", "none"],
)
def test_what_is_not_one_number_for_each_row_is_no_column(dataset: hepnos.DataSet, column: Any) -> None:
    with pytest.raises(hepnos.InvalidNumberError, match=r"one number for each row|are whole"):
        dataset.create_items(column)
