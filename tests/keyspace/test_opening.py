"""Opening by name: found, made, or under a default prefix where there is no registry. AC numbers: acceptance cases."""

import subprocess
import sys
from pathlib import Path

import pytest

import keyplan
from keyplan.engine import Engine, WrappedEngine
from keyplan.errors import (
    EngineUnavailableError,
    InvalidPrefixError,
    KeySpaceApiDisabledError,
    KeySpaceApiUnavailableError,
    KeySpaceDeletedError,
    KeySpaceDeletingError,
    KeySpaceDisabledError,
    KeySpaceNotFoundError,
    KeySpaceRestoringError,
    OwnerConflictError,
    PrefixConflictError,
    PrefixInUseError,
    PrefixMismatchError,
    SelfRegistrationDisabledError,
)
from keyplan.keyspace import (
    Ensured,
    Header,
    KeySpace,
    KeySpaces,
    KeySpaceStore,
    Mode,
    Registry,
    Role,
    State,
    open_key_space,
)
from tests.keyspace.stores import Item, Shop, names_of, put_raw, raw_content, swept


def opened(engine: Engine, name: str = "orders", application: str = "shop", **options: object) -> KeySpaceStore:
    return open_key_space(engine, name, application, session_seconds=None, **options)  # type: ignore[arg-type]  # Why: a shorthand


def test_ac_27_an_unknown_name_is_not_made_unasked(engine: Engine) -> None:
    with pytest.raises(KeySpaceNotFoundError):
        opened(engine)
    with engine.snapshot() as snapshot:
        assert snapshot.get(b"\x00kp\x00header") is None
    assert opened(engine, create_if_missing=True).prefix == b"\x01"
    assert opened(engine).mode is Mode.REGISTRY


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (State.DISABLED, KeySpaceDisabledError),
        (State.DELETING, KeySpaceDeletingError),
        (State.DELETED, KeySpaceDeletedError),
        (State.RESTORING, KeySpaceRestoringError),
    ],
)
def test_only_an_enabled_key_space_opens(memory: Engine, state: State, error: type[Exception]) -> None:
    registry = KeySpaces(memory)
    if state is State.RESTORING:
        registry.begin_restore("orders", "shop")
    else:
        registry.create("orders", "shop")
    if state is State.DISABLED:
        registry.disable("orders")
    if state is State.DELETING:
        registry.delete("orders")
    if state is State.DELETED:
        swept(registry, "orders")
    with pytest.raises(error):
        opened(memory)


def test_a_deleted_name_is_made_anew_when_that_is_wanted(memory: Engine) -> None:
    registry = KeySpaces(memory)
    registry.create("orders", "shop")
    swept(registry, "orders")
    keyspace = opened(memory, create_if_missing=True).keyspace
    assert keyspace is not None
    assert (keyspace.generation, keyspace.prefix) == (2, "02")


def test_one_who_comes_second_to_make_it_gets_what_the_first_made(memory: Engine) -> None:
    registry = KeySpaces(memory)

    class Late(Registry):
        def header(self) -> Header | None:
            return registry.header()

        def get(self, name: str) -> KeySpace:
            raise KeySpaceNotFoundError(name=name)

        def ensure(self, name: str, application: str) -> Ensured:
            registry.create(name, "shop")
            return registry.ensure(name, application)

    assert opened(memory, create_if_missing=True, registry=Late()).keyspace == registry.get("orders")
    swept(registry, "orders")
    with pytest.raises(OwnerConflictError):
        opened(memory, application="bank", create_if_missing=True, registry=Late())


def test_ac_26_a_client_opens_what_an_administrator_made(memory: Engine) -> None:
    registry = KeySpaces(memory)
    registry.configure({"keyspace-api-enabled": True, "self-registration-enabled": False})
    client = registry.acting_as(Role.CLIENT, "shop")
    with pytest.raises(SelfRegistrationDisabledError):
        opened(memory, create_if_missing=True, registry=client)
    registry.create("orders", "shop")
    assert opened(memory, create_if_missing=True, registry=client).prefix == b"\x01"


# ---- without a registry ------------------------------------------------------------------------------------------------


