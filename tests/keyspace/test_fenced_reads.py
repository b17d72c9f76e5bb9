"""A handle reads its own key space and never the next owner's, whenever the owner changes; leases and history are its own."""

from dataclasses import replace

import pytest

from keyplan.engine import ALL_KEYS, MEMORY_PROFILE, Capability, Commit, Engine, KeyRange, MemoryEngine, Put, Snapshot
from keyplan.errors import (
    CorruptionError,
    EngineUnavailableError,
    GenerationMismatchError,
    HistoryCompactedError,
    KeySpaceDeletedError,
    KeySpaceDeletingError,
    LeaseNotFoundError,
    OwnerMismatchError,
    PrefixConflictError,
    PrefixInUseError,
    RegistryMismatchError,
)
from keyplan.keyspace import (
    FaultKind,
    KeySpaces,
    State,
    open_for_care,
    open_key_space,
    share_for_care,
)
from keyplan.keyspace.fence import FenceGuard
from tests.keyspace.meanwhile import Meanwhile, at_every_call
from tests.keyspace.owners import FOREIGN, GONE, OWN, READS, Read, hand_over, opened, owned, registry_on, undisturbed
from tests.keyspace.stores import Shop, raw_content, swept


def another_registry_s(engine: Engine, cluster: str, *keys: bytes) -> None:
    """Let entries of the registry be those of another one: same name, same generation."""
    with engine.snapshot() as snapshot:
        values = [value for value in snapshot.values(keys) if value is not None]
    assert len(values) == len(keys)
    puts = [Put(key, value.replace(cluster.encode(), b"another")) for key, value in zip(keys, values, strict=True)]
    engine.commit(Commit((), tuple(puts)))


@pytest.mark.parametrize("name", ["bank", "orders"], ids=["another name", "the same name"])
@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_stale_handle_reads_nothing_of_the_next_owner_s(memory: Engine, read: Read, name: str) -> None:
    store = owned(memory)
    hand_over(memory, name)
    with pytest.raises(GenerationMismatchError if name == "orders" else KeySpaceDeletedError):
        read(store)
    assert not store.is_open
    assert raw_content(memory) == {b"\x01/shop/items/1": b'{"note":"theirs"}'}


def test_a_stale_handle_reads_nothing_on_any_engine(engine: Engine) -> None:
    store = owned(engine)
    hand_over(engine)
    for read in READS.values():
        with pytest.raises(KeySpaceDeletedError):
            read(store)


@pytest.mark.parametrize("has_local_reads", [True, False], ids=["nearby", "over a network"])
@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_the_owner_changes_before_any_one_call(read: Read, *, has_local_reads: bool) -> None:
    own, calls = undisturbed(read, owned)
    for at in at_every_call(calls):
        with MemoryEngine(profile=replace(MEMORY_PROFILE, has_local_reads=has_local_reads)) as engine:
            owned(engine)
            around = Meanwhile(engine, None, lambda engine=engine: hand_over(engine))  # type: ignore[misc]
            store = opened(around)
            around.begin(at)
            try:
                found = read(store)
            except GONE:
                assert at is not None
            else:
                # Why: where a read is two calls, what the first has read is still the handle's own.
                assert found == own


def test_a_handle_that_is_open_when_the_store_is_another_one_reads_nothing() -> None:
    with MemoryEngine() as engine:
        store = owned(engine)
        header = registry_on(engine).header()
        assert header is not None
        another_registry_s(engine, header.cluster, b"\x00kp\x00header", b"\x00kp\x03orders\x00")
        for _ in range(2):
            with pytest.raises(RegistryMismatchError) as caught:
                Shop(store).items.get("1")
            assert caught.value.facts == {"name": "orders", "registry": header.cluster, "store": "another"}
        with pytest.raises(RegistryMismatchError):
            Shop(store).items.put("1", OWN)
        assert Shop(opened(engine)).items.get("1") == OWN  # it is that registry's key space


@pytest.mark.parametrize("part", [b"\x00kp\x00header", b"\x00kp\x03orders\x00"], ids=["header", "fence"])
def test_a_key_space_whose_fence_is_of_another_registry_than_the_header_is_not_opened_until_it_is_mended(
    memory: Engine, part: bytes
) -> None:
    owned(memory).close()
    registry = registry_on(memory)
    header = registry.header()
    assert header is not None
    another_registry_s(memory, header.cluster, part)
    with pytest.raises(RegistryMismatchError, match="keyplan doctor --repair"):
        opened(memory)
    assert [(fault.kind, fault.name) for fault in registry.repair()] == [(FaultKind.FENCE, "orders")]
    assert Shop(opened(memory)).items.get("1") == OWN


