"""Inventories written as definition files: importing one again changes nothing, and what a file cannot say is refused."""

from pathlib import Path

import pytest

import keyplan
from keyplan.apps.cloudchamber import (
    Accelerator,
    AcceleratorV100,
    Blade,
    BladeKey,
    Capacity,
    CloudChamber,
    CloudChamberGo,
    ExtraDevices,
    RackIds,
    exported,
    go_inventory_records,
    inventory_records,
    parse_definition,
    planned_import,
    read_definition,
    reconcile,
    validated,
    write_export,
)
from keyplan.apps.cloudchamber.definition_text import natural_order
from keyplan.errors import InvalidInputError
from keyplan.store import Store
from tests.apps.cloudchamber.conftest import definition_yaml, raw_entries

FILES = (
    "inventory.yaml",
    "Simple.yaml",
    "Extended.yaml",
    "ChainedBase.yaml",
    "ChainedAddBlade.yaml",
    "ChainedAddRack.yaml",
    "ChainedChangeBlade.yaml",
)


@pytest.mark.parametrize("name", FILES)
def test_every_real_file_comes_back_through_the_go_programs_keys(samples: Path, name: str) -> None:
    definition = validated(read_definition(samples / name))
    with keyplan.open("memory:") as store, keyplan.open("memory:") as second:
        go = CloudChamberGo(store)
        reconcile(go, go_inventory_records(definition))
        text = exported(go).text
        again = validated(parse_definition(text, source="again"))
        assert planned_import(go, go_inventory_records(again)).is_empty
        reconcile(CloudChamberGo(second), go_inventory_records(again))
        assert [(entry.key, entry.value) for entry in raw_entries(second)] == [
            (entry.key, entry.value) for entry in raw_entries(store)
        ]
        assert exported(CloudChamberGo(second)).text == text


@pytest.mark.parametrize("name", FILES)
def test_every_real_file_comes_back_through_the_documents_keys(samples: Path, name: str) -> None:
    definition = validated(read_definition(samples / name))
    with keyplan.open("memory:") as store:
        chamber = CloudChamber(store)
        ids = RackIds.REGION_ZONE_RACK
        extra = ExtraDevices.EXTEND
        reconcile(chamber, inventory_records(definition, extra_devices=extra, rack_ids=ids))
        found = exported(chamber, rack_ids=ids)
        again = validated(parse_definition(found.text, source="again"))
        assert planned_import(chamber, inventory_records(again, extra_devices=extra, rack_ids=ids)).is_empty
        assert found.records == len(raw_entries(store))


def test_the_text_is_for_people_and_in_the_order_of_numbers(store: Store, chamber: CloudChamber) -> None:
    source = definition_yaml("rack10", "rack9", blades=11).replace(b"- Name: rack9", b'- Name: "rack9: \\u263a"')
    reconcile(chamber, inventory_records(parse_definition(source, source="x")))
    lines = exported(chamber).text.decode().splitlines()
    assert lines[:3] == ["Regions:", "- Name: standard", "  Details: {State: out_of_service}"]
    assert [line for line in lines if line.startswith("    - Name")] == ['    - Name: "rack9: ☺"', "    - Name: rack10"]
    blades = lines[lines.index("      Blades:") :]
    assert [line for line in blades if line.startswith("      - Index")][:11] == [
        f"      - Index: {number}" for number in range(1, 12)
    ]
    assert "        - {Index: 1, Wired: true, Item: {Type: blade, Id: 1}}" in lines


@pytest.mark.parametrize(
    "name",
    ["yes", "null", "~", "1", "a: b", "# c", "'q'", '"q"', "\\", "- x", " lead", "trail ", "é", "\U0001f600", "\x85b"],
)
def test_names_that_yaml_would_take_for_something_else_come_back(name: str) -> None:
    with keyplan.open("memory:") as store:
        go = CloudChamberGo(store)
        base = go_inventory_records(parse_definition(definition_yaml("a"), source="x"))
        reconcile(go, base)
        notes = next(place for place in base if place.table == "racks")
        rack = go.racks.require(notes.key)  # type: ignore[arg-type]  # Why: the place of a rack has a rack's key.
        assert rack.details is not None
        from_notes = type(rack)(details=type(rack.details)(notes=name))
        go.racks.update(notes.key, from_notes)  # type: ignore[arg-type]  # Why: as above.
        again = parse_definition(exported(go).text, source="again")
        assert again.regions[0].zones[0].racks[0].rack == from_notes


def test_what_a_definition_cannot_say_is_refused_and_named(store: Store, chamber: CloudChamber) -> None:
    reconcile(chamber, inventory_records(parse_definition(definition_yaml("a", blades=1), source="x")))
    chamber.blades.put(BladeKey("lost", 3), Blade())
    with pytest.raises(InvalidInputError, match=r"blade 3 of lost \(it would be deleted\)"):
        exported(chamber)
    chamber.blades.delete(BladeKey("lost", 3))
    chamber.blades.modify(
        BladeKey("a", 1),
        lambda blade: Blade(
            details=blade.details,
            capacity=with_accelerator(blade.capacity or Capacity()),
            boot_info=blade.boot_info,
        ),
    )
    with pytest.raises(InvalidInputError, match=r"blade 1 of a \(capacity.accelerators\)"):
        exported(chamber)


def with_accelerator(capacity: Capacity) -> Capacity:
    return Capacity(
        cores=capacity.cores,
        memory_in_mb=capacity.memory_in_mb,
        disk_in_gb=capacity.disk_in_gb,
        network_bandwidth_in_mbps=capacity.network_bandwidth_in_mbps,
        accelerators=[Accelerator(v100=AcceleratorV100())],
    )


def test_an_empty_store_has_nothing_to_export(chamber: CloudChamber) -> None:
    with pytest.raises(InvalidInputError, match="states no region"):
        exported(chamber)


def test_a_file_that_is_there_is_replaced_only_when_asked(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    write_export(file, b"1", is_replacing=False)
    with pytest.raises(InvalidInputError, match="the file is there"):
        write_export(file, b"2", is_replacing=False)
    assert file.read_bytes() == b"1"
    write_export(file, b"3", is_replacing=True)
    assert file.read_bytes() == b"3"
    assert [found.name for found in tmp_path.iterdir()] == ["x.yaml"]


def test_names_are_in_natural_order() -> None:
    assert sorted(["r10", "r9", "a", "r9b", "10", "9"], key=natural_order) == ["9", "10", "a", "r9", "r9b", "r10"]
