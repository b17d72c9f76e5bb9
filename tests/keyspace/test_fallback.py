"""A handle that uses a default prefix looks at the registry ever after: it never reads or writes what became another's."""

import pytest

from keyplan.engine import Engine, MemoryEngine
from keyplan.errors import (
    GenerationMismatchError,
    KeyplanError,
    OwnerConflictError,
    PrefixConflictError,
    PrefixInUseError,
    PrefixMismatchError,
)
from keyplan.keyspace import (
    KeySpaceStore,
    Mode,
)
from tests.keyspace.meanwhile import Meanwhile, at_every_call
from tests.keyspace.owners import FOREIGN, OWN, READS, Read, opened, registry_on, undisturbed
from tests.keyspace.stores import Shop, put_raw, raw_content, swept


def fallen_back(engine: Engine) -> KeySpaceStore:
    """A handle without a key space of its own, with one record."""
    store = opened(engine, default_prefix=b"/shop/")
    assert store.mode is Mode.FALLBACK
    Shop(store).items.put("1", OWN)
    return store


def refused(store: KeySpaceStore, error: type[KeyplanError], *, to_read: bool = True) -> KeyplanError:
    """Neither reads nor writes; return the error of the writing."""
    content = raw_content(store.engine.inner)  # type: ignore[attr-defined]  # Why: the share's own engine
    if to_read:
        for read in READS.values():
            with pytest.raises(error):
                read(store)
    with pytest.raises(error) as caught:
        Shop(store).items.put("2", OWN)
    assert raw_content(store.engine.inner) == content  # type: ignore[attr-defined]
    return caught.value


def test_a_fallback_handle_ends_when_its_prefix_is_registered_to_another(engine: Engine) -> None:
    store = fallen_back(engine)
    registry_on(engine).adopt("bank", "bank", b"/shop/".hex(), allow_legacy_prefix=True)
    assert refused(store, PrefixInUseError).facts["holder"] == "bank"
    assert not store.is_open


@pytest.mark.parametrize("prefix", [b"/", b"/shop/x/"])
def test_a_fallback_handle_ends_when_a_prefix_that_meets_its_own_is_registered(memory: Engine, prefix: bytes) -> None:
    store = fallen_back(memory)
    put_raw(memory, prefix + b"key")
    registry_on(memory).adopt("bank", "bank", prefix.hex(), allow_legacy_prefix=True)
    refused(store, PrefixConflictError)


def test_a_fallback_handle_ends_when_its_name_is_another_s_or_elsewhere(memory: Engine) -> None:
    registry = registry_on(memory)
    store, other = fallen_back(memory), opened(memory, "users", "shop", default_prefix=b"/users/")
    registry.create("orders", "bank")
    registry.create("users", "shop")
    refused(store, OwnerConflictError)
    refused(other, PrefixMismatchError)


def test_a_fallback_handle_is_told_to_open_anew_what_was_registered_for_its_application(memory: Engine) -> None:
    store = fallen_back(memory)
    registry_on(memory).adopt("orders2", "shop", b"/shop/".hex(), allow_legacy_prefix=True)
    error = refused(store, PrefixInUseError)
    assert "open the key space 'orders2' anew" in str(error)


def test_a_fallback_handle_goes_on_as_its_registered_key_space_until_that_is_closed(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    store = fallen_back(engine)
    registry = registry_on(engine)
    registry.configure({"reuse-cooldown-seconds": 0})
    registry.create("users", "bank")
    Shop(store).items.put("2", OWN)  # of no concern to it
    assert "open it anew" not in caplog.text
    registry.adopt("orders", "shop", b"/shop/".hex(), allow_legacy_prefix=True)
    Shop(store).items.put("3", OWN)
    assert caplog.text.count("open it anew") == 1
    assert len(Shop(store).items.get_many(["1", "2", "3"])) == 3
    registry.configure({"keyspace-api-enabled": True})
    Shop(store).items.put("4", OWN)
    registry.disable("orders")
    assert Shop(store).items.get("1") == OWN
    registry.enable("orders")
    swept(registry, "orders")
    registry.create("orders", "shop", prefix=b"/shop/".hex(), allow_legacy_prefix=True)
    with opened(engine) as anew:
        Shop(anew).items.insert("1", FOREIGN)
    refused(store, GenerationMismatchError)


def test_a_fallback_handle_is_not_the_second_key_space_of_its_name(memory: Engine) -> None:
    store = fallen_back(memory)
    registry = registry_on(memory)
    registry.configure({"reuse-cooldown-seconds": 0})
    registry.adopt("orders", "shop", b"/shop/".hex(), allow_legacy_prefix=True)
    swept(registry, "orders")
    registry.create("orders", "shop", prefix=b"/shop/".hex(), allow_legacy_prefix=True)
    refused(store, GenerationMismatchError)


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_the_prefix_is_registered_before_any_one_call_of_a_fallback_handle(read: Read) -> None:
    own, calls = undisturbed(read, fallen_back, default_prefix=b"/shop/")
    for at in at_every_call(calls):
        with MemoryEngine() as engine:
            fallen_back(engine)

            def act(engine: Engine = engine) -> None:
                registry_on(engine).adopt("bank", "bank", b"/shop/".hex(), allow_legacy_prefix=True)
                with opened(engine, "bank", "bank") as bank:
                    Shop(bank).items.put("1", FOREIGN)

            around = Meanwhile(engine, None, act)
            store = opened(around, default_prefix=b"/shop/")
            around.begin(at)
            try:
                found = read(store)
            except PrefixInUseError:
                assert at is not None
            else:
                assert found == own
