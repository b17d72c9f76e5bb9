"""Where time comes from. Engines are given a clock; this module alone asks the operating system for the time."""

import time
from typing import Final, Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock"]


class Clock(Protocol):
    """Two times in seconds: one that never steps, and one that other processes share."""

    def monotonic(self) -> float:
        """Return seconds since some moment: never goes back, means nothing to another process."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970 in UTC: comparable between processes, but it may step either way."""
        ...


class SystemClock:
    """The operating system's clocks."""

    # Why: bound at class level, so that reading the time costs no Python frame; an engine reads it for every snapshot.
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


SYSTEM_CLOCK: Final[Clock] = SystemClock()
