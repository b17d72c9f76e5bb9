"""What an exploration hands back: how far it came, and the shortest schedule of each kind of failure."""

from dataclasses import dataclass, field
from itertools import combinations

from keyplan.testing.schedules.scenario import Scenario
from keyplan.testing.schedules.shortening import switches_of
from keyplan.testing.schedules.strings import Schedule

__all__ = ["Exploration", "Failure"]


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
    different from those that were run. `has_run_out`: the budget cut a search off; a bounded search that was not has run all
    within its bound, and is not complete for all that. `failures` come shortest first, one of each kind. `first_failure_at`
    counts from 1.
    `coverage` holds the pairs of calls, each an actor's name and the number of its call, that raced, in the orders seen.
    """

    scenario: Scenario
    schedules: int = 0
    cut: int = 0
    is_complete: bool = False
    has_run_out: bool = False
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
