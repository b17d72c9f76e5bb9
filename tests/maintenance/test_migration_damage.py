"""Marks that cannot be read: each is told with a remedy, and the other records go on."""

from collections.abc import Iterator

import pytest

from keyplan.engine import Commit, Delete, MemoryEngine, Put
from keyplan.errors import MigrationRefusedError
from keyplan.maintenance import Conversion, clean_up_migration, migrate, roll_back_migration
from keyplan.maintenance.migration.marks import mark_key
from keyplan.store import Store
from tests.maintenance.evolving import NO_WAIT, Box, Crate, Old, Shelf, Stated, fill, plan, switched
from tests.maintenance.transforming import SPLIT, Order, Placed, Shop, Split, fill_shop

OPTIONS = {"transforms": [SPLIT]}


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(MemoryEngine()) as opened:
        yield opened


def damaged(store: Store, migration: bytes, unit: bytes) -> bytes:
    """Damage the mark of a unit; return its raw key."""
    raw_key = mark_key(migration, unit)
    with store.engine.snapshot() as snapshot:
        assert snapshot.get(raw_key) is not None
    store.engine.commit(Commit((), (Put(raw_key, b"\xc1"),)))
    return raw_key


def removed(store: Store, raw_key: bytes) -> None:
    store.engine.commit(Commit((), (Delete(raw_key),)))


def test_a_mark_that_cannot_be_read_is_left_to_a_person_and_the_others_go_on(store: Store) -> None:
    shop = fill_shop(store)
    given = plan(store, Shop, Split, **OPTIONS)
    migrate(store, given, backoff=NO_WAIT)
    place = damaged(store, given.id, b"/shop/orders/2")
    shop.orders.put(3, Order("c1", ["later"], "no3"))
    report = migrate(store, given, is_switched=True, backoff=NO_WAIT)
    (contest,) = report.contested
    assert contest.old_key == b"/shop/orders/2"
    assert "its mark cannot be read" in contest.reason
    assert "keyplan raw delete" in contest.reason
    assert not report.is_settled
    assert Split(store).orders.require(Placed("c1", 3)).items == ["later"]
    (obstacle,) = plan(store, Shop, Split, **OPTIONS).obstacles
    assert "its mark cannot be read" in obstacle
    removed(store, place)
    assert switched(store, Shop, Split, **OPTIONS).is_settled
    assert clean_up_migration(store, plan(store, Shop, Split, **OPTIONS), backoff=NO_WAIT).is_cleaned


def test_a_mark_without_its_record_that_cannot_be_read_loses_no_deletion(store: Store) -> None:
    shop = fill_shop(store)
    given = plan(store, Shop, Split, **OPTIONS)
    migrate(store, given, backoff=NO_WAIT)
    place = damaged(store, given.id, b"/shop/orders/2")
    shop.orders.delete(2)
    shop.orders.delete(1)
    report = migrate(store, given, is_switched=True, backoff=NO_WAIT)
    assert [contest.old_key for contest in report.contested] == [place]
    assert not report.is_settled
    new = Split(store)
    assert new.orders.get(Placed("c1", 1)) is None
    with pytest.raises(MigrationRefusedError, match="not settled"):
        clean_up_migration(store, given, backoff=NO_WAIT)
    new.orders.delete(Placed("c0", 2))
    removed(store, place)
    assert switched(store, Shop, Split, **OPTIONS).is_settled


def test_a_rollback_removes_nothing_beside_a_mark_that_cannot_be_read(store: Store) -> None:
    fill_shop(store)
    given = plan(store, Shop, Split, **OPTIONS)
    migrate(store, given, is_switched=True, backoff=NO_WAIT)
    place = damaged(store, given.id, b"/shop/orders/2")
    report = roll_back_migration(store, given, backoff=NO_WAIT)
    assert [contest.old_key for contest in report.left][:1] == [place]
    assert (report.is_rolled_back, report.records) == (False, 0)


def test_a_mark_of_a_record_that_waits_where_it_stands_cannot_be_read_and_is_told(store: Store) -> None:
    def enlarged(box: Box) -> Crate:
        if box.name == "bad":
            raise ValueError
        return Crate(box.name, 1)

    old, options = fill(store, 2), {"conversions": {"boxes": Conversion(enlarged, "tests:enlarged")}}
    given = plan(store, Old, Stated, **options)
    old.boxes.put(Shelf("a", 1), Box("bad"))
    (contest,) = migrate(store, given, is_switched=True, backoff=NO_WAIT).contested
    place = damaged(store, given.id, contest.old_key)
    report = migrate(store, given, is_switched=True, backoff=NO_WAIT)
    assert [contest.old_key for contest in report.contested] == [place]
    assert not report.is_settled
    Stated(store).boxes.put(Shelf("a", 1), Crate("good", 1), damaged_ok=True)
    removed(store, place)
    assert migrate(store, given, is_switched=True, backoff=NO_WAIT).is_settled
    assert Stated(store).boxes.require(Shelf("a", 0)).size == 1
