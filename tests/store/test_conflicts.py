"""Other writers come between: what a conflict is called, what is tried again, and how often."""

# ruff: noqa: PT012  # Why: what raises is the end of a transaction's block.

import threading
from collections.abc import Callable

import pytest

from keyplan.engine import ALL_KEYS, Commit, Delete, Put
from keyplan.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    EngineUnavailableError,
    StaleRecordError,
    UniqueViolationError,
)
from keyplan.limits import COMMIT_RETRIES_MAX
from keyplan.store import Store
from keyplan.testing.faults import FailingEngine
from tests.store.engines import Race, no_waiting
from tests.store.layouts import Blade, BladeKey, Rack, Site

ONE = BladeKey("r1", "1")
TWO = BladeKey("r1", "2")


# ---- what a conflict is called --------------------------------------------------------------------------------------


def test_a_record_read_and_changed_by_another_is_a_conflict(site: Site, race: Race) -> None:
    site.racks.insert("r1", Rack("x"))
    race.between(lambda: site.racks.put("r1", Rack("other")))

    with pytest.raises(CommitConflictError) as caught, site.transaction() as tx:
        tx.racks.modify("r1", lambda rack: Rack("mine"))

    assert caught.value.is_retryable
    assert site.racks.get("r1") == Rack("other")


@pytest.mark.parametrize(
    "phantom",
    [
        pytest.param(lambda site: site.racks.insert("bb", Rack("new")), id="insert"),
        pytest.param(lambda site: site.racks.delete("b"), id="delete"),
        pytest.param(lambda site: site.racks.put("b", Rack("new")), id="update"),
        pytest.param(lambda site: site.racks.insert("zz", Rack("new")), id="insert at the end"),
    ],
)
@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda tx: list(tx.racks.list()), id="list"),
        pytest.param(lambda tx: list(tx.racks.keys(reverse=True)), id="keys"),
        pytest.param(lambda tx: tx.racks.count(), id="count"),
        pytest.param(lambda tx: tx.racks.page(), id="page"),
    ],
)
def test_a_phantom_in_a_list_is_a_conflict(
    site: Site, race: Race, look: Callable[[Site], object], phantom: Callable[[Site], object]
) -> None:
    for name in "abc":
        site.racks.insert(name, Rack("x"))
    race.between(lambda: phantom(site))

    with pytest.raises(CommitConflictError), site.transaction() as tx:
        look(tx)
        tx.flags.insert("counted", None)

    assert not site.flags.exists("counted")


def test_a_phantom_in_an_index_list_is_a_conflict(site: Site, race: Race) -> None:
    site.blades.insert(ONE, Blade("s1", ["x"]))
    race.between(lambda: site.blades.insert(TWO, Blade("s2", ["x"])))

    with pytest.raises(CommitConflictError), site.transaction() as tx:
        assert list(tx.by_tag.keys("x")) == [ONE]
        tx.flags.insert("counted", None)


def test_what_lies_beyond_the_part_that_was_read_is_no_conflict(site: Site, race: Race) -> None:
    for name in "abc":
        site.racks.insert(name, Rack("x"))
    race.between(lambda: site.racks.put("c", Rack("other")))

    with site.transaction() as tx:
        assert list(tx.racks.keys(limit=2)) == ["a", "b"]
        tx.flags.insert("done", None)

    assert site.flags.exists("done")


def test_an_insert_that_lost_says_that_the_record_exists(site: Site, race: Race) -> None:
    race.between(lambda: site.racks.insert("r1", Rack("other")))

    with pytest.raises(AlreadyExistsError) as caught, site.transaction() as tx:
        tx.racks.insert("r1", Rack("mine"))

    assert caught.value.facts == {"table": "racks", "key": "r1", "revision": 1}
    assert isinstance(caught.value.__cause__, CommitConflictError)


def test_an_insert_after_a_look_that_lost_is_a_conflict_that_can_be_retried(site: Site, race: Race) -> None:
    race.between(lambda: site.racks.insert("r1", Rack("other")))

    with pytest.raises(CommitConflictError), site.transaction() as tx:
        if not tx.racks.exists("r1"):
            tx.racks.insert("r1", Rack("mine"))


