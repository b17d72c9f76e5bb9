"""A migration tried on stored records: what is counted as what, and that nothing is written."""

from typing import NamedTuple

import msgspec
import pytest

import keyplan
from keyplan import Layout, Table, Unique
from keyplan.errors import InvalidArgumentError
from keyplan.maintenance import Keyed, Transform, TriedRecord, plan_migration, try_migration
from tests.maintenance.evolving import Moved, Old, Shelf, fill, plan
from tests.maintenance.layouts import dump


class Item(msgspec.Struct, frozen=True):
    name: str
    note: str = ""


class Spare(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    note: str = ""
    count: int = 0


class Bare(msgspec.Struct, frozen=True):
    name: str


class Place(NamedTuple):
    key: str
    place: int


class Items(Layout, root="/i/"):
    items = Table("items/{key}", key=str, value=Item)


class Spares(Layout, root="/i/"):
    items = Table("spares/{key}", key=str, value=Spare)


class Bares(Layout, root="/i/"):
    items = Table("bares/{key}", key=str, value=Bare)


class Named(Layout, root="/i/"):
    items = Table("items/{key}", key=str, value=Item)
    by_name = Unique("names/{name}", of=items, key=str)


def test_a_default_that_is_not_stored_is_no_field_that_is_lost_and_one_that_has_no_place_is() -> None:
    with keyplan.open("memory:") as store:
        Items(store).items.insert("a", Item("one"))
        before = dump(store)
        (kept,) = try_migration(store.engine, plan_migration(store.engine, Items.bound(), Spares.bound())).tables
        assert (kept.tried, kept.converted, kept.losing) == (1, 1, 0)
        (bare,) = try_migration(store.engine, plan_migration(store.engine, Items.bound(), Bares.bound())).tables
        assert (bare.tried, bare.losing) == (1, 1)
        assert bare.examples == {"losing": [TriedRecord("/i/items/a", ("/i/bares/a",), ('- note: ""',))]}
        assert dump(store) == before


def test_two_records_that_claim_one_entry_of_a_new_index_are_found() -> None:
    with keyplan.open("memory:") as store:
        for key in "ab":
            Items(store).items.insert(key, Item("one"))
        own = plan_migration(store.engine, Items.bound(), Named.bound())
        trial = try_migration(store.engine, own)
        assert list(trial.contested) == ["by_name"]
        assert "/i/items/a and /i/items/b both claim" in trial.contested["by_name"][0]
        assert trial.problems(frozenset()) == 1


def test_a_sample_is_taken_at_equal_distances() -> None:
    with keyplan.open("memory:") as store:
        fill(store, 30)
        trial = try_migration(store.engine, plan(store, Old, Moved), sample=3, examples=5)
        (boxes,) = trial.tables
        keys = [example.key for example in boxes.examples["converted"]]
        raw_keys = sorted(Old.bound().tables["boxes"].keys.encode(Shelf("a", number)) for number in range(30))
        assert keys == [raw_keys[place].decode() for place in (0, 10, 20)]
        assert boxes.tried == 3
        with pytest.raises(InvalidArgumentError):
            try_migration(store.engine, plan(store, Old, Moved), sample=0)


class Part(msgspec.Struct, frozen=True):
    name: str


class Parts(Layout, root="/i/"):
    parts = Table("parts/{key}/{place}", key=Place, value=Part)
    by_name = Unique("part-names/{name}", of=parts, key=str)


def test_two_records_of_one_unit_that_claim_one_entry_are_found() -> None:
    twice = Transform(
        lambda key, item: [Keyed(Place(key, place), Part(item.name)) for place in (1, 2)], "f", ("items",), ("parts",)
    )
    with keyplan.open("memory:") as store:
        Items(store).items.insert("a", Item("one"))
        own = plan_migration(store.engine, Items.bound(), Parts.bound(), transforms=[twice])
        (found,) = try_migration(store.engine, own).tables
        assert found.collided == 1
        (example,) = found.examples["collided"]
        assert example.lines == ("/i/parts/a/1 gets it, too",)
