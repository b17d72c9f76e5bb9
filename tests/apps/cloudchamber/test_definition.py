"""Reading inventory definitions: what a file may say, and what each mistake is told as."""

from pathlib import Path

import pytest

from keyplan.apps.cloudchamber import (
    Blade,
    BladeDetails,
    BootInfo,
    BootSource,
    Capacity,
    Condition,
    Definition,
    Hardware,
    HardwareType,
    MultiplicityError,
    Pdu,
    Port,
    Rack,
    State,
    Tor,
    inventory_records,
    parse_definition,
    read_definition,
    validated,
)
from keyplan.errors import InvalidInputError
from tests.apps.cloudchamber.conftest import definition_yaml


def parsed(text: str | bytes) -> Definition:
    return parse_definition(text.encode() if isinstance(text, str) else text, source="site.yaml")


def refusal(text: str | bytes) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        validated(parsed(text))
    assert caught.value.source == "site.yaml"
    return caught.value


# ---- the real files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "BadYaml.yaml",
            'CloudChamber: Configuration detected duplicate Rack rack1 in zone "zone1" in region "region1"',
        ),
        (
            "BadYamlBlade.yaml",
            'CloudChamber: Configuration detected duplicate Blade for blade 1 in region "region1", zone "zone1", rack "rack1"',
        ),
        (
            "BadYamlValidate.yaml",
            (
                'CloudChamber: in region "region1": the field "Zones[zone1].Racks[rack1].Blades[2].Cores" '
                "must be greater than or equal to 1.  It is 0, which is invalid"
            ),
        ),
    ],
)
def test_a_bad_file_is_refused_in_the_words_of_the_go_program(samples: Path, name: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        validated(read_definition(samples / name))
    assert caught.value.problem == problem


@pytest.mark.parametrize(
    ("name", "racks", "pdus", "tors", "blades"),
    [
        ("inventory.yaml", 8, 8, 8, 64),
        ("Simple.yaml", 2, 2, 2, 4),
        ("ChainedBase.yaml", 1, 1, 1, 2),
        ("ChainedAddBlade.yaml", 1, 1, 1, 3),
        ("ChainedChangeBlade.yaml", 2, 2, 2, 4),
        ("ChainedAddRack.yaml", 3, 3, 3, 6),
        ("Extended.yaml", 24, 36, 36, 192),
    ],
)
def test_a_real_file_states_what_it_says_it_does(
    samples: Path, name: str, racks: int, pdus: int, tors: int, blades: int
) -> None:
    definition = validated(read_definition(samples / name))
    found = [rack for region in definition.regions for zone in region.zones for rack in zone.racks]
    assert len(found) == racks
    assert sum(len(rack.pdus) for rack in found) == pdus
    assert sum(len(rack.tors) for rack in found) == tors
    assert sum(len(rack.blades) for rack in found) == blades


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_definition(Path("./missing/path/inventory.yaml"))
    assert caught.value.problem == "no inventory definition found at missing/path/inventory.yaml (yaml)"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").mkdir()
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_definition(tmp_path)


# ---- what a file may say -------------------------------------------------------------------------------------------------


def test_anchors_merges_and_any_case_of_keys_and_words_are_read() -> None:
    definition = parsed("""
bladetypes:
  - &small
    Details: {ENABLED: yes, condition: burn_in}
    Capacity: {cores: 4, MEMORYINMB: 8, DiskInGb: 2, NetworkBandwidthInMbps: 1, Arch: X64}
    BootInfo: {Source: NETWORK, Image: a.vhdx}
  - &ready
    <<: *small
    BootOnPowerOn: True
Regions:
  - Name: north
    Details: {State: In_Service, Location: Bremen}
    Zones:
      - Name: cellar
        Racks:
          - name: ada
            Blades:
              - Index: 7
                <<: [*ready, *small]
                DETAILS: {Condition: RETIRED}
""")
    (region,) = definition.regions
    assert (region.name, region.details.state, region.details.location) == ("north", State.IN_SERVICE, "Bremen")
    assert region.zones[0].racks[0].blades == {
        7: Blade(
            details=BladeDetails(condition=Condition.RETIRED),
            capacity=Capacity(cores=4, memory_in_mb=8, disk_in_gb=2, network_bandwidth_in_mbps=1, arch="X64"),
            boot_on_power_on=True,
            boot_info=BootInfo(source=BootSource.NETWORK, image="a.vhdx"),
        )
    }


def test_an_unwired_port_needs_no_item_and_an_item_no_type() -> None:
    definition = parsed("""
Regions:
- Name: r
  Zones:
  - Name: z
    Racks:
    - Name: k
      Pdus: [{Index: 0, Ports: [{Index: 0}, {Index: 1, Wired: true, Item: {Id: 3}}]}]
      Tors: [{Index: 0, Ports: [{Index: 0, Wired: false}]}]
      Blades: [{Index: 1, Capacity: {Cores: 1, MemoryInMb: 1, DiskInGb: 1, NetworkBandwidthInMbps: 1}}]
""")
    validated(definition)
    (rack,) = definition.regions[0].zones[0].racks
    assert rack.pdus[0].ports == {
        0: Port(),
        1: Port(wired=True, item=Hardware(type=HardwareType.UNKNOWN, id=3)),
    }


def test_texts_are_taken_as_they_are_written() -> None:
    definition = parsed("Details: {Name: 007, Notes: no}\n" + definition_yaml("1e3").decode())
    assert (definition.name, definition.notes) == ("007", "no")
    assert definition.regions[0].zones[0].racks[0].name == "1e3"


def test_the_format_before_regions_gives_one_tor_and_one_pdu_and_says_nothing_of_them() -> None:
    definition = validated(
        parsed("""
Racks:
  - Name: rack1
    Blades:
      - {Index: 1, Cores: 16, MemoryInMb: 16384, DiskInGb: 240, NetworkBandwidthInMbps: 2048, Arch: X64}
    Tor:
    Pdu: {}
""")
    )
    (rack,) = definition.regions[0].zones[0].racks
    assert (rack.rack, rack.pdus, rack.tors) == (Rack(), {0: Pdu()}, {0: Tor()})
    capacity = Capacity(cores=16, memory_in_mb=16384, disk_in_gb=240, network_bandwidth_in_mbps=2048, arch="X64")
    assert rack.blades == {1: Blade(capacity=capacity)}


# ---- mistakes of form ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", 1, "the file is empty"),
        ("# nothing\n", 1, "the file is empty"),
        ("- a\n- b\n", 1, "the file should hold keys and values, not a list"),
        ("racks", 1, "the file should hold keys and values, not a single value"),
        ("Regions: [\n", 2, "the file is not valid YAML"),
        ("a: b: c\n", 1, "the file is not valid YAML"),
        ("\tRegions: x\n", 1, "the file is not valid YAML"),
        (b"Regions: []\nDetails: {Name: \xff}\n", 2, "the file is not UTF-8"),
        ("Regions: []\n---\nRegions: []\n", 2, "the file holds more than one document"),
        ("Regions: []\nregions: []\n", 2, "the key 'regions' stands twice in one mapping, first in line 1"),
        ("A: &a {x: 1}\nB: {<<: *a, <<: *a}\n", 2, "the key '<<' stands twice"),
        ("A: 1\nRegions:\n  - {<<: 3}\n", 3, "only mappings can be merged"),
        ("Regions: *nobody\n", 1, "there is no anchor 'nobody' before this alias"),
        ("Regions: &me [*me]\n", 1, "there is no anchor 'me' before this alias"),
        ("? [a]\n: b\n", 1, "the key of a mapping is a single word"),
        ("Regions: !!python/object/apply:os.system [ls]\n", 1, "tags are not part of an inventory definition"),
        ("x: " + "[" * 100_000, 1, "the file nests deeper than 64 levels"),
        ("Regions: []\n", 1, "the file states no region"),
        ("Details: {Name: x}\n", 1, "the file states no region"),
        ("Region: []\n", 1, "there is no key 'Region'; here can be Details, Regions"),
        ("Regions: []\nRacks: []\n", 1, "there is no key 'Regions'; here can be Details, Racks"),
        ("Regions: {}\n", 1, "Regions should be a list, not a mapping"),
        ("Regions:\n- 7\n", 2, "each of Regions should hold keys and values, not a single value"),
        ("Regions:\n- Zones: []\n", 2, "the key Name is missing or empty"),
        ("Regions:\n- Name: [a]\n", 2, "a text is needed, not a list"),
        ("Regions:\n- Name: r\n  Details: {State: sleeping}\n", 3, "one of out_of_service, in_service,"),
        (
            "Regions:\n- Name: r\n  Details: {Colour: red}\n",
            3,
            "there is no key 'Colour'; here can be State, Location, Notes",
        ),
        ("Regions:\n- {Name: r}\n- {Name: r}\n", 3, "CloudChamber: Configuration detected duplicate Region r"),
        (
            "Regions:\n- Name: r\n  Zones:\n  - {Name: z}\n  - {Name: z}\n",
            5,
            'CloudChamber: Configuration detected duplicate Zone z in region "r"',
        ),
    ],
)
def test_a_malformed_file_is_refused_at_its_line(text: str | bytes, line: int, problem: str) -> None:
    error = refusal(text)
    assert str(error.problem).startswith(problem)
    assert error.line == line


