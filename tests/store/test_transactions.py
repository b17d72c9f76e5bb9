"""Transactions: one state read, own writes seen, all written together or nothing."""

# ruff: noqa: PT012  # Why: what raises is the end of a transaction's block.

from collections.abc import Callable
from uuid import UUID

import pytest

from keyplan.engine import KeyAbsent, KeyUnchanged, Put, RangeEmpty, RangeUnchanged
from keyplan.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
    StaleRecordError,
    UniqueViolationError,
    UnsupportedByEngineError,
)
from keyplan.store import Store
from tests.store.engines import Race
from tests.store.layouts import Blade, BladeKey, EventKey, Events, Rack, Site

ONE = BladeKey("r1", "1")
TWO = BladeKey("r1", "2")
THREE = BladeKey("r1", "3")


# ---- all or nothing -------------------------------------------------------------------------------------------------


def test_everything_is_written_at_one_revision(site: Site, store: Store) -> None:
    with site.transaction() as tx:
        assert tx.racks.insert("r1", Rack("cellar")) == 0
        assert tx.blades.insert(ONE, Blade("s1", ["a"])) == 0
        assert site.racks.get("r1") is None
        assert tx.revision == 0

    assert tx.revision == store.revision == 1
    assert site.racks.get("r1") == Rack("cellar")
    assert site.by_serial.key_of("s1") == ONE


def test_an_error_inside_the_block_writes_nothing(site: Site, store: Store) -> None:
    with pytest.raises(ZeroDivisionError), site.transaction() as tx:
        tx.racks.insert("r1", Rack("cellar"))
        raise ZeroDivisionError

    assert store.revision == 0
    assert tx.revision == 0


def test_a_transaction_that_ended_refuses_everything(site: Site) -> None:
    with site.transaction() as tx:
        tx.racks.insert("r1", Rack("cellar"))
        listing = tx.racks.list()
        assert next(listing)[0] == "r1"

    for use in (
        lambda: tx.racks.get("r1"),
        lambda: tx.racks.get_many(["r1"]),
        lambda: tx.racks.put("r1", Rack("x")),
        lambda: tx.racks.delete("r2"),
        lambda: list(tx.racks.list()),
        tx.ports.next,
        lambda: tx.by_serial.one("s"),
        lambda: tx.transaction().__enter__(),
    ):
        with pytest.raises(InvalidInputError, match="the transaction has ended"):
            use()


def test_a_transaction_can_be_committed_before_its_block_ends(store: Store) -> None:
    with store.transaction() as tx:
        Site(tx).racks.insert("r1", Rack("x"))
        assert tx.commit() == 1

    assert tx.revision == 1
    with pytest.raises(InvalidInputError):
        tx.commit()


def test_a_transaction_that_wrote_nothing_sends_nothing(site: Site, race: Race) -> None:
    revision = site.racks.insert("r1", Rack("x"))
    sent = len(race.commits)

    with site.transaction() as tx:
        tx.racks.get("r1")
        list(tx.blades.list())

    assert len(race.commits) == sent
    assert tx.revision == revision


@pytest.mark.leaves("key-outside")
def test_a_layout_bound_twice_and_two_layouts_share_one_transaction(store: Store) -> None:
    key = EventKey(UUID(int=5), 7)
    with store.transaction() as tx:
        Site(tx).racks.insert("r1", Rack("x"))
        assert Site(tx).racks.get("r1") == Rack("x")
        Events(tx).events.insert(key, b"seen")

    assert store.revision == 1
    assert Events(store).events.get(key) == b"seen"


def test_a_transaction_inside_a_transaction_joins_it(site: Site, store: Store) -> None:
    def add(site: Site, name: str) -> None:
        with site.transaction() as tx:
            tx.racks.insert(name, Rack(name))

    with site.transaction() as tx:
        add(tx, "a")
        tx.run(lambda inner: inner.racks.insert("b", Rack("b")))
        assert list(tx.racks.keys()) == ["a", "b"]
        assert site.racks.count() == 0

    assert store.revision == 1


def test_a_failed_inner_transaction_undoes_its_own_writes_only(site: Site) -> None:
    with site.transaction() as tx:
        tx.blades.insert(ONE, Blade("s1", ["a"]))
        with pytest.raises(ZeroDivisionError), tx.transaction() as inner:
            inner.blades.put(ONE, Blade("s2", ["b"]))
            inner.blades.insert(TWO, Blade("s1"))
            inner.ports.next()
            raise ZeroDivisionError
        assert tx.blades.get(ONE) == Blade("s1", ["a"])
        assert list(tx.by_serial.keys()) == [ONE]
        assert tx.ports.peek() == 33000

    assert list(site.blades.keys()) == [ONE]
    assert list(site.by_tag.keys()) == [ONE]


