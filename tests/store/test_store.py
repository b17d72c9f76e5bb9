"""The store itself: opening, closing, snapshots, limits, leases, explanations; and an engine without revisions."""

# ruff: noqa: PT012  # Why: what raises is the end of a transaction's block.

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from keyplan.engine import MEMORY_PROFILE, Commit, KeyUnchanged, MemoryEngine, Put, RangeEmpty
from keyplan.errors import (
    CommitConflictError,
    EngineLimitError,
    EngineOpenError,
    EngineUnavailableError,
    LeaseNotFoundError,
    StaleRecordError,
    UnsupportedByEngineError,
)
from keyplan.store import Store, open_store
from keyplan.testing.checked import assert_healthy
from keyplan.testing.faults import FakeClock
from tests.store.engines import Race, no_waiting
from tests.store.layouts import Blade, BladeKey, Rack, Site

ONE = BladeKey("r1", "1")
TWO = BladeKey("r1", "2")


# ---- open and close -------------------------------------------------------------------------------------------------


def test_a_store_is_opened_by_url_and_keeps_what_was_written(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 'site'}"
    with open_store(url) as store:
        Site(store).racks.insert("r1", Rack("x"))
    with open_store(url) as store:
        assert Site(store).racks.get("r1") == Rack("x")


def test_options_are_those_of_the_url(tmp_path: Path) -> None:
    with pytest.raises(EngineOpenError, match="nonsense"):
        open_store(f"lmdb:{tmp_path / 'site'}", nonsense=True)
    with open_store(f"lmdb:{tmp_path / 'plain'}", history="off") as store:
        Site(store).racks.put("r1", Rack("x"))
        assert store.revision == 0


def test_a_closed_store_refuses_everything_and_closes_twice() -> None:
    store = open_store("memory:")
    site = Site(store)
    store.close()
    store.close()

    with pytest.raises(EngineUnavailableError):
        site.racks.get("r1")
    with pytest.raises(EngineUnavailableError):
        site.racks.insert("r1", Rack("x"))


def test_the_revision_is_that_of_the_latest_commit(site: Site, store: Store) -> None:
    assert store.revision == 0
    assert store.run(lambda tx: Site(tx).racks.insert("r1", Rack("x"))) == 0
    assert store.revision == site.revision == 1


# ---- snapshots ------------------------------------------------------------------------------------------------------


def test_a_snapshot_sees_one_state_in_all_its_reads(site: Site, store: Store) -> None:
    site.blades.insert(ONE, Blade("s1", ["a"]))

    with site.snapshot() as pinned:
        site.blades.put(ONE, Blade("s2", ["b"]))
        site.ports.next()
        assert pinned.revision == 1
        assert pinned.blades.get(ONE) == Blade("s1", ["a"])
        assert pinned.by_serial.one("s1") == Blade("s1", ["a"])
        assert list(pinned.by_tag.keys("a")) == [ONE]
        assert pinned.ports.peek() == 33000
        with pinned.snapshot() as again:
            assert again.revision == 1

    assert store.revision == 3


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda pinned: pinned.racks.insert("r", Rack("x")), id="insert"),
        pytest.param(lambda pinned: pinned.racks.put("r", Rack("x")), id="put"),
        pytest.param(lambda pinned: pinned.racks.update("r", Rack("x")), id="update"),
        pytest.param(lambda pinned: pinned.racks.modify("r", lambda rack: rack), id="modify"),
        pytest.param(lambda pinned: pinned.racks.delete("r"), id="delete"),
        pytest.param(lambda pinned: pinned.racks.rename("r", "s"), id="rename"),
        pytest.param(lambda pinned: pinned.ports.next(), id="next"),
        pytest.param(lambda pinned: pinned.ports.advance_to(40000), id="advance"),
        pytest.param(lambda pinned: pinned.transaction(), id="transaction"),
        pytest.param(lambda pinned: pinned.run(lambda tx: None), id="run"),
    ],
)
def test_a_snapshot_refuses_writes(site: Site, write: Callable[[Site], object]) -> None:
    with site.snapshot() as pinned, pytest.raises(UnsupportedByEngineError):
        write(pinned)


# ---- limits ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def small() -> Iterator[Race]:
    profile = replace(
        MEMORY_PROFILE,
        name="small",
        key_bytes_max=40,
        value_bytes_max=60,
        commit_operations_max=6,
        commit_bytes_max=500,
    )
    with Race(MemoryEngine(profile=profile)) as engine:
        yield engine


