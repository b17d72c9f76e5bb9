"""An exploration under way: searches over all variants, and the best schedule of each kind of failure that was found."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from keyplan.errors import InvalidInputError
from keyplan.limits import SCHEDULE_FAILURES_MAX
from keyplan.testing.schedules.exploration import Exploration, Failure
from keyplan.testing.schedules.faults import Fault, variants_of
from keyplan.testing.schedules.judging import Judge, Verdict, require_same_kind
from keyplan.testing.schedules.report import script_of
from keyplan.testing.schedules.running import Run
from keyplan.testing.schedules.scenario import Scenario
from keyplan.testing.schedules.shortening import rank_of, shortened
from keyplan.testing.schedules.strings import Schedule, text_of
from keyplan.testing.schedules.traces import DivergedError, Search

__all__ = ["Explorer", "RevisionsSeenError", "shows_revisions"]

_FURTHER_SCHEDULES: Final = 1_000
"""Schedules after the first failure, or as many as there were before it. Why: the next ones are often shorter."""


class RevisionsSeenError(Exception):
    """A run watched or compacted, which the first one did not: from now on revisions matter, and the search begins again."""


class Explorer:
    """One exploration under way: runs searches, and keeps the best schedule of each kind of failure."""

    def __init__(self, scenario: Scenario, judge: Judge, budget: tuple[float, int], *, stop_at_first: bool) -> None:
        self.scenario = scenario
        self.judge = judge
        self._seconds_max, self._schedules_max = budget
        self._begun = time.perf_counter()
        self.result = Exploration(scenario)
        self._stop_at_first = stop_at_first
        self._found: dict[str, tuple[Schedule, Verdict]] = {}
        self.calls: set[tuple[int, int, str]] = set()
        """Each call that was made in some run: actor, number, name."""

    def warm_up(self) -> None:
        """Run once without counting, and the same once more to compare: what is filled on first use is filled then."""
        first = self.judge.run()
        first.end()
        self.judge.revisions_matter |= shows_revisions(first)
        self.result.revisions_matter = self.judge.revisions_matter
        self.judge.run_twice(Schedule((), ()))
        self._note_calls(first)

    def search(self, search: Search, *, faults: Sequence[Fault] = (), share: float = 1.0) -> bool:
        """Run a search until it ends, or the exploration has spent that share of its budget; return whether the search ended.

        Raises RevisionsSeenError, once at most in an exploration.
        """
        while self.has_room and (self._has_share(share) or not self.result.schedules):
            run: Run | None = None
            try:
                run = self.judge.run(search=search, faults=faults)
                self._take(run, faults)
                more = search.learn([*run.steps, *run.waiting()])
            except DivergedError as diverged:
                raise self._diverged(diverged.depth, faults) from diverged
            finally:
                if run is not None:
                    run.end()
            if not more:
                return True
        self.result.has_run_out |= not self._found
        return False

    def _has_share(self, share: float) -> bool:
        return self._seconds < share * self._seconds_max and self.result.schedules < share * self._schedules_max

    @property
    def _seconds(self) -> float:
        return time.perf_counter() - self._begun

    @property
    def has_room(self) -> bool:
        """Whether another schedule may be run, time left aside."""
        if self._stop_at_first and self._found:
            return False
        return self.result.schedules < self._schedules_max

    def _diverged(self, depth: int, faults: Sequence[Fault]) -> AssertionError:
        """The error for a run that does not repeat another one's beginning, with a third that follows it, if it can."""
        run = again = self.judge.latest
        steps = tuple(step.actor for step in run.steps[:depth])
        try:
            again = self.judge.run(schedule=Schedule(tuple(faults), steps), is_recorded=True)
        except InvalidInputError:
            again = self.judge.latest
        again.end()
        return self.judge.diverged(run, again, depth)

    def _take(self, run: Run, faults: Sequence[Fault]) -> None:
        """Count a run, and judge it unless it was cut."""
        result = self.result
        result.schedules += 1
        if not self.judge.revisions_matter and shows_revisions(run):
            self.judge.revisions_matter = result.revisions_matter = True
            raise RevisionsSeenError
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

    def cover(self, met: set[tuple[tuple[int, int], tuple[int, int]]]) -> None:
        """Note which calls raced in a search, each an actor and the number of its call."""
        names = self.scenario.names
        self.result.coverage |= {((names[one[0]], one[1]), (names[other[0]], other[1])) for one, other in met}

    def finish(self) -> Exploration:
        """Shorten what was found, run each twice, and write the scripts."""
        for schedule, verdict in self._found.values():
            best, _ = shortened(self.judge, schedule, verdict)
            run, found = self.judge.run_twice(best)
            require_same_kind(verdict, found, run=run)
            told = found or verdict
            self.result.failures.append(
                Failure(text_of(self.scenario, best), told.kind, told.message, script_of(run), best)
            )
        self.result.failures.sort(key=lambda failure: rank_of(failure.schedule))
        self.result.seconds = self._seconds
        return self.result


def shows_revisions(run: Run) -> bool:
    """Whether an actor has seen numbers of revisions: it watched, or forgot history."""
    return any(step.call in {"watch", "compact"} for step in run.steps)
