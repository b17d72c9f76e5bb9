"""What a test calls: explore a scenario, demand that nothing fails, replay a string."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from keyplan.engine import Clock, Engine
from keyplan.errors import InvalidInputError
from keyplan.testing.schedules.batons import BatonKind, Batons
from keyplan.testing.schedules.elsewhere import RunElsewhere
from keyplan.testing.schedules.exploration import Exploration
from keyplan.testing.schedules.explorer import Explorer, RevisionsSeenError, shows_revisions
from keyplan.testing.schedules.faults import fits
from keyplan.testing.schedules.judging import Judge, Verdict
from keyplan.testing.schedules.outcome import Outcome
from keyplan.testing.schedules.report import script_of
from keyplan.testing.schedules.running import Run
from keyplan.testing.schedules.scenario import Scenario
from keyplan.testing.schedules.steps import Step
from keyplan.testing.schedules.strategies import Portfolio, Strategy
from keyplan.testing.schedules.strings import Schedule, fault_text, parse_schedule, text_of
from keyplan.testing.schedules.surroundings import controlled_surroundings
from keyplan.testing.schedules.traces import default_choice

__all__ = ["ScheduleFailure", "check_schedules", "explore", "replay", "schedule_by"]


class ScheduleFailure(AssertionError):  # noqa: N818  # Why: it is a test that failed, and is called so.
    """An exploration found a schedule that fails, or did not end although it had to. Its text is the report."""

    def __init__(self, exploration: Exploration, problem: str = "") -> None:
        super().__init__(f"{problem}\n{exploration}" if problem else str(exploration))
        self.exploration = exploration


@contextmanager
def _explorer(
    scenario: Scenario, seconds_max: float, schedules_max: int, baton: BatonKind | None, *, stop_at_first: bool
) -> Iterator[Explorer]:
    batons = Batons(baton)
    try:
        with controlled_surroundings():
            yield Explorer(scenario, Judge(scenario, batons), (seconds_max, schedules_max), stop_at_first=stop_at_first)
        if batons.refused is not None:
            raise batons.refused
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
    None: greenlets where they are installed. Raises NotDeterministicError, what the set-up raises, and InvalidInputError when
    not even one schedule may be run, and when a thread that no actor is has called an engine.
    """
    if schedules_max < 1:
        raise InvalidInputError(source="schedules_max", problem=f"it is {schedules_max}; give it 1 or more")
    with _explorer(scenario, seconds_max, schedules_max, baton, stop_at_first=stop_at_first) as explorer:
        explorer.warm_up()
        try:
            explorer.result.is_complete = (strategy or Portfolio())(explorer)
        except RevisionsSeenError:
            explorer.result.is_complete = (strategy or Portfolio())(explorer)
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


def replay(
    scenario: Scenario,
    text: str,
    *,
    engine: Callable[[Clock], Engine] | None = None,
    baton: BatonKind | None = None,
) -> Outcome:
    """Run the schedule of a string, and return what came of it; its `script` and `failure` say what happened.

    It is run twice on the memory engine. With `engine` it is run once more, elsewhere, and the outcome is of that:
    `engine` is called with the run's clock, once for each of the scenario's engines, and returns an engine on an empty store.
    The set-up is made there, and calls are let go in the same order; the caller closes what it returned.

    Raises InvalidInputError for a string that is none, is of another scenario, or cannot be followed any more.
    """
    schedule = parse_schedule(scenario, text)
    batons = Batons(baton)
    try:
        with controlled_surroundings():
            judge = Judge(scenario, batons)
            first = judge.run()
            first.end()
            judge.revisions_matter |= shows_revisions(first)
            run, verdict = judge.run_twice(schedule)
            _require_faults(run, schedule)
            if engine is not None:
                run, verdict = _elsewhere(judge, schedule, engine)
    finally:
        batons.close()
    outcome = Outcome(run)
    outcome.script = script_of(run)
    outcome.failure = "" if verdict is None else verdict.message
    return outcome


def _require_faults(run: Run, schedule: Schedule) -> None:
    """Refuse a fault that did not happen: the program makes other calls than when the string was written."""
    for fault in schedule.faults:
        actor_run = run.actor_run(fault.actor)
        made = [step.call for step in run.steps if (step.actor, step.number) == (fault.actor, fault.call)]
        has_crashed = fault.letter == "c" and actor_run.calls == fault.call and not made
        if not has_crashed and not any(fits(fault.letter, call) for call in made if fault.letter != "c"):
            reason = f"its call {fault.call} is {made[0]}" if made else f"it makes {actor_run.calls} calls"
            raise InvalidInputError(
                source="schedule",
                problem=f"the fault {fault_text(fault)} does not happen to actor {actor_run.actor.name}: {reason}",
            )


def _elsewhere(judge: Judge, schedule: Schedule, engine: Callable[[Clock], Engine]) -> tuple[Run, Verdict | None]:
    judge.make_run = partial(RunElsewhere, engine)
    run = judge.run(schedule=schedule, is_recorded=True)
    try:
        return run, judge.verdict(run)
    finally:
        run.end()


def schedule_by(scenario: Scenario, choices: Sequence[int], *, baton: BatonKind | None = None) -> str:
    """Return the string of the schedule that these numbers choose: each picks one of the actors that can go on, in turn.

    When they are used up, the last actor goes on to its end, and the others in order.
    """
    batons = Batons(baton)

    def choose(enabled: Sequence[int], steps: Sequence[Step]) -> int:
        if len(steps) < len(choices):
            return enabled[choices[len(steps)] % len(enabled)]
        return default_choice(enabled, steps)

    try:
        with controlled_surroundings():
            run = Judge(scenario, batons).run(choose)
            run.end()
    finally:
        batons.close()
    return text_of(scenario, Schedule((), tuple(step.actor for step in run.steps)))
