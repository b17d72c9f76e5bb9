"""Bytes in order: the contract, the way from a URL to an engine, and engines around an engine."""

from keyplan.engine.clock import SYSTEM_CLOCK, Clock
from keyplan.engine.interface import (
    ALL_KEYS,
    NO_LEASE,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    Entry,
    Event,
    EventKind,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Lease,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
    Snapshot,
    Watch,
)
from keyplan.engine.memory import MEMORY_PROFILE, MemoryEngine
from keyplan.engine.profile import Capability, Profile
from keyplan.engine.registry import ENTRY_POINT_GROUP, known_schemes, open_engine
from keyplan.engine.url import EngineUrl

__all__ = [
    "ALL_KEYS",
    "ENTRY_POINT_GROUP",
    "MEMORY_PROFILE",
    "NO_LEASE",
    "SYSTEM_CLOCK",
    "Capability",
    "Clock",
    "Commit",
    "Delete",
    "DeleteRange",
    "Engine",
    "EngineUrl",
    "Entry",
    "Event",
    "EventKind",
    "FailedGuard",
    "Guard",
    "KeyAbsent",
    "KeyRange",
    "KeyUnchanged",
    "Lease",
    "MemoryEngine",
    "Mutation",
    "Profile",
    "Put",
    "RangeEmpty",
    "RangeUnchanged",
    "Snapshot",
    "Watch",
    "known_schemes",
    "open_engine",
]
