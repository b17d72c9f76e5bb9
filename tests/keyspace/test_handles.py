"""Open key spaces: isolation, the fence in every commit, foreign owners, sessions. AC numbers are the specification's cases."""

from collections.abc import Callable, Iterator
from threading import Event as Signal

import pytest

from keyplan import Layout
from keyplan.engine import (
    ALL_KEYS,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    Entry,
    EventKind,
    FailedGuard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    MemoryEngine,
    Put,
    RecordingEngine,
    Snapshot,
    WrappedEngine,
    WrappedSnapshot,
)
from keyplan.errors import (
    CommitConflictError,
    EngineLimitError,
    EngineUnavailableError,
    GenerationMismatchError,
    KeyOutOfKeySpaceError,
    KeyplanError,
    KeySpaceDeletedError,
    KeySpaceDeletingError,
    KeySpaceDisabledError,
    OwnerMismatchError,
    QuotaExceededError,
)
from keyplan.keyspace import KeySpaces, KeySpaceStore, Mode, Sweeper, open_key_space, open_restoring
from keyplan.testing.faults import FakeClock
from tests.keyspace.stores import Item, Shop, put_raw, raw_content, swept

WAIT_SECONDS = 60.0


@pytest.fixture
def opened(engine: Engine, registry: KeySpaces) -> Iterator[Callable[..., KeySpaceStore]]:
    """Opens key spaces of the application "shop", made when missing, without a session; closes them at the end."""
    stores: list[KeySpaceStore] = []

    def open_one(name: str, application: str = "shop", **options: object) -> KeySpaceStore:
        arguments: dict[str, object] = {
            "create_if_missing": True,
            "session_seconds": None,
            "registry": registry,
            **options,
        }
        store = open_key_space(engine, name, application, **arguments)  # type: ignore[arg-type]  # Why: a shorthand
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        store.close()


Opened = Callable[..., KeySpaceStore]


# ---- isolation -----------------------------------------------------------------------------------------------------------


def test_ac_32_two_key_spaces_have_each_its_own_of_one_key(engine: Engine, opened: Opened) -> None:
    orders, users = opened("orders"), opened("users")
    for store, note in ((orders, "order"), (users, "user")):
        Shop(store).items.insert("1", Item(note))
    put_raw(engine, b"\x01\xff" * 3, b"\x03", b"\x03\x00")
    assert [Shop(store).items.require("1").note for store in (orders, users)] == ["order", "user"]
    assert list(Shop(orders).items.list()) == [("1", Item("order"))]
    with users.engine.snapshot() as snapshot:
        assert [entry.key for entry in snapshot.scan(ALL_KEYS)] == [b"/shop/items/1"]
        assert [entry.key for entry in snapshot.scan(ALL_KEYS, reverse=True)] == [b"/shop/items/1"]
        assert snapshot.count(ALL_KEYS) == 1
    assert raw_content(engine)[b"\x02/shop/items/1"] == b'{"note":"user"}'


def test_ac_33_the_empty_key_and_the_highest_stay_inside(engine: Engine, opened: Opened) -> None:
    store, highest = opened("orders"), b"\xff" * 64
    store.engine.commit(Commit((), (Put(b"", b"low"), Put(highest, b"high"))))
    with store.engine.snapshot() as snapshot:
        assert [(entry.key, entry.value) for entry in snapshot.scan(ALL_KEYS)] == [(b"", b"low"), (highest, b"high")]
    assert set(raw_content(engine)) == {b"\x01", b"\x01" + highest}
    put_raw(engine, b"\x02", b"\x00\xff")
    store.engine.commit(Commit((), (DeleteRange(ALL_KEYS),)))
    assert set(raw_content(engine)) == {b"\x02"}


