"""Bytes in order: the contract, the way from a URL to an engine, and engines around an engine."""

from keyplan.engine.admission import admit_commit
from keyplan.engine.clock import SYSTEM_CLOCK, Clock, SystemClock, utc_time
from keyplan.engine.confined import ConfinedEngine
from keyplan.engine.confined_reads import Outside
from keyplan.engine.delayed import DelayedEngine
from keyplan.engine.fences import Fences, FencesHolder
from keyplan.engine.fingerprint import fingerprint
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
from keyplan.engine.lineage import LEAP, Lineage, leapt
from keyplan.engine.memory import MEMORY_PROFILE, Memory, MemoryEngine
from keyplan.engine.owned import LEASE_MARKS, HistoryFloor, LeaseOwner, Leases, OwnedHistory, OwnedLeases
from keyplan.engine.pieces import PIECE_BYTES, PIECE_PAIRS_MAX
from keyplan.engine.prefixed import KeyPrefix, PrefixedEngine, PrefixedSnapshot, PrefixedWatch, failures_of, prefix_of
from keyplan.engine.profile import Capability, Profile
from keyplan.engine.reach import Area, AreaFence, Reach
from keyplan.engine.recording import Call, RecordingEngine
from keyplan.engine.registry import (
    ENTRY_POINT_GROUP,
    default_profile,
    exposed_files,
    known_schemes,
    open_awaiting_engine,
    open_engine,
    store_users,
)
from keyplan.engine.retry import Backoff, SystemPause, ended_lease_is_conflict
from keyplan.engine.sorted_keys import AscendingKeys, check_sorted, parts_of
from keyplan.engine.sorted_writes import load_by_commits, put_absent, put_existing
from keyplan.engine.url import EngineUrl
from keyplan.engine.usage import ExposedFile, StoreUser
from keyplan.engine.wrap import ReadOnlyEngine, WrappedEngine, WrappedSnapshot
from keyplan.engine.write_set import Reads, WriteSet, merged, transaction_ended

__all__ = [
    "ALL_KEYS",
    "ENTRY_POINT_GROUP",
    "LEAP",
    "LEASE_MARKS",
    "MEMORY_PROFILE",
    "NO_LEASE",
    "PIECE_BYTES",
    "PIECE_PAIRS_MAX",
    "SYSTEM_CLOCK",
    "Area",
    "AreaFence",
    "AscendingKeys",
    "Backoff",
    "Call",
    "Capability",
    "Clock",
    "Commit",
    "ConfinedEngine",
    "DelayedEngine",
    "Delete",
    "DeleteRange",
    "Engine",
    "EngineUrl",
    "Entry",
    "Event",
    "EventKind",
    "ExposedFile",
    "FailedGuard",
    "Fences",
    "FencesHolder",
    "Guard",
    "HistoryFloor",
    "KeyAbsent",
    "KeyPrefix",
    "KeyRange",
    "KeyUnchanged",
    "Lease",
    "LeaseOwner",
    "Leases",
    "Lineage",
    "Memory",
    "MemoryEngine",
    "Mutation",
    "Outside",
    "OwnedHistory",
    "OwnedLeases",
    "PrefixedEngine",
    "PrefixedSnapshot",
    "PrefixedWatch",
    "Profile",
    "Put",
    "RangeEmpty",
    "RangeUnchanged",
    "Reach",
    "ReadOnlyEngine",
    "Reads",
    "RecordingEngine",
    "Snapshot",
    "StoreUser",
    "SystemClock",
    "SystemPause",
    "Watch",
    "WrappedEngine",
    "WrappedSnapshot",
    "WriteSet",
    "admit_commit",
    "check_sorted",
    "default_profile",
    "ended_lease_is_conflict",
    "exposed_files",
    "failures_of",
    "fingerprint",
    "known_schemes",
    "leapt",
    "load_by_commits",
    "merged",
    "open_awaiting_engine",
    "open_engine",
    "parts_of",
    "prefix_of",
    "put_absent",
    "put_existing",
    "store_users",
    "transaction_ended",
    "utc_time",
]
