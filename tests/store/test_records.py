"""Single records on a store: what each operation of TableView promises."""

import pytest

from keyplan.engine import ALL_KEYS, Commit, Delete, Put
from keyplan.errors import (
    AlreadyExistsError,
    CorruptionError,
    InvalidKeyError,
    NotFoundError,
    StaleRecordError,
    UniqueViolationError,
)
from keyplan.store import Store
from tests.store.engines import Race
from tests.store.layouts import Blade, BladeKey, Rack, Site

ONE = BladeKey("r1", "1")
TWO = BladeKey("r1", "2")


def test_a_record_is_read_back_as_it_was_written(site: Site) -> None:
    site.racks.insert("r1", Rack("cellar", 48))

    assert site.racks.get("r1") == Rack("cellar", 48)
    assert site.racks.require("r1") == Rack("cellar", 48)


def test_bytes_in_the_engine_are_those_that_the_template_spells(site: Site, store: Store) -> None:
    site.blades.insert(ONE, Blade("s1", ["new"]))

    with store.engine.snapshot() as snapshot:
        record = snapshot.get(b"/site/rack/r1/blades/1")
        assert record is not None
        assert record.value == b'{"serial":"s1","tags":["new"],"watts":0}'
        pointer = snapshot.get(b"/site/by-serial/s1")
        assert pointer is not None
        assert pointer.value == b"rack/r1/blades/1"
        tag = snapshot.get(b"/site/by-tag/new/r1/1")
        assert tag is not None
        assert tag.value == b""


def test_an_absent_record_is_none_and_not_required(site: Site) -> None:
    assert site.racks.get("r1") is None
    assert site.racks.versioned("r1") is None
    with pytest.raises(NotFoundError) as caught:
        site.racks.require("r1")
    assert caught.value.facts == {"table": "racks", "key": "r1"}


@pytest.mark.leaves("damaged-record")
def test_exists_does_not_decode(site: Site, store: Store) -> None:
    store.engine.load([(b"/site/racks/broken", b"not json")])

    assert site.racks.exists("broken")
    assert not site.racks.exists("other")


@pytest.mark.leaves("damaged-record")
def test_stored_bytes_that_do_not_decode_are_named_by_place_and_never_shown(site: Site, store: Store) -> None:
    store.engine.load([(b"/site/racks/broken", b"secret bytes")])

    for read in (
        lambda: site.racks.get("broken"),
        lambda: site.racks.require("broken"),
        lambda: site.racks.get_many(["broken"]),
        lambda: site.racks.versioned("broken"),
        lambda: list(site.racks.list()),
        lambda: site.racks.modify("broken", lambda rack: rack),
    ):
        with pytest.raises(CorruptionError) as caught:
            read()
        assert caught.value.raw_key == b"/site/racks/broken".hex()
        assert caught.value.table == "racks"
        assert "secret" not in str(caught.value)


def test_versioned_gives_revisions_version_and_lease(site: Site) -> None:
    first = site.racks.insert("r1", Rack("cellar"))
    site.racks.insert("r2", Rack("cellar"))
    third = site.racks.put("r1", Rack("attic"))

    found = site.racks.versioned("r1")

    assert found is not None
    assert (found.key, found.record) == ("r1", Rack("attic"))
    assert (found.create_revision, found.revision, found.version, found.lease) == (first, third, 2, 0)


def test_many_are_read_in_the_order_asked(site: Site) -> None:
    site.racks.insert("a", Rack("1"))
    site.racks.insert("b", Rack("2"))

    assert site.racks.get_many(["b", "x", "a", "b"]) == [Rack("2"), None, Rack("1"), Rack("2")]
    assert site.racks.require_many(iter(["b", "a"])) == [Rack("2"), Rack("1")]
    with pytest.raises(NotFoundError, match="'y'"):
        site.racks.require_many(["a", "y", "z"])


def test_many_are_read_from_one_state(site: Site, store: Store) -> None:
    site.racks.insert("a", Rack("1"))

    with store.snapshot() as pinned:
        site.racks.put("a", Rack("2"))
        assert Site(pinned).racks.get_many(["a", "a"]) == [Rack("1"), Rack("1")]


