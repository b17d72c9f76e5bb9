"""The inventory of a store as a definition: read it, prove that importing it again changes nothing, write the file."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from keyplan.apps.cloudchamber.definition import (
    Definition,
    RackDefinition,
    RegionDefinition,
    ZoneDefinition,
    parse_definition,
)
from keyplan.apps.cloudchamber.definition_text import definition_text
from keyplan.apps.cloudchamber.go_inventory import GoPlace, go_inventory_records
from keyplan.apps.cloudchamber.import_plan import ImportPlan, InventoryPlace, plan_import
from keyplan.apps.cloudchamber.inventory import ExtraDevices, InventoryKey, RackIds, inventory_records
from keyplan.apps.cloudchamber.layout import CloudChamber, CloudChamberGo, LayoutSide
from keyplan.apps.cloudchamber.layout_keys import GoRackKey, GoRegionKey, GoZoneKey
from keyplan.apps.cloudchamber.rack_names import RackNames
from keyplan.apps.cloudchamber.reconciling import DOCUMENT_SHAPE, GO_SHAPE, stored_inventory
from keyplan.apps.cloudchamber.records import Rack, RegionDetails, ZoneDetails
from keyplan.apps.cloudchamber.sidecar import RackName
from keyplan.apps.cloudchamber.validation import validated
from keyplan.errors import InvalidInputError
from keyplan.files import write_whole

__all__ = ["Export", "exported", "write_export"]

_SHOWN_MAX: Final = 4
_SOURCE: Final = "export"


class Export(NamedTuple):
    """An inventory as a definition, the text of its file, and how many records (with list keys) the store has for it."""

    definition: Definition
    text: bytes
    records: int


def exported(chamber: CloudChamber | CloudChamberGo, *, rack_ids: RackIds = RackIds.NAME) -> Export:
    """Return the store's inventory, of one state, as a definition file that can be imported again and changes nothing.

    The document's keys know no regions and zones: racks are put into region and zone `standard`, or with
    `RackIds.REGION_ZONE_RACK` where their ids say. Fields that are unknown here are not in the file; an import keeps them.

    Raises InvalidInputError, naming the first places, when the store holds what the format cannot say or the import refuses:
    parts without a rack, a record without details, accelerators, a rack without a PDU; CorruptionError for a damaged record.
    """
    with chamber.snapshot() as state:
        if isinstance(state, CloudChamberGo):
            go_stored = stored_inventory(state, GO_SHAPE)
            definition = _definition_of_go({place: stored.record for place, stored in go_stored.items()})
            text = "".join(definition_text(definition)).encode()
            plan = plan_import(go_stored, go_inventory_records(_read_again(text)))
        else:
            stored = stored_inventory(state, DOCUMENT_SHAPE)
            records = {place: found.record for place, found in stored.items()}
            definition = _definition_of_document(records, rack_ids)
            text = "".join(definition_text(definition)).encode()
            wanted = inventory_records(_read_again(text), extra_devices=ExtraDevices.EXTEND, rack_ids=rack_ids)
            plan = plan_import(stored, wanted)
    _check_unchanged(plan)
    return Export(definition, text, plan.unchanged)


def write_export(path: Path, text: bytes, *, is_replacing: bool) -> None:
    """Write the file whole or not at all. Raises InvalidInputError when it is there and not to be replaced."""
    try:
        write_whole(path, text, replace=is_replacing)
    except FileExistsError as error:
        raise InvalidInputError(source=str(path), problem="the file is there; --replace replaces it") from error


def _read_again(text: bytes) -> Definition:
    return validated(parse_definition(text, source=_SOURCE))


def _check_unchanged(plan: ImportPlan) -> None:
    if plan.is_empty:
        return
    problems = [f"{_told(change.place)} ({', '.join(change.changed_fields)})" for change in plan.updates]
    problems += [f"{_told(change.place)} (it would be made)" for change in plan.creates]
    problems += [f"{_told(change.place)} (it would be deleted)" for change in plan.deletes]
    more = f" and {len(problems) - _SHOWN_MAX} more" if len(problems) > _SHOWN_MAX else ""
    problem = f"a definition file cannot say what the store holds: {', '.join(problems[:_SHOWN_MAX])}{more}"
    raise InvalidInputError(source=_SOURCE, problem=problem)


def _told(place: InventoryPlace) -> str:
    number = "" if place.number is None else f" {place.number}"
    return f"{place.noun}{number} of {place.rack}"


# ---- from records to a definition -------------------------------------------------------------------------------------------


class _Parts:
    """The parts of racks as they are found, by rack."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[object, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))

    def add(self, kind: str, rack: object, number: int, record: object) -> None:
        self._parts[kind][rack][number] = record

    def rack(self, rack: object, name: str, record: Rack) -> RackDefinition:
        pdus, tors, blades = (self._parts[kind][rack] for kind in ("pdus", "tors", "blades"))
        return RackDefinition(name, 0, record, pdus, tors, blades)


def _definition_of_document(records: Mapping[InventoryKey, object], rack_ids: RackIds) -> Definition:
    parts = _Parts()
    racks: dict[str, Rack] = {}
    for place, record in records.items():
        if isinstance(record, Rack):
            racks[place.rack] = record
        else:
            parts.add(f"{place.table.removesuffix('s')}s", place.rack, place.number or 0, record)
    names = RackNames((), rack_ids, LayoutSide.DOCUMENT)
    found: dict[str, dict[str, list[RackDefinition]]] = defaultdict(lambda: defaultdict(list))
    for rack_id, record in racks.items():
        name: RackName = names.of_id(rack_id)
        found[name.region][name.zone].append(parts.rack(rack_id, name.rack, record))
    regions = [
        RegionDefinition(
            region, RegionDetails(), tuple(ZoneDefinition(zone, ZoneDetails(), tuple(of)) for zone, of in zones.items())
        )
        for region, zones in found.items()
    ]
    return Definition(_SOURCE, "", "", tuple(regions), is_older=False)


def _definition_of_go(records: Mapping[GoPlace, Any]) -> Definition:
    parts = _Parts()
    for place, record in records.items():
        if place.number is not None and not place.is_list_key:
            parts.add(place.table, GoRackKey(*place.key[:4]), place.number, record)

    def listed(table: str, key: GoRegionKey | GoZoneKey | GoRackKey) -> str:
        return str(records.get(GoPlace(f"listed_{table}", key), key[-1]))

    racks: dict[GoZoneKey, list[RackDefinition]] = defaultdict(list)
    zones: dict[GoRegionKey, list[ZoneDefinition]] = defaultdict(list)
    regions: list[RegionDefinition] = []
    for place, record in records.items():
        if place.table == "racks" and isinstance(place.key, GoRackKey):
            rack = parts.rack(place.key, listed("racks", place.key), record)
            racks[GoZoneKey(*place.key[:3])].append(rack)
    for place, record in records.items():
        if place.table == "zones" and isinstance(place.key, GoZoneKey):
            zone = ZoneDefinition(listed("zones", place.key), record.details or ZoneDetails(), tuple(racks[place.key]))
            zones[GoRegionKey(*place.key[:2])].append(zone)
    for place, record in records.items():
        if place.table == "regions" and isinstance(place.key, GoRegionKey):
            details = record.details or RegionDetails()
            regions.append(RegionDefinition(listed("regions", place.key), details, tuple(zones[place.key])))
    return Definition(_SOURCE, "", "", tuple(regions), is_older=False)
