"""Ways to search: what each finds, that bounds and states leave nothing out that they promise, that chance repeats."""

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement

import pytest

from keyplan.engine import Guard, KeyUnchanged
from keyplan.errors import InvalidInputError
from keyplan.limits import SCHEDULE_REPLAYS_MAX
from keyplan.store import Store
from keyplan.testing.schedules import (
    Exhaustive,
    Invariant,
    Outcome,
    Pct,
    Portfolio,
    Preemptions,
    Scenario,
    Schedule,
    Strategy,
    Walk,
    actor,
    as_in_some_order,
    explore,
    healthy,
)
from keyplan.testing.schedules.batons import Batons
from keyplan.testing.schedules.bounded import VisitedStates
from keyplan.testing.schedules.judging import Judge
from keyplan.testing.schedules.sampling import PctSearch, WalkSearch
from keyplan.testing.schedules.shortening import rank_of, shortened, switches_of
from keyplan.testing.schedules.steps import Step
from keyplan.testing.schedules.surroundings import controlled_surroundings
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


def of_unchanged(guard: Guard, _commit: object) -> bool:
    return isinstance(guard, KeyUnchanged)


def test_priorities_by_chance_change_at_the_last_choice_too() -> None:
    with guards_left_out(of_unchanged):
        scenario = Scenario(*[WRITERS["count"]] * 2, setup=two_records, invariants=[as_in_some_order])
        found = explore(scenario, strategy=Pct(depth=2, runs=100, seed=1))
    assert found.failures


def test_who_cannot_step_at_first_is_before_and_behind_others() -> None:
    search = PctSearch(depth=1, runs=100, seed=1)
    search.choose([0, 1], [])
    search.learn([])
    firsts = set()
    for _ in range(50):
        search.choose([0], [])
        firsts.add(search.choose([0, 1], [Step(0)]))
        search.learn([])
    assert firsts == {0, 1}


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Preemptions(-1), "'bound', problem=it is -1; give it 0 or more"),
        (lambda: Pct(depth=0), "'depth', problem=it is 0; give it 1 or more"),
        (lambda: Pct(runs=0), "'runs', problem=it is 0"),
        (lambda: Walk(runs=0), "'runs', problem=it is 0"),
        (lambda: explore(Scenario(WRITERS["modify"]), schedules_max=0), "'schedules_max', problem=it is 0"),
    ],
)
def test_a_search_of_nothing_is_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        make()


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


TRIPLES = list(combinations_with_replacement(WRITERS, 3))[::8]
"""Every eighth, 57 of them: plain search takes a hundred schedules for each."""

PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_so_it_does_for_three(part: int) -> None:
    for names in TRIPLES[part::PARTS]:
        actors = [WRITERS[name] for name in names]
        reduced, plain = ends_of(actors, Exhaustive()), ends_of(actors, Preemptions(1_000, is_hashed=False))
        assert reduced[1] == plain[1], names
        assert reduced[0] <= plain[0]


# ---- what is spent -------------------------------------------------------------------------------------------------------


class Spending:
    """An explorer whose searches never end."""

    def __init__(self) -> None:
        self.scenario = Scenario(WRITERS["modify"])
        self.searches: list[tuple[str, float]] = []

    def variants(self) -> list[tuple[()]]:
        return [()]

    def search(self, search: object, *, share: float = 1.0, **_others: object) -> bool:
        self.searches.append((type(search).__name__, share))
        return False

    def cover(self, _met: object) -> None: ...


def test_the_portfolio_spends_half_on_everything_a_quarter_on_bounds_and_the_rest_on_chance() -> None:
    spending = Spending()
    assert not Portfolio()(spending)  # type: ignore[arg-type]
    assert spending.searches == [
        ("TraceSearch", 0.5),
        ("BoundedSearch", 0.75),
        ("BoundedSearch", 0.75),
        ("PctSearch", 1.0),
    ]


def test_a_share_is_one_of_seconds_and_of_schedules() -> None:
    modify = WRITERS["modify"]
    found = explore(
        Scenario(modify, modify, modify, setup=two_records, invariants=[]),
        strategy=Exhaustive(share=0.5),
        schedules_max=40,
        seconds_max=600,
    )
    assert (found.schedules, found.is_complete, found.has_run_out) == (20, False, True)


def test_the_older_half_of_the_states_goes_when_the_table_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyplan.testing.schedules.bounded._STATES_MAX", 4)
    visited = VisitedStates()
    for number in range(4):
        assert not visited.is_covered(b"%d" % number, 1)
    assert visited.is_covered(b"3", 1)
    assert not visited.is_covered(b"3", 2)
    assert not visited.is_covered(b"0", 1)
    assert visited.is_covered(b"3", 2)


# ---- what is kept --------------------------------------------------------------------------------------------------------


def test_a_failure_is_shortened_by_at_most_so_many_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_holds(_outcome: Outcome) -> None:
        raise AssertionError("never")

    scenario = Scenario(build, WRITERS["modify"], setup=unbuilt, invariants=[never_holds])
    with controlled_surroundings():
        judge = Judge(scenario, Batons())
        run = judge.run(search=WalkSearch(runs=1, seed=3))
        verdict = judge.verdict(run)
        run.end()
        assert verdict is not None
        drawn = Schedule((), tuple(step.actor for step in run.steps))
        assert switches_of(drawn.steps) > 1
        best, replays = shortened(judge, drawn, verdict)
        assert switches_of(best.steps) <= 1
        assert 1 < replays <= SCHEDULE_REPLAYS_MAX
        monkeypatch.setattr("keyplan.testing.schedules.shortening.SCHEDULE_REPLAYS_MAX", 1)
        assert shortened(judge, drawn, verdict)[1] == 1


def test_twenty_kinds_of_failures_are_kept() -> None:
    def fails_in_its_own_way(outcome: Outcome) -> None:
        raise AssertionError("".join(f"{step.actor}" for step in outcome.steps))

    modify = WRITERS["modify"]
    found = explore(Scenario(modify, modify, modify, setup=two_records, invariants=[fails_in_its_own_way]))
    assert found.schedules == 60
    assert len(found.failures) == 20
    ranks = [rank_of(failure.schedule) for failure in found.failures]
    assert ranks == sorted(ranks)
