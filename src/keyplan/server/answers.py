"""Answers in JSON: bodies as msgspec writes them, and every failure in one form.

    {"error": {"code": "...", "message": "...", "detail": {...}}}

The status of an error of keyplan stands on its class.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from keyplan.errors import KeyplanError

__all__ = [
    "BODY_TOO_LARGE",
    "REASON",
    "REQUEST_ID",
    "WHY",
    "AnswerError",
    "JsonAnswer",
    "answer_error_of",
    "body_of",
    "failure",
]

T = TypeVar("T")

REASON: Final = "keyplan.reason"
"""Where the code of a failure stands in a request's scope, once the request is answered."""

REQUEST_ID: Final = "keyplan.request_id"
"""Where the id of a request stands in its scope: as in the answer's header, the server's log and the audit log."""

WHY: Final = "keyplan.why"
"""Where its text stands, with whom and what it names if it is a refusal: for the log."""

BODY_TOO_LARGE: Final = 413
"""The status of an answer to a request whose body has more bytes than the server takes."""

_WHOM: Final = ("act", "where")


class AnswerError(Exception):
    """A request is answered with this failure. `code` is for programs and never changes; `message` is for people."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        detail: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.detail = dict(detail or {})
        self.headers = dict(headers or {})


class JsonAnswer(Response):
    """A body in JSON. Structs, dates and UUIDs are written as msgspec writes them."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


class _FailureAnswer(JsonAnswer):
    """An answer that leaves its code with the request, for the log's line."""

    def __init__(self, error: AnswerError) -> None:
        body = {"error": {"code": error.code, "message": error.message, "detail": error.detail}}
        super().__init__(body, error.status, headers=error.headers)
        self._code = error.code
        # Why these alone: other facts may quote what was sent.
        whom = ", ".join(f"{name} {error.detail[name]}" for name in _WHOM if name in error.detail)
        self._why = f"{error.message} ({whom})" if whom else error.message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[REASON], scope[WHY] = self._code, self._why
        await super().__call__(scope, receive, send)


def failure(error: AnswerError) -> JsonAnswer:
    """Return the answer that says what went wrong."""
    return _FailureAnswer(error)


def answer_error_of(error: KeyplanError) -> AnswerError:
    """Return the failure that an error of keyplan is answered with: its code with `_` for `-`, and its facts.

    What is wrong with the server is no business of who asks: then the facts are left out, and are in the log.
    """
    status = error.http_status
    code = error.code.replace("-", "_")
    facts = error.plain_facts() if status != 500 else {}
    headers = {"Retry-After": "1"} if status == 503 else None
    return AnswerError(status, code, error.summary, facts, headers=headers)


async def body_of(request: Request, kind: type[T]) -> T:
    """Read a request's JSON body as an object of `kind`.

    Raises AnswerError: 415 for another content type, 400 `invalid_argument` for what is not JSON or not of this kind.
    """
    content_type = request.headers.get("content-type", "")
    # Why: a page of another site can send text/plain or a form without asking the browser's permission, JSON it cannot.
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise AnswerError(
            415, "unsupported_media_type", "the body must be application/json", {"found": content_type[:100]}
        )
    body = await request.body()
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AnswerError(400, "invalid_argument", "the body cannot be read", {"problem": str(error)}) from error