def test_ac_34_a_watch_delivers_the_key_spaces_own_changes(memory: Engine) -> None:
    KeySpaces(memory)
    orders, users = (
        open_key_space(memory, name, "shop", create_if_missing=True, session_seconds=None)
        for name in ("orders", "users")
    )
    watch = orders.engine.watch(ALL_KEYS, after=orders.revision)
    Shop(users).items.insert("1", Item("theirs"))
    Shop(orders).items.insert("1", Item("ours"))
    Shop(orders).items.delete("1")
    events = [event for _ in range(2) for event in watch.poll(0)]
    assert [(event.kind, event.key) for event in events] == [
        (EventKind.CREATED, b"/shop/items/1"),
        (EventKind.DELETED, b"/shop/items/1"),
    ]


def test_a_guard_that_fails_is_told_in_the_callers_own_keys(opened: Opened) -> None:
    store = opened("orders")
    store.engine.commit(Commit((), (Put(b"a", b"1"),)))
    with pytest.raises(CommitConflictError) as caught:
        store.engine.commit(Commit((KeyAbsent(b"a"),), (Put(b"b", b"1"),)))
    with store.engine.snapshot() as snapshot:
        entry = snapshot.get(b"a")
    assert entry is not None
    assert caught.value.failed == (FailedGuard(KeyAbsent(b"a"), b"a", entry.mod_revision),)


def test_limits_are_those_that_the_prefix_leaves(opened: Opened) -> None:
    store = opened("orders")
    limit = store.engine.profile.key_bytes_max
    if limit is None:
        pytest.skip("the engine has no limit for keys")
    store.engine.commit(Commit((), (Put(b"k" * limit, b""),)))
    with pytest.raises(EngineLimitError) as caught:
        store.engine.commit(Commit((), (Put(b"k" * (limit + 1), b""),)))
    assert (caught.value.allowed, caught.value.actual) == (limit, limit + 1)


class ForeignEngine(WrappedEngine):
    """An engine that answers a scan with a key of somebody else's."""

    def snapshot(self) -> Snapshot:
        return ForeignSnapshot(self.inner.snapshot())


class ForeignSnapshot(WrappedSnapshot):
    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        if key_range.start.startswith(b"\x01"):
            yield Entry(b"mD\x02", b"secret", 1, 1, 1, 0)
        yield from self.inner.scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only)


def test_a_key_of_another_is_never_handed_on() -> None:
    with MemoryEngine() as memory:
        KeySpaces(memory).create("orders", "shop")
        with open_key_space(ForeignEngine(memory), "orders", "shop", session_seconds=None) as store:
            with pytest.raises(KeyOutOfKeySpaceError) as caught, store.engine.snapshot() as snapshot:
                list(snapshot.scan(ALL_KEYS))
            assert (caught.value.code, caught.value.raw_key) == ("key_out_of_keyspace", "6d4402")
            assert "secret" not in str(caught.value)


# ---- the fence -----------------------------------------------------------------------------------------------------------


