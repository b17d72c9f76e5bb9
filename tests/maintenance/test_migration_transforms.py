"""Records of which functions make others, keys included: planned, carried over beside writers of both layouts, cleaned up."""

from contextlib import suppress
from itertools import count
from typing import Any

import msgspec
import pytest

from keyplan.engine import Commit, MemoryEngine, Put
from keyplan.errors import CommitOutcomeUnknownError, EngineUnavailableError, MigrationRefusedError
from keyplan.layout import Layout, Table
from keyplan.maintenance import Keyed, Transform, check, clean_up_migration, migrate
from keyplan.store import Store
from keyplan.testing.faults import FailingEngine
from tests.maintenance.evolving import NO_WAIT, own, plan, switched
from tests.maintenance.layouts import dump
from tests.maintenance.transforming import (
    JOIN,
    LINES,
    SPLIT,
    Guest,
    Joined,
    Line,
    Lined,
    Numbered,
    Order,
    Placed,
    Sharing,
    Shop,
    Split,
    fill_shop,
)

STORIES: dict[str, tuple[type[Layout], dict[str, Any]]] = {
    "split": (Split, {"transforms": [SPLIT]}),
    "lines": (Lined, {"transforms": [LINES], "accepts": ["none:orders"]}),
    "join": (Joined, {"transforms": [JOIN]}),
}


@pytest.fixture
def shop(store: Store) -> Shop:
    return fill_shop(store)


def finished(store: Store, new: type[Layout], **options: Any) -> None:
    report = switched(store, Shop, new, **options)
    assert report.is_settled, report
    cleaned = clean_up_migration(store, plan(store, Shop, new, **options), backoff=NO_WAIT)
    assert cleaned.is_cleaned, cleaned
    assert list(check(store, new(store))) == []


# ---- what becomes of records -------------------------------------------------------------------------------------------


def test_a_key_gets_another_field(store: Store, shop: Shop) -> None:
    migrate(store, plan(store, Shop, Sharing, transforms=[SPLIT]), backoff=NO_WAIT)
    # Programs of both layouts go on, and a unique name serves the old ones as long as they are there.
    assert shop.by_number.key_of("no1") == 1
    shop.orders.put(1, Order("c9", ["x"], "no1"))
    new = Sharing(store)
    assert new.orders.require(Placed("c1", 1)).items == ["i0"]
    finished(store, Sharing, transforms=[SPLIT])
    assert new.orders.get(Placed("c1", 1)) is None
    assert new.by_number.key_of("no1") == Placed("c9", 1)
    assert [key for key, _ in new.orders.list()] == [
        Placed("c0", 0),
        Placed("c0", 2),
        Placed("c1", 3),
        Placed("c9", 1),
    ]
    assert not [key for key in own(store) if b"by-customer" in key or b"/orders/" in key]
    assert not [key for key in dump(store) if key[:3] == b"\x00km" and key[3:4] in b"mo"]


def test_a_record_becomes_several_or_none_with_consent(store: Store, shop: Shop) -> None:
    (obstacle,) = plan(store, Shop, Lined, transforms=[LINES]).obstacles
    assert "makes nothing of 1 records (/shop/orders/0)" in obstacle
    assert "--accept none:orders" in obstacle
    options = {"transforms": [LINES], "accepts": ["none:orders"]}
    report = migrate(store, plan(store, Shop, Lined, **options), backoff=NO_WAIT)
    assert report.counts == {"copied": 3, "left out": 1}
    shop.orders.put(3, Order("c1", ["only"], "no3"))
    finished(store, Lined, **options)
    new = Lined(store)
    assert dict(new.lines.list()) == {
        Numbered(1, 0): Line("i0"),
        Numbered(2, 0): Line("i0"),
        Numbered(2, 1): Line("i1"),
        Numbered(3, 0): Line("only"),
    }
    assert new.by_item.count("i0") == 2


