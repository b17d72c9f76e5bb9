"""An inventory definition: regions, zones and racks with their records, as a definition file states them (6.1, 6.2).

`read_definition` reads and validates a file; nothing here knows a store. What a definition may hold is in validation.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from keyplan.apps.cloudchamber.records import (
    Blade,
    BladeDetails,
    BootInfo,
    BootSource,
    Capacity,
    Condition,
    DeviceDetails,
    Hardware,
    HardwareType,
    Pdu,
    Port,
    Rack,
    RackDetails,
    RegionDetails,
    State,
    Tor,
    ZoneDetails,
)
from keyplan.apps.cloudchamber.yaml_block import Block, FileReader
from keyplan.apps.cloudchamber.yaml_file import YamlNode, load_yaml_file, parse_yaml

__all__ = [
    "RECORDS_MAX",
    "Definition",
    "RackDefinition",
    "RegionDefinition",
    "ZoneDefinition",
    "parse_definition",
    "read_definition",
]

DEFINITION_FILE: Final = "inventory.yaml"

RECORDS_MAX: Final = 1_000_000
"""Why: aliases let a short file state any number; a million records are a thousand full racks, and fit into memory."""

_ANCHOR_HOLDERS: Final = ("ZoneTypes", "RackTypes", "PduTypes", "TorTypes", "BladeTypes")
_UNNAMED: Final = "standard"
"""The Go program's default region and zone, which the older format has without saying so."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RackDefinition:
    """A rack and its parts by their index; `line` is where the file names it."""

    name: str
    line: int
    rack: Rack
    pdus: Mapping[int, Pdu]
    tors: Mapping[int, Tor]
    blades: Mapping[int, Blade]


@dataclass(frozen=True, slots=True)
class ZoneDefinition:
    """A zone of a region."""

    name: str
    details: ZoneDetails
    racks: tuple[RackDefinition, ...]


@dataclass(frozen=True, slots=True)
class RegionDefinition:
    """A region."""

    name: str
    details: RegionDetails
    zones: tuple[ZoneDefinition, ...]


@dataclass(frozen=True, slots=True)
class Definition:
    """What one file states. `is_older`: in the format before regions, whose racks tell nothing of details and ports."""

    source: str
    name: str
    notes: str
    regions: tuple[RegionDefinition, ...]
    is_older: bool


def read_definition(path: Path) -> Definition:
    """Read an inventory definition file, or the `inventory.yaml` of a folder, whole, before anything is done with it.

    Raises InvalidInputError, naming the file, the line and the place, for anything that is not as the format has it: bad YAML,
    an unknown or doubled key, a value of the wrong type, a name that stands twice. `validated` judges the values themselves.
    """
    file = _file_of(path)
    return _definition(FileReader(str(file)), load_yaml_file(file, "inventory definition"), RECORDS_MAX)


def _file_of(path: Path) -> Path:
    """The file that is meant: the original names the folder, and finds the file in any case."""
    if not path.is_dir():
        return path
    found = sorted(file for file in path.iterdir() if file.name.lower() == DEFINITION_FILE)
    return found[-1] if found else path / DEFINITION_FILE


def parse_definition(raw: bytes, *, source: str, records_max: int = RECORDS_MAX) -> Definition:
    """Read an inventory definition from bytes; `source` names them in errors. Raises as `read_definition` does.

    One that states more than `records_max` racks, devices and blades is refused before they are made.
    """
    return _definition(FileReader(source), parse_yaml(raw, source=source), records_max)


def _definition(file: FileReader, node: YamlNode | None, records_max: int) -> Definition:
    if node is None:
        file.refuse(1, "", "the file is empty; it should hold an inventory definition")
    document = file.block(node, "", "the file")
    reader = _Reader(file, records_max)
    if document.has("Racks"):
        document.check_known("Details", "Racks")
        racks = reader.racks(document, _UNNAMED, _UNNAMED, reader.older_rack)
        zone = ZoneDefinition(_UNNAMED, ZoneDetails(), racks)
        regions: tuple[RegionDefinition, ...] = (RegionDefinition(_UNNAMED, RegionDetails(), (zone,)),)
    else:
        document.check_known("Details", "Regions", *_ANCHOR_HOLDERS)
        regions = reader.regions(document)
    about = document.part("Details", ("Name", "Notes"))
    name, notes = (about.text("Name"), about.text("Notes")) if about else ("", "")
    return Definition(file.source, name, notes, regions, is_older=document.has("Racks"))


