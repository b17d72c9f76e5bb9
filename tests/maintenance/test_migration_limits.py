"""What one commit of an engine takes of a migration: told by the plan, or done in parts where nothing is half there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from keyplan.engine import MEMORY_PROFILE, MemoryEngine
from keyplan.errors import MigrationRefusedError
from keyplan.layout import Index, Layout, Table, Unique
from keyplan.maintenance import Keyed, Transform, check, clean_up_migration, migrate, roll_back_migration
from keyplan.store import Store
from tests.maintenance.evolving import NO_WAIT, plan, switched
from tests.maintenance.transforming import LINES, Line, Lined, Order, Placed, Shop


@contextmanager
def limited(limits: dict[str, int]) -> Iterator[Store]:
    changed: dict[str, Any] = dict(limits)
    engine = MemoryEngine(profile=replace(MEMORY_PROFILE, **changed))
    with Store(engine) as store:
        yield store


def finished(store: Store, **options: Any) -> None:
    assert switched(store, Shop, Lined, **options).is_settled
    assert clean_up_migration(store, plan(store, Shop, Lined, **options), backoff=NO_WAIT).is_cleaned
    assert list(check(store, Lined(store))) == []


@pytest.mark.parametrize("limit", [{"commit_operations_max": 64}, {"commit_bytes_max": 8_000}])
def test_what_one_commit_does_not_take_is_told_before_anything_is_written(limit: dict[str, int]) -> None:
    options = {"transforms": [LINES]}
    with limited(limit) as store:
        orders = Shop(store).orders
        orders.insert(1, Order("c", ["i"], "n"))
        fits = None
        found = plan(store, Shop, Lined, **options).obstacles
        for size in range(8, 60, 2):
            orders.put(1, Order("c", [f"i{number}" for number in range(size)], "n"))
            found = plan(store, Shop, Lined, **options).obstacles
            if found:
                break
            fits = size
        assert fits is not None
        (obstacle,) = found
        assert obstacle.startswith("orders: /shop/orders/1: ")
        assert f"the engine takes {next(iter(limit.values()))}" in obstacle
        with pytest.raises(MigrationRefusedError):
            migrate(store, plan(store, Shop, Lined, **options))
        assert Lined(store).lines.count() == 0
        # The largest that the plan takes goes through to the end.
        orders.put(1, Order("c", [f"i{number}" for number in range(fits)], "n"))
        finished(store, **options)
        assert Lined(store).lines.count() == fits


def test_a_record_that_grows_beyond_one_commit_is_left_and_the_others_go_on() -> None:
    options = {"transforms": [LINES]}
    with limited({"commit_operations_max": 64}) as store:
        orders = Shop(store).orders
        for number in range(5):
            orders.insert(number, Order("c", ["i"], f"n{number}"))
        first = plan(store, Shop, Lined, **options)
        orders.put(2, Order("c", [f"i{number}" for number in range(100)], "n2"))
        (contest,) = migrate(store, first, backoff=NO_WAIT).contested
        assert contest.old_key == b"/shop/orders/2"
        assert "commit_operations_max is 64" in contest.reason
        assert [key.order for key, _ in Lined(store).lines.list()] == [0, 1, 3, 4]
        orders.put(2, Order("c", ["i"], "n2"))
        finished(store, **options)


# ---- in parts ---------------------------------------------------------------------------------------------------------


class Itemed(Layout, root="/shop/"):
    lines = Table("itemed/{customer}/{order}", key=Placed, value=Line)


ITEMS = Transform(
    lambda key, order: [Keyed(Placed(item, key), Line(item)) for item in order.items], "f", ("orders",), ("lines",)
)


def test_a_record_of_which_all_becomes_other_records_is_carried_over_in_two_commits() -> None:
    options = {"transforms": [ITEMS], "drops": ["guests", "notes"]}
    with limited({"commit_operations_max": 64}) as store:
        orders = Shop(store).orders
        orders.insert(1, Order("c", [f"a{number}" for number in range(25)], "n"))
        given = plan(store, Shop, Itemed, **options)
        migrate(store, given, backoff=NO_WAIT)
        orders.put(1, Order("c", [f"b{number}" for number in range(25)], "n"))
        report = migrate(store, given, is_switched=True, backoff=NO_WAIT)
        assert (report.is_settled, report.contested) == (True, [])
        assert {key.customer for key, _ in Itemed(store).lines.list()} == {f"b{number}" for number in range(25)}


class Tagged(msgspec.Struct, frozen=True):
    tags: list[str]


class Tags(Layout, root="/t/"):
    things = Table("things/{thing}", key=int, value=Tagged)
    by_tag = Index("by-tag/{tag}/{thing}", of=things, key=str, each={"tag": "tags"})


class Untagged(Layout, root="/t/"):
    things = Table("elsewhere/{thing}", key=int, value=Tagged)


class Named(Layout, root="/t/"):
    things = Table("things/{thing}", key=int, value=Tagged)
    by_tag = Unique("by-tag/{tag}", of=things, key=str, each={"tag": "tags"})


class Renamed(Layout, root="/t/"):
    things = Table("elsewhere/{thing}", key=int, value=Tagged)
    by_tag = Unique("tagged/{tag}", of=things, key=str, each={"tag": "tags"})


def test_a_record_with_many_index_entries_is_removed_after_these() -> None:
    with limited({"commit_operations_max": 64}) as store:
        Tags(store).things.insert(1, Tagged([f"{number}" for number in range(63)]))
        given = plan(store, Tags, Untagged)
        assert migrate(store, given, is_switched=True, backoff=NO_WAIT).is_settled
        cleaned = clean_up_migration(store, given, backoff=NO_WAIT)
        assert (cleaned.is_cleaned, cleaned.records, cleaned.entries) == (True, 1, 63)
        assert list(check(store, Untagged(store))) == []


def test_what_a_rollback_could_not_do_in_one_commit_is_told_by_the_plan() -> None:
    with limited({"commit_operations_max": 64}) as store:
        things = Named(store).things
        things.insert(1, Tagged([f"{number}" for number in range(29)]))
        given = plan(store, Named, Renamed)
        assert given.obstacles == ()
        assert migrate(store, given, is_switched=True, backoff=NO_WAIT).is_settled
        assert roll_back_migration(store, given, backoff=NO_WAIT).is_rolled_back
        things.put(1, Tagged([f"{number}" for number in range(31)]))
        (obstacle,) = plan(store, Named, Renamed).obstacles
        assert "what a rollback does about it is one commit of" in obstacle
