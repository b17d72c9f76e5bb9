"""Every key that the CloudChamber document prints, byte for byte, and every pattern of the Go program beside it."""

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from keyplan.apps.cloudchamber import (
    BladeKey,
    CloudChamber,
    CloudChamberGo,
    DeviceKey,
    GoBladeKey,
    GoDeviceKey,
    GoRackKey,
    GoRegionKey,
    GoZoneKey,
    InstanceKey,
    PartActualKey,
    TargetBlade,
)
from keyplan.errors import InvalidKeyError
from keyplan.layout import BoundLayout, Kind, describe, layout_of_description

PREFIX: Final = "/CloudChamber/V0.1"
GO_PREFIX: Final = "/CloudChamber/v0.1"


class Golden(NamedTuple):
    """A key in full, the table it belongs to, and the Python key."""

    raw: str
    table: str
    key: object


# The document's "key" rows, in its order, with its own words in braces replaced.
PRINTED_KEYS: Final[dict[str, Golden]] = {
    "/users/{username}": Golden(f"{PREFIX}/users/alice", "users", "alice"),
    "/racks/{rackid}": Golden(f"{PREFIX}/racks/rack1", "racks", "rack1"),
    "/rack/{rackid}/tor": Golden(f"{PREFIX}/rack/rack1/tor", "tor", "rack1"),
    "/rack/{rackid}/pdu": Golden(f"{PREFIX}/rack/rack1/pdu", "pdu", "rack1"),
    "/rack/{rackid}/blades/{bladeid}": Golden(f"{PREFIX}/rack/rack1/blades/7", "blades", BladeKey("rack1", 7)),
    "/workloads/{workloadid}": Golden(f"{PREFIX}/workloads/web", "workloads", "web"),
    "/workload/{workloadid}/instance/{instanceid}/actual": Golden(
        f"{PREFIX}/workload/web/instance/i1/actual", "instance_actual", InstanceKey("web", "i1")
    ),
    "/workload/{workloadid}/instance/{instanceid}/target": Golden(
        f"{PREFIX}/workload/web/instance/i1/target", "instance_target", InstanceKey("web", "i1")
    ),
}

# The document's "prefix" rows: the range that a list reads instead, closed at the separator (R2), and whose list it is.
PRINTED_PREFIXES: Final[dict[str, tuple[str, tuple[object, ...], bytes, bytes]]] = {
    "/users": ("users", (), b"/CloudChamber/V0.1/users/", b"/CloudChamber/V0.1/users0"),
    "/racks": ("racks", (), b"/CloudChamber/V0.1/racks/", b"/CloudChamber/V0.1/racks0"),
    "/rack/{rackid}/blades": (
        "blades",
        ("rack1",),
        b"/CloudChamber/V0.1/rack/rack1/blades/",
        b"/CloudChamber/V0.1/rack/rack1/blades0",
    ),
    "/workloads": ("workloads", (), b"/CloudChamber/V0.1/workloads/", b"/CloudChamber/V0.1/workloads0"),
    "/workload/{workloadid}/instances": (
        "instances",
        ("web",),
        b"/CloudChamber/V0.1/workload/web/instances/",
        b"/CloudChamber/V0.1/workload/web/instances0",
    ),
}

BESIDE_THE_DOCUMENT: Final = (
    Golden(f"{PREFIX}/workload/web/instances/i1", "instances", InstanceKey("web", "i1")),  # R1, AC-07
    Golden(f"{PREFIX}/rack/rack1/tors/1", "tors", DeviceKey("rack1", 1)),  # R6
    Golden(f"{PREFIX}/rack/rack1/pdus/2", "pdus", DeviceKey("rack1", 2)),  # R6
    Golden(f"{PREFIX}/rack/rack1/blade/7/actual", "part_actual", PartActualKey("rack1", "blade", 7)),
    Golden(f"{PREFIX}/rack/rack1/tor/0/actual", "part_actual", PartActualKey("rack1", "tor", 0)),
    Golden(f"{PREFIX}/rack/rack10/blades/0", "blades", BladeKey("rack10", 0)),  # R3, R10
    Golden(f"{PREFIX}/rack/rack1/blades/10000000", "blades", BladeKey("rack1", 10_000_000)),  # R10
    Golden(f"{PREFIX}/racks/region1.zone1.rack1", "racks", "region1.zone1.rack1"),  # R7
    Golden(f"{PREFIX}/users/Alice", "users", "Alice"),  # R9: literal, case kept
    Golden(f"{PREFIX}/users/Zoë", "users", "Zoë"),  # R10: UTF-8
    Golden(f"{PREFIX}/racks/{'r' * 255}", "racks", "r" * 255),  # R10
)