class _Reader:
    """Reads the blocks of one file. A block that is aliased to many places is read once and shared."""

    def __init__(self, file: FileReader, records_max: int) -> None:
        self._file = file
        self._records = 0
        self._records_max = records_max

    # ---- from the root to racks ----------------------------------------------------------------------------------------

    def regions(self, document: Block) -> tuple[RegionDefinition, ...]:
        found: dict[str, RegionDefinition] = {}
        for block in document.parts("Regions", ("Name", "Details", "Zones")):
            name = block.name("Name")
            if name in found:
                block.refuse(f"CloudChamber: Configuration detected duplicate Region {name}")
            details = block.part("Details", ("State", "Location", "Notes"))
            found[name] = RegionDefinition(name, _region_details(details), self._zones(block, name))
        if not found:
            document.refuse("the file states no region; it would remove every rack from the store")
        return tuple(found.values())

    def _zones(self, region: Block, region_name: str) -> tuple[ZoneDefinition, ...]:
        found: dict[str, ZoneDefinition] = {}
        for block in region.parts("Zones", ("Name", "Details", "Racks")):
            name = block.name("Name")
            if name in found:
                block.refuse(f'CloudChamber: Configuration detected duplicate Zone {name} in region "{region_name}"')
            details = block.part("Details", ("Enabled", "State", "Location", "Notes"))
            racks = self.racks(block, region_name, name, self._rack)
            found[name] = ZoneDefinition(name, _zone_details(details), racks)
        return tuple(found.values())

    def racks(
        self, zone: Block, region_name: str, zone_name: str, read: Callable[[Block, str], RackDefinition]
    ) -> tuple[RackDefinition, ...]:
        found: dict[str, RackDefinition] = {}
        for block in zone.parts("Racks", None):
            name = block.name("Name")
            if name in found:
                zone_place = f'zone "{zone_name}" in region "{region_name}"'
                block.refuse(f"CloudChamber: Configuration detected duplicate Rack {name} in {zone_place}")
            rack = read(block, f'region "{region_name}", zone "{zone_name}", rack "{name}"')
            self._count(block, 1 + len(rack.pdus) + len(rack.tors) + len(rack.blades))
            found[name] = rack
        return tuple(found.values())

    def _count(self, block: Block, records: int) -> None:
        self._records += records
        if self._records > self._records_max:
            block.refuse(f"the file states more than {self._records_max} racks, devices and blades")

    def _rack(self, block: Block, place: str) -> RackDefinition:
        block.check_known("Name", "Details", "Pdus", "Tors", "Blades")
        details = block.part("Details", ("Enabled", "Condition", "Location", "Notes"))
        return RackDefinition(
            block.name("Name"),
            block.line,
            Rack(details=_rack_details(details)),
            self._indexed(block, "Pdus", ("Index", "Details", "Ports"), f"Pdu for pdu %d in {place}", self._pdu),
            self._indexed(block, "Tors", ("Index", "Details", "Ports"), f"Tor for tor %d in {place}", self._tor),
            self._indexed(
                block,
                "Blades",
                ("Index", "Details", "Capacity", "BootInfo", "BootOnPowerOn"),
                f"Blade for blade %d in {place}",
                self._blade,
            ),
        )

    def older_rack(self, block: Block, place: str) -> RackDefinition:
        """A rack of September 2020: capacities only, and its one TOR and PDU named without anything to say of them."""
        block.check_known("Name", "Blades", "Tor", "Pdu")
        for device in ("Tor", "Pdu"):
            block.part(device, ())
        blades = self._indexed(
            block,
            "Blades",
            ("Index", "Arch", "Cores", "DiskInGb", "MemoryInMb", "NetworkBandwidthInMbps"),
            f"Blade for blade %d in {place}",
            lambda blade: Blade(capacity=_capacity(blade)),
        )
        return RackDefinition(block.name("Name"), block.line, Rack(), {0: Pdu()}, {0: Tor()}, blades)

    # ---- the parts of a rack ---------------------------------------------------------------------------------------------

    def _indexed(
        self, block: Block, list_name: str, known: tuple[str, ...], what: str, read: Callable[[Block], R]
    ) -> Mapping[int, R]:
        """The parts of a list by their Index. `what` names one in the Go program's words."""

        def read_list() -> dict[int, R]:
            found: dict[int, R] = {}
            for part in block.parts(list_name, known):
                index = part.index("Index")
                if index in found:
                    part.refuse(f"CloudChamber: Configuration detected duplicate {what % index}")
                found[index] = read(part)
            return found

        return block.shared(list_name, read_list)

    def _pdu(self, block: Block) -> Pdu:
        return Pdu(details=_device_details(block), ports=self._ports(block))

    def _tor(self, block: Block) -> Tor:
        return Tor(details=_device_details(block), ports=self._ports(block))

    def _ports(self, block: Block) -> dict[int, Port]:
        ports = self._indexed(block, "Ports", ("Index", "Wired", "Item"), f"Port for port %d in {block.place}", _port)
        return dict(ports)

    def _blade(self, block: Block) -> Blade:
        details = block.part("Details", ("Enabled", "Condition"))
        capacity = block.part("Capacity", ("Arch", "Cores", "DiskInGb", "MemoryInMb", "NetworkBandwidthInMbps"))
        boot = block.part("BootInfo", ("Source", "Image", "Version", "Parameters"))
        return Blade(
            details=_blade_details(details),
            capacity=_capacity(capacity) if capacity else Capacity(),
            boot_on_power_on=block.truth("BootOnPowerOn"),
            boot_info=_boot_info(boot),
        )


