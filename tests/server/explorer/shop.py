"""A small layout with everything that pages show: two kinds of index, a counter, leased records, a key without fields."""

from typing import NamedTuple

import msgspec

from keyplan.layout import Counter, Index, Layout, Only, Table, Unique

__all__ = ["NAME", "ByColour", "Item", "ItemKey", "Shop"]

NAME = "tests.server.explorer.shop:Shop"


class Item(msgspec.Struct):
    title: str
    colour: str | None = None


class ItemKey(NamedTuple):
    shelf: str
    item: str


class ByColour(NamedTuple):
    colour: str


class Shop(Layout, root="shop/"):
    items = Table("items/{shelf}/{item}", key=ItemKey, value=Item)
    visitors = Table("visitors/{visitor}", key=str, value=str, lease=True)
    sign = Table("sign", key=Only, value=str)
    by_title = Unique("titles/{title}", of=items, key=str)
    by_colour = Index("colours/{colour}/{shelf}/{item}", of=items, key=ByColour)
    orders = Counter("orders", start=7)
