"""Invariants: each holds for sound actors, and fails when what it speaks of is broken."""

from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest

from keyplan.engine import Commit, Delete, Put
from keyplan.errors import CommitConflictError
from keyplan.store import Store
from keyplan.testing.schedules import (
    Outcome,
    ParkingEngine,
    Scenario,
    acknowledged,
    actor,
    as_in_some_order,
    explained_by,
    explore,
    never,
    settles,
    stays,
)
from keyplan.testing.schedules.steps import Step
from tests.maintenance.layouts import Blade, BladeKey, Site
from tests.schedules.scenes import R1, one_record
from tests.schedules.writers import WRITERS, two_records


def test_what_should_stay_is_looked_at_after_each_commit() -> None:
    def there_and_back(store: Store) -> None:
        blades = Site(store).blades
        blades.delete(R1)
        blades.insert(R1, Blade("s1", ["t"]))

    scenario = Scenario(
        there_and_back, setup=one_record, invariants=[stays(lambda store: Site(store).blades.count() == 1)]
    )
    assert explore(scenario).failures[0].kind == "stays: broken"
    assert explore(Scenario(there_and_back, setup=one_record, layouts=[Site])).failures == []


def test_what_should_stay_may_be_refused_by_an_error_of_the_store_and_sees_all_stores() -> None:
    def there_and_back(store: Store, other: Store) -> None:
        Site(other).blades.delete(R1)
        Site(other).blades.insert(R1, Blade("s1", ["t"]))

    def fill(*stores: Store) -> None:
        for store in stores:
            one_record(store)

    def is_there(store: Store, other: Store) -> bool:
        return Site(store).blades.require(R1) == Site(other).blades.require(R1)

    found = explore(Scenario(there_and_back, setup=fill, engines=2, invariants=[stays(is_there)]))
    assert [failure.kind for failure in found.failures] == ["stays: NotFoundError"]


def test_answers_are_explained_by_a_model_in_the_order_of_commits() -> None:
    def count(store: Store) -> int:
        return Site(store).ports.next()

    def ports(names: list[str]) -> dict[str, int]:
        return {name: 33000 + place for place, name in enumerate(names)}

    scenario = Scenario(
        actor(count, "a"),
        actor(count, "b"),
        setup=one_record,
        layouts=[Site],
        invariants=[explained_by(ports), acknowledged],
    )
    assert explore(scenario, complete=True).failures == []
    wrong = Scenario(
        actor(count, "a"),
        actor(count, "b"),
        setup=one_record,
        invariants=[explained_by(lambda names: dict.fromkeys(names, 0))],
    )
    assert explore(wrong).failures


def test_numbers_of_revisions_are_taken_as_independent_unless_they_matter() -> None:
    def plain(number: int) -> Callable[[Store], object]:
        return lambda store: Site(store).blades.insert(BladeKey("r", f"n{number}"), Blade(f"n{number}"))

    actors = [actor(plain(number), f"insert {number}") for number in (1, 2)]
    taken = explore(Scenario(*actors, setup=one_record, invariants=[as_in_some_order]), complete=True)
    assert taken.schedules == 1
    assert "revisions were taken as independent" in str(taken)
    matter = explore(
        Scenario(*actors, setup=one_record, invariants=[as_in_some_order], revisions_matter=True), complete=True
    )
    assert matter.schedules == 2
    assert "independent" not in str(matter)


def test_a_commit_that_changes_nothing_is_told_the_revision_that_others_made() -> None:
    def deletes_nothing(store: Store) -> int:
        return store.engine.commit(Commit((), (Delete(b"nothing"),)))

    answers: set[int] = set()

    def note(outcome: Outcome) -> None:
        answers.add(outcome.answers["deletes"])

    actors = (actor(deletes_nothing, "deletes"), WRITERS["modify"])
    scenario = Scenario(*actors, setup=two_records, invariants=[note], revisions_matter=True)
    assert explore(scenario, complete=True).failures == []
    assert len(answers) == 2


def test_an_invariant_that_always_fails_is_shown_with_few_switches() -> None:
    def never_holds(_outcome: Outcome) -> None:
        raise AssertionError("never")

    found = explore(Scenario(WRITERS["swap"], WRITERS["modify"], setup=two_records, invariants=[never_holds]))
    assert len(found.failures) == 1
    steps = found.failures[0].schedule.steps
    assert sum(one != other for one, other in pairwise(steps)) <= 1


# ---- acknowledged ------------------------------------------------------------------------------------------------------------

Planted = Callable[[ParkingEngine, Step, Commit], int]
carry_out = ParkingEngine.carry_out


def loses_a_write(engine: ParkingEngine, step: Step, commit: Commit) -> int:
    revision = engine.inner.commit(msgspec.structs.replace(commit, mutations=commit.mutations[:-1]))
    engine.run.acknowledge(step, engine.number, revision, commit)
    return revision


