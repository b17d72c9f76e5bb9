"""Records that do not decode, or on which an index's function raises, can be replaced and removed, entries and all."""

# ruff: noqa: PT012  # Why: what raises is the end of a transaction's block.

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import keyplan
import keyplan.store.decoding
from keyplan.engine import ALL_KEYS, Commit, Engine, Put
from keyplan.errors import CommitConflictError, CorruptionError, InvalidRecordError, StaleRecordError
from keyplan.layout import Index, Layout, Table, Unique
from keyplan.maintenance import check
from keyplan.store import Store
from tests.store.layouts import Blade, BladeKey, Site

ONE, TWO = BladeKey("r1", "1"), BladeKey("r1", "2")
RAW_ONE = b"/site/rack/r1/blades/1"
BROKEN = b"{broken"


@pytest.fixture
def store(opened: Engine) -> Iterator[Store]:
    with Store(opened) as store:
        yield store


@pytest.fixture
def site(store: Store) -> Site:
    """Two blades, of which the first is damaged; both have entries of two indexes."""
    site = Site(store)
    site.blades.insert(ONE, Blade("s1", ["a", "b"]))
    site.blades.insert(TWO, Blade("s2", ["a"]))
    store.engine.commit(Commit((), (Put(RAW_ONE, BROKEN),)))
    return site


def keys_left(store: Store) -> list[bytes]:
    with store.engine.snapshot() as snapshot:
        return [entry.key for entry in snapshot.scan(ALL_KEYS)]


KEYS_OF_TWO = [b"/site/by-serial/s2", b"/site/by-tag/a/r1/2", b"/site/rack/r1/blades/2"]


@pytest.mark.parametrize(
    "write",
    [
        lambda site: site.blades.delete(ONE),
        lambda site: site.blades.put(ONE, Blade("s1")),
        lambda site: site.blades.update(ONE, Blade("s1")),
        lambda site: site.blades.modify(ONE, lambda blade: blade),
        lambda site: site.blades.rename(ONE, BladeKey("r1", "3")),
    ],
)
def test_a_damaged_record_is_replaced_or_removed_on_purpose_only(site: Site, write: Callable[[Site], object]) -> None:
    with pytest.raises(CorruptionError) as caught:
        write(site)

    assert caught.value.facts["table"] == "blades"
    assert caught.value.facts["key"] == ONE
    assert list(caught.value.facts)[-1] == "remedy"
    assert BROKEN.decode() not in str(caught.value)


def test_it_is_deleted_with_the_entries_that_point_at_it(site: Site, store: Store) -> None:
    site.blades.delete(ONE, damaged_ok=True)

    assert keys_left(store) == KEYS_OF_TWO
    assert list(check(store, site)) == []


def test_it_is_deleted_inside_a_transaction(site: Site, store: Store) -> None:
    with site.transaction() as tx:
        tx.blades.delete(ONE, damaged_ok=True)
        assert tx.by_serial.one("s1") is None
        tx.blades.insert(BladeKey("r9", "1"), Blade("s1"))

    assert site.by_serial.key_of("s1") == BladeKey("r9", "1")
    assert list(check(store, site)) == []


@pytest.mark.parametrize("name", ["put", "update"])
def test_it_is_replaced_and_its_entries_with_it(site: Site, store: Store, name: str) -> None:
    getattr(site.blades, name)(ONE, Blade("s9", ["b", "c"]), damaged_ok=True)

    assert site.by_serial.key_of("s9") == ONE
    assert site.by_serial.key_of("s1") is None
    assert list(site.by_tag.keys("a")) == [TWO]
    assert list(check(store, site)) == []


def test_the_revision_can_be_asked_for(site: Site, store: Store) -> None:
    (row,) = site.blades.rows("r1", limit=1)
    with pytest.raises(StaleRecordError):
        site.blades.delete(ONE, expected_revision=row.revision - 1, damaged_ok=True)

    site.blades.delete(ONE, expected_revision=row.revision, damaged_ok=True)

    assert keys_left(store) == KEYS_OF_TWO


def test_who_restores_the_record_meanwhile_keeps_it(site: Site, store: Store) -> None:
    with pytest.raises(CommitConflictError), site.transaction() as tx:
        tx.blades.delete(ONE, damaged_ok=True)
        store.engine.commit(Commit((), (Put(RAW_ONE, b'{"serial":"s1","tags":["a","b"]}'),)))

    assert list(check(store, site)) == []


def test_a_record_that_is_whole_is_written_as_ever(site: Site, store: Store) -> None:
    site.blades.delete(TWO, damaged_ok=True)
    site.blades.delete(BladeKey("r7", "7"), damaged_ok=True)
    site.blades.put(TWO, Blade("s2"), damaged_ok=True)
    site.blades.delete(ONE, damaged_ok=True)

    assert list(check(store, site)) == []


def test_an_index_that_is_too_long_to_look_through_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyplan.store.decoding, "LOOK_THROUGH_ENTRIES_MAX", 1)

    with pytest.raises(CorruptionError) as caught:
        site.blades.delete(ONE, damaged_ok=True)

    assert caught.value.facts["index"] == "by_serial"
    assert "check --repair" in str(caught.value.facts["remedy"])


