"""What the web server says of itself (5.5): since when it runs, and who is logged in."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.responses import Response

from keyplan.apps.cloudchamber.refusals import RefusedError, permission_denied
from keyplan.apps.cloudchamber.rest_bodies import (
    SessionEntry,
    SessionList,
    SessionStatus,
    SimulationStatus,
    message_answer,
    text_answer,
)
from keyplan.apps.cloudchamber.rest_routes import AuthenticatedRequest, Handler, Operation
from keyplan.apps.cloudchamber.sessions import Session

__all__ = ["session_operations"]

_LIST: Final = "/api/simulation/sessions"
_DIGITS_MAX: Final = 18


def session_operations(handler: Handler) -> Sequence[Operation]:
    """Return the operations on the server's sessions."""
    sessions = _Sessions(handler)
    one = f"{_LIST}/{{id}}"
    return [
        Operation(
            "GET",
            "/api/simulation",
            sessions.status,
            "Tell since when the server runs.",
            SimulationStatus,
            has_slash=True,
        ),
        Operation("GET", _LIST, sessions.list, "List the sessions.", SessionList, has_slash=True),
        Operation("GET", one, sessions.read, "Tell whose a session is.", SessionStatus, failures="403 404"),
        Operation("DELETE", one, sessions.end, "End a session.", failures="403 404"),
    ]


class _Sessions:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._started_at = datetime.fromtimestamp(handler.context.clock.wall(), UTC)

    async def status(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        seconds = self._handler.sessions.inactivity_seconds
        return message_answer(
            SimulationStatus(front_end_started_at=_spelled(self._started_at), inactivity_timeout=f"{seconds:g}s")
        )

    async def list(self, request: AuthenticatedRequest) -> Response:
        await self._require_manager(request)
        entries = [SessionEntry(id=one.id, uri=f"{_LIST}/{one.id}") for one in self._handler.sessions]
        return message_answer(SessionList(sessions=entries))

    async def read(self, request: AuthenticatedRequest) -> Response:
        await self._require_manager(request)
        session = self._found(request)
        now = datetime.fromtimestamp(self._handler.context.clock.wall(), UTC)
        ends_at = now + timedelta(seconds=self._handler.sessions.seconds_left(session))
        return message_answer(SessionStatus(user_name=session.user, timeout=_spelled(ends_at)))

    async def end(self, request: AuthenticatedRequest) -> Response:
        await self._require_manager(request)
        session = self._found(request)
        self._handler.sessions.close(session)
        return text_answer(f"Session {session.id} deleted.")

    async def _require_manager(self, request: AuthenticatedRequest) -> None:
        if not await self._handler.context.read(self._handler.accounts.may_manage, request.caller()):
            raise permission_denied()

    def _found(self, request: AuthenticatedRequest) -> Session:
        text = request.literal("id")
        is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
        session = self._handler.sessions.of_id(int(text)) if is_number else None
        if session is None:
            raise RefusedError(404, f"session {text} not found")
        return session


def _spelled(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