def test_a_key_that_is_too_long_is_refused_with_its_place(small: Race) -> None:
    site = Site(Store(small))
    long = "n" * 40

    with pytest.raises(EngineLimitError) as caught:
        site.racks.insert(long, Rack("x"))
    assert caught.value.facts == {
        "limit": "key_bytes_max",
        "allowed": 40,
        "actual": 52,
        "table": "racks",
        "key": long,
    }
    with pytest.raises(EngineLimitError) as caught, site.transaction() as tx:
        tx.racks.insert("fits", Rack("x"))
        tx.blades.put(ONE, Blade("s" * 26))
    assert (caught.value.table, caught.value.index, caught.value.key) == ("blades", "by_serial", ONE)
    assert small.commits[-1:]
    assert site.revision == 0


def test_a_value_that_is_too_large_is_refused_and_not_shown(small: Race) -> None:
    site = Site(Store(small))

    with pytest.raises(EngineLimitError) as caught:
        site.racks.put("r1", Rack("secret" * 20))

    assert caught.value.facts == {
        "limit": "value_bytes_max",
        "allowed": 60,
        "actual": 143,
        "table": "racks",
        "key": "r1",
    }
    assert "secret" not in str(caught.value)


def test_too_many_operations_are_refused_before_anything_is_written(small: Race) -> None:
    site = Site(Store(small))

    with pytest.raises(EngineLimitError) as caught, site.transaction() as tx:
        for name in "abcdefg":
            tx.racks.put(name, Rack("x"))

    assert caught.value.facts == {
        "limit": "commit_operations_max",
        "allowed": 6,
        "actual": 7,
        "tables": ["racks"],
        "records": 7,
        "guards": 0,
        "mutations": 7,
    }
    assert site.racks.count() == 0


def test_too_many_bytes_are_refused_before_anything_is_written(small: Race) -> None:
    site = Site(Store(small))

    with pytest.raises(EngineLimitError) as caught, site.transaction() as tx:
        for name in "abcdef":
            tx.racks.insert(name * 20, Rack("x" * 30))

    assert (caught.value.limit, caught.value.allowed) == ("commit_bytes_max", 500)
    assert site.racks.count() == 0


# ---- leases ---------------------------------------------------------------------------------------------------------


def test_entries_hang_on_the_lease_of_their_record_and_end_with_it(site: Site, store: Store) -> None:
    lease = store.engine.lease(60)
    site.members.insert("m1", Blade("s1", ["a"]), lease=lease.id)

    found = site.members.versioned("m1")
    assert found is not None
    assert found.lease == lease.id
    assert_healthy(store, Site)
    lease.revoke()
    assert (site.members.count(), site.member_by_serial.count(), site.member_by_tag.count()) == (0, 0, 0)


def test_update_modify_and_rename_stay_on_the_lease(site: Site, store: Store) -> None:
    lease = store.engine.lease(60).id
    site.members.put("m1", Blade("s1", ["a"]), lease=lease)

    site.members.update("m1", Blade("s2", ["a", "b"]))
    site.members.modify("m1", lambda blade: Blade(blade.serial, ["b", "c"]))
    site.members.rename("m1", "m2")

    assert [(entry.key, entry.lease) for entry in site.members.entries()] == [("m2", lease)]
    assert_healthy(store, Site)


def test_a_record_moves_to_another_lease_with_all_its_entries(site: Site, store: Store) -> None:
    first, second = store.engine.lease(60), store.engine.lease(60)
    site.members.insert("m1", Blade("s1", ["a"]), lease=first.id)

    with site.transaction() as tx:
        tx.members.put("m1", Blade("s1", ["a"]), lease=second.id)
        assert [entry.lease for entry in tx.members.entries()] == [second.id]

    first.revoke()
    assert site.member_by_serial.one("s1") == Blade("s1", ["a"])
    second.revoke()
    assert site.member_by_serial.count() == 0


def test_a_lease_that_is_gone_refuses_the_write(site: Site, store: Store) -> None:
    lease = store.engine.lease(60)
    lease.revoke()

    with pytest.raises(LeaseNotFoundError):
        site.members.insert("m1", Blade("s1"), lease=lease.id)
    assert store.revision == 0


