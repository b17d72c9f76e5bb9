"""The simulated clock over HTTP (5.5). Everybody who is logged in may read it, stepping takes the right to.

Kept as the original has it: the ETag is the epoch, If-Match -1 means any, a stale epoch is a 400, and `now?after=` waits
without end. Mended: the ETag of a change is the epoch that it began, whatever was matched; an epoch that is yet to come is
refused.
"""

import re
from typing import Annotated, Final

from keyplan.apps.cloudchamber.refusals import invalid, quoted
from keyplan.apps.cloudchamber.rest_bodies import StepperStatus, Ticks
from keyplan.apps.cloudchamber.rest_routes import IfMatchWord, Resource, Who, etag, number, rest, revision_of
from keyplan.apps.cloudchamber.stepper import DELAY_SECONDS_MAX, Stepper
from keyplan.operations import Answered, Change, In, Place, Schema

__all__ = ["Clock", "status_of_stepper"]

_STEPPER: Final = "/api/stepper"
_MODE: Final = re.compile(r"manual|automatic(?:[:=]([0-9]{1,18}))?", re.IGNORECASE)
_DIGITS: Final = "^[0-9]{1,17}$"
_MODES: Final = "^(manual|automatic(:[0-9]{1,9})?)$"


def status_of_stepper(stepper: Stepper) -> StepperStatus:
    """Return what is told of the clock."""
    return StepperStatus(
        policy=stepper.policy,
        measured_delay=f"{stepper.delay_seconds}s",
        now=stepper.now,
        waiter_count=stepper.waiting,
        epoch=stepper.epoch,
    )


class Clock(Resource):
    """The operations on the simulated clock. Coroutines, because the stepper is the event loop's."""

    @rest("GET", _STEPPER, Who.LOGGED_IN, has_slash=True)
    async def status(self) -> Answered[StepperStatus]:
        """Tell how simulated time passes."""
        return self._status()

    @rest("PUT", _STEPPER, Who.TIME_STEPPER, 400, 409, has_slash=True, change=Change("step time"))
    async def change(
        self,
        *,
        advance: Annotated[
            int | None,
            In(form=number(1)),
            Schema("let so many ticks pass, one without a number; answered with the tick then", pattern=_DIGITS),
        ] = None,
        mode: Annotated[
            str | None,
            In(place=Place.QUERY),
            Schema("manual, automatic, or automatic:SECONDS for each tick", pattern=_MODES),
        ] = None,
        match: IfMatchWord = "",
    ) -> Answered[StepperStatus | Ticks]:
        """Let simulated time pass, or change how it does: then If-Match is the epoch, or -1."""
        if (advance is None) == (mode is None):
            raise invalid("either ?advance or ?mode is needed")
        if mode is not None:
            self._set_mode(mode, match)
            return self._status()
        if advance is None or advance < 0:
            raise invalid(f"advance is {advance}: time does not go back")
        return Answered(Ticks(ticks=self.web.stepper.advance(advance)))

    @rest("GET", f"{_STEPPER}/now", Who.LOGGED_IN, 400, 429, has_slash=True, is_polled=True)
    async def now(
        self,
        *,
        after: Annotated[
            int | None, In(form=number(-1)), Schema("answer when this tick is over", pattern=_DIGITS)
        ] = None,
    ) -> Ticks:
        """Tell the simulated time, or wait for it."""
        if after is not None and after < 0:
            raise invalid(f"after is {after}: no tick is before 0")
        stepper, last = self.web.stepper, -1 if after is None else after
        stepper.waiting += 1
        try:
            await self.web.waiting.until(
                lambda: stepper.now > last,
                self.asked,
                stepper.wakeup,
                seconds_to_next=lambda: stepper.seconds_to_next,
            )
        finally:
            stepper.waiting -= 1
        return Ticks(ticks=stepper.now)

    def _set_mode(self, mode: str, match: str) -> None:
        stepper, found = self.web.stepper, _MODE.fullmatch(mode)
        delay_seconds = int(found[1] or 0) if found else 0
        if found is None or delay_seconds > DELAY_SECONDS_MAX:
            raise invalid(f"mode {quoted(mode)} is neither manual nor automatic[:seconds]")
        expected = revision_of("If-Match", match)
        if expected not in {-1, stepper.epoch}:
            raise invalid(f"epoch {expected} is not the stepper's, which is {stepper.epoch}")
        if mode.lower() == "manual":
            stepper.stop()
        else:
            stepper.run(delay_seconds)

    def _status(self) -> Answered[StepperStatus]:
        return Answered(status_of_stepper(self.web.stepper), headers=etag(self.web.stepper.epoch))
