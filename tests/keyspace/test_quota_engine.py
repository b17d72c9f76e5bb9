"""Quotas as an engine of raw keys keeps to them: whoever writes, in each key space that a commit comes to."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Final

import pytest

from keyplan.engine import (
    ALL_KEYS,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    KeyAbsent,
    KeyRange,
    MemoryEngine,
    Mutation,
    Profile,
    Put,
    WrappedEngine,
    open_engine,
)
from keyplan.errors import CommitConflictError, QuotaExceededError
from keyplan.keyspace import KeySpaces, QuotaEngine, handle, open_key_space
from keyplan.keyspace.layout import SessionKey
from keyplan.keyspace.rows import key_of
from keyplan.keyspace.usage import counted
from keyplan.testing.faults import FakeClock
from tests.keyspace.stores import swept

ROOM: Final = 5
"""Keys that the key space of the tests may hold."""


@pytest.fixture(params=["memory", "lmdb", "lmdb-raw"])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    history = "&history=off" if request.param == "lmdb-raw" else ""
    with open_engine("memory:" if request.param == "memory" else f"lmdb:{tmp_path}?durability=none{history}") as opened:
        yield opened


@pytest.fixture
def engine(inner: Engine) -> QuotaEngine:
    # Why a clock that stands: on a busy machine any count may take long.
    return QuotaEngine(inner, clock=FakeClock())


@pytest.fixture
def prefix(inner: Engine) -> bytes:
    """Of a key space with room for five keys; its neighbours on both sides have no quota."""
    registry = KeySpaces(inner)
    made = [registry.create(name, "shop") for name in ("before", "a", "behind")]
    registry.set_quota("a", keys=ROOM)
    return made[1].raw_prefix


def write(engine: Engine, *mutations: Mutation) -> None:
    engine.commit(Commit((), mutations))


def fill(engine: Engine, prefix: bytes, number: int = ROOM) -> None:
    for at in range(number):
        write(engine, Put(prefix + b"%d" % at, b"x"))


def keys_below(engine: Engine, prefix: bytes) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.count(KeyRange.of_prefix(prefix))


def is_refused(engine: Engine, *mutations: Mutation) -> bool:
    """Tell whether a commit is refused, and that nothing of it is written then."""
    with engine.snapshot() as snapshot:
        before = list(snapshot.scan(ALL_KEYS))
    try:
        write(engine, *mutations)
    except QuotaExceededError:
        with engine.snapshot() as snapshot:
            assert list(snapshot.scan(ALL_KEYS)) == before
        return True
    return False


def test_so_many_keys_are_taken_and_not_one_more(engine: Engine, prefix: bytes) -> None:
    fill(engine, prefix)
    assert is_refused(engine, Put(prefix + b"one more", b"x"))
    assert is_refused(engine, Put(prefix, b"x")), "the prefix itself is a key of the key space"
    assert keys_below(engine, prefix) == ROOM


def test_the_neighbours_are_not_counted(engine: Engine, inner: Engine, prefix: bytes) -> None:
    fill(engine, prefix)
    for name in ("before", "behind"):
        other = KeySpaces(inner).get(name).raw_prefix
        fill(engine, other, 2 * ROOM)
    fill(engine, b"zz", 2 * ROOM)
    assert is_refused(engine, Put(b"zz", b"x"), Put(prefix + b"one more", b"x")), "the whole commit"


def test_overwriting_is_taken_when_full(engine: Engine, prefix: bytes) -> None:
    fill(engine, prefix)
    for _ in range(3 * ROOM):
        fill(engine, prefix)
    assert is_refused(engine, Put(prefix + b"0", b"y"), Put(prefix + b"one more", b"x"))


@pytest.mark.parametrize(
    "removal",
    [
        lambda prefix: Delete(prefix + b"0"),
        lambda prefix: DeleteRange(KeyRange(prefix + b"0", prefix + b"1")),
        lambda prefix: DeleteRange(KeyRange(b"\x01", prefix + b"1")),
    ],
)
def test_what_is_removed_makes_room_for_as_much(
    removal: Callable[[bytes], Mutation], engine: Engine, prefix: bytes
) -> None:
    fill(engine, prefix)
    assert is_refused(engine, Put(prefix + b"new", b"x"))
    write(engine, removal(prefix))
    assert not is_refused(engine, Put(prefix + b"new", b"x"))
    assert is_refused(engine, Put(prefix + b"newer", b"x"))


def test_a_commit_that_removes_as_much_as_it_writes_is_taken(engine: Engine, prefix: bytes) -> None:
    fill(engine, prefix)
    for at in range(10):
        write(engine, DeleteRange(KeyRange.of_key(prefix + b"%d" % (at % ROOM))), Put(prefix + b"new", b"x"))
        write(engine, Delete(prefix + b"new"), Put(prefix + b"%d" % (at % ROOM), b"x"))
    # Five are removed below the prefix, and as many behind it: those of a neighbour make no room.
    fill(engine, b"zz")
    outside, inside = DeleteRange(KeyRange.of_prefix(b"zz")), Delete(prefix + b"0")
    assert is_refused(engine, outside, inside, Put(prefix + b"new", b"x"), Put(prefix + b"newer", b"x"))


def test_bytes_are_counted_without_the_prefix(engine: Engine, inner: Engine) -> None:
    registry = KeySpaces(inner)
    prefix = registry.create("a", "shop").raw_prefix
    registry.set_quota("a", bytes=10)
    assert is_refused(engine, Put(prefix + b"key", b"1234567!"))
    assert not is_refused(engine, Put(prefix + b"key", b"1234567"))
    assert is_refused(engine, Put(prefix + b"k", b""))
    assert not is_refused(engine, Put(prefix + b"key", b"123456"))
    assert not is_refused(engine, Put(prefix + b"k", b""))


def test_each_key_space_that_a_commit_comes_to_is_counted(engine: Engine, inner: Engine, prefix: bytes) -> None:
    registry = KeySpaces(inner)
    other = registry.create("b", "bank").raw_prefix
    registry.set_quota("b", keys=1)
    write(engine, Put(prefix + b"0", b"x"), Put(other + b"0", b"x"))
    with pytest.raises(QuotaExceededError) as refused:
        write(engine, Put(prefix + b"1", b"x"), Put(other + b"1", b"x"))
    assert refused.value.facts["name"] == "b"
    write(engine, DeleteRange(KeyRange(b"\x01", None)))
    write(engine, Put(prefix + b"1", b"x"), Put(other + b"1", b"x"))
    assert (keys_below(engine, prefix), keys_below(engine, other)) == (1, 1)


def test_what_fails_for_another_reason_takes_no_room(engine: Engine, prefix: bytes) -> None:
    fill(engine, prefix, ROOM - 1)
    for _ in range(2 * ROOM):
        with pytest.raises(CommitConflictError):
            engine.commit(Commit((KeyAbsent(prefix + b"0"),), (Put(prefix + b"new", b"x"),)))
    assert not is_refused(engine, Put(prefix + b"new", b"x"))


@pytest.mark.parametrize(
    "way",
    [
        lambda engine, keys: engine.load((key, b"x") for key in keys),
        lambda engine, keys: engine.put_sorted(keys, [b"x"] * len(keys)),
    ],
)
def test_no_other_way_of_writing_leads_past_it(
    way: Callable[[Engine, list[bytes]], object], engine: Engine, prefix: bytes
) -> None:
    with pytest.raises(QuotaExceededError):
        way(engine, [prefix + b"%02d" % at for at in range(2 * ROOM)])
    assert keys_below(engine, prefix) <= ROOM


def test_many_writers_at_once_write_no_more_than_that(engine: Engine, prefix: bytes) -> None:
    def write_ten(name: int) -> None:
        for at in range(10):
            is_taken = False
            try:
                write(engine, Put(prefix + b"%d-%d" % (name, at), b"x"))
                is_taken = True
            except QuotaExceededError:
                pass
            taken.append(is_taken)

    taken: list[bool] = []
    threads = [Thread(target=write_ten, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert keys_below(engine, prefix) == sum(taken) == ROOM


def test_putting_and_deleting_in_turn_in_a_full_key_space_is_not_counted_each_time(
    engine: Engine, prefix: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[bytes] = []

    def counted_and_noted(of: Engine, below: bytes) -> tuple[int, int]:
        counts.append(below)
        return counted(of, below)

    monkeypatch.setattr(handle, "counted", counted_and_noted)
    fill(engine, prefix)
    counts.clear()
    for _ in range(20):
        write(engine, Delete(prefix + b"0"))
        write(engine, Put(prefix + b"0", b"x"))
    assert len(counts) <= 1
    assert is_refused(engine, Put(prefix + b"one more", b"x"))
    with pytest.raises(CommitConflictError):
        engine.commit(Commit((KeyAbsent(prefix + b"0"),), (Delete(prefix + b"0"),)))
    assert is_refused(engine, Put(prefix + b"one more", b"x")), "what failed has made no room"


def test_many_who_put_and_delete_the_same_keys_at_once_write_no_more_than_that(engine: Engine, prefix: bytes) -> None:
    def put_and_delete(seed: int) -> None:
        chosen = Random(seed)
        for _ in range(100):
            key = prefix + b"%d" % chosen.randrange(2 * ROOM)
            with suppress(QuotaExceededError):
                write(engine, Put(key, b"x") if chosen.randrange(2) else Delete(key))
            most.append(keys_below(engine, prefix))

    most: list[int] = []
    fill(engine, prefix)
    threads = [Thread(target=put_and_delete, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == ROOM


def test_a_count_that_takes_long_is_followed_by_none_for_three_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, counts = FakeClock(), 0

    def counted_slowly(of: Engine, below: bytes) -> tuple[int, int]:
        nonlocal counts
        counts += 1
        clock.advance(5.0)
        return counted(of, below)

    with MemoryEngine(clock=clock) as inner:
        registry = KeySpaces(inner, clock=clock)
        prefix = registry.create("a", "shop").raw_prefix
        registry.set_quota("a", keys=4)
        engine = QuotaEngine(inner, clock=clock, closes_inner=False)
        monkeypatch.setattr(handle, "counted", counted_slowly)
        for at in range(4):
            write(engine, Put(prefix + b"%d" % at, b"x"))
        assert counts == 1
        inner.commit(Commit((), (Delete(prefix + b"0"),)))
        clock.advance(14.0)
        assert is_refused(engine, Put(prefix + b"4", b"x"))
        assert counts == 1
        clock.advance(1.0)
        write(engine, Put(prefix + b"4", b"x"))
        assert counts == 2


def test_who_has_used_up_their_part_is_refused_nothing_that_there_was_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()

    def counted_slowly(of: Engine, below: bytes) -> tuple[int, int]:
        clock.advance(5.0)
        return counted(of, below)

    with MemoryEngine(clock=clock) as inner:
        registry = KeySpaces(inner, clock=clock)
        prefix = registry.create("a", "shop").raw_prefix
        registry.set_quota("a", keys=10)
        engine = QuotaEngine(inner, clock=clock, closes_inner=False)
        monkeypatch.setattr(handle, "counted", counted_slowly)
        # Why opened: the room is shared with it, though it writes nothing.
        with open_key_space(inner, "a", application="shop", clock=clock):
            for at in range(10):
                write(engine, Put(prefix + b"%d" % at, b"x"))
            assert is_refused(engine, Put(prefix + b"more", b"x"))


def test_a_count_stops_nobody_who_writes_elsewhere_also_where_quotas_change(
    engine: Engine, inner: Engine, prefix: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, released = Event(), Event()

    def counted_slowly(of: Engine, below: bytes) -> tuple[int, int]:
        reached.set()
        assert released.wait(60)
        return counted(of, below)

    monkeypatch.setattr(handle, "counted", counted_slowly)
    write(engine, Put(b"zz", b"x"))
    counting = Thread(target=write, args=(engine, Put(prefix + b"0", b"x")))
    counting.start()
    try:
        assert reached.wait(60)
        KeySpaces(inner).set_quota("a", keys=1)
        elsewhere = Thread(target=write, args=(engine, Put(b"zz", b"y")), daemon=True)
        elsewhere.start()
        elsewhere.join(20)
        assert not elsewhere.is_alive(), "it waits for a count of what it does not come to"
    finally:
        released.set()
        counting.join()
    assert is_refused(engine, Put(prefix + b"1", b"x")), "the quota that came while it was counted"


def test_what_the_owner_writes_with_the_library_counts(engine: Engine, inner: Engine, prefix: bytes) -> None:
    with open_key_space(inner, "a", "shop", session_seconds=None) as store:
        fill(store.engine, b"", ROOM - 1)
        assert not is_refused(engine, Put(prefix + b"x", b"x"))
        assert is_refused(engine, Put(prefix + b"y", b"x"))


# ---- which quotas there are ------------------------------------------------------------------------------------------


def test_a_quota_that_is_changed_counts_at_once_where_reads_are_local(engine: Engine, inner: Engine) -> None:
    registry = KeySpaces(inner)
    prefix = registry.create("a", "shop").raw_prefix
    fill(engine, prefix)
    registry.set_quota("a", keys=ROOM)
    assert is_refused(engine, Put(prefix + b"6", b"x"))
    registry.set_quota("a", keys=ROOM + 1)
    assert not is_refused(engine, Put(prefix + b"6", b"x"))
    assert is_refused(engine, Put(prefix + b"7", b"x"))
    registry.set_quota("a")
    assert not is_refused(engine, Put(prefix + b"7", b"x"))


def test_who_comes_after_a_deleted_key_space_has_none_of_its_quota(
    engine: Engine, inner: Engine, prefix: bytes
) -> None:
    fill(engine, prefix)
    registry = KeySpaces(inner)
    swept(registry, "a")
    assert not is_refused(engine, Put(prefix + b"one more", b"x")), "it is nobody's"
    fill(engine, registry.create("a", "shop").raw_prefix, 2 * ROOM)


def test_a_damaged_session_stops_nobody_and_takes_its_part(engine: Engine, inner: Engine, prefix: bytes) -> None:
    write(inner, Put(key_of("sessions", SessionKey("a", 7)), b"nonsense"))
    fill(engine, prefix)
    assert is_refused(engine, Put(prefix + b"one more", b"x"))


def test_a_damaged_quota_stops_nobody(engine: Engine, inner: Engine, prefix: bytes) -> None:
    write(inner, Put(key_of("quotas", "a"), b"nonsense"))
    fill(engine, prefix, 2 * ROOM)


class Distant(WrappedEngine):
    """An engine whose reads are calls over a network, as it says; it counts them."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.reads = 0

    @property
    def profile(self) -> Profile:
        return replace(self.inner.profile, has_local_reads=False)

    def value(self, key: bytes) -> bytes | None:
        self.reads += 1
        return self.inner.value(key)


def test_where_reads_are_calls_one_is_made_each_second(inner: Engine) -> None:
    clock, distant = FakeClock(), Distant(inner)
    engine = QuotaEngine(distant, clock=clock)
    registry = KeySpaces(inner)
    prefix = registry.create("a", "shop").raw_prefix
    fill(engine, prefix)
    registry.set_quota("a", keys=ROOM)
    fill(engine, prefix, 2 * ROOM)
    assert distant.reads == 0
    clock.advance(1.0)
    assert is_refused(engine, Put(prefix + b"one more", b"x"))
    assert distant.reads == 1
    clock.advance(1.0)
    for _ in range(10):
        fill(engine, prefix)
    assert distant.reads == 2
