"""A stored record whose fields do not fit an index, written by another program, can be replaced and removed."""

import msgspec

import keyplan
from keyplan.engine import ALL_KEYS, Commit, Put
from keyplan.layout import Index, Layout, Table, Unique


class Item(msgspec.Struct, frozen=True):
    name: str
    tag: str


class Shelf(Layout, root="/shelf/"):
    items = Table("items/{number}", key=int, value=Item)
    by_name = Unique("names/{name}", of=items, key=str)
    by_tag = Index("tags/{tag}/{number}", of=items, key=str)


UNFIT = b'{"name":"a","tag":"not/a/segment"}'


def keys_left(store: keyplan.Store) -> list[bytes]:
    with store.engine.snapshot() as snapshot:
        return [entry.key for entry in snapshot.scan(ALL_KEYS)]


def write_unfit(store: keyplan.Store) -> Shelf:
    store.engine.commit(Commit((), (Put(b"/shelf/items/1", UNFIT), Put(b"/shelf/names/a", b"1"))))
    return Shelf(store)


def test_it_is_removed_with_the_entries_that_it_can_have() -> None:
    with keyplan.open("memory:") as store:
        write_unfit(store).items.delete(1)
        assert keys_left(store) == []


def test_it_is_replaced_and_gets_its_entries() -> None:
    with keyplan.open("memory:") as store:
        write_unfit(store).items.update(1, Item("b", "t"))
        assert keys_left(store) == [b"/shelf/items/1", b"/shelf/names/b", b"/shelf/tags/t/1"]
