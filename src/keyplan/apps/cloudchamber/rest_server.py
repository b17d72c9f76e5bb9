"""What a web server says of itself (5.5): since when it runs, who is logged in, what was asked; and the word for faults.

A trace is a span of the original's, with one event: how the request ended, and who made it, the latter for those who manage
accounts. Requests that wait, and those for traces, leave none: whoever follows the log would be shown its own steps. Sessions
and traces are the event loop's: what reads them is a coroutine.
"""

from typing import Annotated, Final

from keyplan.apps.cloudchamber import traces
from keyplan.apps.cloudchamber.refusals import RefusedError, not_a_number, quoted
from keyplan.apps.cloudchamber.rest_bodies import (
    Impact,
    ImpactedModule,
    LogAnswer,
    LogPolicy,
    SessionEntry,
    SessionList,
    SessionStatus,
    Severity,
    SimulationStatus,
    TraceEntry,
    TraceEvent,
    TraceSpan,
)
from keyplan.apps.cloudchamber.rest_routes import Resource, Who, rest
from keyplan.apps.cloudchamber.rest_words import (
    NUMBER,
    POSITIVE_NUMBER,
    Name,
    number_of_path,
    spelled_duration,
    spelled_time,
)
from keyplan.apps.cloudchamber.service_settings import AsOriginal
from keyplan.apps.cloudchamber.sessions import Session
from keyplan.operations import Change, In, Schema

__all__ = ["Logs", "Sessions"]

_SESSIONS: Final = "/api/simulation/sessions"
_SESSION: Final = f"{_SESSIONS}/{{id}}"
_LOGS: Final = "/api/logs"
_SHOWN_MIN: Final = 2
"""Why: the original refuses 1."""
_NO_SPAN: Final = "0" * 16
_IMPACTS: Final = {"GET": Impact.READ, "POST": Impact.CREATE, "PUT": Impact.MODIFY, "DELETE": Impact.DELETE}

SessionNumber = Annotated[Name, In("id")]


class Sessions(Resource):
    """The operations on the server's sessions."""

    @rest("GET", "/api/simulation", Who.LOGGED_IN, has_slash=True)
    async def status(self) -> SimulationStatus:
        """Tell since when the server runs."""
        nanoseconds = round(self.web.sessions.inactivity_seconds * 1_000_000_000)
        return SimulationStatus(
            front_end_started_at=spelled_time(self.web.started_at), inactivity_timeout=spelled_duration(nanoseconds)
        )

    @rest("GET", _SESSIONS, Who.ACCOUNT_MANAGER, has_slash=True)
    async def list(self) -> SessionList:
        """List the sessions."""
        return SessionList(sessions=[SessionEntry(id=one.id, uri=f"{_SESSIONS}/{one.id}") for one in self.web.sessions])

    @rest("GET", _SESSION, Who.ACCOUNT_MANAGER, 404)
    async def read(self, number: SessionNumber) -> SessionStatus:
        """Tell whose a session is."""
        session = self._found(number)
        ends_at = self.web.context.clock.wall() + self.web.sessions.seconds_left(session)
        return SessionStatus(user_name=session.user, timeout=spelled_time(ends_at))

    @rest("DELETE", _SESSION, Who.ACCOUNT_MANAGER, 404, change=Change("end session", "{number}"))
    async def end(self, number: SessionNumber) -> str:
        """End a session. The answer is empty."""
        self.web.sessions.close(self._found(number))
        return ""

    def _found(self, text: str) -> Session:
        number = number_of_path(text)
        session = self.web.sessions.of_id(number)
        if session is None:
            raise RefusedError(404, f"session {number} not found")
        return session


class Logs(Resource):
    """The operations on traces, and that on faults."""

    @rest("GET", _LOGS, Who.LOGGED_IN, 400, 404, 429, is_polled=True)
    async def read(
        self,
        *,
        after: Annotated[
            int,
            In("from", NUMBER),
            Schema("the number of the last trace that is known; -1: none is", pattern="^(-1|[0-9]{1,17})$"),
        ],
        most: Annotated[
            int,
            In("for", POSITIVE_NUMBER),
            Schema("at most so many traces, and at least two", pattern="^([2-9]|[1-9][0-9]{1,5})$"),
        ],
    ) -> LogAnswer:
        """Read the traces after one, or wait a few seconds for the next. Without both words there is no such route."""
        if most < _SHOWN_MIN:
            raise not_a_number("for", str(most), is_positive=True)
        kept = self.web.traces
        if after > kept.last_id:
            # Why: that number was given by another server, or by this one before it was started again.
            return LogAnswer(last_id=kept.last_id, missed=True)
        # Why also below the beginning: that number is of a server that ran before this one.
        known = kept.begin - 1 if after < 0 else after
        await self.web.waiting.until(
            lambda: kept.last_id > known,
            self.asked,
            kept.wakeup,
            seconds_max=None if AsOriginal.LOGS in self.web.as_original else self.web.waiting.poll_seconds,
        )
        found = kept.after(known, most)
        account = self.asked.account
        sees_users = account is not None and await self.web.context.read(self.web.accounts.may_manage, account)
        entries = [_entry(one, shows_user=sees_users or one.user == account) for one in found]
        is_gap = bool(found) and found[0].id > known + 1
        return LogAnswer(last_id=found[-1].id if found else known, missed=is_gap, entries=entries)

    @rest("GET", f"{_LOGS}/policy", Who.LOGGED_IN, is_polled=True)
    async def policy(self) -> LogPolicy:
        """Tell how many traces are kept, and what to ask for the first of them with."""
        return LogPolicy(max_entries_held=self.web.traces.kept_max, first_id=self.web.traces.first_id - 1)

    @rest("GET", "/api/faults", Who.LOGGED_IN, has_slash=True)
    async def faults(self) -> str:
        """Say what the original says of faults."""
        return "Injection (Root)"


def _entry(trace: traces.Trace, *, shows_user: bool) -> TraceEntry:
    is_refused = trace.status >= 400
    outcome = f"http error {trace.status}" if is_refused else f"answered {trace.status}"
    ended_at = spelled_time(trace.started_at + trace.seconds)
    event = TraceEvent(
        tick=trace.tick,
        severity=_severity(trace.status),
        text=f"{outcome}, asked by {quoted(trace.user)}" if shows_user and trace.user else outcome,
        at=ended_at,
    )
    shown = TraceSpan(
        name=trace.name,
        # Why of the number: it is of one server alone, and so no two spans have the same.
        spanID=f"{trace.id:016x}",
        parentID=_NO_SPAN,
        traceID=f"{trace.id:032x}",
        status=f"Error: {outcome}" if is_refused else "OK: ",
        event=[event],
        infrastructure=not trace.is_change,
        reason=trace.reason,
        started_at=spelled_time(trace.started_at),
        ended_at=ended_at,
        impacted=[ImpactedModule(impact=_IMPACTS[trace.method], name=trace.module)],
    )
    return TraceEntry(id=trace.id, entry=shown)


def _severity(status: int) -> Severity:
    if status >= 500:
        return Severity.ERROR
    return Severity.WARNING if status >= 400 else Severity.INFO
