"""Producers of queues: what they put is there once, and consumers wait for them as long as they said."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest

from keyplan.apps import hepnos
from keyplan.apps.hepnos.queue_records import Place, QueueKey, QueueRecords
from keyplan.apps.hepnos.queues import Blocking, StoredQueues
from keyplan.engine import MEMORY_PROFILE, Commit, Engine, KeyRange, MemoryEngine, Put, WrappedEngine, open_engine
from keyplan.errors import CommitOutcomeUnknownError, CorruptionError, EngineUnavailableError, InvalidInputError
from keyplan.store import Store
from keyplan.testing.faults import FakeClock
from tests.apps.hepnos.queue_stand import Cut, queue_of_three


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def held(clock: FakeClock) -> hepnos.Queues:
    return queue_of_three(clock)


def test_what_is_asked_again_because_its_answer_was_lost_is_done_once(clock: FakeClock) -> None:
    stored = StoredQueues(Store(open_engine("memory:")), Store(open_engine("memory:")), clock)
    home: Any = Cut(stored, clock)
    queues = hepnos.Queues(home, clock)
    queues.create("q", int)
    home.lost = 2
    producer = queues.open("q", int, mode="producer")
    acts: Any = producer.acts
    cut: Any = Cut(acts, clock)
    producer.acts = cut
    for number in range(3):
        cut.lost = number
        producer.put(number)
    other = queues.open("q", int, mode="producer")
    cut.lost = 2
    producer.close()
    consumer = queues.open("q", int)
    assert [consumer.get(0) for _ in range(4)] == [0, 1, 2, None]
    other.put(7)  # Why: the other producer is one, however often the first has left.
    assert stored.home_of(producer.key).take(producer.key, "t", 1).number == 3
    other.close()


class Lossy(WrappedEngine):
    """An engine one of whose commits is told to be unknown, before it is done or behind that."""

    def __init__(self, inner: Engine, *, is_done: bool) -> None:
        super().__init__(inner)
        self.is_done = is_done
        self.until = 0
        """Commits until then."""

    def commit(self, commit: Commit) -> int:
        self.until -= 1
        if self.until == 0 and not self.is_done:
            raise CommitOutcomeUnknownError(engine="lossy", mutations=1)
        revision = super().commit(commit)
        if self.until == 0:
            raise CommitOutcomeUnknownError(engine="lossy", mutations=1)
        return revision


@pytest.mark.parametrize("limits", [{"commit_operations_max": 20}, {"commit_bytes_max": 100_000}])
@pytest.mark.parametrize("is_done", [True, False])
def test_many_that_are_put_are_there_once_whichever_commit_of_theirs_is_lost(
    limits: dict[str, Any], *, is_done: bool
) -> None:
    values = [bytes([number]) * 20_000 for number in range(30)]
    commits_max = 0
    for lost in range(1, 40):
        engine = Lossy(MemoryEngine(profile=replace(MEMORY_PROFILE, **limits)), is_done=is_done)
        queues = hepnos.Queues(
            StoredQueues(Store(engine), Store(open_engine("memory:"))), blocking=Blocking(lambda _seconds: None)
        )
        queues.create("q", bytes)
        with queues.open("q", bytes, mode="producer") as producer:
            engine.until = lost
            assert producer.put_many(iter(values)) == len(values)
            commits_max = max(commits_max, lost - engine.until)
            was_lost, engine.until = engine.until <= 0, 0
            producer.put(b"last")
        consumer = queues.open("q", bytes)
        assert [consumer.get(0) for _ in range(32)] == [*values, b"last", None]
        if not was_lost:
            break
    assert commits_max >= 4


@pytest.mark.parametrize("is_back", [True, False])
def test_a_server_that_takes_an_item_and_is_gone_is_asked_again_when_it_is_back(
    clock: FakeClock, *, is_back: bool
) -> None:
    asleep: list[float] = []

    class Gone(Cut):
        def put(self, *given: Any) -> None:
            if self.lost and not (is_back and len(asleep) == 5):
                raise EngineUnavailableError(engine="gone", problem="nobody listens")
            self.acts.put(*given)
            if not self.lost:
                self.lost = 1
                raise CommitOutcomeUnknownError(engine="gone", problem="the answer was lost")

    stored = StoredQueues(Store(open_engine("memory:")), Store(open_engine("memory:")), clock)
    queues = hepnos.Queues(stored, clock, Blocking(asleep.append))
    queues.create("q", int)
    with queues.open("q", int, mode="producer") as producer:
        acts: Any = producer.acts
        gone: Any = Gone(acts, clock)
        producer.acts = gone
        # Why not told as undone: whoever put it again would have it there twice.
        with nullcontext() if is_back else pytest.raises(CommitOutcomeUnknownError):
            producer.put(1)
        producer.acts = acts
        producer.put(2)
    assert len(asleep) == (5 if is_back else 18)
    assert 15 <= sum(asleep) + 15 * is_back < 20
    assert [queues.open("q", int).get(0) for _ in range(3)] == [1, 2, None]


def test_what_was_not_done_is_told_at_once(clock: FakeClock) -> None:
    class Away(Cut):
        def put(self, *_given: Any) -> None:
            raise EngineUnavailableError(engine="gone", problem="nobody listens")

    def never(_seconds: float) -> None:
        raise AssertionError

    stored = StoredQueues(Store(open_engine("memory:")), Store(open_engine("memory:")), clock)
    queues = hepnos.Queues(stored, clock, Blocking(never))
    queues.create("q", int)
    producer = queues.open("q", int, mode="producer")
    away: Any = Away(producer.acts, clock)
    producer.acts = away
    with pytest.raises(EngineUnavailableError):
        producer.put(1)


def test_a_producer_that_dies_is_waited_for_no_longer_than_it_said(held: hepnos.Queues, clock: FakeClock) -> None:
    dead = held.open("q", int, mode="producer", lease_seconds=100)
    late = held.open("q", int, mode="producer", lease_seconds=300)
    consumer = held.open("q", int)
    assert [consumer.get(0) for _ in range(3)] == [0, 1, 2]
    key = consumer.key

    def is_waited_for() -> bool:
        return consumer.acts.take(key, "t", 1).has_producers

    dead.put(3)
    assert consumer.get(0) == 3
    clock.advance(99)
    late.close()
    assert is_waited_for()
    clock.advance(1)
    assert not is_waited_for()
    assert consumer.get() is None  # which waits for nobody
    dead.put(4)  # it was slow, and not dead
    assert consumer.get(0) == 4
    assert is_waited_for()
    for seconds in (0, 86_401):
        with pytest.raises(InvalidInputError, match="more than 0 and at most 86400 seconds"):
            held.open("q", int, mode="producer", lease_seconds=seconds)


def test_what_comes_late_adds_nothing_again_and_makes_nobody_wait(clock: FakeClock) -> None:
    records, key = QueueRecords(Store(open_engine("memory:")), clock), QueueKey("q", "int64")
    records.create(key)
    place = Place("p", records.enter(key, "p", 60), 60)
    records.put(key, place, 1, [b"1"])
    records.leave(key, "p", place.made_at)
    with pytest.raises(hepnos.MissingError, match="open it again"):
        records.put(key, place, 1, [b"1"])  # which was under way when it was asked again, and is done now
    found = [records.take(key, taker, 60) for taker in "ab"]
    assert [each.number for each in found] == [0, -1]
    assert not found[1].has_producers


def test_an_item_is_put_once_however_long_its_answers_are_lost(clock: FakeClock) -> None:
    stored = StoredQueues(Store(open_engine("memory:")), Store(open_engine("memory:")), clock)
    queues = hepnos.Queues(stored, clock)
    queues.create("q", int)
    consumer = queues.open("q", int)
    taken: list[object] = []

    class Slow(Cut):
        def put(self, *given: Any) -> None:
            self.acts.put(*given)
            if self.lost:
                self.lost -= 1
                self.clock.advance(60)
                taken.extend(iter(partial(consumer.get, 0), None))  # which finds that nobody is waited for any more
                raise CommitOutcomeUnknownError(engine="slow", problem="the answer was lost")

    producer = queues.open("q", int, mode="producer", lease_seconds=1)
    slow: Any = Slow(producer.acts, clock)
    producer.acts = slow
    for number in range(3):
        slow.lost = number
        producer.put(number)
    producer.close()
    assert [*taken, consumer.get(0), consumer.get(0)] == [0, 1, 2, None, None]


def test_producers_that_are_gone_are_forgotten_a_day_later_whoever_lives(held: hepnos.Queues, clock: FakeClock) -> None:
    gone = [held.open("q", int, mode="producer", lease_seconds=10) for _ in range(120)]
    consumer = held.open("q", int)
    records: Any = consumer.acts
    assert [consumer.get(0) for _ in range(4)] == [0, 1, 2, None]
    clock.advance(86_400 + 11)
    alive = [held.open("q", int, mode="producer") for _ in range(20)]
    left = []
    for _ in range(2):
        assert records.take(consumer.key, "t", 1).has_producers
        left.append(len(list(hepnos.HEPnOSQueues(records.store).producers.keys())))
    assert left == [40, 20]
    with pytest.raises(hepnos.MissingError, match="open it again"):
        gone[0].put(3)
    alive[0].put(4)
    gone[0].close()
    clock.step_wall(-3 * 86_400)
    assert consumer.get(0) == 4
    assert consumer.get() is None  # whoever they are, they said so before the clock was set back
    held.destroy("q", int)
    with records.store.engine.snapshot() as snapshot:
        assert not snapshot.count(KeyRange.of_prefix(b"queues/"))


def test_closing_waits_for_the_item_that_another_thread_puts(held: hepnos.Queues) -> None:
    producer, has_begun, may_end = held.open("q", int, mode="producer"), Event(), Event()

    class Held(Cut):
        def put(self, *given: Any) -> None:
            has_begun.set()
            assert may_end.wait(30)
            self.acts.put(*given)

        def leave(self, *given: Any) -> None:
            self.acts.leave(*given)

    slow: Any = Held(producer.acts, FakeClock())
    producer.acts = slow
    putting, closing = Thread(target=producer.put, args=(7,)), Thread(target=producer.close)
    putting.start()
    assert has_begun.wait(30)
    closing.start()
    closing.join(0.05)  # Why: so that it has begun; without an order it is through by now.
    may_end.set()
    for thread in (putting, closing):
        thread.join(30)
    consumer = held.open("q", int)
    assert [consumer.get(0) for _ in range(4)] == [0, 1, 2, 7]
    assert consumer.get() is None  # and waits for nobody


def damage(store: Store, part: bytes) -> None:
    """Write what is no record in the place of the first of a kind."""
    with store.engine.snapshot() as snapshot:
        first = next(key for key in snapshot.keys(KeyRange(b"", None)) if part in key)
    store.engine.commit(Commit((), (Put(first, b"no record"),)))


def test_a_damaged_record_keeps_nobody_from_the_items_behind_it(clock: FakeClock) -> None:
    """It may come back for nobody, and so is waited for by nobody."""
    with Store(open_engine("memory:")) as store:
        records, key = QueueRecords(store, clock), QueueKey("q", "int64")
        records.create(key)
        place = Place("p", records.enter(key, "p", 60.0), 60.0)
        records.put(key, place, 1, [b"0", b"1", b"2", b"3"])
        assert [records.take(key, taker, 60.0).item for taker in ("a", "b")] == [b"0", b"1"]
        damage(store, b"queues/taken/")
        store.engine.commit(Commit((), (Put(b"queues/items/q/int64/!", b"of no number"),)))
        assert records.take(key, "c", 600.0).item == b"2"
        damage(store, b"queues/items/q/int64/0")  # An item has any bytes: it is given as it is.
        assert records.take(key, "d", 600.0).item == b"no record"
        clock.advance(90)
        assert records.take(key, "e", 600.0).item == b"1"
        records.settle(key, 1, "e", is_done=True)
        records.settle(key, 2, "c", is_done=True)
        records.settle(key, 3, "d", is_done=True)
        nothing = records.take(key, "f", 60.0)
        assert (nothing.is_item, nothing.has_taken) == (False, False)
        with pytest.raises(CorruptionError):
            records.settle(key, 0, "a", is_done=True)


def test_a_producer_whose_record_is_damaged_is_waited_for_as_long_as_it_said(clock: FakeClock) -> None:
    with Store(open_engine("memory:")) as store:
        records, key = QueueRecords(store, clock), QueueKey("q", "int64")
        records.create(key)
        records.enter(key, "p", 60.0)
        damage(store, b"queues/producers/")
        assert records.take(key, "t", 60.0).has_producers
        clock.advance(90)
        assert not records.take(key, "t", 60.0).has_producers
        clock.advance(2 * 86_400)
        records.enter(key, "z", 60.0)
        assert records.take(key, "t", 60.0).has_producers
