"""The keys of CloudChamber: `CloudChamber` as its document has them, `CloudChamberGo` as its Go program writes them.

    /CloudChamber/V0.1/[Test/<instance>/]users/alice                     plural: lists, and what is listed
    /CloudChamber/V0.1/[Test/<instance>/]rack/rack1/blades/7             singular: the parts of one rack or workload

D and R numbers in the notes are the rulings in this folder's README. Which records the keys hold is in records.py.
"""

from typing import Annotated, Final, NamedTuple, TypeAlias

from keyplan.apps.cloudchamber.records import (
    Blade,
    BladeGuard,
    Instance,
    InstanceActual,
    InstanceTarget,
    PartActual,
    Pdu,
    Rack,
    Region,
    Tor,
    User,
    Workload,
    Zone,
)
from keyplan.codec import Decimal, Enclosed, Percent, Text, Word
from keyplan.layout import BoundLayout, Index, Layout, Parameter, Table, Unlike, Waiver
from keyplan.protobuf import ProtoJson

__all__ = [
    "GUARDS",
    "BladeKey",
    "CloudChamber",
    "CloudChamberGo",
    "DeviceKey",
    "GoBladeKey",
    "GoDeviceKey",
    "GoRackKey",
    "GoRegionKey",
    "GoZoneKey",
    "InstanceKey",
    "PartActualKey",
    "ServedLayout",
    "TargetBlade",
    "go_prefixes_of_parts",
    "prefix_of_parts",
]

BLADE_NUMBER_MAX: Final = 10_000_000
"""Why: the Go program's own bound (R10)."""

DEVICE_NUMBER_MAX: Final = 2
"""Why: the Go program's own bound for PDUs and TORs (2.2); a definition file may have two of each."""

# R10: 1 to 255 bytes of UTF-8 without "/" and control characters, and neither "." nor "..".
Name = Annotated[str, Text(dots=False)]

# R13, D11: production, or one instance of the test namespace. Its name is "Standard", a timestamp, or chosen by hand.
INSTANCE_BYTES_MAX: Final = 64
"""Why: a timestamp has 30 characters; with more than these, a user's longest key would not fit LMDB's 511 bytes."""

TESTS: Final = "Test/"
NAMESPACE: Final = Enclosed(before=TESTS, after="/", bytes_max=INSTANCE_BYTES_MAX, dots=False, empty=True)


class BladeKey(NamedTuple):
    """A blade of a rack."""

    rack: Name
    blade: Annotated[int, Decimal(most=BLADE_NUMBER_MAX)]


class DeviceKey(NamedTuple):
    """A TOR or PDU of a rack beyond its first, which has a key without a number (R6)."""

    rack: Name
    device: Annotated[int, Decimal(least=1, most=DEVICE_NUMBER_MAX)]


class PartActualKey(NamedTuple):
    """What a simulator says of a blade, PDU or TOR. A rack's first device is number 0; names are those of either layout."""

    rack: Annotated[str, Text()]
    kind: Annotated[str, Word(words="blade pdu tor")]
    number: Annotated[int, Decimal(most=BLADE_NUMBER_MAX)]


class InstanceKey(NamedTuple):
    """An instance of a workload."""

    workload: Name
    instance: Name


class TargetBlade(NamedTuple):
    """The blade that an instance is wanted on, as its target names it."""

    rackid: Annotated[str, Percent()]
    bladeid: Annotated[int, Decimal(most=BLADE_NUMBER_MAX)]


INSTANCES_BY_BLADE: Final = "index/instances/by-blade/{rackid}/{bladeid}/{workload}/{instance}"
BLADE_GUARDS: Final = "index/guards/blade/{rackid}/{bladeid}"
"""Why below `index/`: no documented key begins so, and what is there follows from the documented records."""

GUARDS: Final = "blade_guards"
"""The table of guards, which watches and migrations pass over: each store has its own."""

_WAIVERS_OF_EITHER: Final = (
    Waiver("L7", "part_actual.number", "numbers are not padded (R10): whoever lists them sorts after the read"),
    Waiver("L7", "instances_by_blade.rackid", "racks are looked up whole"),
    Waiver("L7", "instances_by_blade.bladeid", "numbers are not padded, as in the documented keys (R10)"),
    Waiver("L7", "blade_guards.rackid", "racks are looked up whole"),
    Waiver("L7", "blade_guards.bladeid", "numbers are not padded, as in the documented keys (R10)"),
    Waiver("L10", "instances_by_blade", "three names of 255 bytes are legal (R10); such a target is refused whole"),
)


