"""What a definition may hold: counts, capacities, cables (6.1), in the Go program's words where these are known (6.3).

One part of a rack has the rules of a whole definition: `part_problems`; and so has the rack that it joins: `crowding_problems`,
`port_problems`.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from keyplan.apps.cloudchamber.definition import Definition, RackDefinition
from keyplan.apps.cloudchamber.records import Blade, Capacity, HardwareType, Pdu, Port, Tor
from keyplan.errors import InvalidInputError, KeyplanError

__all__ = [
    "crowding_problems",
    "definition_problems",
    "part_problems",
    "port_problems",
    "problems_of",
    "require_none",
    "validated",
]

PROBLEMS_SHOWN_MAX: Final = 10
"""Why: one mistake in an anchored type shows in every rack that uses it."""

_CAPACITY_MAX: Final = (
    ("Cores", "cores", 16_384),
    ("MemoryInMb", "memory_in_mb", 16_777_216),
    ("DiskInGb", "disk_in_gb", 1_073_741_824),
    ("NetworkBandwidthInMbps", "network_bandwidth_in_mbps", 1_048_576),
)
_DEVICES_MAX: Final = 2
_DEVICE_INDEX_MAX: Final = 2
_BLADES_MAX: Final = 1_000
_BLADE_INDEX_MAX: Final = 10_000_000
_PDU_PORTS_MAX: Final = 128
_TOR_PORTS_MAX: Final = 1_024


def validated(definition: Definition) -> Definition:
    """Return the definition when it holds nothing that it may not.

    Raises InvalidInputError: `problem` is the first that was found, `further` the next ones, up to ten in all.
    """
    require_none(definition_problems(definition), definition.source)
    return definition


def require_none(problems: Iterator[str], source: str) -> None:
    """Raise InvalidInputError if there are problems: the first of them, and up to nine `further` ones."""
    found = list(islice(problems, PROBLEMS_SHOWN_MAX))
    if found:
        further = {"further": found[1:]} if len(found) > 1 else {}
        raise InvalidInputError(source=source, problem=found[0], **further)


def problems_of(error: KeyplanError) -> list[str]:
    """Return the problems that an error was raised with."""
    further = error.facts.get("further", [])
    return [str(error.facts["problem"]), *(map(str, further) if isinstance(further, list) else ())]


def definition_problems(definition: Definition) -> Iterator[str]:
    """Yield everything that is wrong with the values, each with the region and the field."""
    for region in definition.regions:
        yield from _said(region.name, _count("Zones", len(region.zones), 1))
        for zone in region.zones:
            yield from _said(region.name, _count(f"Zones[{zone.name}].Racks", len(zone.racks), 1))
            for rack in zone.racks:
                problems = _rack(rack, _rack_place(zone.name, rack.name), is_older=definition.is_older)
                yield from _said(region.name, problems)


def part_problems(region: str, zone: str, rack: str, number: int, record: Pdu | Tor | Blade) -> Iterator[str]:
    """Yield what is wrong with one part of a rack by itself, in the words of a definition that has it."""
    yield from _said(region, _part(record, number, _rack_place(zone, rack)))


def crowding_problems(region: str, zone: str, rack: str, part: Pdu | Tor | Blade, found: int) -> Iterator[str]:
    """Yield what is wrong with a rack that has so many parts of the kind of this one; too few are none of them."""
    most = _BLADES_MAX if isinstance(part, Blade) else _DEVICES_MAX
    yield from _said(region, _count(f"{_rack_place(zone, rack)}.{_list_of(part)}", found, 0, most))


def port_problems(
    region: str, zone: str, rack: str, devices: Iterable[tuple[int, Pdu | Tor]], blades: int
) -> Iterator[str]:
    """Yield which of a rack's devices have fewer ports than it has blades."""
    for number, device in devices:
        here = f"{_rack_place(zone, rack)}.{_list_of(device)}[{number}].Ports"
        yield from _said(region, _count(here, len(device.ports), blades))


def _said(region: str, problems: Iterator[str]) -> Iterator[str]:
    for problem in problems:
        yield f'CloudChamber: in region "{region}": the field {problem}'


def _rack_place(zone: str, rack: str) -> str:
    return f"Zones[{zone}].Racks[{rack}]"


def _list_of(record: Pdu | Tor | Blade) -> str:
    return f"{type(record).__name__}s"


def _rack(rack: RackDefinition, place: str, *, is_older: bool) -> Iterator[str]:
    yield from _count(f"{place}.Pdus", len(rack.pdus), 1, _DEVICES_MAX)
    yield from _count(f"{place}.Tors", len(rack.tors), 1, _DEVICES_MAX)
    yield from _count(f"{place}.Blades", len(rack.blades), 1, _BLADES_MAX)
    if not is_older:
        for devices in (rack.pdus, rack.tors):
            for index, device in devices.items():
                yield from _part(device, index, place, blades=len(rack.blades))
    for index, blade in rack.blades.items():
        yield from _part(blade, index, place)


def _part(record: Pdu | Tor | Blade, index: int, place: str, *, blades: int = 0) -> Iterator[str]:
    here = f"{place}.{_list_of(record)}[{index}]"
    if isinstance(record, Blade):
        yield from _range(f"{here}.Index", index, 0, _BLADE_INDEX_MAX)
        yield from _capacity(record.capacity or Capacity(), here)
        return
    ports_max, own = (
        (_PDU_PORTS_MAX, HardwareType.PDU) if isinstance(record, Pdu) else (_TOR_PORTS_MAX, HardwareType.TOR)
    )
    yield from _range(f"{here}.Index", index, 0, _DEVICE_INDEX_MAX)
    yield from _count(f"{here}.Ports", len(record.ports), max(1, blades), ports_max)
    for number, port in record.ports.items():
        yield from _range(f"{here}.Ports[{number}].Index", number, 0)
        yield from _port(port, f"{here}.Ports[{number}]", own)


def _port(port: Port, place: str, own: HardwareType) -> Iterator[str]:
    if port.wired and port.item is None:
        yield f'"{place}.Item" is missing.  The port is wired, so it must say to what'
    if not port.wired and port.item is not None:
        yield f'"{place}.Item" must not be there.  The port is not wired'
    if port.item is not None and port.item.type is own:
        yield f'"{place}.Item.Type" is {own}.  A {own} cannot be wired to a {own}'


def _capacity(capacity: Capacity, place: str) -> Iterator[str]:
    for name, attribute, most in _CAPACITY_MAX:
        yield from _range(f"{place}.{name}", getattr(capacity, attribute), 1, most)


def _range(field: str, number: int, least: int, most: int | None = None) -> Iterator[str]:
    if number < least:
        yield f'"{field}" must be greater than or equal to {least}.  It is {number}, which is invalid'
    if most is not None and number > most:
        yield f'"{field}" must be less than or equal to {most}.  It is {number}, which is invalid'


def _count(field: str, found: int, least: int, most: int | None = None) -> Iterator[str]:
    if found < least:
        yield f'"{field}" must contain at least {_elements(least)}.  It contains {found}, which is invalid'
    if most is not None and found > most:
        yield f'"{field}" must contain at most {_elements(most)}.  It contains {found}, which is invalid'


def _elements(number: int) -> str:
    return "1 element" if number == 1 else f"{number} elements"
