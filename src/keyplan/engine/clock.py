"""Where time comes from. Engines are given a clock; this module alone asks the operating system for the time."""

import secrets
import time
from pathlib import Path
from typing import Final, Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock", "utc_time"]


class Clock(Protocol):
    """Two times in seconds: one that never steps, and one that other processes share."""

    def monotonic(self) -> float:
        """Return seconds since some moment; never goes back. Comparable between processes of one `epoch`."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970 in UTC: comparable between processes, but it may step either way."""
        ...

    def epoch(self) -> bytes:
        """Return what `monotonic` is counted from: of equal epochs, two monotonic times may be compared."""
        ...


class SystemClock:
    """The operating system's clocks."""

    # Why: bound at class level, so that reading the time costs no Python frame; an engine reads it for every snapshot.
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    def __init__(self) -> None:
        self._epoch = _boot_id()

    def epoch(self) -> bytes:
        """Return an id of this run of the machine."""
        return self._epoch


def _boot_id() -> bytes:
    """Return what names this run of the machine, or this process where the system does not tell.

    Why: on Linux the monotonic clock counts from the start of the machine, for all processes alike.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return secrets.token_bytes(16)


SYSTEM_CLOCK: Final[Clock] = SystemClock()


def utc_time(seconds: float) -> str:
    """Write seconds since 1970 as a time in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
