"""A shop and what becomes of it by functions: an order's key gets a field, its lines become records, two tables one."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from keyplan.layout import Index, Layout, Table, Unique
from keyplan.maintenance import Keyed, Transform
from keyplan.store import Store

__all__ = [
    "JOIN",
    "LINES",
    "SPLIT",
    "Guest",
    "Joined",
    "Lined",
    "Order",
    "Placed",
    "Sharing",
    "Shop",
    "Split",
    "fill_shop",
]


class Order(msgspec.Struct, frozen=True):
    customer: str
    items: list[str] = []
    number: str = ""


class Guest(msgspec.Struct, frozen=True):
    note: str


class Whole(msgspec.Struct, frozen=True):
    customer: str
    items: list[str] = []
    note: str = ""


class Line(msgspec.Struct, frozen=True):
    item: str


class Placed(NamedTuple):
    customer: str
    order: int


class Numbered(NamedTuple):
    order: int
    line: int


class Shop(Layout, root="/shop/"):
    orders = Table("orders/{order}", key=int, value=Order)
    by_customer = Index("by-customer/{customer}/{order}", of=orders, key=str)
    by_number = Unique("by-number/{number}", of=orders, key=str)
    guests = Table("guests/{order}", key=int, value=Guest)
    notes = Table("notes/{note}", key=str, value=str)


class Split(Layout, root="/shop/"):
    """The key of an order gets its customer."""

    orders = Table("placed/{customer}/{order}", key=Placed, value=Order)
    by_number = Unique("numbers/{number}", of=orders, key=str)
    guests = Table("guests/{order}", key=int, value=Guest)
    notes = Table("notes/{note}", key=str, value=str)


class Sharing(Layout, root="/shop/"):
    """As Split, but unique entries stay where they were, and name either the old or the new record."""

    orders = Table("placed/{customer}/{order}", key=Placed, value=Order)
    by_number = Unique("by-number/{number}", of=orders, key=str)
    guests = Table("guests/{order}", key=int, value=Guest)
    notes = Table("notes/{note}", key=str, value=str)


class Lined(Layout, root="/shop/"):
    """An order becomes as many records as it has items."""

    lines = Table("lines/{order}/{line}", key=Numbered, value=Line)
    by_item = Index("by-item/{item}/{order}/{line}", of=lines, key=str)
    guests = Table("guests/{order}", key=int, value=Guest)
    notes = Table("notes/{note}", key=str, value=str)


class Joined(Layout, root="/shop/"):
    """An order and its guest become one."""

    orders = Table("whole/{order}", key=int, value=Whole)
    by_customer = Index("whole-by-customer/{customer}/{order}", of=orders, key=str)
    notes = Table("notes/{note}", key=str, value=str)


def split(key: int, order: Order) -> Keyed:
    return Keyed(Placed(order.customer, key), order)


def unsplit(key: Placed, order: Order) -> Keyed:
    return Keyed(key.order, order)


def lines_of(key: int, order: Order) -> Iterator[Keyed]:
    for number, item in enumerate(order.items):
        yield Keyed(Numbered(key, number), Line(item))


def join(key: int, order: Order | None, guest: Guest | None) -> Keyed | None:
    if order is None:
        return None
    return Keyed(key, Whole(order.customer, order.items, "" if guest is None else guest.note))


SPLIT = Transform(split, "tests:split", of=("orders",), into=("orders",), inverse=unsplit)
LINES = Transform(lines_of, "tests:lines_of", of=("orders",), into=("lines",))
JOIN = Transform(join, "tests:join", of=("orders", "guests"), into=("orders",))


def fill_shop(store: Store, count: int = 4) -> Shop:
    shop = Shop(store)
    shop.notes.insert("n", "note")
    for number in range(count):
        order = Order(f"c{number % 2}", [f"i{place}" for place in range(number)], f"no{number}")
        shop.orders.insert(number, order)
        if number % 2:
            shop.guests.insert(number, Guest(f"note{number}"))
    return shop
