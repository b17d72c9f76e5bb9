"""What the web server says of itself (5.5): since when it runs, and who is logged in."""

from typing import Annotated, Final

from keyplan.apps.cloudchamber.refusals import RefusedError
from keyplan.apps.cloudchamber.rest_bodies import SessionEntry, SessionList, SessionStatus, SimulationStatus
from keyplan.apps.cloudchamber.rest_routes import Name, Resource, Who, rest, spelled_time
from keyplan.apps.cloudchamber.sessions import Session
from keyplan.operations import In

__all__ = ["Sessions"]

_LIST: Final = "/api/simulation/sessions"
_ONE: Final = f"{_LIST}/{{id}}"
_DIGITS_MAX: Final = 18

SessionNumber = Annotated[Name, In("id")]


class Sessions(Resource):
    """The operations on the server's sessions. Coroutines, because sessions are the event loop's."""

    @rest("GET", "/api/simulation", Who.LOGGED_IN, has_slash=True)
    async def status(self) -> SimulationStatus:
        """Tell since when the server runs."""
        seconds = self.web.sessions.inactivity_seconds
        return SimulationStatus(
            front_end_started_at=spelled_time(self.web.started_at), inactivity_timeout=f"{seconds:g}s"
        )

    @rest("GET", _LIST, Who.ACCOUNT_MANAGER, has_slash=True)
    async def list(self) -> SessionList:
        """List the sessions."""
        return SessionList(sessions=[SessionEntry(id=one.id, uri=f"{_LIST}/{one.id}") for one in self.web.sessions])

    @rest("GET", _ONE, Who.ACCOUNT_MANAGER, 404)
    async def read(self, number: SessionNumber) -> SessionStatus:
        """Tell whose a session is."""
        session = self._found(number)
        ends_at = self.web.context.clock.wall() + self.web.sessions.seconds_left(session)
        return SessionStatus(user_name=session.user, timeout=spelled_time(ends_at))

    @rest("DELETE", _ONE, Who.ACCOUNT_MANAGER, 404)
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
