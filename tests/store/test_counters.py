"""Counters: each number handed out once."""

# ruff: noqa: PT012  # Why: what raises is the end of a transaction's block.

import threading

import pytest

from keyplan.errors import CorruptionError, InvalidInputError
from keyplan.store import Store
from tests.store.engines import Race
from tests.store.layouts import Events, Site


def test_numbers_come_in_order_from_the_start(site: Site) -> None:
    assert site.ports.peek() == 33000
    assert [site.ports.next(), site.ports.next(), site.ports.next(3), site.ports.next()] == [33000, 33001, 33002, 33005]
    assert site.ports.peek() == 33006


@pytest.mark.leaves("key-outside")
def test_a_text_counter_is_decimal_and_a_binary_one_eight_bytes(site: Site, store: Store) -> None:
    site.ports.next()
    Events(store).serial.next()

    with store.engine.snapshot() as snapshot:
        text, binary = snapshot.get(b"/site/next-port"), snapshot.get(b"E!serial")
    assert text is not None
    assert text.value == b"33001"
    assert binary is not None
    assert binary.value == b"\x00\x00\x00\x00\x00\x00\x00\x08"


def test_advancing_raises_and_never_lowers(site: Site, store: Store) -> None:
    assert site.ports.advance_to(40000) == 40000
    revision = store.revision
    assert site.ports.advance_to(39000) == 40000
    assert store.revision == revision
    assert site.ports.next() == 40000


def test_an_untouched_counter_stays_absent_when_it_need_not_advance(site: Site, store: Store) -> None:
    assert site.ports.advance_to(10) == 33000
    assert store.revision == 0


def test_a_store_bound_counter_takes_the_next_number_after_a_lost_race(site: Site, race: Race) -> None:
    race.between(site.ports.next)

    assert site.ports.next() == 33001
    assert site.ports.peek() == 33002


def test_numbers_of_a_failed_transaction_are_handed_out_again(site: Site) -> None:
    with pytest.raises(ZeroDivisionError), site.transaction() as tx:
        assert tx.ports.next() == 33000
        assert tx.ports.next() == 33001
        assert tx.ports.peek() == 33002
        raise ZeroDivisionError

    assert site.ports.next() == 33000


def test_a_transaction_takes_numbers_with_its_records(site: Site) -> None:
    with site.transaction() as tx:
        first = tx.ports.next()
        tx.flags.insert(str(first), None)
        assert tx.ports.advance_to(34000) == 34000
        assert tx.ports.next(2) == 34000

    assert site.ports.peek() == 34002
    assert list(site.flags.keys()) == ["33000"]


def test_threads_never_get_the_same_number(race: Race) -> None:
    site = Site(Store(race))  # Why: real waits; without them a thread may lose every race of its bound.
    taken: list[int] = []

    def take() -> None:
        taken.extend(site.ports.next() for _ in range(25))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken) == list(range(33000, 33100))


@pytest.mark.parametrize("count", [0, -1])
def test_at_least_one_number_is_taken(site: Site, count: int) -> None:
    with pytest.raises(InvalidInputError):
        site.ports.next(count)


@pytest.mark.leaves("key-outside")
def test_a_counter_ends_at_64_bits(site: Site, store: Store) -> None:
    serial = Events(store).serial
    assert serial.advance_to(2**64 - 1) == 2**64 - 1
    with pytest.raises(InvalidInputError):
        serial.next()
    with pytest.raises(InvalidInputError):
        site.ports.advance_to(2**64)


@pytest.mark.leaves("damaged-counter")
@pytest.mark.parametrize("raw", [b"many", b"9" * 21, b"9" * 5_000], ids=["text", "too large", "too long to be read"])
def test_a_counter_that_is_no_number_is_corruption(site: Site, store: Store, raw: bytes) -> None:
    store.engine.load([(b"/site/next-port", raw)])

    with pytest.raises(CorruptionError):
        site.ports.peek()
    with pytest.raises(CorruptionError):
        site.ports.next()