def test_without_a_registry_the_default_prefix_is_used_and_nothing_is_registered(engine: Engine) -> None:
    store = opened(engine, default_prefix=b"/shop/", create_if_missing=True)
    Shop(store).items.insert("1", Item("a"))
    assert (store.mode, store.keyspace, store.is_open) == (Mode.FALLBACK, None, True)
    assert raw_content(engine) == {b"/shop//shop/items/1": b'{"note":"a"}'}
    assert KeySpaces(engine).header() is None


def test_before_during_and_after_the_upgrade_an_application_reads_its_own_data(engine: Engine) -> None:
    registry = KeySpaces(engine)
    Shop(opened(engine, default_prefix="2f73686f702f")).items.insert("before", Item("1"))
    registry.adopt("meta", "tidb", "6d")
    during = opened(engine, default_prefix="2f73686f702f")
    Shop(during).items.insert("during", Item("2"))
    registry.adopt("orders", "shop", "2f73686f702f", allow_legacy_prefix=True)
    registry.configure({"keyspace-api-enabled": True})
    after = opened(engine, default_prefix="2f73686f702f", require_keyspace_api=True)
    Shop(after).items.insert("later", Item("3"))
    assert (during.mode, after.mode) == (Mode.FALLBACK, Mode.REGISTRY)
    assert list(Shop(after).items.keys()) == ["before", "during", "later"]


def test_ac_29_a_registry_that_is_required_and_not_there_is_an_error(memory: Engine) -> None:
    for options in ({"require_keyspace_api": True, "default_prefix": "05"}, {"require_keyspace_api": True}):
        with pytest.raises(KeySpaceApiUnavailableError) as caught:
            opened(memory, **options)
        assert (caught.value.code, caught.value.http_status) == ("keyspace_api_unavailable", 501)
    KeySpaces(memory).create("orders", "shop")
    with pytest.raises(KeySpaceApiUnavailableError):
        opened(memory, require_keyspace_api=True)


def test_a_failure_is_never_taken_for_a_missing_registry(memory: Engine) -> None:
    class Broken(WrappedEngine):
        def snapshot(self):  # type: ignore[no-untyped-def]  # Why: it never returns
            raise EngineUnavailableError(engine="memory", problem="the network is down")

    with pytest.raises(EngineUnavailableError):
        opened(Broken(memory), default_prefix="05")

    class Unreachable(Registry):
        def header(self) -> Header | None:
            raise EngineUnavailableError(engine="http", problem="connection refused")

        def get(self, name: str) -> KeySpace:
            raise EngineUnavailableError(engine="http", problem="connection refused")

        def ensure(self, name: str, application: str) -> Ensured:
            raise AssertionError

    with pytest.raises(EngineUnavailableError):
        opened(memory, default_prefix="05", registry=Unreachable())


def test_a_registry_behind_something_else_says_by_its_error_that_there_is_none(memory: Engine) -> None:
    class Disabled(Registry):
        def header(self) -> Header | None:
            return None

        def get(self, name: str) -> KeySpace:
            raise KeySpaceApiDisabledError(problem="501")

        def ensure(self, name: str, application: str) -> Ensured:
            raise AssertionError

    assert opened(memory, default_prefix="05", registry=Disabled()).mode is Mode.FALLBACK
    with pytest.raises(KeySpaceApiUnavailableError):
        opened(memory, registry=Disabled())


def test_another_prefix_than_the_default_would_split_the_data(memory: Engine) -> None:
    registry = KeySpaces(memory)
    registry.create("orders", "shop")
    registry.configure({"keyspace-api-enabled": True})
    with pytest.raises(PrefixMismatchError) as caught:
        opened(memory, default_prefix="05")
    assert (caught.value.prefix, caught.value.default_prefix) == ("01", "05")
    assert opened(memory, default_prefix="05", accept_registered_prefix=True).prefix == b"\x01"
    assert opened(memory, default_prefix="01").prefix == b"\x01"


def test_a_default_prefix_that_is_anothers_is_refused(memory: Engine) -> None:
    KeySpaces(memory).create("users", "bank")
    with pytest.raises(PrefixInUseError):
        opened(memory, default_prefix="01")


