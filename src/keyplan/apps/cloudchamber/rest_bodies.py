"""The messages that requests and answers carry beyond the stored records."""

from enum import StrEnum

import msgspec

from keyplan.apps.cloudchamber.records import (
    Blade,
    Capacity,
    Instance,
    InstanceActual,
    InstanceTarget,
    Pdu,
    RackDetails,
    Rights,
    Tor,
    ZoneDetails,
)
from keyplan.apps.cloudchamber.stepper import StepperPolicy
from keyplan.protobuf import Message

__all__ = [
    "Amounts",
    "BladeEntry",
    "BladeList",
    "BladeLoadView",
    "BladeView",
    "Difference",
    "DifferenceList",
    "DifferingField",
    "Empty",
    "EventAction",
    "Impact",
    "ImpactedModule",
    "InstanceCreation",
    "InstanceList",
    "LogAnswer",
    "LogPolicy",
    "NamedEntry",
    "Observed",
    "PduView",
    "PlacedInstance",
    "PlacedInstanceList",
    "RackEntry",
    "RackView",
    "SessionEntry",
    "SessionList",
    "SessionStatus",
    "Severity",
    "SimulationStatus",
    "StepperStatus",
    "StoreChange",
    "Ticks",
    "TorView",
    "TraceEntry",
    "TraceEvent",
    "TraceSpan",
    "UserDefinition",
    "UserEntry",
    "UserList",
    "UserPassword",
    "UserPublic",
    "UserUpdate",
    "WatchAnswer",
    "WorkloadList",
    "ZoneSummary",
]


class Empty(Message, frozen=True):
    """A message without fields."""


class UserEntry(Message, frozen=True):
    """A user in a list. Of one whose record is damaged nothing is known but its key."""

    name: str = ""
    uri: str = ""
    protected: bool = False


class UserList(Message, frozen=True):
    """All users, by name."""

    users: list[UserEntry] = msgspec.field(default_factory=list)


class UserPublic(Message, frozen=True):
    """What is shown of a user."""

    enabled: bool = False
    rights: Rights | None = None
    never_delete: bool = False


class UserDefinition(Message, frozen=True):
    """A user to be created."""

    password: str = ""
    enabled: bool = False
    rights: Rights | None = None


class UserUpdate(Message, frozen=True):
    """What is to become of a user; what is left out is false."""

    enabled: bool = False
    rights: Rights | None = None


class UserPassword(Message, frozen=True):
    """A change of password; with `force` the old one is not looked at."""

    old_password: str = ""
    new_password: str = ""
    force: bool = False


class NamedEntry(Message, frozen=True):
    """Something in a list, and where it is."""

    name: str = ""
    uri: str = ""


class WorkloadList(Message, frozen=True):
    """All workloads, by name."""

    workloads: list[NamedEntry] = msgspec.field(default_factory=list)


class InstanceList(Message, frozen=True):
    """The instances of a workload, by name."""

    instances: list[NamedEntry] = msgspec.field(default_factory=list)


class BladeEntry(Message, frozen=True):
    """A blade in a list, and where it is."""

    rack: str = ""
    blade: int = 0
    uri: str = ""


class BladeList(Message, frozen=True):
    """Blades by rack and number."""

    blades: list[BladeEntry] = msgspec.field(default_factory=list)


class PlacedInstance(Message, frozen=True):
    """An instance in a list of several workloads, and where it is."""

    workload: str = ""
    name: str = ""
    uri: str = ""


class PlacedInstanceList(Message, frozen=True):
    """Instances by workload and name."""

    instances: list[PlacedInstance] = msgspec.field(default_factory=list)


class Amounts(Message, frozen=True):
    """How much of a blade: cores may have a fraction; of accelerators the number of each kind."""

    cores: float = 0.0
    memory_in_mb: int = 0
    disk_in_gb: int = 0
    network_bandwidth_in_mbps: int = 0
    accelerators: list["AcceleratorCount"] = msgspec.field(default_factory=list)


class AcceleratorCount(Message, frozen=True):
    """A kind of accelerators, and how many."""

    kind: str = ""
    count: int = 0


class BladeLoadView(Message, frozen=True):
    """What a blade offers, what is taken of it by the instances that are wanted there, and what is free.

    Less than nothing is free where other programs placed instances, or took capacity away, without asking.
    """

    capacity: Capacity | None = None
    taken: Amounts | None = None
    free: Amounts | None = None
    instances: list[PlacedInstance] = msgspec.field(default_factory=list)


class RackEntry(Message, frozen=True):
    """Where a rack is."""

    uri: str = ""


class ZoneSummary(Message, frozen=True):
    """All racks, and the largest of everything that one has. `details` are empty where the layout keeps none of a zone."""

    racks: dict[str, RackEntry] = msgspec.field(default_factory=dict)
    max_blade_count: int = 0
    max_capacity: Capacity | None = None
    details: ZoneDetails | None = None
    name: str = ""
    max_tor_count: int = 0
    max_pdu_count: int = 0
    max_connectors: int = 0


class Observed(Message, frozen=True):
    """What a simulator saw at tick `at`: a state, and the tick since which it is in it."""

    at: int = 0
    sm_state: str = ""
    entered_at: int = 0


class BladeView(Blade, frozen=True):
    """A blade with what a simulator says of it."""

    observed: Observed | None = None


class PduView(Pdu, frozen=True):
    """A PDU with what a simulator says of it."""

    observed: Observed | None = None


class TorView(Tor, frozen=True):
    """A TOR with what a simulator says of it."""

    observed: Observed | None = None


