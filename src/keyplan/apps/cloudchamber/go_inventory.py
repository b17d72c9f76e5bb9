"""The records of a definition under the Go program's keys: each with its list key, which keeps the case of the name (2.2).

Pure; `reconciling.py` brings a store there. `unsound_pairs` says where a store's records and list keys do not agree.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from keyplan.apps.cloudchamber.definition import Definition, RackDefinition
from keyplan.apps.cloudchamber.import_plan import PlaceOrder
from keyplan.apps.cloudchamber.layout import CloudChamberGo
from keyplan.apps.cloudchamber.layout_keys import GoBladeKey, GoDeviceKey, GoRackKey, GoRegionKey, GoZoneKey
from keyplan.apps.cloudchamber.records import Blade, Pdu, Rack, Region, Tor, Zone
from keyplan.errors import InvalidInputError, InvalidKeyError
from keyplan.layout import bound_layout_of, shown_key

__all__ = [
    "GO_INVENTORY_TABLES",
    "GO_VIEW",
    "GO_VIEWS",
    "LISTED",
    "GoKey",
    "GoPlace",
    "GoRecord",
    "UnsoundPair",
    "folded",
    "go_inventory_records",
    "list_table",
    "lists",
    "unsound_pairs",
]

GO_VIEW: Final = "definition"
"""The one view that the Go program writes, and an import with it."""

GO_VIEWS: Final = ("actual", "definition", "observed", "target")

LISTED: Final = "listed_"
"""What the names of the tables of list keys begin with."""
_NOUNS: Final = {
    "regions": "region",
    "zones": "zone",
    "racks": "rack",
    "pdus": "pdu",
    "tors": "tor",
    "blades": "blade",
}
GO_INVENTORY_TABLES: Final = (*_NOUNS, *(LISTED + table for table in _NOUNS))
"""The tables that an inventory is: each kind of record, and the list keys beside it."""

GoKey: TypeAlias = GoRegionKey | GoZoneKey | GoRackKey | GoDeviceKey | GoBladeKey
GoRecord: TypeAlias = Region | Zone | Rack | Pdu | Tor | Blade | str | int


def folded(name: str) -> str:
    """Return a name as it stands in a key.

    Character by character, as Go folds: Python's own `lower` makes two of U+0130, and looks at a sigma's neighbours.
    """
    return "".join("i" if character == "\u0130" else character.lower() for character in name)


def list_table(table: str) -> str:
    """Return the table of the list keys that belong to a table of records."""
    return LISTED + table


class GoPlace(NamedTuple):
    """Where a record or list key is: the table's name and the key in it."""

    table: str
    key: GoKey

    @property
    def records(self) -> str:
        """The table of the records, of which this is one or lists one."""
        return self.table.removeprefix(LISTED)

    @property
    def is_list_key(self) -> bool:
        """True for a list key, False for a record."""
        return self.table.startswith(LISTED)

    @property
    def rack(self) -> str:
        """`region/zone/rack`, or as much of it as there is."""
        return "/".join(map(str, self.key[1:4]))

    @property
    def number(self) -> int | None:
        """The number of the blade or device, if it has one."""
        match self.key:
            case GoBladeKey(blade=number) | GoDeviceKey(device=number):
                return number
            case _:
                return None

    @property
    def noun(self) -> str:
        """What the record is, in a word for people."""
        return "list key" if self.is_list_key else _NOUNS[self.table]

    @property
    def unit(self) -> tuple[str, GoKey]:
        """Record and list key: the Go program writes both in one transaction."""
        return self.records, self.key

    @property
    def facts(self) -> dict[str, str | int]:
        """The key's fields."""
        return self.key._asdict()

    def order(self, *, is_deleted: bool) -> PlaceOrder:
        """From the inside out when written, from the outside in when deleted: lists show whole zones and racks."""
        own = 0 if is_deleted else 2
        names = self.key[1:4]
        outer = tuple(part for name in names[:-1] for part in (name, 1))
        if self.number is None:
            return *outer, names[-1], own, self.table
        return *outer, names[-1], 1, self.records, self.number, self.table


def go_inventory_records(definition: Definition) -> Mapping[GoPlace, GoRecord]:
    """Return every record of the inventory and its list key, by place: two keys for each thing that the file states.

    Raises InvalidInputError when two names of one place differ in case alone, or when a name cannot be part of a key.
    """
    return _GoRecords(definition).made()


