"""HEPnOS on real etcd: one store below prefixes, where every read is a call over the network, and a commit has bounds."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from keyplan.apps import hepnos
from keyplan.engine import KeyRange, open_engine
from keyplan.errors import RingMismatchError
from tests.apps.hepnos import work
from tests.servers.etcd import EtcdServer

_COUNTS = {"events": 2, "products": 2}


@pytest.fixture
def url(etcd_server: EtcdServer) -> str:
    return etcd_server.emptied().url


@pytest.fixture
def store(url: str) -> Iterator[hepnos.DataStore]:
    with hepnos.open(url, databases=_COUNTS) as opened:
        yield opened


def test_keys_lie_below_the_names_of_their_databases(store: hepnos.DataStore, url: str) -> None:
    event = store.root.ensure("aaa").create_run(1).create_subrun(2).create_event(5)
    event.store("hits", np.float32(1.5))
    with open_engine(url) as engine, engine.snapshot() as snapshot:
        number = store.where(event)[1]
        prefix = f"events.{number}/".encode()
        (key,) = snapshot.keys(KeyRange.of_prefix(prefix + event.dataset.uuid.bytes))
        tail = "0000000000000001 0000000000000002 0000000000000005"
        assert key == prefix + event.dataset.uuid.bytes + bytes.fromhex(tail)
        product = f"products.{number}/".encode() + key.removeprefix(prefix) + b"hits#float32"
        assert snapshot.value(product) == bytes.fromhex("0000c03f")
        assert snapshot.value(b"datasets.0/\x00aaa") == event.dataset.uuid.bytes


def test_more_events_than_a_commit_takes_are_created_once(store: hepnos.DataStore) -> None:
    dataset = store.root.ensure("d")
    numbers = np.random.default_rng(5).permutation(1_000)
    subruns = numbers // 100
    assert dataset.create_items(np.ones(1_000, int), subruns, numbers) == (1, 10, 1_000)
    assert dataset.create_items(np.ones(1_000, int), subruns, numbers) == (0, 0, 0)
    found = np.sort(dataset.events().to_numpy(), order=["run", "subrun", "event"])
    assert found["event"].tolist() == list(range(1_000))
    assert [event.number for event in dataset.runs[1].subruns[3].events.range(395, reverse=True)] == [
        *(399, 398, 397, 396, 395)
    ]


def test_a_batch_is_split_where_etcd_would_refuse_it(store: hepnos.DataStore) -> None:
    subrun = store.root.ensure("d").create_run(1).create_subrun(1)
    with store.batch(max_operations=4_096) as batch:
        for number in range(300):
            subrun.create_event(number, into=batch).store("n", number, into=batch)
    assert subrun.events.count() == 300
    assert [event.load("n", int) for event in subrun] == list(range(300))


def test_products_read_ahead_are_right_and_absent_ones_are_none(store: hepnos.DataStore) -> None:
    dataset = store.root.ensure("d")
    numbers = np.arange(200)
    dataset.create_items(numbers // 100, numbers // 50, numbers)
    odd = numbers[1::2]
    kind = hepnos.product_type("int64")
    hepnos.store_products(
        dataset, "a", kind, [odd // 100, odd // 50, odd], [kind.encode(each) for each in odd.tolist()]
    )
    with ThreadPoolExecutor(2) as executor:
        processor = hepnos.ParallelProcessor(
            store, executor=executor, piece_events=64, preload=[("a", int), ("odd", str)]
        )
        found = sorted(processor.map(dataset, work.preloaded))
    assert found == [(number, number if number % 2 else None, None) for number in range(200)]


def test_removal_reaches_everything_below(store: hepnos.DataStore) -> None:
    dataset = store.root.ensure("d")
    event = dataset.create_run(1).create_subrun(1).create_event(1)
    event.store("n", 1)
    kept = store.root.ensure("kept").create_run(1)
    dataset.delete()
    assert (dataset.exists(), event.exists(), kept.exists()) == (False, False, True)
    with pytest.raises(hepnos.DeletedError):
        event.load("n", int)


def test_it_opens_again_as_it_was_and_not_otherwise(store: hepnos.DataStore, url: str) -> None:
    uuid = store.root.ensure("d").uuid
    with hepnos.open(url) as again:
        assert again["d"].uuid == uuid
        assert again.counts() == {"datasets": 1, "runs": 1, "subruns": 1, "events": 2, "products": 2}
    with pytest.raises(RingMismatchError):
        hepnos.open(url, databases={"events": 3})


def test_a_consumer_hears_of_an_item_of_another_client(store: hepnos.DataStore, url: str) -> None:
    store.queues.create("q", int)
    with hepnos.open(url) as other, other.queues.open("q", int, mode="producer") as producer:
        consumer = store.queues.open("q", int)
        with ThreadPoolExecutor(1) as executor:
            waiting = executor.submit(consumer.get, 30)
            producer.put(7)
            assert waiting.result(30) == 7
    assert store.queues.open("q", int).get() is None
