"""How requests come in and answers go out: paths in any case, sessions by cookie, errors as text; operations as data.

An operation's route, its place in the OpenAPI description and its endpoint are declared once. What the operations do stands in
rest_users.py, rest_inventory.py, rest_workloads.py and rest_sessions.py.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from keyplan.apps.cloudchamber.accounts import Accounts
from keyplan.apps.cloudchamber.chamber import Chamber
from keyplan.apps.cloudchamber.proto_json import Message
from keyplan.apps.cloudchamber.refusals import RefusedError, no_session, no_such_page, permission_denied, refusal_of
from keyplan.apps.cloudchamber.rest_bodies import schemas_of, text_answer
from keyplan.apps.cloudchamber.sessions import COOKIE, LoginBound, Session, SessionTable
from keyplan.errors import KeyplanError
from keyplan.server import LOGGER, AnswerError, ServiceContext, answers

__all__ = ["Asked", "Desk", "Operation", "Query", "described", "route_list"]

_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
COOKIE_SECONDS: Final = 30 * 24 * 3_600

_FAILURES: Final = {
    "400": "what was sent cannot be taken",
    "403": "nobody is logged in, or not somebody who may",
    "404": "there is no such thing",
    "409": "it was changed meanwhile",
    "413": "the body is too large",
    "429": "too many failed logins",
    "500": "the store cannot be read",
    "503": "the store cannot be reached",
}


class Asked(NamedTuple):
    """A request and its session; None: nobody is logged in."""

    request: Request
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
        return str(self.request.path_params[part]).lower()

    def literal(self, part: str = "name") -> str:
        """A part of the path as it was written."""
        return str(self.request.path_params[part])


Endpoint = Callable[[Asked], Awaitable[Response]]


class Query(NamedTuple):
    """A query parameter."""

    name: str
    meaning: str
    words: tuple[str, ...] = ()


class Operation(NamedTuple):
    """One method of one path. `answer` is the message of a success, None: text."""

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


class Desk:
    """What every operation works with, and the frame around each: the session is found first, and its cookie sent again."""

    def __init__(self, context: ServiceContext, chamber: Chamber, sessions: SessionTable, bound: LoginBound) -> None:
        self.context = context
        self.chamber = chamber
        self.accounts = Accounts(chamber.layout)
        self.sessions = sessions
        self.bound = bound

    async def answer(self, request: Request, endpoint: Endpoint) -> Response:
        """Answer a request: what fails is answered with text, and a session's cookie is sent again with all answers."""
        session: Session | None = None
        try:
            session = await self._session_of(request)
            response = await endpoint(Asked(request, session))
        except (RefusedError, AnswerError, KeyplanError) as error:
            refusal = error if isinstance(error, RefusedError) else refusal_of(error)
            if isinstance(error, KeyplanError) and refusal.status >= 500:
                LOGGER.error("a request failed", extra={"facts": {"error": str(error)}})
            response = text_answer(f"{refusal.text}\n", status=refusal.status, headers=refusal.headers)
        if session is not None and self.sessions.is_open(session):
            self.give_cookie(request, response, session)
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


# ---- routes ----------------------------------------------------------------------------------------------------------


class _AnyCaseRoute(Route):
    """A route whose path may be written in any case; another method of its path is not there at all, as in the original."""

    def __init__(self, operation: Operation, desk: Desk) -> None:
        async def endpoint(request: Request) -> Response:
            return await desk.answer(request, operation.endpoint)

        super().__init__(operation.path, endpoint, methods=[operation.method])
        pattern = self.path_regex.pattern
        if operation.has_slash:
            pattern = pattern.removesuffix("$") + "/?$"
        self.path_regex = re.compile(pattern, re.IGNORECASE)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return (match, child) if match is Match.FULL else (Match.NONE, {})


def route_list(operations: Iterable[Operation], desk: Desk) -> list[BaseRoute]:
    """Return the routes of operations, and one for every other path below /api: nothing is there, in whatever method."""

    async def nothing(_request: Request) -> Response:
        refusal = no_such_page()
        return text_answer(f"{refusal.text}\n", status=refusal.status)

    return [
        *(_AnyCaseRoute(operation, desk) for operation in operations),
        Route("/api/{rest:path}", nothing, methods=_METHODS),
    ]


# ---- their description -----------------------------------------------------------------------------------------------


def described(operations: Iterable[Operation]) -> Mapping[str, Any]:
    """Return the OpenAPI 3.1 paths and components of operations."""
    paths: dict[str, Any] = {}
    messages: list[type[Message]] = []
    for operation in operations:
        messages += [kind for kind in (operation.answer, operation.body) if kind is not None]
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
    for name, meaning, words in operation.queries:
        schema = {"type": "string", **({"enum": list(words)} if words else {})}
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
        success = answers("As asked.", {"$ref": f"#/components/schemas/{operation.answer.__name__}"})
        if operation.text_body:
            success["content"]["text/plain; charset=utf-8"] = {"schema": text}
    # Why 400 for every name: one that no key can have is refused, whatever is asked of it.
    names = {"400"} if "{" in operation.path else set[str]()
    codes = sorted({*operation.failures.split(), *names, "503"})
    failures = {code: answers(_FAILURES[code], text, content_type="text/plain; charset=utf-8") for code in codes}
    return {"200": success, **failures}
