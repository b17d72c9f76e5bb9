r"""The keys of the key space registry, below the byte 00 of the same store as the data; and whose keys all others are.

    00 6b 70 01 "orders" 00        the record of key space "orders"
    00 6b 70 02 80 01              whose the prefix 80 01 is
    80 01 ...                      the keys of the key space that has it

A name ends at its byte 00, so that none is the start of another. R and KS numbers are the rules of this folder's README.
"""

from typing import Annotated, Final, NamedTuple

from keyplan.codec import PrefixVarint, Tail, Text, Uvarint
from keyplan.engine import HistoryFloor, LeaseOwner
from keyplan.keyspace.records import (
    AuditEntry,
    AuditHead,
    Configuration,
    Deletion,
    Fence,
    FenceForm,
    Header,
    KeySpaceRecord,
    Mark,
    PrefixHolder,
    Quota,
    Session,
    Sweeping,
    UsageCount,
)
from keyplan.layout import Layout, Only, Table, Waiver

__all__ = [
    "NAME_BYTES_MAX",
    "PREFIX_BYTES_MAX",
    "DataKey",
    "HistoryKey",
    "KeySpaceRegistry",
    "OrderedDataKey",
    "OrderedKeySpaces",
    "SessionKey",
    "UvarintKeySpaces",
]

NAME_BYTES_MAX: Final = 64
"""KS-13: names are ASCII, so characters are bytes."""

PREFIX_BYTES_MAX: Final = 4
"""R2: 268,435,455 key spaces."""

# KS-13: letters, digits, "_", "." and "-". That a name does not begin with "." or "-" is for the service to check.
Name = Annotated[str, Text(allow="A-Za-z0-9_.-", bytes_max=NAME_BYTES_MAX, dots=False)]


class HistoryKey(NamedTuple):
    """A key space that is no more: one of those that have had the name."""

    name: Name
    generation: int


class SessionKey(NamedTuple):
    """A client's session with a key space, by the lease that it hangs on."""

    name: Name
    lease: int


class KeySpaceRegistry(Layout, root=b"\x00kp"):
    """The registry of key spaces: who owns which prefix, and what is happening to it."""

    header = Table(b"\x00header", key=Only, value=Header, note="1.5, byte 00: format, cluster, prefix codec, profile")
    records = Table(
        b"\x01{name:text(allow='A-Za-z0-9_.-',bytes_max=64,dots=false)}\x00",
        key=str,
        value=KeySpaceRecord,
        note="1.5, byte 01: the current record of a name: live, being deleted, or the last tombstone (KS-12, KS-32)",
    )
    holders = Table(
        b"\x02{prefix:tail(bytes_max=255)}",
        key=bytes,
        value=PrefixHolder,
        note="1.5, byte 02: whose a prefix is; conflicts are its two neighbours (R5)",
    )
    fences = Table(
        b"\x03{name:text(allow='A-Za-z0-9_.-',bytes_max=64,dots=false)}\x00",
        key=str,
        value=Fence,
        form=FenceForm(),
        note="1.5, byte 03: what every data commit is guarded by",
    )
    audit = Table(b"\x04{number:u64}", key=int, value=AuditEntry, note="1.5, byte 04: the log of acts, by number")
    history = Table(
        b"\x05{name}\x00{generation}",
        key=HistoryKey,
        value=KeySpaceRecord,
        note="1.5, byte 05: completed tombstones (KS-32)",
    )
    marks = Table(
        b"\x06{prefix:tail(bytes_max=255)}",
        key=bytes,
        value=Mark,
        note="1.5, byte 06: cooling down, quarantined, or a legacy container (R6, R7, R9)",
    )
    sessions = Table(
        b"\x07{name}\x00{lease}",
        key=SessionKey,
        value=Session,
        lease=True,
        note="1.5, byte 07: who has it open; deletion waits for them (KS-34)",
    )
    deletions = Table(
        b"\x08{name:text(allow='A-Za-z0-9_.-',bytes_max=64,dots=false)}\x00",
        key=str,
        value=Deletion,
        note="1.5, byte 08: cursor and counters of a deletion (KS-30)",
    )
    configuration = Table(
        b"\x09cfg", key=Only, value=Configuration, note="1.5, byte 09: switches and reservations (KS-51)"
    )
    order = Table(
        b"\x0a{number:u64}",
        key=int,
        value=PrefixHolder,
        note="the names in the order in which they were made, by the number of the act: lists (KS-22)",
    )
    usage = Table(
        b"\x0b{name:text(allow='A-Za-z0-9_.-',bytes_max=64,dots=false)}\x00",
        key=str,
        value=UsageCount,
        note="how much a key space held when it was last counted",
    )
    quotas = Table(
        b"\x0c{name:text(allow='A-Za-z0-9_.-',bytes_max=64,dots=false)}\x00",
        key=str,
        value=Quota,
        note="how much a key space may hold",
    )
    sweeper = Table(
        b"\x0dsweeper", key=Only, value=Sweeping, lease=True, note="who removes the data of deleted key spaces"
    )
    audit_head = Table(
        b"\x0eaudit",
        key=Only,
        value=AuditHead,
        note="the log's last entry: an end that was edited or cut off is noticed",
    )
    leases = Table(
        b"\x0f{lease:u64}", key=int, value=LeaseOwner, lease=True, note="which key space a lease was granted to"
    )
    floors = Table(
        b"\x10{name:text(allow='A-Za-z0-9_.-',bytes_max=64,dots=false)}\x00",
        key=str,
        value=HistoryFloor,
        note="up to which revision a key space has forgotten its history",
    )


UNBOUNDED: Final = (
    "keys of applications are theirs; a key over the engine's limit is refused before anything is written"
)


class DataKey(NamedTuple):
    """A key of a key space with a generated prefix: the key space's number, and the key as the application sees it."""

    number: Annotated[int, Uvarint(least=1, bytes_max=PREFIX_BYTES_MAX)]
    key: Annotated[bytes, Tail(empty=True)]


class UvarintKeySpaces(Layout):
    """The data of all key spaces whose prefixes are numbers in unsigned LEB128, the RFC's code (KS-40, R1, R10)."""

    data = Table(b"{number}{key}", key=DataKey, value=bytes, note="KS-40: 01 to 7f, 80 01, ...; 00 is the registry's")

    waivers = (
        Waiver("L7", "data.number", "the RFC's code: from 128 on, key spaces do not lie in the order of their numbers"),
        Waiver("L10", "data", UNBOUNDED),
    )


class OrderedDataKey(NamedTuple):
    """A key of a key space whose prefix sorts by number: the number, and the key as the application sees it."""

    number: Annotated[int, PrefixVarint(least=1, bytes_max=PREFIX_BYTES_MAX)]
    key: Annotated[bytes, Tail(empty=True)]


class OrderedKeySpaces(Layout):
    """The data of all key spaces whose prefixes are numbers that tell their length first, and so keep order (1.3)."""

    data = Table(
        b"{number}{key}", key=OrderedDataKey, value=bytes, note="1.3: 01 to 7f, 80 80, ...; 00 is the registry's"
    )

    waivers = (Waiver("L10", "data", UNBOUNDED),)
