"""The bytes of an LMDB store, packed and unpacked; nothing here reads or writes. All numbers are big-endian.

    database     key                          value
    data         the key                      create u64 | mod u64 | version u64 | lease u64 | the value
                 (history=off)                the value
    log          revision u64 | part u32      events, each: key length u16 | after length u32 | before length u32 |
                                              key | after | before, the latter two as in `data`, length 0 for none
    leases       lease u64                    ttl f64 | deadline, monotonic f64 | deadline, wall f64 | epoch
    lease_keys   lease u64                    a key, once for each (sorted duplicates)
    meta         "format"                     "keyplan 1 history" or "keyplan 1 raw"
                 "state"                      revision u64 | compacted u64 | leases granted u64 | leases living u64
                 "lineage"                    JSON: the store's id, its epoch, the file that it was last written in

docs/design/engine-contract.md says why.
"""

import struct
from collections.abc import Iterator
from secrets import token_hex
from struct import Struct
from typing import Final, NamedTuple, Self

import lmdb
import msgspec

from keyplan.engine.clock import Clock
from keyplan.engine.interface import Entry, Event, EventKind
from keyplan.errors import CorruptionError, LeaseNotFoundError

__all__ = [
    "EVENT",
    "FORMAT_HISTORY",
    "FORMAT_KEY",
    "FORMAT_RAW",
    "HEADER",
    "LEASE_ID",
    "LINEAGE_KEY",
    "LOG_KEY",
    "STATE_KEY",
    "Databases",
    "LeaseRecord",
    "LineageRecord",
    "State",
    "damaged_entry",
    "header_of",
    "unpack_entry",
    "unpack_events",
]

FORMAT_KEY: Final = b"format"
FORMAT_HISTORY: Final = b"keyplan 1 history"
FORMAT_RAW: Final = b"keyplan 1 raw"
STATE_KEY: Final = b"state"
LINEAGE_KEY: Final = b"lineage"

HEADER: Final = Struct(">4Q")
LOG_KEY: Final = Struct(">QI")
LEASE_ID: Final = Struct(">Q")
EVENT: Final = Struct(">HII")
_STATE: Final = Struct(">4Q")
_LEASE: Final = Struct(">3d")


class Databases(NamedTuple):
    """The LMDB databases of a store. Without history the last three do not exist: `data` stands in for them, unused."""

    data: "lmdb._Database"
    meta: "lmdb._Database"
    log: "lmdb._Database"
    leases: "lmdb._Database"
    lease_keys: "lmdb._Database"


class State(msgspec.Struct):
    """The numbers that every commit reads and may change."""

    revision: int = 0
    compacted: int = 0
    leases_granted: int = 0
    leases_living: int = 0

    @classmethod
    def unpack(cls, raw: bytes | None) -> "State":
        """Read the row. Raises CorruptionError."""
        try:
            return cls() if raw is None else cls(*_STATE.unpack(raw))
        except struct.error as error:
            raise CorruptionError(problem="the row of the store's revision cannot be read") from error

    def pack(self) -> bytes:
        return _STATE.pack(self.revision, self.compacted, self.leases_granted, self.leases_living)


class LineageRecord(msgspec.Struct, frozen=True):
    """Which store it is, the epoch of its revisions, and the file that it was last written in; see `identity`."""

    store: str
    epoch: str
    file: str

    @classmethod
    def drawn(cls, file: str, *, store: str | None = None) -> "LineageRecord":
        """Return the record of a new epoch, and of a new store unless one is named."""
        return cls(store or token_hex(16), token_hex(8), file)


class LeaseRecord(NamedTuple):
    """A lease as stored. Its deadline counts on the monotonic clock while the machine runs, on wall time after that."""

    ttl_seconds: float
    deadline_monotonic: float
    deadline_wall: float
    epoch: bytes

    @classmethod
    def starting_now(cls, ttl_seconds: float, clock: Clock, *, seconds: float) -> "LeaseRecord":
        """Return a lease with `seconds` left, by this clock."""
        return cls(ttl_seconds, clock.monotonic() + seconds, clock.wall() + seconds, clock.epoch())

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """Read the record. Raises CorruptionError."""
        try:
            ttl_seconds, deadline_monotonic, deadline_wall = _LEASE.unpack_from(raw)
        except struct.error as error:
            raise CorruptionError(problem="the record of a lease cannot be read") from error
        return cls(ttl_seconds, deadline_monotonic, deadline_wall, raw[_LEASE.size :])

    @classmethod
    def living(cls, lease: int, transaction: "lmdb.Transaction[bytes]", databases: "Databases", clock: Clock) -> Self:
        """Read a lease whose time is not over. Raises LeaseNotFoundError."""
        raw = transaction.get(LEASE_ID.pack(lease), db=databases.leases) if lease > 0 else None
        record = None if raw is None else cls.unpack(raw)
        if record is None or record.seconds_left(clock) <= 0:
            raise LeaseNotFoundError(lease=lease)
        return record

    def pack(self) -> bytes:
        return _LEASE.pack(self.ttl_seconds, self.deadline_monotonic, self.deadline_wall) + self.epoch

    def seconds_left(self, clock: Clock) -> float:
        """Return how long the lease still lives; zero or less when it is over."""
        is_of_this_run = self.epoch == clock.epoch()
        left = self.deadline_monotonic - clock.monotonic() if is_of_this_run else self.deadline_wall - clock.wall()
        # Why: a wall clock set back while the machine was off must not keep a lease alive beyond its time; and a sum and a
        # difference of floats may be more than what was added.
        return min(left, self.ttl_seconds)


def damaged_entry(key: bytes) -> CorruptionError:
    """Return the error for bytes at a key that are too short for an entry."""
    return CorruptionError(raw_key=key.hex(), problem="what is stored is shorter than the header of an entry")


def header_of(key: bytes, raw: bytes) -> tuple[int, int, int, int]:
    """Return the revisions of creation and of the last change, the version and the lease. Raises CorruptionError."""
    try:
        create, mod, version, lease = HEADER.unpack_from(raw)
    except struct.error as error:
        raise damaged_entry(key) from error
    return create, mod, version, lease


def unpack_entry(key: bytes, raw: bytes) -> Entry:
    """Return the entry stored at `key`. Raises CorruptionError."""
    create, mod, version, lease = header_of(key, raw)
    return Entry(key, raw[HEADER.size :], create, mod, version, lease)


def unpack_events(revision: int, raw: bytes) -> Iterator[Event]:
    """Yield the events of one part of the log."""
    position = 0
    while position < len(raw):
        key_bytes, after_bytes, before_bytes = EVENT.unpack_from(raw, position)
        after_at = position + EVENT.size + key_bytes
        before_at = after_at + after_bytes
        key = raw[position + EVENT.size : after_at]
        after = unpack_entry(key, raw[after_at:before_at]) if after_bytes else None
        before = unpack_entry(key, raw[before_at : before_at + before_bytes]) if before_bytes else None
        position = before_at + before_bytes
        kind = EventKind.DELETED if after is None else EventKind.CREATED if before is None else EventKind.UPDATED
        yield Event(kind, key, revision, after, before)
