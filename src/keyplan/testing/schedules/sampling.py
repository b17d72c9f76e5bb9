"""Schedules by chance, for what is too large to exhaust: priorities that change at a few steps, and plain walks."""

import random
from collections.abc import Sequence

from keyplan.limits import SCHEDULE_ACTORS_MAX
from keyplan.testing.schedules.traces import SearchStep, default_choice

__all__ = ["PctSearch", "WalkSearch"]


class PctSearch:
    """Probabilistic concurrency testing: random priorities, and at `depth - 1` random steps the running actor gets the lowest.

    A defect that needs `depth` ordered steps among n actors and k steps with a choice is hit by each run with a probability of
    at least 1 / (n k^(depth - 1)). The first run is serial: it tells how many steps there are.
    """

    def __init__(self, depth: int, runs: int, seed: int) -> None:
        self._depth = depth
        self._runs = runs
        self._random = random.Random(seed)  # noqa: S311  # Why: it is to be repeated, not to be secret.
        self._steps_max = 1
        self._made = 0
        self._priorities: dict[int, int] = {}
        self._changes: dict[int, int] = {}
        self._choices = 0

    def choose(self, enabled: Sequence[int], steps: Sequence[SearchStep]) -> int | None:
        """The actor of the highest priority; steps without a choice are not counted."""
        if self._made == 0:
            self._choices += len(enabled) > 1
            return default_choice(enabled, steps)
        if not steps:
            self._draw()
        if len(enabled) == 1:
            return enabled[0]
        self._choices += 1
        chosen = self._highest(enabled)
        if self._choices in self._changes:
            self._priorities[chosen] = self._changes[self._choices]
            chosen = self._highest(enabled)
        return chosen

    def _highest(self, enabled: Sequence[int]) -> int:
        return max(enabled, key=lambda actor: self._priorities[actor])

    def _draw(self) -> None:
        # Why for all that there can be: some cannot step at the beginning, and are to be before and behind others, too.
        priorities = list(range(self._depth, self._depth + SCHEDULE_ACTORS_MAX))
        self._random.shuffle(priorities)
        self._priorities = dict(enumerate(priorities))
        # Why the last choice, too: it is the one before which an actor of two calls looks and has not yet written.
        places = range(1, max(self._steps_max, self._depth - 1) + 1)
        drawn = self._random.sample(places, self._depth - 1)
        self._changes = {place: self._depth - 1 - number for number, place in enumerate(sorted(drawn), start=1)}

    def learn(self, steps: Sequence[SearchStep]) -> bool:
        """Count the run."""
        self._steps_max = max(self._steps_max, self._choices)
        self._choices = 0
        self._made += 1
        return self._made < self._runs


class WalkSearch:
    """Each step by any actor that can go on. Blind where one has to get through many calls undisturbed."""

    def __init__(self, runs: int, seed: int) -> None:
        self._left = runs
        self._random = random.Random(seed)  # noqa: S311  # Why: it is to be repeated, not to be secret.

    def choose(self, enabled: Sequence[int], steps: Sequence[SearchStep]) -> int | None:
        """Any."""
        return self._random.choice(enabled)

    def learn(self, steps: Sequence[SearchStep]) -> bool:
        """Count the run."""
        self._left -= 1
        return self._left > 0