def test_a_lease_that_expires_between_read_and_commit_is_a_lost_race() -> None:
    clock = FakeClock()
    race = Race(MemoryEngine(clock=clock))
    site = Site(Store(race, backoff=no_waiting()))
    short, long = race.lease(5), race.lease(60)
    site.members.insert("m1", Blade("s1"), lease=short.id)
    race.between(lambda: clock.advance(6))

    site.members.put("m1", Blade("s2"), lease=long.id)

    assert site.member_by_serial.key_of("s2") == "m1"
    assert site.member_by_serial.count() == 1


# ---- explanations ---------------------------------------------------------------------------------------------------


def test_an_explanation_writes_nothing_and_shows_no_record(site: Site, store: Store) -> None:
    explanation = store.explain(lambda tx: Site(tx).blades.insert(ONE, Blade("s1", ["a"])))

    assert str(explanation).splitlines() == [
        "guard  /site/by-serial/s1      absent    index entry of by_serial (serial=s1)",
        "guard  /site/rack/r1/blades/1  absent    record of blades (rack=r1, slot=1)",
        "put    /site/by-serial/s1      -> r1, 1  index entry of by_serial (serial=s1)",
        "put    /site/by-tag/a/r1/1               index entry of by_tag (tag=a, rack=r1, slot=1)",
        "put    /site/rack/r1/blades/1  38 bytes  record of blades (rack=r1, slot=1)",
    ]
    assert store.revision == 0
    assert site.blades.count() == 0


def test_an_explanation_shows_records_when_asked(store: Store) -> None:
    explanation = store.explain(lambda tx: Site(tx).racks.put("r1", Rack("cellar")))

    assert explanation.lines(show_values=True) == [
        'put  /site/racks/r1  {"room":"cellar","height":42}  record of racks (rack=r1)'
    ]
    assert explanation.commit == Commit((), (Put(b"/site/racks/r1", b'{"room":"cellar","height":42}'),))


def test_the_explanation_of_nothing_says_so(store: Store) -> None:
    assert str(store.explain(lambda tx: Site(tx).blades.delete(ONE))) == "nothing to write"


# ---- without revisions ----------------------------------------------------------------------------------------------


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Race]:
    with open_store(f"lmdb:{tmp_path / 'plain'}", history="off") as store:
        race = Race(store.engine)
        yield race
        assert_healthy(store, Site)


def test_without_revisions_transactions_hold_all_the_same(plain: Race) -> None:
    site = Site(Store(plain, backoff=no_waiting()))
    site.blades.insert(ONE, Blade("s1", ["a"]))
    plain.between(lambda: site.blades.put(ONE, Blade("s1", ["b"])))

    site.blades.modify(ONE, lambda blade: Blade(blade.serial, [*blade.tags, "c"]))

    assert site.blades.get(ONE) == Blade("s1", ["b", "c"])
    found = site.blades.versioned(ONE)
    assert found is not None
    assert site.blades.put(ONE, Blade("s2"), expected_revision=found.revision) == 0
    with pytest.raises(StaleRecordError):
        site.blades.put(ONE, Blade("s3"), expected_revision=found.revision)


def test_without_revisions_a_list_is_guarded_key_by_key_and_gap_by_gap(plain: Race) -> None:
    site = Site(Store(plain))
    for name in "ac":
        site.racks.insert(name, Rack("x"))

    with site.transaction() as tx:
        assert list(tx.racks.keys()) == ["a", "c"]
        tx.racks.delete("zz")

    guards = plain.commits[-1].guards
    assert [type(guard) for guard in guards] == [RangeEmpty, KeyUnchanged, RangeEmpty, KeyUnchanged, RangeEmpty]


@pytest.mark.parametrize(
    "phantom",
    [
        pytest.param(lambda site: site.racks.insert("b", Rack("new")), id="insert"),
        pytest.param(lambda site: site.racks.delete("a"), id="delete"),
        pytest.param(lambda site: site.racks.put("c", Rack("new")), id="update"),
        pytest.param(lambda site: site.racks.insert("0", Rack("new")), id="before"),
        pytest.param(lambda site: site.racks.insert("z", Rack("new")), id="after"),
    ],
)
@pytest.mark.parametrize("look", [lambda tx: list(tx.racks.keys()), lambda tx: list(tx.racks.list())])
def test_without_revisions_a_phantom_is_a_conflict(
    plain: Race, phantom: Callable[[Site], object], look: Callable[[Site], object]
) -> None:
    site = Site(Store(plain))
    for name in "ac":
        site.racks.insert(name, Rack("x"))
    plain.between(lambda: phantom(site))

    with pytest.raises(CommitConflictError), site.transaction() as tx:
        look(tx)
        tx.flags.insert("counted", None)
