"""Layouts that rings are tested with, and databases for them."""

from typing import Annotated, NamedTuple
from uuid import UUID

import msgspec

from keyplan.codec import U64
from keyplan.engine import Engine, MemoryEngine
from keyplan.layout import Counter, Index, Layout, Table, Unique

__all__ = ["Blade", "BladeKey", "NumberKey", "Numbers", "SerialKey", "Site", "memories"]


class BladeKey(NamedTuple):
    """A blade of a rack."""

    rack: str
    blade: str


class Blade(msgspec.Struct, frozen=True):
    """A blade: its serial number, and what it is tagged with."""

    serial: str
    tags: tuple[str, ...] = ()


class SerialKey(NamedTuple):
    """A serial number within a rack."""

    rack: str
    serial: str


class Site(Layout, root="/site/"):
    """Racks' blades, placed by rack with their index entries; notes and a counter, which are not placed."""

    blades = Table("rack/{rack}/blades/{blade}", key=BladeKey, value=Blade, place="rack")
    by_serial = Unique("rack/{rack}/serials/{serial}", of=blades, key=SerialKey)
    by_tag = Index("tags/{tag}/{rack}/{blade}", of=blades, key=str, each={"tag": "tags"})
    notes = Table("notes/{note}", key=str, value=str)
    numbers = Counter("numbers", start=1)


class NumberKey(NamedTuple):
    """Something of a group."""

    group: UUID
    number: Annotated[int, U64()]


class Numbers(Layout):
    """Keys placed by their first sixteen bytes."""

    numbers = Table(b"{group}{number}", key=NumberKey, value=bytes, place="group")


def memories(count: int) -> list[Engine]:
    """Return so many new memories."""
    return [MemoryEngine() for _ in range(count)]
