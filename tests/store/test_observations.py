"""What a plan saw of index entries is a premise of its commit: builds and repairs that come between are noticed, and named."""

# ruff: noqa: PT012  # Why: what raises is the end of a transaction's block.

from collections.abc import Callable
from dataclasses import replace

import pytest

from keyplan.engine import MEMORY_PROFILE, Commit, Delete, MemoryEngine, Put
from keyplan.errors import CommitConflictError, EngineLimitError, UniqueViolationError
from keyplan.maintenance import build_index, carry_out, check, plan_repairs, prepare_index
from keyplan.store import Store
from tests.store.engines import Race
from tests.store.layouts import Blade, BladeKey, Site, index_faults

ONE = BladeKey("r1", "1")
TWO = BladeKey("r1", "2")
SERIAL = b"/site/by-serial/s1"
POINTS_AT_ONE = b"rack/r1/blades/1"


def repair(store: Store) -> None:
    site = Site(store)
    faults = [finding for finding in check(store, site) if finding.kind.is_repairable]
    assert faults
    for outcome in carry_out(store, site, plan_repairs(store, site, faults)):
        assert outcome.result.value == "repaired"


def unbuilt(site: Site, store: Store) -> None:
    """A record whose unique index is not built yet."""
    site.blades.insert(ONE, Blade("s1"))
    prepare_index(store, site, "by_serial")
    store.engine.commit(Commit((), (Delete(SERIAL),)))


WRITES: list[Callable[[Site], object]] = [
    lambda site: site.blades.put(ONE, Blade("s2")),
    lambda site: site.blades.update(ONE, Blade(None)),
    lambda site: site.blades.modify(ONE, lambda blade: Blade("s2")),
    lambda site: site.blades.delete(ONE),
    lambda site: site.blades.rename(ONE, TWO),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_build_between_a_look_and_its_commit_is_a_conflict(
    site: Site, store: Store, write: Callable[[Site], object]
) -> None:
    unbuilt(site, store)

    with pytest.raises(CommitConflictError) as caught, site.transaction() as tx:
        write(tx)
        assert build_index(store, site, "by_serial").is_readable

    assert (caught.value.facts["table"], caught.value.facts["key"]) == ("blades", ONE)
    assert caught.value.facts["index"] == "by_serial"
    assert index_faults(store, Site.bound()) == []


@pytest.mark.parametrize("write", WRITES)
def test_a_write_beside_a_build_is_tried_again(
    site: Site, store: Store, race: Race, write: Callable[[Site], object]
) -> None:
    unbuilt(site, store)
    race.between(lambda: build_index(store, site, "by_serial"))

    write(site)

    assert index_faults(store, Site.bound()) == []


def test_an_entry_left_behind_that_a_repair_removes_meanwhile_is_written_all_the_same(
    site: Site, store: Store, race: Race
) -> None:
    store.engine.commit(Commit((), (Put(SERIAL, POINTS_AT_ONE),)))
    with pytest.raises(CommitConflictError) as caught, site.transaction() as tx:
        tx.blades.insert(ONE, Blade("s1"))
        repair(store)
    assert caught.value.facts["index"] == "by_serial"

    store.engine.commit(Commit((), (Put(SERIAL, POINTS_AT_ONE),)))
    race.between(lambda: None)  # the first try of an insert is blind, and fails at the entry
    race.between(lambda: repair(store))
    site.blades.insert(ONE, Blade("s1"))

    assert site.by_serial.one("s1") == Blade("s1")
    with pytest.raises(UniqueViolationError):
        site.blades.insert(TWO, Blade("s1"))


def test_a_stale_entry_that_a_put_makes_right_again_is_not_relied_on(site: Site, store: Store, race: Race) -> None:
    site.blades.insert(ONE, Blade(None))
    store.engine.commit(Commit((), (Put(SERIAL, POINTS_AT_ONE),)))
    race.between(lambda: repair(store))

    site.blades.put(ONE, Blade("s1"))

    assert site.by_serial.one("s1") == Blade("s1")


def test_an_entry_that_changed_hands_is_not_taken_with_the_lease_alone(site: Site, store: Store) -> None:
    with store.lease(60, keep_alive=False) as first, store.lease(60, keep_alive=False) as second:
        site.members.insert("m1", Blade("s1"), lease=first)
        raw_key = b"/site/member-by-serial/s1"
        tx = store.transaction()
        Site(tx).members.put("m1", Blade("s1"), lease=second)
        store.engine.commit(Commit((), (Delete(raw_key),)))
        site.members.insert("m2", Blade("s1"), lease=first)

        with pytest.raises(UniqueViolationError) as caught:
            tx.commit()

        assert caught.value.holder == "m2"
        site.members.delete("m2")
        site.members.delete("m1")


def test_a_unique_entry_that_was_its_own_and_is_anothers_now_names_the_holder(site: Site, store: Store) -> None:
    site.blades.insert(ONE, Blade("s1"))
    tx = store.transaction()
    Site(tx).blades.update(ONE, Blade("s1", ["new"]))
    store.engine.commit(Commit((), (Delete(SERIAL),)))
    site.blades.insert(TWO, Blade("s1"))

    with pytest.raises(UniqueViolationError) as caught:
        tx.commit()

    assert caught.value.facts == {"index": "by_serial", "key": "s1", "holder": TWO}
    site.blades.delete(ONE)


def test_a_record_that_changed_meanwhile_is_named(site: Site, store: Store, race: Race) -> None:
    site.blades.insert(ONE, Blade("s1"))
    race.between(lambda: site.blades.put(ONE, Blade("s1", ["other"])))

    with pytest.raises(CommitConflictError) as caught, site.transaction() as tx:
        tx.blades.put(ONE, Blade("s1", ["mine"]))

    assert (caught.value.facts["table"], caught.value.facts["key"]) == ("blades", ONE)
    assert "index" not in caught.value.facts


def test_entries_of_plain_indexes_cost_a_rewrite_no_guard() -> None:
    """The record's own guard stands for them, so that many records fit one commit of a small engine."""
    with Store(MemoryEngine()) as store:
        site = Site(store)
        site.blades.insert(ONE, Blade("s1", [f"t{number}" for number in range(100)]))
        explained = store.explain(
            lambda tx: Site(tx).blades.update(ONE, Blade("s1", [f"t{number}" for number in range(100)]))
        )
        assert len(explained.commit.guards) == 2
        assert len(explained.commit.mutations) == 1


def test_guards_count_for_a_limit_and_are_told() -> None:
    site = Site(Store(MemoryEngine(profile=replace(MEMORY_PROFILE, name="small", commit_operations_max=6))))
    for number in range(6):
        site.blades.insert(BladeKey("r", str(number)), Blade(f"s{number}"))

    with pytest.raises(EngineLimitError) as caught, site.transaction() as tx:
        for number in range(4):
            tx.blades.update(BladeKey("r", str(number)), Blade(f"s{number}", ["t"]))

    assert caught.value.facts == {
        "limit": "commit_operations_max",
        "allowed": 6,
        "actual": 8,
        "tables": ["blades"],
        "records": 4,
        "guards": 8,
        "mutations": 8,
    }
    assert site.by_tag.count() == 0
