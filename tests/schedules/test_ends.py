"""How runs end: who crashed is told afterwards, nothing stays parked after an error, and who never ends is made to."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest

from keyplan.engine import Commit, Put
from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.store import Store
from keyplan.testing.schedules import (
    BatonKind,
    Exploration,
    Outcome,
    Scenario,
    actor,
    actor_waits,
    as_in_some_order,
    explore,
    replay,
    restarts,
)
from keyplan.testing.schedules import batons as baton_module

BATONS: list[BatonKind] = ["greenlets", "threads"]
SECONDS_MAX = 60


def puts_twice(store: Store) -> str:
    for value in (b"1", b"2"):
        store.engine.commit(Commit((), (Put(b"a", value),)))
    return "done"


def ends(work: Callable[[], object], *, by: type[BaseException] | None = None) -> None:
    """Run the work in a thread of its own, which must end, by an error where one is named."""
    has_ended: list[bool] = []

    def run() -> None:
        with nullcontext() if by is None else pytest.raises(by):
            work()
        has_ended.append(True)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS_MAX)
    assert not thread.is_alive(), "it hangs"
    assert has_ended


@contextmanager
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_who_crashed_is_told_in_the_report_and_by_whoever_replays() -> None:
    def two_is_there(outcome: Outcome) -> None:
        assert outcome.engine.value(b"a") == b"2"

    scenario = Scenario(actor(puts_twice, "first"), invariants=[two_is_there], faults="c")
    failure = explore(scenario).failures[0]
    assert failure.script.endswith("crashed")
    outcome = replay(scenario, failure.text)
    assert (outcome.crashed, dict(outcome.answers), dict(outcome.errors)) == (("first",), {}, {})


def test_what_an_actor_does_when_it_is_killed_is_no_part_of_the_outcome() -> None:
    def fails_at_its_end(store: Store) -> None:
        try:
            puts_twice(store)
        finally:
            raise ValueError("of the cleaning up")

    def never_holds(outcome: Outcome) -> None:
        raise AssertionError("never" if outcome.crashed else "whole")

    scenario = Scenario(
        actor(fails_at_its_end, "first"), invariants=[never_holds], faults="c", only_raises=(ValueError,)
    )
    failure = next(failure for failure in explore(scenario).failures if failure.schedule.faults)
    assert "ValueError" not in failure.script
    assert replay(scenario, failure.text).errors == {}


@pytest.mark.parametrize("baton", BATONS)
def test_an_invariant_that_ends_the_process_leaves_nobody_parked(baton: BatonKind) -> None:
    def ends_the_process(outcome: Outcome) -> None:
        raise SystemExit

    first = actor(puts_twice, "first")
    scenario = Scenario(first, restarts(first), invariants=[ends_the_process], faults={"first": "c"})
    with no_thread_is_left():
        ends(lambda: explore(scenario, baton=baton), by=SystemExit)


@pytest.mark.parametrize("baton", BATONS)
def test_an_exploration_that_is_interrupted_ends_and_leaves_nobody_parked(baton: BatonKind) -> None:
    def is_interrupted(store: Store) -> None:
        puts_twice(store)
        raise KeyboardInterrupt

    scenario = Scenario(is_interrupted, puts_twice, invariants=[as_in_some_order])
    with no_thread_is_left():
        ends(lambda: explore(scenario, baton=baton), by=KeyboardInterrupt)


@pytest.mark.parametrize("baton", BATONS)
def test_an_actor_that_takes_any_error_for_a_reason_to_try_again_is_ended(baton: BatonKind) -> None:
    def never_gives_up(store: Store) -> None:
        while True:
            try:
                store.engine.value(b"a")
            except (AssertionError, KeyplanError):
                continue

    scenario = Scenario(never_gives_up, invariants=[])
    found: list[Exploration] = []
    ends(lambda: found.append(explore(scenario, schedules_max=1, baton=baton)))
    assert "actor never_gives_up has made 2,000 calls" in found[0].failures[0].message


@pytest.mark.parametrize("baton", BATONS)
def test_a_condition_that_cannot_be_asked_is_the_error_of_who_waits(baton: BatonKind) -> None:
    def writes(store: Store) -> None:
        actor_waits(lambda: bool(store.engine.commit(Commit((), (Put(b"a", b""),)))))

    def divides(store: Store) -> None:
        actor_waits(lambda: 1 // len(store.engine.value(b"a") or b"") > 0)

    found = explore(Scenario(writes, puts_twice, invariants=[]), baton=baton)
    assert [failure.kind for failure in found.failures] == ["only_raises: InvalidInputError"]
    assert "a condition reads; it must not call commit" in found.failures[0].message
    found = explore(Scenario(divides, puts_twice, invariants=[as_in_some_order]), baton=baton)
    assert [failure.kind for failure in found.failures] == ["only_raises: ZeroDivisionError"]


def test_batons_that_cannot_be_had_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(puts_twice, invariants=[])
    with pytest.raises(InvalidInputError, match="'strings' are no batons: use greenlets or threads"):
        explore(scenario, baton="strings")  # type: ignore[arg-type]
    monkeypatch.setattr(baton_module, "greenlets", None)
    monkeypatch.setattr(baton_module, "HAS_GREENLETS", False)
    with pytest.raises(InvalidInputError, match="greenlet is not installed: use threads"):
        explore(scenario, baton="greenlets")
    assert explore(scenario, complete=True).failures == []
