"""Queues: case 48 of the specification."""

from collections.abc import Callable
from threading import Thread

import pytest

from keyplan.apps import hepnos
from keyplan.errors import AlreadyExistsError, InvalidInputError

Opened = Callable[..., hepnos.DataStore]


@pytest.fixture
def queues(store: hepnos.DataStore) -> hepnos.Queues:
    return store.queues


def test_a_queue_is_made_once_for_each_name_and_type(queues: hepnos.Queues) -> None:
    queues.create("q", int)
    with pytest.raises(AlreadyExistsError):
        queues.create("q", int)
    queues.create("q", str)
    queues.create("other/name#x", int)
    assert queues.names() == [("other/name#x", "int64"), ("q", "int64"), ("q", "str")]
    queues.destroy("q", str)
    for act in (lambda: queues.destroy("q", str), lambda: queues.open("q", str), lambda: queues.open("q", "float64")):
        with pytest.raises(hepnos.MissingError):
            act()
    assert queues.open("q", int).is_empty()


def test_items_come_out_in_the_order_they_went_in(queues: hepnos.Queues) -> None:
    queues.create("q", int)
    producer, consumer = queues.open("q", int, mode="producer"), queues.open("q", int)
    for number in range(12):
        producer.put(number)
    assert not consumer.is_empty()
    assert [consumer.get(0) for _ in range(13)] == [*range(12), None]
    assert consumer.is_empty()


def test_only_producers_put_and_only_the_right_type(queues: hepnos.Queues) -> None:
    queues.create("q", int)
    with queues.open("q", int, mode="producer") as producer:
        with pytest.raises(TypeError):
            producer.put("text")
        with pytest.raises(InvalidInputError):
            queues.open("q", int).put(1)
        producer.put(5)
    with pytest.raises(InvalidInputError):
        producer.put(6)
    with pytest.raises(InvalidInputError):
        queues.open("q", int, mode="both")
    assert queues.open("q", int).get() == 5
    assert queues.open("q", int).get() is None


def test_two_producers_and_two_consumers_share_every_item_once(open_store: Opened) -> None:
    queues = open_store().queues
    queues.create("q", int)
    producers = [queues.open("q", int, mode="producer") for _ in range(2)]
    taken: list[int] = []

    def consume() -> None:
        consumer = queues.open("q", int)
        while (item := consumer.get(30)) is not None:
            taken.append(item)

    def produce(producer: hepnos.Queue, begin: int) -> None:
        with producer:
            for number in range(begin, begin + 10):
                producer.put(number)

    threads = [Thread(target=consume) for _ in range(2)]
    threads += [Thread(target=produce, args=(producer, 10 * at)) for at, producer in enumerate(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert sorted(taken) == list(range(20))


def test_a_consumer_that_comes_first_waits_and_keeps_nobody_from_creating(queues: hepnos.Queues) -> None:
    queues.create("q", str)
    got: list[object] = []
    waiting = Thread(target=lambda: got.append(queues.open("q", str).get(30)))
    waiting.start()
    queues.create("another", int)
    queues.destroy("another", int)
    with queues.open("q", str, mode="producer") as producer:
        producer.put("hello")
    waiting.join(40)
    assert got == ["hello"]
    assert queues.open("q", str).get(0) is None


def test_a_volatile_queue_is_a_queue_that_goes_with_the_store(open_store: Opened) -> None:
    with open_store() as store:
        store.queues.create("q", int, volatile=True)
        store.queues.create("q", str)
        for volatile in (False, True):
            with pytest.raises(AlreadyExistsError):
                store.queues.create("q", int, volatile=volatile)
            with pytest.raises(AlreadyExistsError):
                store.queues.create("q", str, volatile=volatile)
        got: list[object] = []
        waiting = Thread(target=lambda: got.append(store.queues.open("q", int).get(30)))
        waiting.start()
        with store.queues.open("q", int, mode="producer") as producer:
            producer.put(1)
            producer.put(2)
        waiting.join(40)
        assert (got, store.queues.open("q", int).get()) == ([1], 2)
        assert store.queues.names() == [("q", "int64"), ("q", "str")]
    assert open_store().queues.names() == [("q", "str")]


def test_items_outlive_the_store(open_store: Opened) -> None:
    with open_store() as store:
        store.queues.create("q", int)
        with store.queues.open("q", int, mode="producer") as producer:
            producer.put(7)
    assert open_store().queues.open("q", int).get() == 7
