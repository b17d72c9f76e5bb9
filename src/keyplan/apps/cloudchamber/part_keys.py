"""Where the parts of an inventory stand: a class for the document's keys, and one for those of the Go program.

What is done with them, rack_writer.py does, the same under both.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from keyplan.apps.cloudchamber.chamber import Chamber
from keyplan.apps.cloudchamber.conditions import Address
from keyplan.apps.cloudchamber.go_inventory import folded, list_table, lists
from keyplan.apps.cloudchamber.go_served import SERVED_ZONE, GoChamber
from keyplan.apps.cloudchamber.inventory_parts import Part, PartKind
from keyplan.apps.cloudchamber.layout import CloudChamberGo
from keyplan.apps.cloudchamber.layout_keys import (
    DEVICE_NUMBER_MAX,
    BladeKey,
    DeviceKey,
    GoBladeKey,
    GoDeviceKey,
    GoRackKey,
    GoRegionKey,
)
from keyplan.apps.cloudchamber.namespace_store import PARTS, NamespaceStore, Owner
from keyplan.apps.cloudchamber.part_actuals import actual_beside
from keyplan.apps.cloudchamber.readable import DEFAULT_ZONE, spellings
from keyplan.apps.cloudchamber.records import Region, RegionDetails, Zone, ZoneDetails
from keyplan.errors import CorruptionError
from keyplan.protobuf import Message

__all__ = ["DocumentPartKeys", "GoPartKeys", "PartKeys"]


class PartKeys(Protocol):
    """Where the parts of one store's inventory stand. A rack's name is one that somebody wrote into a path."""

    @property
    def chamber(self) -> NamespaceStore[Any]:
        """The store."""
        ...

    def addresses(self, part: Part) -> tuple[Address, ...]:
        """Return where a part may stand, the likeliest first, one for each spelling of its rack; none without a place for it.

        Raises InvalidKeyError for a name or a number that no key can have.
        """
        ...

    def rack_of(self, address: Address) -> Address:
        """Return where the rack stands that has a part."""
        ...

    def beside(self, state: Any, part: Part, address: Address, /) -> Mapping[Address, object]:
        """Return what has to stand beside a part's record, and what of it does not stand there yet."""
        ...

    def entries(self, address: Address, /) -> tuple[Address, ...]:
        """Return what is deleted with a part's record."""
        ...

    def devices(self, rack: Address, kind: PartKind) -> Iterator[tuple[int, Address]]:
        """Yield where the PDUs or TORs of a rack may stand, by number."""
        ...

    def blades(self, rack: Address) -> tuple[object, ...]:
        """Return the key fields that the blades of a rack begin with, in the table `blades`."""
        ...

    def parts(self, rack: Address) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield the tables that parts of a rack stand in, list keys and actual states too, with the key fields of the rack."""
        ...

    def owner(self, rack: Address) -> Owner:
        """Return a rack as something with parts, to be deleted with them."""
        ...


class DocumentPartKeys:
    """The document's keys: a rack's first PDU and TOR are number 0, and have a key without a number (R6)."""

    def __init__(self, chamber: Chamber) -> None:
        self.chamber = chamber

    def addresses(self, part: Part) -> tuple[Address, ...]:
        """Return where a part may stand; nowhere for a zone and a region (R7)."""
        if part.kind in {PartKind.REGION, PartKind.ZONE}:
            return ()
        return tuple(self._address(part.kind, rack, part.number) for rack in spellings(part.rack))

    def rack_of(self, address: Address) -> Address:
        """Return where the rack stands that has a part."""
        key = address.key
        return Address("racks", key if isinstance(key, str) else key.rack)

    def beside(self, _state: Any, _part: Part, _address: Address) -> Mapping[Address, object]:
        """Return nothing: a list reads the records."""
        return {}

    def entries(self, address: Address) -> tuple[Address, ...]:
        """Return the actual state of a part."""
        return tuple(actual_beside(*address))

    def devices(self, rack: Address, kind: PartKind) -> Iterator[tuple[int, Address]]:
        """Yield where the PDUs or TORs of a rack may stand, by number."""
        for number in range(DEVICE_NUMBER_MAX + 1):
            yield number, self._address(kind, rack.key, number)

    def blades(self, rack: Address) -> tuple[object, ...]:
        """Return the key fields that the blades of a rack begin with."""
        return (rack.key,)

    def parts(self, rack: Address) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield the tables that the parts of a rack stand in, each with the rack."""
        for table in PARTS["racks"]:
            yield table, (rack.key,)

    def owner(self, rack: Address) -> Owner:
        """Return a rack as something with parts, to be deleted with them."""
        return self.chamber.owner_of_rack(rack.key)

    @staticmethod
    def _address(kind: PartKind, rack: str, number: int) -> Address:
        match kind:
            case PartKind.RACK:
                return Address("racks", rack)
            case PartKind.BLADE:
                return Address("blades", BladeKey(rack, number))
            case _:
                table = str(kind)
                return Address(f"{table}s", DeviceKey(rack, number)) if number else Address(table, rack)


