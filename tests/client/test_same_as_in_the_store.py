"""Each test runs twice: on a registry in the store, and on the same kind of registry behind a real server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan.client import HttpKeySpaces
from keyplan.engine import Commit, Put, open_engine
from keyplan.errors import (
    IllegalTransitionError,
    ImmutableFieldError,
    InvalidArgumentError,
    InvalidNameError,
    InvalidPrefixError,
    KeySpaceExistsError,
    KeySpaceNotFoundError,
    OwnerConflictError,
    PrefixInUseError,
    PrefixNotEmptyError,
)
from keyplan.keyspace import KeySpaces, RegistryOperations, Stage, State, Unmanaged
from tests.servers.keyplan_server import KeyplanServer

pytestmark = pytest.mark.slow

TOKEN = "an-admin-token-of-a-test"


@pytest.fixture(params=["store", "http"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RegistryOperations]:
    """A fresh registry, of an administrator; one key of nobody lies under the prefix 03."""
    url = f"lmdb:{tmp_path / 'store.kv'}"
    with open_engine(url) as engine:
        engine.commit(Commit((), (Put(b"\x03A", b"foreign"),)))
        if request.param == "store":
            store = KeySpaces(engine)
            store.configure({"skip-printable": False})
            yield store
            return
    with (
        KeyplanServer(url, "--setting", "keyspaces.sweep=off", environment={"KEYPLAN_ADMIN_TOKEN": TOKEN}) as server,
        HttpKeySpaces(server.url, token=TOKEN) as behind_http,
    ):
        behind_http.configure({"skip-printable": False})
        yield behind_http


def test_a_life_from_creation_to_undeletion(registry: RegistryOperations) -> None:
    made = registry.create("orders", "shop", description="what was bought")
    assert (made.name, made.prefix, made.range.end, made.state) == ("orders", "01", "02", State.ENABLED)
    assert registry.get("orders") == made
    assert registry.update("orders", "new").description == "new"
    assert registry.disable("orders").state is State.DISABLED
    assert registry.enable("orders").state is State.ENABLED
    assert registry.delete("orders").state is State.DELETING
    assert registry.undelete("orders").state is State.ENABLED
    assert registry.history("orders") == []
    verdict = registry.verify_audit()
    acts = [item.entry.act for item in registry.audit()]
    assert acts == ["configure", "create", "update", "disable", "enable", "delete", "undelete"]
    assert (verdict.is_whole, verdict.entries) == (True, 7)
    assert [item.number for item in registry.audit(after=2, limit=3)] == [3, 4, 5]
    assert [item.digest for item in registry.audit()][-1] == verdict.head


def test_foreign_data_is_passed_over_and_found_again(registry: RegistryOperations) -> None:
    prefixes = [registry.create(f"n{number}", "a").prefix for number in range(3)]
    assert prefixes == ["01", "02", "04"]
    with pytest.raises(PrefixNotEmptyError) as caught:
        registry.create("three", "a", prefix="03")
    assert caught.value.facts == {"prefix": "03", "first_key": "0341"}
    adopted = registry.adopt("three", "a", "03")
    assert registry.usage("three").keys == 1
    assert adopted.prefix == "03"
    assert registry.adopt("runm", "runm", "2f72756e6d2f", allow_legacy_prefix=True).prefix_number is None


def test_ensuring_says_whether_it_is_new(registry: RegistryOperations) -> None:
    first = registry.ensure("orders", "shop")
    again = registry.ensure("orders", "shop")
    assert (first.is_new, again.is_new) == (True, False)
    assert first.keyspace == again.keyspace


def test_lists_are_filtered_and_paged(registry: RegistryOperations) -> None:
    for number in range(5):
        registry.create(f"n{number}", "even" if number % 2 == 0 else "odd")
    page = registry.list(application="even", limit=2)
    assert [keyspace.name for keyspace in page.keyspaces] == ["n0", "n2"]
    rest = registry.list(application="even", limit=2, page_token=page.next_page_token)
    assert ([keyspace.name for keyspace in rest.keyspaces], rest.next_page_token) == (["n4"], "")
    assert [keyspace.name for keyspace in registry.all()] == ["n0", "n1", "n2", "n3", "n4"]
    assert [keyspace.name for keyspace in registry.list(key="04ff").keyspaces] == ["n2"]
    registry.delete("n0")
    assert [keyspace.name for keyspace in registry.list(state=State.DELETING).keyspaces] == ["n0"]


def test_a_quota_is_kept(registry: RegistryOperations) -> None:
    registry.create("orders", "shop")
    assert registry.set_quota("orders", keys=5).keys == 5
    assert registry.usage("orders").quota.keys == 5
    assert registry.quota("orders").keys == 5
    assert registry.set_quota("orders").keys is None


def test_a_registry_is_made_once(registry: RegistryOperations) -> None:
    header = registry.header()
    assert header is not None
    assert (header.prefix_codec, header.format_version) == ("uvarint", 1)
    assert registry.init() == registry.init(prefix_codec="uvarint", skip_printable=False) == header
    with pytest.raises(InvalidArgumentError) as otherwise:
        registry.init(prefix_codec="ordered")
    assert otherwise.value.facts["argument"] == "prefix_codec"


def test_the_doctor_tells_of_the_data_of_nobody(registry: RegistryOperations) -> None:
    registry.create("orders", "shop")
    diagnosis = registry.diagnose()
    assert (diagnosis.is_sound, diagnosis.keyspaces, diagnosis.audit_entries) == (True, 1, 2)
    assert diagnosis.unmanaged == [Unmanaged(b"\x03", 3, b"\x03A", 1, is_more=False)]
    assert registry.diagnose(with_unmanaged=False).unmanaged == []
    assert registry.repair() == []


def test_a_deletion_is_taken_to_its_end(registry: RegistryOperations) -> None:
    registry.configure({"max-client-lease-seconds": 0})
    registry.adopt("found", "a", "03")
    assert registry.sweep("found").stage is Stage.NOT_DELETING
    registry.delete("found")
    while (progress := registry.sweep("found")).stage is Stage.SWEEPING:
        pass
    assert (progress.stage, progress.deleted_keys) == (Stage.COMPLETED, 1)
    assert registry.get("found").state is State.DELETED
    with pytest.raises(KeySpaceNotFoundError):
        registry.sweep("none")


def test_the_errors_are_those_of_the_registry_with_their_facts(registry: RegistryOperations) -> None:
    registry.create("orders", "shop")
    with pytest.raises(KeySpaceExistsError) as exists:
        registry.create("orders", "shop")
    assert exists.value.facts == {"name": "orders", "state": "ENABLED", "application": "shop", "prefix": "01"}
    with pytest.raises(OwnerConflictError):
        registry.ensure("orders", "bank")
    with pytest.raises(PrefixInUseError):
        registry.create("other", "shop", prefix="01")
    with pytest.raises(InvalidPrefixError) as prefix:
        registry.create("other", "shop", prefix="80")
    assert prefix.value.facts["reason"] == "unterminated"
    with pytest.raises(InvalidNameError):
        registry.create("a/b", "shop")
    with pytest.raises(ImmutableFieldError):
        registry.update("orders", "x", {"prefix": "05"})
    with pytest.raises(IllegalTransitionError):
        registry.undelete("orders")
    with pytest.raises(InvalidArgumentError):
        registry.configure({"unknown": 1})
    with pytest.raises(InvalidArgumentError):
        registry.list(limit=0)
    with pytest.raises(InvalidArgumentError):
        registry.update("orders", None)


def test_a_name_that_is_not_there_is_not_found_whatever_it_is(registry: RegistryOperations) -> None:
    for name in ("none", "", ".", "..", "a/b", "a?b", "a b", "ä", "a:disable", "%2e"):
        for operation in (
            registry.get,
            registry.history,
            registry.usage,
            registry.quota,
            registry.delete,
            registry.sweep,
        ):
            with pytest.raises(KeySpaceNotFoundError):
                operation(name)