def test_a_unique_entry_that_was_taken_meanwhile_names_its_holder(site: Site, race: Race) -> None:
    race.between(lambda: site.blades.insert(TWO, Blade("s1")))

    with pytest.raises(UniqueViolationError) as caught, site.transaction() as tx:
        tx.blades.insert(ONE, Blade("s1"))

    assert caught.value.facts == {"index": "by_serial", "key": "s1", "holder": TWO}


def test_an_expected_revision_that_was_overtaken_is_stale(site: Site, race: Race) -> None:
    first = site.racks.insert("r1", Rack("x"))
    race.between(lambda: site.racks.put("r1", Rack("other")))

    with pytest.raises(StaleRecordError) as caught, site.transaction() as tx:
        tx.racks.put("r1", Rack("mine"), expected_revision=first)

    assert (caught.value.expected_revision, caught.value.actual_revision) == (first, first + 1)


def test_an_expected_absence_that_was_overtaken_is_stale(site: Site, race: Race) -> None:
    race.between(lambda: site.racks.put("r1", Rack("other")))

    with pytest.raises(StaleRecordError) as caught, site.transaction() as tx:
        tx.racks.put("r1", Rack("mine"), expected_revision=0)

    assert (caught.value.expected_revision, caught.value.actual_revision) == (0, 1)


def test_a_delete_that_expects_absence_holds_the_commit_to_it(site: Site, race: Race) -> None:
    race.between(lambda: site.racks.put("r1", Rack("other")))

    with pytest.raises(CommitConflictError), site.transaction() as tx:
        tx.racks.delete("r1", expected_revision=0)
        tx.flags.insert("gone", None)


# ---- single writes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        pytest.param(lambda site: site.blades.put(ONE, Blade("s1", ["mine"])), ["mine"], id="put"),
        pytest.param(lambda site: site.blades.update(ONE, Blade("s1", ["mine"])), ["mine"], id="update"),
        pytest.param(
            lambda site: site.blades.modify(ONE, lambda blade: Blade("s1", [*blade.tags, "mine"])),
            ["other", "mine"],
            id="modify",
        ),
        pytest.param(lambda site: site.blades.delete(ONE), None, id="delete"),
        pytest.param(lambda site: site.blades.rename(ONE, TWO), None, id="rename"),
    ],
)
def test_a_write_that_expects_nothing_wins_after_a_lost_race(
    site: Site, race: Race, write: Callable[[Site], object], expected: list[str] | None
) -> None:
    site.blades.insert(ONE, Blade("s1", ["first"]))
    race.between(lambda: site.blades.put(ONE, Blade("s1", ["other"])))

    write(site)

    found = site.blades.get(ONE)
    assert (None if found is None else found.tags) == expected


def test_an_insert_that_lost_on_a_store_names_what_is_there(site: Site, race: Race) -> None:
    race.between(lambda: site.blades.insert(TWO, Blade("s1")))
    with pytest.raises(UniqueViolationError) as violation:
        site.blades.insert(ONE, Blade("s1"))
    assert violation.value.holder == TWO

    race.between(lambda: site.blades.insert(ONE, Blade("s2")))
    with pytest.raises(AlreadyExistsError) as exists:
        site.blades.insert(ONE, Blade("s3"))
    assert exists.value.revision == 2


def test_a_stale_write_on_a_store_names_both_revisions(site: Site, race: Race) -> None:
    first = site.blades.insert(ONE, Blade("s1"))
    race.between(lambda: site.blades.put(ONE, Blade("s2")))

    with pytest.raises(StaleRecordError) as caught:
        site.blades.update(ONE, Blade("s3"), expected_revision=first)

    assert (caught.value.expected_revision, caught.value.actual_revision) == (first, first + 1)


