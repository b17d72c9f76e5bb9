"""Ways to search: what each finds, that bounds and states leave nothing out that they promise, that chance repeats."""

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement

import pytest

from keyplan.store import Store
from keyplan.testing.schedules import (
    Exhaustive,
    Invariant,
    Outcome,
    Pct,
    Preemptions,
    Scenario,
    Strategy,
    Walk,
    actor,
    explore,
    healthy,
)
from tests.maintenance.layouts import Site
from tests.schedules.scenes import build, guards_left_out, of_absent_entry, put_in_transaction, unbuilt
from tests.schedules.writers import WRITERS, two_records


def stale_by(strategy: Strategy, **options: int) -> tuple[int, int | None]:
    """How many schedules a strategy runs on a put beside a build without its guard, and which fails first."""
    with guards_left_out(of_absent_entry):
        found = explore(
            Scenario(put_in_transaction, build, setup=unbuilt, layouts=[Site]), strategy=strategy, seconds_max=60
        )
    return found.schedules, found.first_failure_at


@pytest.mark.parametrize(("bound", "schedules", "fails_at"), [(0, 2, None), (1, 31, 2), (2, 87, 2)])
def test_a_bound_runs_every_schedule_within_it(bound: int, schedules: int, fails_at: int | None) -> None:
    assert stale_by(Preemptions(bound, is_hashed=False)) == (schedules, fails_at)


def test_states_that_were_gone_through_are_left_and_the_failure_is_found() -> None:
    schedules, fails_at = stale_by(Preemptions(2))
    assert schedules <= 87
    assert fails_at == 2


def test_priorities_by_chance_hit_and_repeat() -> None:
    hits = []
    for runs in (1_000, 300):
        fails: list[tuple[int, ...]] = []
        with guards_left_out(of_absent_entry):
            explore(
                Scenario(put_in_transaction, build, setup=unbuilt, invariants=[noting(fails, healthy(Site))]),
                strategy=Pct(depth=2, runs=runs, seed=1),
                seconds_max=60,
            )
        hits.append(fails)
    assert len(hits[0]) >= 5
    assert hits[1]
    assert hits[0][: len(hits[1])] == hits[1]


def noting(fails: list[tuple[int, ...]], invariant: Invariant) -> Invariant:
    """Judge, and keep the schedules that fail, which then pass."""

    def noted(outcome: Outcome) -> None:
        try:
            invariant(outcome)
        except AssertionError:
            fails.append(tuple(step.actor for step in outcome.steps))

    return noted


def test_a_walk_runs_as_many_schedules_as_it_was_told() -> None:
    assert stale_by(Walk(runs=30, seed=1))[0] == 30


def ends_of(actors: Sequence[Callable[[Store], object]], strategy: Strategy) -> tuple[int, set[object]]:
    """Run the actors; return how many schedules that took, and all the ends that they came to."""
    ends: set[object] = set()

    def note(outcome: Outcome) -> None:
        errors = sorted((name, type(error).__name__) for name, error in outcome.errors.items())
        ends.add((outcome.stored(), repr(sorted(outcome.answers.items())), tuple(errors)))

    scenario = Scenario(*[actor(one) for one in actors], setup=two_records, invariants=[note])
    found = explore(scenario, strategy=strategy, seconds_max=60)
    assert found.failures == []
    return found.schedules, ends


PAIRS = list(combinations_with_replacement(WRITERS, 2))


@pytest.mark.parametrize("first", WRITERS)
def test_the_exhaustive_search_comes_to_every_end_that_there_is(first: str) -> None:
    for one, other in PAIRS:
        if one == first:
            actors = [WRITERS[one], WRITERS[other]]
            reduced, plain = ends_of(actors, Exhaustive()), ends_of(actors, Preemptions(1_000, is_hashed=False))
            hashed = ends_of(actors, Preemptions(1_000))
            assert reduced[1] == plain[1] == hashed[1]
            assert reduced[0] <= plain[0]


TRIPLES = [
    ("modify", "put other", "delete"),
    ("insert new", "insert taken", "rename other"),
    ("rename", "put same", "count"),
    ("swap", "modify", "list and write"),
    ("look up and write", "rename other", "insert new"),
]


@pytest.mark.parametrize("names", TRIPLES, ids=" x ".join)
def test_so_it_does_for_three(names: tuple[str, ...]) -> None:
    actors = [WRITERS[name] for name in names]
    assert ends_of(actors, Exhaustive())[1] == ends_of(actors, Preemptions(1_000, is_hashed=False))[1]
