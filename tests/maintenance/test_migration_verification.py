"""What the verification of a migration looks at beside records: leases, counters, and keys that values hold."""

import msgspec
import pytest

import keyplan
from keyplan.engine import MemoryEngine, PrefixedEngine
from keyplan.errors import MigrationRefusedError
from keyplan.layout import Counter, Layout, Table
from keyplan.maintenance import clean_up_migration, migrate
from keyplan.store import Store
from tests.maintenance.evolving import NO_WAIT, plan, switched


class Link(msgspec.Struct, frozen=True):
    to: str = ""


class Linked(Layout, root="/l/"):
    things = Table("things/{thing}", key=int, value=str)
    links = Table("links/{link}", key=str, value=Link, holds_keys=("to",))
    tickets = Counter("tickets", start=10)


class Moved(Layout, root="/l/"):
    things = Table("elsewhere/{thing}", key=int, value=str)
    links = Table("links/{link}", key=str, value=Link, holds_keys=("to",))
    tickets = Counter("numbers", start=10)


def test_a_counter_that_would_go_back_is_found_and_one_that_is_ahead_is_not_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with keyplan.open("memory:") as store:
        Linked(store).tickets.next(3)
        report = switched(store, Linked, Moved)
        (numbers,) = [found for found in report.verified if found.what == "numbers"]
        assert (numbers.table, numbers.is_equal, numbers.ahead) == ("tickets", True, 0)
        assert numbers.expected == numbers.found
        assert numbers.found[0] == 1
        Moved(store).tickets.next(1)
        (numbers,) = [found for found in switched(store, Linked, Moved).verified if found.what == "numbers"]
        assert (numbers.is_equal, numbers.ahead, numbers.found[0]) == (True, 1, 0)
        # As of an old program that draws numbers after the run has taken the counter along.
        monkeypatch.setattr("keyplan.maintenance.migration.driver.move_counter", lambda *_: None)
        Linked(store).tickets.next(5)
        report = switched(store, Linked, Moved)
        assert [found.missing for found in report.verified if found.what == "numbers"] == [1]
        assert not report.is_settled


def test_a_value_that_names_a_record_where_it_was_is_found_after_the_switch() -> None:
    with keyplan.open("memory:") as store:
        Linked(store).things.insert(1, "x")
        given = plan(store, Linked, Moved)
        Linked(store).links.insert("late", Link("/l/things/1"))  # by a program of the old layout, after it was planned
        report = migrate(store, given, is_switched=True, backoff=NO_WAIT)
        assert not report.is_settled
        (held,) = [found for found in report.verified if found.table == "links"]
        assert (held.found[0], held.is_equal) == (1, False)
        assert "/l/links/late: write the new keys there, or --accept keys:links" in held.advice
        accepted = plan(store, Linked, Moved, accepts=["keys:links"])
        assert migrate(store, accepted, is_switched=True, backoff=NO_WAIT).is_settled
        with pytest.raises(MigrationRefusedError, match="links: 1 values with keys of records that moved"):
            clean_up_migration(store, given, backoff=NO_WAIT)
        Moved(store).links.put("late", Link("/l/elsewhere/1"))
        assert clean_up_migration(store, given, backoff=NO_WAIT).is_cleaned


def test_a_key_that_is_held_in_a_key_space_has_its_prefix() -> None:
    with MemoryEngine() as engine, Store(PrefixedEngine(PrefixedEngine(engine, b"one/"), b"two/")) as store:
        Linked(store).things.insert(1, "x")
        Linked(store).links.insert("a", Link("one/two//l/other/1"))
        assert plan(store, Linked, Moved).obstacles == ()
        Linked(store).links.put("a", Link("one/two//l/things/1"))
        (obstacle,) = plan(store, Linked, Moved).obstacles
        assert obstacle.startswith("links: values of 1 records (/l/links/a) hold keys of records that move")
