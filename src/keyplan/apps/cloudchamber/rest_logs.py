"""Traces over HTTP (5.5), for everybody who is logged in; and the word that the original has for faults.

A trace names the route of a request and who made it, the latter for those who manage accounts. Requests that wait, and those
for traces, leave none: whoever follows the log would be shown its own steps.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response

from keyplan.apps.cloudchamber.refusals import invalid
from keyplan.apps.cloudchamber.rest_bodies import message_answer, text_answer
from keyplan.apps.cloudchamber.rest_routes import AuthenticatedRequest, Handler, Operation, Query
from keyplan.apps.cloudchamber.rest_stepper import whole_number
from keyplan.apps.cloudchamber.rest_watch import poll_seconds
from keyplan.apps.cloudchamber.traces import Traces
from keyplan.apps.cloudchamber.waiting import Waiting
from keyplan.apps.cloudchamber.waiting_bodies import LogAnswer, LogPolicy, Trace, TraceEntry

__all__ = ["log_operations"]

_LOGS: Final = "/api/logs"
_SHOWN_DEFAULT: Final = 100


def log_operations(handler: Handler, waiting: Waiting) -> Sequence[Operation]:
    """Return the operations on traces, and that on faults."""
    logs = _Logs(handler, waiting)
    queries = (
        Query(
            "from", "the number of the last trace that is known; -1, as without it: none", pattern="^(-1|[0-9]{1,17})$"
        ),
        Query("for", "at most so many traces", pattern="^[1-9][0-9]{0,5}$"),
    )
    return [
        Operation(
            "GET",
            _LOGS,
            logs.read,
            "Read the traces after one, or wait a few seconds for the next.",
            LogAnswer,
            queries=queries,
            failures="400 403 429",
            has_slash=True,
            is_polled=True,
        ),
        Operation(
            "GET",
            f"{_LOGS}/policy",
            logs.policy,
            "Tell how many traces are kept.",
            LogPolicy,
            has_slash=True,
            is_polled=True,
        ),
        Operation("GET", "/api/faults", logs.faults, "Say what the original says of faults.", has_slash=True),
    ]


class _Logs:
    def __init__(self, handler: Handler, waiting: Waiting) -> None:
        self._handler = handler
        self._traces: Traces = handler.traces
        self._waiting = waiting
        self._seconds_max = poll_seconds(handler.sessions.inactivity_seconds)

    async def read(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        after, most = whole_number(request, "from", -1), whole_number(request, "for", _SHOWN_DEFAULT)
        if most < 1:
            raise invalid(f"for is {most}: at least one trace is needed")
        traces = self._traces
        if after > traces.last_id:
            # Why: that number was given by another server, or by this one before it was started again.
            return message_answer(LogAnswer(last_id=traces.last_id, missed=True))
        # Why also below the beginning: that number is of a server that ran before this one.
        known = traces.begin - 1 if after < 0 else after
        await self._waiting.until(lambda: traces.last_id > known, request, traces.wakeup, seconds_max=self._seconds_max)
        found = traces.after(known, most)
        sees_users = await self._handler.context.read(self._handler.accounts.may_manage, request.caller())
        entries = [
            TraceEntry(
                id=one.id,
                entry=Trace(
                    name=one.name,
                    started_at=_spelled(one.started_at),
                    milliseconds=round(one.seconds * 1000, 3),
                    status=one.status,
                    user=one.user if sees_users or one.user == request.caller() else "",
                ),
            )
            for one in found
        ]
        is_gap = bool(found) and found[0].id > known + 1
        return message_answer(LogAnswer(last_id=found[-1].id if found else known, missed=is_gap, entries=entries))

    async def policy(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        return message_answer(LogPolicy(max_entries_held=self._traces.kept_max, first_id=self._traces.first_id))

    async def faults(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        return text_answer("Injection (Root)")


def _spelled(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
