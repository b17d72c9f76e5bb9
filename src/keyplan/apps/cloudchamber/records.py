"""What CloudChamber stores: users, racks with their parts, workloads with their instances. Spelled as proto3 JSON.

Fields stand in the order in which they are written, and each is spelled as its name in lowerCamelCase. A message that is
None was not given; a scalar that was not given is zero. Enumerators are numbered from 0 in the order they stand.
"""

from enum import StrEnum, auto

import msgspec

from keyplan.codec import Secret
from keyplan.protobuf import Message

__all__ = [
    "Accelerator",
    "AcceleratorV100",
    "ActualCondition",
    "Affinity",
    "Blade",
    "BladeDetails",
    "BladeGuard",
    "BootInfo",
    "BootSource",
    "Capacity",
    "Condition",
    "DeviceDetails",
    "Hardware",
    "HardwareType",
    "Instance",
    "InstanceActual",
    "InstanceTarget",
    "PartActual",
    "Pdu",
    "Port",
    "Rack",
    "RackDetails",
    "Region",
    "RegionDetails",
    "RequiredCapacity",
    "Rights",
    "State",
    "Tor",
    "User",
    "Volume",
    "VolumeAttribute",
    "Workload",
    "Zone",
    "ZoneDetails",
]


# ---- users ---------------------------------------------------------------------------------------------------------------


class Rights(Message, frozen=True):
    """What a user may do."""

    can_manage_accounts: bool = False
    can_step_time: bool = False
    can_modify_workloads: bool = False
    can_modify_inventory: bool = False
    can_inject_faults: bool = False
    can_perform_repairs: bool = False


class User(Message, frozen=True):
    """An account. `name` keeps the case that it was created with; `password_hash` is the text of a bcrypt hash.

    `can_manage_accounts` is from before there were `rights`; only old records have it.
    """

    name: str = ""
    password_hash: Secret[bytes] = Secret(b"")
    user_id: int = 0
    enabled: bool = False
    can_manage_accounts: bool = False
    never_delete: bool = False
    rights: Rights | None = None


# ---- inventory -----------------------------------------------------------------------------------------------------------


class Condition(StrEnum):
    """In what condition a rack or one of its parts is."""

    NOT_IN_SERVICE = auto()
    OPERATIONAL = auto()
    BURN_IN = auto()
    OUT_FOR_REPAIR = auto()
    RETIRING = auto()
    RETIRED = auto()


class State(StrEnum):
    """In what state a region or zone is."""

    OUT_OF_SERVICE = auto()
    IN_SERVICE = auto()
    COMMISSIONING = auto()
    ASSUMED_FAILED = auto()
    DECOMMISSIONING = auto()
    DECOMMISSIONED = auto()


class HardwareType(StrEnum):
    """What stands at the other end of a port's cable."""

    UNKNOWN = auto()
    PDU = auto()
    TOR = auto()
    BLADE = auto()


class BootSource(StrEnum):
    """Where a blade loads its image from."""

    LOCAL = auto()
    NETWORK = auto()


class RegionDetails(Message, frozen=True):
    """What is said of a region."""

    name: str = ""
    state: State = State.OUT_OF_SERVICE
    location: str = ""
    notes: str = ""


class Region(Message, frozen=True):
    """A region; only the Go program's keys have a place for it."""

    details: RegionDetails | None = None


class ZoneDetails(Message, frozen=True):
    """What is said of a zone."""

    enabled: bool = False
    state: State = State.OUT_OF_SERVICE
    location: str = ""
    notes: str = ""


class Zone(Message, frozen=True):
    """A zone of a region; only the Go program's keys have a place for it."""

    details: ZoneDetails | None = None


class RackDetails(Message, frozen=True):
    """What is said of a rack. It takes work when it is enabled and operational."""

    enabled: bool = False
    condition: Condition = Condition.NOT_IN_SERVICE
    location: str = ""
    notes: str = ""


class Rack(Message, frozen=True):
    """A rack. Its parts, one PDU, one TOR and its blades, are records of their own."""

    details: RackDetails | None = None


class DeviceDetails(Message, frozen=True):
    """What is said of a PDU or TOR."""

    enabled: bool = False
    condition: Condition = Condition.NOT_IN_SERVICE


class Hardware(Message, frozen=True):
    """One end of a cable: which port of which device."""

    type: HardwareType = HardwareType.UNKNOWN
    id: int = 0
    port: int = 0


class Port(Message, frozen=True):
    """A port of a PDU or TOR, and what is wired to it: `item`, when and only when `wired`."""

    wired: bool = False
    item: Hardware | None = None


