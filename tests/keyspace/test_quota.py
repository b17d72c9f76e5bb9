"""The brake of a quota: it refuses what would exceed it, only after a count, and lets through all else."""

from collections.abc import Callable

import pytest

from keyplan.engine import Commit, Delete, Engine, KeyRange, MemoryEngine, Put
from keyplan.errors import QuotaExceededError
from keyplan.keyspace import KeySpaceRegistry, KeySpaces, KeySpaceStore, open_key_space
from keyplan.testing.faults import FakeClock
from tests.keyspace.stores import Item, Shop


@pytest.fixture
def store(memory: Engine) -> KeySpaceStore:
    """A key space with room for 100 keys, open without a session."""
    registry = KeySpaces(memory)
    registry.create("a", "shop")
    registry.set_quota("a", keys=100)
    return open_key_space(memory, "a", "shop", session_seconds=None)


def test_overwriting_one_record_uses_nothing_up(store: KeySpaceStore) -> None:
    items = Shop(store).items
    for number in range(150):
        items.put("one", Item(str(number)))
    items.put("two", Item("x"))


def test_putting_and_deleting_in_turn_uses_nothing_up(store: KeySpaceStore) -> None:
    items = Shop(store).items
    for _ in range(150):
        items.put("one", Item("x"))
        items.delete("one")
    items.put("two", Item("x"))


def test_readers_and_idle_handles_take_no_room_away(store: KeySpaceStore, memory: Engine) -> None:
    others = [open_key_space(memory, "a", name) for name in ("shop", "shop", "reader", "reader", "reader")]
    items = Shop(store).items
    for number in range(100):
        items.insert(str(number), Item("x"))
    with pytest.raises(QuotaExceededError):
        items.insert("one too many", Item("x"))
    for other in others:
        other.close()


def test_room_that_this_handle_made_is_there_at_once(store: KeySpaceStore) -> None:
    items = Shop(store).items
    for number in range(100):
        items.insert(str(number), Item("x"))
    with pytest.raises(QuotaExceededError):
        items.insert("x", Item("x"))
    items.delete("0")
    items.insert("x", Item("x"))


def test_room_that_a_smaller_value_made_is_there_at_once(memory: Engine) -> None:
    registry = KeySpaces(memory)
    registry.create("a", "shop")
    registry.set_quota("a", bytes=100)
    store = open_key_space(memory, "a", "shop", session_seconds=None)
    for value, other in ((b"", 90), (b"12345678", 80)):  # what does not fit the part by its size, and what does
        store.engine.commit(Commit((), (Put(b"x", b"-" * 89), Delete(b"y"))))
        with pytest.raises(QuotaExceededError):
            store.engine.commit(Commit((), (Put(b"y", b"-" * 50),)))
        store.engine.commit(Commit((), (Put(b"x", value),)))
        store.engine.commit(Commit((), (Put(b"y", b"-" * other),)))


def test_a_count_writes_nothing_to_the_registry(store: KeySpaceStore, memory: Engine) -> None:
    """A write there may fail, and would be told as the failure of the commit that is weighed."""
    start, end = KeySpaceRegistry.bound().tables["usage"].keys.range(())
    Shop(store).items.put("1", Item("x"))
    with memory.snapshot() as snapshot:
        assert list(snapshot.scan(KeyRange(start, end))) == []


def test_a_full_key_space_is_not_counted_for_each_refusal() -> None:
    clock = FakeClock()
    with MemoryEngine(clock=clock) as engine:
        registry = KeySpaces(engine, clock=clock)
        registry.create("a", "shop")
        registry.set_quota("a", keys=1)
        with open_key_space(engine, "a", "shop", session_seconds=None, clock=clock) as store:
            refused(store, b"x", b"y")
            engine.commit(Commit((), (Put(b"\x01z", b""),)))
            for _ in range(3):
                refused(store, b"x", b"y")
            engine.commit(Commit((), (Delete(b"\x01z"),)))
            clock.advance(2)
            store.engine.commit(Commit((), (Put(b"x", b""),)))
            refused(store, b"y")


def refused(store: KeySpaceStore, *keys: bytes) -> None:
    with pytest.raises(QuotaExceededError):
        store.engine.commit(Commit((), tuple(Put(key, b"") for key in keys)))


CHANGES: list[Callable[[KeySpaces], object]] = [
    lambda registry: registry.set_quota("a", keys=0),
    lambda registry: registry.set_quota("a", bytes=1),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_handle_without_a_session_hears_of_a_changed_quota(change: Callable[[KeySpaces], object]) -> None:
    clock = FakeClock()
    with MemoryEngine(clock=clock) as engine:
        registry = KeySpaces(engine, clock=clock)
        registry.create("a", "shop")
        with open_key_space(engine, "a", "shop", session_seconds=None, clock=clock) as store:
            Shop(store).items.put("1", Item("x"))
            change(registry)
            clock.advance(2)
            with pytest.raises(QuotaExceededError):
                Shop(store).items.put("2", Item("x"))
            registry.set_quota("a")
            clock.advance(2)
            Shop(store).items.put("2", Item("x"))
