"""Goods in pounds and what becomes of them in pence, way by way, each with a model that says by hand what stands in the end.

Prices are multiplied by a hundred on every way: a record that is converted twice, or not at all, has a price that no other
order of events gives it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from keyplan.layout import Counter, Index, Layout, Table, Unique
from keyplan.maintenance import Conversion, Keyed, MigrationPlan, Transform, plan_migration
from keyplan.store import Store

__all__ = ["ELSEWHERE", "WAYS", "Good", "Goods", "Held", "Stock", "Tickets", "Way", "fill_goods", "raw_name"]


class Good(msgspec.Struct, frozen=True):
    price: int
    code: str
    kind: str = ""
    parts: list[str] = []


class Stock(msgspec.Struct, frozen=True):
    count: int


class Ware(msgspec.Struct, frozen=True):
    """Reads the bytes of a `Good`, too: nothing in a record says in which layout it is."""

    price: int
    code: str
    kind: str = ""
    parts: list[str] = []
    unit: str = "p"


class Whole(msgspec.Struct, frozen=True):
    price: int
    code: str
    count: int = 0


class Part(msgspec.Struct, frozen=True):
    item: str
    price: int


class Label(msgspec.Struct, frozen=True):
    price: int
    label: str


class Kept(msgspec.Struct, frozen=True):
    price: int
    label: str
    unit: str = "p"


class Sorted(NamedTuple):
    kind: str
    name: str


class Numbered(NamedTuple):
    name: str
    place: int


class Goods(Layout, root="/g/"):
    """Where all goods begin."""

    goods = Table("goods/{name}", key=str, value=Good)
    by_code = Unique("codes/{code}", of=goods, key=str)
    by_part = Index("parts/{part}/{name}", of=goods, key=str, each={"part": "parts"})
    stocks = Table("stocks/{name}", key=str, value=Stock)


class Moved(Layout, root="/g/"):
    wares = Table("wares/{name}", key=str, value=Ware)
    by_code = Unique("ware-codes/{code}", of=wares, key=str)
    by_part = Index("ware-parts/{part}/{name}", of=wares, key=str, each={"part": "parts"})
    stocks = Table("stocks/{name}", key=str, value=Stock)


class Sharing(Layout, root="/g/"):
    """Index entries stay where they are: a unique one names either the old or the new record."""

    wares = Table("wares/{name}", key=str, value=Ware)
    by_code = Unique("codes/{code}", of=wares, key=str)
    by_part = Index("parts/{part}/{name}", of=wares, key=str, each={"part": "parts"})
    stocks = Table("stocks/{name}", key=str, value=Stock)


class InPlace(Layout, root="/g/"):
    """Records stay where they are, an index more is built."""

    goods = Table("goods/{name}", key=str, value=Ware)
    by_code = Unique("codes/{code}", of=goods, key=str)
    by_part = Index("parts/{part}/{name}", of=goods, key=str, each={"part": "parts"})
    by_kind = Index("kinds/{kind}/{name}", of=goods, key=str)
    stocks = Table("stocks/{name}", key=str, value=Stock)


class Split(Layout, root="/g/"):
    wares = Table("wares/{kind}/{name}", key=Sorted, value=Ware)
    by_code = Unique("ware-codes/{code}", of=wares, key=str)
    stocks = Table("stocks/{name}", key=str, value=Stock)


class SplitSharing(Layout, root="/g/"):
    wares = Table("wares/{kind}/{name}", key=Sorted, value=Ware)
    by_code = Unique("codes/{code}", of=wares, key=str)
    stocks = Table("stocks/{name}", key=str, value=Stock)


class Several(Layout, root="/g/"):
    """A good becomes as many records as it has parts, each of which is somewhere once."""

    wares = Table("wares/{name}/{place}", key=Numbered, value=Part)
    by_item = Unique("items/{item}", of=wares, key=str)
    stocks = Table("stocks/{name}", key=str, value=Stock)


class Joined(Layout, root="/g/"):
    wares = Table("wares/{name}", key=str, value=Whole)
    by_code = Unique("ware-codes/{code}", of=wares, key=str)


class Elsewhere(Layout, root="/g/"):
    """What a second migration of the root makes of the goods."""

    cases = Table("cases/{name}", key=str, value=Ware)
    by_code = Unique("case-codes/{code}", of=cases, key=str)
    by_part = Index("case-parts/{part}/{name}", of=cases, key=str, each={"part": "parts"})
    stocks = Table("stocks/{name}", key=str, value=Stock)


class Held(Layout, root="/g/"):
    """Labels live as long as their leases."""

    labels = Table("goods/{name}", key=str, value=Label, lease=True)
    by_label = Unique("codes/{label}", of=labels, key=str)


class HeldElsewhere(Layout, root="/g/"):
    labels = Table("wares/{name}", key=str, value=Kept, lease=True)
    by_label = Unique("ware-codes/{label}", of=labels, key=str)


class Tickets(Layout, root="/g/"):
    tickets = Counter("tickets", start=7)


class Numbers(Layout, root="/g/"):
    numbers = Counter("numbers", start=7)


# ---- the functions, and what they are to make --------------------------------------------------------------------------

Model = Callable[[str, Mapping[str, Any]], dict[bytes, Any]]
"""Of a good's name and its records by table, as JSON, what it becomes: JSON by raw key."""


