"""How requests come in and answers go out: paths in any case, sessions by cookie, who may do what, errors as text.

The operations are the methods of resources (`Resource`), which stand in the files rest_*.py by the noun of their paths.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from keyplan.apps.cloudchamber.accounts import Accounts
from keyplan.apps.cloudchamber.changes import ChangeFeed
from keyplan.apps.cloudchamber.layout import CloudChamber, CloudChamberGo, ServedLayout
from keyplan.apps.cloudchamber.namespace_store import NamespaceStore
from keyplan.apps.cloudchamber.rack_writer import RackWriter
from keyplan.apps.cloudchamber.readable import RackReader
from keyplan.apps.cloudchamber.refusals import (
    RefusedError,
    invalid,
    no_session,
    no_such_page,
    permission_denied,
    refusal_of,
)
from keyplan.apps.cloudchamber.service_settings import AsOriginal
from keyplan.apps.cloudchamber.sessions import COOKIE, AuthenticatedRequest, LoginBound, Session, SessionTable
from keyplan.apps.cloudchamber.stepper import Stepper
from keyplan.apps.cloudchamber.traces import Trace, Traces
from keyplan.apps.cloudchamber.waiting import Waiting
from keyplan.audit_log import Asker
from keyplan.errors import CorruptionError, KeyplanError
from keyplan.operations import (
    ITSELF,
    Act,
    Contract,
    Failures,
    Need,
    Operation,
    Place,
    operation,
    operations_of,
)
from keyplan.protobuf import Message, ProtoJson
from keyplan.server import (
    LOGGER,
    AnswerError,
    OperationRoute,
    Responder,
    ServiceContext,
    caller_of,
    require_unrefused,
)

__all__ = [
    "CONTRACT",
    "DAMAGED",
    "DAMAGED_FACT",
    "Resource",
    "WebServer",
    "Who",
    "damaged_header",
    "etag",
    "message_of",
    "rest",
    "routes_of",
]

F = TypeVar("F", bound=Callable[..., Any])

COOKIE_SECONDS: Final = 30 * 24 * 3_600


# ---- what is declared ------------------------------------------------------------------------------------------------


class Who(StrEnum):
    """Who may call an operation. USER: what they may do, the operation asks; those below: who has the right of this name."""

    ANYBODY = auto()
    LOGGED_IN = auto()
    USER = auto()
    ACCOUNT_MANAGER = "can_manage_accounts"
    TIME_STEPPER = "can_step_time"
    WORKLOAD_MODIFIER = "can_modify_workloads"
    INVENTORY_MODIFIER = "can_modify_inventory"


CONTRACT: Final = Contract(
    "cloudchamber",
    Failures(
        {
            400: "what was sent cannot be taken",
            403: "nobody is logged in, or not somebody who may",
            404: "there is no such thing",
            409: "it was changed meanwhile, or is not as this needs it",
            410: "the store's history does not reach back so far",
            412: "what is there is not what the headers say; its ETag stands in the answer",
            413: "the body is too large",
            428: "neither If-Match nor If-None-Match says what is to be there",
            429: "too many failed logins, or too many answers that are waited for",
            500: "the store cannot be read",
            501: "the store's engine cannot do this",
            503: "the store cannot be reached",
        },
        str,
    ),
    always=(403, 503),
    callers={},
    schemes={"chamberSession": {"type": "apiKey", "in": "cookie", "name": COOKIE}},
    other_failures=None,
)


_ACTS: Final = {
    Who.LOGGED_IN: Act.READ,
    Who.ACCOUNT_MANAGER: Act.ADMINISTER,
    Who.TIME_STEPPER: Act.WRITE,
    Who.WORKLOAD_MODIFIER: Act.WRITE,
    Who.INVENTORY_MODIFIER: Act.WRITE,
}


def rest(method: str, path: str, who: Who, *failures: int, needs: Need | None = None, **facts: Any) -> Callable[[F], F]:
    """Declare that a method of a resource is an operation; `failures` are those beside 403 and 503.

    Unless `needs` says another, the grant that it needs is on the operation, and is to read, or what the right of `who` is for.
    """
    words = re.findall(r"\w+", path.removeprefix("/api"))
    name = method.lower() + "".join(word[0].upper() + word[1:] for word in words)
    # Why 400 for every name: one that no key can have is refused, whatever is asked of it.
    failures = (*failures, 400) if "{" in path else failures
    needs = needs or Need(_ACTS[who], ITSELF)
    return operation(method, path, name=name, answers="As asked.", needs=needs, caller=who, failures=failures, **facts)


# ---- what performs it ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WebServer:
    """What all operations of one server work with."""

    context: ServiceContext
    chamber: NamespaceStore[CloudChamber] | NamespaceStore[CloudChamberGo]
    racks: RackReader
    rack_writer: RackWriter
    accounts: Accounts
    sessions: SessionTable
    bound: LoginBound
    traces: Traces
    stepper: Stepper
    waiting: Waiting
    feed: ChangeFeed
    started_at: float
    as_original: frozenset[AsOriginal] = frozenset()


class Resource:
    """Operations as one request asks for them: `web` is what the server has, `asked` the request, whose caller was let in."""

    def __init__(self, web: WebServer, asked: AuthenticatedRequest) -> None:
        self.web = web
        self.asked = asked

    @property
    def layout(self) -> ServedLayout:
        """The records."""
        return self.web.chamber.layout

    async def admit_body(self, operation: Operation, arguments: Mapping[str, Any]) -> None:
        """Refuse, before the body is read, who may not ask for an operation with these arguments. Raises RefusedError."""


def etag(revision: int) -> dict[str, str]:
    """The header that names a revision."""
    return {"ETag": f'"{revision}"'}


DAMAGED: Final = "CloudChamber-Damaged"
"""The header that names records which cannot be read. Why no field: the original's clients refuse one that they do not know."""

