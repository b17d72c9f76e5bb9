"""A layout and what it becomes: a table that moves, indexes that come and go, values that are written anew."""

from typing import NamedTuple

import msgspec

from keyplan.layout import Counter, Index, Layout, Table, Unique

__all__ = ["Box", "Crate", "Moved", "Old", "Reindexed", "Shelf", "Stated"]


class Shelf(NamedTuple):
    room: str
    number: int


class Box(msgspec.Struct, frozen=True):
    name: str
    tags: list[str] = []


class Crate(msgspec.Struct, frozen=True):
    name: str
    size: int
    tags: list[str] = []


class Old(Layout, root="/s/"):
    boxes = Table("boxes/{room}/{number}", key=Shelf, value=Box)
    by_name = Unique("by-name/{name}", of=boxes, key=str)
    by_tag = Index("by-tag/{tag}/{room}/{number}", of=boxes, key=str, each={"tag": "tags"})
    notes = Table("notes/{note}", key=str, value=str)


class Moved(Layout, root="/s/"):
    """The boxes stand elsewhere, and with them their unique names; the tags' entries are the same as before."""

    boxes = Table("crates/{room}/{number}", key=Shelf, value=Box)
    by_name = Unique("names/{name}", of=boxes, key=str)
    by_tag = Index("by-tag/{tag}/{room}/{number}", of=boxes, key=str, each={"tag": "tags"})
    notes = Table("notes/{note}", key=str, value=str)


class Stated(Layout, root="/s/"):
    """The boxes stay, with a field more that has no default."""

    boxes = Table("boxes/{room}/{number}", key=Shelf, value=Crate)
    by_name = Unique("by-name/{name}", of=boxes, key=str)
    by_tag = Index("by-tag/{tag}/{room}/{number}", of=boxes, key=str, each={"tag": "tags"})
    notes = Table("notes/{note}", key=str, value=str)


class Reindexed(Layout, root="/s/"):
    """One index less, another one more, a counter."""

    boxes = Table("boxes/{room}/{number}", key=Shelf, value=Box)
    by_tag = Index("by-tag/{tag}/{room}/{number}", of=boxes, key=str, each={"tag": "tags"})
    named = Index("named/{name}/{room}/{number}", of=boxes, key=str)
    notes = Table("notes/{note}", key=str, value=str)
    tickets = Counter("tickets", start=7)