class CloudChamber(Layout, root="/CloudChamber/V0.1/{namespace}"):
    """CloudChamber's store as its document lays it out: plural locations list, singular ones hold an element's parts.

    `namespace` is "" in production and "Test/<instance>/" in tests.
    """

    namespace = Parameter("", NAMESPACE)

    users = Table(
        "users/{user:text(dots=false)}",
        key=str,
        value=User,
        form=ProtoJson(User),
        note="Discovering Users: /users/{username}",
    )
    racks = Table(
        "racks/{rack:text(dots=false)}",
        key=str,
        value=Rack,
        form=ProtoJson(Rack),
        note="Discovering Racks: /racks/{rackid}",
    )
    tor = Table(
        "rack/{rack:text(dots=false)}/tor",
        key=str,
        value=Tor,
        form=ProtoJson(Tor),
        note="Discovering Racks: /rack/{rackid}/tor, the rack's only or first TOR (R6)",
    )
    pdu = Table(
        "rack/{rack:text(dots=false)}/pdu",
        key=str,
        value=Pdu,
        form=ProtoJson(Pdu),
        note="Discovering Racks: /rack/{rackid}/pdu, the rack's only or first PDU (R6)",
    )
    tors = Table(
        "rack/{rack}/tors/{device}",
        key=DeviceKey,
        value=Tor,
        form=ProtoJson(Tor),
        note="R6: further TORs, which the document does not foresee",
    )
    pdus = Table(
        "rack/{rack}/pdus/{device}",
        key=DeviceKey,
        value=Pdu,
        form=ProtoJson(Pdu),
        note="R6: further PDUs, which the document does not foresee",
    )
    blades = Table(
        "rack/{rack}/blades/{blade}",
        key=BladeKey,
        value=Blade,
        form=ProtoJson(Blade),
        note="Discovering Racks: /rack/{rackid}/blades/{bladeid}; listed where they are stored (R4)",
    )
    part_actual = Table(
        "rack/{rack}/{kind}/{number}/actual",
        key=PartActualKey,
        value=PartActual,
        form=ProtoJson(PartActual),
        note="a part's actual state, as that of instances is kept; the document foresees none",
    )
    workloads = Table(
        "workloads/{workload:text(dots=false)}",
        key=str,
        value=Workload,
        form=ProtoJson(Workload),
        note="Discovering Workloads: /workloads/{workloadid}",
    )
    instances = Table(
        "workload/{workload}/instances/{instance}",
        key=InstanceKey,
        value=Instance,
        form=ProtoJson(Instance),
        note="R1: descriptions, below the prefix that the document lists and puts nothing under",
    )
    instance_actual = Table(
        "workload/{workload}/instance/{instance}/actual",
        key=InstanceKey,
        value=InstanceActual,
        form=ProtoJson(InstanceActual),
        note="Discovering Workloads: /workload/{workloadid}/instance/{instanceid}/actual",
    )
    instance_target = Table(
        "workload/{workload}/instance/{instance}/target",
        key=InstanceKey,
        value=InstanceTarget,
        form=ProtoJson(InstanceTarget),
        note="Discovering Workloads: /workload/{workloadid}/instance/{instanceid}/target",
    )

    instances_by_blade = Index(
        INSTANCES_BY_BLADE,
        of=instance_target,
        key=TargetBlade,
        when={"rackid": Unlike("")},
        note="which instances are wanted on this blade: what is taken of its capacity",
    )
    blade_guards = Table(
        BLADE_GUARDS,
        key=TargetBlade,
        value=BladeGuard,
        form=ProtoJson(BladeGuard),
        note="written by each commit that takes capacity of this blade",
    )

    waivers = (
        Waiver(
            "L6", "CloudChamber", "the document puts Test below production (R14): whole-root tools skip it unless asked"
        ),
        Waiver("L7", "blades.blade", "numbers are not padded (R10): whoever lists them sorts by number after the read"),
        *(
            Waiver("L3", f"{table}, part_actual", "a first device has a key without a number (R6), which is read alone")
            for table in ("tor", "pdu")
        ),
        *(
            Waiver(
                "L10", table, "two names of 255 bytes are legal (R10); a key over the engine's limit is refused whole"
            )
            for table in ("instances", "instance_actual", "instance_target")
        ),
        *_WAIVERS_OF_EITHER,
    )