# ---- records: as in the Go program, every part is there even when the file says nothing of it -----------------------------


def _region_details(block: Block | None) -> RegionDetails:
    if block is None:
        return RegionDetails()
    return RegionDetails(state=block.choice("State", State), location=block.text("Location"), notes=block.text("Notes"))


def _zone_details(block: Block | None) -> ZoneDetails:
    if block is None:
        return ZoneDetails()
    return ZoneDetails(
        enabled=block.truth("Enabled"),
        state=block.choice("State", State),
        location=block.text("Location"),
        notes=block.text("Notes"),
    )


def _rack_details(block: Block | None) -> RackDetails:
    if block is None:
        return RackDetails()
    return RackDetails(
        enabled=block.truth("Enabled"),
        condition=block.choice("Condition", Condition),
        location=block.text("Location"),
        notes=block.text("Notes"),
    )


def _device_details(device: Block) -> DeviceDetails:
    block = device.part("Details", ("Enabled", "Condition"))
    if block is None:
        return DeviceDetails()
    return DeviceDetails(enabled=block.truth("Enabled"), condition=block.choice("Condition", Condition))


def _blade_details(block: Block | None) -> BladeDetails:
    if block is None:
        return BladeDetails()
    return BladeDetails(enabled=block.truth("Enabled"), condition=block.choice("Condition", Condition))


def _capacity(block: Block) -> Capacity:
    return Capacity(
        cores=block.number("Cores"),
        memory_in_mb=block.number("MemoryInMb"),
        disk_in_gb=block.number("DiskInGb"),
        network_bandwidth_in_mbps=block.number("NetworkBandwidthInMbps"),
        arch=block.text("Arch"),
    )


def _boot_info(block: Block | None) -> BootInfo:
    if block is None:
        return BootInfo()
    return BootInfo(
        source=block.choice("Source", BootSource),
        image=block.text("Image"),
        version=block.text("Version"),
        parameters=block.text("Parameters"),
    )


def _port(block: Block) -> Port:
    # Why: the Go reader gives every port an item, so that an unwired port never passes its validation (3.5, 9).
    item = block.part("Item", ("Type", "Id", "Port"))
    if item is None:
        return Port(wired=block.truth("Wired"))
    hardware = Hardware(type=item.choice("Type", HardwareType), id=item.number("Id"), port=item.number("Port"))
    return Port(wired=block.truth("Wired"), item=hardware)
