"""Layouts that the tests name on the command line: one of text keys with everything in it, one of binary keys."""

from typing import NamedTuple
from uuid import UUID

import msgspec

from keyplan import Counter, Index, Layout, Only, Parameter, Table, Text, Unique, Waiver

__all__ = ["Binary", "Colliding", "Rooted", "Site"]


class Place(msgspec.Struct, frozen=True):
    room: str = ""
    height: int = 0


class Box(msgspec.Struct, frozen=True):
    name: str
    size: int = 0
    label: str | None = None
    tags: list[str] = []
    place: Place | None = None
    secret: bytes = b""


class Shelf(NamedTuple):
    room: str
    number: int


class Site(Layout, root="/site/"):
    """A store room."""

    boxes = Table("boxes/{room}/{number}", key=Shelf, value=Box)
    notes = Table("notes/{note}", key=str, value=str)
    flags = Table("flags/{flag}", key=str, value=None)
    holders = Table("holders/{holder}", key=str, value=str, lease=True)
    raw = Table("raw", key=Only, value=bytes)
    by_name = Unique("by-name/{name}", of=boxes, key=str)
    by_tag = Index("by-tag/{tag}/{room}/{number}", of=boxes, key=str, each={"tag": "tags"})
    tickets = Counter("tickets", start=100)

    waivers = (Waiver("L7", "boxes.number", "shelves are few"),)


class Pair(NamedTuple):
    group: UUID
    number: int


class Binary(Layout, root=b"\x01"):
    """Keys of bytes."""

    pairs = Table(b"{group}{number}", key=Pair, value=bytes)


class Rooted(Layout, root="/{tenant}/"):
    """A root with a parameter."""

    tenant = Parameter(None, Text())
    notes = Table("notes/{note}", key=str, value=str)


class Colliding(Layout, root="/c/"):
    """Two templates that spell one key."""

    first = Table("a/{x}", key=str, value=str)
    second = Table("{y}/b", key=str, value=str)
