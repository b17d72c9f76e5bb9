"""Queues: case 48 of the specification."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from random import Random
from subprocess import PIPE, Popen
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest
from msgspec import structs

from keyplan.apps import hepnos
from keyplan.apps.hepnos.queue_records import HEPnOSQueues, Place, QueueKey, QueueRecords
from keyplan.apps.hepnos.queues import StoredQueues
from keyplan.apps.hepnos.remote_frames import transport_to
from keyplan.apps.hepnos.remote_queues import RemoteQueues
from keyplan.apps.hepnos.types import product_type
from keyplan.engine import Commit, WrappedEngine, open_engine
from keyplan.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    CommitConflictError,
    CorruptionError,
    InvalidInputError,
)
from keyplan.server import PolicyAccess
from keyplan.store import Store
from keyplan.testing.faults import FakeClock
from tests.apps.hepnos.queue_stand import Cut, queue_of_three
from tests.apps.hepnos.served import HepnosServer

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


# ---- items that are taken --------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def held(clock: FakeClock) -> hepnos.Queues:
    """A queue of three items, with a clock that is moved by hand."""
    return queue_of_three(clock)


def test_an_item_that_is_not_acknowledged_is_another_s_after_its_lease(held: hepnos.Queues, clock: FakeClock) -> None:
    dead, alive = held.open("q", int), held.open("q", int)
    late = dead.take(0, lease_seconds=30)
    assert late is not None
    assert [alive.get(0), alive.get(0), alive.get(0)] == [1, 2, None]
    clock.advance(30)
    again = held.open("q", int).take(0)
    assert again is not None
    with again as item:
        assert (item.number, item.value) == (0, 0)
    for act in (late.acknowledge, late.give_back):
        with pytest.raises(hepnos.ItemLostError):
            act()
    assert alive.get() is None


def test_a_damaged_item_is_named_and_stays_while_the_others_go_on(clock: FakeClock) -> None:
    store = Store(open_engine("memory:"))
    queues = hepnos.Queues(StoredQueues(store, Store(open_engine("memory:")), clock), clock)
    queues.create("q", int)
    with queues.open("q", int, mode="producer") as producer:
        producer.put(1)
        producer.put(2)
    records = HEPnOSQueues(store)
    ((key, whole), _) = records.items.list("q", product_type(int).name)
    records.items.put(key, b"\x00")
    consumer = queues.open("q", int)
    with pytest.raises(CorruptionError) as caught:
        consumer.get(0)
    assert (caught.value.facts["queue"], caught.value.facts["item"]) == (f"q#{key.type}", 0)
    assert [consumer.get(0), consumer.get(0)] == [2, None]
    ((_, taken),) = records.taken.list("q", key.type)
    records.taken.put(key, structs.replace(taken, item=whole))
    clock.advance(60)
    assert consumer.get(0) == 1, "it was mended meanwhile"


def test_an_item_is_given_back_to_its_place_when_its_work_fails(held: hepnos.Queues) -> None:
    consumer = held.open("q", int)
    item = consumer.take(0)
    assert item is not None
    with pytest.raises(KeyError), item:
        raise KeyError(item.value)
    assert [consumer.get(0) for _ in range(4)] == [0, 1, 2, None]
    with pytest.raises(InvalidInputError, match="more than 0"):
        consumer.take(0, lease_seconds=0)


def test_a_block_may_settle_its_item_itself_and_fails_with_its_own_error(held: hepnos.Queues, clock: FakeClock) -> None:
    consumer = held.open("q", int)
    for act in (hepnos.QueueItem.acknowledge, hepnos.QueueItem.give_back):
        item = consumer.take(0)
        assert item is not None
        with item:
            act(item)
    item = consumer.take(0, lease_seconds=10)
    assert item is not None
    clock.advance(10)
    assert held.open("q", int).get(0) == 1
    with pytest.raises(KeyError), item:
        raise KeyError(item.value)
    for seconds in (float("inf"), float("nan"), 86_401):
        with pytest.raises(InvalidInputError, match="at most 86400 seconds"):
            consumer.take(0, lease_seconds=seconds)


def test_a_lease_runs_while_its_answers_are_lost(clock: FakeClock) -> None:
    records = QueueRecords(Store(open_engine("memory:")), clock)
    cut, key = Cut(records, clock), QueueKey("q", "int64")
    records.create(key)
    place = Place("p", records.enter(key, "p", 60), 60)
    records.put(key, place, 1, [(7).to_bytes(8, "little")])
    acts: Any = cut
    consumer = hepnos.Queue(acts, key, product_type(int), clock, place._replace(producer=""))
    cut.lost = 2
    item = consumer.take(0, lease_seconds=50)  # which is asked for three times, 40 seconds long
    assert item is not None
    clock.advance(20)
    assert records.take(key, "other", 50).number == -1  # the lease is that of the last time
    cut.lost = 1
    clock.advance(20)
    with pytest.raises(hepnos.ItemLostError):  # who settled it is not known: by its own count the lease was over
        item.acknowledge()


def test_a_queue_that_is_closed_gives_nothing_and_ends_who_waits(queues: hepnos.Queues) -> None:
    queues.create("q", int)
    with queues.open("q", int, mode="producer"):
        consumer, is_waiting = queues.open("q", int), Event()

        class Watched(Cut):
            @contextmanager
            def waiting(self, key: QueueKey) -> Iterator[Any]:
                with self.acts.waiting(key) as waiting:
                    is_waiting.set()
                    yield waiting

        watched: Any = Watched(consumer.acts, FakeClock())
        consumer.acts = watched
        got: list[object] = []
        waiting = Thread(target=lambda: got.append(consumer.get(30)))
        waiting.start()
        assert is_waiting.wait(30)
        consumer.close()
        waiting.join(20)
        assert got == [None]
    for act in (consumer.get, consumer.take, consumer.is_empty):
        with pytest.raises(InvalidInputError, match="open it again"):
            act()


class Slow(WrappedEngine):
    """An engine whose commits take a while, so that others come between what is read and what is written; lost races count."""

    lost = 0

    def commit(self, commit: Commit) -> int:
        sleep(0.002)  # Why: so long a flush takes, and others come between.
        try:
            return self.inner.commit(commit)
        except CommitConflictError:
            self.lost += 1
            raise


def test_many_threads_at_one_queue_take_turns_and_race_for_nothing() -> None:
    """Of those that race one may lose as often as a commit is tried, and is told that: 1,000 tasks had one that was."""
    engine = Slow(open_engine("memory:"))
    with Store(engine) as store:
        queues = hepnos.Queues(StoredQueues(store, Store(open_engine("memory:"))))
        queues.create("q", int)
        producers = [queues.open("q", int, mode="producer") for _ in range(8)]
        consumers = [queues.open("q", int) for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda producer: [producer.put(1) for _ in range(10)], producers))
            for producer in producers:
                producer.close()
            got = list(pool.map(lambda consumer: [item.acknowledge() for item in consumer], consumers))
        assert sum(map(len, got)) == 80
        assert engine.lost == 0


def test_a_clock_that_is_set_back_keeps_no_item(held: hepnos.Queues, clock: FakeClock) -> None:
    assert held.open("q", int).take(0) is not None
    clock.step_wall(-3 * 86_400)
    assert held.open("q", int).get(0) == 0


@pytest.mark.parametrize("seed", range(3))
def test_queues_do_what_a_model_does_whoever_acts_next(seed: int, clock: FakeClock) -> None:
    chance = Random(seed)
    records, key = QueueRecords(Store(open_engine("memory:")), clock), QueueKey("q", "int64")
    records.create(key)
    place = Place("p", records.enter(key, "p", 60), 60)
    waiting: list[int] = []
    taken: dict[int, tuple[str, float]] = {}
    put = 0
    for _ in range(150):
        act, taker = chance.choice("ptttsswg"), chance.choice("abc")
        if act == "p":
            for _ in range(chance.randint(1, 2)):  # Why again: as after an answer that was lost.
                records.put(key, place, put + 1, [b"%d" % put])
            waiting.append(put)
            put += 1
        elif act == "w":
            clock.advance(chance.choice([1, 5, 9]))
        elif act == "t":
            own = [number for number, (who, _) in taken.items() if who == taker]
            over = sorted((until, number) for number, (_, until) in taken.items() if until <= clock.wall())
            wanted = own or [number for _, number in over[:1]] or waiting[:1]
            found = records.take(key, taker, 10)
            assert (found.number, found.item) == ((wanted[0], b"%d" % wanted[0]) if wanted else (-1, b""))
            assert wanted or found.has_taken == bool(taken)
            if wanted:
                waiting = [number for number in waiting if number != wanted[0]]
                taken[wanted[0]] = taker, clock.wall() + 10
        elif put:
            number = chance.randrange(put)
            is_own = number in taken and taken[number][0] == taker
            assert records.settle(key, number, taker, is_done=act == "s") == is_own
            if is_own:
                del taken[number]
                if act == "g":
                    waiting = sorted([*waiting, number])
        assert records.is_empty(key) == (not waiting)


def test_who_finds_nothing_waits_for_what_others_have_taken(open_store: Opened) -> None:
    queues = open_store().queues
    queues.create("q", int)
    with queues.open("q", int, mode="producer") as producer:
        producer.put(7)
    item = queues.open("q", int).take()
    assert item is not None
    got: list[object] = []
    waiting = Thread(target=lambda: got.append(queues.open("q", int).get()))
    waiting.start()
    item.give_back()
    waiting.join(40)
    assert got == [7]
    assert queues.open("q", int).get() is None


def test_a_queue_that_is_destroyed_takes_along_what_somebody_has(held: hepnos.Queues) -> None:
    item = held.open("q", int).take(0)
    assert item is not None
    held.destroy("q", int)
    held.create("q", int)
    with pytest.raises(hepnos.ItemLostError):
        item.give_back()
    assert held.open("q", int).get(0) is None


@pytest.mark.parametrize("frames", ["true", "false"])
def test_producers_and_consumers_of_a_server_have_the_same_queues(frames: str) -> None:
    with HepnosServer({"store": "memory:", "frames": frames}) as server, hepnos.open(server.url) as here:
        queues = here.queues
        for story in (
            test_a_queue_is_made_once_for_each_name_and_type,
            test_only_producers_put_and_only_the_right_type,
        ):
            story(queues)
            for name, kind in queues.names():
                queues.destroy(name, kind)
        queues.create("q", str, volatile=True)
        with hepnos.open(server.url) as there:
            with queues.open("q", str, mode="producer") as producer:
                for item in "abc":
                    producer.put(item)
            consumer = there.queues.open("q", str)
            dead = queues.open("q", str).take(0, lease_seconds=0.2)
            assert dead is not None
            assert [consumer.get(), consumer.get(), consumer.get(), consumer.get()] == ["b", "c", "a", None]
            with pytest.raises(hepnos.ItemLostError):
                dead.acknowledge()
            queues.destroy("q", str)
            assert consumer.get() is None
        with pytest.raises(InvalidInputError, match="more than 0 and at most"):
            RemoteQueues(transport_to(server.url, token=None)).take(QueueKey("q", "str"), "t", 1e9)


def test_a_caller_has_the_queues_of_what_they_are_granted(tmp_path: Path) -> None:
    granted = {"a": ("read", "write", ""), "o": ("read", "write", "nova/"), "r": ("read", "nova/")}
    text = "".join(
        f'[principals.{who}]\ntokens = ["sha256:{sha256((who * 40).encode()).hexdigest()}"]\n'
        + "".join(f'{act} = ["prefix:hepnos/queues/{prefix}"]\n' for act in acts)
        for who, (*acts, prefix) in granted.items()
    )
    file = tmp_path / "access.toml"
    file.touch(0o600)
    file.write_text(text)
    with HepnosServer({"store": "memory:"}, access=PolicyAccess.of_file(file)) as server:
        queues = {who: hepnos.Queues(RemoteQueues(transport_to(server.url, token=who * 40))) for who in "aor"}
        for name in ("nova", "dune"):
            queues["a"].create(name, int)
        with queues["o"].open("nova", int, mode="producer") as producer:
            producer.put(1)
        assert {who: [name for name, _ in own.names()] for who, own in queues.items()} == {
            "a": ["dune", "nova"], "o": ["nova"], "r": ["nova"]
        }  # fmt: skip
        for who, name in (("r", "nova"), ("o", "dune")):
            with pytest.raises(AccessDeniedError):
                queues[who].open(name, int)
        assert queues["a"].open("nova", int).get(0) == 1


KILLED = """
import sys
from keyplan.apps import hepnos
with hepnos.open(sys.argv[1]) as store:
    item = store.queues.open("q", int).take(lease_seconds=float(sys.argv[2]))
    print(item.value, flush=True)
    sys.stdin.read()