@pytest.mark.parametrize(
    ("blade", "problem"),
    [
        ("{}", "the key Index is missing"),
        ("{Index: -1}", "Index is -1; it must not be negative"),
        ("{Index: one}", "a whole number is needed, not 'one'"),
        ("{Index: 1.5}", "a whole number is needed, not '1.5'"),
        ("{Index: 010}", "a whole number is needed, not '010'"),
        ("{Index: 99999999999999999999}", "a whole number of at most 18 digits is needed, not '99999999999999999999'"),
        ("{Index: " + "9" * 9_999 + "}", "a whole number of at most 18 digits is needed, not '" + "9" * 40 + "...'"),
        ("{Index: [1]}", "a whole number is needed, not a list"),
        ("{Index: 1, BootOnPowerOn: maybe}", "true or false is needed, not 'maybe'"),
        ("{Index: 1, Capacity: 16}", "Capacity should hold keys and values, not a single value"),
        ("{Index: 1, Capacity: {Cores: {}}}", "a whole number is needed, not a mapping"),
        ("{Index: 1, Capacity: {Threads: 2}}", "there is no key 'Threads'"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_at_its_place(blade: str, problem: str) -> None:
    error = refusal(
        f"Regions:\n- Name: r\n  Zones:\n  - Name: z\n    Racks:\n    - Name: k\n      Blades:\n      - {blade}\n"
    )
    assert str(error.problem).startswith(problem)
    assert error.line == 8
    assert str(error.place).startswith("Regions[1].Zones[1].Racks[1].Blades[1]")


def test_chains_of_aliases_cost_neither_time_nor_memory() -> None:
    lists = "".join(f"- &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 40))
    merges = "".join(f"- &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}], k{n}: 1}}\n" for n in range(1, 40))
    error = refusal(f"BladeTypes:\n- &l0 x\n{lists}- &m0 {{a: 1}}\n{merges}Regions: []\n")
    assert str(error.problem).startswith("the file states no region")


def test_a_short_file_that_states_millions_of_blades_is_refused() -> None:
    blades = "".join(f"  - {{Index: {number}}}\n" for number in range(1_000))
    racks = "".join(f"    - {{Name: k{number}, Blades: *blades}}\n" for number in range(1_100))
    error = refusal(
        f"BladeTypes:\n- &rack\n  Blades: &blades\n{blades}Regions:\n- Name: r\n  Zones:\n  - Name: z\n    Racks:\n{racks}"
    )
    assert error.problem == "the file states more than 1000000 racks, devices and blades"


# ---- mistakes of content -------------------------------------------------------------------------------------------------

GOOD = definition_yaml("k", blades=2).decode()


def test_the_definition_that_the_cases_below_spoil_is_good() -> None:
    validated(parsed(GOOD))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("Zones:\n", "Details: {}\n", '"Zones" must contain at least 1 element.  It contains 0'),
        (
            "Cores: 1,",
            "Cores: 16385,",
            '"Zones[z].Racks[k].Blades[1].Cores" must be less than or equal to 16384.  It is 16385',
        ),
        ("MemoryInMb: 1,", "", '"Zones[z].Racks[k].Blades[1].MemoryInMb" must be greater than or equal to 1.  It is 0'),
        (
            "DiskInGb: 1,",
            "DiskInGb: -1,",
            '"Zones[z].Racks[k].Blades[1].DiskInGb" must be greater than or equal to 1.  It is -1',
        ),
        (
            "Pdus: [{Index: 0",
            "Pdus: [{Index: 3",
            '"Zones[z].Racks[k].Pdus[3].Index" must be less than or equal to 2.  It is 3',
        ),
        ("Blades: [{Index: 1", "Blades: [{Index: 10000001", '"Zones[z].Racks[k].Blades[10000001].Index" must be less'),
        ("Tors:", "#", '"Zones[z].Racks[k].Tors" must contain at least 1 element.  It contains 0'),
        (
            ", {Index: 2, Wired",
            "]}] # {Index: 2, Wired",
            '"Zones[z].Racks[k].Pdus[0].Ports" must contain at least 2 elements',
        ),
        ("Type: blade", "Type: Pdu", '"Zones[z].Racks[k].Pdus[0].Ports[1].Item.Type" is pdu'),
        ("Wired: true, ", "", '"Zones[z].Racks[k].Pdus[0].Ports[1].Item" must not be there'),
        (", Item: {Type: blade, Id: 1}", "", '"Zones[z].Racks[k].Pdus[0].Ports[1].Item" is missing'),
    ],
)
def test_a_value_out_of_bounds_is_told_with_region_and_field(old: str, new: str, problem: str) -> None:
    assert old in GOOD
    text = GOOD[: GOOD.index("Zones:")] + "Zones: []\n" if old == "Zones:\n" else GOOD.replace(old, new, 1)
    error = refusal(text)
    assert str(error.problem).startswith('CloudChamber: in region "r": the field ' + problem)


def test_several_mistakes_are_told_at_once_up_to_ten() -> None:
    error = refusal(definition_yaml("k", blades=30).decode().replace("Cores: 1,", "Cores: 0,"))
    assert "Blades[1].Cores" in str(error.problem)
    assert isinstance(error.further, list)
    assert len(error.further) == 9


# ---- definitions under the document's layout -------------------------------------------------------------------------------


def test_racks_with_two_devices_and_repeated_names_are_refused_by_name(samples: Path) -> None:
    """AC-45, the document's layout."""
    with pytest.raises(MultiplicityError) as caught:
        inventory_records(validated(read_definition(samples / "Extended.yaml")))
    assert "region2/zone1/rack1 (2 pdus, 2 tors)" in str(caught.value.problem)
    assert "rack1, rack2, rack3, rack4" in str(caught.value.problem)


def test_several_zones_need_an_explicit_choice_of_rack_ids_even_when_names_differ() -> None:
    text = definition_yaml("k").decode().replace("  - Name: z\n", "  - {Name: y}\n  - Name: z\n")
    with pytest.raises(InvalidInputError, match=r"region\.zone\.rack"):
        inventory_records(parsed(text))


@pytest.mark.parametrize("name", ["a/b", '"a\\nb"', "..", "x" * 256])
def test_a_rack_name_that_cannot_be_part_of_a_key_is_refused_with_its_line(name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        inventory_records(validated(parsed(definition_yaml("good", name))))
    assert str(caught.value.problem).startswith("the rack id cannot be part of a key")
    assert caught.value.line == 10


def test_a_folder_means_the_inventory_file_in_it_in_any_case(tmp_path: Path) -> None:
    """4: the original's setting names the folder."""
    with pytest.raises(InvalidInputError) as caught:
        read_definition(tmp_path)
    assert caught.value.facts["problem"] == f"no inventory definition found at {tmp_path}/inventory.yaml (yaml)"
    (tmp_path / "Inventory.yaml").write_bytes(definition_yaml("rack1"))
    assert read_definition(tmp_path).source == str(tmp_path / "Inventory.yaml")
