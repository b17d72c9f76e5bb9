"""The way in: each request gets an id, a caller, bounds, a line in the log and its place in the figures. ASGI, outermost.

What is no HTTP, a websocket above all, does not get in.
"""

import asyncio
import math
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keyplan.engine import Clock
from keyplan.server.access import Access, Caller, caller_in, set_caller, unauthorized
from keyplan.server.answers import BODY_TOO_LARGE, REASON, REQUEST_ID, WHY, AnswerError, failure
from keyplan.server.bounds import BODY_BYTES_PER_SECOND_MIN, HEADER_BYTES_MAX
from keyplan.server.edge import ACCESS_ENDED, CLIENT_GONE, TOO_SLOW, Edge, RequestLine
from keyplan.server.holding import FREE_BYTES, Holding
from keyplan.server.logs import LOGGER
from keyplan.server.meters import Meters, route_of
from keyplan.server.peers import is_whole, peer_of
from keyplan.server.proxies import address_of
from keyplan.server.standing import CallerGoneError, Standings

__all__ = ["Gate", "allow_body"]

_ROUTE_LIMIT: Final = "keyplan.body_bytes_max"
_DIGITS_MAX: Final = 18
"""Why: Python reads no number of thousands of digits."""
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_CLOSING: Final = frozenset({408, 413, 431})
"""What is answered before all was read. Why closed: the rest of it is not read; the connection is of no more use."""


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
        edge: Edge,
    ) -> None:
        self._app = app
        self._access = access
        self._open_routes = open_routes
        self._meters = meters
        self._clock = clock
        self._edge = edge
        self._bounds = edge.bounds
        self._standings = Standings(access)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # Why: nobody is asked here who they are but in a request of HTTP.
            raise RuntimeError(f"a server of HTTP has no {scope['type']}")
        self._access.proxies.locate(scope)
        origin = self._access.origins.named_in(scope)
        began = self._clock.monotonic()
        request_id = _request_id(scope)
        scope[REQUEST_ID] = request_id
        status = 0
        holding = self._edge.held.begun(scope)

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                if origin is not None:
                    headers += self._access.origins.headers_for(origin)
                if status in _CLOSING:
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            elif message["type"] == "http.response.body":
                _count_answer(holding, message)
            await send(message)
            if message.get("more_body"):
                if len(message.get("body", b"")) > FREE_BYTES:
                    holding.keep_until_taken()
                # Why: a stream that waits for nothing, not even for a client that has left, would be all that the loop does.
                await asyncio.sleep(0)

        self._meters.began()
        try:
            await self._enter(scope, receive, send_marked, holding, has_begun=lambda: bool(status))
        except CallerGoneError:
            await _cut(scope, receive, ACCESS_ENDED, "who asked is not known any more, or may not have this any more")
        except ClientDisconnect:
            # Why no failure: whoever sends half of a request, or what is no chunk of a body, may do so as often as they like.
            scope[REASON], scope[WHY] = CLIENT_GONE, "the client was gone before its request was there"
        except Exception:
            LOGGER.exception("a request failed", extra={"facts": {"request_id": request_id, "route": route_of(scope)}})
            if status:
                raise  # Why: the answer has begun; the server must cut the connection, so that nobody takes it for whole.
            error = AnswerError(500, "internal_error", "the server failed", {"request_id": request_id})
            await failure(error)(scope, receive, send_marked)
        finally:
            holding.end_when_taken()
            seconds = self._clock.monotonic() - began
            self._meters.ended(scope, status, seconds)
            self._log(scope, request_id, status, seconds)

    async def _enter(
        self, scope: Scope, receive: Receive, send: Send, holding: Holding, *, has_begun: Callable[[], bool]
    ) -> None:
        try:
            header_bytes = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
            if header_bytes + len(scope.get("raw_path", b"")) + len(scope["query_string"]) > HEADER_BYTES_MAX:
                raise AnswerError(
                    431, "headers_too_large", "the request's headers are too large", {"max": HEADER_BYTES_MAX}
                )
            _check_single(scope)
            preflight = self._access.origins.preflight(scope)
            if preflight is not None:
                await preflight(scope, receive, send)
                return
            await self._identify(scope)
            holding.admit()
            await self._standings.answer(self._app, scope, self._bounded(scope, receive, holding, has_begun), send)
        except AnswerError as error:
            await failure(error)(scope, receive, send)

    async def _identify(self, scope: Scope) -> None:
        caller, refusal = None, None
        try:
            caller = await self._caller(scope)
            if caller is None and _authorization_in(scope) is not None:
                refusal = unauthorized()
        except AnswerError as error:
            refusal = error
        if caller is None and not self._is_open(scope):
            raise refusal or unauthorized()
        set_caller(scope, caller, refusal=refusal)

    async def _caller(self, scope: Scope) -> Caller | None:
        """Return who made a request; what is guessed is held back, and after many wrong guesses refused unseen.

        Raises AnswerError: 403 `cross_site`, 429 `too_many_guesses`.
        """
        given = _authorization_in(scope)
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

    def _bounded(self, scope: Scope, receive: Receive, holding: Holding, has_begun: Callable[[], bool]) -> Receive:
        """The request's body, refused as soon as it is known to be too large, and when it is too slow.

        Only waiting for the client counts: what is not asked for is not late. None of it is read while its caller has too much
        held already.
        """
        declared, is_coming = _body_in(scope)
        taken, waited, counted = 0, 0.0, FREE_BYTES

        async def in_time() -> Message:
            nonlocal waited
            loop = asyncio.get_running_loop()
            allowed = self._bounds.body_seconds_max + taken / BODY_BYTES_PER_SECOND_MIN
            began = loop.time()
            try:
                async with asyncio.timeout(max(0.0, allowed - waited)):
                    return await receive()
            except TimeoutError:
                if has_begun():
                    return await _cut(scope, receive, TOO_SLOW, "the rest of the request's body comes too slowly")
                raise AnswerError(408, TOO_SLOW, "the request's body comes too slowly", {"bytes": taken}) from None
            finally:
                waited += loop.time() - began

        async def count(number: int) -> None:
            nonlocal counted
            if number > counted:
                await holding.take_when_there_is_room(number - counted, self._bounds.body_seconds_max)
                counted = number

        async def bounded() -> Message:
            nonlocal taken, is_coming
            # Why: asked for each part, because a route sets its own limit when the request has reached it.
            allowed: int = scope.get(_ROUTE_LIMIT, self._bounds.body_bytes_max)
            if declared > allowed:
                raise _too_large(allowed)
            await count(declared)
            # Why not always: what is there needs no timer, and after the body a stream waits here until its client goes.
            message = await (in_time() if is_coming and not is_whole(scope) else receive())
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > allowed:
                    raise _too_large(allowed)
                await count(taken)
            is_coming = is_coming and bool(message.get("more_body"))
            return message

        return bounded

    def _log(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        caller: Caller | None = caller_in(scope)
        self._edge.log(
            RequestLine(
                request_id,
                scope["method"],
                scope["path"],
                route_of(scope),
                status,
                seconds,
                caller.name if caller else None,
                address_of(scope),
                scope.get(REASON),
                scope.get(WHY),
            )
        )


def _count_answer(holding: Holding, message: Message) -> None:
    """Have a request hold its answer, or the part of it that is sent, in place of what was read for it."""
    number = len(message.get("body", b""))
    if number > FREE_BYTES or not message.get("more_body"):
        holding.keep_answer(number)


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


def _check_single(scope: Scope) -> None:
    """Raise AnswerError, 400, for what HTTP has once in a request, and this one has not.

    Why: a proxy that looks at the one of two would let in whom the server takes for the other.
    """
    names = [name for name, _ in scope["headers"]]
    if names.count(b"authorization") > 1:
        raise AnswerError(400, "bad_request", "the request has several Authorization headers: send one")
    hosts = names.count(b"host")
    if hosts > 1:
        raise AnswerError(400, "bad_request", "the request has several Host headers: send one")
    if not hosts and scope.get("http_version") == "1.1":
        raise AnswerError(400, "bad_request", "the request has no Host header: send one, as HTTP/1.1 says")


def _authorization_in(scope: Scope) -> bytes | None:
    return next((value for name, value in scope["headers"] if name == b"authorization"), None)


async def _cut(scope: Scope, receive: Receive, reason: str, why: str) -> Message:
    """Cut an answer that has begun, so that nobody takes it for whole; return the message that its connection is closed."""
    scope[REASON], scope[WHY] = reason, why
    peer = peer_of(scope)
    if peer is None:
        raise ConnectionAbortedError(why)
    peer.hang_up()
    while (message := await receive())["type"] != "http.disconnect":
        pass
    return message


def _body_in(scope: Scope) -> tuple[int, bool]:
    """How many bytes a request says that its body has, 0 where it does not say, and whether it has any."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            declared = int(value[:_DIGITS_MAX])
            return declared, declared > 0
        if name == b"transfer-encoding":
            return 0, True
    return 0, False


def _too_large(allowed: int) -> AnswerError:
    return AnswerError(BODY_TOO_LARGE, "body_too_large", "the request's body is too large", {"bytes_max": allowed})