class RackView(Message, frozen=True):
    """A rack with its parts. `pdu` and `tor` are empty, for old clients; `observed` is left out where no simulator wrote it."""

    details: RackDetails | None = None
    pdu: Empty | None = None
    tor: Empty | None = None
    blades: dict[int, Capacity] = msgspec.field(default_factory=dict)
    pdus: dict[int, PduView] = msgspec.field(default_factory=dict)
    tors: dict[int, TorView] = msgspec.field(default_factory=dict)
    full_blades: dict[int, BladeView] = msgspec.field(default_factory=dict)


class InstanceCreation(Message, frozen=True):
    """An instance to be created: its three records. A target is always made, if need be an empty one."""

    description: Instance | None = None
    target: InstanceTarget | None = None
    actual: InstanceActual | None = None


class DifferingField(Message, frozen=True):
    """A field of a target, what it is to be and what it is."""

    name: str = ""
    wanted: str = ""
    found: str = ""


class Difference(Message, frozen=True):
    """An instance whose actual state is not its target, and where they differ; or a state of which is `damaged`."""

    instance: str = ""
    damaged: bool = False
    fields: list[DifferingField] = msgspec.field(default_factory=list)


class DifferenceList(Message, frozen=True):
    """The instances of a workload that are not as wanted."""

    differences: list[Difference] = msgspec.field(default_factory=list)


class SessionEntry(Message, frozen=True):
    """A session in a list."""

    id: int = 0
    uri: str = ""


class SessionList(Message, frozen=True):
    """The sessions of this server."""

    sessions: list[SessionEntry] = msgspec.field(default_factory=list)


class SessionStatus(Message, frozen=True):
    """A session: whose, and when it ends if nothing happens."""

    user_name: str = ""
    timeout: str = ""


class SimulationStatus(Message, frozen=True):
    """Since when this server runs, and after how long without a request a session ends."""

    front_end_started_at: str = ""
    inactivity_timeout: str = ""


# ---- of what waits: simulated time, changes of the store, traces ------------------------------------------------------


class Ticks(Message, frozen=True):
    """A moment of simulated time."""

    ticks: int = 0


class StepperStatus(Message, frozen=True):
    """How simulated time passes: by hand, or one tick each `measuredDelay`; and how many clients wait for a tick."""

    policy: StepperPolicy = StepperPolicy.INVALID
    measured_delay: str = ""
    now: int = 0
    waiter_count: int = 0
    epoch: int = 0


class StoreChange(Message, frozen=True):
    """What became of one record in one commit: created, updated or deleted. `key` is the record's, below the name space."""

    kind: str = ""
    key: str = ""
    revision: int = 0
    old_revision: int = 0
    new_revision: int = 0


class WatchAnswer(Message, frozen=True):
    """What was waited for, or that it was waited in vain. `revision` is what to ask for next, where changes were asked for."""

    expired: bool = False
    status_response: StepperStatus | None = None
    changes: list[StoreChange] = msgspec.field(default_factory=list)
    revision: int = 0


class Severity(StrEnum):
    """How grave an event is."""

    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"
    FATAL = "Fatal"


class EventAction(StrEnum):
    """What an event does to its span; here it is told and nothing else."""

    TRACE = "Trace"
    SPAN_START = "SpanStart"
    ADD_LINK = "AddLink"
    ADD_IMPACT = "AddImpact"


class Impact(StrEnum):
    """What became of a module."""

    INVALID = "Invalid"
    READ = "Read"
    CREATE = "Create"
    MODIFY = "Modify"
    DELETE = "Delete"
    EXECUTE = "Execute"


class ImpactedModule(Message, frozen=True):
    """A part of the API that a span was about."""

    impact: Impact = Impact.INVALID
    name: str = ""


class TraceEvent(Message, frozen=True):
    """What happened in a span, and at which tick."""

    tick: int = 0
    severity: Severity = Severity.DEBUG
    name: str = ""
    text: str = ""
    stack_trace: str = ""
    event_action: EventAction = EventAction.TRACE
    span_id: str = ""
    link_id: str = ""
    at: str = ""


class TraceSpan(Message, frozen=True):
    """A request that was answered: its method and route, never what was sent. A span has one event, its outcome.

    Fields are the original's, also those that are always empty here: strict clients know no others.
    """

    name: str = ""
    spanID: str = ""  # noqa: N815  # Why: the original's.
    parentID: str = ""  # noqa: N815  # Why: the original's.
    traceID: str = ""  # noqa: N815  # Why: the original's.
    status: str = ""
    stack_trace: str = ""
    event: list[TraceEvent] = msgspec.field(default_factory=list)
    infrastructure: bool = False
    reason: str = ""
    starting_link: str = ""
    linkSpanID: str = ""  # noqa: N815  # Why: the original's.
    linkTraceID: str = ""  # noqa: N815  # Why: the original's.
    started_at: str = ""
    ended_at: str = ""
    impacted: list[ImpactedModule] = msgspec.field(default_factory=list)


class TraceEntry(Message, frozen=True):
    """A trace and its number; the next trace has the next number."""

    id: int = 0
    entry: TraceSpan | None = None


class LogAnswer(Message, frozen=True):
    """Traces in order. `missed`: some before the first were asked for and are gone; `lastId` is what to ask for next."""

    last_id: int = 0
    missed: bool = False
    entries: list[TraceEntry] = msgspec.field(default_factory=list)


class LogPolicy(Message, frozen=True):
    """How many traces are kept, and the number after which the first of them comes: what to ask for `from`."""

    max_entries_held: int = 0
    first_id: int = 0
