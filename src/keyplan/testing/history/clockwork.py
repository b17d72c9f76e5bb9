"""Real time: which revisions the store may have been at, judged by what was acknowledged before and begun after."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from keyplan.testing.history.records import NEVER, History, Outcome

__all__ = ["Patience", "Times"]


class Patience(NamedTuple):
    """How late what must come may come, and how many revisions are kept without being asked."""

    seconds: float
    kept_revisions: int


class Times:
    """Bounds for the store's revision at a moment."""

    def __init__(self, history: History, *, first: int, last: int) -> None:
        acknowledged = [write for write in history.writes if write.outcome is Outcome.ACKNOWLEDGED]
        known = [(write.end, write.revision) for write in acknowledged]
        known += [(read.end, read.revision) for read in history.reads]
        known += [(seen.end, seen.revision) for seen in history.seen if seen.revision is not None]
        known += [(watched.end, watched.revision) for watched in history.watched if not watched.error]
        # Why only what wrote: a commit that changed nothing tells a revision that was there before it began.
        made = [(write.begin, write.revision) for write in acknowledged if _writes_always(write.mutations)]
        self._ends, self._floors = _running(known, first)
        begins = sorted(made)
        self._begins = [begin for begin, _ in begins]
        self._ceilings = list(accumulate(reversed([revision - 1 for _, revision in begins]), min))[::-1]
        self._last = last

    def floor(self, moment: float) -> int:
        """Return the highest revision that somebody had been told of before the moment."""
        return self._floors[bisect_left(self._ends, moment)]

    def told_at(self, revision: int) -> float:
        """Return the moment at which somebody had been told for the first time that the store was at the revision, or above."""
        place = bisect_left(self._floors, revision)
        if place > len(self._ends):
            return NEVER
        return self._ends[place - 1] if place else -NEVER

    def ceiling(self, moment: float) -> int:
        """Return the highest revision that can have been reached by the moment: what was begun later is above it."""
        place = bisect_right(self._begins, moment)
        return self._ceilings[place] if place < len(self._begins) else self._last


def _running(known: list[tuple[float, int]], first: int) -> tuple[list[float], list[int]]:
    known.sort()
    floors = list(accumulate((revision for _, revision in known), max, initial=first))
    return [end for end, _ in known], floors


def _writes_always(mutations: Iterable[object]) -> bool:
    return any(hasattr(mutation, "value") for mutation in mutations)
