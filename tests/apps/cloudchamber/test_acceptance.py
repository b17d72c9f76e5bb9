"""Acceptance cases on keys, lists, revisions and transactions; each quotes its number in the specification's section 7."""

import pytest

from keyplan.apps.cloudchamber import (
    Address,
    Blade,
    BladeKey,
    Capacity,
    CloudChamber,
    Condition,
    Instance,
    InstanceActual,
    InstanceKey,
    InstanceTarget,
    Pdu,
    Rack,
    RackDetails,
    Tor,
    User,
    Workload,
    address_of,
)
from keyplan.engine import Commit, Put
from keyplan.errors import AlreadyExistsError, InvalidKeyError, NotFoundError, StaleRecordError
from keyplan.layout import Kind
from keyplan.protobuf import ProtoJson
from keyplan.store import Store
from tests.apps.cloudchamber.conftest import raw_entries, raw_keys

BOB = User(name="bob", enabled=True)


def create_rack(chamber: CloudChamber, rack: str) -> None:
    with chamber.transaction() as tx:
        tx.racks.insert(rack, Rack(details=RackDetails(location=rack)))
        tx.tor.insert(rack, Tor())
        tx.pdu.insert(rack, Pdu())
        for blade in (1, 2):
            tx.blades.insert(BladeKey(rack, blade), Blade(capacity=Capacity(cores=blade)))


def test_a_user_is_one_key_with_the_json_that_raw_clients_read(chamber: CloudChamber, store: Store) -> None:
    """AC-01."""
    chamber.users.insert("alice", User(name="alice", enabled=True))
    (entry,) = raw_entries(store)
    assert (entry.key, entry.value) == (b"/CloudChamber/V0.1/users/alice", b'{"name":"alice","enabled":true}')


def test_a_rack_and_its_parts_are_written_at_one_revision_under_the_documents_keys(
    chamber: CloudChamber, store: Store
) -> None:
    """AC-03."""
    create_rack(chamber, "rack1")
    entries = raw_entries(store)
    assert [entry.key for entry in entries] == [
        b"/CloudChamber/V0.1/rack/rack1/blades/1",
        b"/CloudChamber/V0.1/rack/rack1/blades/2",
        b"/CloudChamber/V0.1/rack/rack1/pdu",
        b"/CloudChamber/V0.1/rack/rack1/tor",
        b"/CloudChamber/V0.1/racks/rack1",
    ]
    assert {entry.mod_revision for entry in entries} == {chamber.revision}


def test_a_list_of_racks_holds_definitions_and_no_parts(chamber: CloudChamber) -> None:
    """AC-05."""
    create_rack(chamber, "rack1")
    create_rack(chamber, "rack2")
    assert [(key, record.details.location) for key, record in chamber.racks.list() if record.details] == [
        ("rack1", "rack1"),
        ("rack2", "rack2"),
    ]
    assert chamber.racks.count() == 2
    assert list(chamber.blades.keys("rack1")) == [BladeKey("rack1", 1), BladeKey("rack1", 2)]


def test_a_workloads_instance_has_a_description_a_target_and_an_actual_state(
    chamber: CloudChamber, store: Store
) -> None:
    """AC-07; the target's `state` is no field of it here, and is kept."""
    key = InstanceKey("web", "i1")
    with chamber.transaction() as tx:
        tx.workloads.insert("web", Workload(name="web"))
        tx.instances.insert(key, Instance())
        tx.instance_target.insert(key, ProtoJson(InstanceTarget).decode(b'{"state":"running"}'))
        tx.instance_actual.insert(key, InstanceActual(state="pending"))
    assert {entry.key: entry.value for entry in raw_entries(store)} == {
        b"/CloudChamber/V0.1/workloads/web": b'{"name":"web"}',
        b"/CloudChamber/V0.1/workload/web/instances/i1": b"{}",
        b"/CloudChamber/V0.1/workload/web/instance/i1/target": b'{"state":"running"}',
        b"/CloudChamber/V0.1/workload/web/instance/i1/actual": b'{"state":"pending"}',
    }
    assert list(chamber.instances.keys("web")) == [key]


@pytest.mark.parametrize(
    ("raw_key", "table", "key"),
    [
        (b"/CloudChamber/V0.1/rack/rack1/blades/7", "blades", BladeKey("rack1", 7)),
        (b"/CloudChamber/V0.1/workload/web/instance/i1/actual", "instance_actual", InstanceKey("web", "i1")),
        (b"/CloudChamber/V0.1/racks/rack1", "racks", "rack1"),
    ],
)
def test_a_raw_key_is_read_as_a_table_and_a_key_that_spell_it_again(raw_key: bytes, table: str, key: object) -> None:
    """AC-10."""
    layout = CloudChamber.bound()
    meaning = layout.meaning(raw_key)
    assert (meaning.item, meaning.key) == (table, key)
    assert layout.tables[table].keys.encode(key) == raw_key
    assert address_of(raw_key) == Address(table, key)
    of_test = raw_key.replace(b"V0.1/", b"V0.1/Test/Standard/")
    assert address_of(of_test, namespace="Test/Standard/") == Address(table, key)
    with pytest.raises(InvalidKeyError, match="test name space"):
        address_of(of_test)


@pytest.mark.parametrize(
    "raw_key",
    [
        b"/CloudChamber/V0.1/rack/rack1",
        b"/CloudChamber/V0.1/user/alice",
        b"/CloudChamber/V0.1/users/a/b",
        b"/CloudChamber/v0.1/users/alice",
    ],
)
def test_a_near_miss_of_a_key_means_nothing(raw_key: bytes, chamber: CloudChamber) -> None:
    """AC-11."""
    assert chamber.meaning(raw_key).kind is Kind.UNKNOWN
    with pytest.raises(InvalidKeyError) as caught:
        address_of(raw_key)
    assert caught.value.facts["raw_key"] == raw_key.decode()


