"""What is the same for all requests of one server, whatever they are spoken in: bounds, what callers have held, lines.

The gate has it for HTTP. A service whose connections speak another protocol once they are theirs (`Upgraded`) has it for what
is asked there: nothing is bounded or told a second time in other words.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from keyplan.errors import KeyplanError
from keyplan.server.answers import AnswerError, answer_error_of
from keyplan.server.bounds import EdgeBounds
from keyplan.server.holding import HeldBytes
from keyplan.server.logs import LOGGER
from keyplan.server.refusals import RefusalLog

__all__ = ["ACCESS_ENDED", "CLIENT_GONE", "TOO_SLOW", "Edge", "RequestLine", "told_failure"]

_REFUSALS: Final = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    408: "too_slow",
    413: "body_too_large",
    415: "unsupported_media_type",
    429: "too_many_guesses",
    431: "headers_too_large",
    503: "overloaded",
}
"""Why a request was refused, where the service that refused it has words of another protocol."""

_REFUSED_ALWAYS: Final = frozenset(_REFUSALS) - {400, 415, 503}
"""Statuses that say that a request was refused, whatever for."""

ACCESS_ENDED: Final = "access_ended"
CLIENT_GONE: Final = "client_gone"
TOO_SLOW: Final = "too_slow"
_REFUSED_SO: Final = frozenset({ACCESS_ENDED, CLIENT_GONE, TOO_SLOW, "overloaded"})
"""Reasons that say so, whatever the status. Why not every 503: that a store cannot be reached is no refusal."""


class RequestLine(NamedTuple):
    """What the log has of one request. `reason` and `why` are those of a failure."""

    request_id: str
    method: str
    path: str
    route: str
    status: int
    seconds: float
    caller: str | None
    address: str
    reason: str | None = None
    why: str | None = None


class Edge:
    """The bounds of one server, what its callers have held, and its lines. For one event loop."""

    def __init__(self, bounds: EdgeBounds | None = None, refusals: RefusalLog | None = None) -> None:
        self.bounds = bounds or EdgeBounds()
        self.refusals = refusals or RefusalLog()
        self.held = HeldBytes(self.bounds)

    def log(self, line: RequestLine, *, is_told: Callable[[], bool] = lambda: True) -> None:
        """Write the line of a request; of one that was refused as `RefusalLog` does, of all others where it `is_told`."""
        reason = line.reason or _REFUSALS.get(line.status)
        status, is_nobodys = line.status, line.caller is None
        is_refused = status in _REFUSED_ALWAYS or (status == 400 and is_nobodys) or line.reason in _REFUSED_SO
        if not is_refused and not is_told():
            return
        facts: dict[str, Any] = {
            "request_id": line.request_id,
            "method": line.method,
            "path": line.path,
            "route": line.route,
            "status": status,
            "milliseconds": round(line.seconds * 1000, 3),
            "caller": line.caller,
            "client": line.address,
        }
        if reason is not None:
            facts["reason"] = reason
        if is_refused:
            self.refusals.tell(line.address, reason or str(status), {**facts, "why": line.why})
            return
        self.refusals.tell_rest_if_due()
        LOGGER.info("request", extra={"facts": facts})


def told_failure(error: KeyplanError, request_id: str | None) -> AnswerError:
    """Return the failure that an error is answered with. What is wrong with the server stands in its log."""
    answer = answer_error_of(error)
    if answer.status >= 500:
        facts: dict[str, Any] = {"request_id": request_id, "error": str(error)}
        LOGGER.error("a request failed", extra={"facts": facts})
    return answer
