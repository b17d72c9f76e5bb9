"""Traces over HTTP (5.5), for everybody who is logged in; and the word that the original has for faults.

A trace names the route of a request and who made it, the latter for those who manage accounts. Requests that wait, and those
for traces, leave none: whoever follows the log would be shown its own steps.
"""

from typing import Annotated, Final

from keyplan.apps.cloudchamber import traces
from keyplan.apps.cloudchamber.refusals import invalid
from keyplan.apps.cloudchamber.rest_bodies import LogAnswer, LogPolicy, Trace, TraceEntry
from keyplan.apps.cloudchamber.rest_routes import Resource, Who, number, rest, spelled_time
from keyplan.operations import In, Schema

__all__ = ["Logs"]

_LOGS: Final = "/api/logs"
_SHOWN_DEFAULT: Final = 100


class Logs(Resource):
    """The operations on traces, and that on faults. Coroutines, because traces are the event loop's."""

    @rest("GET", _LOGS, Who.LOGGED_IN, 400, 429, has_slash=True, is_polled=True)
    async def read(
        self,
        *,
        after: Annotated[
            int,
            In("from", number(-1)),
            Schema("the number of the last trace that is known; -1, as without it: none", pattern="^(-1|[0-9]{1,17})$"),
        ] = -1,
        most: Annotated[
            int, In("for", number(_SHOWN_DEFAULT)), Schema("at most so many traces", pattern="^[1-9][0-9]{0,5}$")
        ] = _SHOWN_DEFAULT,
    ) -> LogAnswer:
        """Read the traces after one, or wait a few seconds for the next."""
        if most < 1:
            raise invalid(f"for is {most}: at least one trace is needed")
        kept = self.web.traces
        if after > kept.last_id:
            # Why: that number was given by another server, or by this one before it was started again.
            return LogAnswer(last_id=kept.last_id, missed=True)
        # Why also below the beginning: that number is of a server that ran before this one.
        known = kept.begin - 1 if after < 0 else after
        await self.web.waiting.until(
            lambda: kept.last_id > known, self.asked, kept.wakeup, seconds_max=self.web.waiting.poll_seconds
        )
        found = kept.after(known, most)
        caller = self.asked.caller
        sees_users = await self.web.context.read(self.web.accounts.may_manage, caller)
        entries = [_entry(one, shows_user=sees_users or one.user == caller) for one in found]
        is_gap = bool(found) and found[0].id > known + 1
        return LogAnswer(last_id=found[-1].id if found else known, missed=is_gap, entries=entries)

    @rest("GET", f"{_LOGS}/policy", Who.LOGGED_IN, has_slash=True, is_polled=True)
    async def policy(self) -> LogPolicy:
        """Tell how many traces are kept."""
        return LogPolicy(max_entries_held=self.web.traces.kept_max, first_id=self.web.traces.first_id)

    @rest("GET", "/api/faults", Who.LOGGED_IN, has_slash=True)
    async def faults(self) -> str:
        """Say what the original says of faults."""
        return "Injection (Root)"


def _entry(trace: traces.Trace, *, shows_user: bool) -> TraceEntry:
    shown = Trace(
        name=trace.name,
        started_at=spelled_time(trace.started_at),
        milliseconds=round(trace.seconds * 1000, 3),
        status=trace.status,
        user=trace.user if shows_user else "",
    )
    return TraceEntry(id=trace.id, entry=shown)
