"""Runs of a scenario and what is wrong with them: one run along a schedule or a search, its verdict, and whether it repeats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import Final

from keyplan.errors import (
    CommitOutcomeUnknownError,
    EngineUnavailableError,
    HistoryCompactedError,
    InvalidInputError,
    KeyplanError,
)
from keyplan.testing.schedules.batons import Batons
from keyplan.testing.schedules.bounded import BoundedSearch
from keyplan.testing.schedules.faults import Fault
from keyplan.testing.schedules.invariants import Stays, healthy
from keyplan.testing.schedules.outcome import Outcome
from keyplan.testing.schedules.report import script_of
from keyplan.testing.schedules.running import Run, raised_by
from keyplan.testing.schedules.scenario import Invariant, Scenario
from keyplan.testing.schedules.steps import Step
from keyplan.testing.schedules.strings import Schedule
from keyplan.testing.schedules.surroundings import SEED_OF_JUDGES, ExplorerContext, in_context
from keyplan.testing.schedules.traces import Search, default_choice

__all__ = ["DeadlockError", "Judge", "NotDeterministicError", "Verdict", "followed", "require_same_kind"]

Choose = Callable[[Sequence[int], Sequence[Step]], int | None]


class DeadlockError(AssertionError):
    """Nobody can go on, and somebody waits."""


class NotDeterministicError(AssertionError):
    """The same schedule was run twice; the calls, what they returned, or what is wrong in the end were not the same."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a run. Failures of one `kind` are the same: the invariant, and the first word of what it says."""

    kind: str
    message: str


def followed(steps: Sequence[int], run: "Run") -> Choose:
    """Return a choice that follows a schedule, then lets the last actor go on to its end, and the others in order."""

    def choose(enabled: Sequence[int], done: Sequence[Step]) -> int | None:
        depth = len(done)
        if depth >= len(steps):
            return default_choice(enabled, done)
        wanted = steps[depth]
        if wanted not in enabled:
            letter = "abcdefgh"[wanted]
            raise InvalidInputError(
                source="schedule", problem=f"actor {letter} cannot step at step {depth + 1}: {_hindrance(run, wanted)}"
            )
        return wanted

    return choose


def _hindrance(run: Run, place: int) -> str:
    actor_run = run.actor_run(place)
    if actor_run.is_over:
        return "it has ended"
    return "it has crashed" if actor_run.has_crashed else "it waits"