def _ware(good: Good, factor: int = 100) -> Ware:
    return Ware(good.price * factor, good.code, good.kind, good.parts)


def _sort(name: str, good: Good) -> Keyed:
    return Keyed(Sorted(good.kind, name), _ware(good))


def _good(ware: Ware) -> Good:
    return Good(ware.price // 100, ware.code, ware.kind, ware.parts)


def _unsort(key: Sorted, ware: Ware) -> Keyed:
    return Keyed(key.name, _good(ware))


def _part(name: str, good: Good) -> Iterator[Keyed]:
    for place, item in enumerate(good.parts):
        yield Keyed(Numbered(name, place), Part(item, good.price * 100))


def _join(name: str, good: Good | None, stock: Stock | None) -> Keyed | None:
    if good is None:
        return None
    return Keyed(name, Whole(good.price * 100, good.code, 0 if stock is None else stock.count))


def _in_pence(good: Mapping[str, Any], factor: int = 100) -> dict[str, Any]:
    return {**good, "price": good["price"] * factor, "unit": "p"}


def _at(place: str, factor: int = 100) -> Model:
    def model(name: str, records: Mapping[str, Any]) -> dict[bytes, Any]:
        good = records.get("goods")
        return {} if good is None else {f"/g/{place}/{name}".encode(): _in_pence(good, factor)}

    return model


def _sorted(name: str, records: Mapping[str, Any]) -> dict[bytes, Any]:
    good = records.get("goods")
    return {} if good is None else {f"/g/wares/{good['kind']}/{name}".encode(): _in_pence(good)}


def _in_parts(name: str, records: Mapping[str, Any]) -> dict[bytes, Any]:
    good = records.get("goods", {"parts": [], "price": 0})
    return {
        f"/g/wares/{name}/{place}".encode(): {"item": item, "price": good["price"] * 100}
        for place, item in enumerate(good["parts"])
    }


def _whole(name: str, records: Mapping[str, Any]) -> dict[bytes, Any]:
    good, stock = records.get("goods"), records.get("stocks", {"count": 0})
    if good is None:
        return {}
    return {f"/g/wares/{name}".encode(): {"price": good["price"] * 100, "code": good["code"], "count": stock["count"]}}


@dataclass(frozen=True)
class Way:
    """A way from one layout to another. `made` is the model of what becomes of a good.

    `sources`, `target`: the places of the old tables and of the new one; `name_at`: which part of a new key is the name of the
    good that it was made of. `key`, `other`: how programs of the new layout spell a good's key, and a record that no function
    makes, of a number and a code. `takes_new_writers`: before the switch, too; not where a unique entry names a key of the old
    layout.
    """

    new: type[Layout]
    made: Model
    options: Mapping[str, Any]
    old: type[Layout] = Goods
    sources: tuple[str, ...] = ("goods",)
    target: str = "wares"
    table: str = "wares"
    name_at: int = 2
    is_in_place: bool = False
    key: Callable[[str], Any] = str
    other: Callable[[int, str], Any] = lambda price, code: Ware(price, code, "x")
    code: str = "code"
    takes_new_writers: bool = True
    old_writers: tuple[str, ...] = field(default=("put", "recode", "swap", "insert", "delete"))

    def plan(self, store: Store, *more: str) -> MigrationPlan:
        """Plan it. `more`: further consents."""
        options: dict[str, Any] = {**self.options, "accepts": [*self.options.get("accepts", ()), *more]}
        return plan_migration(store.engine, self.old.bound(), self.new.bound(), **options)


def _moving(new: type[Layout], factor: int = 100, table: str = "wares", *, has_inverse: bool = False) -> dict[str, Any]:
    inverse = _good if has_inverse else None
    conversion = Conversion(lambda good: _ware(good, factor), f"tests:in-pence-{new.__name__}", inverse=inverse)
    return {"conversions": {table: conversion}, "renames": {"goods": table}}


WAYS: Final[dict[str, Way]] = {
    "moved": Way(Moved, _at("wares"), _moving(Moved, has_inverse=True)),
    "sharing": Way(Sharing, _at("wares"), _moving(Sharing)),
    "in place": Way(
        InPlace,
        _at("goods"),
        {"conversions": {"goods": Conversion(_ware, "tests:in-place")}},
        target="goods",
        table="goods",
        is_in_place=True,
    ),
    "split": Way(
        Split,
        _sorted,
        {"transforms": [Transform(_sort, "tests:sort", ("goods",), ("wares",), inverse=_unsort)]},
        name_at=3,
        key=lambda name: Sorted("y" if name == "b" else "x", name),
        old_writers=("rekind", "put", "recode", "swap", "insert", "delete"),
    ),
    "split, sharing": Way(
        SplitSharing,
        _sorted,
        {"transforms": [Transform(_sort, "tests:sort", ("goods",), ("wares",))]},
        name_at=3,
        key=lambda name: Sorted("y" if name == "b" else "x", name),
        takes_new_writers=False,
        old_writers=("rekind", "put", "recode", "swap", "insert", "delete"),
    ),
    "several": Way(
        Several,
        _in_parts,
        {"transforms": [Transform(_part, "tests:part", ("goods",), ("wares",))], "accepts": ["none:goods"]},
        key=lambda name: Numbered(name, 0),
        other=lambda price, code: Part(code, price),
        code="item",
        old_writers=("put", "shrink", "swap", "insert", "delete"),
    ),
    "joined": Way(
        Joined,
        _whole,
        {"transforms": [Transform(_join, "tests:join", ("goods", "stocks"), ("wares",))], "accepts": ["none:goods"]},
        sources=("goods", "stocks"),
        other=Whole,
        old_writers=("put", "swap", "delete", "stock", "unstock"),
    ),
    "leased": Way(
        HeldElsewhere,
        _at("wares"),
        {"conversions": {"labels": Conversion(lambda old: Kept(old.price * 100, old.label), "tests:kept")}},
        old=Held,
        table="labels",
        other=Kept,
        code="label",
        old_writers=("hold", "hold longer", "let go", "revoke"),
    ),
}

ELSEWHERE: Final = Way(Elsewhere, _at("cases", 1000), _moving(Elsewhere, 1000, "cases"), target="cases", table="cases")
"""The way that a second migration of the root would go."""


def raw_name(raw_key: bytes, place: str, name_at: int) -> str | None:
    """The name of the good that a raw key below a place is of; None for a key of another place."""
    if not raw_key.startswith(f"/g/{place}/".encode()):
        return None
    return raw_key.decode().split("/")[name_at + 1]


def fill_goods(store: Store, way: Way) -> None:
    """Two goods, one in stock; or two labels under one lease."""
    if way.old is Held:
        lease = store.lease(60, keep_alive=False)
        for name, price in (("a", 1), ("b", 2)):
            Held(store).labels.insert(name, Label(price, name.upper()), lease=lease)
        return
    goods = Goods(store)
    goods.goods.insert("a", Good(1, "A", "x", ["p"]))
    goods.goods.insert("b", Good(2, "B", "y", ["q", "s"]))
    goods.stocks.insert("b", Stock(4))
