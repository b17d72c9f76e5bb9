"""The simulated clock (5.5): ticks that are stepped by hand, or pass by themselves; each change of that is an epoch.

It lives in the memory of one server, as the original's does in that of its own daemon.
"""

from enum import StrEnum
from typing import Final

from keyplan.apps.cloudchamber.refusals import RefusedError, invalid
from keyplan.apps.cloudchamber.waiting import Wakeup
from keyplan.engine import Clock
from keyplan.protobuf import INT64_MAX

__all__ = ["DELAY_SECONDS_MAX", "Stepper", "StepperPolicy"]

DELAY_SECONDS_MAX: Final = 315_576_000_000
"""Why: protobuf's bound for a duration, ten thousand years."""

_DELAY_SECONDS_DEFAULT: Final = 1
"""What a delay of 0 means (6.4)."""


class StepperPolicy(StrEnum):
    """How time passes."""

    INVALID = "Invalid"
    NO_WAIT = "NoWait"
    MEASURED = "Measured"
    MANUAL = "Manual"


class Stepper:
    """A clock of ticks from 0. For one event loop; `wakeup` wakes when a tick or a policy came that nobody could foresee."""

    def __init__(self, clock: Clock, *, is_automatic: bool = False, first_epoch: int = 1) -> None:
        """`first_epoch` is the epoch that it begins with: two servers must not have the same one, or a match means nothing."""
        self.wakeup = Wakeup()
        self.waiting = 0
        self._clock = clock
        self._ticks = 0
        self._since = clock.monotonic()
        self._delay_seconds = 0
        self._epoch = first_epoch - 1
        if is_automatic:
            self.run(0)
        else:
            self.stop()

    @property
    def epoch(self) -> int:
        """The number of the policy: one more with each that is set."""
        return self._epoch

    @property
    def policy(self) -> StepperPolicy:
        """By hand or by itself."""
        return StepperPolicy.MEASURED if self._delay_seconds else StepperPolicy.MANUAL

    @property
    def delay_seconds(self) -> int:
        """How long a tick takes; 0: it takes a hand."""
        return self._delay_seconds

    @property
    def now(self) -> int:
        """The tick that it is."""
        if not self._delay_seconds:
            return self._ticks
        passed = int((self._clock.monotonic() - self._since) // self._delay_seconds)
        return min(self._ticks + passed, INT64_MAX)

    @property
    def seconds_to_next(self) -> float | None:
        """How long it is until the next tick; None when that takes a hand."""
        if not self._delay_seconds:
            return None
        return self._delay_seconds - (self._clock.monotonic() - self._since) % self._delay_seconds

    def advance(self, ticks: int) -> int:
        """Let ticks pass; return the tick then. Raises RefusedError: 409 while time passes by itself, 400 beyond its end."""
        if self._delay_seconds:
            raise RefusedError(409, "time passes by itself: set the mode to manual first")
        if self._ticks + ticks > INT64_MAX:
            raise invalid("time ends before that many ticks")
        self._ticks += ticks
        self.wakeup.wake()
        return self._ticks

    def stop(self) -> None:
        """Let time stand still until somebody steps it: the next epoch."""
        self._begin(0)

    def run(self, delay_seconds: int) -> None:
        """Let a tick pass every so many seconds, 0 meaning one, from now on: the next epoch."""
        self._begin(delay_seconds or _DELAY_SECONDS_DEFAULT)

    def _begin(self, delay_seconds: int) -> None:
        self._ticks = self.now
        self._since = self._clock.monotonic()
        self._delay_seconds = delay_seconds
        self._epoch += 1
        self.wakeup.wake()
