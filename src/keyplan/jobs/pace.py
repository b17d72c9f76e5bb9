"""How fast a job goes, how it tells how far it is, and how it is told to end between two batches."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol, TypeVar

from keyplan.engine import SYSTEM_CLOCK, Clock, SystemPause
from keyplan.errors import InvalidArgumentError, StoppedError

__all__ = ["UNPACED", "UNSTOPPED", "Pace", "Progress", "Stop", "StopCheck", "Teller"]

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.5
"""Why: who stops an act waits no longer than this for the end of a pause."""


class Stop(Protocol):
    """Says when to end, as threading.Event does."""

    def is_set(self) -> bool:
        """Tell whether to end."""
        ...


class StopCheck:
    """Looks whether an act was told to stop: between two batches of it, and as often as it can where it only reads.

    `act` names the act, as in "the copy into /site/".
    """

    def __init__(self, stop: Stop | None, act: str) -> None:
        self._stop = stop
        self._act = act

    def is_set(self) -> bool:
        """Tell whether to end: it is a Stop as well, for an act within the act."""
        return self._stop is not None and self._stop.is_set()

    def check(self) -> None:
        """Raise StoppedError when the act is to end."""
        if self.is_set():
            remedy = "begin it again in the same way, and it goes on; `keyplan jobs` lists what stands open"
            raise StoppedError(problem=f"{self._act} is not finished", remedy=remedy)

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items for as long as the act goes on. Raises StoppedError."""
        for item in items:
            self.check()
            yield item


UNSTOPPED: Final = StopCheck(None, "")
"""For an act that nobody tells to stop."""


class Progress(NamedTuple):
    """How far a job is: its stage, how many pairs, records or entries the stage has gone through, of which item.

    `revision` is that of the source that a copy has followed to.
    """

    stage: str
    done: int = 0
    item: str = ""
    revision: int = 0


class Teller:
    """Tells how far an act is, where somebody wants to know."""

    def __init__(self, progress: Callable[[Progress], object] | None) -> None:
        self._progress = progress

    def __call__(self, stage: str, done: int = 0, *, item: str = "", revision: int = 0) -> None:
        """Tell the stage, and how much of it is done."""
        if self._progress is not None:
            self._progress(Progress(stage, done, item, revision))


class Pace:
    """Waits as long as it takes for no more than so many keys or records a second on average; None: as fast as it goes.

    What is done counts, what the doing took is part of the time. `share`: the part of the time that is worked, above 0 and at
    most 1; the rest of it is waited, however fast the engine is. Raises InvalidArgumentError for what is no pace, under the
    name by which it was given.
    """

    def __init__(
        self,
        per_second: float | None = None,
        *,
        share: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
        sleep: Callable[[float], object] | None = None,
        argument: str = "per_second",
    ) -> None:
        # Why so: the comparison is false for a number that is none (nan), too.
        if per_second is not None and not per_second > 0:
            raise InvalidArgumentError(argument=argument, problem="more than 0, or not given for no limit")
        if share is not None and not 0 < share <= 1:
            raise InvalidArgumentError(argument=argument, problem="a share is above 0 and at most 1")
        self._idle = 0.0 if share is None else (1 - share) / share
        self._seconds_each = 0.0 if per_second is None else 1 / per_second
        self._clock = clock
        self._sleep = sleep
        self._since = clock.monotonic()

    def committed(self, count: int = 1) -> None:
        """Note commits that the work has made: a pace that looks at others tells theirs from these."""

    def spend(self, count: int, stop: Stop = UNSTOPPED) -> None:
        """Wait for what is left of the time that so many take, of which the doing of them has taken its part.

        None were done where something was only looked at: that takes its share of the time as well.
        An act that is told to stop waits no longer; it is not ended here.
        """
        if not (self._seconds_each * count or self._idle):
            return
        took = self._clock.monotonic() - self._since
        wait = max(count * self._seconds_each - took, took * self._idle)
        if wait > 0:
            self._wait(wait, stop)
        self._since = self._clock.monotonic()

    def _wait(self, seconds: float, stop: Stop) -> None:
        if self._sleep is not None:
            self._sleep(seconds)
            return
        while seconds > 0 and not stop.is_set():
            SystemPause.wait(min(seconds, _LOOK_SECONDS))
            seconds -= _LOOK_SECONDS


UNPACED: Final = Pace()
"""As fast as it goes."""
