"""What the databases of a ring keep below keys that no layout spells: what each remembers of the ring. Nothing is read here.

    00 00 6b 65 79 70 6c 61 6e 2e 72 69 6e 67    {"format":1,"ring":"5f0c...","index":2,"databases":4,"placed":{...}, ...}

While the ring grows, `growing_to` is the number of databases that it will have, and `entries` how many entries this database
held when that began. Beside it a ring may have entries of its own, which no list of the ring shows and no placement moves;
those below `00 00 keyplan.all/` stand in every database alike, in those that are added, too.
"""

from typing import Final

import msgspec

from keyplan.engine import KeyRange, Snapshot
from keyplan.errors import CorruptionError

__all__ = ["OWN_PREFIX", "OWN_RANGE", "RING_KEY", "SHARED_PREFIX", "RingDescription", "read_description", "ring_id"]

OWN_PREFIX: Final = b"\x00\x00keyplan."
"""What no record's key begins with. Why two NULs: HEPnOS's data sets at the top begin with one, and the registry of key spaces
with another byte after it."""

OWN_RANGE: Final = KeyRange.of_prefix(OWN_PREFIX)

RING_KEY: Final = OWN_PREFIX + b"ring"

SHARED_PREFIX: Final = OWN_PREFIX + b"all/"
"""Below it stands what every database of the ring has alike."""

_FORMAT: Final = 1


class RingDescription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One database's part in its ring. `ring` is a random id that all of them share; `placed` is what places their keys."""

    format: int = _FORMAT
    ring: str
    index: int
    databases: int
    placed: dict[str, list[str]]
    hash: str = "fnv1a64/lookup3x4"
    growing_to: int | None = None
    entries: int | None = None
    command: tuple[str, ...] = ()

    def encoded(self) -> bytes:
        """Return the record's bytes: the same for equal descriptions."""
        facts = msgspec.structs.asdict(self)
        if not self.command:
            del facts["command"]
        return msgspec.json.encode(facts)


def ring_id(description: bytes) -> str:
    """Return the id that all databases of a ring share, from what one of them remembers."""
    return msgspec.json.decode(description, type=RingDescription).ring


def read_description(snapshot: Snapshot) -> RingDescription | None:
    """Return what a database remembers; None when it was never part of a ring. Raises CorruptionError."""
    raw = snapshot.value(RING_KEY)
    if raw is None:
        return None
    try:
        description = msgspec.json.decode(raw, type=RingDescription)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptionError(raw_key=RING_KEY.hex(), problem="the ring's description cannot be read") from error
    if description.format != _FORMAT or description.hash != "fnv1a64/lookup3x4":
        raise CorruptionError(raw_key=RING_KEY.hex(), problem="the ring's description is of another version of keyplan")
    return description
