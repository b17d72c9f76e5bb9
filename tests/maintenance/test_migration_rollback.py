"""Migrations rolled back: the old layout has everything again, with what was written by the new one, or a person is asked."""

from contextlib import suppress
from threading import Event
from typing import Any, NamedTuple

import pytest

from keyplan.engine import MemoryEngine
from keyplan.errors import CommitOutcomeUnknownError, EngineUnavailableError, MigrationRefusedError, StoppedError
from keyplan.layout import Layout
from keyplan.maintenance import (
    Keyed,
    RollbackReport,
    Transform,
    check,
    clean_up_migration,
    history_of,
    migrate,
    open_jobs,
    roll_back_migration,
)
from keyplan.store import Store, layouts_at
from keyplan.testing.faults import FailingEngine
from tests.maintenance.evolving import ENLARGED, NO_WAIT, Box, Moved, Old, Shelf, Stated, fill, own, plan, switched
from tests.maintenance.layouts import dump
from tests.maintenance.transforming import (
    JOIN,
    LINES,
    SPLIT,
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


@pytest.fixture
def shop(store: Store) -> Shop:
    return fill_shop(store)


def rolled_back(store: Store, old: type[Layout], new: type[Layout], **options: Any) -> RollbackReport:
    return roll_back_migration(store, plan(store, old, new, **options), backoff=NO_WAIT)


class Case(NamedTuple):
    old: type[Layout]
    new: type[Layout]
    options: dict[str, Any]


CASES = {
    "moved": Case(Old, Moved, {}),
    "split": Case(Shop, Split, {"transforms": [SPLIT]}),
    "sharing": Case(Shop, Sharing, {"transforms": [SPLIT]}),
    "lines": Case(Shop, Lined, {"transforms": [LINES], "accepts": ["none:orders"]}),
    "join": Case(Shop, Joined, {"transforms": [JOIN]}),
}


def filled(store: Store, case: Case) -> None:
    if case.old is Old:
        fill(store, 3)
    else:
        fill_shop(store, 3)


# ---- nothing of the new layout is left -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_switched", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_migration_that_is_rolled_back_leaves_what_was_there(store: Store, name: str, is_switched: bool) -> None:  # noqa: FBT001
    case = CASES[name]
    filled(store, case)
    before = own(store)
    migrate(store, plan(store, case.old, case.new, **case.options), is_switched=is_switched, backoff=NO_WAIT)
    assert own(store) != before
    report = rolled_back(store, case.old, case.new, **case.options)
    assert report.is_rolled_back, report
    assert own(store) == before
    assert list(check(store, case.old(store))) == []
    assert not [key for key in dump(store) if key[:3] == b"\x00km" and key[3:4] in b"mosrc"]
    assert open_jobs(store) == [] or {job.kind.value for job in open_jobs(store)} == {"index"}
    # And the other way once more, to the end.
    assert switched(store, case.old, case.new, **case.options).is_settled
    assert clean_up_migration(store, plan(store, case.old, case.new, **case.options)).is_cleaned
    assert list(check(store, case.new(store))) == []


def test_the_store_remembers_how_migrations_ended_and_which_layouts_may_be_used(store: Store) -> None:
    fill(store)
    names = Old.bound().fingerprint, Moved.bound().fingerprint

    def now() -> tuple[str, ...]:
        with store.engine.snapshot() as snapshot:
            found = layouts_at(snapshot, b"/s/")
        return () if found is None else found.layouts

    assert now() == ()
    migrate(store, plan(store, Old, Moved), backoff=NO_WAIT)
    assert now() == names
    assert rolled_back(store, Old, Moved, name="0001_moved").is_rolled_back
    assert now() == names[:1]
    assert switched(store, Old, Moved, name="0001_moved").is_settled
    assert now() == names[1:]
    clean_up_migration(store, plan(store, Old, Moved))
    found = [(past.name, past.old, past.new, past.is_rolled_back) for past in history_of(store.engine, b"/s/")]
    assert found == [("0001_moved", *names, True), ("0001_moved", *names, False)]


# ---- what programs of the new layout wrote ---------------------------------------------------------------------------------


def test_what_was_written_by_the_new_layout_is_taken_back(store: Store, shop: Shop) -> None:
    assert switched(store, Shop, Split, transforms=[SPLIT]).is_settled
    new = Split(store)
    new.orders.put(Placed("c0", 0), Order("c0", ["changed"], "no0"))
    new.orders.insert(Placed("c7", 70), Order("c7", ["new"], "no70"))
    report = rolled_back(store, Shop, Split, transforms=[SPLIT])
    assert (report.is_rolled_back, report.returned) == (True, 2)
    assert shop.orders.require(0).items == ["changed"]
    assert shop.orders.require(70).items == ["new"]
    assert shop.by_number.key_of("no70") == 70
    assert list(check(store, shop)) == []


def test_a_moved_record_is_taken_back_without_a_function(store: Store) -> None:
    old = fill(store)
    assert switched(store, Old, Moved).is_settled
    Moved(store).boxes.put(Shelf("a", 1), Box("other", ["blue"]))
    Moved(store).boxes.insert(Shelf("b", 9), Box("nine"))
    assert rolled_back(store, Old, Moved).returned == 2
    assert old.boxes.require(Shelf("a", 1)).name == "other"
    assert old.by_name.key_of("nine") == Shelf("b", 9)
    assert list(check(store, old)) == []


def test_what_no_function_takes_back_is_left_and_nothing_is_removed(store: Store, shop: Shop) -> None:
    options = {"transforms": [LINES], "accepts": ["none:orders"]}
    assert switched(store, Shop, Lined, **options).is_settled
    new = Lined(store)
    new.lines.put(Numbered(1, 0), Line("changed"))
    new.lines.insert(Numbered(9, 0), Line("new"))
    before = own(store)
    report = rolled_back(store, Shop, Lined, **options)
    assert [contest.new_key for contest in report.left] == [b"/shop/lines/1/0", b"/shop/lines/9/0"]
    assert own(store) == before
    with pytest.raises(MigrationRefusedError):
        migrate(store, plan(store, Shop, Lined, **options), backoff=NO_WAIT)
    options["accepts"] = ["none:orders", "lose:orders"]
    assert rolled_back(store, Shop, Lined, **options).is_rolled_back
    assert own(store).keys().isdisjoint({b"/shop/lines/1/0", b"/shop/lines/9/0"})
    assert list(check(store, shop)) == []


def test_an_inverse_that_does_not_lead_back_is_found_out(store: Store, shop: Shop) -> None:
    wrong = Transform(SPLIT.function, "tests:wrong", SPLIT.of, SPLIT.into, inverse=unsplit_wrongly)
    assert switched(store, Shop, Split, transforms=[wrong]).is_settled
    Split(store).orders.put(Placed("c0", 0), Order("c0", ["changed"], "no0"))
    (contest,) = rolled_back(store, Shop, Split, transforms=[wrong]).left
    assert "does not lead back" in contest.reason


def unsplit_wrongly(key: Placed, order: Order) -> Keyed:
    return Keyed(key.order, Order(order.customer, [], order.number))


def test_what_both_sides_have_changed_is_left(store: Store, shop: Shop) -> None:
    migrate(store, plan(store, Shop, Split, transforms=[SPLIT]), backoff=NO_WAIT)
    Split(store).orders.put(Placed("c0", 0), Order("c0", ["new"], "no0"))
    shop.orders.put(0, Order("c0", ["old"], "no0"))
    (contest,) = rolled_back(store, Shop, Split, transforms=[SPLIT]).left
    assert "both" in contest.reason
    assert rolled_back(store, Shop, Split, transforms=[SPLIT], accepts=["lose:orders"]).is_rolled_back
    assert shop.orders.require(0).items == ["old"]


@pytest.mark.parametrize(("consent", "stays"), [("gone:orders", False), ("lose:orders", True)])
def test_a_copy_that_vanished_is_taken_back_as_a_deletion_only_where_somebody_says_so(
    store: Store, shop: Shop, *, consent: str, stays: bool
) -> None:
    assert switched(store, Shop, Sharing, transforms=[SPLIT]).is_settled
    Sharing(store).orders.delete(Placed("c0", 0))
    (contest,) = rolled_back(store, Shop, Sharing, transforms=[SPLIT]).left
    assert "--accept gone:orders removes the old one" in contest.reason
    assert rolled_back(store, Shop, Sharing, transforms=[SPLIT], accepts=[consent]).is_rolled_back
    assert shop.orders.exists(0) is stays
    assert list(check(store, shop)) == []


def test_what_both_sides_have_deleted_is_no_contest(store: Store, shop: Shop) -> None:
    assert switched(store, Shop, Split, transforms=[SPLIT]).is_settled
    Split(store).orders.delete(Placed("c0", 0))
    shop.orders.delete(0)
    assert rolled_back(store, Shop, Split, transforms=[SPLIT]).is_rolled_back
    assert 0 not in list(shop.orders.keys())


def test_of_several_records_that_were_made_one_that_vanished_is_left(store: Store, shop: Shop) -> None:
    options: dict[str, Any] = {"transforms": [LINES], "accepts": ["none:orders", "gone:orders"]}
    assert switched(store, Shop, Lined, **options).is_settled
    Lined(store).lines.delete(Numbered(3, 1))
    (contest,) = rolled_back(store, Shop, Lined, **options).left
    assert "a part of what was made of it" in contest.reason
    options["accepts"] += ["lose:orders"]
    assert rolled_back(store, Shop, Lined, **options).is_rolled_back


# ---- when there is no way back ---------------------------------------------------------------------------------------------


def test_records_that_were_converted_where_they_stand_are_not_rolled_back(store: Store) -> None:
    fill(store)
    assert switched(store, Old, Stated, conversions={"boxes": ENLARGED}).is_settled
    with pytest.raises(MigrationRefusedError):
        rolled_back(store, Old, Stated, conversions={"boxes": ENLARGED})


def test_what_was_not_begun_or_is_over_is_not_rolled_back(store: Store) -> None:
    fill(store)
    with pytest.raises(MigrationRefusedError, match="not begun"):
        rolled_back(store, Old, Moved)
    switched(store, Old, Moved)
    clean_up_migration(store, plan(store, Old, Moved))
    with pytest.raises(MigrationRefusedError, match="is over"):
        rolled_back(store, Old, Moved)


def test_a_late_record_opens_no_way_back(store: Store, shop: Shop) -> None:
    options = {"transforms": [LINES], "accepts": ["none:orders", "lose:orders"]}
    switched(store, Shop, Lined, **options)
    assert clean_up_migration(store, plan(store, Shop, Lined, **options)).is_cleaned
    before = dict(Lined(store).lines.list())
    shop.orders.insert(9, Order("late", ["a"], "n9"))
    migrate(store, plan(store, Shop, Lined, **options), backoff=NO_WAIT)
    with pytest.raises(MigrationRefusedError, match="was over, and old records are gone"):
        rolled_back(store, Shop, Lined, **options)
    assert before.items() < dict(Lined(store).lines.list()).items()


# ---- killed anywhere ------------------------------------------------------------------------------------------------------


def story(store: Store, case: Case) -> None:
    migrate(store, plan(store, case.old, case.new, **case.options), is_switched=True, backoff=NO_WAIT)
    assert rolled_back(store, case.old, case.new, **case.options).is_rolled_back


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_rollback_that_is_killed_at_any_step_is_finished_by_the_next(name: str) -> None:
    case = CASES[name]
    engine = FailingEngine(MemoryEngine())
    with Store(engine) as store:
        filled(store, case)
        before = own(store)
        engine.steps.clear()
        story(store, case)
        count = len(engine.steps)
    for at_step in range(1, count + 1):
        engine = FailingEngine(MemoryEngine())
        with Store(engine) as store:
            filled(store, case)
            engine.steps.clear()
            engine.at_step = at_step
            with suppress(EngineUnavailableError, CommitOutcomeUnknownError):
                story(store, case)
            # Why it may not be begun: the rollback was the last, or nothing was.
            with suppress(MigrationRefusedError):
                rolled_back(store, case.old, case.new, **case.options)
            assert own(store) == before, f"killed at step {at_step}"
            assert list(check(store, case.old(store))) == []


# ---- stopped midway -------------------------------------------------------------------------------------------------------


def stopped_after_a_batch() -> dict[str, Any]:
    """Options of a run that ends between two commits, when it has told of its first batch."""
    stop = Event()
    return {"stop": stop, "progress": lambda _: stop.set(), "backoff": NO_WAIT}


def test_records_of_which_a_part_was_converted_where_they_stand_are_not_rolled_back(store: Store) -> None:
    fill(store, 70)
    options = {"conversions": {"boxes": ENLARGED}}
    with pytest.raises(StoppedError):
        migrate(store, plan(store, Old, Stated, **options), is_switched=True, **stopped_after_a_batch())
    before = own(store)
    assert b'"size"' in b"".join(before.values())
    with pytest.raises(MigrationRefusedError, match="converted where they stand"):
        rolled_back(store, Old, Stated, **options)
    assert own(store) == before
    assert switched(store, Old, Stated, **options).is_settled
    assert all(box.tags.count("counted") == 1 for _, box in Stated(store).boxes.list())


def test_a_clean_up_that_has_begun_leaves_no_way_back_whatever_runs_after_it(store: Store) -> None:
    fill(store, 300)
    assert switched(store, Old, Moved).is_settled
    with pytest.raises(StoppedError):
        clean_up_migration(store, plan(store, Old, Moved), **stopped_after_a_batch())
    assert Old(store).boxes.count() < 300
    assert switched(store, Old, Moved).is_settled
    with pytest.raises(MigrationRefusedError, match="has begun"):
        rolled_back(store, Old, Moved, accepts=["lose:boxes"])
    assert clean_up_migration(store, plan(store, Old, Moved), backoff=NO_WAIT).is_cleaned
    assert Moved(store).boxes.count() == 300
