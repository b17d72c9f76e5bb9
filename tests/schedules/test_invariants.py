"""Invariants: each holds for sound actors, and fails when what it speaks of is broken."""

import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import msgspec
import pytest

from keyplan.engine import Commit, Delete, DeleteRange, KeyRange, Put
from keyplan.errors import CommitConflictError, InvalidInputError, NotFoundError
from keyplan.store import Store
from keyplan.testing.schedules import (
    Actor,
    Invariant,
    NotDeterministicError,
    Outcome,
    ParkingEngine,
    Scenario,
    acknowledged,
    actor,
    as_in_some_order,
    explained_by,
    explore,
    healthy,
    never,
    replay,
    restarts,
    settles,
    stays,
    watched,
)
from keyplan.testing.schedules.steps import Step, failed
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


def delete_what_is_gone(store: Store) -> None:
    """Delete a record that was there when it was looked for, and say so, whoever deleted it meanwhile."""
    if not Site(store).blades.exists(R1):
        raise NotFoundError(table="blades", key="r/1")
    store.engine.commit(Commit((), (Delete(b"/site/rack/r/blades/1"),)))


def test_who_succeeded_does_so_in_that_order_too() -> None:
    scenario = Scenario(delete_what_is_gone, delete_what_is_gone, setup=one_record, invariants=[as_in_some_order])
    assert [failure.kind for failure in explore(scenario).failures] == ["as_in_some_order: not"]


def test_what_starts_again_after_a_crash_has_its_place_in_an_order() -> None:
    first = actor(lambda store: Site(store).blades.put(R1, Blade("s7")), "first")
    scenario = Scenario(first, restarts(first), setup=one_record, invariants=[as_in_some_order], faults={"first": "c"})
    assert explore(scenario, complete=True).failures == []


# ---- what would judge nothing ------------------------------------------------------------------------------------------------


def message_of(*actors: Callable[[Store], object] | Actor, invariant: Invariant) -> str:
    """What an exploration of the actors says first of what an invariant finds; empty when it finds nothing."""
    failures = explore(Scenario(*actors, setup=two_records, invariants=[invariant]), complete=True).failures
    return failures[0].message if failures else ""


@pytest.mark.parametrize(
    "invariant",
    [never("chekc"), watched("chekc"), explained_by(lambda names: {"chekc": 1})],
    ids=["never", "watched", "explained_by"],
)
def test_an_invariant_of_an_actor_that_there_is_not_is_refused(invariant: Invariant) -> None:
    found = message_of(actor(WRITERS["modify"], "check"), invariant=invariant)
    assert found.startswith("InvalidInputError: ")
    assert "no actor is called 'chekc': use check" in found


def test_health_without_a_layout_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="it has no layout to check: name those of the scenario"):
        healthy()


def test_a_check_that_does_not_say_what_it_found_is_a_failure() -> None:
    found = message_of(actor(lambda store: None, "check"), invariant=never("check"))
    assert found.startswith("silent: check returns None")


def test_a_model_has_an_answer_for_who_committed() -> None:
    found = message_of(actor(WRITERS["count"], "count"), invariant=explained_by(lambda names: {}))
    assert found == "silent: the model has no answer for count, which has committed"


def test_commits_of_several_engines_are_in_the_order_in_which_they_were_made() -> None:
    orders: set[tuple[str, ...]] = set()

    def late(first: Store, second: Store) -> None:
        for _ in range(5):
            second.engine.commit(Commit((), (Put(b"a", b""),)))

    def early(first: Store, second: Store) -> None:
        first.engine.commit(Commit((), (Put(b"a", b""),)))
        second.engine.commit(Commit((), (Put(b"b", b""),)))

    def told(names: list[str]) -> dict[str, None]:
        orders.add(tuple(names))
        return dict.fromkeys(names)

    scenario = Scenario(late, early, engines=2, invariants=[explained_by(told)], revisions_matter=True)
    assert explore(scenario, complete=True).failures == []
    assert orders == {("late", "early"), ("early", "late")}


# ---- what is raised otherwise ------------------------------------------------------------------------------------------------


def test_any_error_of_an_invariant_is_told_with_its_schedule() -> None:
    def asks_for_what_is_not_there(outcome: Outcome) -> None:
        outcome.answers["nobody"]

    scenario = Scenario(WRITERS["modify"], setup=two_records, invariants=[asks_for_what_is_not_there])
    failure = explore(scenario).failures[0]
    assert failure.kind == "asks_for_what_is_not_there: KeyError"
    assert re.match(
        r"KeyError: asks_for_what_is_not_there raised it at line \d+ of test_invariants\.py: ", failure.message
    )
    assert replay(scenario, failure.text).failure == failure.message


