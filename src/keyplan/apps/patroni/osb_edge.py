"""What every request to the broker goes through: log-in, version, and failures in the form of the service broker API.

{"error": "AsyncRequired", "description": "..."}
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from keyplan.apps.patroni.osb_bodies import BrokerFailure
from keyplan.apps.patroni.refusals import NoPortsLeftError, RefusedError
from keyplan.errors import KeyplanError
from keyplan.operations import ITSELF, Act, CallerKind, Contract, Failures, Need, Operation, operation
from keyplan.server import (
    LOGGER,
    AnswerError,
    JsonAnswer,
    OperationRoute,
    Responder,
    Role,
    ServiceContext,
    answer_error_of,
    caller_of,
)

__all__ = ["CONTRACT", "BrokerResponder", "administered"]

F = TypeVar("F", bound=Callable[..., Any])

_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="keyplan-patroni-broker", charset="UTF-8"'}
_METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")
_VERSION_HEADER: Final = "X-Broker-API-Version"
_VERSION: Final = re.compile(r"2\.\d{1,3}")
_VERSIONED: Final = "/v2/"
_IDENTITY: Final = "X-Broker-API-Request-Identity"
_IDENTITY_CHARACTERS_MAX: Final = 200

CONTRACT: Final = Contract(
    "patroni-broker",
    Failures(
        {
            400: "The request is malformed, or asks for what cannot be.",
            401: "The log-in lacks or is wrong.",
            403: "No grant of the access file allows this.",
            404: "There is no such thing, or not yet.",
            409: "There is one of this id with other attributes.",
            410: "It is gone.",
            412: "The version of the API is not 2.",
            415: "The body is not application/json.",
            422: "It cannot be done now, or not in this way: see `error`.",
            500: "The cluster cannot be reached now.",
        },
        BrokerFailure,
    ),
    always=(400, 401, 403, 412),
    callers={},
    headers={
        _VERSIONED: {
            "name": _VERSION_HEADER,
            "in": "header",
            "required": True,
            "description": "The version of the API that the platform speaks.",
            "schema": {"type": "string", "pattern": r"^2\.[0-9]{1,3}$"},
        }
    },
    schemes={"broker": {"type": "http", "scheme": "basic", "description": "The password is an administrator's token."}},
)


def administered(act: Act, method: str, path: str, name: str, answers: str, **facts: Any) -> Callable[[F], F]:
    """Declare that a method is an operation of the broker, which needs the grant `act` on it. All are for administrators."""
    needs = Need(act, ITSELF)
    return operation(method, path, name=name, answers=answers, needs=needs, caller=CallerKind.ADMINISTRATOR, **facts)


class BrokerResponder(Responder):
    """Only administrators come through, by Basic authentication as the API has it; `/v2` wants a version.

    With an access file they are those who are granted what an operation needs.
    """

    knows_all_words = False

    def __init__(self, context: ServiceContext, target: object, *, is_version_required: bool = True) -> None:
        super().__init__(context)
        self._target = target
        self._is_version_required = is_version_required

    async def admit(self, request: Request, operation: Operation) -> object:
        return self._target

    async def respond(self, request: Request, operation: Operation) -> Response:
        # Why before the path is read: whoever is not logged in is told that, and nothing else.
        if operation.caller is CallerKind.ADMINISTRATOR and not self._is_logged_in(request):
            raise RefusedError(401, "log in with the token of an administrator as the password")
        if request.url.path.startswith(_VERSIONED):
            self._check_version(request.headers.get(_VERSION_HEADER))
        return await super().respond(request, operation)

    def _is_logged_in(self, request: Request) -> bool:
        caller = caller_of(request)
        has_grants = self.context.access.policy is not None
        return caller is not None and (has_grants or caller.role is Role.ADMIN)

    async def read(self, request: Request, operation: Operation, kind: Any) -> Any:
        try:
            return await super().read(request, operation, kind)
        except AnswerError as error:
            raise RefusedError(error.status, _text_of(error)) from error

    def route(self, path: str, operations: Mapping[str, Operation]) -> OperationRoute:
        """Return one route for all methods of a path, so that a 405 names them all, in the API's form."""
        allowed = sorted({*operations, *(("HEAD",) if "GET" in operations else ())})

        async def endpoint(request: Request) -> Response:
            operation = operations.get("GET" if request.method == "HEAD" else request.method)
            try:
                if operation is None:
                    raise RefusedError(405, "there is no such method here")
                answer = await self.respond(request, operation)
            except (RefusedError, KeyplanError) as error:
                answer = _failure(error)
            except AnswerError as error:
                answer = _failure(RefusedError(error.status, _text_of(error)))
            if answer.status_code == 405:
                answer.headers["Allow"] = ", ".join(allowed)
            _recognize(request, answer)
            return answer

        return OperationRoute(path, endpoint, methods=_METHODS)

    def _check_version(self, version: str | None) -> None:
        """Raise RefusedError: 412 for another major version of the API than 2, 400 where the header lacks and is required."""
        if not version:
            if self._is_version_required:
                raise RefusedError(400, f"the header {_VERSION_HEADER} is required")
        elif not _VERSION.fullmatch(version):
            raise RefusedError(412, "this broker speaks version 2 of the service broker API")


def _recognize(request: Request, answer: Response) -> None:
    """Give the platform's own name of its request back, and note it beside the answer."""
    identity = request.headers.get(_IDENTITY)
    if identity is None or len(identity) > _IDENTITY_CHARACTERS_MAX or not identity.isprintable():
        return
    answer.headers[_IDENTITY] = identity
    facts = {"identity": identity, "method": request.method, "path": request.url.path, "status": answer.status_code}
    LOGGER.info("a request with an identity", extra={"facts": facts})


def _failure(error: RefusedError | KeyplanError) -> JsonAnswer:
    """Return the answer to a request that is refused, or that fails."""
    if isinstance(error, NoPortsLeftError):
        error = RefusedError(422, str(error.facts["problem"]))
    if isinstance(error, RefusedError):
        body = {"error": error.word} if error.word else {}
        headers = _CHALLENGE if error.status == 401 else None
        return JsonAnswer({**body, "description": error.description}, error.status, headers=headers)
    answer = answer_error_of(error)
    if answer.status >= 500:
        LOGGER.error("a request to the broker failed", extra={"facts": {"error": str(error)}})
    return JsonAnswer({"description": _text_of(answer)}, answer.status, headers=answer.headers)


def _text_of(answer: AnswerError) -> str:
    problem = answer.detail.get("problem")
    return f"{answer.message}: {problem}" if problem else answer.message
