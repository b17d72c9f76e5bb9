"""From a scenario to what was found: a search over all variants of faults, and the shortest schedule of each failure."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, TypeAlias

from keyplan.limits import SCHEDULE_FAILURES_MAX
from keyplan.testing.schedules.batons import BatonKind, Batons
from keyplan.testing.schedules.faults import Fault, variants_of
from keyplan.testing.schedules.judging import Judge, Verdict
from keyplan.testing.schedules.report import script_of
from keyplan.testing.schedules.running import Outcome, Run
from keyplan.testing.schedules.scenario import Scenario
from keyplan.testing.schedules.shortening import rank_of, shortened, switches_of
from keyplan.testing.schedules.strings import Schedule, parse_schedule, text_of
from keyplan.testing.schedules.surroundings import stage
from keyplan.testing.schedules.traces import DepartedError, Search, TraceSearch

__all__ = ["Exploration", "Failure", "ScheduleFailure", "Strategy", "check_schedules", "explore", "replay"]

_FURTHER_SCHEDULES: Final = 1_000
"""Schedules after the first failure, or as many as there were before it. Why: the next ones are often shorter."""


class ScheduleFailure(AssertionError):  # noqa: N818  # Why: it is a test that failed, and is called so.
    """An exploration found a schedule that fails, or did not end although it had to. Its text is the report."""

    def __init__(self, exploration: "Exploration", problem: str = "") -> None:
        super().__init__(f"{problem}\n{exploration}" if problem else str(exploration))
        self.exploration = exploration


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule that fails, the shortest found of its kind. `text` replays it."""

    text: str
    kind: str
    message: str
    script: str
    schedule: Schedule

    def __str__(self) -> str:
        return f"{self.text}\n{self.script}\n{self.message}"


@dataclass(slots=True)
class Exploration:
    """What an exploration came to. `str` of it is the report.

    `schedules` were run, `cut` ones among them left when they showed nothing new. `is_complete`: no schedule of the scenario is
    different from those that were run. `failures` come shortest first, one of each kind. `first_failure_at` counts from 1.
    `coverage` holds the pairs of calls, each an actor's name and the number of its call, that raced, in the orders seen.
    """

    scenario: Scenario
    schedules: int = 0
    cut: int = 0
    is_complete: bool = False
    seconds: float = 0.0
    steps_max: int = 0
    failures: list[Failure] = field(default_factory=list)
    first_failure_at: int | None = None
    coverage: set[tuple[tuple[str, int], tuple[str, int]]] = field(default_factory=set)
    revisions_matter: bool = False

    @property
    def unraced(self) -> tuple[tuple[str, str], ...]:
        """The pairs of actors that never met: no two of their steps were seen in both orders. They test little together."""
        met = {frozenset((one[0], other[0])) for one, other in self.coverage if (other, one) in self.coverage}
        return tuple(pair for pair in combinations(self.scenario.names, 2) if frozenset(pair) not in met)

    def __str__(self) -> str:
        extent = f"{self.schedules:,} schedule{'' if self.schedules == 1 else 's'}"
        extent += " (complete)" if self.is_complete else " (not complete)"
        told = f"{extent}, {self.seconds * 1000:,.0f} ms"
        if not self.revisions_matter:
            told += "; revisions were taken as independent"
        if not self.failures:
            return f"no failure in {told}"
        first = self.failures[0]
        steps = first.schedule.steps
        count = len(self.failures)
        faults = f"{len(first.schedule.faults)} faults" if first.schedule.faults else "no faults"
        head = (
            f"{count} failure{'' if count == 1 else 's'} in {told}. "
            f"Shortest: {len(steps)} steps, {switches_of(steps)} switches, {faults}"
        )
        return "\n".join([head, *map(str, self.failures)])


@dataclass(slots=True)
class Budget:
    """How long a search may go on: seconds, and schedules."""

    seconds_max: float
    schedules_max: int
    begun: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.perf_counter() - self.begun


