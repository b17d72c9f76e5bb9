"""The way in: each request gets an id, a caller, bounds, a line in the log and its place in the figures. ASGI, outermost."""

import asyncio
import math
import re
import secrets
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keyplan.engine import Clock
from keyplan.server.access import Access, Caller, set_caller
from keyplan.server.answers import REASON, REQUEST_ID, AnswerError, failure
from keyplan.server.logs import LOGGER
from keyplan.server.meters import Meters, route_of
from keyplan.server.proxies import address_of

__all__ = ["BODY_BYTES_MAX", "HEADER_BYTES_MAX", "Gate", "allow_body"]

BODY_BYTES_MAX: Final = 1 << 20
"""Why: no record of the registry is near it; a route that takes more says so with `allow_body`."""

HEADER_BYTES_MAX: Final = 32 << 10
"""Why: four times what common servers take; a browser's cookies for localhost fit."""

_ROUTE_LIMIT: Final = "keyplan.body_bytes_max"
_DIGITS_MAX: Final = 18
"""Why: Python reads no number of thousands of digits."""
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
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

_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="keyplan", Basic realm="keyplan", charset="UTF-8"'}


class Gate:
    """Middleware around everything that is served.

    `open_routes` are let through without a caller. An exception that nobody foresaw is logged, and answered with 500.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        open_routes: Sequence[BaseRoute],
        meters: Meters,
        clock: Clock,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        self._app = app
        self._access = access
        self._open_routes = open_routes
        self._meters = meters
        self._clock = clock
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._access.proxies.locate(scope)
        origin = self._access.origins.named_in(scope)
        began = self._clock.monotonic()
        request_id = _request_id(scope)
        scope[REQUEST_ID] = request_id
        status = 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                if origin is not None:
                    headers += self._access.origins.headers_for(origin)
                if status in {413, 431}:
                    # Why: the rest of what was sent is not read; the connection is of no more use.
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            await send(message)

        self._meters.began()
        try:
            await self._enter(scope, receive, send_marked)
        except Exception:
            LOGGER.exception("a request failed", extra={"facts": {"request_id": request_id, "route": route_of(scope)}})
            if status:
                raise  # Why: the answer has begun; the server must cut the connection, so that nobody takes it for whole.
            error = AnswerError(500, "internal_error", "the server failed", {"request_id": request_id})
            await failure(error)(scope, receive, send_marked)
        finally:
            seconds = self._clock.monotonic() - began
            self._meters.ended(scope, status, seconds)
            self._log(scope, request_id, status, seconds)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            header_bytes = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
            if header_bytes + len(scope.get("raw_path", b"")) + len(scope["query_string"]) > HEADER_BYTES_MAX:
                raise AnswerError(
                    431, "headers_too_large", "the request's headers are too large", {"max": HEADER_BYTES_MAX}
                )
            preflight = self._access.origins.preflight(scope)
            if preflight is not None:
                await preflight(scope, receive, send)
                return
            await self._identify(scope)
        except AnswerError as error:
            await failure(error)(scope, receive, send)
            return
        await self._app(scope, self._bounded(scope, receive), send)

    async def _identify(self, scope: Scope) -> None:
        try:
            caller = await self._caller(scope)
        except AnswerError:
            if not self._is_open(scope):
                raise
            caller = None
        if caller is None and not self._is_open(scope):
            message = "a token is needed, or the one given is not known"
            raise AnswerError(401, "unauthorized", message, headers=_CHALLENGE)
        set_caller(scope, caller)

    async def _caller(self, scope: Scope) -> Caller | None:
        """Return who made a request; what is guessed is held back, and after many wrong guesses refused unseen.

        Raises AnswerError: 403 `cross_site`, 429 `too_many_guesses`.
        """
        given = next((value for name, value in scope["headers"] if name == b"authorization"), None)
        if given is None:
            return self._access.caller(scope)
        guesses, address = self._access.guesses, address_of(scope)
        seconds = guesses.seconds_until(address, given)
        if seconds > 0:
            after = {"Retry-After": str(math.ceil(seconds))}
            raise AnswerError(429, "too_many_guesses", "too many tokens from there were wrong: wait", headers=after)
        caller = self._access.caller(scope)
        if caller is None:
            await asyncio.sleep(guesses.wrong(address))
        else:
            guesses.right(address, given)
        return caller

    def _is_open(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is not Match.NONE for route in self._open_routes)

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """The request's body, refused as soon as it is known to be too large."""
        declared = _content_length(scope)
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            # Why: asked for each part, because a route sets its own limit when the request has reached it.
            allowed: int = scope.get(_ROUTE_LIMIT, self._body_bytes_max)
            if declared > allowed:
                raise _too_large(allowed)
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > allowed:
                    raise _too_large(allowed)
            return message

        return bounded

    @staticmethod
    def _log(scope: Scope, request_id: str, status: int, seconds: float) -> None:
        caller: Caller | None = scope.get("keyplan.caller")
        facts = {
            "request_id": request_id,
            "method": scope["method"],
            "path": scope["path"],
            "route": route_of(scope),
            "status": status,
            "milliseconds": round(seconds * 1000, 3),
            "caller": caller.name if caller else None,
            "client": address_of(scope),
        }
        if status in _REFUSALS or REASON in scope:
            facts["reason"] = scope.get(REASON) or _REFUSALS.get(status)
        LOGGER.info("request", extra={"facts": facts})


def allow_body(request: Request, bytes_max: int) -> None:
    """Let a request's body have up to so many bytes, whatever the server's limit is; to be called before it is read.

    Why not starlette's `max_body_size`: it answers with plain text.
    """
    request.scope[_ROUTE_LIMIT] = bytes_max


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return secrets.token_hex(8)


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:_DIGITS_MAX])
    return 0


def _too_large(allowed: int) -> AnswerError:
    return AnswerError(413, "body_too_large", "the request's body is too large", {"bytes_max": allowed})
