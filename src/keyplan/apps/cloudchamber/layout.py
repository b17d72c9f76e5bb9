"""The keys of CloudChamber: `CloudChamber` as its document has them, `CloudChamberGo` as its Go program writes them.

    /CloudChamber/V0.1/[Test/<instance>/]users/alice                     plural: lists, and what is listed
    /CloudChamber/V0.1/[Test/<instance>/]rack/rack1/blades/7             singular: the parts of one rack or workload

D and R numbers in the notes are the rulings in this folder's README. Which records the keys hold is in records.py.
"""

from enum import StrEnum
from typing import Any, TypeAlias

from keyplan.apps.cloudchamber.layout_keys import (
    NAMESPACE,
    WAIVERS_OF_EITHER,
    BladeKey,
    DeviceKey,
    GoBladeKey,
    GoDeviceKey,
    GoRackKey,
    GoRegionKey,
    GoZoneKey,
    InstanceKey,
    PartActualKey,
    blade_guard_table,
    instances_by_blade_of,
)
from keyplan.apps.cloudchamber.records import (
    Blade,
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
from keyplan.layout import BoundLayout, Layout, Parameter, Table, Waiver
from keyplan.protobuf import ProtoJson

__all__ = [
    "CloudChamber",
    "CloudChamberGo",
    "LayoutSide",
    "ServedLayout",
    "go_prefixes_of_parts",
    "prefix_of_parts",
]


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

    instances_by_blade = instances_by_blade_of(instance_target)
    blade_guards = blade_guard_table()

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
        *WAIVERS_OF_EITHER,
    )


def prefix_of_parts(bound: BoundLayout, table: str, key: str) -> bytes:
    """Return the prefix of everything below `rack/{rack}/` or `workload/{workload}/`, keys of no template among it (R17).

    `table` is that of the whole: racks or workloads.
    """
    if table == "racks":
        return bound.tables["tor"].keys.encode(key).removesuffix(b"tor")
    return bound.tables["instances"].keys.encode((key, "x")).removesuffix(b"instances/x")


# ---- the Go program --------------------------------------------------------------------------------------------------------


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

    instances_by_blade = instances_by_blade_of(instance_target)
    blade_guards = blade_guard_table()

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
        *WAIVERS_OF_EITHER,
    )


def go_prefixes_of_parts(bound: BoundLayout, rack: GoRackKey) -> tuple[bytes, bytes]:
    """Return the prefixes of everything below a rack in the Go program's two trees: its records, and their list keys."""
    record, entry = (bound.tables[table].keys.encode(GoBladeKey(*rack, 0)) for table in ("blades", "listed_blades"))
    return record.removesuffix(b"blade/0"), entry.removesuffix(b"blades/0")


# ---- either -----------------------------------------------------------------------------------------------------------------

ServedLayout: TypeAlias = CloudChamber | CloudChamberGo
"""What accounts and workloads are kept under: both layouts have the same tables for them."""


class LayoutSide(StrEnum):
    """One of the two layouts, by the name that commands, settings and migrations call it."""

    DOCUMENT = "document"
    GO = "go"

    @property
    def other(self) -> "LayoutSide":
        """The layout that a migration leads to, or comes from."""
        return LayoutSide.GO if self is LayoutSide.DOCUMENT else LayoutSide.DOCUMENT

    def bound(self, namespace: str = "") -> BoundLayout:
        """Return its layout under a name space, without indexes."""
        layout: Any = CloudChamber if self is LayoutSide.DOCUMENT else CloudChamberGo
        bound: BoundLayout = layout.bound(namespace=namespace)
        return bound
