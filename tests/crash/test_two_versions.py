"""Two versions of one layout at work on one store: version 2 has a field more, and an index over it. What holds, and what not.

docs/design/crash-safety.md draws the conclusions.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from keyplan.errors import CorruptionError, UniqueViolationError
from keyplan.layout import Index, Layout, Table, Unique
from keyplan.store import Store, open_store
from tests.store.layouts import index_faults


class RackOne(msgspec.Struct, frozen=True):
    room: str


class RackTwo(msgspec.Struct, frozen=True):
    room: str
    asset: str | None = None


class StrictRackOne(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    room: str


class One(Layout, root="/site/"):
    racks = Table("racks/{rack}", key=str, value=RackOne)


class StrictOne(Layout, root="/site/"):
    racks = Table("racks/{rack}", key=str, value=StrictRackOne)


class Two(Layout, root="/site/", version=2):
    racks = Table("racks/{rack}", key=str, value=RackTwo)
    by_asset = Unique("by-asset/{asset}", of=racks, key=str)
    by_room = Index("by-room/{room}/{rack}", of=racks, key=str)


@pytest.fixture(params=["memory", "lmdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_store("memory:" if request.param == "memory" else f"lmdb:{tmp_path}?durability=none") as store:
        yield store


def faults(store: Store) -> list[str]:
    return index_faults(store, Two.bound())


def test_each_version_reads_what_the_other_wrote(store: Store) -> None:
    One(store).racks.insert("old", RackOne("a"))
    Two(store).racks.insert("new", RackTwo("b", "A1"))
    assert list(Two(store).racks.list()) == [("new", RackTwo("b", "A1")), ("old", RackTwo("a", None))]
    assert list(One(store).racks.list()) == [("new", RackOne("b")), ("old", RackOne("a"))]


def test_a_record_of_the_old_version_is_missing_in_the_new_index_until_it_is_rewritten(store: Store) -> None:
    One(store).racks.insert("r1", RackOne("a"))
    assert list(Two(store).by_room.keys("a")) == []
    assert faults(store) == ["b'/site/by-room/a/r1': None instead of (b'', 0)"]

    Two(store).racks.modify("r1", lambda rack: rack)
    assert list(Two(store).by_room.keys("a")) == ["r1"]
    assert faults(store) == []


def test_an_update_by_the_old_version_drops_the_new_field_and_leaves_its_entry(store: Store) -> None:
    Two(store).racks.insert("r1", RackTwo("a", "A1"))
    One(store).racks.modify("r1", lambda rack: RackOne(rack.room))

    assert Two(store).racks.get("r1") == RackTwo("a", None), "what it does not know it does not keep"
    assert Two(store).by_asset.one("A1") == RackTwo("a", None), "the entry still leads to the record"
    assert faults(store) == ["b'/site/by-asset/A1': (b'r1', 0) instead of None"]


def test_a_field_that_the_old_version_moves_is_found_under_its_old_value_only(store: Store) -> None:
    Two(store).racks.insert("r1", RackTwo("a"))
    One(store).racks.put("r1", RackOne("b"))

    assert [list(Two(store).by_room.keys(room)) for room in ("a", "b")] == [["r1"], []]
    assert len(faults(store)) == 2, "one entry too many, one missing"


def test_a_delete_by_the_old_version_leaves_entries_that_lists_pass_over(store: Store) -> None:
    Two(store).racks.insert("r1", RackTwo("a", "A1"))
    One(store).racks.delete("r1")

    assert list(Two(store).by_room.list("a")) == []
    assert Two(store).by_asset.one("A1") is None
    assert len(faults(store)) == 2
    with pytest.raises(UniqueViolationError):
        Two(store).racks.insert("r2", RackTwo("a", "A1"))
    Two(store).racks.insert("r1", RackTwo("a", "A1"))
    assert faults(store) == [], "the same record takes its entries up again"


def test_a_rename_by_the_old_version_keeps_the_field_and_leaves_the_entries_behind(store: Store) -> None:
    Two(store).racks.insert("r1", RackTwo("a", "A1"))
    One(store).racks.rename("r1", "r2")

    assert Two(store).racks.get("r2") == RackTwo("a", "A1"), "a rename moves bytes"
    assert Two(store).by_asset.one("A1") is None
    assert len(faults(store)) == 3, "both entries name the old key, and one is missing for the new"


def test_a_record_class_that_forbids_unknown_fields_refuses_instead_of_dropping_them(store: Store) -> None:
    Two(store).racks.insert("r1", RackTwo("a", "A1"))
    with pytest.raises(CorruptionError):
        StrictOne(store).racks.modify("r1", lambda rack: StrictRackOne("b"))
    assert Two(store).racks.get("r1") == RackTwo("a", "A1")


def test_a_put_by_the_old_version_replaces_the_record_whatever_its_class_forbids(store: Store) -> None:
    Two(store).racks.insert("r1", RackTwo("a", "A1"))
    StrictOne(store).racks.put("r1", StrictRackOne("b"))
    assert Two(store).racks.get("r1") == RackTwo("b", None), "a table without indexes is written without reading"


def test_the_two_versions_exclude_each_other_record_by_record(store: Store) -> None:
    Two(store).racks.insert("r1", RackTwo("a", "A1"))

    def raced(tx: One) -> None:
        found = tx.racks.versioned("r1")
        assert found is not None
        if found.version == 1:
            Two(store).racks.modify("r1", lambda rack: RackTwo("other", rack.asset))
        tx.racks.update("r1", RackOne(found.record.room + "!"))

    One(store).run(raced)
    assert Two(store).racks.require("r1").room == "other!", "no update of either is lost"