def prefix_of_parts(bound: BoundLayout, table: str, key: str) -> bytes:
    """Return the prefix of everything below `rack/{rack}/` or `workload/{workload}/`, keys of no template among it (R17).

    `table` is that of the whole: racks or workloads.
    """
    if table == "racks":
        return bound.tables["tor"].keys.encode(key).removesuffix(b"tor")
    return bound.tables["instances"].keys.encode((key, "x")).removesuffix(b"instances/x")


# ---- the Go program --------------------------------------------------------------------------------------------------------

# D2, R9: the program lower-cases every name in a key and keeps the name as written in the value. A capital letter in a key is
# therefore a mistake: callers fold names (`name.lower()`) until a codec can do it, as `text(fold='lower')` would.
CAPITALS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
GoName = Annotated[str, Text(exclude="/" + CAPITALS)]
GoView = Annotated[str, Word(words="actual definition observed target")]


class GoRegionKey(NamedTuple):
    """A region in one of the views of the inventory, which the program calls tables."""

    view: GoView
    region: GoName


class GoZoneKey(NamedTuple):
    """A zone of a region."""

    view: GoView
    region: GoName
    zone: GoName


class GoRackKey(NamedTuple):
    """A rack of a zone."""

    view: GoView
    region: GoName
    zone: GoName
    rack: GoName


class GoDeviceKey(NamedTuple):
    """A TOR or PDU of a rack."""

    view: GoView
    region: GoName
    zone: GoName
    rack: GoName
    device: Annotated[int, Decimal(most=DEVICE_NUMBER_MAX)]


class GoBladeKey(NamedTuple):
    """A blade of a rack."""

    view: GoView
    region: GoName
    zone: GoName
    rack: GoName
    blade: Annotated[int, Decimal(most=BLADE_NUMBER_MAX)]