class Pdu(Message, frozen=True):
    """A rack's power distribution unit: a power port for each blade."""

    details: DeviceDetails | None = None
    ports: dict[int, Port] = msgspec.field(default_factory=dict)


class Tor(Message, frozen=True):
    """A rack's top-of-rack switch: a network port for each blade."""

    details: DeviceDetails | None = None
    ports: dict[int, Port] = msgspec.field(default_factory=dict)


class AcceleratorV100(Message, frozen=True):
    """An NVIDIA V100; nothing more is said of it."""


class Accelerator(Message, frozen=True):
    """One accelerator card: the one of these that is not None."""

    v100: AcceleratorV100 | None = None


class Capacity(Message, frozen=True):
    """What a blade offers."""

    cores: int = 0
    memory_in_mb: int = 0
    disk_in_gb: int = 0
    network_bandwidth_in_mbps: int = 0
    arch: str = ""
    accelerators: list[Accelerator] = msgspec.field(default_factory=list)


class BladeDetails(Message, frozen=True):
    """What is said of a blade."""

    enabled: bool = False
    condition: Condition = Condition.NOT_IN_SERVICE


class BootInfo(Message, frozen=True):
    """What a blade starts with."""

    source: BootSource = BootSource.LOCAL
    image: str = ""
    version: str = ""
    parameters: str = ""


class Blade(Message, frozen=True):
    """A blade: a computer in a rack."""

    details: BladeDetails | None = None
    capacity: Capacity | None = None
    boot_on_power_on: bool = False
    boot_info: BootInfo | None = None


class ActualCondition(StrEnum):
    """In what condition a simulator found a part."""

    NOT_IN_SERVICE = auto()
    OPERATIONAL = auto()
    FAULTED = auto()


class PartActual(Message, frozen=True):
    """What a blade, PDU or TOR is, as a simulator last saw it at tick `at`; it is in `smState` since tick `enteredAt`."""

    at: int = 0
    sm_state: str = ""
    entered_at: int = 0
    condition: ActualCondition = ActualCondition.NOT_IN_SERVICE


# ---- workloads -----------------------------------------------------------------------------------------------------------


class Affinity(StrEnum):
    """How the instances of a workload lie to one another."""

    NONE = "None"
    STRONG_AFFINITY = "Strong_Affinity"
    WEAK_AFFINITY = "Weak_Affinity"
    STRONG_ANTI_AFFINITY = "Strong_AntiAffinity"
    WEAK_ANTI_AFFINITY = "Weak_AntiAffinity"


class VolumeAttribute(StrEnum):
    """What may be done with a volume."""

    INVALID = "Invalid"
    CREATABLE = "Creatable"
    WRITE_LOCKED = "Write_locked"
    WRITABLE = "Writable"


class RequiredCapacity(Message, frozen=True):
    """What an instance needs of a blade; `cores` may be a part of one."""

    cores: float = 0.0
    memory_in_mb: int = 0
    network_bandwidth_in_mbps: int = 0
    arch: str = ""
    accelerators: list[Accelerator] = msgspec.field(default_factory=list)


class Volume(Message, frozen=True):
    """A disk of an instance."""

    size_in_gb: int = 0
    attribute: VolumeAttribute = VolumeAttribute.INVALID
    uri: str = ""


class Instance(Message, frozen=True):
    """The description of one instance of a workload."""

    affinity_group: str = ""
    required_capacity: RequiredCapacity | None = None
    system_name: str = ""
    volumes: dict[str, Volume] = msgspec.field(default_factory=dict)
    config: str = ""


class Workload(Message, frozen=True):
    """The definition of a workload."""

    name: str = ""
    affinity: Affinity = Affinity.NONE
    instances: dict[str, Instance] = msgspec.field(default_factory=dict)


class InstanceTarget(Message, frozen=True):
    """What one instance should be: its state, its blade. `generation` counts the changes of the wish."""

    desired_state: str = ""
    rackid: str = ""
    bladeid: int = 0
    generation: int = 0


class InstanceActual(Message, frozen=True):
    """What one instance is, as last seen at tick `at`, and which generation of its target that answers."""

    state: str = ""
    rackid: str = ""
    bladeid: int = 0
    observed_generation: int = 0
    at: int = 0
    message: str = ""


class BladeGuard(Message, frozen=True):
    """How often capacity was taken of a blade. Each commit that takes some writes it, so that no two can at once."""

    placements: int = 0