WRITES = [
    pytest.param(lambda shop: shop.items.put("2", Item("b")), id="put"),
    pytest.param(lambda shop: shop.items.insert("2", Item("b")), id="insert"),
    pytest.param(lambda shop: shop.items.update("1", Item("b")), id="update"),
    pytest.param(lambda shop: shop.items.modify("1", lambda item: Item(item.note * 2)), id="modify"),
    pytest.param(lambda shop: shop.items.delete("1"), id="delete"),
    pytest.param(lambda shop: shop.items.rename("1", "2"), id="rename"),
    pytest.param(lambda shop: shop.run(lambda tx: tx.items.put("2", Item("b"))), id="run"),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_disabled_key_space_is_read_and_not_written_and_goes_on_when_enabled(
    opened: Opened, registry: KeySpaces, engine: Engine, write: Callable[[Layout], object]
) -> None:
    shop = Shop(opened("orders"))
    shop.items.insert("1", Item("a"))
    registry.disable("orders")
    before = raw_content(engine)
    with pytest.raises(KeySpaceDisabledError):
        write(shop)
    assert raw_content(engine) == before
    assert shop.items.get("1") == Item("a")
    registry.enable("orders")
    write(shop)
    assert raw_content(engine) != before


def test_ac_40_every_write_after_a_deletion_began_fails(opened: Opened, registry: KeySpaces, engine: Engine) -> None:
    store = opened("orders")
    shop = Shop(store)
    for number in range(20):
        shop.items.insert(str(number), Item("a"))
    sweeper = Sweeper(registry, batch_keys=3)
    registry.configure({"max-client-lease-seconds": 0})
    registry.delete("orders")
    steps = 0
    while sweeper.step("orders").stage == "sweeping":
        steps += 1
        for write in WRITES:
            with pytest.raises(KeySpaceDeletingError):
                write.values[0](shop)  # type: ignore[operator]  # Why: a parameter set of pytest holds anything
    assert steps == 7
    assert raw_content(engine) == {}
    with pytest.raises(KeySpaceDeletingError):
        shop.items.put("late", Item("x"))
    assert (store.is_open, type(store.closed_by)) == (False, KeySpaceDeletingError)


def test_a_handle_of_an_earlier_generation_writes_nothing(opened: Opened, registry: KeySpaces, engine: Engine) -> None:
    old = Shop(opened("orders"))
    swept(registry, "orders")
    new = Shop(opened("orders"))
    new.items.insert("1", Item("new"))
    before = raw_content(engine)
    with pytest.raises(GenerationMismatchError) as caught:
        old.items.insert("2", Item("old"))
    assert (caught.value.generation, caught.value.current) == (1, 2)
    with pytest.raises(GenerationMismatchError):
        old.items.get("1")
    assert raw_content(engine) == before


def test_a_handle_after_the_deletion_says_that_it_was_deleted(opened: Opened, registry: KeySpaces) -> None:
    shop = Shop(opened("orders"))
    swept(registry, "orders")
    with pytest.raises(KeySpaceDeletedError):
        shop.items.insert("2", Item("old"))


def test_an_undelete_that_nobody_noticed_lets_a_handle_go_on(opened: Opened, registry: KeySpaces) -> None:
    shop = Shop(opened("orders"))
    registry.delete("orders")
    registry.undelete("orders")
    shop.items.insert("1", Item("still here"))
    assert shop.items.count() == 1


def test_a_load_does_not_pass_the_fence_by(opened: Opened, registry: KeySpaces, engine: Engine) -> None:
    store = opened("orders")
    assert store.engine.load((b"%04d" % number, b"x") for number in range(300)) == 300
    registry.disable("orders")
    with pytest.raises(KeySpaceDisabledError):
        store.engine.load([(b"9999", b"x")])
    with pytest.raises(KeySpaceDisabledError):
        store.engine.put_sorted([b"9999"], [b"x"])
    assert len(raw_content(engine)) == 300


def test_a_closed_handle_does_nothing_more_and_leaves_the_engine_open(opened: Opened, engine: Engine) -> None:
    store = opened("orders")
    store.close()
    with pytest.raises(EngineUnavailableError):
        Shop(store).items.get("1")
    with engine.snapshot() as snapshot:
        assert snapshot.get(b"none") is None


def test_only_the_restore_writes_to_a_key_space_that_is_restored(
    opened: Opened, registry: KeySpaces, engine: Engine
) -> None:
    Shop(opened("orders")).items.insert("old", Item("a"))
    begun = registry.begin_overwrite("orders")
    with open_restoring(engine, begun) as restoring:
        assert Sweeper(registry, batch_keys=1).wipe(begun) == 1
        Shop(restoring).items.insert("new", Item("b"))
        registry.finish_restore("orders", begun.generation)
        with pytest.raises(GenerationMismatchError):
            Shop(restoring).items.insert("late", Item("c"))
    assert dict(Shop(opened("orders")).items.list()) == {"new": Item("b")}


# ---- owners --------------------------------------------------------------------------------------------------------------


def test_ac_35_another_application_reads_and_does_not_write_unless_that_is_wanted(opened: Opened) -> None:
    Shop(opened("orders")).items.insert("1", Item("a"))
    foreign = Shop(opened("orders", "bank"))
    assert foreign.items.get("1") == Item("a")
    assert list(foreign.items.keys()) == ["1"]
    for write in WRITES:
        with pytest.raises(OwnerMismatchError) as caught:
            write.values[0](foreign)  # type: ignore[operator]  # Why: as above
        assert (caught.value.application, caught.value.owner) == ("bank", "shop")
    agreed = Shop(opened("orders", "bank", allow_foreign_write=True))
    agreed.items.put("1", Item("both"))
    assert foreign.items.get("1") == Item("both")


# ---- quota ---------------------------------------------------------------------------------------------------------------


def test_a_quota_refuses_what_would_exceed_it_and_nothing_else(registry: KeySpaces, opened: Opened) -> None:
    registry.create("orders", "shop")
    registry.set_quota("orders", keys=3)
    shop = Shop(opened("orders"))
    for number in range(3):
        shop.items.insert(str(number), Item("a"))
    with pytest.raises(QuotaExceededError) as caught:
        shop.items.insert("3", Item("a"))
    assert (caught.value.limit, caught.value.allowed, caught.value.actual) == ("keys", 3, 4)
    shop.items.put("2", Item("written over"))
    shop.items.rename("2", "two")
    assert registry.usage("orders").keys == 3


def test_room_that_was_made_is_found_by_the_next_count(memory: Engine) -> None:
    clock = FakeClock()
    registry = KeySpaces(memory, clock=clock)
    registry.create("orders", "shop")
    registry.set_quota("orders", bytes=100)
    store = open_key_space(memory, "orders", "shop", session_seconds=None, clock=clock)
    shop = Shop(store)
    shop.items.insert("1", Item("x" * 60))
    with pytest.raises(QuotaExceededError):
        shop.items.insert("2", Item("x" * 60))
    shop.items.delete("1")
    clock.advance(2)
    shop.items.insert("2", Item("x" * 60))
    usage = registry.usage("orders")
    assert (usage.keys, usage.bytes, usage.quota.bytes) == (1, len("/shop/items/2") + len('{"note":""}') + 60, 100)


# ---- sessions ------------------------------------------------------------------------------------------------------------


def test_an_open_key_space_shows_who_has_it_open_until_it_is_closed(memory: Engine) -> None:
    registry = KeySpaces(memory)
    store = open_key_space(memory, "orders", "shop", create_if_missing=True)
    ((lease, session),) = registry.sessions("orders")
    assert (lease, session.application, session.generation) == (store.session, "shop", 1)
    store.close()
    assert registry.sessions("orders") == []
    assert store.mode is Mode.REGISTRY


@pytest.mark.slow
def test_a_deletion_is_delivered_to_a_handle_that_does_nothing(opener: Callable[[], Engine]) -> None:
    told: list[KeyplanError] = []
    is_told = Signal()

    def on_close(error: KeyplanError) -> None:
        told.append(error)
        is_told.set()

    with opener() as one, opener() as other:
        store = open_key_space(one, "orders", "shop", create_if_missing=True, session_seconds=2, on_close=on_close)
        KeySpaces(other).delete("orders")
        assert is_told.wait(WAIT_SECONDS)
        assert [type(error) for error in told] == [KeySpaceDeletingError]
        with pytest.raises(KeySpaceDeletingError):
            Shop(store).items.get("1")
        assert KeySpaces(other).sessions("orders") == []
        store.close()


# ---- one guard in every commit, and no second try -------------------------------------------------------------------------


def test_every_commit_of_a_handle_has_one_guard_on_the_fence() -> None:
    with RecordingEngine(MemoryEngine()) as recording:
        KeySpaces(recording).create("orders", "shop")
        shop = Shop(open_key_space(recording, "orders", "shop", session_seconds=None))
        shop.items.insert("1", Item("a"))
        recording.calls.clear()
        for write in WRITES[2:]:
            write.values[0](shop)  # type: ignore[operator]  # Why: as above
            shop.items.put("1", Item("again"))
        commits = [call.arguments[0] for call in recording.calls if call.method == "commit"]
        assert len(commits) >= 2 * len(WRITES[2:]) - 1
        for commit in commits:
            assert isinstance(commit, Commit)
            fences = [
                guard for guard in commit.guards if isinstance(guard, KeyUnchanged) and guard.key.startswith(b"\x00")
            ]
            assert [guard.key for guard in fences] == [b"\x00kp\x03orders\x00"]
            assert all(
                isinstance(mutation, Put | Delete) and mutation.key.startswith(b"\x01/shop/")
                for mutation in commit.mutations
            )


def test_run_does_not_try_again_what_the_fence_refuses(memory: Engine) -> None:
    registry = KeySpaces(memory)
    shop = Shop(open_key_space(memory, "orders", "shop", create_if_missing=True, session_seconds=None))
    calls: list[int] = []

    def work(tx: Shop) -> None:
        calls.append(1)
        tx.items.put("1", Item("a"))
        if len(calls) == 1:
            registry.disable("orders")

    with pytest.raises(KeySpaceDisabledError):
        shop.run(work)
    assert len(calls) == 1


def test_a_commit_that_crosses_a_disabling_and_enabling_is_sent_again_once_and_applied_once() -> None:
    class Crossing(MemoryEngine):
        """Disables and enables the key space just before the handle's commit."""

        crossed = 0

        def commit(self, commit: Commit) -> int:
            if not self.crossed and any(
                isinstance(write, Put) and write.key.startswith(b"\x01") for write in commit.mutations
            ):
                self.crossed = 1
                registry.disable("orders")
                registry.enable("orders")
            return super().commit(commit)

    with Crossing() as engine:
        registry = KeySpaces(engine)
        shop = Shop(open_key_space(engine, "orders", "shop", create_if_missing=True, session_seconds=None))
        shop.items.insert("1", Item("a"))
        versioned = shop.items.versioned("1")
        assert versioned is not None
        assert (engine.crossed, versioned.version) == (1, 1)


# ---- what an open handle outlives ----------------------------------------------------------------------------------------


class Swapped(WrappedEngine):
    """A cluster that is restored from a copy: the same keys, and a revision that has gone back."""

    def swap(self, engine: Engine) -> None:
        self.inner = engine


def test_a_handle_writes_on_after_the_revisions_have_gone_back() -> None:
    with MemoryEngine() as first, MemoryEngine() as second:
        KeySpaces(first).create("orders", "shop")
        engine = Swapped(first, closes_inner=False)
        with first.snapshot() as snapshot, open_key_space(engine, "orders", "shop", session_seconds=None) as handle:
            kept = tuple(Put(entry.key, entry.value) for entry in snapshot.scan(ALL_KEYS))
            for _ in range(5):
                KeySpaces(first).disable("orders")
                KeySpaces(first).enable("orders")
            Shop(handle).items.put("1", Item("x"))
            second.commit(Commit((), kept))
            engine.swap(second)
            Shop(handle).items.put("2", Item("x"))
            assert set(raw_content(second)) == {b"\x01/shop/items/2"}


def test_a_session_that_was_lost_before_it_was_known_is_taken_up_again() -> None:
    with MemoryEngine() as engine:
        registry = KeySpaces(engine)
        registry.create("orders", "shop")
        with open_key_space(engine, "orders", "shop", session_seconds=60) as handle:
            heartbeat = handle._heartbeat  # Why: what is lost is between two lines of it.
            assert heartbeat is not None
            lost = heartbeat._lease  # Why: as above.
            assert lost is not None
            heartbeat._lease = None  # Why: as above.
            engine.lease(60, resume=lost.id).revoke()
            lost.lose("it was lost")
            heartbeat._lease = lost  # Why: as above.
            assert heartbeat._look()  # Why: as above.
            assert [lease for lease, _ in registry.sessions("orders")] == [handle.session]
        assert registry.sessions("orders") == []