@pytest.mark.leaves("key-outside")
def test_the_case_of_the_prefix_matters(chamber: CloudChamber, store: Store) -> None:
    """AC-12."""
    store.engine.commit(Commit((), (Put(b"/CloudChamber/v0.1/users/bob", b'{"name":"bob"}'),)))
    assert list(chamber.users.list()) == []
    with pytest.raises(NotFoundError) as caught:
        chamber.users.require("bob")
    assert caught.value.key == "bob"


def test_the_prefix_of_a_list_is_no_key(chamber: CloudChamber, store: Store) -> None:
    """AC-14."""
    chamber.users.insert("alice", User(name="alice"))
    with store.engine.snapshot() as snapshot:
        assert snapshot.get(b"/CloudChamber/V0.1/users") is None
    assert chamber.meaning(b"/CloudChamber/V0.1/users").kind is Kind.UNKNOWN
    with pytest.raises(InvalidKeyError):
        chamber.users.put("", User())
    assert raw_keys(store) == [b"/CloudChamber/V0.1/users/alice"]


def test_creating_a_user_again_names_it_and_changes_nothing(chamber: CloudChamber, store: Store) -> None:
    """AC-22."""
    revision = chamber.users.insert("bob", BOB)
    with pytest.raises(AlreadyExistsError) as caught:
        chamber.users.insert("bob", User(name="another"))
    assert (caught.value.key, caught.value.revision) == ("bob", revision)
    assert [(entry.value, entry.mod_revision) for entry in raw_entries(store)] == [
        (b'{"name":"bob","enabled":true}', revision)
    ]


def test_an_update_that_expects_an_old_revision_tells_both_and_changes_nothing(chamber: CloudChamber) -> None:
    """AC-23."""
    first = chamber.users.insert("bob", BOB)
    second = chamber.users.update("bob", User(name="bob", user_id=2), expected_revision=first)
    with pytest.raises(StaleRecordError) as caught:
        chamber.users.update("bob", User(name="bob", user_id=3), expected_revision=first)
    assert (caught.value.expected_revision, caught.value.actual_revision) == (first, second)
    assert chamber.users.require("bob").user_id == 2


def test_an_update_without_expectation_raises_the_revision(chamber: CloudChamber) -> None:
    """AC-24."""
    first = chamber.users.insert("bob", BOB)
    assert chamber.users.update("bob", User(name="bob", user_id=2)) > first


def test_deletes_that_expect_a_revision_and_one_that_does_not(chamber: CloudChamber) -> None:
    """AC-25."""
    chamber.users.insert("bob", BOB)
    revision = chamber.users.update("bob", User(name="bob"))
    with pytest.raises(StaleRecordError) as early:
        chamber.users.delete("bob", expected_revision=revision - 1)
    assert early.value.actual_revision == revision
    chamber.users.delete("bob", expected_revision=revision)
    with pytest.raises(StaleRecordError) as late:
        chamber.users.delete("bob", expected_revision=revision)
    assert late.value.actual_revision == 0
    before = chamber.revision
    chamber.users.delete("bob")
    assert chamber.revision == before


def test_deleting_two_blades_of_which_one_is_absent(chamber: CloudChamber, store: Store) -> None:
    """AC-27."""
    one, two = BladeKey("rack1", 1), BladeKey("rack1", 2)
    revision = chamber.blades.insert(one, Blade())

    def delete_both(tx: CloudChamber) -> None:
        tx.blades.delete(one, missing_ok=False)
        tx.blades.delete(two, missing_ok=False)

    with pytest.raises(NotFoundError) as caught:
        chamber.run(delete_both)
    assert caught.value.key == two
    assert [entry.mod_revision for entry in raw_entries(store)] == [revision]
    with chamber.transaction() as tx:
        tx.blades.delete(one)
        tx.blades.delete(two)
    assert raw_keys(store) == []


def test_reading_two_blades_of_which_one_is_absent(chamber: CloudChamber) -> None:
    """AC-28."""
    one, two = BladeKey("rack1", 1), BladeKey("rack1", 2)
    chamber.blades.insert(one, Blade(boot_on_power_on=True))
    assert chamber.blades.get_many([one, two]) == [Blade(boot_on_power_on=True), None]
    with pytest.raises(NotFoundError) as caught:
        chamber.blades.require_many([one, two])
    assert caught.value.key == two


def test_five_keys_of_one_transaction_have_its_revision(chamber: CloudChamber, store: Store) -> None:
    """AC-29."""
    with chamber.transaction() as tx:
        for number in range(5):
            tx.users.insert(f"user{number}", User())
    assert [entry.mod_revision for entry in raw_entries(store)] == [tx.revision] * 5


def test_a_name_of_255_bytes_is_a_name_and_one_more_is_refused_before_anything_is_written(
    chamber: CloudChamber, store: Store
) -> None:
    longest = "é" * 127 + "x"
    chamber.blades.insert(BladeKey(longest, 10_000_000), Blade())
    assert list(chamber.blades.keys(longest)) == [BladeKey(longest, 10_000_000)]
    before = raw_keys(store)
    with pytest.raises(InvalidKeyError):
        chamber.racks.insert(longest + "x", Rack())
    assert raw_keys(store) == before


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\x00", "a\n", "\x7f", "\ud800"])
def test_an_identifier_with_forbidden_characters_is_refused(chamber: CloudChamber, store: Store, name: str) -> None:
    with pytest.raises(InvalidKeyError):
        chamber.racks.insert(name, Rack(details=RackDetails(condition=Condition.RETIRED)))
    assert raw_keys(store) == []
