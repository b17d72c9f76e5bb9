"""What is stored: a record of ten fields with four index entries, as a keyplan layout, and its sample data by number."""

from typing import Annotated, NamedTuple

import msgspec

from keyplan.codec import U64
from keyplan.layout import Index, Layout, Mode, Table, Unique

__all__ = ["Event", "Events", "Inventory", "Item", "ItemName", "item", "item_key"]

ITEMS_A_PROJECT = 10


class Item(msgspec.Struct, frozen=True):
    """Ten fields, some 200 bytes of JSON."""

    name: str
    project: str
    tags: list[str]
    owner: str
    state: str
    size: int
    created: float
    is_public: bool
    note: str | None
    digest: str


class ItemName(NamedTuple):
    """A name within its project."""

    project: str
    name: str


class Inventory(Layout[Mode], root="/inventory/"):
    """One table of text keys; a unique index, a plain one, and one with an entry for each of two tags."""

    items = Table("items/{item}", key=str, value=Item)
    by_name = Unique("names/{project}/{name}", of=items, key=ItemName)
    by_project = Index("projects/{project}/{item}", of=items, key=str)
    by_tag = Index("tags/{tag}/{item}", of=items, key=str, each={"tag": "tags"})


class Event(NamedTuple):
    """Three numbers."""

    run: Annotated[int, U64()]
    subrun: Annotated[int, U64()]
    event: Annotated[int, U64()]


class Events(Layout, root=b"E"):
    """A table of binary keys."""

    events = Table(b"{run}{subrun}{event}", key=Event, value=bytes)


def item_key(number: int) -> str:
    """The id of an item: they ascend with time."""
    return f"item-{number:09d}"


def item(number: int) -> Item:
    """The item of a number: ten of them to a project, and with the same tags as each hundredth."""
    return Item(
        name=f"name-{number:09d}",
        project=f"project-{number // ITEMS_A_PROJECT:08d}",
        tags=[f"rack-{number % 100:02d}", f"zone-{number % 10}"],
        owner="operations",
        state="running",
        size=number,
        created=1_700_000_000.5 + number,
        is_public=number % 2 == 0,
        note=None,
        digest="3b5d5c3712955042212316173ccf37be800cdc2a",
    )