def test_of_threads_that_insert_one_key_exactly_one_succeeds(race: Race) -> None:
    site = Site(Store(race))
    outcomes: list[str] = []
    start = threading.Barrier(4)

    def insert(name: str) -> None:
        start.wait()
        for number in range(10):
            try:
                site.blades.insert(BladeKey("r", str(number)), Blade(f"{name}{number}"))
                outcomes.append(f"{number}")
            except AlreadyExistsError:
                pass

    threads = [threading.Thread(target=insert, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == [str(number) for number in range(10)]
    assert site.by_serial.count() == 10


# ---- run ------------------------------------------------------------------------------------------------------------


def test_run_tries_again_exactly_until_it_succeeds(site: Site, store: Store, race: Race) -> None:
    site.racks.insert("r1", Rack("0"))
    race.between(lambda: site.racks.modify("r1", lambda rack: Rack(rack.room + "x")), times=5)
    seen: list[str] = []

    def work(tx: Site) -> str:
        rack = tx.racks.require("r1")
        seen.append(rack.room)
        tx.racks.put("r1", Rack(rack.room + "!"))
        return "answer"

    assert site.run(work) == "answer"
    assert seen == ["0", "0x", "0xx", "0xxx", "0xxxx", "0xxxxx"]
    assert site.racks.get("r1") == Rack("0xxxxx!")


def test_run_gives_up_after_the_bound_with_growing_waits(race: Race) -> None:
    waits: list[float] = []
    store = Store(race, backoff=no_waiting(waits))
    site = Site(store)
    site.racks.insert("r1", Rack("x"))
    race.between(lambda: site.racks.put("r1", Rack("other")), times=COMMIT_RETRIES_MAX + 2)

    with pytest.raises(CommitConflictError):
        site.run(lambda tx: tx.racks.modify("r1", lambda rack: rack))

    assert len(waits) == COMMIT_RETRIES_MAX
    assert waits[:4] == [0.001, 0.002, 0.004, 0.008]
    assert max(waits) == 1.0


def test_waits_are_shortened_by_chance_to_no_less_than_half(race: Race) -> None:
    waits: list[float] = []
    backoff = no_waiting(waits)
    store = Store(race, backoff=type(backoff)(sleep=waits.append, chance=lambda: 0.0))
    site = Site(store)
    race.between(site.ports.next)

    site.ports.next()

    assert waits == [0.0005]


def test_run_does_not_try_again_what_the_work_itself_refused(site: Site) -> None:
    calls = []

    def work(tx: Site) -> None:
        calls.append(tx)
        tx.racks.insert("r1", Rack("x"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        site.run(work)
    assert len(calls) == 1
    assert site.racks.count() == 0


def test_run_decides_anew_when_an_insert_lost(site: Site, race: Race) -> None:
    race.between(lambda: site.racks.insert("r1", Rack("other")))

    def work(tx: Site) -> str:
        name = "r2" if tx.racks.exists("r1") else "r1"
        tx.racks.insert(name, Rack("mine"))
        return name

    assert site.run(work) == "r2"


def test_an_unknown_outcome_is_never_tried_again(race: Race) -> None:
    failing = FailingEngine(race)
    site = Site(Store(failing, backoff=no_waiting()))
    calls = []

    def work(tx: Site) -> None:
        calls.append(tx)
        tx.racks.insert("r1", Rack("x"))
        failing.at_step = len(failing.steps) + 2

    with pytest.raises(CommitOutcomeUnknownError):
        site.run(work)
    assert len(calls) == 1
    assert site.racks.exists("r1")


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda site: site.blades.insert(BladeKey("r2", "1"), Blade("s9", ["z"])), id="insert"),
        pytest.param(lambda site: site.blades.put(ONE, Blade("s9", ["z"])), id="put"),
        pytest.param(lambda site: site.blades.delete(ONE), id="delete"),
        pytest.param(lambda site: site.blades.rename(ONE, TWO), id="rename"),
        pytest.param(lambda site: site.ports.next(), id="counter"),
    ],
)
def test_a_failure_at_any_step_leaves_all_or_nothing(
    site: Site, store: Store, race: Race, write: Callable[[Site], object]
) -> None:
    def content() -> list[tuple[bytes, bytes]]:
        with store.engine.snapshot() as snapshot:
            return [(entry.key, entry.value) for entry in snapshot.scan(ALL_KEYS)]

    site.blades.insert(ONE, Blade("s1", ["a"]))
    before = content()
    probe = FailingEngine(race)
    write(Site(Store(probe, backoff=no_waiting())))
    after = content()
    assert after != before

    for step in range(1, len(probe.steps) + 1):
        puts = [Put(key, value) for key, value in before]
        deletes = [Delete(key) for key, _ in content() if key not in dict(before)]
        store.engine.commit(Commit((), (*deletes, *puts)))
        failing = FailingEngine(race, at_step=step)
        with pytest.raises((EngineUnavailableError, CommitOutcomeUnknownError)) as caught:
            write(Site(Store(failing, backoff=no_waiting())))
        assert content() == (after if isinstance(caught.value, CommitOutcomeUnknownError) else before)