GO_KEYS: Final = (
    Golden(f"{GO_PREFIX}/workloads/web", "workloads", "web"),
    Golden(f"{GO_PREFIX}/workload/web/instances/i1", "instances", InstanceKey("web", "i1")),
    Golden(f"{GO_PREFIX}/workload/web/instance/i1/actual", "instance_actual", InstanceKey("web", "i1")),
    Golden(f"{GO_PREFIX}/workload/web/instance/i1/target", "instance_target", InstanceKey("web", "i1")),
    Golden(f"{GO_PREFIX}/rack/rack1/pdu/2/actual", "part_actual", PartActualKey("rack1", "pdu", 2)),
    Golden(f"{GO_PREFIX}/index/guards/blade/rack%2F1/7", "blade_guards", TargetBlade("rack/1", 7)),
    Golden(f"{GO_PREFIX}/users/admin", "users", "admin"),
    Golden(f"{GO_PREFIX}/inventory/definition/data/region/standard", "regions", GoRegionKey("definition", "standard")),
    Golden(
        f"{GO_PREFIX}/inventory/actual/data/region/standard/zone/z1", "zones", GoZoneKey("actual", "standard", "z1")
    ),
    Golden(
        f"{GO_PREFIX}/inventory/observed/data/region/r/zone/z/rack/rack1",
        "racks",
        GoRackKey("observed", "r", "z", "rack1"),
    ),
    Golden(
        f"{GO_PREFIX}/inventory/definition/data/region/r/zone/z/rack/rack1/pdu/0",
        "pdus",
        GoDeviceKey("definition", "r", "z", "rack1", 0),
    ),
    Golden(
        f"{GO_PREFIX}/inventory/definition/data/region/r/zone/z/rack/rack1/tor/2",
        "tors",
        GoDeviceKey("definition", "r", "z", "rack1", 2),
    ),
    Golden(
        f"{GO_PREFIX}/inventory/target/data/region/r/zone/z/rack/rack1/blade/8",
        "blades",
        GoBladeKey("target", "r", "z", "rack1", 8),
    ),
    Golden(
        f"{GO_PREFIX}/inventory/definition/index/regions/standard",
        "listed_regions",
        GoRegionKey("definition", "standard"),
    ),
    Golden(
        f"{GO_PREFIX}/inventory/definition/index/region/r/zones/z", "listed_zones", GoZoneKey("definition", "r", "z")
    ),
    Golden(
        f"{GO_PREFIX}/inventory/definition/index/region/r/zone/z/racks/rack1",
        "listed_racks",
        GoRackKey("definition", "r", "z", "rack1"),
    ),
    Golden(
        f"{GO_PREFIX}/inventory/definition/index/region/r/zone/z/rack/rack1/pdus/0",
        "listed_pdus",
        GoDeviceKey("definition", "r", "z", "rack1", 0),
    ),
    Golden(
        f"{GO_PREFIX}/inventory/definition/index/region/r/zone/z/rack/rack1/tors/1",
        "listed_tors",
        GoDeviceKey("definition", "r", "z", "rack1", 1),
    ),
    Golden(
        f"{GO_PREFIX}/inventory/definition/index/region/r/zone/z/rack/rack1/blades/8",
        "listed_blades",
        GoBladeKey("definition", "r", "z", "rack1", 8),
    ),
)


def assert_one_key_and_one_meaning(bound: BoundLayout, golden: Golden) -> None:
    raw = golden.raw.encode()
    keys = bound.table(golden.table).keys
    assert keys.encode(golden.key) == raw
    assert keys.decode(raw) == golden.key
    meaning = bound.meaning(raw)
    assert (meaning.kind, meaning.item, meaning.key) == (Kind.RECORD, golden.table, golden.key)


