"""Requests and answers of the registry's HTTP contract: what was said, as JSON, or the error that it means.

KS-55: that there is no registry is believed on one evidence only, our own coded answer `keyspace_api_disabled`. Whatever else
goes wrong (a refused connection, a time-out, a proxy's page or its 404, a 5xx) is a failure, and is raised as one: an
application that took it for "no registry" would write to its default prefix for a while, and split its data.
"""

import json
from types import TracebackType
from typing import Any, ClassVar, Final, Self

import httpx

from keyplan import errors
from keyplan.errors import (
    CommitOutcomeUnknownError,
    EngineOpenError,
    EngineUnavailableError,
    InvalidInputError,
    KeyplanError,
    KeySpaceApiDisabledError,
    KeySpaceError,
    UnauthorizedError,
)
from keyplan.operations import Asked

__all__ = ["Conversation", "HttpClient"]

_TIMEOUT_SECONDS: Final = 10.0

_KEEP_ALIVE_SECONDS: Final = 2.0
"""Why: servers close idle connections after five; a write sent on a closing one has an unknown outcome."""

_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)

_KINDS: Final[dict[str, type[KeyplanError]]] = {
    kind.code.replace("-", "_"): kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, KeyplanError)
}
_KINDS.pop("not_found")  # Why: the server's word for a route that it does not have.


class Conversation:
    """A server by its URL: http://HOST:PORT, https://HOST, or unix:PATH. Safe for use by several threads.

    `engine` is what errors name as the engine: what is asked for there.
    """

    def __init__(self, url: str, *, engine: str, token: str | None, timeout_seconds: float, verify: Any) -> None:
        self.engine = engine
        self._url = url
        headers = {"Accept": "application/json", "User-Agent": "keyplan"}
        if token:
            if not (token.isascii() and token.isprintable()):
                # Why: the token is not shown, and a header cannot carry it.
                raise InvalidInputError(source="token", problem="a token is printable ASCII")
            headers["Authorization"] = f"Bearer {token}"
        is_unix = url.startswith("unix:")
        if not (is_unix or url.startswith(("http://", "https://"))):
            raise EngineOpenError(url=url, problem="a server's URL begins with http://, https:// or unix:")
        transport = httpx.HTTPTransport(
            uds=url.removeprefix("unix:") if is_unix else None,
            verify=verify,
            limits=httpx.Limits(keepalive_expiry=_KEEP_ALIVE_SECONDS),
        )
        try:
            self._client = httpx.Client(
                base_url="http://localhost" if is_unix else url,
                headers=headers,
                timeout=timeout_seconds,
                transport=transport,
                follow_redirects=False,
                trust_env=False,  # Why: a token goes to the server that was named, and to no proxy.
            )
        except httpx.InvalidURL as error:
            raise EngineOpenError(url=url, problem=str(error)) from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(self, asked: Asked, *, timeout_seconds: float | None = None) -> tuple[int, Any]:
        """Send a request, and return the status and the JSON of its success.

        Raises the error that the server answered with; UnauthorizedError without a token that it knows;
        EngineUnavailableError when it cannot be reached or does not answer, and after `close`; CommitOutcomeUnknownError when
        a write may have been done; KeySpaceApiDisabledError on positive evidence that there is no registry.
        """
        extra: dict[str, Any] = {} if timeout_seconds is None else {"timeout": timeout_seconds}
        request = self._request(asked, extra)
        try:
            answer = self._client.send(request)
        except httpx.RequestError as error:  # a connection that fails, and an answer that cannot be decoded
            raise self._unanswered(asked.method, error) from error
        except RuntimeError as error:
            if self._client.is_closed:  # before anything was sent
                raise EngineUnavailableError(engine=self.engine, problem="the client was closed") from error
            raise
        if not answer.is_success:
            raise self._failure(asked.method, answer)
        try:
            return answer.status_code, answer.json()
        except (ValueError, RecursionError) as error:
            if asked.method != "GET":
                # Why: something has answered that it was done, and what was done cannot be read.
                raise CommitOutcomeUnknownError(engine=self.engine, mutations=1) from error
            raise EngineUnavailableError(engine=self.engine, problem=f"{self._url} did not answer in JSON") from error

    def _request(self, asked: Asked, extra: dict[str, Any]) -> httpx.Request:
        """Put a request together. Raises InvalidInputError for what no URL or no JSON can say; nothing was sent then."""
        try:
            if asked.body is not None:
                extra["json"] = asked.body
            if asked.headers:
                extra["headers"] = asked.headers
            return self._client.build_request(asked.method, asked.path, params=asked.query, **extra)
        except (ValueError, TypeError, RecursionError, httpx.InvalidURL) as error:
            raise InvalidInputError(source="request", problem=f"it cannot be sent: {error}") from error

    def _unanswered(self, method: str, error: httpx.RequestError) -> KeyplanError:
        if method == "GET" or isinstance(error, _NEVER_SENT):
            problem = f"{self._url}: {str(error) or type(error).__name__}"
            return EngineUnavailableError(engine=self.engine, problem=problem)
        return CommitOutcomeUnknownError(engine=self.engine, mutations=1)

    def _failure(self, method: str, answer: httpx.Response) -> KeyplanError:
        status = answer.status_code
        code, message, detail = _error_in(answer)
        if status == 401:
            return UnauthorizedError.of_client(self._url, had_token="Authorization" in self._client.headers)
        kind = _KINDS.get(code)
        if kind is not None and _agrees(kind, status):
            return kind(**{name: fact for name, fact in detail.items() if name != "self"})
        if status < 500 and code:
            return InvalidInputError(source=self._url, problem=f"{message} ({code})")
        # Why also 503 without a code of ours: proxies answer so for a server that broke off in the middle of its work.
        if status >= 500 and method != "GET" and not (status == 503 and code):
            return CommitOutcomeUnknownError(engine=self.engine, mutations=1)
        return EngineUnavailableError(engine=self.engine, problem=f"{self._url} answered {status}")


class HttpClient:
    """A client of a keyplan server: something that has a conversation, to be closed, or used in a `with` block.

    `url` is http://HOST:PORT, https://HOST or unix:PATH. `verify` is an ssl.SSLContext for a private authority.
    """

    engine_name: ClassVar[str]
    """What its errors name as the engine."""

    def __init__(
        self, url: str, *, token: str | None = None, timeout_seconds: float = _TIMEOUT_SECONDS, verify: Any = True
    ) -> None:
        self.conversation = Conversation(
            url, engine=self.engine_name, token=token, timeout_seconds=timeout_seconds, verify=verify
        )

    def close(self) -> None:
        """Close the connections. Closing twice is harmless."""
        self.conversation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _error_in(answer: httpx.Response) -> tuple[str, str, dict[str, Any]]:
    """The code, message and detail of an answer in our form; empty for any other."""
    try:
        error = json.loads(answer.content)["error"]
        code, message, detail = error["code"], error["message"], error["detail"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return "", "", {}
    if not (isinstance(code, str) and isinstance(message, str) and isinstance(detail, dict)):
        return "", "", {}
    return code, message, detail


def _agrees(kind: type[KeyplanError], status: int) -> bool:
    """Tell whether an error may come with this status: a code alone, on a page of another program, proves nothing."""
    if issubclass(kind, KeySpaceApiDisabledError):
        return status in {501, 404}
    return not issubclass(kind, KeySpaceError) or kind.http_status == status
