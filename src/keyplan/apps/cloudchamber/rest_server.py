"""What a web server says of itself (5.5): since when it runs, who is logged in, what was asked; and the word for faults.

A trace names the route of a request and who made it, the latter for those who manage accounts. Requests that wait, and those
for traces, leave none: whoever follows the log would be shown its own steps. Sessions and traces are the event loop's: what
reads them is a coroutine.
"""

from typing import Annotated, Final

from keyplan.apps.cloudchamber import traces
from keyplan.apps.cloudchamber.refusals import RefusedError, invalid
from keyplan.apps.cloudchamber.rest_bodies import (
    LogAnswer,
    LogPolicy,
    SessionEntry,
    SessionList,
    SessionStatus,
    SimulationStatus,
    Trace,
    TraceEntry,
)
from keyplan.apps.cloudchamber.rest_routes import Name, Resource, Who, number, rest, spelled_time
from keyplan.apps.cloudchamber.sessions import Session
from keyplan.operations import Change, In, Schema

__all__ = ["Logs", "Sessions"]

_SESSIONS: Final = "/api/simulation/sessions"
_SESSION: Final = f"{_SESSIONS}/{{id}}"
_DIGITS_MAX: Final = 18
_LOGS: Final = "/api/logs"
_SHOWN_DEFAULT: Final = 100

SessionNumber = Annotated[Name, In("id")]


class Sessions(Resource):
    """The operations on the server's sessions."""

    @rest("GET", "/api/simulation", Who.LOGGED_IN, has_slash=True)
    async def status(self) -> SimulationStatus:
        """Tell since when the server runs."""
        seconds = self.web.sessions.inactivity_seconds
        return SimulationStatus(
            front_end_started_at=spelled_time(self.web.started_at), inactivity_timeout=f"{seconds:g}s"
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
        """End a session."""
        session = self._found(number)
        self.web.sessions.close(session)
        return f"Session {session.id} deleted."

    def _found(self, text: str) -> Session:
        is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
        session = self.web.sessions.of_id(int(text)) if is_number else None
        if session is None:
            raise RefusedError(404, f"session {text} not found")
        return session


class Logs(Resource):
    """The operations on traces, and that on faults."""

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
        account = self.asked.account
        sees_users = account is not None and await self.web.context.read(self.web.accounts.may_manage, account)
        entries = [_entry(one, shows_user=sees_users or one.user == account) for one in found]
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