def test_a_header_that_is_damaged_does_not_stop_who_has_its_key_space_open(memory: Engine) -> None:
    store = owned(memory)
    raw_header = b"\x00kp\x00header"
    whole = memory.value(raw_header)
    assert whole is not None
    memory.commit(Commit((), (Put(raw_header, b"damaged"),)))
    assert Shop(store).items.get("1") == OWN
    Shop(store).items.put("1", OWN)
    memory.commit(Commit((), (Put(raw_header, whole),)))
    assert Shop(store).items.get("1") == OWN


def test_a_fence_that_is_damaged_is_told_and_does_not_close_the_handle(memory: Engine) -> None:
    store = owned(memory)
    fence_key = b"\x00kp\x03orders\x00"
    whole = memory.value(fence_key)
    assert whole is not None
    memory.commit(Commit((), (Put(fence_key, b"damaged"),)))
    for _ in range(2):
        with pytest.raises(CorruptionError):
            Shop(store).items.get("1")
    memory.commit(Commit((), (Put(fence_key, whole),)))
    assert Shop(store).items.get("1") == OWN


def test_a_disabled_key_space_is_read_on_and_so_is_a_snapshot_from_before_a_deletion(engine: Engine) -> None:
    store = owned(engine)
    registry = registry_on(engine)
    registry.disable("orders")
    assert Shop(store).items.get("1") == OWN
    assert [key for key, _ in Shop(store).items.list()] == ["1"]
    registry.enable("orders")
    with store.engine.snapshot() as snapshot:
        assert snapshot.value(b"/shop/items/1") is not None
        registry.delete("orders")
        assert snapshot.count(ALL_KEYS) == 1  # it is of a state in which it was the handle's
    with pytest.raises(KeySpaceDeletingError):
        Shop(store).items.get("1")


def test_a_read_in_a_key_space_is_one_call_of_the_engine() -> None:
    with MemoryEngine() as engine:
        owned(engine)
        store = opened(around := Meanwhile(engine, None, lambda: None))
        for read, calls in ((READS["get"], 1), (READS["list"], 1), (READS["values"], 1)):
            before = around.calls
            read(store)
            assert around.calls - before == calls


# ---- watches -------------------------------------------------------------------------------------------------------------


def test_a_watch_delivers_nothing_of_the_next_owner_s(engine: Engine) -> None:
    if not engine.profile.claims(Capability.WATCH):
        pytest.skip("nothing can be watched there")
    store = owned(engine)
    watch = store.engine.watch(ALL_KEYS, after=store.revision)
    Shop(store).items.put("1", OWN)
    hand_over(engine)
    seen: list[object] = []
    with pytest.raises(KeySpaceDeletedError):
        seen.extend(event for _ in range(100) for event in watch.poll(5))
    assert "theirs" not in repr(seen)
    reached = watch.revision
    with pytest.raises(KeySpaceDeletedError):
        watch.poll(0)
    assert watch.revision == reached
    with pytest.raises(KeySpaceDeletedError):
        store.engine.watch(ALL_KEYS, after=reached)
    watch.close()