def test_two_tables_become_one(store: Store, shop: Shop) -> None:
    migrate(store, plan(store, Shop, Joined, transforms=[JOIN]), backoff=NO_WAIT)
    shop.guests.put(0, Guest("late"))
    shop.guests.delete(1)
    finished(store, Joined, transforms=[JOIN])
    new = Joined(store)
    assert {key: whole.note for key, whole in new.orders.list()} == {0: "late", 1: "", 2: "", 3: "note3"}
    assert not [key for key in own(store) if b"/guests/" in key or b"/orders/" in key]


def test_a_guest_without_an_order_is_told_before_anything_is_written(store: Store, shop: Shop) -> None:
    shop.guests.insert(9, Guest("alone"))
    before = dump(store)
    (obstacle,) = plan(store, Shop, Joined, transforms=[JOIN]).obstacles
    assert "makes nothing of 1 records (/shop/orders/9)" in obstacle
    assert dump(store) == before
    finished(store, Joined, transforms=[JOIN], accepts=["none:orders"])
    assert own(store)[b"/shop/notes/n"] == b"note"
    assert Joined(store).orders.get(9) is None


# ---- writers of both layouts --------------------------------------------------------------------------------------------


def test_a_new_record_that_was_changed_is_ahead_and_one_changed_on_both_sides_is_left(store: Store, shop: Shop) -> None:
    migrate(store, plan(store, Shop, Split, transforms=[SPLIT]), backoff=NO_WAIT)
    new = Split(store)
    new.orders.put(Placed("c0", 0), Order("c0", ["new"], "no0"))
    new.orders.put(Placed("c0", 2), Order("c0", ["new"], "no2"))
    shop.orders.put(2, Order("c0", ["old"], "no2"))
    report = switched(store, Shop, Split, transforms=[SPLIT])
    assert [(contest.old_key, contest.new_key) for contest in report.contested] == [
        (b"/shop/orders/2", b"/shop/placed/c0/2")
    ]
    assert report.counts["contested"] == 1
    assert new.orders.require(Placed("c0", 0)).items == ["new"]
    shop.orders.delete(2)
    shop.orders.put(2, new.orders.require(Placed("c0", 2)))
    finished(store, Split, transforms=[SPLIT])


def test_a_record_that_went_takes_all_that_was_made_of_it_along(store: Store, shop: Shop) -> None:
    options = {"transforms": [LINES], "accepts": ["none:orders"]}
    migrate(store, plan(store, Shop, Lined, **options), backoff=NO_WAIT)
    shop.orders.delete(2)
    finished(store, Lined, **options)
    assert [key.order for key, _ in Lined(store).lines.list()] == [1, 3, 3, 3]


def test_two_orders_that_exchange_their_unique_numbers_do_not_wait_for_one_another(store: Store, shop: Shop) -> None:
    migrate(store, plan(store, Shop, Split, transforms=[SPLIT]), backoff=NO_WAIT)
    with shop.transaction() as transaction:
        transaction.orders.put(0, Order("c0", [], "elsewhere"))
        transaction.orders.put(1, Order("c1", ["i0"], "no0"))
        transaction.orders.put(0, Order("c0", [], "no1"))
    finished(store, Split, transforms=[SPLIT])
    assert Split(store).by_number.key_of("no0") == Placed("c1", 1)


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_consent_says_which_side_holds_where_both_have_changed(store: Store, shop: Shop, side: str) -> None:
    options = {"transforms": [SPLIT], "accepts": [f"{side}:orders"]}
    new = Split(store)
    new.orders.insert(Placed("c0", 0), Order("c0", ["new"], "first"))
    migrate(store, plan(store, Shop, Split, **options), backoff=NO_WAIT)
    for number, key in ((2, Placed("c0", 2)), (1, Placed("c1", 1))):
        new.orders.put(key, Order(key.customer, ["new"], f"no{number}"))
    shop.orders.put(2, Order("c0", ["old"], "no2"))
    shop.orders.delete(1)
    report = migrate(store, plan(store, Shop, Split, **options), is_switched=True, backoff=NO_WAIT)
    assert (report.is_settled, report.contested) == (True, [])
    clean_up_migration(store, plan(store, Shop, Split, **options), backoff=NO_WAIT)
    found = {key.order: order.items for key, order in new.orders.list()}
    expected = {"old": {0: [], 2: ["old"]}, "new": {0: ["new"], 1: ["new"], 2: ["new"]}}[side]
    assert found == {**expected, 3: ["i0", "i1", "i2"]}
    assert list(check(store, new)) == []
    assert not [key for key in dump(store) if key[:3] == b"\x00km" and key[3:4] in b"mo"]