# ---- the document --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", [*PRINTED_KEYS.values(), *BESIDE_THE_DOCUMENT], ids=lambda golden: golden.raw[:80])
def test_a_key_is_built_and_read_as_the_document_has_it(golden: Golden) -> None:
    assert_one_key_and_one_meaning(CloudChamber.bound(), golden)


@pytest.mark.parametrize("location", PRINTED_PREFIXES)
def test_a_list_reads_the_documents_prefix_up_to_its_separator(location: str) -> None:
    table, fields, start, end = PRINTED_PREFIXES[location]
    assert CloudChamber.bound().table(table).keys.range(fields) == (start, end)


def test_the_document_prints_no_other_location(shared: Path) -> None:
    document = (shared / "documents" / "cloudchamber-store-names.md").read_text(encoding="utf-8")
    printed = set(re.findall(r"^\| *(?:prefix|key) *\| *(/\S+)", document, flags=re.MULTILINE | re.IGNORECASE))
    assert printed == {*PRINTED_KEYS, *PRINTED_PREFIXES}


def test_the_fields_of_a_printed_location_are_the_words_in_its_braces() -> None:
    for location, golden in PRINTED_KEYS.items():
        names = CloudChamber.spec.tables[golden.table].template.field_names
        assert [f"{name}id" for name in names] == [
            word.replace("username", "userid") for word in re.findall(r"\{(\w+)\}", location)
        ]


@pytest.mark.parametrize(
    "namespace",
    ["Test/Standard/", "Test/2026-11-21T02:50:00.000000001Z/", "Test/my run/"],
    ids=["standard", "timestamp", "by hand"],
)
def test_a_test_namespace_stands_between_prefix_and_location(namespace: str) -> None:
    bound = CloudChamber.bound(namespace=namespace)
    assert bound.root == f"{PREFIX}/{namespace}".encode()
    assert_one_key_and_one_meaning(bound, Golden(f"{PREFIX}/{namespace}users/alice", "users", "alice"))


@pytest.mark.parametrize(
    "namespace",
    [
        "Test",
        "Test/",
        "Test//",
        "Test/Standard",
        "Test/a/b/",
        "Test/./",
        "Test/../",
        "test/Standard/",
        "Standard/",
        "/",
        f"Test/{'x' * 65}/",
    ],
)
def test_nothing_else_is_a_namespace(namespace: str) -> None:
    with pytest.raises(InvalidKeyError):
        CloudChamber.bound(namespace=namespace)


def test_production_and_tests_do_not_read_each_others_keys() -> None:
    production, tests = CloudChamber.bound(), CloudChamber.bound(namespace="Test/Standard/")
    assert not production.meaning(b"/CloudChamber/V0.1/Test/Standard/users/alice").is_known
    assert not tests.meaning(b"/CloudChamber/V0.1/users/alice").is_known
    assert not tests.meaning(b"/CloudChamber/V0.1/Test/StandardX/users/alice").is_known


@pytest.mark.parametrize(
    ("raw", "nearest", "position"),
    [
        (b"/CloudChamber/V0.1/rack/rack1", "tor", 29),
        (b"/CloudChamber/V0.1/user/alice", "users", 23),
        (b"/CloudChamber/V0.1/users/a/b", "users", 26),
        (b"/CloudChamber/v0.1/users/alice", None, 14),
        (b"/CloudChamber/V0.1/users", "users", 24),
        (b"/CloudChamber/V0.1/racks", "racks", 24),
        (b"/CloudChamber/V0.1/workloads", "workloads", 28),
        (b"/CloudChamber/V0.1/rack/rack1/blades/01", "blades", 38),
        (b"/CloudChamber/V0.1/rack/rack1/blades/10000001", "blades", 44),
        (b"/CloudChamber/V0.1/rack/rack1/blades/-1", "blades", 37),
        (b"/CloudChamber/V0.1/rack/rack1/tors/0", "tors", 35),
        (b"/CloudChamber/V0.1/workload/web/instance/i1", "instance_actual", 43),
        (b"/CloudChamber/V0.1/workload/web/instance/i1/state", "instance_actual", 44),
        (b"/CloudChamber/V0.1/racks/a\x00", "racks", 26),
        (b"/CloudChamber/V0.1/racks/\xff", "racks", 25),
    ],
)
def test_a_near_miss_has_no_meaning_and_names_the_nearest_template(
    raw: bytes, nearest: str | None, position: int
) -> None:
    meaning = CloudChamber.bound().meaning(raw)
    assert meaning.kind is Kind.UNKNOWN
    assert (meaning.item, meaning.position) == (nearest, position)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\x00", "a\n", "\x7f", "r" * 256, "é" * 128, "\ud800", 7, None]
)
def test_what_is_no_identifier_is_refused(name: object) -> None:
    with pytest.raises(InvalidKeyError):
        CloudChamber.bound().table("racks").keys.encode(name)