def test_a_watch_whose_look_at_the_fence_fails_brings_the_same_events_with_the_next_poll(
    memory: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = owned(memory)
    with memory.snapshot() as snapshot:
        watch = store.engine.watch(ALL_KEYS, after=snapshot.revision)
    revision = store.engine.commit(Commit((), (Put(b"late", b"1"),)))

    def unavailable(_fence: object) -> None:
        raise EngineUnavailableError(engine="memory", problem="no server answers")

    with monkeypatch.context() as patched:
        patched.setattr(FenceGuard, "check_now", unavailable)
        with pytest.raises(EngineUnavailableError):
            watch.poll(0)
    assert watch.revision < revision
    assert [(event.key, event.revision) for event in watch.poll(0)] == [(b"late", revision)]
    assert watch.revision == revision


def test_a_watch_begins_with_the_key_space_and_shows_nothing_from_before(engine: Engine) -> None:
    if not engine.profile.claims(Capability.WATCH):
        pytest.skip("nothing can be watched there")
    store = owned(engine)
    before = store.revision
    Shop(store).items.put("1", OWN)
    hand_over(engine)
    with opened(engine, "bank", "bank") as next_one:
        for after in (0, before):
            with pytest.raises(HistoryCompactedError):
                next_one.engine.watch(ALL_KEYS, after=after)
        assert list(next_one.engine.watch(ALL_KEYS, after=next_one.revision).poll(0)) == []


def test_a_stale_handle_s_watch_says_what_became_of_it_and_nothing_of_the_next_owner_s_history(engine: Engine) -> None:
    if not engine.profile.claims(Capability.WATCH):
        pytest.skip("nothing can be watched there")
    store = owned(engine)
    hand_over(engine)
    with pytest.raises(KeySpaceDeletedError):
        store.engine.watch(ALL_KEYS, after=0)


def test_a_watch_of_the_owner_s_goes_through_disabling_and_ends_with_a_deletion(memory: Engine) -> None:
    store = owned(memory)
    registry = registry_on(memory)
    watch = store.engine.watch(ALL_KEYS, after=store.revision)
    Shop(store).items.put("2", OWN)
    registry.disable("orders")
    assert [event.key for event in watch.poll(5)] == [b"/shop/items/2"]
    registry.enable("orders")
    Shop(store).items.put("3", OWN)
    assert [event.key for event in watch.poll(5)] == [b"/shop/items/3"]
    swept(registry, "orders")
    with pytest.raises(KeySpaceDeletedError):
        watch.poll(5)


@pytest.mark.parametrize("state", [State.ENABLED, State.DISABLED, State.DELETING, State.RESTORING])
def test_an_administrator_reads_every_state_that_has_data_and_no_other_key_space(memory: Engine, state: State) -> None:
    owned(memory)
    registry = registry_on(memory)
    if state is State.DISABLED:
        registry.disable("orders")
    elif state is State.DELETING:
        registry.delete("orders")
    elif state is State.RESTORING:
        raw = memory.value(b"\x00kp\x03orders\x00")
        assert raw is not None
        memory.commit(Commit((), (Put(b"\x00kp\x03orders\x00", raw[:8] + b"\x05" + raw[9:]),)))
    share = share_for_care(memory, registry.get("orders"), closes_engine=False)
    assert share.value(b"/shop/items/1") == b'{"note":"ours"}'
    watch = share.watch(ALL_KEYS, after=share.snapshot().revision)
    if state is State.RESTORING:
        raw = raw_content(memory)[b"\x01/shop/items/1"]
        assert raw
        return
    if state is not State.DELETING:
        registry.delete("orders")
    assert share.value(b"/shop/items/1") == b'{"note":"ours"}'
    hand_over(memory)
    with pytest.raises(KeySpaceDeletedError):
        watch.poll(5)
    with pytest.raises(KeySpaceDeletedError):
        share.value(b"/shop/items/1")
    with pytest.raises(KeySpaceDeletedError):
        open_for_care(memory, "orders", is_reading=True)


# ---- leases and history ---------------------------------------------------------------------------------------------------


def test_a_lease_of_a_key_space_is_its_own(memory: Engine) -> None:
    store = owned(memory)
    registry_on(memory).create("bank", "bank")
    with opened(memory, "bank", "bank") as bank:
        lease = store.engine.lease(600)
        store.engine.commit(Commit((), (Put(b"leased", b"", lease.id),)))
        with pytest.raises(LeaseNotFoundError):
            bank.engine.lease(600, resume=lease.id)
        with pytest.raises(LeaseNotFoundError):
            bank.engine.commit(Commit((), (Put(b"mine", b"", lease.id),)))
        assert opened(memory).engine.lease(1, resume=lease.id).keep_alive() == 600
        assert set(raw_content(memory)) == {b"\x01/shop/items/1", b"\x01leased"}
    lease.revoke()
    assert set(raw_content(memory)) == {b"\x01/shop/items/1"}
    assert registry_on(memory).diagnose().is_sound


def test_a_session_s_lease_is_no_application_s(memory: Engine) -> None:
    owned(memory)
    with open_key_space(memory, "orders", "shop") as store:
        assert store.session is not None
        with pytest.raises(LeaseNotFoundError):
            store.engine.lease(1, resume=store.session)


def test_a_lease_does_not_pass_to_the_next_key_space_of_the_name(memory: Engine) -> None:
    lease = owned(memory).engine.lease(600)
    hand_over(memory, "orders")
    with opened(memory, "orders", "bank") as store, pytest.raises(LeaseNotFoundError):
        store.engine.lease(1, resume=lease.id)


def test_who_compacts_a_key_space_leaves_the_others_their_history(memory: Engine) -> None:
    store = owned(memory)
    registry_on(memory).create("bank", "bank")
    with opened(memory, "bank", "bank") as bank:
        begin = bank.revision
        Shop(bank).items.insert("1", FOREIGN)
        Shop(store).items.put("1", OWN)
        store.engine.compact(store.revision)
        with pytest.raises(HistoryCompactedError):
            store.engine.watch(ALL_KEYS, after=begin)
        assert [event.key for event in bank.engine.watch(ALL_KEYS, after=begin).poll(5)] == [b"/shop/items/1"]
        assert memory.watch(ALL_KEYS, after=0).poll(5)
    registry = registry_on(memory)
    assert registry.diagnose().is_sound
    swept(registry, "orders")
    assert registry.diagnose().is_sound
    assert memory.value(b"\x00kp\x10orders\x00") is None


def test_who_may_only_read_is_granted_no_lease_and_forgets_nothing(memory: Engine) -> None:
    owned(memory)
    with opened(memory, "orders", "bank") as reading:
        for call in (lambda: reading.engine.lease(1), lambda: reading.engine.compact(0)):
            with pytest.raises(OwnerMismatchError):
                call()


def test_a_damaged_fence_keeps_nobody_from_disabling_or_deleting(memory: Engine) -> None:
    for act in (KeySpaces.disable, KeySpaces.delete):
        registry = registry_on(memory)
        registry.ensure("orders", "shop")
        memory.commit(Commit((), (Put(b"\x00kp\x03orders\x00", b"damaged"),)))
        state = act(registry, "orders").state
        fence = registry.fence("orders")
        assert fence is not None
        assert fence.state is state
        assert registry.diagnose().is_sound


# ---- a registry elsewhere --------------------------------------------------------------------------------------------------


def test_the_registry_of_another_store_opens_nothing_and_makes_nothing() -> None:
    with MemoryEngine() as here, MemoryEngine() as there:
        own, other = registry_on(here), registry_on(there)
        own.create("bank", "bank")
        own.create("orders", "shop")
        other.create("orders", "shop")
        clusters = [header.cluster for registry in (other, own) if (header := registry.header()) is not None]
        for name in ("orders", "fresh"):
            with pytest.raises(RegistryMismatchError) as caught:
                opened(here, name, registry=other, create_if_missing=True)
            assert [caught.value.facts["registry"], caught.value.facts["store"]] == clusters
        assert [keyspace.name for keyspace in other.all()] == ["orders"]
        assert opened(here, registry=registry_on(here)).prefix == b"\x02"


def test_a_registry_beside_a_store_that_has_none_opens_nothing() -> None:
    with MemoryEngine() as here, MemoryEngine() as there:
        registry_on(there).create("orders", "shop")
        with pytest.raises(RegistryMismatchError):
            opened(here, registry=registry_on(there))
        with pytest.raises(RegistryMismatchError):
            opened(here, "fresh", registry=registry_on(MemoryEngine()), create_if_missing=True)
        assert raw_content(here) == {}


# ---- reservations ----------------------------------------------------------------------------------------------------------


def test_a_prefix_that_is_in_use_is_not_reserved(memory: Engine) -> None:
    registry = registry_on(memory)
    registry.create("orders", "shop", prefix="8001")
    with pytest.raises(PrefixInUseError) as caught:
        registry.configure({"reservations": ["05", "8001"]})
    assert caught.value.facts["holder"] == "orders"
    for prefix in ("80", "800105"):
        with pytest.raises(PrefixConflictError):
            registry.configure({"reservations": [prefix]})
    assert registry.configure({"reservations": ["05"]}).reservations == ["05"]
    assert registry.configure({"reservations": ["05"], "delete-grace-seconds": 1}).reservations == ["05"]


def test_what_closed_a_handle_is_raised_as_another_error_each_time(memory: Engine) -> None:
    store = owned(memory)
    hand_over(memory)
    for _ in range(2):
        with pytest.raises(KeySpaceDeletedError) as caught:
            store.engine.commit(Commit((), (Put(b"late", b""),)))
        assert caught.value is not store.closed_by  # what many threads raise would collect all their tracebacks
    assert store.closed_by is not None
    assert store.closed_by.__traceback__ is None


def test_a_closed_handle_s_snapshots_say_so(memory: Engine) -> None:
    store = owned(memory)
    store.close()
    for call in (store.engine.snapshot, lambda: store.engine.watch(KeyRange.of_key(b"a"), after=0)):
        with pytest.raises(EngineUnavailableError):
            call()
    assert isinstance(memory.snapshot(), Snapshot)
