"""What a step read and wrote, and when two steps depend on one another. Pure: nothing here knows stores or schedules.

Keys of several engines stand in one map: the engine's number comes first, one byte, so that every range has an end. What is
no key but can be waited for or changed has a pseudo key, which begins with ff:

    ff 43                   the clock, one for all engines
    ff 45                   that nothing came to one who waited, since nobody else could go on
    ff 4b AA                what actor AA holds leases by, where another actor renews them
    ff 48 NN 00             the history of engine NN: written by a compaction, read by watches
    ff 49 NN 00             which lease ids were given out
    ff 4c NN + 8 bytes      a lease
    ff 52 NN 00             the revision; written by commits only where revisions matter
    ff 58 AA                that actor AA has crashed
"""

from collections.abc import Iterable
from typing import Final, Protocol

from keyplan.engine import KeyRange

__all__ = [
    "CLOCK",
    "EMPTINESS",
    "Footprint",
    "HasFootprint",
    "are_dependent",
    "crash_key",
    "held_key",
    "history_key",
    "is_dependent_asleep",
    "lease_ids_key",
    "lease_key",
    "placed_range",
    "revision_key",
]

CLOCK: Final = b"\xff\x43"
EMPTINESS: Final = b"\xff\x45"


def history_key(engine: int) -> bytes:
    """The pseudo key of an engine's history."""
    return b"\xff\x48%c\x00" % engine


def lease_ids_key(engine: int) -> bytes:
    """The pseudo key of the lease ids that an engine gave out."""
    return b"\xff\x49%c\x00" % engine


def lease_key(engine: int, lease: int) -> bytes:
    """The pseudo key of a lease: its life, and which keys hang on it."""
    return b"\xff\x4c%c" % engine + lease.to_bytes(8, "big")


def revision_key(engine: int) -> bytes:
    """The pseudo key of an engine's latest revision."""
    return b"\xff\x52%c\x00" % engine


def crash_key(actor: int) -> bytes:
    """The pseudo key of an actor's crash."""
    return b"\xff\x58%c" % actor


def placed_range(engine: int, key_range: KeyRange) -> tuple[bytes, bytes]:
    """Return where a range of an engine lies among the keys of all engines: from the first, up to the second."""
    number = b"%c" % engine
    return number + key_range.start, b"%c" % (engine + 1) if key_range.end is None else number + key_range.end


def held_key(actor: int) -> bytes:
    """The pseudo key of what an actor and who renews its leases have in common: both keep in mind what became of them."""
    return b"\xff\x4b%c" % actor


class HasFootprint(Protocol):
    """What `are_dependent` compares."""

    keys_read: set[bytes]
    keys_written: set[bytes]
    ranges_read: list[tuple[bytes, bytes]]
    was_left_open: bool


class Footprint:
    """The keys and ranges of a step. A range that was deleted is one that was read, with the keys found in it written."""

    __slots__ = ("keys_read", "keys_written", "ranges_read", "was_left_open")

    def __init__(self) -> None:
        self.keys_read: set[bytes] = set()
        self.keys_written: set[bytes] = set()
        self.ranges_read: list[tuple[bytes, bytes]] = []
        self.was_left_open = False
        """Whether the step ended with a snapshot that may still be read, which would join what the step read."""

    def take_in(self, other: HasFootprint) -> None:
        """Add what another execution of the same step read and wrote."""
        self.keys_read |= other.keys_read
        self.keys_written |= other.keys_written
        self.ranges_read = list({*self.ranges_read, *other.ranges_read})


def are_dependent(one: HasFootprint, other: HasFootprint) -> bool:
    """Whether the order of two steps can matter: one wrote where the other read or wrote."""
    written = one.keys_written
    if written and not (
        written.isdisjoint(other.keys_written)
        and written.isdisjoint(other.keys_read)
        and not _meet(other.ranges_read, written)
    ):
        return True
    written = other.keys_written
    return bool(written) and not (written.isdisjoint(one.keys_read) and not _meet(one.ranges_read, written))


def is_dependent_asleep(sleeping: HasFootprint, step: HasFootprint) -> bool:
    """Whether a step that was explored elsewhere has to be tried again after `step`.

    `step` was carried out just now: a snapshot that it left open counts as reading everything. That wakes too many, never too
    few. What `sleeping` read is known, over all the runs that it was part of.
    """
    return are_dependent(sleeping, step) or (step.was_left_open and bool(sleeping.keys_written))


def _meet(ranges: Iterable[tuple[bytes, bytes]], keys: Iterable[bytes]) -> bool:
    return any(start <= key < end for start, end in ranges for key in keys)
