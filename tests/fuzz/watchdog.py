"""Running a target on one input: at most so long, and with nothing let through but what it promises."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

from tests.fuzz.targets import Target

__all__ = ["SECONDS_MAX", "HangError", "run_watched"]

SECONDS_MAX: Final = 5.0
"""Of processor time. Why: on a busy machine any input can take that long; what waits for ever, pytest's timeout ends."""


class HangError(AssertionError):
    """The input took longer than it may."""


def run_watched(target: Target, data: bytes) -> None:
    """Run the target; raise HangError after SECONDS_MAX. Only in a process's main thread."""
    with _alarm():
        target.run(data)


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(signal_number: int, frame: FrameType | None) -> NoReturn:
        raise HangError(f"no answer after {SECONDS_MAX} seconds")

    before = signal.signal(signal.SIGPROF, ring)
    timer = signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, *timer)
        signal.signal(signal.SIGPROF, before)
