"""The simulated clock over HTTP (5.5). Everybody who is logged in may read it, stepping takes the right to.

Kept as the original has it: the ETag is the epoch, If-Match -1 means any, a stale epoch is a 400, and `now?after=` waits
without end. Mended: the ETag of a change is the epoch that it began, whatever was matched; an epoch that is yet to come is
refused.
"""

import re
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from keyplan.apps.cloudchamber.refusals import invalid, permission_denied, quoted
from keyplan.apps.cloudchamber.rest_bodies import etag, message_answer, revision_expected
from keyplan.apps.cloudchamber.rest_routes import AuthenticatedRequest, Handler, Operation, Query
from keyplan.apps.cloudchamber.stepper import DELAY_SECONDS_MAX, Stepper
from keyplan.apps.cloudchamber.waiting import Waiting
from keyplan.apps.cloudchamber.waiting_bodies import StepperStatus, Ticks
from keyplan.protobuf import INT64_MAX, INT64_MIN

__all__ = ["status_of_stepper", "stepper_operations", "whole_number"]

_STEPPER: Final = "/api/stepper"
_MODE: Final = re.compile(r"manual|automatic(?:[:=]([0-9]{1,18}))?", re.IGNORECASE)
_WHOLE: Final = re.compile(r"-?[0-9]{1,40}")
_DIGITS: Final = "^[0-9]{1,17}$"
_MODES: Final = "^(manual|automatic(:[0-9]{1,9})?)$"


def stepper_operations(handler: Handler, stepper: Stepper, waiting: Waiting) -> Sequence[Operation]:
    """Return the operations on the simulated clock."""
    steps = _Steps(handler, stepper, waiting)
    change = (
        Query("advance", "let so many ticks pass, one without a number; answered with the tick then", pattern=_DIGITS),
        Query("mode", "manual, automatic, or automatic:SECONDS for each tick", pattern=_MODES),
    )
    after = Query("after", "answer when this tick is over", pattern=_DIGITS)
    return [
        Operation("GET", _STEPPER, steps.status, "Tell how simulated time passes.", StepperStatus, has_slash=True),
        Operation(
            "PUT",
            _STEPPER,
            steps.change,
            "Let simulated time pass, or change how it does: then If-Match is the epoch, or -1.",
            StepperStatus,
            other_answer=Ticks,
            needs_match=True,
            queries=change,
            failures="400 403 409",
            has_slash=True,
        ),
        Operation(
            "GET",
            f"{_STEPPER}/now",
            steps.now,
            "Tell the simulated time, or wait for it.",
            Ticks,
            queries=(after,),
            failures="400 403 429",
            has_slash=True,
            is_polled=True,
        ),
    ]


def status_of_stepper(stepper: Stepper) -> StepperStatus:
    """Return what is told of the clock."""
    return StepperStatus(
        policy=stepper.policy,
        measured_delay=f"{stepper.delay_seconds}s",
        now=stepper.now,
        waiter_count=stepper.waiting,
        epoch=stepper.epoch,
    )


def whole_number(request: AuthenticatedRequest, name: str, default: int) -> int:
    """Return a query parameter that is a whole number; left out or empty, the default. Raises RefusedError (400)."""
    given = request.http.query_params.get(name)
    if not given:
        return default
    number = int(given) if _WHOLE.fullmatch(given) else None
    if number is None or not INT64_MIN <= number <= INT64_MAX:
        raise invalid(f"{name} is {quoted(given)}, which is no whole number of 64 bits")
    return number


class _Steps:
    def __init__(self, handler: Handler, stepper: Stepper, waiting: Waiting) -> None:
        self._handler = handler
        self._stepper = stepper
        self._waiting = waiting

    async def status(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        return self._answer()

    async def change(self, request: AuthenticatedRequest) -> Response:
        if not await self._handler.context.read(self._handler.accounts.holds, request.caller(), "can_step_time"):
            raise permission_denied()
        query = request.http.query_params
        if ("advance" in query) == ("mode" in query):
            raise invalid("either ?advance or ?mode is needed")
        if "mode" in query:
            self._set_mode(request, query["mode"])
            return self._answer()
        ticks = 1 if not query["advance"] else whole_number(request, "advance", 1)
        if ticks < 0:
            raise invalid(f"advance is {ticks}: time does not go back")
        return message_answer(Ticks(ticks=self._stepper.advance(ticks)))

    async def now(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        after = whole_number(request, "after", -1)
        if after < 0 and "after" in request.http.query_params:
            raise invalid(f"after is {after}: no tick is before 0")
        stepper = self._stepper
        stepper.waiting += 1
        try:
            await self._waiting.until(
                lambda: stepper.now > after,
                request,
                stepper.wakeup,
                seconds_to_next=lambda: stepper.seconds_to_next,
            )
        finally:
            stepper.waiting -= 1
        return message_answer(Ticks(ticks=stepper.now))

    def _set_mode(self, request: AuthenticatedRequest, mode: str) -> None:
        found = _MODE.fullmatch(mode)
        delay_seconds = int(found[1] or 0) if found else 0
        if found is None or delay_seconds > DELAY_SECONDS_MAX:
            raise invalid(f"mode {quoted(mode)} is neither manual nor automatic[:seconds]")
        expected, epoch = revision_expected(request.http), self._stepper.epoch
        if expected not in {-1, epoch}:
            raise invalid(f"epoch {expected} is not the stepper's, which is {epoch}")
        if mode.lower() == "manual":
            self._stepper.stop()
        else:
            self._stepper.run(delay_seconds)

    def _answer(self) -> Response:
        answer = message_answer(status_of_stepper(self._stepper))
        answer.headers.update(etag(self._stepper.epoch))
        return answer
