"""The simulated clock over HTTP (5.5, 5.5a). Everybody who is logged in may read it, stepping takes the right to.

As the original has it: the ETag is the epoch, If-Match -1 means any, a stale epoch is a 400, a rate is in ticks per second, and
`now?after=` waits without end. Mended: the ETag of a change is the epoch that it began, whatever was matched; an epoch that is
yet to come is refused.
"""

import re
from typing import Annotated, Final

from keyplan.apps.cloudchamber.refusals import RefusedError, invalid, no_such_page, quoted
from keyplan.apps.cloudchamber.rest_bodies import StepperStatus, Ticks
from keyplan.apps.cloudchamber.rest_routes import Resource, Who, etag, rest
from keyplan.apps.cloudchamber.rest_words import POSITIVE_NUMBER, IfMatchWord, revision_of, spelled_duration
from keyplan.apps.cloudchamber.stepper import RATE_MAX, Stepper
from keyplan.operations import Answered, Change, In, Place, Schema
from keyplan.protobuf import INT64_MAX

__all__ = ["Clock", "status_of_stepper"]

_STEPPER: Final = "/api/stepper"
_MODE: Final = re.compile(r"([^:=]*)(?:[:=](.*))?", re.DOTALL)
_DIGITS: Final = "^[0-9]{1,17}$"
_RATE: Final = re.compile(r"\+?[0-9]{1,19}")
_MODES: Final = "^(manual|automatic(:[1-9][0-9]{0,8})?)$"


def status_of_stepper(stepper: Stepper) -> StepperStatus:
    """Return what is told of the clock."""
    return StepperStatus(
        policy=stepper.policy,
        measured_delay=spelled_duration(stepper.delay_nanoseconds),
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

    @rest("PUT", _STEPPER, Who.TIME_STEPPER, 400, 404, 409, change=Change("step time"))
    async def change(
        self,
        *,
        advance: Annotated[
            str | None,
            In(place=Place.QUERY),
            Schema(
                "let so many ticks pass, one without a number; answered with the tick then",
                pattern="^[1-9][0-9]{0,16}$",
            ),
        ] = None,
        mode: Annotated[
            str | None,
            In(place=Place.QUERY),
            Schema("manual, automatic, or automatic:TICKS for each second", pattern=_MODES),
        ] = None,
        match: IfMatchWord = "",
    ) -> Answered[StepperStatus | Ticks]:
        """Let simulated time pass, or change how it does: then If-Match is the epoch, or -1."""
        if advance is not None:
            ticks = _positive(advance, most=INT64_MAX) if advance else 1
            return Answered(Ticks(ticks=self.web.stepper.advance(ticks)))
        if mode is None:
            raise no_such_page()
        self._set_mode(mode, match)
        return self._status()

    @rest("GET", f"{_STEPPER}/now", Who.LOGGED_IN, 400, 429, is_polled=True)
    async def now(
        self,
        *,
        after: Annotated[
            int | None,
            In(form=POSITIVE_NUMBER),
            Schema("answer when this tick is over, with all that is told of the clock", pattern=_DIGITS),
        ] = None,
    ) -> StepperStatus | Ticks:
        """Tell the simulated time, or wait for it."""
        stepper = self.web.stepper
        if after is None:
            return Ticks(ticks=stepper.now)
        stepper.waiting += 1
        try:
            await self.web.waiting.until(
                lambda: stepper.now > after,
                self.asked,
                stepper.wakeup,
                seconds_to_next=lambda: stepper.seconds_until(after + 1),
            )
        finally:
            stepper.waiting -= 1
        return status_of_stepper(stepper)

    def _set_mode(self, mode: str, match: str) -> None:
        expected = revision_of("If-Match", match)
        found = _MODE.fullmatch(mode)
        assert found is not None, "every text fits it"
        name, rate = found[1], found[2]
        if name not in {"manual", "automatic"}:
            raise invalid(f"mode {quoted(name)} is invalid.  Supported modes are 'manual' and 'automatic'")
        if name == "manual" and rate is not None:
            raise invalid("manual mode does not accept additional arguments")
        ticks_per_second = 1 if rate is None else _positive(rate, most=RATE_MAX)
        if expected not in {-1, self.web.stepper.epoch}:
            raise invalid("Set simulated time policy operation failed")
        if name == "manual":
            self.web.stepper.stop()
        else:
            self.web.stepper.run(ticks_per_second)

    def _status(self) -> Answered[StepperStatus]:
        return Answered(status_of_stepper(self.web.stepper), headers=etag(self.web.stepper.epoch))


def _positive(given: str, *, most: int) -> int:
    """Return how many ticks are asked for. Raises RefusedError (400) for none, for too many, and for what is no number."""
    number = int(given) if _RATE.fullmatch(given) else 0
    if not 1 <= number <= most:
        raise _no_rate(given)
    return number


def _no_rate(given: str) -> RefusedError:
    return invalid(f"requested rate {quoted(given)} could not be parsed as a positive decimal number")
