"""What a history consists of: operations with their times and answers, the log that is the truth, and both as JSON lines.

Times are monotonic seconds of one machine, comparable between its processes. The checker stands in `checker`.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

from keyplan.engine import (
    Delete,
    DeleteRange,
    Entry,
    Event,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
)

__all__ = [
    "NEVER",
    "Act",
    "Compaction",
    "Failure",
    "Fault",
    "History",
    "LeaseAct",
    "LeaseCall",
    "Outcome",
    "Read",
    "Record",
    "Seen",
    "SeenCount",
    "SeenFence",
    "SeenPairs",
    "Truth",
    "Watched",
    "Write",
    "encode_record",
    "read_records",
    "tagged_guard",
    "tagged_mutation",
]

NEVER: Final = 1e300
"""The end of an operation that was not seen to end: its process was killed in it."""


class Outcome(Enum):
    """What the caller of a write was told."""

    ACKNOWLEDGED = "acknowledged"
    CONFLICT = "conflict"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    APPLIED = "applied"
    """Acknowledged, without the revision: what loads and `put_sorted` are told."""


# ---- guards and mutations that say in JSON what they are: the engine's own, under a tag --------------------------------------


class _Absent(KeyAbsent, frozen=True, tag="absent"):
    pass


class _Unchanged(KeyUnchanged, frozen=True, tag="unchanged"):
    pass


class _Empty(RangeEmpty, frozen=True, tag="empty"):
    pass


class _RangeUnchanged(RangeUnchanged, frozen=True, tag="range unchanged"):
    pass


class _Put(Put, frozen=True, tag="put"):
    pass


class _Delete(Delete, frozen=True, tag="delete"):
    pass


class _DeleteRange(DeleteRange, frozen=True, tag="delete range"):
    pass


_Guard = _Absent | _Unchanged | _Empty | _RangeUnchanged
_Mutation = _Put | _Delete | _DeleteRange


def tagged_guard(guard: Guard) -> _Guard:
    """Return the same guard in the form that a history is written in."""
    match guard:
        case KeyAbsent():
            return _Absent(guard.key)
        case KeyUnchanged():
            return _Unchanged(guard.key, guard.revision)
        case RangeEmpty():
            return _Empty(guard.range)
        case RangeUnchanged():
            return _RangeUnchanged(guard.range, guard.revision, guard.keys)


def tagged_mutation(mutation: Mutation) -> _Mutation:
    """Return the same mutation in the form that a history is written in."""
    match mutation:
        case Put():
            return _Put(mutation.key, mutation.value, mutation.lease)
        case Delete():
            return _Delete(mutation.key)
        case DeleteRange():
            return _DeleteRange(mutation.range)


# ---- operations ------------------------------------------------------------------------------------------------------------


class Failure(msgspec.Struct, frozen=True):
    """A guard that did not hold, as the engine said: its place among the guards, and the key and revision told."""

    guard: int
    key: bytes | None
    actual_revision: int


class Write(msgspec.Struct, frozen=True, tag="write"):
    """A commit: what was asked and answered. Of two with the same client and number the later one counts.

    `only_absent`: keys that exist are left as they are.
    """

    client: str
    number: int
    begin: float
    end: float
    guards: tuple[_Guard, ...]
    mutations: tuple[_Mutation, ...]
    outcome: Outcome
    revision: int = 0
    failed: tuple[Failure, ...] = ()
    error: str = ""
    only_absent: bool = False


class Read(msgspec.Struct, frozen=True, tag="read"):
    """Entries in a range at a revision; of a snapshot that was taken at `begin`. `is_whole`: up to its end or limit."""

    client: str
    begin: float
    end: float
    revision: int
    range: KeyRange
    entries: tuple[Entry, ...]
    limit: int | None = None
    is_reversed: bool = False
    is_keys_only: bool = False
    is_whole: bool = True


class SeenPairs(msgspec.Struct, frozen=True, tag="pairs"):
    """Keys and values in a range, as a scan has them; the values are None where keys alone were read."""

    range: KeyRange
    pairs: tuple[tuple[bytes, bytes | None], ...]
    limit: int | None = None
    is_reversed: bool = False
    is_whole: bool = True


class SeenCount(msgspec.Struct, frozen=True, tag="count"):
    """The number of keys in a range."""

    range: KeyRange
    count: int


class SeenFence(msgspec.Struct, frozen=True, tag="fence"):
    """Whether `value` was what `key` holds."""

    key: bytes
    value: bytes
    holds: bool


class Seen(msgspec.Struct, frozen=True, tag="seen"):
    """What was read without histories. All parts are of one state; `revision` is None where the answer does not tell it."""

    client: str
    begin: float
    end: float
    parts: tuple[SeenPairs | SeenCount | SeenFence, ...]
    revision: int | None = None


class Watched(msgspec.Struct, frozen=True, tag="watched"):
    """One poll of a watch: the events that it gave, and where the watch stood then. `after`: where it was opened.

    A watch that cannot be opened is a poll with that error. `timeout_seconds`: how long it was allowed to wait.
    """

    client: str
    watch: int
    range: KeyRange
    after: int
    begin: float
    end: float
    revision: int
    events: tuple[Event, ...] = ()
    error: str = ""
    timeout_seconds: float = 0.0


class LeaseAct(Enum):
    """What is asked of a lease."""

    GRANT = "grant"
    RESUME = "resume"
    KEEP_ALIVE = "keep alive"
    SECONDS_LEFT = "seconds left"
    REVOKE = "revoke"


class LeaseCall(msgspec.Struct, frozen=True, tag="lease"):
    """A call of a lease. Of two with the same client and number the later one counts; the earlier one says that it began.

    `ttl_seconds`: what the lease says of itself; what was asked for, where it could not be had. `seconds`: the answer.
    """

    client: str
    number: int
    begin: float
    end: float
    act: LeaseAct
    lease: int
    ttl_seconds: float
    seconds: float | None = None
    error: str = ""


class Compaction(msgspec.Struct, frozen=True, tag="compaction"):
    """History was to be forgotten, up to and including `revision`. Of two with the same number the later one counts."""

    client: str
    number: int
    begin: float
    end: float
    revision: int
    error: str = ""


class Act(msgspec.Struct, frozen=True, tag="act"):
    """A typed operation as its caller saw it. It leaves `mark` in a stored value: `~`, what nobody else writes, `~`."""

    client: str
    number: int
    kind: str
    mark: str
    begin: float
    end: float
    outcome: Outcome
    revision: int = 0
    error: str = ""


class Fault(msgspec.Struct, frozen=True, tag="fault"):
    """What was done to the servers or clients; for the reader of a history, not for the checker."""

    at: float
    kind: str
    detail: str = ""


class Truth(msgspec.Struct, frozen=True, tag="truth"):
    """A part of the log of everything, in order; with `entries`, what was stored at `revision`, before the log or after it."""

    revision: int
    events: tuple[Event, ...] = ()
    entries: tuple[Entry, ...] | None = None


Record = Write | Read | Seen | Watched | LeaseCall | Compaction | Act | Fault | Truth

# ---- all of them -----------------------------------------------------------------------------------------------------------


class History:
    """Records sorted by what they are. Of what was recorded twice (begun, ended) the later record counts."""

    def __init__(self, records: Iterable[Record]) -> None:
        writes: dict[tuple[str, int], Write] = {}
        acts: dict[tuple[str, int], Act] = {}
        leases: dict[tuple[str, int], LeaseCall] = {}
        compactions: dict[tuple[str, int], Compaction] = {}
        self.reads: list[Read] = []
        self.seen: list[Seen] = []
        self.watched: list[Watched] = []
        self.faults: list[Fault] = []
        self.truths: list[Truth] = []
        for record in records:
            match record:
                case Write():
                    writes[record.client, record.number] = record
                case Act():
                    acts[record.client, record.number] = record
                case LeaseCall():
                    leases[record.client, record.number] = record
                case Compaction():
                    compactions[record.client, record.number] = record
                case Read():
                    self.reads.append(record)
                case Seen():
                    self.seen.append(record)
                case Watched():
                    self.watched.append(record)
                case Fault():
                    self.faults.append(record)
                case Truth():
                    self.truths.append(record)
        self.writes = list(writes.values())
        self.acts = list(acts.values())
        self.leases = list(leases.values())
        self.compactions = list(compactions.values())


def encode_record(record: Record) -> bytes:
    """Return the record as a line of JSON; bytes are in base64."""
    return msgspec.json.encode(record) + b"\n"


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file. A last line without an end is left out: its writer was killed."""
    decoder = msgspec.json.Decoder(Record)
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                record: Record = decoder.decode(line)
                yield record