@pytest.mark.parametrize("blade", [-1, 10_000_001, True, 1.0, "1", None])
def test_what_is_no_blade_number_is_refused(blade: object) -> None:
    with pytest.raises(InvalidKeyError) as caught:
        CloudChamber.bound().table("blades").keys.encode(("rack1", blade))
    assert caught.value.facts["field"] == "blade"


@pytest.mark.parametrize("device", [0, 3])
def test_a_further_device_has_number_1_or_2(device: int) -> None:
    with pytest.raises(InvalidKeyError):
        CloudChamber.bound().table("tors").keys.encode(DeviceKey("rack1", device))


# ---- the Go program ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", GO_KEYS, ids=lambda golden: golden.raw)
def test_a_key_is_built_and_read_as_the_go_program_has_it(golden: Golden) -> None:
    assert_one_key_and_one_meaning(CloudChamberGo.bound(), golden)


def test_the_go_programs_tables_all_have_a_key_here() -> None:
    assert {golden.table for golden in GO_KEYS} == set(CloudChamberGo.spec.tables)


def test_the_go_programs_suffix_is_a_namespace() -> None:
    bound = CloudChamberGo.bound(namespace="Test/2021-03-01T12:00:00.5-08:00/")
    raw = f"{GO_PREFIX}/Test/2021-03-01T12:00:00.5-08:00/users/admin"
    assert_one_key_and_one_meaning(bound, Golden(raw, "users", "admin"))


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        (("definition",), f"{GO_PREFIX}/inventory/definition/index/regions/"),
        (("definition", "r"), f"{GO_PREFIX}/inventory/definition/index/region/r/zones/"),
        (("definition", "r", "z"), f"{GO_PREFIX}/inventory/definition/index/region/r/zone/z/racks/"),
        (("definition", "r", "z", "k"), f"{GO_PREFIX}/inventory/definition/index/region/r/zone/z/rack/k/blades/"),
    ],
    ids=["regions", "zones", "racks", "blades"],
)
def test_a_list_of_the_go_program_ends_in_a_slash(fields: tuple[str, ...], start: str) -> None:
    table = {1: "listed_regions", 2: "listed_zones", 3: "listed_racks", 4: "listed_blades"}[len(fields)]
    first, end = CloudChamberGo.bound().table(table).keys.range(fields)
    assert first == start.encode()
    assert end == start[:-1].encode() + b"0"


@pytest.mark.parametrize(
    "location",
    [
        "/users/Admin",
        "/inventory/definition/data/region/Region1",
        "/inventory/definitionstdtest/data/region/r",
        "/inventory/definition/data/region/r/zone",
        "/inventory/definition/data/region/r/zone/z/rack/k/blade/01",
        "/inventory/definition/data/region/r/zone/z/rack/k/blade/10000001",
        "/inventory/definition/data/region/r/zone/z/rack/k/pdu/3",
        "/inventory/definition/data/region/r/zone/z/rack/k/port/1",
        "/workload/w",
    ],
)
def test_the_go_program_does_not_write_a_near_miss(location: str) -> None:
    assert CloudChamberGo.bound().meaning(f"{GO_PREFIX}{location}".encode()).kind is Kind.UNKNOWN


# ---- both ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [CloudChamber, CloudChamberGo])
def test_every_table_names_its_source(layout: type[CloudChamber] | type[CloudChamberGo]) -> None:
    assert [item.name for item in layout.spec.items if not item.note] == []


@pytest.mark.parametrize("layout", [CloudChamber, CloudChamberGo])
def test_the_description_reads_back_without_the_records(layout: type[CloudChamber] | type[CloudChamberGo]) -> None:
    described = describe(layout.spec)
    assert describe(layout_of_description(described)) == described
