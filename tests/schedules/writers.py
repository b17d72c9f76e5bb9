"""Thirteen operations of writers on two records with a unique index, a fan-out index and a counter; readers beside them."""

from collections.abc import Callable, Mapping
from typing import Final

from keyplan.store import Store
from tests.maintenance.layouts import Blade, BladeKey, Site

__all__ = ["ONE", "READERS", "TWO", "WRITERS", "two_records"]

ONE, TWO, THREE = (BladeKey("r", slot) for slot in "123")


def two_records(store: Store) -> None:
    site = Site(store)
    site.blades.insert(ONE, Blade("s1", ["red"]))
    site.blades.insert(TWO, Blade("s2", ["red", "blue"]))
    site.ports.next()


def _insert_new(store: Store) -> None:
    Site(store).blades.insert(THREE, Blade("s3", ["red"]))


def _insert_taken(store: Store) -> None:
    Site(store).blades.insert(BladeKey("r", "4"), Blade("s1"))


def _put_new(store: Store) -> None:
    Site(store).blades.put(ONE, Blade("s3", ["blue"]))


def _put_same(store: Store) -> None:
    Site(store).blades.put(ONE, Blade("s1", ["green"]))


def _put_other(store: Store) -> None:
    Site(store).blades.put(ONE, Blade("s2", []))


def _modify(store: Store) -> None:
    Site(store).blades.modify(ONE, lambda blade: Blade(blade.serial, [*blade.tags, "new"]))


def _delete(store: Store) -> None:
    Site(store).blades.delete(ONE)


def _rename(store: Store) -> None:
    Site(store).blades.rename(ONE, THREE)


def _rename_other(store: Store) -> None:
    Site(store).blades.rename(TWO, THREE)


def _swap(store: Store) -> None:
    with store.transaction() as transaction:
        blades = Site(transaction).blades
        one, two = blades.require(ONE), blades.require(TWO)
        blades.put(ONE, Blade(None, one.tags))  # so that its value is free
        blades.put(TWO, Blade(one.serial, two.tags))
        blades.put(ONE, Blade(two.serial, one.tags))


def _count(store: Store) -> int:
    return Site(store).ports.next()


def _list_and_write(store: Store) -> None:
    with store.transaction() as transaction:
        blades = Site(transaction).blades
        number = len(list(blades.list("r")))
        blades.put(BladeKey("q", "1"), Blade(None, [f"{number}"]))


def _look_up_and_write(store: Store) -> None:
    with store.transaction() as transaction:
        site = Site(transaction)
        found = site.by_serial.one("s1")
        site.blades.put(BladeKey("q", "2"), Blade(None, [] if found is None else found.tags))


WRITERS: Final[Mapping[str, Callable[[Store], object]]] = {
    "insert new": _insert_new,
    "insert taken": _insert_taken,
    "put new": _put_new,
    "put same": _put_same,
    "put other": _put_other,
    "modify": _modify,
    "delete": _delete,
    "rename": _rename,
    "rename other": _rename_other,
    "swap": _swap,
    "count": _count,
    "list and write": _list_and_write,
    "look up and write": _look_up_and_write,
}

READERS: Final[Mapping[str, Callable[[Store], object]]] = {
    "list by tag": lambda store: [tuple(row) for row in Site(store).by_tag.list("red")],
    "one by serial": lambda store: Site(store).by_serial.one("s1"),
    "list of a rack": lambda store: [tuple(row) for row in Site(store).blades.list("r")],
}