def test_insert_refuses_a_taken_key_and_names_the_revision_there(site: Site) -> None:
    revision = site.racks.insert("r1", Rack("cellar"))

    with pytest.raises(AlreadyExistsError) as caught:
        site.racks.insert("r1", Rack("attic"))

    assert caught.value.facts == {"table": "racks", "key": "r1", "revision": revision}
    assert site.racks.get("r1") == Rack("cellar")


def test_insert_refuses_a_taken_unique_entry_and_names_the_holder(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1"))

    with pytest.raises(UniqueViolationError) as caught:
        site.blades.insert(TWO, Blade("s1"))

    assert caught.value.facts == {"index": "by_serial", "key": "s1", "holder": ONE}
    assert not site.blades.exists(TWO)


def test_insert_is_one_commit_without_a_read(site: Site, race: Race) -> None:
    site.blades.insert(ONE, Blade("s1", ["x"]))

    assert len(race.commits) == 1
    assert len(race.commits[0].guards) == 2
    assert len(race.commits[0].mutations) == 3


def test_insert_goes_through_where_its_own_unique_entry_was_left_behind(site: Site, store: Store) -> None:
    store.engine.load([(b"/site/by-serial/s1", b"rack/r1/blades/1")])

    site.blades.insert(ONE, Blade("s1"))

    assert site.by_serial.one("s1") == Blade("s1")


def test_put_writes_whether_or_not_there_is_a_record(site: Site) -> None:
    site.blades.put(ONE, Blade("s1", ["a"]))
    site.blades.put(ONE, Blade("s2", ["b"]))

    assert site.blades.get(ONE) == Blade("s2", ["b"])
    assert site.by_serial.key_of("s1") is None
    assert site.by_serial.key_of("s2") == ONE
    assert list(site.by_tag.keys("a")) == []
    assert list(site.by_tag.keys("b")) == [ONE]


def test_put_of_a_table_without_indexes_does_not_read(site: Site, race: Race) -> None:
    site.racks.put("r1", Rack("cellar"))

    assert race.commits[-1].guards == ()


def test_put_refuses_a_unique_entry_of_another_record(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1"))
    site.blades.insert(TWO, Blade("s2"))

    with pytest.raises(UniqueViolationError) as caught:
        site.blades.put(TWO, Blade("s1"))

    assert caught.value.holder == ONE
    assert site.blades.get(TWO) == Blade("s2")


@pytest.mark.parametrize("table", ["racks", "blades"])
def test_put_at_an_expected_revision(site: Site, table: str) -> None:
    view = site.view(table)
    key, record = ("r1", Rack("x")) if table == "racks" else (ONE, Blade("s1"))
    first = view.put(key, record, expected_revision=0)
    second = view.put(key, record, expected_revision=first)

    with pytest.raises(StaleRecordError) as caught:
        view.put(key, record, expected_revision=first)

    assert caught.value.facts == {
        "table": table,
        "key": key,
        "expected_revision": first,
        "actual_revision": second,
    }


def test_expecting_absence_of_a_record_that_is_there_is_stale(site: Site) -> None:
    revision = site.racks.insert("r1", Rack("x"))

    with pytest.raises(StaleRecordError) as caught:
        site.racks.put("r1", Rack("y"), expected_revision=0)

    assert (caught.value.expected_revision, caught.value.actual_revision) == (0, revision)


def test_expecting_a_revision_of_an_absent_record_is_stale(site: Site) -> None:
    with pytest.raises(StaleRecordError) as caught:
        site.racks.put("r1", Rack("y"), expected_revision=5)

    assert (caught.value.expected_revision, caught.value.actual_revision) == (5, 0)


def test_update_replaces_and_moves_index_entries(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1", ["a", "b"]))

    site.blades.update(ONE, Blade("s1", ["b", "c"]))

    assert [key for key in "abc" if list(site.by_tag.keys(key))] == ["b", "c"]
    assert site.by_serial.one("s1") == Blade("s1", ["b", "c"])


def test_update_of_an_absent_record_is_not_found(site: Site) -> None:
    with pytest.raises(NotFoundError):
        site.blades.update(ONE, Blade("s1"))
    with pytest.raises(NotFoundError):
        site.blades.update(ONE, Blade("s1"), expected_revision=3)


def test_update_at_an_expected_revision(site: Site) -> None:
    first = site.blades.insert(ONE, Blade("s1"))
    second = site.blades.update(ONE, Blade("s2"), expected_revision=first)

    with pytest.raises(StaleRecordError) as caught:
        site.blades.update(ONE, Blade("s3"), expected_revision=first)

    assert (caught.value.expected_revision, caught.value.actual_revision) == (first, second)


def test_update_refuses_a_unique_entry_of_another_record(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1"))
    site.blades.insert(TWO, Blade("s2"))

    with pytest.raises(UniqueViolationError, match="'s1'"):
        site.blades.update(TWO, Blade("s1"))


def test_modify_replaces_the_record_by_what_the_function_makes_of_it(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1", watts=5))

    site.blades.modify(ONE, lambda blade: Blade(blade.serial, ["hot"], blade.watts * 2))

    assert site.blades.get(ONE) == Blade("s1", ["hot"], 10)
    assert list(site.by_tag.keys("hot")) == [ONE]
    with pytest.raises(NotFoundError):
        site.blades.modify(TWO, lambda blade: blade)


def test_delete_removes_the_record_and_its_entries(site: Site, store: Store) -> None:
    site.blades.insert(ONE, Blade("s1", ["a"]))

    site.blades.delete(ONE)

    with store.engine.snapshot() as snapshot:
        assert [entry.key for entry in snapshot.scan(ALL_KEYS)] == []


def test_delete_of_an_absent_record_is_nothing_and_keeps_the_revision(site: Site, store: Store) -> None:
    revision = site.racks.insert("r1", Rack("x"))

    assert site.racks.delete("r2") == revision
    assert site.blades.delete(ONE) == revision
    assert store.revision == revision


def test_delete_of_an_absent_record_can_be_refused(site: Site) -> None:
    with pytest.raises(NotFoundError):
        site.racks.delete("r1", missing_ok=False)
    with pytest.raises(NotFoundError):
        site.blades.delete(ONE, missing_ok=False)


def test_delete_at_an_expected_revision(site: Site) -> None:
    first = site.racks.insert("r1", Rack("x"))
    second = site.racks.put("r1", Rack("y"))

    with pytest.raises(StaleRecordError) as caught:
        site.racks.delete("r1", expected_revision=first)
    assert (caught.value.expected_revision, caught.value.actual_revision) == (first, second)
    site.racks.delete("r1", expected_revision=second)
    with pytest.raises(StaleRecordError) as caught:
        site.racks.delete("r1", expected_revision=second)
    assert (caught.value.expected_revision, caught.value.actual_revision) == (second, 0)


def test_delete_leaves_a_unique_entry_that_points_at_another_record(site: Site, store: Store) -> None:
    site.blades.insert(ONE, Blade("s1"))
    store.engine.load([(b"/site/rack/r1/blades/2", b'{"serial":"s1"}')])

    site.blades.delete(TWO)

    assert site.by_serial.key_of("s1") == ONE


def test_rename_moves_the_record_and_its_entries(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1", ["a"]))

    site.blades.rename(ONE, BladeKey("r9", "7"))

    assert not site.blades.exists(ONE)
    assert site.blades.get(BladeKey("r9", "7")) == Blade("s1", ["a"])
    assert site.by_serial.key_of("s1") == BladeKey("r9", "7")
    assert list(site.by_tag.keys("a")) == [BladeKey("r9", "7")]


def test_rename_is_one_commit_that_deletes_and_puts(site: Site, race: Race) -> None:
    site.racks.insert("r1", Rack("x"))

    site.racks.rename("r1", "r2")

    assert set(race.commits[-1].mutations) == {
        Delete(b"/site/racks/r1"),
        Put(b"/site/racks/r2", b'{"room":"x","height":42}'),
    }


def test_rename_to_a_taken_key_is_refused_and_back_again_is_not(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1"))
    site.blades.insert(TWO, Blade("s2"))

    with pytest.raises(AlreadyExistsError) as caught:
        site.blades.rename(ONE, TWO)
    assert caught.value.key == TWO
    site.blades.rename(ONE, BladeKey("r1", "3"))
    site.blades.rename(BladeKey("r1", "3"), ONE)
    assert site.by_serial.key_of("s1") == ONE
    assert site.blades.get(TWO) == Blade("s2")


def test_rename_of_an_absent_record_is_not_found(site: Site) -> None:
    with pytest.raises(NotFoundError):
        site.racks.rename("r1", "r2")
    with pytest.raises(NotFoundError):
        site.racks.rename("r1", "r1")


def test_rename_to_its_own_key_changes_nothing(site: Site) -> None:
    revision = site.racks.insert("r1", Rack("x"))

    assert site.racks.rename("r1", "r1") == revision


def test_writes_return_the_revision_of_their_commit(site: Site, store: Store) -> None:
    revisions = [
        site.blades.insert(ONE, Blade("s1")),
        site.blades.put(ONE, Blade("s2")),
        site.blades.update(ONE, Blade("s3")),
        site.blades.modify(ONE, lambda blade: blade),
        site.blades.rename(ONE, TWO),
        site.blades.delete(TWO),
    ]

    assert revisions == [1, 2, 3, 4, 5, 6]
    assert store.revision == site.revision == 6


def test_a_rewrite_that_changes_nothing_restores_missing_entries(site: Site, store: Store) -> None:
    site.blades.insert(ONE, Blade("s1", ["a", "b"]))
    store.engine.commit(Commit((), (Delete(b"/site/by-serial/s1"), Delete(b"/site/by-tag/a/r1/1"))))
    assert site.by_serial.one("s1") is None

    site.blades.put(ONE, Blade("s1", ["a", "b"]))

    assert site.by_serial.one("s1") == Blade("s1", ["a", "b"])
    assert list(site.by_tag.keys("a")) == [ONE]


def test_a_rewrite_writes_no_entry_that_stands(site: Site, race: Race) -> None:
    site.blades.insert(ONE, Blade("s1", ["a", "b"]))

    site.blades.put(ONE, Blade("s1", ["a", "b"], 9))

    assert list(race.commits[-1].mutations) == [
        Put(b"/site/rack/r1/blades/1", b'{"serial":"s1","tags":["a","b"],"watts":9}')
    ]


def test_a_rewrite_does_not_steal_an_entry_that_another_record_holds(site: Site, store: Store) -> None:
    # As after a unique index was added to records that are not unique.
    site.blades.insert(ONE, Blade("s1"))
    store.engine.load([(b"/site/rack/r1/blades/2", b'{"serial":"s1"}')])

    with pytest.raises(UniqueViolationError) as caught:
        site.blades.update(TWO, Blade("s1", watts=3))
    assert caught.value.holder == ONE
    site.blades.delete(TWO)


def test_keys_are_checked_before_anything_is_written(site: Site, store: Store) -> None:
    revision = site.racks.insert("r1", Rack("x"))

    for write in (
        lambda: site.racks.insert("a/b", Rack("x")),
        lambda: site.racks.put("", Rack("x")),
        lambda: site.racks.rename("r1", "a/b"),
        lambda: site.racks.delete("a/b"),
        lambda: site.blades.insert(ONE, Blade("a/b")),
        lambda: site.blades.insert(ONE, Blade("s1", ["good", "a/b"])),
        lambda: site.racks.list("a/b"),
        lambda: site.racks.get_many(["r1", "a/b"]),
    ):
        with pytest.raises(InvalidKeyError):
            write()
    assert store.revision == revision


def test_names_equal_to_a_literal_of_a_template_are_just_names(site: Site) -> None:
    site.racks.insert("racks", Rack("1"))
    site.racks.insert("rack", Rack("2"))
    site.blades.insert(BladeKey("blades", "blades"), Blade("by-serial", ["by-tag", "site"]))

    assert dict(site.racks.list()) == {"rack": Rack("2"), "racks": Rack("1")}
    assert dict(site.blades.list("blades")) == {BladeKey("blades", "blades"): Blade("by-serial", ["by-tag", "site"])}
    assert site.by_serial.key_of("by-serial") == BladeKey("blades", "blades")
    assert list(site.by_tag.keys("by-tag")) == [BladeKey("blades", "blades")]


def test_a_record_without_a_value_is_there_or_not(site: Site) -> None:
    site.flags.insert("on", None)

    assert site.flags.exists("on")
    assert not site.flags.exists("off")
    assert list(site.flags.keys()) == ["on"]