class Judge:
    """Runs a scenario along choices that it is given, and judges what came of it."""

    def __init__(self, scenario: Scenario, batons: Batons) -> None:
        self.scenario = scenario
        self.batons = batons
        invariants = _invariants_of(scenario)
        self._invariants: Final = tuple(zip(_names_of(invariants), invariants, strict=True))
        self._stays = [each for each in invariants if isinstance(each, Stays)]
        self.latest: Run
        """The run that was begun last: what there is to show when a search finds that it does not repeat."""
        self.make_run: Callable[..., Run] = Run
        """Makes the run of a scenario: on memories, unless it is replayed elsewhere."""
        self.revisions_matter = scenario.revisions_matter or bool(self._stays)

    def run(
        self,
        choose: Choose | None = None,
        *,
        search: Search | None = None,
        schedule: Schedule | None = None,
        faults: Sequence[Fault] = (),
        is_recorded: bool = False,
    ) -> Run:
        """Run as `choose` or `search` says until nobody can go on, or it says None; or along a schedule.

        The run is not ended yet.
        """
        run = self.make_run(
            self.scenario,
            self.batons,
            faults=faults if schedule is None else schedule.faults,
            is_recorded=is_recorded or (isinstance(search, BoundedSearch) and search.is_recorded),
            revisions_matter=self.revisions_matter,
        )
        self.latest = run
        if schedule is not None:
            choose = followed(schedule.steps, run)
        elif search is not None:
            choose = search.choose
            if isinstance(search, BoundedSearch):
                search.attend(run)
        elif choose is None:
            choose = default_choice
        for stays in self._stays:
            run.watch(stays.check)
        try:
            run.begin()
            while enabled := run.enabled():
                chosen = choose(enabled, run.steps)
                if chosen is None:
                    run.is_cut = True
                    break
                run.step(chosen)
        except BaseException:
            run.end()
            raise
        return run

    def verdict(self, run: Run) -> Verdict | None:
        """Judge a run that was not cut: its errors first, then the invariants in the order given."""
        if run.waiting_for_ever and not self.scenario.may_wait_forever:
            names = ", ".join(run.waiting_for_ever)
            return _said("deadlock", DeadlockError(f"DeadlockError: {names} waits for what nobody does any more"))
        if run.broken is not None:
            return _verdict_of("stays", run.broken)
        outcome = Outcome(run)
        for name, error in outcome.errors.items():
            if not isinstance(error, self._allowed(run)):
                return Verdict(
                    f"only_raises: {type(error).__name__}", f"{type(error).__name__}: {name} raised it: {error}"
                )
        with in_context(ExplorerContext(run.clock, SEED_OF_JUDGES)):
            for name, invariant in self._invariants:
                if (raised := raised_by(invariant, outcome)) is not None:
                    return _verdict_of(name, raised)
        return None

    def _allowed(self, run: Run) -> tuple[type[BaseException], ...]:
        letters = {fault.letter for fault in run.faults}
        allowed = self.scenario.only_raises
        if letters & {"u", "n"}:
            allowed = (*allowed, CommitOutcomeUnknownError)
        if "f" in letters:
            allowed = (*allowed, EngineUnavailableError)
        if "h" in letters or any(step.call == "compact" for step in run.steps):
            allowed = (*allowed, HistoryCompactedError)
        return allowed

    def run_twice(self, schedule: Schedule) -> tuple[Run, Verdict | None]:
        """Run a schedule twice, recorded; return the second run, ended, and its verdict. Raises NotDeterministicError."""
        runs: list[Run] = []
        verdicts: list[Verdict | None] = []
        for _ in range(2):
            runs.append(self.run(schedule=schedule, is_recorded=True))
            try:
                verdicts.append(self.verdict(runs[-1]))
            finally:
                runs[-1].end()
        first, second = ([step.seen for step in run.steps] for run in runs)
        if first != second:
            pairs = enumerate(zip(first, second, strict=False))
            depth = next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))
            raise self.diverged(runs[0], runs[1], depth)
        require_same_kind(*verdicts, run=runs[1])
        return runs[1], verdicts[1]

    def diverged(self, first: Run, second: Run, depth: int) -> NotDeterministicError:
        """The error for two runs of one schedule that differ at a step."""
        told = "\n".join(f"--- run {number}\n{script_of(run)}" for number, run in enumerate((first, second), start=1))
        return NotDeterministicError(
            f"the same schedule was run twice and differs at step {depth + 1}: something that the actors use changes between "
            f"runs (the clock of the system, random numbers, an object made in the set-up)\n{told}"
        )


def require_same_kind(first: Verdict | None, second: Verdict | None, *, run: Run) -> None:
    """Raise NotDeterministicError when the same schedule was judged twice and not alike. `run` is that of the second."""
    kinds = ["nothing" if verdict is None else verdict.kind for verdict in (first, second)]
    if kinds[0] != kinds[1]:
        raise NotDeterministicError(
            f"the same schedule was judged twice and found wrong for {kinds[0]!r}, then for {kinds[1]!r}: an invariant or an "
            f"actor keeps something from run to run; make it new in each\n{script_of(run)}"
        )


def _invariants_of(scenario: Scenario) -> tuple[Invariant, ...]:
    if scenario.invariants is not None:
        return tuple(scenario.invariants)
    return (healthy(*scenario.layouts),) if scenario.layouts else ()


def _names_of(invariants: Sequence[Invariant]) -> list[str]:
    """A name for each invariant; those of one name are told apart by #1, #2, ...: a failure of one is none of the other."""
    names = [_name_of(each) for each in invariants]
    return [
        f"{name}#{names[: place + 1].count(name)}" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def _name_of(invariant: Invariant) -> str:
    while isinstance(invariant, partial):
        invariant = invariant.func
    return str(getattr(invariant, "__name__", type(invariant).__name__))


def _verdict_of(name: str, error: Exception) -> Verdict:
    if isinstance(error, AssertionError):
        return _said(name, error)
    kind = type(error).__name__
    place = ""
    if not isinstance(error, KeyplanError) and (frames := extract_tb(error.__traceback__)):
        place = f" at line {frames[-1].lineno} of {Path(frames[-1].filename).name}"
    return Verdict(f"{name}: {kind}", f"{kind}: {name} raised it{place}: {error}")


def _said(name: str, error: BaseException) -> Verdict:
    message = str(error).strip() or "an assertion does not hold"
    return Verdict(f"{name}: {message.split(maxsplit=1)[0].rstrip(':')}", message)
