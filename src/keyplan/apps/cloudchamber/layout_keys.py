"""The fields of CloudChamber's keys, under either of its layouts, and the index and the guards that both keep.

D and R numbers are the rulings in this folder's README.
"""

from typing import Annotated, Final, NamedTuple

from keyplan.apps.cloudchamber.records import BladeGuard, InstanceTarget
from keyplan.codec import Decimal, Enclosed, Percent, Text, Word
from keyplan.layout import Index, Table, Unlike, Waiver
from keyplan.protobuf import ProtoJson

__all__ = [
    "BLADE_NUMBER_MAX",
    "DEVICE_NUMBER_MAX",
    "GUARDS",
    "NAMESPACE",
    "TESTS",
    "WAIVERS_OF_EITHER",
    "BladeKey",
    "DeviceKey",
    "GoBladeKey",
    "GoDeviceKey",
    "GoRackKey",
    "GoRegionKey",
    "GoZoneKey",
    "InstanceKey",
    "PartActualKey",
    "TargetBlade",
    "blade_guard_table",
    "instances_by_blade_of",
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


# ---- either -----------------------------------------------------------------------------------------------------------------

_INSTANCES_BY_BLADE: Final = "index/instances/by-blade/{rackid}/{bladeid}/{workload}/{instance}"
_BLADE_GUARDS: Final = "index/guards/blade/{rackid}/{bladeid}"
"""Why below `index/`: no documented key begins so, and what is there follows from the documented records."""

GUARDS: Final = "blade_guards"
"""The table of guards, which watches and migrations pass over: each store has its own."""


def instances_by_blade_of(
    targets: Table[InstanceKey, InstanceTarget],
) -> Index[TargetBlade, InstanceKey, InstanceTarget]:
    """Return the index of wanted instances by blade, which either layout keeps of its targets."""
    return Index(
        _INSTANCES_BY_BLADE,
        of=targets,
        key=TargetBlade,
        when={"rackid": Unlike("")},
        note="which instances are wanted on this blade: what is taken of its capacity",
    )


def blade_guard_table() -> Table[TargetBlade, BladeGuard]:
    """Return the table of guards of either layout."""
    return Table(
        _BLADE_GUARDS,
        key=TargetBlade,
        value=BladeGuard,
        form=ProtoJson(BladeGuard),
        note="written by each commit that takes capacity of this blade",
    )


WAIVERS_OF_EITHER: Final = (
    Waiver("L7", "part_actual.number", "numbers are not padded (R10): whoever lists them sorts after the read"),
    Waiver("L7", "instances_by_blade.rackid", "racks are looked up whole"),
    Waiver("L7", "instances_by_blade.bladeid", "numbers are not padded, as in the documented keys (R10)"),
    Waiver("L7", "blade_guards.rackid", "racks are looked up whole"),
    Waiver("L7", "blade_guards.bladeid", "numbers are not padded, as in the documented keys (R10)"),
    Waiver("L10", "instances_by_blade", "three names of 255 bytes are legal (R10); such a target is refused whole"),
)
