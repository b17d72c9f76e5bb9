"""The simulated clock (5.5): ticks that are stepped by hand, or pass by themselves; each change of that is an epoch.

It lives in the memory of one server, as the original's does in that of its own daemon.
"""

from enum import StrEnum
from typing import Final

from keyplan.apps.cloudchamber.refusals import RefusedError, invalid
from keyplan.apps.cloudchamber.waiting import Wakeup
from keyplan.engine import Clock
from keyplan.protobuf import INT64_MAX

__all__ = ["RATE_MAX", "Stepper", "StepperPolicy"]

RATE_MAX: Final = 1_000_000_000
"""Why: the original tells a delay in nanoseconds, and counts one that is shorter as none."""

_NANOSECONDS: Final = 1_000_000_000


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
        self._delay_nanoseconds = 0
        self._epoch = first_epoch - 1
        if is_automatic:
            self.run()
        else:
            self.stop()

    @property
    def epoch(self) -> int:
        """The number of the policy: one more with each that is set."""
        return self._epoch

    @property
    def policy(self) -> StepperPolicy:
        """By hand or by itself."""
        return StepperPolicy.MEASURED if self._delay_nanoseconds else StepperPolicy.MANUAL

    @property
    def delay_nanoseconds(self) -> int:
        """How long a tick takes; 0: it takes a hand."""
        return self._delay_nanoseconds

    @property
    def now(self) -> int:
        """The tick that it is."""
        if not self._delay_nanoseconds:
            return self._ticks
        return min(self._ticks + self._passed // self._delay_nanoseconds, INT64_MAX)

    def seconds_until(self, tick: int) -> float | None:
        """Return how long it is until a tick begins, 0 when it has; None when that takes a hand.

        Why not until the next tick: whoever waits for a far one would be woken by each, a thousand million times a second.
        """
        if not self._delay_nanoseconds:
            return None
        return max(0, (tick - self._ticks) * self._delay_nanoseconds - self._passed) / _NANOSECONDS

    @property
    def _passed(self) -> int:
        """The nanoseconds since the epoch began."""
        return round((self._clock.monotonic() - self._since) * _NANOSECONDS)

    def advance(self, ticks: int) -> int:
        """Let ticks pass; return the tick then. Raises RefusedError: 409 while time passes by itself, 400 beyond its end."""
        if self._delay_nanoseconds:
            raise RefusedError(409, "time passes by itself: set the mode to manual first")
        if self._ticks + ticks > INT64_MAX:
            raise invalid("time ends before that many ticks")
        self._ticks += ticks
        self.wakeup.wake()
        return self._ticks

    def stop(self) -> None:
        """Let time stand still until somebody steps it: the next epoch."""
        self._begin(0)

    def run(self, ticks_per_second: int = 1) -> None:
        """Let so many ticks pass each second, from now on: the next epoch. At least one, and at most RATE_MAX."""
        self._begin(_NANOSECONDS // ticks_per_second)

    def _begin(self, delay_nanoseconds: int) -> None:
        self._ticks = self.now
        self._since = self._clock.monotonic()
        self._delay_nanoseconds = delay_nanoseconds
        self._epoch += 1
        self.wakeup.wake()
