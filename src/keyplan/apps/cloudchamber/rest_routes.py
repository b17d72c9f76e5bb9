"""How requests come in and answers go out: paths in any case, sessions by cookie, errors as text; operations as data.

An operation's route, its place in the OpenAPI description and its endpoint are declared once. What the operations do stands in
rest_users.py, rest_inventory.py, rest_workloads.py and rest_sessions.py.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from keyplan.apps.cloudchamber.accounts import Accounts
from keyplan.apps.cloudchamber.chamber import Chamber
from keyplan.apps.cloudchamber.refusals import (
    RefusedError,
    invalid,
    no_session,
    no_such_page,
    permission_denied,
    refusal_of,
)
from keyplan.apps.cloudchamber.rest_bodies import schemas_of, text_answer
from keyplan.apps.cloudchamber.sessions import COOKIE, LoginBound, Session, SessionTable
from keyplan.apps.cloudchamber.traces import Traces
from keyplan.errors import KeyplanError
from keyplan.protobuf import Message
from keyplan.server import LOGGER, AnswerError, ServiceContext, answers

__all__ = ["AuthenticatedRequest", "Handler", "Operation", "Query", "described", "route_list"]

_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
COOKIE_SECONDS: Final = 30 * 24 * 3_600

_FAILURES: Final = {
    "400": "what was sent cannot be taken",
    "403": "nobody is logged in, or not somebody who may",
    "404": "there is no such thing",
    "409": "it was changed meanwhile, or is not as this needs it",
    "410": "the store's history does not reach back so far",
    "413": "the body is too large",
    "429": "too many failed logins, or too many answers that are waited for",
    "500": "the store cannot be read",
    "501": "the store's engine cannot do this",
    "503": "the store cannot be reached",
}


class AuthenticatedRequest(NamedTuple):
    """A request over HTTP and its session; None: nobody is logged in."""

    http: Request
    session: Session | None

    def caller(self) -> str:
        """The key of the user who asks. Raises RefusedError (403)."""
        if self.session is None:
            raise permission_denied()
        return self.session.user

    def require_session(self) -> None:
        """Raise RefusedError (403) when nobody is logged in."""
        if self.session is None:
            raise no_session()

    def name(self, part: str = "name") -> str:
        """A part of the path, in lower case as everything but the last segment of a POST (5.1)."""
        return str(self.http.path_params[part]).lower()

    def literal(self, part: str = "name") -> str:
        """A part of the path as it was written."""
        return str(self.http.path_params[part])


Endpoint = Callable[[AuthenticatedRequest], Awaitable[Response]]


class Query(NamedTuple):
    """A query parameter."""

    name: str
    meaning: str
    words: tuple[str, ...] = ()
    pattern: str = ""


class Operation(NamedTuple):
    """One method of one path. `answer` is the message of a success, None: text; `other_answer` what it may be instead."""

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    answer: type[Message] | None = None
    body: type[Message] | None = None
    text_body: str = ""
    needs_match: bool = False
    queries: Sequence[Query] = ()
    failures: str = "403"
    has_slash: bool = False
    other_answer: type[Message] | None = None
    is_polled: bool = False


class Handler:
    """What every operation works with, and the frame around each: the session is found first, and its cookie sent again."""

    def __init__(
        self,
        context: ServiceContext,
        chamber: Chamber,
        sessions: SessionTable,
        bound: LoginBound,
        traces: Traces,
    ) -> None:
        self.context = context
        self.chamber = chamber
        self.accounts = Accounts(chamber.layout)
        self.sessions = sessions
        self.bound = bound
        self.traces = traces

    async def answer(self, request: Request, operation: Operation) -> Response:
        """Answer a request: what fails is answered with text, and a session's cookie is sent again with all answers."""
        clock = self.context.clock
        session, began, started_at = None, clock.monotonic(), clock.wall()
        try:
            _require_text(request.scope)
            session = await self._session_of(request)
            response = await operation.endpoint(AuthenticatedRequest(request, session))
        except (RefusedError, AnswerError, KeyplanError) as error:
            refusal = error if isinstance(error, RefusedError) else refusal_of(error)
            if isinstance(error, KeyplanError) and refusal.status >= 500:
                LOGGER.error("a request failed", extra={"facts": {"error": str(error)}})
            response = text_answer(f"{refusal.text}\n", status=refusal.status, headers=refusal.headers)
        if session is not None and self.sessions.is_open(session):
            self.give_cookie(request, response, session)
        if not operation.is_polled:
            name, user = f"{operation.method} {operation.path}", session.user if session else ""
            seconds = clock.monotonic() - began
            self.traces.add(name, started_at=started_at, seconds=seconds, status=response.status_code, user=user)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    async def _session_of(self, request: Request) -> Session | None:
        secret = request.cookies.get(COOKIE)
        session = None if secret is None else self.sessions.find(secret)
        if session is None:
            return None
        user = await self.context.read(self.accounts.find, session.user)
        if session.is_of(user):
            return session
        # Why: deleted, made anew, disabled, or with another password: what the cookie was given for is no more.
        self.sessions.close(session)
        return None

    @staticmethod
    def give_cookie(request: Request, response: Response, session: Session) -> None:
        """Send a session's cookie with an answer; over TLS it comes back over TLS alone."""
        response.set_cookie(
            COOKIE,
            session.secret,
            max_age=COOKIE_SECONDS,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    @staticmethod
    def take_cookie(response: Response) -> None:
        """Have the browser forget the cookie."""
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")


def _require_text(scope: Scope) -> None:
    """Raise RefusedError (400) for a path that is no UTF-8: the server has put one character in place of all that is none."""
    try:
        unquote_to_bytes(scope.get("raw_path", b"")).decode()
    except UnicodeDecodeError as error:
        raise invalid("the path is no UTF-8") from error


# ---- routes ----------------------------------------------------------------------------------------------------------


class _AnyCaseRoute(Route):
    """A route whose path may be written in any case; another method of its path is not there at all, as in the original."""

    def __init__(self, operation: Operation, handler: Handler) -> None:
        async def endpoint(request: Request) -> Response:
            return await handler.answer(request, operation)

        super().__init__(operation.path, endpoint, methods=[operation.method])
        pattern = self.path_regex.pattern
        if operation.has_slash:
            pattern = pattern.removesuffix("$") + "/?$"
        self.path_regex = re.compile(pattern, re.IGNORECASE)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return (match, child) if match is Match.FULL else (Match.NONE, {})


def route_list(operations: Iterable[Operation], handler: Handler) -> list[BaseRoute]:
    """Return the routes of operations, and one for every other path below /api: nothing is there, in whatever method."""

    async def nothing(_request: Request) -> Response:
        refusal = no_such_page()
        return text_answer(f"{refusal.text}\n", status=refusal.status)

    return [
        *(_AnyCaseRoute(operation, handler) for operation in operations),
        Route("/api/{rest:path}", nothing, methods=_METHODS),
    ]


# ---- their description -----------------------------------------------------------------------------------------------


def described(operations: Iterable[Operation]) -> Mapping[str, Any]:
    """Return the OpenAPI 3.1 paths and components of operations."""
    paths: dict[str, Any] = {}
    messages: list[type[Message]] = []
    for operation in operations:
        kinds = (operation.answer, operation.other_answer, operation.body)
        messages += [kind for kind in kinds if kind is not None]
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    scheme = {"type": "apiKey", "in": "cookie", "name": COOKIE}
    return {
        "paths": paths,
        "components": {"schemas": schemas_of(*messages), "securitySchemes": {"chamberSession": scheme}},
    }


def _operation(operation: Operation) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", operation.path)
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[A-Za-z0-9]+$"}}
        for name in names
    ]
    for name, meaning, words, pattern in operation.queries:
        schema: dict[str, Any] = {"type": "string", **({"enum": list(words)} if words else {})}
        schema |= {"pattern": pattern} if pattern else {}
        parameters.append({"name": name, "in": "query", "description": meaning, "schema": schema})
    if operation.needs_match:
        schema = {"type": "string", "pattern": '^"[0-9]{1,18}"$'}
        parameters.append(
            {"name": "If-Match", "in": "header", "schema": schema, "description": "an ETag as it was given"}
        )
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": _operation_id(operation),
        "tags": ["cloudchamber"],
        "parameters": parameters,
        "security": [{"chamberSession": []}],
        "responses": _responses(operation),
    }
    if operation.body is not None:
        schema = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        content: dict[str, Any] = {"application/json": {"schema": schema}}
        if operation.text_body:
            content["text/plain"] = {"schema": {"type": "string", "description": operation.text_body}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _operation_id(operation: Operation) -> str:
    words = re.findall(r"\w+", operation.path.removeprefix("/api"))
    return operation.method.lower() + "".join(word[0].upper() + word[1:] for word in words)


def _responses(operation: Operation) -> dict[str, Any]:
    text = {"type": "string"}
    if operation.answer is None:
        success = answers("Done, in words.", text, content_type="text/plain; charset=utf-8")
    else:
        kinds = [kind for kind in (operation.answer, operation.other_answer) if kind is not None]
        schemas = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in kinds]
        success = answers("As asked.", schemas[0] if len(schemas) == 1 else {"anyOf": schemas})
        if operation.text_body:
            success["content"]["text/plain; charset=utf-8"] = {"schema": text}
    # Why 400 for every name: one that no key can have is refused, whatever is asked of it.
    names = {"400"} if "{" in operation.path else set[str]()
    codes = sorted({*operation.failures.split(), *names, "503"})
    failures = {code: answers(_FAILURES[code], text, content_type="text/plain; charset=utf-8") for code in codes}
    return {"200": success, **failures}
