"""The exploration itself: planted defects are found, sound pairs are proven, and how many schedules that takes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from keyplan.engine import Commit, Guard, KeyAbsent, KeyUnchanged
from keyplan.errors import CommitOutcomeUnknownError, InvalidInputError
from keyplan.keyspace.lifecycle import required_record
from keyplan.maintenance import FindingKind
from keyplan.store import Store
from keyplan.testing.schedules import (
    ACTOR_ERRORS,
    Exhaustive,
    Exploration,
    ParkingEngine,
    Preemptions,
    Scenario,
    ScheduleFailure,
    actor,
    as_in_some_order,
    check_schedules,
    explore,
    healthy,
)
from keyplan.testing.schedules.steps import Step
from tests.maintenance.layouts import Blade, BladeKey, Site, write
from tests.schedules.matrix import GROUPS
from tests.schedules.scenes import (
    ENTRY_KEY,
    OTHER,
    R1,
    STATE_KEY,
    build,
    drop,
    guards_left_out,
    of_absent_entry,
    of_drop,
    of_entry_that_stays,
    one_record,
    put_in_transaction,
    repairs,
    unbuilt,
)
from tests.schedules.writers import WRITERS, two_records

STALE, DANGLING, MISSING = FindingKind.STALE_ENTRY, FindingKind.DANGLING_ENTRY, FindingKind.MISSING_ENTRY


def count(store: Store) -> int:
    return Site(store).ports.next()


def modify(store: Store) -> None:
    Site(store).blades.modify(R1, lambda blade: Blade(blade.serial, [*blade.tags, "new"]))


def put(store: Store) -> None:
    Site(store).blades.put(R1, OTHER)


def delete_in_transaction(store: Store) -> None:
    with store.transaction() as transaction:
        Site(transaction).blades.delete(R1)


def inserts(name: str, serial: str | None = None) -> Callable[[Store], None]:
    def insert(store: Store) -> None:
        Site(store).blades.insert(BladeKey("r", name), Blade(serial or name))

    return insert


def left_behind(store: Store) -> None:
    """A unique entry of a record that is not there yet."""
    one_record(store)
    write(store, puts={b"/site/by-serial/s3": b"rack/r/blades/3"})


def counted(store: Store) -> None:
    one_record(store)
    Site(store).ports.next()


def of_pair(*actors: Callable[[Store], object], setup: Callable[[Store], None] = one_record) -> Scenario:
    return Scenario(*actors, setup=setup, layouts=[Site])


def strings(found: Exploration) -> list[str]:
    return [failure.text.rsplit(":", 1)[1] for failure in found.failures]


# ---- planted defects -----------------------------------------------------------------------------------------------------


def test_a_put_beside_a_build_that_guards_no_absent_entry_leaves_a_stale_one() -> None:
    with guards_left_out(of_absent_entry):
        found = explore(of_pair(put_in_transaction, build, setup=unbuilt))
    assert found.is_complete
    assert found.schedules <= 150
    assert found.first_failure_at == 2
    assert [failure.kind for failure in found.failures] == ["healthy: stale-entry"]
    assert strings(found) == ["ab29a"]


def test_an_insert_that_guards_no_entry_that_stays_loses_it_to_a_repair() -> None:
    scenario = Scenario(actor(inserts("3", "s3")), actor(repairs(STALE, DANGLING)), setup=left_behind, layouts=[Site])
    with guards_left_out(of_entry_that_stays):
        found = explore(scenario)
    assert found.is_complete
    assert found.failures[0].kind == "healthy: missing-entry"
    assert strings(found)[0] == "a2b6a"


@pytest.mark.parametrize("act", [put_in_transaction, delete_in_transaction])
def test_so_does_a_repair_of_a_missing_entry(act: Callable[[Store], None]) -> None:
    def without_entry(store: Store) -> None:
        one_record(store)
        write(store, ENTRY_KEY)

    scenario = Scenario(actor(act), actor(repairs(MISSING)), setup=without_entry, layouts=[Site])
    assert explore(scenario, complete=True).failures == []
    with guards_left_out(of_absent_entry):
        found = explore(scenario)
    assert found.first_failure_at == 2
    assert strings(found) == ["ab6a"]


def test_a_drop_that_guards_nothing_leaves_a_readable_index_without_entries() -> None:
    with guards_left_out(of_drop):
        found = explore(
            Scenario(drop, build, setup=one_record, layouts=[Site], only_raises=(*ACTOR_ERRORS, InvalidInputError))
        )
    assert found.first_failure_at is not None
    assert found.first_failure_at <= 20
    assert found.failures[0].kind == "healthy: missing-entry"
    assert strings(found)[0] == "a4b28a2"


@contextmanager
def drop_guarded_by_what_it_reads() -> Iterator[None]:
    """Plant a drop that deletes under the state that it reads with the keys, whoever wrote it."""
    carry_out = ParkingEngine.carry_out

    def planted(engine: ParkingEngine, step: Step, commit: Commit) -> int:
        if any(of_drop(guard, commit) for guard in commit.guards):
            with engine.inner.snapshot() as snapshot:
                state = snapshot.get(STATE_KEY)
            as_read = () if state is None else (KeyUnchanged(STATE_KEY, state.mod_revision),)
            others = tuple(guard for guard in commit.guards if not of_drop(guard, commit))
            commit = msgspec.structs.replace(commit, guards=(*others, *as_read))
        return carry_out(engine, step, commit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParkingEngine, "carry_out", planted)
        yield


def test_a_drop_guarded_by_the_state_of_another_still_loses_entries() -> None:
    scenario = Scenario(drop, build, setup=one_record, layouts=[Site], only_raises=(*ACTOR_ERRORS, InvalidInputError))
    with drop_guarded_by_what_it_reads():
        found = explore(scenario)
    assert [failure.kind for failure in found.failures] == ["healthy: missing-entry"]
    assert explore(scenario, complete=True).failures == []


def of_unchanged(guard: Guard, _commit: object) -> bool:
    return isinstance(guard, KeyUnchanged)


def of_absent(guard: Guard, _commit: object) -> bool:
    return isinstance(guard, KeyAbsent)


def test_a_lost_update_is_found_when_unchanged_records_are_not_guarded() -> None:
    with guards_left_out(of_unchanged):
        counts = explore(Scenario(count, count, setup=counted, layouts=[Site], invariants=[as_in_some_order]))
        records = explore(of_pair(modify, put))
    assert counts.first_failure_at == 2
    assert records.first_failure_at == 2


def test_two_moves_of_one_unique_value_still_refuse_each_other_by_the_new_entry() -> None:
    def move(store: Store) -> None:
        Site(store).blades.modify(R1, lambda blade: Blade("s2", blade.tags))

    with guards_left_out(of_unchanged):
        found = explore(of_pair(move, move), complete=True)
    assert found.failures == []
    assert found.schedules == 4


def test_two_owners_of_one_unique_value_are_found_when_absence_is_not_guarded() -> None:
    with guards_left_out(of_absent):
        found = explore(of_pair(inserts("3", "s9"), inserts("4", "s9")))
    assert found.first_failure_at == 1
    assert found.failures[0].kind == "healthy: contested-entry"


@contextmanager
def unchanged_means_there() -> Iterator[None]:
    """Plant a guard on the wrong revision: KeyUnchanged holds for any record that is there."""
    carry_out = ParkingEngine.carry_out

    def planted(engine: ParkingEngine, step: Step, commit: Commit) -> int:
        with engine.inner.snapshot() as snapshot:
            there = {guard.key: snapshot.get(guard.key) for guard in commit.guards if isinstance(guard, KeyUnchanged)}
        guards = tuple(
            KeyUnchanged(guard.key, entry.mod_revision)
            if isinstance(guard, KeyUnchanged) and (entry := there[guard.key]) is not None
            else guard
            for guard in commit.guards
        )
        return carry_out(engine, step, msgspec.structs.replace(commit, guards=guards))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParkingEngine, "carry_out", planted)
        yield


@pytest.mark.parametrize(
    ("one", "other"), [(count, count), (modify, modify), (modify, put)], ids=["counters", "two modify", "modify, put"]
)
def test_a_guard_on_the_wrong_revision_is_found(
    one: Callable[[Store], object], other: Callable[[Store], object]
) -> None:
    scenario = Scenario(one, other, setup=counted, layouts=[Site], invariants=[healthy(Site), as_in_some_order])
    assert explore(scenario).failures == []
    with unchanged_means_there():
        assert explore(scenario).first_failure_at in {2, 3}


def test_a_delete_beside_a_rename_needs_no_revision_but_that_the_record_is_there() -> None:
    with unchanged_means_there():
        found = explore(of_pair(WRITERS["delete"], WRITERS["rename"], setup=two_records), complete=True)
    assert (found.failures, found.schedules) == ([], 4)


def test_an_action_done_twice_after_a_lost_answer_is_found() -> None:
    def count_on(store: Store) -> None:
        try:
            Site(store).ports.next()
        except CommitOutcomeUnknownError:
            Site(store).ports.next()

    scenario = Scenario(
        actor(count_on, "a"),
        actor(count, "b"),
        setup=one_record,
        layouts=[Site],
        invariants=[as_in_some_order],
        faults={"a": "un"},
    )
    found = explore(scenario)
    assert found.is_complete
    assert found.schedules <= 170
    assert [failure.text.split(":")[2:] for failure in found.failures] == [["a2u", "a4b2"]]
    scenario.faults = {0: "n"}
    assert explore(scenario, complete=True).failures == []


# ---- how many schedules ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writers", [2, 3, 4])
def test_writers_that_never_meet_are_run_once(writers: int) -> None:
    scenario = of_pair(*[inserts(f"new{number}") for number in range(writers)])
    found = explore(scenario, complete=True)
    assert found.schedules == 1
    assert len(found.unraced) == writers * (writers - 1) // 2
    assert explore(scenario, strategy=Preemptions(99, is_hashed=False)).schedules == {2: 2, 3: 6, 4: 24}[writers]


@pytest.mark.parametrize(("writers", "schedules"), [(2, 4), (3, 60), pytest.param(4, 3_120, marks=pytest.mark.slow)])
def test_every_order_of_writers_of_one_record_is_run_once(writers: int, schedules: int) -> None:
    scenario = Scenario(*[modify] * writers, setup=one_record, invariants=[])
    found = explore(scenario, complete=True, strategy=Exhaustive(), seconds_max=150)
    assert found.schedules == schedules
    assert found.unraced == ()


def test_an_exploration_that_has_to_end_and_does_not_is_a_failure() -> None:
    with pytest.raises(ScheduleFailure, match=r"explored 5 schedules and did not end; give it more, or fewer actors"):
        check_schedules(of_pair(modify, modify, modify), complete=True, schedules_max=5)


def test_the_report_is_the_text_of_the_failure() -> None:
    with guards_left_out(of_absent_entry), pytest.raises(ScheduleFailure) as failure:
        check_schedules(of_pair(put_in_transaction, build, setup=unbuilt))
    text = str(failure.value)
    assert "1 failure in " in text
    assert ":-:ab29a\n" in text
    assert "stale-entry: /site/by-serial/s1" in text
    assert "Shortest: 31 steps, 2 switches, no faults" in text
    assert " calls\n" in text


def test_every_call_is_shown_when_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYPLAN_SCHEDULES", "full")
    with guards_left_out(of_absent_entry):
        failure = explore(of_pair(put_in_transaction, build, setup=unbuilt)).failures[0]
    assert " calls\n" not in failure.script
    assert len(failure.script.splitlines()) == len(failure.schedule.steps)
    marked = [line.split()[0] for line in failure.script.splitlines() if line.endswith("<--")]
    assert len(marked) == 2


def test_a_quota_for_a_key_space_that_is_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    line = next(line for line in GROUPS["key spaces"]() if line.name == "delete and sweep x set quota")
    assert explore(line.make(), complete=True).failures == []
    monkeypatch.setattr("keyplan.keyspace.usage.live_record", required_record)
    assert "leftover" in explore(line.make()).failures[0].message.lower()
