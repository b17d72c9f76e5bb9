"""What a migration refuses: to convert twice, to run beside another one, to remove what has no copy, to plan what will fail."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

import keyplan
from keyplan.engine import Commit, Delete, MemoryEngine, Put, WrappedEngine
from keyplan.errors import CommitOutcomeUnknownError, MigrationRefusedError
from keyplan.jobs import Progress
from keyplan.layout import Counter, Index, Layout, Table, Unique
from keyplan.maintenance import (
    Conversion,
    MigrationPlan,
    build_index,
    check,
    clean_up_migration,
    migrate,
)
from keyplan.store import Store
from tests.maintenance.evolving import NO_WAIT, Box, Moved, Old, Shelf, cleaned, fill, plan, switched
from tests.maintenance.layouts import dump, write


class Pounds(msgspec.Struct, frozen=True):
    price: int


class Pence(msgspec.Struct, frozen=True):
    price: int
    unit: str


class Noted(msgspec.Struct, frozen=True):
    price: int
    unit: str
    note: str


class InPounds(Layout, root="/p/"):
    goods = Table("goods/{name}", key=str, value=Pounds)
    places = Table("places/{name}", key=str, value=str)


class InPence(Layout, root="/p/"):
    goods = Table("goods/{name}", key=str, value=Pence)
    places = Table("sites/{name}", key=str, value=str)


class InPenceAlone(Layout, root="/p/"):
    goods = Table("goods/{name}", key=str, value=Pence)
    places = Table("places/{name}", key=str, value=str)


class WithNotes(Layout, root="/p/"):
    goods = Table("goods/{name}", key=str, value=Noted)
    places = Table("places/{name}", key=str, value=str)


UP = {"goods": Conversion(lambda old: Pence(old.price * 100, "p"), "tests:up")}
DOWN = {"goods": Conversion(lambda old: Pounds(old.price // 100), "tests:down")}
NOTE = {"goods": Conversion(lambda old: Noted(old.price, old.unit, ""), "tests:note")}


@pytest.fixture
def shop(store: Store) -> Store:
    for number in range(3):
        InPounds(store).goods.insert(f"g{number}", Pounds(5))
    return store


def prices(store: Store) -> set[int]:
    return {good.price for _, good in InPenceAlone(store).goods.list()}


def up(store: Store) -> MigrationPlan:
    return plan(store, InPounds, InPenceAlone, conversions=UP)


# ---- once ------------------------------------------------------------------------------------------------------------------


def test_a_finished_plan_is_refused_when_it_is_given_again(shop: Store) -> None:
    steps = up(shop)
    assert migrate(shop, steps, is_switched=True).is_settled
    with pytest.raises(MigrationRefusedError, match="plan it again"):
        migrate(shop, steps, is_switched=True)
    assert prices(shop) == {500}
    assert up(shop).is_over


def test_a_plan_that_was_made_before_another_one_converted_the_table_is_refused(shop: Store) -> None:
    first = up(shop)
    second = plan(shop, InPounds, InPenceAlone, conversions={"goods": Conversion(UP["goods"].function, "tests:up", 2)})
    migrate(shop, first, is_switched=True)
    with pytest.raises(MigrationRefusedError):
        migrate(shop, second, is_switched=True)
    assert prices(shop) == {500}


def test_a_run_that_is_taken_over_converts_nothing_twice(shop: Store) -> None:
    steps, other = up(shop), up(shop)
    told: list[Progress] = []

    def between(now: Progress) -> None:
        told.append(now)
        if len(told) == 1:
            assert migrate(shop, other, is_switched=True).is_settled

    with pytest.raises(MigrationRefusedError, match="another run"):
        migrate(shop, steps, is_switched=True, progress=between)
    assert prices(shop) == {500}


def test_a_chain_of_migrations_is_run_at_every_deployment(shop: Store) -> None:
    for _ in range(2):
        for old, new, functions in ((InPounds, InPenceAlone, UP), (InPenceAlone, WithNotes, NOTE)):
            assert switched(shop, old, new, conversions=functions).is_settled
        assert {good.price for _, good in WithNotes(shop).goods.list()} == {500}
    assert plan(shop, InPounds, InPenceAlone, conversions=UP).is_over


def test_a_layout_may_go_back_and_forth_and_each_way_converts(shop: Store) -> None:
    for _ in range(2):
        assert switched(shop, InPounds, InPenceAlone, conversions=UP).counts == {"renewed": 3}
        assert switched(shop, InPenceAlone, InPounds, conversions=DOWN).counts == {"renewed": 3}
    assert {good.price for _, good in InPounds(shop).goods.list()} == {5}


def test_records_that_another_migration_converted_are_converted_only_by_consent(shop: Store) -> None:
    class Wider(msgspec.Struct, frozen=True):
        price: int
        unit: str
        colour: str = ""

    class InColour(Layout, root="/p/"):
        goods = Table("goods/{name}", key=str, value=Wider)
        places = Table("places/{name}", key=str, value=str)

    switched(shop, InPounds, InPenceAlone, conversions=UP)
    (obstacle,) = plan(shop, InColour, WithNotes, conversions=NOTE, drops=["goods.colour"]).obstacles
    assert obstacle.endswith("--accept from:goods")
    options = {"conversions": NOTE, "accepts": ["from:goods"], "drops": ["goods.colour"]}
    assert switched(shop, InColour, WithNotes, **options).counts == {"renewed": 3}


def test_a_table_that_was_converted_stays_so_whatever_unsettles_the_migration(shop: Store) -> None:
    InPounds(shop).places.insert("here", "1")
    switched(shop, InPounds, InPence, conversions=UP)
    InPence(shop).goods.insert("new", Pence(700, "p"))
    InPence(shop).places.put("here", "2")
    InPounds(shop).places.put("here", "3")
    assert not switched(shop, InPounds, InPence, conversions=UP).is_settled
    InPence(shop).places.put("here", "3")
    assert switched(shop, InPounds, InPence, conversions=UP).is_settled
    assert prices(shop) == {500, 700}


class Named(msgspec.Struct, frozen=True):
    price: int
    name: str = ""


class NamedInPence(msgspec.Struct, frozen=True):
    price: int
    name: str = ""
    unit: str = "p"


def test_what_a_person_decided_is_not_converted() -> None:
    """Both layouts read the records of either: what tells them apart is that the table was gone through."""

    class Before(Layout, root="/n/"):
        goods = Table("goods/{good}", key=str, value=Named)

    class After(Layout, root="/n/"):
        goods = Table("goods/{good}", key=str, value=NamedInPence)
        by_name = Unique("by-name/{name}", of=goods, key=str)

    functions = {"goods": Conversion(lambda old: NamedInPence(old.price * 100, old.name), "tests:named")}
    with keyplan.open("memory:") as store:
        Before(store).goods.insert("x", Named(5, "a"))
        steps = plan(store, Before, After, conversions=functions)
        Before(store).goods.insert("y", Named(6, "a"))  # Why behind the plan: it would refuse both.
        report = migrate(store, steps, is_switched=True, backoff=NO_WAIT)
        assert [contest.old_key for contest in report.contested] == [b"/n/goods/y"]
        After(store).goods.put("y", NamedInPence(600, "b"))
        After(store).goods.insert("z", NamedInPence(700, "c"))
        assert switched(store, Before, After, conversions=functions).is_settled
        assert {key: good.price for key, good in After(store).goods.list()} == {"x": 500, "y": 600, "z": 700}


class Lossy(WrappedEngine):
    """The answer of one commit is lost, though it was made."""

    at = 0
    turn = 0

    def commit(self, commit: Commit) -> int:
        revision = self.inner.commit(commit)
        self.turn += 1
        if self.turn == self.at:
            raise CommitOutcomeUnknownError(engine="memory", mutations=len(commit.mutations))
        return revision


@pytest.mark.parametrize("at", range(1, 8))
def test_a_lost_answer_and_a_loop_of_retries_convert_once(at: int) -> None:
    engine = Lossy(MemoryEngine())
    with Store(engine) as store:
        InPounds(store).goods.insert("x", Pounds(5))
        steps = up(store)
        engine.turn, engine.at = 0, at
        for _ in range(3):
            try:
                migrate(store, steps, is_switched=True)
            except (CommitOutcomeUnknownError, MigrationRefusedError):
                continue
            break
        assert up(store).is_over
        assert prices(store) == {500}


class Dying(WrappedEngine):
    """The process dies before the first commit that `is_last` says."""

    is_last: Callable[[Commit], bool] = staticmethod(lambda _: False)

    def commit(self, commit: Commit) -> int:
        if self.is_last(commit):
            raise KeyboardInterrupt
        return self.inner.commit(commit)


def test_marks_that_a_dying_run_left_skip_no_record_when_the_layout_comes_back() -> None:
    engine = Dying(MemoryEngine())
    with Store(engine) as store:
        InPounds(store).goods.insert("x", Pounds(5))
        engine.is_last = lambda commit: not any(isinstance(mutation, Put) for mutation in commit.mutations)
        with pytest.raises(KeyboardInterrupt):
            switched(store, InPounds, InPenceAlone, conversions=UP)
        engine.is_last = lambda _: False
        assert sum(key.startswith(b"\x00kmm") for key in dump(store)) == 1
        switched(store, InPenceAlone, InPounds, conversions=DOWN)
        assert switched(store, InPounds, InPenceAlone, conversions=UP).counts == {"renewed": 1}
        assert prices(store) == {500}
        assert not any(key.startswith(b"\x00kmm") for key in dump(store))


# ---- beside others ---------------------------------------------------------------------------------------------------------


def test_of_two_migrations_of_one_root_the_second_is_refused_though_it_was_planned_before(store: Store) -> None:
    class Other(Layout, root="/s/"):
        boxes = Table("cases/{room}/{number}", key=Shelf, value=Box)
        notes = Table("notes/{note}", key=str, value=str)

    fill(store, 2)
    first, second = plan(store, Old, Moved), plan(store, Old, Other)
    migrate(store, first)
    with pytest.raises(MigrationRefusedError, match="under way"):
        migrate(store, second)


def test_a_plan_from_a_layout_that_another_migration_has_left_is_refused(store: Store) -> None:
    class Elsewhere(Layout, root="/s/"):
        boxes = Table("elsewhere/{room}/{number}", key=Shelf, value=Box)
        notes = Table("notes/{note}", key=str, value=str)

    fill(store)
    earlier = plan(store, Old, Elsewhere)
    switched(store, Old, Moved)
    cleaned(store, Old, Moved)
    with pytest.raises(MigrationRefusedError, match="not in the old layout any more"):
        migrate(store, earlier, backoff=NO_WAIT)
    assert any("not in the old layout any more" in one for one in plan(store, Old, Elsewhere).obstacles)
    # Back again, it may begin.
    switched(store, Moved, Old)
    cleaned(store, Moved, Old)
    assert switched(store, Old, Elsewhere).is_settled


def test_an_index_that_was_built_by_the_old_layout_meanwhile_is_built_again(store: Store) -> None:
    class ByTag(Layout, root="/s/"):
        boxes = Table("boxes/{room}/{number}", key=Shelf, value=Box)
        by_name = Unique("names/{name}", of=boxes, key=str)
        notes = Table("notes/{note}", key=str, value=str)

    fill(store, 3)
    migrate(store, plan(store, Old, ByTag), backoff=NO_WAIT)
    assert build_index(store, Old.bound(), "by_name").is_readable
    assert switched(store, Old, ByTag).is_settled
    assert ByTag(store).by_name.key_of("box2") == Shelf("a", 2)


def test_a_root_that_comes_back_has_readable_indexes(store: Store) -> None:
    class Elsewhere(Old, root="/t/"):
        pass

    fill(store, 3)
    for old, new in ((Old, Elsewhere), (Elsewhere, Old)):
        assert switched(store, old, new).is_settled
        cleaned(store, old, new)
    assert Old(store).by_name.key_of("box2") == Shelf("a", 2)
    assert list(check(store, Old(store))) == []


# ---- the clean-up ----------------------------------------------------------------------------------------------------------


def test_a_clean_up_removes_no_record_whose_copy_is_not_there_any_more(store: Store) -> None:
    fill(store, 3)
    assert switched(store, Old, Moved).is_settled
    write(store, b"/s/crates/a/1")
    with pytest.raises(MigrationRefusedError, match="1 copies of boxes are not there any more"):
        clean_up_migration(store, plan(store, Old, Moved))
    assert Old(store).boxes.count() == 3


def test_a_record_that_an_old_program_deletes_after_the_switch_takes_its_copy_along(store: Store) -> None:
    old = fill(store)
    assert switched(store, Old, Moved).is_settled
    old.boxes.delete(Shelf("a", 1))
    cleaned(store, Old, Moved)
    assert [key.number for key, _ in Moved(store).boxes.list()] == [0, 2, 3, 4]
    assert list(check(store, Moved(store))) == []


@pytest.mark.parametrize("is_late", [False, True])
def test_a_new_record_keeps_the_entries_that_an_old_program_takes_along(store: Store, is_late: bool) -> None:  # noqa: FBT001
    old, new = fill(store), Moved(store)
    box = Box("nine", ["blue"])
    old.boxes.insert(Shelf("b", 9), box)
    if is_late:
        switched(store, Old, Moved)
        new.boxes.put(Shelf("b", 9), box)
    else:
        new.boxes.insert(Shelf("b", 9), box)
    old.boxes.delete(Shelf("b", 9))
    new.boxes.put(Shelf("c", 1), Box("other", ["blue"]))
    store.engine.commit(Commit((), (Delete(b"/s/by-tag/blue/c/1"),)))
    assert switched(store, Old, Moved).is_settled
    cleaned(store, Old, Moved, accepts=["gone:boxes"])
    assert list(check(store, new)) == []
    assert new.boxes.get(Shelf("c", 1)) is not None


def test_a_copy_that_vanishes_during_the_clean_up_leaves_its_record(store: Store) -> None:
    fill(store, 3)
    steps = plan(store, Old, Moved)
    migrate(store, steps, is_switched=True)
    told: list[Progress] = []

    class Between(WrappedEngine):
        def commit(self, commit: Commit) -> int:
            told.append(Progress(""))
            if len(told) == 2:
                self.inner.commit(Commit((), (Put(b"/s/boxes/a/9", b'{"name":"late"}'),)))
                write(Store(self.inner), b"/s/crates/a/1")
            return self.inner.commit(commit)

    report = clean_up_migration(Store(Between(store.engine, closes_inner=False)), steps, backoff=NO_WAIT)
    assert not report.is_cleaned
    assert "/s/boxes/a/1 and /s/crates/a/1: its copy is not there any more" in [str(left) for left in report.left]
    assert b"/s/boxes/a/1" in dump(store)


# ---- the plan --------------------------------------------------------------------------------------------------------------


class City(msgspec.Struct, frozen=True):
    city: str = ""


def test_every_stored_record_is_tried_against_every_new_index(store: Store) -> None:
    class Plain(Layout, root="/c/"):
        people = Table("people/{name}", key=str, value=City)

    class ByCity(Layout, root="/c/"):
        people = Table("people/{name}", key=str, value=City)
        by_city = Index("by-city/{city}/{name}", of=people, key=str)

    Plain(store).people.insert("a", City("ulm"))
    assert plan(store, Plain, ByCity).obstacles == ()
    Plain(store).people.insert("b", City())
    (obstacle,) = plan(store, Plain, ByCity).obstacles
    assert obstacle.startswith("by_city: /c/people/b: ")


class Pair(NamedTuple):
    first: str
    second: str


def test_keys_longer_than_the_engine_takes_are_in_the_way_before_anything_is_written(tmp_path: Path) -> None:
    class Short(Layout, root="/k/"):
        goods = Table("g/{first}/{second}", key=Pair, value=City)

    class Long(Layout, root="/k/"):
        goods = Table("goods/{first}/{second}", key=Pair, value=City)

    class Indexed(Layout, root="/k/"):
        goods = Table("g/{first}/{second}", key=Pair, value=City)
        by_city = Index("by/{city}/{first}/{second}", of=goods, key=str)

    with keyplan.open(f"lmdb:{tmp_path / 'limited'}") as store:
        Short(store).goods.insert(Pair("a" * 252, "b" * 252), City("c"))
        assert plan(store, Short, Long).obstacles[0].endswith("bytes, 511 fit")
        assert plan(store, Short, Indexed).obstacles[0].endswith("bytes, 511 fit")


def test_a_counter_that_cannot_be_read_is_in_the_way_of_a_move(store: Store) -> None:
    class Before(Layout, root="/n/"):
        tickets = Counter("tickets", start=10)

    class After(Layout, root="/n/"):
        tickets = Counter("numbers", start=10)

    write(store, puts={b"/n/tickets": b"{"})
    (obstacle,) = plan(store, Before, After).obstacles
    assert "keyplan raw put" in obstacle
