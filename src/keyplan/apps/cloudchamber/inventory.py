"""The records that a definition asks for, under the keys of the document's layout: R6 (one PDU and TOR), R7 (no zones).

Pure; `reconciling.py` brings a store there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, TypeAlias

from keyplan.apps.cloudchamber.definition import Definition, RackDefinition
from keyplan.apps.cloudchamber.import_plan import PlaceOrder
from keyplan.apps.cloudchamber.layout import CloudChamber
from keyplan.apps.cloudchamber.layout_keys import BladeKey, DeviceKey
from keyplan.apps.cloudchamber.records import Blade, Pdu, Rack, Tor
from keyplan.errors import InvalidInputError, InvalidKeyError

__all__ = [
    "INVENTORY_TABLES",
    "ExtraDevices",
    "InventoryKey",
    "InventoryRecord",
    "MultiplicityError",
    "RackIds",
    "inventory_records",
]

INVENTORY_TABLES: Final = ("racks", "pdu", "tor", "pdus", "tors", "blades")
"""The tables that an inventory is: an import reads and writes these and no others."""

_NAMES_SHOWN_MAX: Final = 4
_NOUNS: Final = {
    "racks": "rack",
    "pdu": "pdu",
    "tor": "tor",
    "pdus": "further pdu",
    "tors": "further tor",
    "blades": "blade",
}

InventoryRecord: TypeAlias = Rack | Pdu | Tor | Blade


class ExtraDevices(StrEnum):
    """What becomes of PDUs and TORs beyond a rack's first, for which the document has no key."""

    REFUSE = "refuse"
    EXTEND = "extend"


class RackIds(StrEnum):
    """How racks are named in keys: by their name, or by region, zone and name."""

    NAME = "name"
    REGION_ZONE_RACK = "region.zone.rack"


class InventoryKey(NamedTuple):
    """Where a record is: the table's name and the key in it."""

    table: str
    key: str | DeviceKey | BladeKey

    @property
    def rack(self) -> str:
        """The id of the rack that the record is, or is a part of."""
        return self.key if isinstance(self.key, str) else self.key.rack

    @property
    def number(self) -> int | None:
        """The number of the blade or further device, if it has one."""
        if isinstance(self.key, str):
            return None
        return self.key.blade if isinstance(self.key, BladeKey) else self.key.device

    @property
    def noun(self) -> str:
        """What the record is, in a word for people."""
        return _NOUNS[self.table]

    @property
    def unit(self) -> "InventoryKey":
        """Itself: no two records must be written by one commit."""
        return self

    @property
    def facts(self) -> dict[str, str | int]:
        """The rack, and the number if there is one."""
        return {"rack": self.rack} if self.number is None else {"rack": self.rack, "number": self.number}

    def order(self, *, is_deleted: bool) -> PlaceOrder:
        """Rack by rack; a rack's own record is the first that is deleted and the last that is written."""
        phase = 1 if self.table != "racks" else 0 if is_deleted else 2
        return self.rack, phase, self.table, self.number or 0


class MultiplicityError(InvalidInputError):
    """A rack has more PDUs or TORs than the layout has keys for. Facts: `source`, `problem`."""

    code: ClassVar[str] = "multiplicity"
    summary: ClassVar[str] = "a rack has more devices than the layout has keys for"


def inventory_records(
    definition: Definition,
    *,
    extra_devices: ExtraDevices = ExtraDevices.REFUSE,
    rack_ids: RackIds = RackIds.NAME,
) -> Mapping[InventoryKey, InventoryRecord]:
    """Return every record of the inventory by its place.

    Raises MultiplicityError when a rack has a further PDU or TOR and these are refused; InvalidInputError when rack names do
    not tell racks apart, when there are several regions or zones and racks go by name, or when a name cannot be part of a key.
    """
    _check_fit(definition, extra_devices, rack_ids)
    records: dict[InventoryKey, InventoryRecord] = {}
    owners: dict[str, str] = {}
    check_key = CloudChamber.bound().tables["racks"].keys.encode
    for region, zone, rack in _racks(definition):
        rack_id = rack.name if rack_ids is RackIds.NAME else f"{region}.{zone}.{rack.name}"
        place = f"{region}/{zone}/{rack.name}"
        if rack_id in owners:
            problem = f"{owners[rack_id]} and {place} would both have the rack id {rack_id!r}"
            raise InvalidInputError(source=definition.source, line=rack.line, problem=problem)
        owners[rack_id] = place
        try:
            check_key(rack_id)
        except InvalidKeyError as error:
            problem = f"the rack id cannot be part of a key: {error.facts['problem']}"
            raise InvalidInputError(
                source=definition.source, line=rack.line, rack=_shortened(rack_id), problem=problem
            ) from error
        records.update(_records_of(rack, rack_id))
    return records


def _records_of(rack: RackDefinition, rack_id: str) -> Iterator[tuple[InventoryKey, InventoryRecord]]:
    yield InventoryKey("racks", rack_id), rack.rack
    for index, pdu in rack.pdus.items():
        yield (InventoryKey("pdus", DeviceKey(rack_id, index)) if index else InventoryKey("pdu", rack_id)), pdu
    for index, tor in rack.tors.items():
        yield (InventoryKey("tors", DeviceKey(rack_id, index)) if index else InventoryKey("tor", rack_id)), tor
    for index, blade in rack.blades.items():
        yield InventoryKey("blades", BladeKey(rack_id, index)), blade


def _racks(definition: Definition) -> Iterator[tuple[str, str, RackDefinition]]:
    for region in definition.regions:
        for zone in region.zones:
            for rack in zone.racks:
                yield region.name, zone.name, rack


def _check_fit(definition: Definition, extra_devices: ExtraDevices, rack_ids: RackIds) -> None:
    """Say everything at once that the layout has no place for, with the option that makes one."""
    problems: list[str] = []
    several: list[str] = []
    if extra_devices is ExtraDevices.REFUSE:
        several = [
            f"{region}/{zone}/{rack.name} ({_counted(len(rack.pdus), 'pdu')}, {_counted(len(rack.tors), 'tor')})"
            for region, zone, rack in _racks(definition)
            if set(rack.pdus) - {0} or set(rack.tors) - {0}
        ]
        if several:
            problems.append(
                f"the layout has keys for one PDU and one TOR of a rack, number 0; not so {_listed(several)}"
                " (extra devices 'extend' gives the others keys as well)"
            )
    if rack_ids is RackIds.NAME and (problem := _ambiguity(definition)):
        problems.append(f"{problem} (rack ids 'region.zone.rack' tell them apart)")
    if problems:
        kind = MultiplicityError if several else InvalidInputError
        raise kind(source=definition.source, problem=". ".join(problems))


def _ambiguity(definition: Definition) -> str:
    """Why rack names alone will not do; empty when they do."""
    zones = sum(len(region.zones) for region in definition.regions)
    if zones <= 1:
        return ""
    counts = Counter(rack.name for _, _, rack in _racks(definition))
    repeated = [name for name, count in counts.items() if count > 1]
    found = f"The layout knows no regions and zones, and the file has {len(definition.regions)} and {zones} of them"
    return f"{found}; several zones have a rack of the name {_listed(repeated)}" if repeated else found


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    return f"{shown} and {len(names) - _NAMES_SHOWN_MAX} more" if len(names) > _NAMES_SHOWN_MAX else shown


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shortened(name: str) -> str:
    return name if len(name) <= 60 else name[:60] + "..."
