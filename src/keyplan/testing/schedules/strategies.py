"""Ways to search: everything, everything within a bound, by chance, and what `explore` does when it is not told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from keyplan.errors import InvalidInputError
from keyplan.testing.schedules.bounded import BoundedSearch
from keyplan.testing.schedules.explorer import Explorer
from keyplan.testing.schedules.sampling import PctSearch, WalkSearch
from keyplan.testing.schedules.traces import Search, TraceSearch

__all__ = ["Exhaustive", "Pct", "Portfolio", "Preemptions", "Strategy", "Walk"]

_EXHAUSTIVE_SHARE: Final = 0.5
_BOUNDED_SHARE: Final = 0.75
"""Of seconds and schedules: the exhaustive search ends at the first, the bounded ones at the second, the rest is for chance."""


class Strategy(Protocol):
    """Runs searches on an explorer."""

    def __call__(self, explorer: Explorer, /) -> bool:
        """Search; return whether every schedule that can make a difference was covered."""
        ...


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """Every trace of every variant, by source sets and sleep sets. It alone can say that an exploration is complete."""

    share: float = 1.0

    def __call__(self, explorer: Explorer, /) -> bool:
        """Search until it ends or it has spent its share of the budget."""
        for faults in explorer.variants():
            search = TraceSearch()
            ended = explorer.search(search, faults=faults, share=self.share)
            explorer.cover(search.met)
            if not ended:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Preemptions:
    """Every schedule with at most `bound` preemptions; states that were gone through are left, unless `is_hashed` is False."""

    bound: int
    is_hashed: bool = True
    share: float = 1.0

    def __post_init__(self) -> None:
        _require("bound", self.bound, 0)

    def __call__(self, explorer: Explorer, /) -> bool:
        """Search each variant until it ends or it has spent its share of the budget. Never complete: a bound is a bound."""
        for faults in explorer.variants():
            # Why hashed for one engine alone: revisions of several have the same numbers.
            is_hashed = self.is_hashed and explorer.scenario.engines == 1
            search = BoundedSearch(self.bound, is_hashed=is_hashed)
            if not explorer.search(search, faults=faults, share=self.share):
                break
        return False


@dataclass(frozen=True, slots=True)
class Pct:
    """Priorities by chance that change at `depth - 1` steps, for defects that need `depth` ordered steps."""

    depth: int = 3
    runs: int = 1_000
    seed: int = 1

    def __post_init__(self) -> None:
        _require("depth", self.depth, 1)
        _require("runs", self.runs, 1)

    def __call__(self, explorer: Explorer, /) -> bool:
        """Search each variant."""
        return _by_chance(explorer, lambda: PctSearch(self.depth, self.runs, self.seed))


@dataclass(frozen=True, slots=True)
class Walk:
    """Each step by any actor that can go on."""

    runs: int = 1_000
    seed: int = 1

    def __post_init__(self) -> None:
        _require("runs", self.runs, 1)

    def __call__(self, explorer: Explorer, /) -> bool:
        """Search each variant."""
        return _by_chance(explorer, lambda: WalkSearch(self.runs, self.seed))


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Everything, if that ends within half of the budget; else one and two preemptions for a quarter, then chance."""

    def __call__(self, explorer: Explorer, /) -> bool:
        """Search."""
        if Exhaustive(_EXHAUSTIVE_SHARE)(explorer):
            return True
        for bound in (1, 2):
            Preemptions(bound, share=_BOUNDED_SHARE)(explorer)
        return Pct(runs=1_000_000)(explorer)


def _require(name: str, given: int, least: int) -> None:
    if given < least:
        raise InvalidInputError(source=name, problem=f"it is {given}; give it {least} or more")


def _by_chance(explorer: Explorer, made: Callable[[], Search]) -> bool:
    for faults in explorer.variants():
        if not explorer.search(made(), faults=faults):
            break
    return False
