"""What every request to the broker goes through: log-in, version, and failures in the form of the service broker API.

{"error": "AsyncRequired", "description": "..."}
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keyplan.apps.patroni.osb_bodies import check_version
from keyplan.apps.patroni.refusals import NoPortsLeftError, RefusedError
from keyplan.errors import KeyplanError
from keyplan.server import LOGGER, JsonAnswer, Role, answer_error_of, caller_of

__all__ = ["BrokerEdge", "Endpoint"]

Endpoint = Callable[[Request], Awaitable[Response]]

_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="keyplan-patroni-broker", charset="UTF-8"'}
_METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")
_IDENTITY: Final = "X-Broker-API-Request-Identity"
_IDENTITY_CHARACTERS_MAX: Final = 200


class BrokerEdge:
    """Makes routes. Only administrators come through, by Basic authentication as the API has it; `/v2` wants a version."""

    def __init__(self, *, is_version_required: bool = True) -> None:
        self._is_version_required = is_version_required

    def route(self, path: str, endpoints: Mapping[str, Endpoint]) -> Route:
        """Return one route for all methods of a path, so that a 405 names them all, in the API's form."""
        allowed = sorted({*endpoints, *(("HEAD",) if "GET" in endpoints else ())})

        async def endpoint(request: Request) -> Response:
            answer: Response
            try:
                if request.method not in allowed:
                    raise RefusedError(405, "there is no such method here")
                self._admit(request)
                answer = await endpoints["GET" if request.method == "HEAD" else request.method](request)
            except RefusedError as error:
                answer = refusal(error)
            except NoPortsLeftError as error:
                answer = refusal(RefusedError(422, str(error.facts["problem"])))
            except KeyplanError as error:
                answer = _failure(error)
            if answer.status_code == 405:
                answer.headers["Allow"] = ", ".join(allowed)
            _recognize(request, answer)
            return answer

        return Route(path, endpoint, methods=_METHODS)

    def _admit(self, request: Request) -> None:
        caller = caller_of(request)
        if caller is None or caller.role is not Role.ADMIN:
            raise RefusedError(401, "log in with the token of an administrator as the password")
        if request.url.path.startswith("/v2/"):
            check_version(request.headers, is_required=self._is_version_required)


def _recognize(request: Request, answer: Response) -> None:
    """Give the platform's own name of its request back, and note it beside the answer."""
    identity = request.headers.get(_IDENTITY)
    if identity is None or len(identity) > _IDENTITY_CHARACTERS_MAX or not identity.isprintable():
        return
    answer.headers[_IDENTITY] = identity
    facts = {"identity": identity, "method": request.method, "path": request.url.path, "status": answer.status_code}
    LOGGER.info("a request with an identity", extra={"facts": facts})


def refusal(error: RefusedError) -> JsonAnswer:
    """Return the answer to a request that is refused."""
    body = {"error": error.word} if error.word else {}
    headers = _CHALLENGE if error.status == 401 else None
    return JsonAnswer({**body, "description": error.description}, error.status, headers=headers)


def _failure(error: KeyplanError) -> JsonAnswer:
    answer = answer_error_of(error)
    if answer.status >= 500:
        LOGGER.error("a request to the broker failed", extra={"facts": {"error": str(error)}})
    problem = answer.detail.get("problem")
    text = f"{answer.message}: {problem}" if problem else answer.message
    return JsonAnswer({"description": text}, answer.status, headers=answer.headers)