_REGION: Final = Address("regions", GoRegionKey(*SERVED_ZONE[:2]))
_ZONE: Final = Address("zones", SERVED_ZONE)
_OUTER: Final[Mapping[Address, Message]] = {
    _REGION: Region(details=RegionDetails()),
    _ZONE: Zone(details=ZoneDetails()),
}
"""What a rack is in; where it lacks, no list shows the rack."""


class GoPartKeys:
    """The Go program's keys, in the one zone that is served: names are folded, and list keys keep them as written."""

    def __init__(self, chamber: GoChamber) -> None:
        self.chamber = chamber

    def addresses(self, part: Part) -> tuple[Address, ...]:
        """Return where a part stands."""
        match part.kind:
            case PartKind.REGION:
                return (_REGION,)
            case PartKind.ZONE:
                return (_ZONE,)
            case PartKind.RACK:
                return (Address("racks", self._rack(part)),)
            case PartKind.BLADE:
                return (Address("blades", GoBladeKey(*self._rack(part), part.number)),)
            case PartKind.PDU | PartKind.TOR as kind:
                return (Address(f"{kind}s", GoDeviceKey(*self._rack(part), part.number)),)

    def rack_of(self, address: Address) -> Address:
        """Return where the rack stands that has a part."""
        return Address("racks", GoRackKey(*address.key[:4]))

    def beside(self, state: Any, part: Part, address: Address) -> Mapping[Address, object]:
        """Return the list keys that lack, or name another than their own; with a rack, zone and region that lack."""
        outer = (
            {}
            if part.is_in_rack
            else {one: record for one, record in _OUTER.items() if len(one.key) < len(address.key)}
        )
        missing: dict[Address, object] = {
            one: record for one, record in outer.items() if not state.view(one.table).exists(one.key)
        }
        names = {one: one.key[-1] for one in outer} | {address: _listed_name(part)}
        entries = {_list_key(one): name for one, name in names.items()}
        return missing | {entry: name for entry, name in entries.items() if not _is_listed(state, entry)}

    def entries(self, address: Address) -> tuple[Address, ...]:
        """Return the list key of a part, and its actual state."""
        return (_list_key(address), *actual_beside(*address))

    def devices(self, rack: Address, kind: PartKind) -> Iterator[tuple[int, Address]]:
        """Yield where the PDUs or TORs of a rack stand, by number."""
        for number in range(DEVICE_NUMBER_MAX + 1):
            key: GoRackKey = rack.key
            yield number, Address(f"{kind}s", GoDeviceKey(*key, number))

    def blades(self, rack: Address) -> tuple[object, ...]:
        """Return the key fields that the blades of a rack begin with."""
        return tuple(rack.key)

    def parts(self, rack: Address) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield the tables that the parts of a rack stand in, each with the rack's key; its own actual states by its name."""
        for table in ("pdus", "tors", "blades"):
            yield table, tuple(rack.key)
            yield list_table(table), tuple(rack.key)
        if rack.key[:3] == SERVED_ZONE:
            yield "part_actual", (rack.key.rack,)

    def owner(self, rack: Address) -> Owner:
        """Return a rack as something with parts, to be deleted with them."""
        return self.chamber.owner_of_rack(rack.key)

    @staticmethod
    def _rack(part: Part) -> GoRackKey:
        return GoRackKey(*SERVED_ZONE, folded(part.rack))


def _list_key(address: Address) -> Address:
    return Address(list_table(address.table), address.key)


def _listed_name(part: Part) -> str | int:
    """What the list key of a part says."""
    return part.number if part.is_in_rack else part.rack or DEFAULT_ZONE


def _is_listed(state: CloudChamberGo, entry: Address) -> bool:
    """Tell whether a list key is there and names its own; a damaged one does not."""
    try:
        found = state.view(entry.table).get(entry.key)
    except CorruptionError:
        return False
    return found is not None and lists(entry.key, found)