def writes_more(engine: ParkingEngine, step: Step, commit: Commit) -> int:
    revision = engine.inner.commit(msgspec.structs.replace(commit, mutations=(*commit.mutations, Put(b"more", b""))))
    engine.run.acknowledge(step, engine.number, revision, commit)
    return revision


def answers_twice(engine: ParkingEngine, step: Step, commit: Commit) -> int:
    revision = carry_out(engine, step, commit)
    engine.run.acknowledge(step, engine.number, revision, commit)
    return revision


def commits_twice(engine: ParkingEngine, step: Step, commit: Commit) -> int:
    engine.inner.commit(commit)
    return carry_out(engine, step, msgspec.structs.replace(commit, guards=()))


def commits_and_refuses(engine: ParkingEngine, step: Step, commit: Commit) -> int:
    engine.inner.commit(commit)
    raise CommitConflictError(failed=())


@pytest.mark.parametrize(
    ("planted", "word"),
    [
        (loses_a_write, "torn:"),
        (writes_more, "strange:"),
        (answers_twice, "twice:"),
        (commits_twice, "orphan:"),
        (commits_and_refuses, "orphan:"),
    ],
)
def test_a_commit_that_is_not_what_its_caller_was_answered_is_found(
    planted: Planted, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(WRITERS["put new"], WRITERS["rename other"], setup=two_records, invariants=[acknowledged])
    assert explore(scenario, complete=True).failures == []
    monkeypatch.setattr(ParkingEngine, "carry_out", planted)
    assert [failure.kind for failure in explore(scenario).failures] == [f"acknowledged: {word[:-1]}"]


def test_a_commit_that_was_not_carried_out_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(WRITERS["put new"], setup=two_records, invariants=[acknowledged], faults="un")
    assert explore(scenario, complete=True).failures == []

    def carries_it_out(engine: ParkingEngine, step: Step, commit: Commit) -> int:
        step.fault = "u" if step.fault == "n" else step.fault
        return carry_out(engine, step, commit)

    monkeypatch.setattr(ParkingEngine, "carry_out", carries_it_out)
    failure = explore(scenario).failures[0]
    assert failure.kind == "acknowledged: orphan"
    assert failure.text.split(":")[2] == "a2n"


def test_commits_belong_to_the_engine_that_they_were_made_on() -> None:
    def on_both(first: Store, second: Store) -> None:
        for store, times in ((first, 1), (second, 2)):
            for number in range(times):
                Site(store).blades.put(BladeKey("r", f"{number}"), Blade(f"s{number}"))

    made: set[tuple[int, ...]] = set()

    def note(outcome: Outcome) -> None:
        made.add(tuple(commit.engine for commit in outcome.commits))

    found = explore(Scenario(on_both, engines=2, layouts=[Site], invariants=[acknowledged, note]), complete=True)
    assert found.failures == []
    assert made == {(0, 1, 1)}


# ---- the others --------------------------------------------------------------------------------------------------------------


def test_a_check_that_finds_what_never_was_is_a_failure() -> None:
    def checks(store: Store) -> list[str]:
        return [] if Site(store).blades.exists(R1) else ["missing"]

    sound = Scenario(actor(checks, "check"), WRITERS["modify"], setup=one_record, invariants=[never("check")])
    assert explore(sound, complete=True).failures == []
    wrong = Scenario(actor(checks, "check"), WRITERS["delete"], setup=one_record, invariants=[never("check")])
    assert explore(wrong).failures[0].message == "check found ['missing'], although nothing was wrong at any time"


def test_what_does_not_settle_is_a_failure_with_the_error_that_the_second_run_ended_with() -> None:
    def ends_it(store: Store) -> None:
        Site(store).blades.insert(R1, Blade("s1"))

    scenario = Scenario(WRITERS["delete"], WRITERS["modify"], setup=one_record, invariants=[settles(ends_it)])
    assert explore(scenario).failures == []
    still_there = Scenario(WRITERS["modify"], setup=one_record, invariants=[settles(ends_it)])
    assert explore(still_there).failures[0].message.startswith("AlreadyExistsError: it does not settle: ")


def test_an_error_that_an_actor_may_not_end_with_is_a_failure() -> None:
    def asserts(store: Store) -> None:
        raise AssertionError("of the actor's own")

    found = explore(Scenario(asserts, setup=one_record))
    assert found.failures[0].message == "AssertionError: asserts raised it: of the actor's own"
    twice = Scenario(WRITERS["insert taken"], setup=two_records)
    assert explore(twice).failures == []
    assert (
        explore(Scenario(WRITERS["insert taken"], setup=two_records, only_raises=()))
        .failures[0]
        .message.startswith("UniqueViolationError: _insert_taken raised it: ")
    )
