"""Importing inventories: what is written, what is left alone, and what happens when it is cut off or not alone."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import keyplan
from keyplan.apps.cloudchamber import (
    BladeKey,
    CloudChamber,
    Condition,
    DeviceKey,
    ExtraDevices,
    Hardware,
    HardwareType,
    InventoryKey,
    InventoryRecord,
    Port,
    Rack,
    RackDetails,
    RackIds,
    StoredRecord,
    User,
    inventory_records,
    parse_definition,
    plan_import,
    planned_import,
    read_definition,
    reconcile,
    validated,
)
from keyplan.engine import ALL_KEYS, MEMORY_PROFILE, Commit, DelayedEngine, MemoryEngine, Put
from keyplan.errors import CorruptionError, InvalidInputError, KeyplanError
from keyplan.protobuf import ProtoJson
from keyplan.store import Store
from keyplan.testing.checked import check_after
from keyplan.testing.faults import FailingEngine
from tests.apps.cloudchamber.conftest import Desired, definition_yaml, raw_entries, raw_keys

P = b"/CloudChamber/V0.1/"
SMALL_PROFILE = replace(MEMORY_PROFILE, commit_operations_max=7)
"""An engine that takes 7 operations in a commit: none of the inventories below fits into one."""


def records_of(*racks: str, blades: int = 1) -> Desired:
    return inventory_records(validated(parse_definition(definition_yaml(*racks, blades=blades), source="site.yaml")))


def contents(store: Store) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in raw_entries(store)}


def contents_of(desired: Desired) -> dict[bytes, bytes]:
    """What a store holds after an import of `desired` alone, in one commit."""
    with check_after(keyplan.open("memory:"), CloudChamber) as store:
        reconcile(CloudChamber(store), desired)
        return contents(store)


# ---- the real files --------------------------------------------------------------------------------------------------------


def test_the_standard_inventory_is_88_keys_of_28624_bytes(
    store: Store, chamber: CloudChamber, desired: Callable[[str], Desired]
) -> None:
    """AC-40."""
    outcome = reconcile(chamber, desired("inventory.yaml"))
    entries = raw_entries(store)
    assert len(entries) == 88
    assert sum(len(entry.value) for entry in entries) == 28_624
    assert {entry.mod_revision for entry in entries} == {outcome.revision}
    assert (len(outcome.plan.creates), outcome.commits) == (88, 1)
    counts = [chamber.racks.count(), chamber.tor.count(), chamber.pdu.count(), chamber.blades.count()]
    assert counts == [8, 8, 8, 64]
    blade = chamber.blades.require(BladeKey("rack1", 1))
    assert blade.capacity is not None
    assert blade.boot_info is not None
    assert (blade.capacity.cores, blade.capacity.disk_in_gb) == (16, 240)
    assert blade.boot_info.parameters == "-version=1 -node=R1Z1R1B1"
    ports = chamber.pdu.require("rack1").ports
    assert len(ports) == 9
    assert ports[0] == Port(wired=True, item=Hardware(type=HardwareType.TOR, id=0))
    assert ports[8] == Port(wired=True, item=Hardware(type=HardwareType.BLADE, id=8))
    lengths = {entry.key: len(entry.value) for entry in entries}
    assert lengths[P + b"racks/rack1"] == 136
    assert lengths[P + b"rack/rack1/blades/1"] == 300
    assert lengths[P + b"rack/rack1/pdu"] == 521


def test_importing_the_same_file_again_writes_nothing(
    store: Store, chamber: CloudChamber, desired: Callable[[str], Desired]
) -> None:
    """AC-41."""
    reconcile(chamber, desired("inventory.yaml"))
    revision = chamber.revision
    outcome = reconcile(chamber, desired("inventory.yaml"))
    assert outcome.plan.is_empty
    assert (outcome.plan.unchanged, outcome.commits, outcome.revision) == (88, 0, revision)
    assert chamber.revision == revision
    assert list(store.engine.watch(ALL_KEYS, after=revision).poll(0)) == []


def test_a_blade_comes_and_goes_and_only_its_ports_change_with_it(
    store: Store, chamber: CloudChamber, desired: Callable[[str], Desired]
) -> None:
    """AC-42."""
    first = reconcile(chamber, desired("ChainedBase.yaml")).revision
    before = contents(store)
    added = reconcile(chamber, desired("ChainedAddBlade.yaml"))
    assert {entry.key: entry.mod_revision for entry in raw_entries(store)} == {
        P + b"rack/rack1/blades/1": first,
        P + b"rack/rack1/blades/2": first,
        P + b"rack/rack1/blades/3": added.revision,
        P + b"rack/rack1/pdu": added.revision,
        P + b"rack/rack1/tor": added.revision,
        P + b"racks/rack1": first,
    }
    assert {change.place.table: change.changed_fields for change in added.plan.updates} == {
        "pdu": ("ports.3",),
        "tor": ("ports.3",),
    }
    reconcile(chamber, desired("ChainedBase.yaml"))
    assert contents(store) == before


def test_racks_that_the_file_no_longer_has_go_with_all_their_parts(
    store: Store, chamber: CloudChamber, desired: Callable[[str], Desired]
) -> None:
    reconcile(chamber, desired("ChainedAddRack.yaml"))
    outcome = reconcile(chamber, desired("ChainedBase.yaml"))
    assert {change.place.rack for change in outcome.plan.deletes} == {"rack2", "rack3"}
    assert contents(store) == contents_of(desired("ChainedBase.yaml"))


@pytest.mark.parametrize("name", ["BadYaml.yaml", "BadYamlBlade.yaml", "BadYamlValidate.yaml"])
def test_a_bad_file_leaves_the_store_as_it_was(
    store: Store, chamber: CloudChamber, desired: Callable[[str], Desired], name: str
) -> None:
    """AC-44; the messages are in test_definition.py."""
    before = chamber.revision
    with pytest.raises(InvalidInputError):
        reconcile(chamber, desired(name))
    assert (raw_keys(store), chamber.revision) == ([], before)


def test_two_devices_and_many_zones_are_imported_when_both_are_asked_for(
    store: Store, chamber: CloudChamber, samples: Path
) -> None:
    """AC-45: 24 racks, 36 PDUs, 36 TORs and 192 blades."""
    definition = validated(read_definition(samples / "Extended.yaml"))
    reconcile(
        chamber,
        inventory_records(definition, extra_devices=ExtraDevices.EXTEND, rack_ids=RackIds.REGION_ZONE_RACK),
    )
    assert len(raw_keys(store)) == 24 + 36 + 36 + 192
    assert P + b"rack/region2.zone3.rack4/pdus/1" in raw_keys(store)
    assert chamber.tors.exists(DeviceKey("region2.zone1.rack1", 1))
    assert chamber.tors.count() == 12


# ---- what is not the file's ------------------------------------------------------------------------------------------------


@pytest.mark.leaves("key-outside", "unknown-key")
def test_users_workloads_other_prefixes_and_test_instances_are_not_touched(
    store: Store, chamber: CloudChamber, desired: Callable[[str], Desired]
) -> None:
    others = {
        P + b"users/alice": b'{"name":"alice"}',
        P + b"workloads/web": b"{}",
        P + b"workload/web/instances/i1": b"{}",
        P + b"Test/Standard/racks/rack9": b"{}",
        P + b"racks2/rack9": b"x",
        P + b"rack/rack9": b"x",
        b"/CloudChamber/v0.1/racks/rack9": b"x",
        b"/other": b"x",
    }
    store.engine.commit(Commit((), tuple(Put(key, value) for key, value in others.items())))
    reconcile(chamber, desired("ChainedBase.yaml"))
    assert contents(store) == {**others, **contents_of(desired("ChainedBase.yaml"))}
    reconcile(chamber, records_of("other"))
    assert contents(store) == {**others, **contents_of(records_of("other"))}


def test_a_test_instance_has_an_inventory_of_its_own(store: Store) -> None:
    reconcile(CloudChamber(store), records_of("a"))
    reconcile(CloudChamber(store, namespace="Test/Standard/"), records_of("b"))
    assert raw_keys(store) == [
        P + b"Test/Standard/rack/b/blades/1",
        P + b"Test/Standard/rack/b/pdu",
        P + b"Test/Standard/rack/b/tor",
        P + b"Test/Standard/racks/b",
        P + b"rack/a/blades/1",
        P + b"rack/a/pdu",
        P + b"rack/a/tor",
        P + b"racks/a",
    ]


def test_parts_without_a_rack_are_cleared_away(store: Store, chamber: CloudChamber) -> None:
    chamber.users.insert("alice", User())
    store.engine.commit(Commit((), (Put(P + b"rack/gone/blades/4", b"{}"), Put(P + b"rack/gone/pdus/1", b"{}"))))
    outcome = reconcile(chamber, records_of("a"))
    assert {change.place for change in outcome.plan.deletes} == {
        InventoryKey("blades", BladeKey("gone", 4)),
        InventoryKey("pdus", DeviceKey("gone", 1)),
    }
    assert chamber.racks.count() == 1
    assert P + b"users/alice" in raw_keys(store)


def test_fields_of_a_newer_program_survive_an_import(store: Store, chamber: CloudChamber) -> None:
    reconcile(chamber, records_of("a"))
    tor = ProtoJson(Rack).decode(b'{"details":{"height":"42U"},"owner":"x"}')
    chamber.racks.update("a", tor)
    assert reconcile(chamber, records_of("a")).plan.is_empty
    chamber.racks.update("a", replace_location(tor, "elsewhere"))
    outcome = reconcile(chamber, records_of("a"))
    assert [change.changed_fields for change in outcome.plan.updates] == [("details.location",)]
    assert contents(store)[P + b"racks/a"] == b'{"details":{"height":"42U"},"owner":"x"}'


def replace_location(rack: Rack, location: str) -> Rack:
    assert rack.details is not None
    details = RackDetails(location=location, unknown_fields=rack.details.unknown_fields)
    return Rack(details=details, unknown_fields=rack.unknown_fields)


@pytest.mark.leaves("damaged-record")
def test_a_damaged_record_stops_the_import_before_it_writes(store: Store, chamber: CloudChamber) -> None:
    store.engine.commit(Commit((), (Put(P + b"rack/a/blades/1", b"{damaged"),)))
    with pytest.raises(CorruptionError) as caught:
        reconcile(chamber, records_of("a", "b"))
    assert bytes.fromhex(str(caught.value.raw_key)) == P + b"rack/a/blades/1"
    assert raw_keys(store) == [P + b"rack/a/blades/1"]


# ---- plans -----------------------------------------------------------------------------------------------------------------


def test_a_plan_is_written_by_nobody(store: Store, chamber: CloudChamber) -> None:
    before = chamber.revision
    plan = planned_import(chamber, records_of("a", blades=3))
    assert len(plan.creates) == 6
    assert (raw_keys(store), chamber.revision) == ([], before)


def test_a_plan_creates_a_racks_own_record_last_and_deletes_it_first() -> None:
    current = {place: StoredRecord(record, 5) for place, record in records_of("old").items()}
    plan = plan_import(current, records_of("new"))
    assert [(change.place.rack, change.place.table) for change in plan.changes] == [
        ("new", "blades"),
        ("new", "pdu"),
        ("new", "tor"),
        ("new", "racks"),
        ("old", "racks"),
        ("old", "blades"),
        ("old", "pdu"),
        ("old", "tor"),
    ]
    assert [change.seen for change in plan.changes] == [0, 0, 0, 0, 5, 5, 5, 5]


def test_a_change_of_one_fields_item_alone_is_a_change() -> None:
    """3.5, 8: the Go program does not see that a cable went to another port of the same device."""
    place = InventoryKey("pdu", "a")
    wanted = records_of("a")
    stored = dict(wanted)
    stored[place] = ProtoJson(type(wanted[place])).decode(
        b'{"details":{},"ports":{"1":{"wired":true,"item":{"type":"blade","id":"1","port":"1"}}}}'
    )
    plan = plan_import({key: StoredRecord(record, 1) for key, record in stored.items()}, wanted)
    assert [change.changed_fields for change in plan.updates] == [("ports.1.item.port",)]


# ---- engines that do not take it in one commit ----------------------------------------------------------------------------


def test_a_thousand_blades_are_one_commit_where_the_engine_takes_it(tmp_path: Path) -> None:
    wanted = records_of(*(f"rack{number}" for number in range(10)), blades=100)
    with check_after(keyplan.open(f"lmdb:{tmp_path / 'kv'}"), CloudChamber) as store:
        outcome = reconcile(CloudChamber(store), wanted)
        assert (outcome.commits, outcome.revision, len(raw_keys(store))) == (1, 1, 1_030)
        assert len({entry.mod_revision for entry in raw_entries(store)}) == 1


def test_a_thousand_blades_are_guarded_steps_where_the_engine_takes_128_operations() -> None:
    profile = replace(MEMORY_PROFILE, commit_operations_max=128)
    wanted = records_of(*(f"rack{number}" for number in range(10)), blades=100)
    told: list[tuple[int, int]] = []
    with check_after(Store(MemoryEngine(profile=profile)), CloudChamber) as store:
        outcome = reconcile(CloudChamber(store), wanted, report=lambda done, total: told.append((done, total)))
        assert outcome.commits == outcome.revision == 9  # 1,030 changes, halved to 128 at a time
        assert contents(store) == contents_of(wanted)
        again = reconcile(CloudChamber(store), wanted)
        assert (again.plan.is_empty, again.commits, again.revision) == (True, 0, 9)
    assert told[0] == (128, 1_030)
    assert told[-1] == (1_030, 1_030)


def test_a_record_that_no_commit_can_hold_is_refused_and_the_limit_named() -> None:
    profile = replace(MEMORY_PROFILE, value_bytes_max=300)
    with check_after(Store(MemoryEngine(profile=profile)), CloudChamber) as store:
        with pytest.raises(KeyplanError) as caught:
            reconcile(CloudChamber(store), records_of("a", blades=10))
        assert caught.value.limit == "value_bytes_max"
        assert raw_keys(store) == []


@pytest.mark.slow
def test_an_import_that_is_cut_off_at_any_step_is_completed_by_running_it_again() -> None:
    base, wanted = records_of("a", "b", blades=2), records_of("b", "c", blades=3)
    users = {P + b"users/alice": b"{}"}
    expected = {**contents_of(wanted), **users}
    step = 0
    while True:
        step += 1
        inner = MemoryEngine(profile=SMALL_PROFILE)
        failing = FailingEngine(inner, at_step=step, closes_inner=False)
        with Store(inner) as store:
            reconcile(CloudChamber(store), base)
            store.engine.commit(Commit((), tuple(Put(key, value) for key, value in users.items())))
            try:
                reconcile(CloudChamber(Store(failing)), wanted)
            except KeyplanError:
                reconcile(CloudChamber(store), wanted)
            else:
                break  # It has fewer steps than that.
            assert contents(store) == expected
    assert step > 20


# ---- more than one at a time ----------------------------------------------------------------------------------------------


def test_two_imports_at_once_leave_the_inventory_of_one_of_them(store: Store) -> None:
    first, second = records_of("a", "b", blades=3), records_of("b", "c", blades=2)
    barrier = threading.Barrier(2)
    errors: list[BaseException] = []

    def run(wanted: Desired) -> None:
        barrier.wait()
        try:
            for _ in range(5):
                reconcile(CloudChamber(store), wanted)
        except KeyplanError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(wanted,)) for wanted in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert contents(store) in (contents_of(first), contents_of(second))


@pytest.mark.parametrize("between", [1, 2, 3, 4, 5, 6])
def test_an_import_in_steps_notices_another_that_comes_between(between: int) -> None:
    wanted, other = records_of("a", "b", blades=5), records_of("b", "c", blades=4)
    inner = MemoryEngine(profile=SMALL_PROFILE)
    commits = 0

    def come_between(call: str) -> None:
        nonlocal commits
        if call == "commit":
            commits += 1
            if commits == between:
                reconcile(CloudChamber(Store(inner)), other)

    with check_after(Store(DelayedEngine(inner, come_between)), CloudChamber) as store:
        reconcile(CloudChamber(store), wanted)
        assert commits > between
        assert contents(store) == contents_of(wanted)


def test_an_import_in_steps_gives_up_when_others_never_stop() -> None:
    inner = MemoryEngine(profile=SMALL_PROFILE)
    rivals: list[Desired] = [records_of("b", "c", blades=4), records_of("c", "d", blades=4)]
    is_inside = False

    def come_between(call: str) -> None:
        nonlocal is_inside
        if call == "commit" and not is_inside:
            is_inside = True
            rivals.reverse()
            reconcile(CloudChamber(Store(inner)), rivals[0])
            is_inside = False

    with (
        check_after(Store(DelayedEngine(inner, come_between)), CloudChamber) as store,
        pytest.raises(KeyplanError) as caught,
    ):
        reconcile(CloudChamber(store), records_of("a", "b", blades=5))
    assert caught.value.code in {"stale-record", "already-exists", "commit-conflict"}


def test_the_conditions_of_a_definition_are_those_of_the_records() -> None:
    text = definition_yaml("a").decode().replace("- Name: a", "- Name: a\n        Details: {Condition: OUT_for_Repair}")
    records: dict[InventoryKey, InventoryRecord] = dict(inventory_records(parse_definition(text.encode(), source="x")))
    assert records[InventoryKey("racks", "a")] == Rack(details=RackDetails(condition=Condition.OUT_FOR_REPAIR))
