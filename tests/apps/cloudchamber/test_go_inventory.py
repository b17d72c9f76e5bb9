"""Inventories under the Go program's keys: what an import writes there, bounded commits, and what a check of pairs finds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import keyplan
from keyplan.apps.cloudchamber import (
    CloudChamberGo,
    GoBladeKey,
    GoPlace,
    GoRackKey,
    GoRecord,
    GoRegionKey,
    Region,
    RegionDetails,
    User,
    folded,
    go_inventory_records,
    parse_definition,
    planned_import,
    read_definition,
    reconcile,
    unsound_pairs,
    validated,
)
from keyplan.engine import MEMORY_PROFILE, Commit, Delete, MemoryEngine, Put
from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.layout import Kind
from keyplan.store import Store
from keyplan.testing.checked import check_after
from keyplan.testing.faults import FailingEngine
from tests.apps.cloudchamber.conftest import definition_yaml, raw_entries, raw_keys

P = b"/CloudChamber/v0.1/inventory/definition/"
Wanted = dict[GoPlace, GoRecord]


@pytest.fixture
def go_store(store_url: str) -> Iterator[Store]:
    with check_after(keyplan.open(store_url), CloudChamberGo) as opened:
        yield opened


def records_of(*racks: str, blades: int = 1) -> Wanted:
    definition = validated(parse_definition(definition_yaml(*racks, blades=blades), source="site.yaml"))
    return dict(go_inventory_records(definition))


def contents(store: Store) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in raw_entries(store)}


def problems(store: Store) -> list[tuple[str, str]]:
    return [(pair.raw_key, pair.problem) for pair in unsound_pairs(CloudChamberGo(store))]


# ---- the real files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "keys"), [("inventory.yaml", 180), ("Extended.yaml", 592)])
def test_every_thing_in_a_real_file_is_a_record_and_a_list_key(
    go_store: Store, samples: Path, name: str, keys: int
) -> None:
    """AC-45, and the 180 keys of AC-46."""
    wanted = go_inventory_records(validated(read_definition(samples / name)))
    outcome = reconcile(CloudChamberGo(go_store), wanted)
    entries = raw_entries(go_store)
    assert (len(entries), len(outcome.plan.creates)) == (keys, keys)
    assert (outcome.commits > 1) == (go_store.engine.profile.commit_operations_max is not None)
    assert sum(b"/index/" in entry.key for entry in entries) == keys // 2
    assert problems(go_store) == []
    again = reconcile(CloudChamberGo(go_store), wanted)
    assert (again.plan.is_empty, again.commits, again.revision) == (True, 0, outcome.revision)


def test_the_standard_inventory_is_28977_bytes_as_the_go_program_spells_them(go_store: Store, samples: Path) -> None:
    """2.2: the values that the specification prints, byte for byte."""
    reconcile(CloudChamberGo(go_store), go_inventory_records(validated(read_definition(samples / "inventory.yaml"))))
    found = contents(go_store)
    assert sum(map(len, found.values())) == 28_977
    rack = P + b"data/region/standard/zone/standard/rack/rack1"
    assert found[rack] == (
        b'{"details":{"enabled":true,"condition":"operational","location":"Pacific NW, rack 1",'
        b'"notes":"rack definition, 1 pdu, 1 tor, 8 blades"}}'
    )
    assert found[rack + b"/blade/1"] == (
        b'{"details":{"enabled":true,"condition":"operational"},"capacity":{"cores":"16","memoryInMb":"16384",'
        b'"diskInGb":"240","networkBandwidthInMbps":"2048","arch":"X64"},"bootOnPowerOn":true,"bootInfo":{'
        b'"source":"network","image":"standard.vhdx","version":"latest","parameters":"-version=1 -node=R1Z1R1B1"}}'
    )
    assert found[P + b"index/regions/standard"] == b"standard"
    assert found[P + b"index/region/standard/zone/standard/racks/rack1"] == b"rack1"
    assert found[P + b"index/region/standard/zone/standard/rack/rack1/blades/8"] == b"8"
    assert len(found[rack + b"/pdu/0"]) == 521


def test_keys_are_folded_and_list_keys_keep_the_case(go_store: Store) -> None:
    text = definition_yaml("RackA").replace(b"- Name: r\n", b"- Name: North\n").replace(b"Name: z\n", b"Name: Zone 1\n")
    reconcile(CloudChamberGo(go_store), go_inventory_records(parse_definition(text, source="x")))
    found = contents(go_store)
    assert found[P + b"index/regions/north"] == b"North"
    assert found[P + b"index/region/north/zones/zone 1"] == b"Zone 1"
    assert found[P + b"index/region/north/zone/zone 1/racks/racka"] == b"RackA"
    assert P + b"data/region/north/zone/zone 1/rack/racka/tor/0" in found
    assert problems(go_store) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("RACK", "rack"), ("\u03a3\u0391\u03a3", "\u03c3\u03b1\u03c3"), ("\u0130x", "ix"), ("Zoë", "zoë")],
)
def test_names_are_folded_character_by_character(name: str, expected: str) -> None:
    assert folded(name) == expected


def test_names_that_differ_in_case_alone_are_refused_and_both_are_named() -> None:
    with pytest.raises(InvalidInputError) as caught:
        records_of("rack1", "Rack1")
    assert caught.value.problem == (
        "rack r/z/rack1 and rack r/z/Rack1 would both have one key: keys know no upper case"
    )


def test_a_name_with_a_slash_cannot_be_part_of_a_key() -> None:
    with pytest.raises(InvalidInputError) as caught:
        records_of("a/b")
    assert str(caught.value.problem).startswith("the name of rack r/z/a/b cannot be part of a key")


# ---- reconciling -----------------------------------------------------------------------------------------------------------


def test_what_the_file_no_longer_has_goes_with_its_list_keys_and_nothing_else(go_store: Store) -> None:
    go = CloudChamberGo(go_store)
    go.users.insert("alice", User(name="Alice"))
    reconcile(go, records_of("a", "b", blades=2))
    before = contents(go_store)
    outcome = reconcile(go, records_of("b", blades=2))
    assert len(outcome.plan.deletes) == 10
    assert contents(go_store) == {
        key: value for key, value in before.items() if b"rack/a" not in key and key[-2:] != b"/a"
    }
    assert b"/CloudChamber/v0.1/users/alice" in raw_keys(go_store)


def test_an_import_leaves_the_other_views_alone(go_store: Store) -> None:
    go = CloudChamberGo(go_store)
    go.listed_regions.insert(GoRegionKey("actual", "r"), "r")
    go.regions.insert(GoRegionKey("actual", "r"), Region())
    assert reconcile(go, records_of("a")).plan.deletes == ()
    assert go.listed_regions.get(GoRegionKey("actual", "r")) == "r"


def test_a_change_of_a_region_is_one_update(go_store: Store) -> None:
    go = CloudChamberGo(go_store)
    reconcile(go, records_of("a"))
    text = definition_yaml("a").replace(b"- Name: r\n", b"- Name: r\n  Details: {Location: there}\n")
    changed = go_inventory_records(parse_definition(text, source="x"))
    assert [
        (change.place.table, change.place.rack, change.changed_fields) for change in planned_import(go, changed).updates
    ] == [("regions", "r", ("details.location",))]
    reconcile(go, changed)
    region = go.regions.require(GoRegionKey("definition", "r"))
    assert region.details == RegionDetails(location="there")


def test_a_plan_writes_a_rack_from_the_inside_out_and_deletes_it_from_the_outside_in(go_store: Store) -> None:
    go = CloudChamberGo(go_store)
    reconcile(go, records_of("old"))
    plan = planned_import(go, records_of("new"))
    assert [(change.place.rack, change.place.table) for change in plan.changes] == [
        *(("r/z/new", table) for table in ("blades", "listed_blades", "listed_pdus", "pdus", "listed_tors", "tors")),
        *(("r/z/new", table) for table in ("listed_racks", "racks")),
        *(("r/z/old", table) for table in ("listed_racks", "racks")),
        *(("r/z/old", table) for table in ("blades", "listed_blades", "listed_pdus", "pdus", "listed_tors", "tors")),
    ]


@pytest.mark.parametrize("operations_max", [2, 7, 128])
def test_a_record_and_its_list_key_are_written_by_one_commit_on_an_engine_of_small_commits(operations_max: int) -> None:
    profile = replace(MEMORY_PROFILE, commit_operations_max=operations_max)
    with check_after(Store(MemoryEngine(profile=profile)), CloudChamberGo) as store:
        outcome = reconcile(CloudChamberGo(store), records_of("a", "b", blades=30))
        assert outcome.commits > 1
        written = {entry.key: entry.mod_revision for entry in raw_entries(store)}
        for key, revision in written.items():
            if b"/blade/" in key:
                listed = key.replace(b"/data/", b"/index/").replace(b"/blade/", b"/blades/")
                assert written[listed] == revision


def test_an_engine_that_cannot_hold_a_record_and_its_list_key_is_refused() -> None:
    profile = replace(MEMORY_PROFILE, commit_operations_max=1)
    with Store(MemoryEngine(profile=profile)) as store:
        with pytest.raises(KeyplanError) as caught:
            reconcile(CloudChamberGo(store), records_of("a"))
        assert caught.value.limit == "commit_operations_max"
        assert raw_keys(store) == []


@pytest.mark.slow
def test_an_import_that_is_cut_off_at_any_step_is_sound_and_is_completed_by_running_it_again() -> None:
    base, wanted = records_of("a", "b", blades=2), records_of("b", "c", blades=3)
    with Store(MemoryEngine()) as whole:
        reconcile(CloudChamberGo(whole), wanted)
        expected = contents(whole)
    step = 0
    while True:
        step += 1
        inner = MemoryEngine(profile=replace(MEMORY_PROFILE, commit_operations_max=6))
        failing = FailingEngine(inner, at_step=step, closes_inner=False)
        with Store(inner) as store:
            reconcile(CloudChamberGo(store), base)
            try:
                reconcile(CloudChamberGo(Store(failing)), wanted)
            except KeyplanError:
                assert problems(store) == []
                reconcile(CloudChamberGo(store), wanted)
            else:
                break  # It has fewer steps than that.
            assert contents(store) == expected
    assert step > 20


# ---- the check of pairs ----------------------------------------------------------------------------------------------------


def test_a_record_without_a_list_key_a_list_key_without_a_record_and_a_wrong_name_are_found(go_store: Store) -> None:
    reconcile(CloudChamberGo(go_store), records_of("a", blades=2))
    rack = P + b"index/region/r/zone/z/rack/a/"
    go_store.engine.commit(
        Commit(
            (),
            (
                Delete(rack + b"blades/1"),
                Put(rack + b"tors/2", b"2"),
                Put(P + b"index/region/r/zone/z/racks/a", b"B"),
                Put(rack + b"blades/2", b"3"),
            ),
        )
    )
    places = [pair.place for pair in unsound_pairs(CloudChamberGo(go_store))]
    assert GoPlace("blades", GoBladeKey("definition", "r", "z", "a", 1)) in places
    assert GoPlace("listed_racks", GoRackKey("definition", "r", "z", "a")) in places
    assert sorted(problems(go_store)) == [
        (
            "/CloudChamber/v0.1/inventory/definition/data/region/r/zone/z/rack/a/blade/1",
            "the record has no list key: no list shows it",
        ),
        (
            "/CloudChamber/v0.1/inventory/definition/index/region/r/zone/z/rack/a/blades/2",
            "the list key lists another name than its own",
        ),
        ("/CloudChamber/v0.1/inventory/definition/index/region/r/zone/z/rack/a/tors/2", "the list key has no record"),
        (
            "/CloudChamber/v0.1/inventory/definition/index/region/r/zone/z/racks/a",
            "the list key lists another name than its own",
        ),
    ]
    reconcile(CloudChamberGo(go_store), records_of("a", blades=2))
    assert problems(go_store) == []


# ---- a store that the Go program wrote --------------------------------------------------------------------------------------

GO_STORE: dict[bytes, bytes] = {
    b"/CloudChamber/v0.1/users/admin": (
        b'{"name":"Admin","passwordHash":"JDJhJDA0JDE=","enabled":true,"neverDelete":true,"rights":{'
        b'"canManageAccounts":true,"canStepTime":true,"canModifyWorkloads":true,"canModifyInventory":true,'
        b'"canInjectFaults":true,"canPerformRepairs":true}}'
    ),
    P + b"data/region/standard": (
        b'{"details":{"state":"in_service","location":"Pacific NW","notes":"\\u003cfirst\\u003e \\u0026 only"}}'
    ),
    P + b"data/region/standard/zone/standard": b'{"details":{"enabled":true,"state":"in_service"}}',
    P + b"data/region/standard/zone/standard/rack/rack1": (
        b'{"details":{"enabled":true,"condition":"operational","location":"Pacific NW, rack 1",'
        b'"notes":"rack definition, 1 pdu, 1 tor, 8 blades"}}'
    ),
    P + b"data/region/standard/zone/standard/rack/rack1/pdu/0": (
        b'{"details":{"enabled":true,"condition":"operational"},"ports":{"0":{"wired":true,"item":{"type":"tor"}},'
        b'"1":{"wired":true,"item":{"type":"blade","id":"1"}}}}'
    ),
    P + b"data/region/standard/zone/standard/rack/rack1/tor/0": (
        b'{"details":{"enabled":true,"condition":"operational"},"ports":{"0":{"wired":true,"item":{"type":"pdu"}},'
        b'"2":{},"10":{"wired":true,"item":{"type":"blade","id":"1","port":"1"}}}}'
    ),
    P + b"data/region/standard/zone/standard/rack/rack1/blade/1": (
        b'{"details":{"enabled":true,"condition":"operational"},"capacity":{"cores":"16","memoryInMb":"16384",'
        b'"diskInGb":"240","networkBandwidthInMbps":"2048","arch":"X64"},"bootOnPowerOn":true,"bootInfo":{'
        b'"source":"network","image":"standard.vhdx","version":"latest","parameters":"-version=1 -node=R1Z1R1B1"}}'
    ),
    P + b"index/regions/standard": b"Standard",
    P + b"index/region/standard/zones/standard": b"standard",
    P + b"index/region/standard/zone/standard/racks/rack1": b"Rack1",
    P + b"index/region/standard/zone/standard/rack/rack1/pdus/0": b"0",
    P + b"index/region/standard/zone/standard/rack/rack1/tors/0": b"0",
    P + b"index/region/standard/zone/standard/rack/rack1/blades/1": b"1",
}
"""As etcd would give it, spelled by hand after 2.2."""


def test_a_store_of_the_go_program_decodes_whole_and_is_written_again_byte_for_byte(go_store: Store) -> None:
    go_store.engine.commit(Commit((), tuple(Put(key, value) for key, value in GO_STORE.items())))
    go = CloudChamberGo(go_store)
    tables = CloudChamberGo.bound().tables
    for raw_key, raw_value in GO_STORE.items():
        meaning = go.meaning(raw_key)
        assert meaning.kind is Kind.RECORD, raw_key
        table = tables[str(meaning.item)]
        assert table.keys.encode(meaning.key) == raw_key
        assert table.form.encode(table.form.decode(raw_value)) == raw_value
        go.view(table.name).modify(meaning.key, lambda record: record)
    assert contents(go_store) == GO_STORE
    assert problems(go_store) == []
    admin = go.users.require("admin")
    assert (admin.name, admin.password_hash.reveal()) == ("Admin", b"$2a$04$1")