DAMAGED_FACT: Final = {DAMAGED: "how many records could not be read, and the keys of the first: 2; racks/a, rack/b/tor"}
_DAMAGED_CHARACTERS_MAX: Final = 4_000
"""Why: clients take no header of any length."""


def damaged_header(keys: Sequence[str]) -> dict[str, str]:
    """The header that tells of damaged records; none where there are none."""
    if not keys:
        return {}
    named: list[str] = []
    left = _DAMAGED_CHARACTERS_MAX
    for key in (quote(key) for key in keys):
        left -= len(key) + 2
        if left < 0:
            break
        named.append(key)
    return {DAMAGED: f"{len(keys)}; {', '.join(named)}"}


# ---- how it is answered ----------------------------------------------------------------------------------------------


class ChamberResponder(Responder):
    """The operations of one resource. The session is found first, and its cookie sent again; what fails is said in text.

    Who has a session may do what its account may. Who has none, and is known by an access file, what that grants; but for what
    accounts alone do, as to manage accounts.
    """

    knows_all_words = False

    def __init__(self, web: WebServer, kind: type[Resource]) -> None:
        super().__init__(web.context)
        self._web = web
        self._kind = kind

    async def respond(self, request: Request, operation: Operation) -> Response:
        clock = self.context.clock
        asked = AuthenticatedRequest(request, None)
        request.state.asked = asked
        began, started_at = clock.monotonic(), clock.wall()
        try:
            _require_text(request.scope)
            require_unrefused(request)
            asked.session = await self._session_of(request)
            asked.principal = self._principal_of(request, asked)
            if asked.principal is not None:
                # Why without arguments: what these operations need is on themselves.
                asked.decide = partial(self.decide, request, operation, {})
            response = await super().respond(request, operation)
        except (RefusedError, AnswerError, KeyplanError) as error:
            refusal = error if isinstance(error, RefusedError) else refusal_of(error)
            if isinstance(error, KeyplanError) and refusal.status >= 500:
                LOGGER.error("a request failed", extra={"facts": {"error": str(error)}})
            response = _refused(refusal)
        self._settle_cookie(asked, response)
        if not operation.is_polled:
            self._trace(operation, asked, response, started_at=started_at, seconds=clock.monotonic() - began)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    def _trace(
        self,
        operation: Operation,
        asked: AuthenticatedRequest,
        response: Response,
        *,
        started_at: float,
        seconds: float,
    ) -> None:
        self._web.traces.add(
            Trace(
                name=f"{operation.method} {operation.path}",
                reason=operation.summary,
                module="/" + operation.path.split("/")[2],
                method=operation.method,
                is_change=operation.changes,
                started_at=started_at,
                seconds=seconds,
                status=response.status_code,
                tick=self._web.stepper.now,
                user=asked.session.user if asked.session else "",
            )
        )

    def is_by_grants(self, request: Request) -> bool:
        asked: AuthenticatedRequest = request.state.asked
        # Why not with a session: its account decides then, as it does for who is no principal.
        return asked.session is None

    async def admit(self, request: Request, operation: Operation) -> Resource:
        asked: AuthenticatedRequest = request.state.asked
        who = operation.caller
        if asked.principal is not None:
            # Why let in: what the operation needs was granted, and was decided before.
            return self._kind(self._web, asked)
        if who is Who.LOGGED_IN and asked.session is None:
            raise no_session()
        if who not in {Who.ANYBODY, Who.LOGGED_IN}:
            caller = asked.caller
            if who is not Who.USER and not await self.context.read(self._web.accounts.holds, caller, who.value):
                raise permission_denied()
        return self._kind(self._web, asked)

    async def admit_body(self, operation: Operation, target: Any, arguments: Mapping[str, Any]) -> None:
        await target.admit_body(operation, arguments)

    def asker_of(self, request: Request) -> Asker:
        asked: AuthenticatedRequest = request.state.asked
        found = super().asker_of(request)
        return found if asked.session is None else Asker(asked.session.user, "session", found.address)

    async def read(self, request: Request, operation: Operation, kind: Any) -> Any:
        if not issubclass(kind, Message):
            return await super().read(request, operation, kind)
        return message_of(kind, await request.body(), is_strict=not operation.takes_unknown_fields)

    def write(self, operation: Operation, result: Any, status: int, headers: Mapping[str, str]) -> Response:
        if isinstance(result, str):
            return Response(result, status, media_type="text/plain", headers=headers)
        if not isinstance(result, Message):
            return super().write(operation, result, status, headers)
        content = ProtoJson(type(result)).encode(result)
        return Response(content, status, media_type="application/json", headers=headers)

    def routes(self, operations: Iterable[Operation]) -> list[BaseRoute]:
        return [_AnyCaseRoute(self, one) for one in operations]

    async def _session_of(self, request: Request) -> Session | None:
        secret = request.cookies.get(COOKIE)
        session = None if secret is None else self._web.sessions.find(secret)
        if session is None:
            return None
        user = await self.context.read(self._web.accounts.find, session.user)
        if session.is_of(user):
            return session
        # Why: deleted, made anew, disabled, or with another password: what the cookie was given for is no more.
        self._web.sessions.close(session)
        return None

    def _principal_of(self, request: Request, asked: AuthenticatedRequest) -> str | None:
        """Return whom an access file knows, unless an account is logged in."""
        caller = caller_of(request)
        is_principal = self.context.access.policy is not None and caller is not None and asked.session is None
        return caller.name if is_principal and caller is not None else None

    def _settle_cookie(self, asked: AuthenticatedRequest, response: Response) -> None:
        """Send the cookie of the session that the caller has now, over TLS for TLS alone; or have it forgotten."""
        session = asked.opened or asked.session
        is_hidden = AsOriginal.COOKIES not in self._web.as_original
        if asked.is_logged_out:
            response.delete_cookie(COOKIE, path="/", httponly=is_hidden, samesite="strict")
        elif session is not None and self._web.sessions.is_open(session):
            response.set_cookie(
                COOKIE,
                session.secret,
                max_age=COOKIE_SECONDS,
                path="/",
                secure=asked.http.url.scheme == "https",
                httponly=is_hidden,
                samesite="strict",
            )


