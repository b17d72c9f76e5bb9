"""The plan as a pure function: no engine in sight, each guard and mutation written out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.engine import Commit, Delete, Entry, KeyAbsent, KeyUnchanged, Put
from keyplan.errors import UniqueViolationError
from keyplan.layout import BoundTable
from keyplan.store import RecordState, Write, index_entries_of, keys_to_observe, plan_insertion, plan_writes
from tests.store.layouts import Blade, BladeKey, Site

ONE = BladeKey("r1", "1")
TWO = BladeKey("r1", "2")
RAW_ONE = b"/site/rack/r1/blades/1"
RAW_TWO = b"/site/rack/r1/blades/2"
SERIAL = b"/site/by-serial/s1"
POINTS_AT_ONE = b"rack/r1/blades/1"
POINTS_AT_TWO = b"rack/r1/blades/2"


@pytest.fixture(scope="module")
def blades() -> BoundTable:
    return Site.bound().tables["blades"]


def state_of(table: BoundTable, key: BladeKey, blade: Blade, *, revision: int = 0, lease: int = 0) -> RecordState:
    return RecordState.of(b"value", lease, index_entries_of(table, key, blade), revision)


def stored(raw_key: bytes, raw_value: bytes, *, revision: int = 3, lease: int = 0) -> Entry:
    return Entry(raw_key, raw_value, revision, revision, 1, lease)


def test_insert_guards_absence_of_record_and_unique_entry(blades: BoundTable) -> None:
    write = Write(blades, ONE, RAW_ONE, None, state_of(blades, ONE, Blade("s1", ["a"])))

    plan = plan_writes([write], {})

    assert set(plan.guards.values()) == {KeyAbsent(RAW_ONE), KeyAbsent(SERIAL)}
    assert set(plan.mutations.values()) == {
        Put(RAW_ONE, b"value"),
        Put(SERIAL, POINTS_AT_ONE),
        Put(b"/site/by-tag/a/r1/1", b""),
    }


@given(
    serial=st.none() | st.sampled_from("abc"),
    tags=st.lists(st.sampled_from("abc"), max_size=4),
    lease=st.integers(0, 2),
)
def test_a_record_that_appears_alone_is_planned_as_among_others(
    serial: str | None, tags: list[str], lease: int
) -> None:
    table, blade = Site.bound().tables["blades"], Blade(serial, tags)
    raw_key, raw_value, index_entries, unique = table.encoded_record(ONE, blade)
    reference = plan_writes([Write(table, ONE, raw_key, None, RecordState.of(raw_value, lease, index_entries, 0))], {})

    commit = plan_insertion(raw_key, RecordState(raw_value, lease, index_entries, 0, unique))

    assert commit == Commit(tuple(reference.guards.values()), tuple(reference.mutations.values()))


def test_a_record_whose_key_is_also_an_entrys_is_not_planned_alone(blades: BoundTable) -> None:
    _, raw_value, index_entries, unique = blades.encoded_record(ONE, Blade("s1"))

    assert plan_insertion(SERIAL, RecordState(raw_value, 0, index_entries, 0, unique)) is None


def test_update_touches_only_the_entries_that_differ(blades: BoundTable) -> None:
    old = state_of(blades, ONE, Blade("s1", ["a", "b"]), revision=3)
    write = Write(blades, ONE, RAW_ONE, old, state_of(blades, ONE, Blade("s1", ["b", "c"])))
    observed = {
        SERIAL: stored(SERIAL, POINTS_AT_ONE),
        b"/site/by-tag/b/r1/1": stored(b"/site/by-tag/b/r1/1", b""),
    }

    plan = plan_writes([write], observed)

    assert set(plan.guards.values()) == {KeyUnchanged(RAW_ONE, 3), KeyUnchanged(SERIAL, 3)}
    assert set(plan.mutations.values()) == {
        Put(RAW_ONE, b"value"),
        Delete(b"/site/by-tag/a/r1/1"),
        Put(b"/site/by-tag/c/r1/1", b""),
    }


def test_an_entry_that_should_stay_but_is_missing_is_put_back(blades: BoundTable) -> None:
    blade = Blade("s1", ["a"])
    write = Write(blades, ONE, RAW_ONE, state_of(blades, ONE, blade, revision=3), state_of(blades, ONE, blade))

    plan = plan_writes([write], {SERIAL: None, b"/site/by-tag/a/r1/1": None})

    assert set(plan.guards.values()) == {KeyUnchanged(RAW_ONE, 3), KeyAbsent(SERIAL)}
    assert set(plan.mutations) == {RAW_ONE, SERIAL, b"/site/by-tag/a/r1/1"}


def test_delete_removes_the_record_and_its_own_entries(blades: BoundTable) -> None:
    write = Write(blades, ONE, RAW_ONE, state_of(blades, ONE, Blade("s1", ["a"]), revision=3), None)

    own = plan_writes([write], {SERIAL: stored(SERIAL, POINTS_AT_ONE)})
    foreign = plan_writes([write], {SERIAL: stored(SERIAL, POINTS_AT_TWO)})

    assert set(own.mutations.values()) == {Delete(RAW_ONE), Delete(SERIAL), Delete(b"/site/by-tag/a/r1/1")}
    assert set(foreign.mutations.values()) == {Delete(RAW_ONE), Delete(b"/site/by-tag/a/r1/1")}


def test_rename_is_one_record_going_and_one_coming(blades: BoundTable) -> None:
    blade = Blade("s1", ["a"])
    leaving = Write(blades, ONE, RAW_ONE, state_of(blades, ONE, blade, revision=3), None)
    coming = Write(blades, TWO, RAW_TWO, None, state_of(blades, TWO, blade))

    plan = plan_writes([leaving, coming], {SERIAL: stored(SERIAL, POINTS_AT_ONE, revision=3)})

    assert set(plan.guards.values()) == {KeyUnchanged(RAW_ONE, 3), KeyAbsent(RAW_TWO), KeyUnchanged(SERIAL, 3)}
    assert set(plan.mutations.values()) == {
        Delete(RAW_ONE),
        Delete(b"/site/by-tag/a/r1/1"),
        Put(RAW_TWO, b"value"),
        Put(SERIAL, POINTS_AT_TWO),
        Put(b"/site/by-tag/a/r1/2", b""),
    }
    assert plan == plan_writes([coming, leaving], {SERIAL: stored(SERIAL, POINTS_AT_ONE, revision=3)})


def test_a_unique_entry_of_a_record_outside_the_plan_is_refused(blades: BoundTable) -> None:
    write = Write(blades, TWO, RAW_TWO, None, state_of(blades, TWO, Blade("s1")))

    with pytest.raises(UniqueViolationError) as caught:
        plan_writes([write], {SERIAL: stored(SERIAL, POINTS_AT_ONE)})

    assert caught.value.facts == {"index": "by_serial", "key": "s1", "holder": ONE}


def test_two_records_of_one_plan_cannot_take_the_same_unique_entry(blades: BoundTable) -> None:
    writes = [
        Write(blades, ONE, RAW_ONE, None, state_of(blades, ONE, Blade("s1"))),
        Write(blades, TWO, RAW_TWO, None, state_of(blades, TWO, Blade("s1"))),
    ]

    with pytest.raises(UniqueViolationError):
        plan_writes(writes, {})


def test_an_entry_left_behind_by_the_record_itself_is_no_obstacle(blades: BoundTable) -> None:
    write = Write(blades, ONE, RAW_ONE, None, state_of(blades, ONE, Blade("s1")))

    plan = plan_writes([write], {SERIAL: stored(SERIAL, POINTS_AT_ONE)})

    assert set(plan.guards.values()) == {KeyAbsent(RAW_ONE), KeyUnchanged(SERIAL, 3)}
    assert set(plan.mutations) == {RAW_ONE}


@pytest.mark.parametrize(
    ("entry", "guard"),
    [
        pytest.param(None, KeyAbsent(SERIAL), id="missing"),
        pytest.param(stored(SERIAL, POINTS_AT_ONE, revision=5), KeyUnchanged(SERIAL, 5), id="its own"),
        pytest.param(stored(SERIAL, POINTS_AT_TWO, revision=5), KeyUnchanged(SERIAL, 5), id="another's"),
    ],
)
@pytest.mark.parametrize("serial", [None, "s2"])
def test_a_unique_entry_that_a_record_gives_up_stays_as_it_was_seen(
    blades: BoundTable, serial: str | None, entry: Entry | None, guard: KeyAbsent | KeyUnchanged
) -> None:
    old = state_of(blades, ONE, Blade("s1"), revision=3)
    new = None if serial is None else state_of(blades, ONE, Blade(serial))

    plan = plan_writes([Write(blades, ONE, RAW_ONE, old, new)], {SERIAL: entry})

    assert plan.guards[SERIAL] == guard
    assert (SERIAL in plan.mutations) == (entry is not None and entry.value == POINTS_AT_ONE)


def test_an_entry_whose_lease_alone_changes_is_written_over_what_was_seen(blades: BoundTable) -> None:
    old = state_of(blades, ONE, Blade("s1"), revision=3, lease=5)
    write = Write(blades, ONE, RAW_ONE, old, state_of(blades, ONE, Blade("s1"), lease=6))

    plan = plan_writes([write], {SERIAL: stored(SERIAL, POINTS_AT_ONE, revision=4, lease=5)})

    assert plan.guards[SERIAL] == KeyUnchanged(SERIAL, 4)
    assert plan.mutations[SERIAL] == Put(SERIAL, POINTS_AT_ONE, 6)


def test_entries_follow_their_record_to_another_lease(blades: BoundTable) -> None:
    blade = Blade("s1", ["a"])
    old = state_of(blades, ONE, blade, revision=3, lease=5)
    write = Write(blades, ONE, RAW_ONE, old, state_of(blades, ONE, blade, lease=6))
    tag = b"/site/by-tag/a/r1/1"

    plan = plan_writes([write], {SERIAL: stored(SERIAL, POINTS_AT_ONE, lease=5), tag: stored(tag, b"", lease=5)})

    assert set(plan.mutations.values()) == {Put(RAW_ONE, b"value", 6), Put(SERIAL, POINTS_AT_ONE, 6), Put(tag, b"", 6)}


def test_a_blind_write_has_no_guard() -> None:
    racks = Site.bound().tables["racks"]
    put = Write(racks, "r1", b"/site/racks/r1", None, RecordState.of(b"value", 0, {}, 0), is_guarded=False)
    delete = Write(racks, "r2", b"/site/racks/r2", None, None, is_guarded=False)

    plan = plan_writes([put, delete], {})

    assert plan.guards == {}
    assert set(plan.mutations.values()) == {Put(b"/site/racks/r1", b"value"), Delete(b"/site/racks/r2")}


def test_deleting_what_was_found_absent_is_only_a_premise() -> None:
    racks = Site.bound().tables["racks"]

    plan = plan_writes([Write(racks, "r1", b"/site/racks/r1", None, None)], {})

    assert plan.guards == {b"/site/racks/r1": KeyAbsent(b"/site/racks/r1")}
    assert plan.mutations == {}


def test_observed_are_unique_entries_and_entries_that_stay(blades: BoundTable) -> None:
    old = state_of(blades, ONE, Blade("s1", ["a", "b"]), revision=3)
    new = state_of(blades, ONE, Blade("s2", ["b", "c"]))

    assert set(keys_to_observe(Write(blades, ONE, RAW_ONE, old, new))) == {
        SERIAL,
        b"/site/by-serial/s2",
        b"/site/by-tag/b/r1/1",
    }
    assert keys_to_observe(Write(blades, ONE, RAW_ONE, None, None)) == []