"""


def test_a_consumer_that_is_killed_loses_nothing(open_store: Opened, tmp_path: Path) -> None:
    queues = open_store().queues
    queues.create("q", int)
    with queues.open("q", int, mode="producer") as producer:
        for number in range(3):
            producer.put(number)
    words = [sys.executable, "-c", KILLED, f"lmdb:{tmp_path}/store?durability=none", "1"]
    with Popen(words, stdin=PIPE, stdout=PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == "0\n"
        consumer.kill()
    taken = []
    while (item := queues.open("q", int).get()) is not None:
        taken.append(item)
    assert sorted(taken) == [0, 1, 2]


def test_who_waits_behind_what_is_compacted_looks_again(tmp_path: Path) -> None:
    with Store(open_engine(f"lmdb:{tmp_path / 'queues'}?durability=none")) as store:
        records = QueueRecords(store)
        key = QueueKey("q", "int64")
        with records.waiting(key) as waiting:
            waiting.mark()
            for _ in range(3):
                records.create(key)
                records.destroy(key)
            with store.engine.snapshot() as snapshot:
                store.engine.compact(snapshot.revision)
            waiting.wait(0.0)


def test_a_clock_that_is_set_back_keeps_no_producer_and_one_of_a_queue_of_before_is_none(clock: FakeClock) -> None:
    with Store(open_engine("memory:")) as store:
        records, key = QueueRecords(store, clock), QueueKey("q", "int64")
        records.create(key)
        made_at = records.enter(key, "p", 60.0)
        clock.step_wall(-3 * 86_400)
        assert not records.take(key, "t", 1.0).has_producers
        assert list(HEPnOSQueues(store).producers.list()) == []
        records.destroy(key)
        records.create(key)
        records.enter(key, "p", 60.0)
        with pytest.raises(hepnos.MissingError):
            records.put(key, Place("p", made_at, 60.0), 1, [bytes(8)])
        records.leave(key, "p", made_at)
        assert len(list(HEPnOSQueues(store).producers.list())) == 1