M = TypeVar("M", bound=Message)


def message_of(kind: type[M], body: bytes, *, is_strict: bool = True) -> M:
    """Read a body as a message. Raises RefusedError (400): no JSON, another message, with `is_strict` more fields."""
    try:
        return ProtoJson(kind, is_strict=is_strict).decode(body)
    except CorruptionError as error:
        raise invalid(f"the body cannot be read: {error.facts.get('problem', '')}") from error


def _refused(refusal: RefusedError) -> Response:
    return Response(f"{refusal.text}\n", refusal.status, media_type="text/plain", headers=refusal.headers)


def _require_text(scope: Scope) -> None:
    """Raise RefusedError (400) for a path that is no UTF-8: the server has put one character in place of all that is none."""
    try:
        unquote_to_bytes(scope.get("raw_path", b"")).decode()
    except UnicodeDecodeError as error:
        raise invalid("the path is no UTF-8") from error


class _AnyCaseRoute(OperationRoute):
    """A route whose path may be written in any case.

    As in the original, another method of its path is not there at all, nor is it without the words of the query that it needs.
    """

    def __init__(self, responder: Responder, operation: Operation) -> None:
        async def endpoint(request: Request) -> Response:
            return await responder.respond(request, operation)

        super().__init__(operation.path, endpoint, methods=[operation.method])
        self._needed = frozenset(one.word for one in operation.at(Place.QUERY) if one.is_required)
        pattern = self.path_regex.pattern
        if operation.has_slash:
            pattern = pattern.removesuffix("$") + "/?$"
        self.path_regex = re.compile(pattern, re.IGNORECASE)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        is_it = match is Match.FULL and (not self._needed or self._needed <= Request(scope).query_params.keys())
        return (match, child) if is_it else (Match.NONE, {})