class Explorer:
    """One exploration under way: runs searches, and keeps the best schedule of each kind of failure."""

    def __init__(self, scenario: Scenario, judge: Judge, budget: Budget, *, stop_at_first: bool) -> None:
        self.scenario = scenario
        self.judge = judge
        self.budget = budget
        self.result = Exploration(scenario)
        self._stop_at_first = stop_at_first
        self._found: dict[str, tuple[Schedule, Verdict]] = {}
        self._schedules_max = budget.schedules_max
        self.calls: set[tuple[int, int, str]] = set()
        """Each call that was made in some run: actor, number, name."""

    def warm_up(self) -> None:
        """Run once without counting, and the same once more to compare: what is filled on first use is filled then."""
        first = self.judge.run()
        first.end()
        calls = {step.call for step in first.steps}
        self.judge.revisions_matter |= bool(calls & {"watch", "compact"})
        self.result.revisions_matter = self.judge.revisions_matter
        self.judge.twice(Schedule((), ()))
        self._note_calls(first)

    def search(self, search: Search, *, faults: Sequence[Fault] = (), until: float | None = None) -> bool:
        """Run a search until it ends or the budget does; return whether it ended. `until`: a part of the seconds."""
        seconds_max = self.budget.seconds_max if until is None else min(until, self.budget.seconds_max)
        while self.has_room and (self.budget.seconds < seconds_max or not self.result.schedules):
            run: Run | None = None
            try:
                run = self.judge.run(search.choose, faults=faults)
                self._take(run, faults)
                more = search.learn(run.steps)
            except DepartedError as departed:
                raise self._departed(run, departed.depth, faults) from departed
            finally:
                if run is not None:
                    run.end()
            if not more:
                return True
        return False

    @property
    def has_room(self) -> bool:
        """Whether another schedule may be run, time left aside."""
        if self._stop_at_first and self._found:
            return False
        return self.result.schedules < self._schedules_max

    def _departed(self, run: Run | None, depth: int, faults: Sequence[Fault]) -> AssertionError:
        steps = () if run is None else tuple(step.actor for step in run.steps[:depth])
        first = self.judge.run(schedule=Schedule(tuple(faults), steps), is_recorded=True)
        first.end()
        return self.judge.departed(first, run or first, depth)

    def _take(self, run: Run, faults: Sequence[Fault]) -> None:
        """Count a run, and judge it unless it was cut."""
        result = self.result
        result.schedules += 1
        result.steps_max = max(result.steps_max, len(run.steps))
        if self.scenario.faults:
            self._note_calls(run)
        if run.is_cut:
            result.cut += 1
            return
        verdict = self.judge.verdict(run)
        if verdict is None:
            return
        if result.first_failure_at is None:
            result.first_failure_at = result.schedules
            further = max(_FURTHER_SCHEDULES, result.schedules)
            self._schedules_max = min(self._schedules_max, result.schedules + further)
        schedule = Schedule(tuple(faults), tuple(step.actor for step in run.steps))
        known = self._found.get(verdict.kind)
        if (known is None and len(self._found) < SCHEDULE_FAILURES_MAX) or (
            known is not None and rank_of(schedule) < rank_of(known[0])
        ):
            self._found[verdict.kind] = (schedule, verdict)

    def _note_calls(self, run: Run) -> None:
        self.calls.update((step.actor, step.number, step.call) for step in run.steps if step.call)

    def variants(self) -> Iterator[tuple[Fault, ...]]:
        """Yield the sets of faults to try; calls that come only in other orders are added as runs show them."""
        tried: set[tuple[Fault, ...]] = set()
        is_new = True
        while is_new:
            is_new = False
            for faults in list(variants_of(self.calls, self.scenario.faults, faults_max=self.scenario.faults_max)):
                if faults not in tried:
                    tried.add(faults)
                    is_new = True
                    yield faults

    def cover(self, search: TraceSearch) -> None:
        """Note which calls raced in a search."""
        names = self.scenario.names
        self.result.coverage |= {((names[one[0]], one[1]), (names[other[0]], other[1])) for one, other in search.met}

    def finish(self) -> Exploration:
        """Shorten what was found, run each twice, and write the scripts."""
        for schedule, verdict in self._found.values():
            best, _ = shortened(self.judge, schedule, verdict)
            run, found = self.judge.twice(best)
            told = found or verdict
            self.result.failures.append(
                Failure(text_of(self.scenario, best), told.kind, told.message, script_of(run), best)
            )
        self.result.failures.sort(key=lambda failure: rank_of(failure.schedule))
        self.result.seconds = self.budget.seconds
        return self.result


