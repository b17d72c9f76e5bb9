"""What a HEPnOS server's figures and its log have of requests that it was asked as frames, on all connections together."""

from collections.abc import Sequence

from prometheus_client import Counter
from starlette.requests import Request

from keyplan.apps.hepnos.frames import FRAMES_PATH
from keyplan.server import (
    REQUEST_ID,
    AnswerError,
    RequestLine,
    ServiceContext,
    address_of,
    caller_of,
)

__all__ = ["FrameFigures"]


class FrameFigures:
    """Counts every request. Of `log_each` one has a line in the log; each that is refused has, as `RefusalLog` bounds it."""

    def __init__(self, context: ServiceContext, log_each: int) -> None:
        self._edge = context.edge
        self._log_each = log_each
        self._answered = 0
        self._frames = Counter(
            "keyplan_hepnos_frames", "Requests answered as frames.", ("operation", "status"), registry=context.metrics
        )
        self._counters: dict[tuple[str, int], Counter] = {}
        """Why kept: to find one by its labels takes as long as to count. Their number is that of the labels' values."""

    def tell_successes(self, request: Request, route: str, ids: Sequence[int], seconds: float) -> None:
        """Count requests that were answered as asked, by their ids on the connection of `request`, and tell of their share."""
        self._count(route, 200, len(ids))
        before, self._answered = self._answered, self._answered + len(ids)
        for at in range(-(before + 1) % self._log_each, len(ids), self._log_each):
            self._edge.log(_line_of(request, route, ids[at], 200, seconds, None))

    def tell_failure(self, request: Request, route: str, id: int, seconds: float, error: AnswerError) -> None:  # noqa: A002  # Why: the frame's word.
        """Count a request that has failed, and tell of it where it was refused, or is of the share."""
        self._count(route, error.status, 1)
        self._answered += 1
        is_of_share = not self._answered % self._log_each
        line = _line_of(request, route, id, error.status, seconds, error)
        self._edge.log(line, is_told=lambda: is_of_share or error.status >= 500)

    def tell_no_request(self, request: Request, id: int, error: AnswerError) -> None:  # noqa: A002  # Why: as above.
        """Count a frame that begins no request, and tell of it."""
        self._count("none", error.status, 1)
        self._edge.log(_line_of(request, "none", id, error.status, 0.0, error))

    def _count(self, route: str, status: int, number: int) -> None:
        own = self._counters.get((route, status))
        if own is None:
            own = self._counters[route, status] = self._frames.labels(route, status)
        own.inc(number)


def _line_of(
    request: Request,
    route: str,
    id: int,  # noqa: A002  # Why: as above.
    status: int,
    seconds: float,
    error: AnswerError | None,
) -> RequestLine:
    """Return the line of a frame on the connection that `request` has opened."""
    caller = caller_of(request)
    name = caller.name if caller else None
    reason, why = (None, None) if error is None else (error.code, error.message)
    request_id = f"{request.scope[REQUEST_ID]}.{id}"
    address = address_of(request.scope)
    return RequestLine(request_id, "FRAME", FRAMES_PATH, route, status, seconds, name, address, reason, why)