# ---- code of the application that raises ---------------------------------------------------------------------------------


class Item(msgspec.Struct, frozen=True):
    name: str
    size: int = 1


def ratio(key: int, item: Item) -> str:
    return str(100 // item.size)


class Shelf(Layout, root="/shelf/"):
    items = Table("items/{number}", key=int, value=Item)
    by_name = Unique("names/{name}", of=items, key=str)
    by_ratio = Index("ratios/{ratio}/{number}", of=items, key=str, on=ratio, version=1)


def raised_by_ratio(error: InvalidRecordError) -> None:
    assert error.facts["table"] == "items"
    assert error.facts["key"] == 1
    assert error.facts["index"] == "by_ratio"
    assert str(error.facts["function"]).endswith("test_damaged_records.ratio")
    assert error.facts["problem"] == "the index's function raised ZeroDivisionError"
    assert isinstance(error.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "write",
    [
        lambda shelf: shelf.items.insert(1, Item("a", 0)),
        lambda shelf: shelf.items.put(1, Item("a", 0)),
        lambda shelf: shelf.items.update(1, Item("a", 0)),
        lambda shelf: shelf.items.modify(1, lambda item: Item("a", 0)),
    ],
)
def test_a_function_that_raises_is_an_error_with_its_names(write: Callable[[Shelf], object]) -> None:
    with keyplan.open("memory:") as store:
        shelf = Shelf(store)
        shelf.items.put(1, Item("a", 5))
        with pytest.raises(InvalidRecordError) as caught:
            write(shelf)
        raised_by_ratio(caught.value)
        assert shelf.items.get(1) == Item("a", 5)


def test_a_record_on_which_a_function_raises_is_deleted_with_the_entries_that_point_at_it() -> None:
    with keyplan.open("memory:") as store:
        shelf = Shelf(store)
        shelf.items.insert(1, Item("a", 50))
        shelf.items.insert(2, Item("b", 50))
        store.engine.commit(Commit((), (Put(b"/shelf/items/1", b'{"name":"a","size":0}'),)))

        shelf.items.delete(1)

        assert keys_left(store) == [b"/shelf/items/2", b"/shelf/names/b", b"/shelf/ratios/2/2"]


def test_a_record_on_which_a_function_raises_is_replaced() -> None:
    with keyplan.open("memory:") as store:
        shelf = Shelf(store)
        shelf.items.insert(1, Item("a", 50))
        store.engine.commit(Commit((), (Put(b"/shelf/items/1", b'{"name":"a","size":0}'),)))

        shelf.items.put(1, Item("c", 25))

        assert keys_left(store) == [b"/shelf/items/1", b"/shelf/names/c", b"/shelf/ratios/4/1"]


class Guarded(msgspec.Struct, frozen=True):
    size: int

    def __post_init__(self) -> None:
        assert self.size >= 0


class Guards(Layout, root="/guards/"):
    items = Table("items/{number}", key=int, value=Guarded)
    by_size = Index("sizes/{size}/{number}", of=items, key=int)


def test_an_assertion_of_the_record_is_damage_in_its_place() -> None:
    with keyplan.open("memory:") as store:
        guards = Guards(store)
        guards.items.insert(1, Guarded(3))
        store.engine.commit(Commit((), (Put(b"/guards/items/1", b'{"size":-1}'),)))

        with pytest.raises(CorruptionError):
            guards.items.get(1)
        assert [row.key for row in guards.items.rows()] == [1]
        guards.items.delete(1, damaged_ok=True)

        assert keys_left(store) == []


def test_of_a_fan_out_the_entries_of_items_that_fit_are_removed() -> None:
    with keyplan.open("memory:") as store:
        site = Site(store)
        unfit = b'{"serial":"s1","tags":["a","not/one","b"]}'
        entries = (Put(b"/site/by-tag/a/r1/1", b""), Put(b"/site/by-tag/b/r1/1", b""))
        store.engine.commit(Commit((), (Put(RAW_ONE, unfit), *entries)))

        site.blades.delete(ONE)

        assert keys_left(store) == []


class Loose(Layout, root="/loose/"):
    things = Table("things/{number}", key=int, value=dict[str, Any])
    by_tag = Index("tags/{tag}/{number}", of=things, key=str, each={"tag": "tags"})


def test_a_record_without_a_class_whose_field_is_no_collection_is_refused_and_can_be_deleted() -> None:
    with keyplan.open("memory:") as store:
        loose = Loose(store)
        with pytest.raises(InvalidRecordError) as caught:
            loose.things.insert(1, {"tags": 5})
        assert (caught.value.facts["table"], caught.value.facts["key"]) == ("things", 1)
        loose.things.insert(1, {"tags": ["a"]})
        store.engine.commit(Commit((), (Put(b"/loose/things/1", b'{"tags":5}'),)))

        loose.things.delete(1)

        assert keys_left(store) == []