class _GoRecords:
    """Puts the parts of one definition under their keys."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._tables = CloudChamberGo.bound().tables
        self._records: dict[GoPlace, GoRecord] = {}
        self._spelled: dict[GoPlace, str] = {}

    def made(self) -> Mapping[GoPlace, GoRecord]:
        for region in self._definition.regions:
            region_key = GoRegionKey(GO_VIEW, folded(region.name))
            self._add("regions", region_key, Region(details=region.details), region.name, f"region {region.name}", 0)
            for zone in region.zones:
                zone_key = GoZoneKey(*region_key, folded(zone.name))
                said = f"zone {region.name}/{zone.name}"
                self._add("zones", zone_key, Zone(details=zone.details), zone.name, said, 0)
                for rack in zone.racks:
                    self._add_rack(zone_key, rack, f"rack {region.name}/{zone.name}/{rack.name}")
        return self._records

    def _add_rack(self, zone: GoZoneKey, rack: RackDefinition, said: str) -> None:
        key = GoRackKey(*zone, folded(rack.name))
        self._add("racks", key, rack.rack, rack.name, said, rack.line)
        for number, pdu in rack.pdus.items():
            self._add("pdus", GoDeviceKey(*key, number), pdu, number, f"pdu {number} of {said}", rack.line)
        for number, tor in rack.tors.items():
            self._add("tors", GoDeviceKey(*key, number), tor, number, f"tor {number} of {said}", rack.line)
        for number, blade in rack.blades.items():
            self._add("blades", GoBladeKey(*key, number), blade, number, f"blade {number} of {said}", rack.line)

    def _add(self, table: str, key: GoKey, record: GoRecord, listed: str | int, said: str, line: int) -> None:
        place = GoPlace(table, key)
        facts = {"line": line} if line else {}
        if place in self._spelled:
            problem = f"{self._spelled[place]} and {said} would both have one key: keys know no upper case"
            raise InvalidInputError(source=self._definition.source, **facts, problem=problem)
        try:
            self._tables[table].keys.encode(key)
        except InvalidKeyError as error:
            problem = f"the name of {said[:80]} cannot be part of a key: {error.facts['problem']}"
            raise InvalidInputError(source=self._definition.source, **facts, problem=problem) from error
        self._spelled[place] = said
        self._records[place] = record
        self._records[GoPlace(list_table(table), key)] = listed


# ---- the check of a store --------------------------------------------------------------------------------------------------


class UnsoundPair(NamedTuple):
    """A record and a list key that do not agree: the raw key at fault, as text, and what is wrong with it."""

    place: GoPlace
    raw_key: str
    problem: str


def unsound_pairs(go: CloudChamberGo, *views: str) -> Iterator[UnsoundPair]:
    """Yield every record without a list key, list key without a record, and list key that lists another name (2.2).

    The Go program fails on the last with ErrIndexKeyValueMismatch, and does not see the first in any list. From one state, in
    key order of each table; all views unless some are named. Memory is that of one table's keys.
    """
    with go.snapshot() as state:
        for view in views or GO_VIEWS:
            for table in _NOUNS:
                yield from _unsound_in(state, table, view)


def _unsound_in(state: CloudChamberGo, table: str, view: str) -> Iterator[UnsoundPair]:
    listed: dict[GoKey, Any] = dict(state.view(list_table(table)).list(view))
    for key in state.view(table).keys(view):
        if listed.pop(key, None) is None:
            yield _unsound(state, GoPlace(table, key), "the record has no list key: no list shows it")
    for key in listed:
        yield _unsound(state, GoPlace(list_table(table), key), "the list key has no record")
    for key, value in state.view(list_table(table)).list(view):
        if not lists(key, value):
            yield _unsound(state, GoPlace(list_table(table), key), "the list key lists another name than its own")


def lists(key: GoKey, value: str | int) -> bool:
    """Tell whether a list key's value is the name or number in the key, in any case."""
    return value == key[-1] if isinstance(value, int) else folded(value) == key[-1]


def _unsound(state: CloudChamberGo, place: GoPlace, problem: str) -> UnsoundPair:
    raw_key = bound_layout_of(state).tables[place.table].keys.encode(place.key)
    return UnsoundPair(place, shown_key(raw_key), problem)
