"""A handle that is connected and disconnected; AC numbers are those of the specification's section 7."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import keyplan
from keyplan.apps.cloudchamber import (
    ANY,
    REQUIRED,
    Address,
    AlreadyConnectedError,
    Chamber,
    CloudChamberGo,
    Connection,
    NotConnectedError,
    StoreSettings,
    Tor,
    User,
    begin_indexes,
    write_records,
)
from keyplan.cli.main import main
from keyplan.errors import EngineLimitError, EngineOpenError, EngineUnavailableError, InvalidInputError
from keyplan.store import Store
from tests.apps.cloudchamber.conftest import raw_keys
from tests.apps.cloudchamber.test_chamber import rack_of
from tests.servers.etcd import EtcdServer

BOB = Address("users", "bob")


def acts_on(handle: Connection) -> list[Callable[[], object]]:
    return [
        lambda: handle.read({BOB: REQUIRED}),
        lambda: handle.write({BOB: (User(), ANY)}),
        lambda: handle.list("users"),
        lambda: handle.delete({BOB: ANY}),
        lambda: handle.delete_listed("users"),
        handle.watch,
        lambda: handle.chamber,
    ]


def test_a_handle_that_is_not_connected_refuses_everything_and_touches_nothing(tmp_path: Path) -> None:
    """AC-32."""
    handle = Connection(f"lmdb:{tmp_path / 'kv'}")
    for act in acts_on(handle):
        with pytest.raises(NotConnectedError):
            act()
    assert list(tmp_path.iterdir()) == []
    assert not NotConnectedError.is_retryable
    assert issubclass(NotConnectedError, EngineUnavailableError)


def test_connecting_twice_is_refused_and_disconnecting_twice_harmless(store_url: str) -> None:
    """AC-32."""
    handle = Connection(store_url)
    handle.disconnect()
    handle.connect()
    with pytest.raises(AlreadyConnectedError) as caught:
        handle.connect()
    assert caught.value.facts == {"asked": "connect"}
    revision = handle.write({BOB: (User(name="bob"), ANY)})
    assert handle.read({BOB: REQUIRED}).records[BOB].revision == revision
    handle.disconnect()
    handle.disconnect()
    for act in acts_on(handle):
        with pytest.raises(NotConnectedError):
            act()
    with handle:
        assert handle.is_connected
        assert handle.list("users").records[BOB].record == User(name="bob")
    assert not handle.is_connected


def test_what_it_is_connected_to_changes_only_while_it_is_not(store_url: str) -> None:
    """AC-32; the suffix of the original has no slashes around it."""
    handle = Connection("memory:", namespace="/Test/one/")
    handle.url, handle.namespace = store_url, "Test/two"
    with handle:
        for name, value in (("url", "memory:"), ("namespace", ""), ("namespace", "Test/two")):
            with pytest.raises(AlreadyConnectedError) as caught:
                setattr(handle, name, value)
            assert caught.value.facts == {"asked": name}
        assert (handle.url, handle.namespace) == (store_url, "Test/two/")
        handle.write({BOB: (User(), ANY)})
        assert raw_keys(handle.chamber.store) == [b"/CloudChamber/V0.1/Test/two/users/bob"]
    handle.namespace = ""
    with handle:
        assert handle.list("users").records == {}


@pytest.mark.parametrize(
    "name", ["Test", "Test/", "Test//", "test/one", "Test/a/b", "Test/..", "elsewhere", "Test/" + 65 * "x"]
)
def test_a_name_space_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError):
        Connection("memory:", namespace=name)


def test_a_handle_of_a_configuration_is_at_its_place_in_its_name_space() -> None:
    settings = StoreSettings("h:1", 5, 2, use_test_namespace=True, use_unique_instance=False, pre_clean_store=False)
    handle = Connection.of_settings(settings)
    assert (handle.url, handle.namespace) == ("etcd://h:1?timeout=2", "Test/Standard/")


def test_a_store_that_cannot_be_opened_leaves_the_handle_unconnected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no store")
    handle = Connection(f"lmdb:{tmp_path / 'file' / 'kv'}")
    with pytest.raises(EngineOpenError):
        handle.connect()
    handle.url = "memory:"
    with handle:
        assert handle.list("users").records == {}


def test_a_watch_ends_when_the_handle_is_disconnected(store_url: str) -> None:
    handle = Connection(store_url)
    handle.connect()
    watch = handle.watch("users")
    handle.disconnect()
    with pytest.raises(EngineUnavailableError):
        watch.poll(30)


# ---- the delete of a prefix ------------------------------------------------------------------------------------------


def test_a_prefix_is_deleted_whole_in_one_commit_and_no_neighbour_with_it(store: Store) -> None:
    """3.2, R2, R3, R17: what is under one component goes; an empty one is success and changes nothing."""
    chamber = Chamber(store)
    for name in ("rack1", "rack10"):
        chamber.create_rack(name, rack_of(3))
    chamber.layout.users.insert("bob", User())
    before = chamber.layout.revision
    assert chamber.delete_listed("blades", "rack2") == 0
    assert chamber.layout.revision == before
    assert chamber.delete_listed("blades", "rack1") == 3
    assert chamber.layout.revision == before + 1
    assert [key.blade for key in chamber.layout.blades.keys("rack10")] == [1, 2, 3]
    assert chamber.delete_listed("tor") == 2
    assert chamber.delete_listed("pdu", "rack10") == 1
    assert list(chamber.layout.pdu.keys()) == ["rack1"]
    assert chamber.delete_listed("racks") == 2
    assert raw_keys(store) == [b"/CloudChamber/V0.1/users/bob"]


def test_a_prefix_is_deleted_with_its_index_entries(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 'kv'}?durability=none"
    with Connection(url) as handle:
        begin_indexes(handle.chamber.store)
    with Connection(url) as handle:
        handle.chamber.create_rack("rack1", rack_of(3))
        handle.write({Address("users", name): (User(name=name), ANY) for name in ("alice", "bob")})
        assert handle.delete_listed("racks") == 1
        assert handle.delete_listed("users") == 2
        left = [
            key for key in raw_keys(handle.chamber.store) if b"/index/" in key or b"/rack" in key or b"/users" in key
        ]
        assert left == [b"/CloudChamber/V0.1/index/begun"]


def test_more_than_a_commit_takes_is_deleted_in_steps_where_that_is_asked_for(etcd_server: EtcdServer) -> None:
    with keyplan.open(etcd_server.emptied().url) as store:
        chamber = Chamber(store)
        for start in (0, 100):
            write_records(chamber.layout, {Address("tor", f"r{start + n}"): (Tor(), ANY) for n in range(100)})
        with pytest.raises(EngineLimitError):
            chamber.delete_listed("tor")
        assert chamber.layout.tor.count() == 200
        assert chamber.delete_listed("tor", in_steps=True) == 200
        assert raw_keys(store) == []


def test_a_store_of_the_go_program_alone_is_refused_by_name_unless_it_is_known(store_url: str) -> None:
    with keyplan.open(store_url) as store:
        CloudChamberGo(store).users.insert("a", User(name="a"))
        with pytest.raises(InvalidInputError, match="/users/a, and a Chamber works"):
            Chamber(store)
        CloudChamberGo(store, namespace="Test/two/").users.insert("a", User(name="a"))
        with pytest.raises(InvalidInputError, match="--to document --namespace Test/two --store URL` brings"):
            Chamber(store, namespace="Test/two/")
        Chamber(store, namespace="Test/one/")
    handle = Connection(store_url)
    with pytest.raises(InvalidInputError, match="and a Connection works under the document's") as caught:
        handle.connect()
    assert not handle.is_connected
    (command,) = re.findall("`keyplan ([^`]*)`", str(caught.value.facts["problem"]))
    assert main([*shlex.split(command), "--dry-run"]) == 0
    assert command.endswith(f" --store {shlex.quote(store_url)}")
    with Connection(store_url, is_beside_go=True) as beside:
        beside.write({BOB: (User(name="bob"), ANY)})
    with handle:
        assert list(handle.list("users").records) == [BOB], "a store with keys of both is the document's, too"