class CloudChamberGo(Layout, root="/CloudChamber/v0.1/{namespace}", sealed_as="CloudChamber"):
    """CloudChamber's store as the Go program writes it: a tree of records, and beside it a tree of list entries.

    An entry holds the name in its original case (a number for devices and blades); record and entry are written together.
    """

    namespace = Parameter("", NAMESPACE)

    users = Table(
        "users/{user:text(exclude='/ABCDEFGHIJKLMNOPQRSTUVWXYZ')}",
        key=str,
        value=User,
        form=ProtoJson(User),
        note="D2: users/{username}",
    )
    regions = Table(
        "inventory/{view}/data/region/{region}",
        key=GoRegionKey,
        value=Region,
        form=ProtoJson(Region),
        note="2.2: region record",
    )
    zones = Table(
        "inventory/{view}/data/region/{region}/zone/{zone}",
        key=GoZoneKey,
        value=Zone,
        form=ProtoJson(Zone),
        note="2.2: zone record",
    )
    racks = Table(
        "inventory/{view}/data/region/{region}/zone/{zone}/rack/{rack}",
        key=GoRackKey,
        value=Rack,
        form=ProtoJson(Rack),
        note="2.2: rack record",
    )
    pdus = Table(
        "inventory/{view}/data/region/{region}/zone/{zone}/rack/{rack}/pdu/{device}",
        key=GoDeviceKey,
        value=Pdu,
        form=ProtoJson(Pdu),
        note="2.2: pdu record",
    )
    tors = Table(
        "inventory/{view}/data/region/{region}/zone/{zone}/rack/{rack}/tor/{device}",
        key=GoDeviceKey,
        value=Tor,
        form=ProtoJson(Tor),
        note="2.2: tor record",
    )
    blades = Table(
        "inventory/{view}/data/region/{region}/zone/{zone}/rack/{rack}/blade/{blade}",
        key=GoBladeKey,
        value=Blade,
        form=ProtoJson(Blade),
        note="2.2: blade record",
    )
    listed_regions = Table(
        "inventory/{view}/index/regions/{region}",
        key=GoRegionKey,
        value=str,
        note="2.2: region index; the value is the name in its original case",
    )
    listed_zones = Table(
        "inventory/{view}/index/region/{region}/zones/{zone}",
        key=GoZoneKey,
        value=str,
        note="2.2: zone index",
    )
    listed_racks = Table(
        "inventory/{view}/index/region/{region}/zone/{zone}/racks/{rack}",
        key=GoRackKey,
        value=str,
        note="2.2: rack index",
    )
    listed_pdus = Table(
        "inventory/{view}/index/region/{region}/zone/{zone}/rack/{rack}/pdus/{device}",
        key=GoDeviceKey,
        value=int,
        note="2.2: pdu index; the value is the number again",
    )
    listed_tors = Table(
        "inventory/{view}/index/region/{region}/zone/{zone}/rack/{rack}/tors/{device}",
        key=GoDeviceKey,
        value=int,
        note="2.2: tor index",
    )
    listed_blades = Table(
        "inventory/{view}/index/region/{region}/zone/{zone}/rack/{rack}/blades/{blade}",
        key=GoBladeKey,
        value=int,
        note="2.2: blade index",
    )
    part_actual = Table(
        "rack/{rack}/{kind}/{number}/actual",
        key=PartActualKey,
        value=PartActual,
        form=ProtoJson(PartActual),
        note="beside the program's trees, for the zone that is served; it looks nowhere below this key",
    )
    workloads = Table(
        "workloads/{workload:text(dots=false)}",
        key=str,
        value=Workload,
        form=ProtoJson(Workload),
        note="as the document has them: the program stores none, and looks nowhere below this key",
    )
    instances = Table(
        "workload/{workload}/instances/{instance}",
        key=InstanceKey,
        value=Instance,
        form=ProtoJson(Instance),
        note="as the document has them",
    )
    instance_actual = Table(
        "workload/{workload}/instance/{instance}/actual",
        key=InstanceKey,
        value=InstanceActual,
        form=ProtoJson(InstanceActual),
        note="as the document has them",
    )
    instance_target = Table(
        "workload/{workload}/instance/{instance}/target",
        key=InstanceKey,
        value=InstanceTarget,
        form=ProtoJson(InstanceTarget),
        note="as the document has them",
    )

    instances_by_blade = Index(
        INSTANCES_BY_BLADE,
        of=instance_target,
        key=TargetBlade,
        when={"rackid": Unlike("")},
        note="which instances are wanted on this blade: what is taken of its capacity",
    )
    blade_guards = Table(
        BLADE_GUARDS,
        key=TargetBlade,
        value=BladeGuard,
        form=ProtoJson(BladeGuard),
        note="written by each commit that takes capacity of this blade",
    )

    waivers = (
        *(
            Waiver(
                "L3", f"{outer}, {inner}", "the program's own tree of records: it reads single records, never a subtree"
            )
            for outer, inners in (
                ("regions", ("zones", "racks", "pdus", "tors", "blades")),
                ("zones", ("racks", "pdus", "tors", "blades")),
                ("racks", ("pdus", "tors", "blades")),
            )
            for inner in inners
        ),
        Waiver("L6", "CloudChamberGo", "the program puts Test below production, as the document does (R14)"),
        Waiver("L7", "blades.blade", "the program does not pad numbers"),
        Waiver("L7", "listed_blades.blade", "the program does not pad numbers, and sorts by number after the read"),
        *(
            Waiver(
                "L10",
                f"{listed}{table}",
                "the program knows no bound for names; a key over the engine's limit is refused",
            )
            for listed in ("", "listed_")
            for table in ("zones", "racks", "pdus", "tors", "blades")
        ),
        *(
            Waiver(
                "L10", table, "two names of 255 bytes are legal (R10); a key over the engine's limit is refused whole"
            )
            for table in ("instances", "instance_actual", "instance_target")
        ),
        *_WAIVERS_OF_EITHER,
    )


def go_prefixes_of_parts(bound: BoundLayout, rack: GoRackKey) -> tuple[bytes, bytes]:
    """Return the prefixes of everything below a rack in the Go program's two trees: its records, and their list keys."""
    record, entry = (bound.tables[table].keys.encode(GoBladeKey(*rack, 0)) for table in ("blades", "listed_blades"))
    return record.removesuffix(b"blade/0"), entry.removesuffix(b"blades/0")


# ---- either -----------------------------------------------------------------------------------------------------------------

ServedLayout: TypeAlias = CloudChamber | CloudChamberGo
"""What accounts and workloads are kept under: both layouts have the same tables for them."""
