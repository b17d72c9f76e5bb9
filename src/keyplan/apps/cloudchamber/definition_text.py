"""A definition as the text of a definition file (6.2): without anchors, in an order that does not depend on the store. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from keyplan.apps.cloudchamber.definition import Definition, RackDefinition, RegionDefinition, ZoneDefinition
from keyplan.apps.cloudchamber.records import Blade, BladeDetails, Capacity, DeviceDetails, Hardware, Pdu, Port, Tor

__all__ = ["definition_text", "natural_order"]

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")
_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Why: readers of YAML take these for something else than text when they stand without quotes."""
_ESCAPED: Final = re.compile('[\x00-\x1f"\\\\\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]')
_DIGITS: Final = re.compile(r"([0-9]+)")


def natural_order(name: str) -> tuple[object, ...]:
    """Return what sorts `rack2` before `rack10`; names of equal numbers by their text."""
    parts = _DIGITS.split(name)
    return (*(int(part) if place % 2 else part for place, part in enumerate(parts)), name)


def definition_text(definition: Definition) -> Iterator[str]:
    """Yield the lines of the file, each with its end. Racks are in natural order, parts and ports by their index."""
    about = _fields(Name=definition.name, Notes=definition.notes)
    if about:
        yield f"Details: {about}\n"
    yield "Regions:\n"
    for region in sorted(definition.regions, key=lambda region: natural_order(region.name)):
        yield from _region(region)


def _region(region: RegionDefinition) -> Iterator[str]:
    details = region.details
    yield f"- Name: {_text(region.name)}\n"
    yield f"  Details: {_fields(State=details.state, Location=details.location, Notes=details.notes)}\n"
    yield "  Zones:\n"
    for zone in sorted(region.zones, key=lambda zone: natural_order(zone.name)):
        yield from _zone(zone)


def _zone(zone: ZoneDefinition) -> Iterator[str]:
    details = zone.details
    told = _fields(Enabled=details.enabled, State=details.state, Location=details.location, Notes=details.notes)
    yield f"  - Name: {_text(zone.name)}\n"
    yield f"    Details: {told}\n"
    yield "    Racks:\n"
    for rack in sorted(zone.racks, key=lambda rack: natural_order(rack.name)):
        yield from _rack(rack)


def _rack(rack: RackDefinition) -> Iterator[str]:
    yield f"    - Name: {_text(rack.name)}\n"
    details = rack.rack.details
    if details is not None:
        told = _fields(
            Enabled=details.enabled, Condition=details.condition, Location=details.location, Notes=details.notes
        )
        yield f"      Details: {told}\n"
    yield from _devices("Pdus", rack.pdus)
    yield from _devices("Tors", rack.tors)
    if rack.blades:
        yield "      Blades:\n"
    for index, blade in sorted(rack.blades.items()):
        yield f"      - Index: {index}\n"
        yield from _blade(blade)


def _devices(name: str, devices: Mapping[int, Pdu | Tor]) -> Iterator[str]:
    if devices:
        yield f"      {name}:\n"
    for index, device in sorted(devices.items()):
        yield f"      - Index: {index}\n"
        yield from _condition(device.details)
        if device.ports:
            yield "        Ports:\n"
        for number, port in sorted(device.ports.items()):
            yield f"        - {_port(number, port)}\n"


def _condition(details: DeviceDetails | BladeDetails | None) -> Iterator[str]:
    if details is not None:
        yield f"        Details: {_fields(Enabled=details.enabled, Condition=details.condition)}\n"


def _port(number: int, port: Port) -> str:
    item = "" if port.item is None else f", Item: {_item(port.item)}"
    return f"{{Index: {number}, Wired: {_text(port.wired)}{item}}}"


def _item(item: Hardware) -> str:
    port = {"Port": item.port} if item.port else {}
    return _fields(Type=item.type, Id=item.id, **port)


def _blade(blade: Blade) -> Iterator[str]:
    yield from _condition(blade.details)
    if blade.capacity is not None:
        yield f"        Capacity: {_capacity(blade.capacity)}\n"
    if blade.boot_info is not None:
        boot = blade.boot_info
        told = _fields(Source=boot.source, Image=boot.image, Version=boot.version, Parameters=boot.parameters)
        yield f"        BootInfo: {told}\n"
    yield f"        BootOnPowerOn: {_text(blade.boot_on_power_on)}\n"


def _capacity(capacity: Capacity) -> str:
    return _fields(
        Arch=capacity.arch,
        Cores=capacity.cores,
        DiskInGb=capacity.disk_in_gb,
        MemoryInMb=capacity.memory_in_mb,
        NetworkBandwidthInMbps=capacity.network_bandwidth_in_mbps,
    )


def _fields(**fields: str | int | bool) -> str:
    """Fields in braces; empty texts are left out, which is how the format says them. Nothing at all when all are empty."""
    told = ", ".join(f"{name}: {_text(value)}" for name, value in fields.items() if value != "")
    return f"{{{told}}}" if told else ""


def _text(value: str | int | bool) -> str:  # noqa: FBT001  # Why: a value of the file, not a switch.
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return f'"{_ESCAPED.sub(_escaped, value)}"'


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return f"\\{character}" if character in '"\\' else f"\\u{ord(character):04x}"
