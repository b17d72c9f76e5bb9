"""The clock of actors: whoever looks at it depends on whoever advances it."""

from collections.abc import Callable

from keyplan.engine import Clock
from keyplan.testing.schedules.footprint import CLOCK, Footprint

__all__ = ["SeenClock"]


class SeenClock:
    """Shows what another clock shows, and joins the look to the footprint of the step that goes on."""

    def __init__(self, clock: Clock, step: Callable[[], Footprint]) -> None:
        self._clock = clock
        self._step = step

    def monotonic(self) -> float:
        """Return seconds, as `Clock` does."""
        self._step().keys_read.add(CLOCK)
        return self._clock.monotonic()

    def wall(self) -> float:
        """Return seconds since 1970, as `Clock` does."""
        self._step().keys_read.add(CLOCK)
        return self._clock.wall()

    def epoch(self) -> bytes:
        """Return what `monotonic` is counted from."""
        return self._clock.epoch()