class _UncleanRoute(BaseRoute):
    """Leads from a path below /api with empty parts or dots in it to the one without, as the original's router does.

    Why: its PowerShell client asks for //api/stepper when it sets the mode, and follows.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        raw_path = _raw_path_of(scope)
        is_it = _cleaned(raw_path) != raw_path and _cleaned(raw_path).lower().startswith(b"/api/")
        return (Match.FULL if is_it else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        query: bytes = scope["query_string"]
        place = _cleaned(_raw_path_of(scope)) + (b"?" + query if query else b"")
        await Response(status_code=301, headers={"Location": place.decode("latin-1")})(scope, receive, send)


def _raw_path_of(scope: Scope) -> bytes:
    """The path as it was sent: a slash that is written as %2F is a part of a name."""
    raw_path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    return raw_path.partition(b"?")[0]


def _cleaned(raw_path: bytes) -> bytes:
    """A path without empty parts and dots."""
    if b"//" not in raw_path and b"/." not in raw_path:
        return raw_path
    parts: list[bytes] = []
    for part in raw_path.split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in {b"", b"."}:
            parts.append(part)
    return b"/" + b"/".join(parts) + (b"/" if parts and raw_path.endswith(b"/") else b"")


class _NowhereRoute(BaseRoute):
    """Answers every other path below /api: nothing is there, in whatever method."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_it = scope["type"] == "http" and scope["path"].lower().startswith("/api/")
        return (Match.FULL if is_it else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _refused(no_such_page())(scope, receive, send)


def routes_of(web: WebServer, resources: Iterable[type[Resource]]) -> list[BaseRoute]:
    """Return the routes of resources, and that of every other path below /api."""
    return [
        _UncleanRoute(),
        *(route for kind in resources for route in ChamberResponder(web, kind).routes(operations_of(kind).values())),
        _NowhereRoute(),
    ]