Strategy: TypeAlias = Callable[[Explorer], bool]
"""Runs searches on an explorer; returns whether every schedule was covered."""


def exhaustive(explorer: Explorer, *, until: float | None = None) -> bool:
    """Every trace of every variant. The strategy that can say that an exploration is complete."""
    for faults in explorer.variants():
        search = TraceSearch()
        ended = explorer.search(search, faults=faults, until=until)
        explorer.cover(search)
        if not ended:
            return False
    return True


@contextmanager
def _explorer(
    scenario: Scenario, seconds_max: float, schedules_max: int, baton: BatonKind | None, *, stop_at_first: bool
) -> Iterator[Explorer]:
    batons = Batons(baton)
    try:
        with stage():
            yield Explorer(
                scenario, Judge(scenario, batons), Budget(seconds_max, schedules_max), stop_at_first=stop_at_first
            )
    finally:
        batons.close()


def explore(
    scenario: Scenario,
    *,
    strategy: Strategy | None = None,
    seconds_max: float = 10.0,
    schedules_max: int = 100_000,
    complete: bool = False,
    baton: BatonKind | None = None,
    stop_at_first: bool = False,
) -> Exploration:
    """Run the actors in every order of their engine calls that can make a difference, and judge each run.

    Ends when all were run, or with the budget; after the first failure it looks for shorter ones for as many schedules
    again, at least 1,000. `complete`: raise ScheduleFailure when it did not come to an end. `baton`: greenlets or threads;
    None: greenlets where they are installed. Raises NotDeterministicError, and what the set-up raises.
    """
    with _explorer(scenario, seconds_max, schedules_max, baton, stop_at_first=stop_at_first) as explorer:
        explorer.warm_up()
        explorer.result.is_complete = (strategy or exhaustive)(explorer)
        result = explorer.finish()
    if complete and not result.is_complete and not result.failures:
        raise ScheduleFailure(
            result, f"explored {result.schedules:,} schedules and did not end; give it more, or fewer actors"
        )
    return result


def check_schedules(
    scenario: Scenario,
    *,
    strategy: Strategy | None = None,
    seconds_max: float = 10.0,
    schedules_max: int = 100_000,
    complete: bool = False,
    baton: BatonKind | None = None,
    stop_at_first: bool = False,
) -> None:
    """`explore`, and raise ScheduleFailure with the report when a schedule fails."""
    result = explore(
        scenario,
        strategy=strategy,
        seconds_max=seconds_max,
        schedules_max=schedules_max,
        complete=complete,
        baton=baton,
        stop_at_first=stop_at_first,
    )
    if result.failures:
        raise ScheduleFailure(result)


def replay(scenario: Scenario, text: str, *, baton: BatonKind | None = None) -> Outcome:
    """Run the schedule of a string, and return what came of it; its `script` and `failure` say what happened.

    Raises InvalidInputError for a string that is none, is of another scenario, or cannot be followed any more.
    """
    schedule = parse_schedule(scenario, text)
    batons = Batons(baton)
    try:
        with stage():
            judge = Judge(scenario, batons)
            first = judge.run()
            first.end()
            judge.revisions_matter |= any(step.call in {"watch", "compact"} for step in first.steps)
            run, verdict = judge.twice(schedule)
    finally:
        batons.close()
    outcome = run.outcome()
    outcome.script = script_of(run)
    outcome.failure = "" if verdict is None else verdict.message
    return outcome
