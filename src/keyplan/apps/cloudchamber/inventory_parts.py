"""What an inventory is made of, as a path names it: racks and their parts, and the zone and region that a server shows."""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from keyplan.apps.cloudchamber.records import (
    Blade,
    BladeDetails,
    BootInfo,
    Capacity,
    DeviceDetails,
    Pdu,
    Rack,
    RackDetails,
    Region,
    RegionDetails,
    Tor,
    Zone,
    ZoneDetails,
)
from keyplan.protobuf import Message

__all__ = ["Part", "PartKind", "PartRecord", "completed"]

PartRecord: TypeAlias = Region | Zone | Rack | Pdu | Tor | Blade

R = TypeVar("R", bound=PartRecord)


class PartKind(StrEnum):
    """What a part is; the values are words for people."""

    REGION = auto()
    ZONE = auto()
    RACK = auto()
    PDU = auto()
    TOR = auto()
    BLADE = auto()


_EMPTY: Final[Mapping[type, Mapping[str, Message]]] = {
    Region: {"details": RegionDetails()},
    Zone: {"details": ZoneDetails()},
    Rack: {"details": RackDetails()},
    Pdu: {"details": DeviceDetails()},
    Tor: {"details": DeviceDetails()},
    Blade: {"details": BladeDetails(), "capacity": Capacity(), "boot_info": BootInfo()},
}

_OF_A_RACK: Final = frozenset({PartKind.PDU, PartKind.TOR, PartKind.BLADE})


class Part(NamedTuple):
    """One record of an inventory: its kind, the rack that it is or is in, as somebody wrote the name, and its number there."""

    kind: PartKind
    rack: str = ""
    number: int = 0

    @property
    def is_in_rack(self) -> bool:
        """True for a PDU, a TOR and a blade."""
        return self.kind in _OF_A_RACK


def completed(record: R) -> R:
    """Return a record with every message that an import gives it, empty ones for those that it lacks."""
    lacking = {name: empty for name, empty in _EMPTY[type(record)].items() if getattr(record, name) is None}
    return msgspec.structs.replace(record, **lacking) if lacking else record