def test_two_records_that_lead_to_one_that_stands_are_not_both_taken_for_it(store: Store, shop: Shop) -> None:
    def clash(_: int, order: Order) -> Keyed:
        return Keyed(Placed(order.customer, 0), order)

    transform = Transform(clash, "tests:clash", ("orders",), ("orders",))
    options = {"transforms": [transform], "accepts": ["new:orders"]}
    shop.orders.delete(2)
    shop.orders.delete(1)
    shop.orders.delete(3)
    later = plan(store, Shop, Split, **options)
    Split(store).orders.insert(Placed("c0", 0), Order("c0", ["new"], "new"))
    shop.orders.insert(2, Order("c0", [], "no2"))
    report = migrate(store, later, is_switched=True, backoff=NO_WAIT)
    assert [contest.old_key for contest in report.contested] == [b"/shop/orders/2"]
    assert not report.is_settled


def test_a_plan_says_whom_shared_unique_entries_serve(store: Store, shop: Shop) -> None:
    steps = [step.what for step in plan(store, Shop, Sharing, transforms=[SPLIT]).steps if step.item == "by_number"]
    assert any("programs of the new layout come after the switch" in what for what in steps)


# ---- what stands in the way -----------------------------------------------------------------------------------------------


def test_two_records_that_would_get_one_key_are_told_by_example(store: Store, shop: Shop) -> None:
    clash = Transform(lambda _, order: Keyed(Placed(order.customer, 0), order), "tests:clash", ("orders",), ("orders",))
    (obstacle,) = plan(store, Shop, Split, transforms=[clash]).obstacles
    assert "/shop/orders/0 and /shop/orders/2: the function gives both the key /shop/placed/c0/0" in obstacle
    assert "/shop/orders/1 and /shop/orders/3" in obstacle


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_large_table_is_compared_in_several_passes_and_each_claim_is_told_once(
    store: Store, shop: Shop, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    clash = Transform(lambda _, order: Keyed(Placed(order.customer, 0), order), "tests:clash", ("orders",), ("orders",))
    (expected,) = plan(store, Shop, Split, transforms=[clash]).obstacles
    monkeypatch.setattr("keyplan.maintenance.migration.collisions._KEYS_COMPARED", count)
    (obstacle,) = plan(store, Shop, Split, transforms=[clash]).obstacles
    assert sorted(obstacle.removeprefix("orders: ").split("; ")) == sorted(
        expected.removeprefix("orders: ").split("; ")
    )
    assert plan(store, Shop, Split, transforms=[SPLIT]).obstacles == ()


def test_a_record_that_stands_at_the_new_key_is_told(store: Store, shop: Shop) -> None:
    Split(store).orders.insert(Placed("c0", 2), Order("c0", ["other"], "other"))
    (obstacle,) = plan(store, Shop, Split, transforms=[SPLIT]).obstacles
    assert "/shop/orders/2: another record stands at its new key /shop/placed/c0/2" in obstacle


def raising(key: int, order: Order) -> Keyed:
    raise ZeroDivisionError(f"of {key}, {order}")


def bare(key: int, order: Order) -> Any:
    return order


REFUSED: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "raises": (raising, ("orders",), "the function raised ZeroDivisionError"),
    "gives no pair": (bare, ("orders",), "gives Order, and is to give Keyed"),
    "gives a wrong key": (Keyed, ("orders",), "the key is not valid"),
    "gives a wrong record": (
        lambda key, _: Keyed(Placed("a", key), Guest("x")),
        ("orders",),
        "a value of the wrong type",
    ),
    "gives another table": (lambda *_: Keyed("n", "x", "notes"), ("orders",), "may make some of orders"),
    "names a table twice": (lambda *_: None, ("orders", "orders"), "names a table twice"),
    "is of no table": (lambda *_: None, ("none",), "names none, which is no table"),
    "is of a table that stays": (lambda *_: None, ("notes",), "has notes at just these keys"),
    "joins other keys": (lambda *_: None, ("orders", "notes"), "join only tables whose keys"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_function_may_not_do_stands_in_the_way(store: Store, shop: Shop, case: str) -> None:
    function, of, problem = REFUSED[case]
    before = dump(store)
    obstacles = plan(store, Shop, Split, transforms=[Transform(function, "f", of, ("orders",))]).obstacles
    assert any(problem in obstacle for obstacle in obstacles), obstacles
    assert dump(store) == before


def test_a_new_key_that_could_be_an_old_one_is_refused(store: Store, shop: Shop) -> None:
    class Same(Layout, root="/shop/"):
        lines = Table("orders/{line}", key=str, value=Order)
        guests = Table("guests/{order}", key=int, value=Guest)
        notes = Table("notes/{note}", key=str, value=str)

    rename = Transform(lambda key, order: Keyed(str(key), order), "f", ("orders",), ("lines",))
    obstacles = plan(store, Shop, Same, transforms=[rename]).obstacles
    assert any("could not be told apart" in obstacle for obstacle in obstacles), obstacles


# ---- killed anywhere ------------------------------------------------------------------------------------------------------


def carried_out(store: Store, new: type[Layout], options: dict[str, Any]) -> None:
    migrate(store, plan(store, Shop, new, **options), backoff=NO_WAIT)
    finished(store, new, **options)


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES)
def test_killed_at_every_step_it_ends_as_without(story: str) -> None:
    new, options = STORIES[story]
    engine = FailingEngine(MemoryEngine())
    with Store(engine) as store:
        fill_shop(store, 3)
        engine.steps.clear()
        carried_out(store, new, options)
        count, expected = len(engine.steps), own(store)
    assert count > 30
    for at_step in range(1, count + 1):
        engine = FailingEngine(MemoryEngine())
        with Store(engine) as store:
            fill_shop(store, 3)
            engine.steps.clear()
            engine.at_step = at_step
            # Why it may end well: a commit of the run whose answer was lost is made again, under the guard of its state.
            with suppress(EngineUnavailableError, CommitOutcomeUnknownError):
                carried_out(store, new, options)
            carried_out(store, new, options)
            assert own(store) == expected, f"killed at step {at_step}"


def test_a_function_that_never_ends_is_refused(store: Store, shop: Shop) -> None:
    endless = Transform(
        lambda key, _: (Keyed(Numbered(key, n), Line("i")) for n in count()), "f", ("orders",), ("lines",)
    )
    (obstacle,) = plan(store, Shop, Lined, transforms=[endless]).obstacles
    assert "makes more than 10000 records of one key" in obstacle


# ---- keys in values, and leases ----------------------------------------------------------------------------------------------


class Link(msgspec.Struct, frozen=True):
    orders: list[str] = []


class Linked(Layout, root="/shop/"):
    orders = Table("orders/{order}", key=int, value=Order)
    links = Table("links/{link}", key=str, value=Link, holds_keys=("orders",))


class LinkedSplit(Layout, root="/shop/"):
    orders = Table("placed/{customer}/{order}", key=Placed, value=Order)
    links = Table("links/{link}", key=str, value=Link, holds_keys=("orders",))


class LinkedMoved(Layout, root="/shop/"):
    orders = Table("elsewhere/{order}", key=int, value=Order)
    links = Table("links/{link}", key=str, value=Link, holds_keys=("orders",))


@pytest.mark.parametrize(("new", "options"), [(LinkedSplit, {"transforms": [SPLIT]}), (LinkedMoved, {})])
def test_keys_in_values_that_name_records_that_move_are_told(
    store: Store, new: type[Layout], options: dict[str, Any]
) -> None:
    linked = Linked(store)
    linked.orders.insert(1, Order("c"))
    linked.links.insert("a", Link(["/shop/others/1"]))
    linked.links.insert("b", Link(["/shop/others/1", "/shop/orders/1"]))
    before = dump(store)
    (obstacle,) = plan(store, Linked, new, **options).obstacles
    assert obstacle.startswith("links: values of 1 records (/shop/links/b) hold keys of records that move")
    assert dump(store) == before
    assert plan(store, Linked, new, **options, accepts=["keys:links"]).obstacles == ()
    linked.links.put("b", Link())
    assert plan(store, Linked, new, **options).obstacles == ()


class Stay(Layout, root="/s/"):
    rooms = Table("rooms/{room}", key=str, value=str, lease=True)
    guests = Table("guests/{room}", key=str, value=str, lease=True)


class Stayed(Layout, root="/s/"):
    stays = Table("stays/{room}", key=str, value=str, lease=True)


def test_joined_records_of_two_leases_need_a_consent(store: Store) -> None:
    joined = Transform(lambda key, room, guest: Keyed(key, f"{room} {guest}"), "f", ("rooms", "guests"), ("stays",))
    with store.lease(600) as one, store.lease(600) as other:
        Stay(store).rooms.insert("a", "x", lease=one.id)
        Stay(store).guests.insert("a", "y", lease=one.id)
        Stay(store).rooms.insert("b", "x", lease=one.id)
        early = plan(store, Stay, Stayed, transforms=[joined])
        assert early.obstacles == ()
        Stay(store).guests.insert("b", "y", lease=other.id)
        (contest,) = migrate(store, early, backoff=NO_WAIT).contested  # what the plan could not know
        assert (contest.old_key, "--accept lease:rooms" in contest.reason) == (b"/s/rooms/b", True)
        assert list(Stayed(store).stays.keys()) == ["a"]
        (obstacle,) = plan(store, Stay, Stayed, transforms=[joined]).obstacles
        assert obstacle.startswith("rooms: /s/rooms/b: its records hang on different leases")
        assert "--accept lease:rooms" in obstacle
        options = {"transforms": [joined], "accepts": ["lease:rooms"]}
        migrate(store, plan(store, Stay, Stayed, **options), backoff=NO_WAIT)
        other.revoke()  # before the switch: what was made is made anew
        assert switched(store, Stay, Stayed, **options).is_settled
        assert dict(Stayed(store).stays.list()) == {"a": "x y", "b": "x None"}
        one.revoke()
        assert Stayed(store).stays.count() == 0


def test_an_entry_that_names_another_record_is_found_by_the_verification(store: Store, shop: Shop) -> None:
    options = {"transforms": [SPLIT]}
    assert switched(store, Shop, Split, **options).is_settled
    index = Split.bound().indexes["by_number"]
    ((raw_key, _),) = index.entries(Placed("c0", 0), Split(store).orders.require(Placed("c0", 0)))
    ((_, other),) = index.entries(Placed("c0", 2), Split(store).orders.require(Placed("c0", 2)))
    store.engine.commit(Commit((), (Put(raw_key, other),)))
    with pytest.raises(MigrationRefusedError, match="not everything of orders"):
        clean_up_migration(store, plan(store, Shop, Split, **options))


def test_a_function_that_makes_something_else_each_time_is_not_settled_and_the_run_ends(
    store: Store, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = count()
    restless = Transform(
        lambda key, order: Keyed(
            Placed(order.customer, key), Order(order.customer, [f"{next(numbers)}"], order.number)
        ),
        "tests:restless",
        ("orders",),
        ("orders",),
    )
    (obstacle,) = plan(store, Shop, Split, transforms=[restless]).obstacles
    assert obstacle.startswith("orders: /shop/orders/0: ")
    assert "makes something else of it each time" in obstacle
    # As of a record behind those that the plan converts twice.
    monkeypatch.setattr("keyplan.maintenance.migration.unit_limits._TWICE_MAX", 0)
    report = switched(store, Shop, Split, transforms=[restless])
    assert not report.is_settled
    assert not report.verified[0].is_equal
    with pytest.raises(MigrationRefusedError):
        clean_up_migration(store, plan(store, Shop, Split, transforms=[restless]))