def test_a_snapshot_inside_a_transaction_sees_its_writes_and_may_not_write(site: Site) -> None:
    with site.transaction() as tx:
        tx.racks.insert("r1", Rack("x"))
        with tx.snapshot() as pinned:
            assert pinned.racks.get("r1") == Rack("x")
            with pytest.raises(UnsupportedByEngineError):
                pinned.racks.delete("r1")


# ---- reading --------------------------------------------------------------------------------------------------------


def test_all_reads_see_the_state_of_the_first(site: Site) -> None:
    site.racks.insert("r1", Rack("old"))

    with pytest.raises(CommitConflictError), site.transaction() as tx:
        tx.racks.get("r1")
        site.racks.put("r1", Rack("new"))
        site.racks.insert("r2", Rack("new"))
        assert tx.racks.get("r1") == Rack("old")
        assert list(tx.racks.keys()) == ["r1"]
        assert tx.racks.get_many(["r1", "r2"]) == [Rack("old"), None]
        tx.flags.insert("done", None)


def test_own_writes_are_read_by_key(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1"))

    with site.transaction() as tx:
        tx.blades.update(ONE, Blade("s2"))
        tx.blades.insert(TWO, Blade("s1"))
        assert tx.blades.get(ONE) == Blade("s2")
        assert tx.blades.exists(TWO)
        assert tx.blades.get_many([TWO, ONE]) == [Blade("s1"), Blade("s2")]
        assert tx.by_serial.key_of("s1") == TWO
        assert tx.by_serial.one("s2") == Blade("s2")
        tx.blades.delete(TWO)
        assert tx.by_serial.one("s1") is None
        assert tx.blades.get(TWO) is None


def test_own_writes_stand_in_lists_in_their_places(site: Site) -> None:
    for name in ("b", "d", "f"):
        site.racks.insert(name, Rack("stored"))

    with site.transaction() as tx:
        tx.racks.insert("a", Rack("own"))
        tx.racks.insert("c", Rack("own"))
        tx.racks.put("d", Rack("own"))
        tx.racks.delete("f")
        tx.racks.insert("g", Rack("own"))
        tx.racks.rename("b", "h")
        assert [(name, rack.room) for name, rack in tx.racks.list()] == [
            ("a", "own"),
            ("c", "own"),
            ("d", "own"),
            ("g", "own"),
            ("h", "stored"),
        ]
        assert list(tx.racks.keys(reverse=True)) == ["h", "g", "d", "c", "a"]
        assert list(tx.racks.keys(limit=2)) == ["a", "c"]
        assert list(tx.racks.keys(limit=2, reverse=True)) == ["h", "g"]
        assert list(tx.racks.keys(at_least="c", below="g")) == ["c", "d"]
        assert tx.racks.count() == 5
        assert [key for key, _ in tx.racks.page(limit=3).records] == ["a", "c", "d"]


def test_own_writes_stand_in_index_lists(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1", ["x"]))
    site.blades.insert(TWO, Blade("s2", ["x"]))

    with site.transaction() as tx:
        tx.blades.delete(ONE)
        tx.blades.update(TWO, Blade("s2", ["y"]))
        tx.blades.insert(THREE, Blade("s0", ["x", "y"]))
        assert list(tx.by_tag.keys("x")) == [THREE]
        assert list(tx.by_tag.list("y")) == [(TWO, Blade("s2", ["y"])), (THREE, Blade("s0", ["x", "y"]))]
        assert list(tx.by_tag.keys("y", reverse=True)) == [THREE, TWO]
        assert list(tx.by_serial.keys()) == [THREE, TWO]
        assert tx.by_tag.count() == 3


def test_a_list_shows_the_writes_made_before_it_began(site: Site) -> None:
    for name in ("a", "b", "c"):
        site.racks.insert(name, Rack("stored"))

    with site.transaction() as tx:
        names = []
        for name in tx.racks.keys():  # noqa: SIM118  # Why: a table is no dict.
            names.append(name)
            tx.racks.delete(name)
            tx.racks.insert(f"{name}2", Rack("own"))
        assert names == ["a", "b", "c"]
        assert list(tx.racks.keys()) == ["a2", "b2", "c2"]

    assert list(site.racks.keys()) == ["a2", "b2", "c2"]


def test_an_own_write_has_no_revision_yet(site: Site) -> None:
    site.racks.insert("r1", Rack("x"))

    with site.transaction() as tx:
        tx.racks.put("r1", Rack("y"))
        found = tx.racks.versioned("r1")
        assert found is not None
        assert (found.record, found.create_revision, found.revision, found.version) == (Rack("y"), 0, 0, 0)


def test_what_is_done_to_a_record_after_writing_it_is_not_written(site: Site) -> None:
    tags = ["a"]
    blade = Blade("s1", tags)

    with site.transaction() as tx:
        tx.blades.insert(ONE, blade)
        tags.append("b")
        assert tx.blades.get(ONE) == Blade("s1", ["a"])

    assert site.blades.get(ONE) == Blade("s1", ["a"])


# ---- what is sent ---------------------------------------------------------------------------------------------------


def test_two_writes_of_one_record_are_one(site: Site, race: Race) -> None:
    site.blades.insert(ONE, Blade("s1", ["a"]))

    with site.transaction() as tx:
        tx.blades.update(ONE, Blade("s2", ["b"]))
        tx.blades.update(ONE, Blade("s1", ["a"], 7))

    assert list(race.commits[-1].mutations) == [
        Put(b"/site/rack/r1/blades/1", b'{"serial":"s1","tags":["a"],"watts":7}')
    ]
    assert site.blades.versioned(ONE).version == 2  # type: ignore[union-attr]  # Why: it is there.


def test_insert_and_delete_of_one_record_are_nothing(site: Site, race: Race, store: Store) -> None:
    with site.transaction() as tx:
        tx.blades.insert(ONE, Blade("s1", ["a"]))
        tx.blades.delete(ONE)
        tx.racks.insert("r1", Rack("x"))

    assert [mutation.key for mutation in race.commits[-1].mutations if isinstance(mutation, Put)] == [b"/site/racks/r1"]
    assert len(race.commits[-1].mutations) == 1


def test_delete_and_insert_of_one_record_are_one_write(site: Site, race: Race) -> None:
    site.blades.insert(ONE, Blade("s1", ["a"]))

    with site.transaction() as tx:
        tx.blades.delete(ONE)
        tx.blades.insert(ONE, Blade("s1", ["b"]))

    assert site.blades.get(ONE) == Blade("s1", ["b"])
    assert {mutation.key for mutation in race.commits[-1].mutations if not hasattr(mutation, "range")} == {
        b"/site/rack/r1/blades/1",
        b"/site/by-tag/a/r1/1",
        b"/site/by-tag/b/r1/1",
    }


def test_two_records_can_swap_a_unique_entry(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1"))
    site.blades.insert(TWO, Blade("s2"))

    with site.transaction() as tx:
        tx.blades.update(ONE, Blade(None))
        tx.blades.update(TWO, Blade("s1"))
        tx.blades.update(ONE, Blade("s2"))

    assert site.by_serial.key_of("s1") == TWO
    assert site.by_serial.key_of("s2") == ONE


def test_a_unique_entry_cannot_be_taken_before_it_is_given_up(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1"))

    with site.transaction() as tx:
        with pytest.raises(UniqueViolationError) as caught:
            tx.blades.insert(TWO, Blade("s1"))
        assert caught.value.holder == ONE
        tx.blades.insert(TWO, Blade("s2"))
        with pytest.raises(UniqueViolationError) as caught:
            tx.blades.insert(THREE, Blade("s2"))
        assert caught.value.holder == TWO
        assert not tx.blades.exists(THREE)

    assert list(site.by_serial.keys()) == [ONE, TWO]


def test_a_record_renamed_away_and_back_stays_where_it_was(site: Site) -> None:
    site.blades.insert(ONE, Blade("s1", ["a"]))

    with site.transaction() as tx:
        tx.blades.rename(ONE, TWO)
        tx.blades.insert(ONE, Blade("s3"))
        with pytest.raises(AlreadyExistsError):
            tx.blades.rename(TWO, ONE)
        tx.blades.delete(ONE)
        tx.blades.rename(TWO, ONE)

    assert dict(site.blades.list()) == {ONE: Blade("s1", ["a"])}
    assert site.by_serial.key_of("s1") == ONE


def test_a_rename_that_breaks_a_unique_index_leaves_the_record_where_it_was(site: Site, store: Store) -> None:
    store.engine.load([(b"/site/by-serial/s1", b"rack/r9/blades/9"), (b"/site/rack/r1/blades/1", b'{"serial":"s1"}')])

    with site.transaction() as tx:
        with pytest.raises(UniqueViolationError):
            tx.blades.rename(ONE, TWO)
        assert tx.blades.exists(ONE)
        assert not tx.blades.exists(TWO)

    site.blades.delete(ONE)
    site.blades.insert(BladeKey("r9", "9"), Blade("s1"))


def test_reads_become_guards_and_blind_writes_do_not(site: Site, race: Race) -> None:
    revision = site.racks.insert("r1", Rack("x"))

    with site.transaction() as tx:
        tx.racks.get("r1")
        tx.racks.exists("r2")
        tx.racks.put("r3", Rack("blind"))
        tx.racks.delete("r4")

    assert set(race.commits[-1].guards) == {
        KeyUnchanged(b"/site/racks/r1", revision),
        KeyAbsent(b"/site/racks/r2"),
    }


def test_a_list_guards_what_was_consumed_of_it(site: Site, race: Race, store: Store) -> None:
    for name in ("a", "b", "c"):
        site.racks.insert(name, Rack("x"))
    keys = (b"/site/racks/a", b"/site/racks/b", b"/site/racks/c")

    with site.transaction() as tx:
        assert list(tx.racks.keys(limit=2)) == ["a", "b"]
        assert list(tx.racks.keys(limit=1, reverse=True)) == ["c"]
        assert list(tx.flags.keys()) == []
        tx.racks.keys()
        tx.ports.next()

    ranges = [guard for guard in race.commits[-1].guards if isinstance(guard, RangeUnchanged | RangeEmpty)]
    assert [(guard.range.start, guard.range.end, getattr(guard, "keys", ())) for guard in ranges] == [
        (b"/site/racks/", b"/site/racks/b\x00", keys[:2]),
        (b"/site/racks/c", b"/site/racks0", keys[2:]),
        (b"/site/flags/", b"/site/flags0", ()),
    ]


# ---- expectations inside a transaction ------------------------------------------------------------------------------


def test_missing_and_taken_records_are_told_at_once(site: Site) -> None:
    site.racks.insert("r1", Rack("x"))

    with site.transaction() as tx:
        with pytest.raises(AlreadyExistsError):
            tx.racks.insert("r1", Rack("y"))
        with pytest.raises(NotFoundError):
            tx.racks.update("r2", Rack("y"))
        tx.racks.delete("r1")
        with pytest.raises(NotFoundError):
            tx.racks.delete("r1", missing_ok=False)
        with pytest.raises(NotFoundError):
            tx.racks.modify("r1", lambda rack: rack)
        tx.racks.insert("r1", Rack("z"))
        with pytest.raises(AlreadyExistsError):
            tx.racks.insert("r1", Rack("y"))

    assert site.racks.get("r1") == Rack("z")


def test_an_expected_revision_is_that_before_the_transaction(site: Site) -> None:
    revision = site.racks.insert("r1", Rack("x"))

    with site.transaction() as tx:
        tx.racks.put("r1", Rack("blind"))
        tx.racks.put("r1", Rack("y"), expected_revision=revision)
        tx.racks.update("r1", Rack("z"), expected_revision=revision)
        with pytest.raises(StaleRecordError) as caught:
            tx.racks.delete("r1", expected_revision=revision + 1)
        assert (caught.value.expected_revision, caught.value.actual_revision) == (revision + 1, revision)
        tx.racks.insert("r2", Rack("own"))
        with pytest.raises(StaleRecordError, match="the transaction itself"):
            tx.racks.put("r2", Rack("own"), expected_revision=0)

    assert site.racks.get("r1") == Rack("z")


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(lambda tx: tx.racks.insert("taken", Rack("x")), id="taken"),
        pytest.param(lambda tx: tx.racks.update("absent", Rack("x")), id="absent"),
        pytest.param(lambda tx: tx.blades.insert(TWO, Blade("s1")), id="held"),
        pytest.param(lambda tx: tx.racks.put("taken", Rack("x"), expected_revision=99), id="stale"),
    ],
)
def test_an_error_that_is_caught_is_a_premise_like_a_read(site: Site, seen: Callable[[Site], object]) -> None:
    site.racks.insert("taken", Rack("x"))
    site.blades.insert(ONE, Blade("s1"))

    with pytest.raises(CommitConflictError), site.transaction() as tx:
        with pytest.raises((AlreadyExistsError, NotFoundError, UniqueViolationError, StaleRecordError)):
            seen(tx)
        tx.flags.insert("decided", None)
        site.racks.put("taken", Rack("changed"))
        site.racks.put("absent", Rack("changed"))
        site.blades.update(ONE, Blade("s9"))

    assert not site.flags.exists("decided")
