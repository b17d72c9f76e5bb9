"""What a definition may hold: counts, capacities, cables (6.1), in the Go program's words where these are known (6.3)."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from keyplan.apps.cloudchamber.definition import Definition, RackDefinition
from keyplan.apps.cloudchamber.records import Capacity, HardwareType, Pdu, Port, Tor
from keyplan.errors import InvalidInputError

__all__ = ["definition_problems", "validated"]

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
    problems = list(islice(definition_problems(definition), PROBLEMS_SHOWN_MAX))
    if problems:
        further = {"further": problems[1:]} if len(problems) > 1 else {}
        raise InvalidInputError(source=definition.source, problem=problems[0], **further)
    return definition


def definition_problems(definition: Definition) -> Iterator[str]:
    """Yield everything that is wrong with the values, each with the region and the field."""
    for region in definition.regions:
        said = f'CloudChamber: in region "{region.name}": the field '
        for problem in _count("Zones", len(region.zones), 1):
            yield said + problem
        for zone in region.zones:
            for problem in _count(f"Zones[{zone.name}].Racks", len(zone.racks), 1):
                yield said + problem
            for rack in zone.racks:
                for problem in _rack(rack, f"Zones[{zone.name}].Racks[{rack.name}]", is_older=definition.is_older):
                    yield said + problem


def _rack(rack: RackDefinition, place: str, *, is_older: bool) -> Iterator[str]:
    yield from _count(f"{place}.Pdus", len(rack.pdus), 1, _DEVICES_MAX)
    yield from _count(f"{place}.Tors", len(rack.tors), 1, _DEVICES_MAX)
    yield from _count(f"{place}.Blades", len(rack.blades), 1, _BLADES_MAX)
    if not is_older:
        blades = len(rack.blades)
        yield from _devices(rack.pdus, f"{place}.Pdus", blades, _PDU_PORTS_MAX, HardwareType.PDU)
        yield from _devices(rack.tors, f"{place}.Tors", blades, _TOR_PORTS_MAX, HardwareType.TOR)
    for index, blade in rack.blades.items():
        yield from _range(f"{place}.Blades[{index}].Index", index, 0, _BLADE_INDEX_MAX)
        yield from _capacity(blade.capacity or Capacity(), f"{place}.Blades[{index}]")


def _devices(
    devices: Mapping[int, Pdu] | Mapping[int, Tor], place: str, blades: int, ports_max: int, own: HardwareType
) -> Iterator[str]:
    for index, device in devices.items():
        here = f"{place}[{index}]"
        yield from _range(f"{here}.Index", index, 0, _DEVICE_INDEX_MAX)
        yield from _count(f"{here}.Ports", len(device.ports), max(1, blades), ports_max)
        for number, port in device.ports.items():
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


def _range(field: str, number: int, least: int, most: int) -> Iterator[str]:
    if number < least:
        yield f'"{field}" must be greater than or equal to {least}.  It is {number}, which is invalid'
    if number > most:
        yield f'"{field}" must be less than or equal to {most}.  It is {number}, which is invalid'


def _count(field: str, found: int, least: int, most: int | None = None) -> Iterator[str]:
    if found < least:
        yield f'"{field}" must contain at least {_elements(least)}.  It contains {found}, which is invalid'
    if most is not None and found > most:
        yield f'"{field}" must contain at most {_elements(most)}.  It contains {found}, which is invalid'


def _elements(number: int) -> str:
    return "1 element" if number == 1 else f"{number} elements"
