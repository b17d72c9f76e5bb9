"""The latest requests of one server, in memory: what the original keeps in its trace sink."""

from collections import deque
from dataclasses import dataclass, replace

from keyplan.apps.cloudchamber.waiting import Wakeup

__all__ = ["Trace", "Traces"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A request that was answered. `name` is method and route, without names of users and things; nothing that was sent.

    `reason` says what the operation is for, `module` which part of the API it is of, `tick` the simulated time of the answer.
    """

    name: str
    reason: str
    module: str
    method: str
    is_change: bool
    started_at: float
    seconds: float
    status: int
    tick: int
    user: str
    id: int = 0


class Traces:
    """At most `kept_max` traces, numbered from `first` on; each new one wakes `wakeup`. For one event loop.

    Why not always from 1: who asks with a number of another server, or of this one before it was started again, must not be
    answered as if it had seen what came since.
    """

    def __init__(self, kept_max: int, *, first: int = 1) -> None:
        self.begin = first
        self.wakeup = Wakeup()
        self.kept_max = kept_max
        self._kept: deque[Trace] = deque(maxlen=kept_max)
        self._last_id = first - 1

    @property
    def first_id(self) -> int:
        """The number of the first trace that is kept, or will be."""
        return self._last_id - len(self._kept) + 1

    @property
    def last_id(self) -> int:
        """The number of the last trace; before the first, the one before it."""
        return self._last_id

    def add(self, trace: Trace) -> None:
        """Keep a trace, under the next number; the oldest makes room for it."""
        self._last_id += 1
        self._kept.append(replace(trace, id=self._last_id))
        self.wakeup.wake()

    def after(self, number: int, most: int) -> list[Trace]:
        """Return the traces with greater numbers that are kept, in order, at most so many."""
        start = max(0, number - self.first_id + 1)
        return [self._kept[place] for place in range(start, min(start + most, len(self._kept)))]
