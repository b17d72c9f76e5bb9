"""How fast a job goes, how it tells how far it is, and how it is told to end between two batches."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from keyplan.engine import SYSTEM_CLOCK, Clock, SystemPause
from keyplan.errors import InvalidArgumentError

__all__ = ["Pace", "Progress", "Stop"]


class Stop(Protocol):
    """Says when to end, as threading.Event does."""

    def is_set(self) -> bool:
        """Tell whether to end."""
        ...


class Progress(NamedTuple):
    """How far a job is: its stage, how many pairs, records or entries the stage has gone through, of which item.

    `revision` is that of the source that a copy has followed to.
    """

    stage: str
    done: int = 0
    item: str = ""
    revision: int = 0


def _pause(seconds: float) -> None:
    SystemPause.wait(seconds)


class Pace:
    """Waits as long as it takes for no more than so many keys or records a second on average; None: as fast as it goes.

    What is done counts, what the doing took is part of the time. Raises InvalidArgumentError for what is no pace, under the
    name by which it was given.
    """

    def __init__(
        self,
        per_second: float | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        sleep: Callable[[float], object] | None = None,
        argument: str = "per_second",
    ) -> None:
        # Why so: the comparison is false for a number that is none (nan), too.
        if per_second is not None and not per_second > 0:
            raise InvalidArgumentError(argument=argument, problem="more than 0, or not given for no limit")
        self._seconds_each = 0.0 if per_second is None else 1 / per_second
        self._clock = clock
        self._sleep = sleep if sleep is not None else _pause
        self._since = clock.monotonic()

    def spend(self, count: int) -> None:
        """Wait for what is left of the time that so many take, of which the doing of them has taken its part."""
        if not self._seconds_each or not count:
            return
        wait = self._since + count * self._seconds_each - self._clock.monotonic()
        if wait > 0:
            self._sleep(wait)
        self._since = self._clock.monotonic()