@pytest.mark.parametrize("prefix", [b"/", b"/bank/", b"/bank/x/"])
def test_a_default_prefix_that_meets_anothers_is_refused_both_ways(memory: Engine, prefix: bytes) -> None:
    KeySpaces(memory).create("bank", "bank", prefix=b"/bank/".hex(), allow_legacy_prefix=True)
    with pytest.raises((PrefixInUseError, PrefixConflictError)):
        opened(memory, default_prefix=prefix)
    assert opened(memory, default_prefix=b"/bane/").mode is Mode.FALLBACK


def test_falling_back_respects_owner_state_and_prefix_of_the_name(memory: Engine) -> None:
    """The registry is there, and closed to applications: what is registered counts nevertheless."""
    registry = KeySpaces(memory)
    registry.create("orders", "shop")
    assert opened(memory, default_prefix="01").mode is Mode.FALLBACK
    with pytest.raises(PrefixMismatchError):
        opened(memory, default_prefix="05")
    with pytest.raises(OwnerConflictError):
        open_key_space(memory, "orders", "thief", default_prefix="01", session_seconds=None)
    registry.disable("orders")
    with pytest.raises(KeySpaceDisabledError):
        opened(memory, default_prefix="01")
    registry.enable("orders")
    registry.delete("orders")
    with pytest.raises(KeySpaceDeletingError):
        opened(memory, default_prefix="01")


def test_an_open_registry_in_the_opened_store_forbids_falling_back(memory: Engine) -> None:
    class Disabled(Registry):
        def header(self) -> Header | None:
            return None

        def get(self, name: str) -> KeySpace:
            raise KeySpaceApiDisabledError(problem="501")

        def ensure(self, name: str, application: str) -> Ensured:
            raise AssertionError

    KeySpaces(memory).configure({"keyspace-api-enabled": True})
    with pytest.raises(KeySpaceApiUnavailableError, match="the opened store"):
        opened(memory, default_prefix="05", registry=Disabled())


@pytest.mark.parametrize("prefix", ["", "00", b"\x00kp", b"", "xyz"])
def test_a_default_prefix_is_never_the_whole_store_nor_the_registrys(memory: Engine, prefix: str | bytes) -> None:
    with pytest.raises(InvalidPrefixError):
        opened(memory, default_prefix=prefix)


def test_ac_31_an_application_that_knows_no_key_spaces_goes_on_and_is_reported(engine: Engine) -> None:
    put_raw(engine, b"z\x01")
    registry = KeySpaces(engine)
    registry.create("orders", "shop")
    registry.configure({"keyspace-api-enabled": True})
    put_raw(engine, b"z\x02")
    assert raw_content(engine) == {b"z\x01": b"raw", b"z\x02": b"raw"}
    (found,) = registry.diagnose().unmanaged
    assert (found.number, found.first_key, found.keys) == (122, b"z\x01", 2)


# ---- by URL ------------------------------------------------------------------------------------------------------------


def test_keyplan_open_opens_a_key_space_by_url(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store?durability=none"
    with keyplan.open(url, keyspace="orders", application="shop", create_if_missing=True) as store:
        Shop(store).items.insert("1", Item("a"))
        assert store.mode is Mode.REGISTRY
    with keyplan.open(url) as plain:
        assert raw_content(plain.engine) == {b"\x01/shop/items/1": b'{"note":"a"}'}
        assert names_of(KeySpaces(plain.engine)) == ["orders"]
    with pytest.raises(KeySpaceNotFoundError):
        keyplan.open(url, keyspace="users", application="shop")
    with keyplan.open(url, keyspace="orders", application="shop") as again:
        assert Shop(again).items.get("1") == Item("a")


def test_opening_a_plain_store_imports_nothing_of_key_spaces() -> None:
    program = "import sys, keyplan; keyplan.open('memory:').close(); print('keyplan.keyspace' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


def test_importing_everything_leaves_the_builtin_open_alone() -> None:
    for package in ("keyplan", "keyplan.aio"):
        names: dict[str, object] = {}
        exec(f"from {package} import *", names)
        assert "Layout" in names
        assert "open" not in names