def test_a_condition_that_raises_in_between_is_told_with_its_schedule() -> None:
    def renamed(store: Store) -> None:
        Site(store).blades.rename(R1, BladeKey("r", "9"))
        Site(store).blades.rename(BladeKey("r", "9"), R1)

    scenario = Scenario(
        renamed, setup=one_record, invariants=[stays(lambda store: Site(store).blades.require(R1) is not None)]
    )
    failure = explore(scenario).failures[0]
    assert (failure.kind, failure.message.split(":")[0]) == ("stays: NotFoundError", "NotFoundError")


def test_what_should_stay_is_asked_of_all_engines() -> None:
    def second_only(first: Store, second: Store) -> None:
        second.engine.commit(Commit((), (Put(b"a", b""),)))
        second.engine.commit(Commit((), (Delete(b"a"),)))

    scenario = Scenario(
        second_only, engines=2, invariants=[stays(lambda first, second: second.engine.value(b"a") is None)]
    )
    assert [failure.kind for failure in explore(scenario).failures] == ["stays: broken"]


def test_two_invariants_of_one_name_fail_apart() -> None:
    def has(key: bytes, outcome: Outcome) -> None:
        assert outcome.engine.value(key) is None, "there: it is"

    def puts(key: bytes) -> Callable[[Store], object]:
        return lambda store: store.engine.commit(Commit((), (Put(key, b""),)))

    def takes(store: Store) -> None:
        if store.engine.value(b"a") is not None:
            store.engine.commit(Commit((), (Delete(b"a"),)))

    scenario = Scenario(
        actor(puts(b"a"), "a"), actor(puts(b"b"), "b"), takes, invariants=[partial(has, b"a"), partial(has, b"b")]
    )
    assert {failure.kind for failure in explore(scenario).failures} == {"has#1: there", "has#2: there"}


def test_what_is_not_found_again_is_told_and_not_reported_as_if_it_were() -> None:
    judged: list[int] = []

    def fails_at_first(_outcome: Outcome) -> None:
        judged.append(1)
        assert len(judged) != 3, "once: and never again"

    with pytest.raises(NotDeterministicError, match=r"found wrong for 'fails_at_first: once', then for 'nothing'"):
        explore(Scenario(WRITERS["modify"], setup=two_records, invariants=[fails_at_first]))


# ---- acknowledged ------------------------------------------------------------------------------------------------------------

Planted = Callable[[ParkingEngine, Step, Commit], int]
carry_out = ParkingEngine.carry_out


def loses_a_write(engine: ParkingEngine, step: Step, commit: Commit) -> int:
    revision = engine.inner.commit(msgspec.structs.replace(commit, mutations=commit.mutations[:-1]))
    engine.run.acknowledge(step, engine.number, revision, commit)
    return revision


def keeps_what_it_deletes(engine: ParkingEngine, step: Step, commit: Commit) -> int:
    left = tuple(each for each in commit.mutations if isinstance(each, Put))
    revision = engine.inner.commit(msgspec.structs.replace(commit, mutations=left))
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
        (keeps_what_it_deletes, "kept:"),
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


@pytest.mark.parametrize("act", ["delete", "clear"])
def test_a_deletion_that_did_nothing_is_found_though_it_is_no_revision(
    act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation = Delete(b"/a") if act == "delete" else DeleteRange(KeyRange(b"/", b"0"))

    def sets(store: Store) -> None:
        store.engine.commit(Commit((), (Put(b"/a", b""),)))

    def deletes(store: Store) -> None:
        store.engine.commit(Commit((), (mutation,)))

    scenario = Scenario(deletes, actor(deletes, "again"), setup=sets, invariants=[acknowledged])
    assert explore(scenario, complete=True).failures == []
    monkeypatch.setattr(ParkingEngine, "carry_out", keeps_what_it_deletes)
    assert [failure.kind for failure in explore(scenario).failures] == ["acknowledged: kept"]


def test_a_lost_answer_that_never_came_excuses_no_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    def modify(store: Store) -> None:
        WRITERS["modify"](store)

    def other(store: Store) -> None:
        WRITERS["put other"](store)

    scenario = Scenario(modify, other, setup=two_records, invariants=[acknowledged], faults={"modify": "u"})
    assert explore(scenario, complete=True).failures == []

    def refuses_twice(engine: ParkingEngine, step: Step, commit: Commit) -> int:
        if step.fault == "u":
            engine.inner.commit(commit)
            raise failed(step, CommitConflictError(failed=()))
        return carry_out(engine, step, commit)

    monkeypatch.setattr(ParkingEngine, "carry_out", refuses_twice)
    assert "acknowledged: orphan" in [failure.kind for failure in explore(scenario).failures]


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
