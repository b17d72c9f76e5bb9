"""Requests to a HEPnOS server, on a connection for each thread. What goes over it is bytes; what they mean stands elsewhere."""

import json
import socket
import ssl
from collections.abc import Callable
from functools import partial
from threading import Lock, local
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakSet

from keyplan import errors
from keyplan.apps.hepnos.packed import PACKED
from keyplan.apps.hepnos.remote_wire import Answer, Wire, tcp, unix
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import (
    CommitOutcomeUnknownError,
    EngineOpenError,
    EngineUnavailableError,
    ForbiddenError,
    InvalidInputError,
    KeyplanError,
    UnauthorizedError,
)

__all__ = ["Calls", "is_server_url"]

_ENGINE: Final = "hepnos-server"
_SCHEMES: Final = ("http://", "https://", "unix:")
_IDLE_SECONDS_MAX: Final = 2.0
"""Why: servers close idle connections after five; what a write sent on a closing one did is not known."""

_NEVER_SENT: Final = (ConnectionRefusedError, socket.gaierror, FileNotFoundError, ssl.SSLCertVerificationError)

_KINDS: Final[dict[str, type[KeyplanError]]] = {
    kind.code.replace("-", "_"): kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, KeyplanError)
}
_KINDS.pop("not_found")  # Why: the server's word for a route that it does not have.


def is_server_url(url: str) -> bool:
    """Tell whether a URL is that of a server, and not of databases."""
    return url.startswith(_SCHEMES)


class _Kept(local):
    """A thread's connection, and when it was last used."""

    wire: Wire | None = None
    used_at = 0.0


class Calls:
    """A server by its URL: http://HOST:PORT, https://HOST, or unix:PATH. Safe for use by several threads."""

    def __init__(self, url: str, *, token: str | None = None, timeout_seconds: float = 60.0) -> None:
        self.url = url
        self._has_token = bool(token)
        headers = {"Content-Type": PACKED}
        if token:
            if not (token.isascii() and token.isprintable()):
                # Why: the token is not shown, and a header cannot carry it.
                raise InvalidInputError(source="token", problem="a token is printable ASCII")
            headers["Authorization"] = f"Bearer {token}"
        connect, host, self._base = _connector(url, timeout_seconds)
        self._new_wire = partial(Wire, connect, host, headers)
        self._kept = _Kept()
        self._made: WeakSet[Wire] = WeakSet()
        self._lock = Lock()
        self._is_closed = False

    def ask(self, method: str, path: str, body: bytes = b"", *, is_write: bool = False) -> Answer:
        """Send a request, and return its success.

        A request that reads is sent again, once, when its connection was at an end. Raises the error that the server answered
        with; UnauthorizedError; EngineUnavailableError; CommitOutcomeUnknownError when a write may have been done.
        """
        wire, is_fresh = self._wire()
        try:
            answer = wire.ask(method, self._base + path, body)
        except OSError as error:
            if is_write and not isinstance(error, _NEVER_SENT):
                raise CommitOutcomeUnknownError(engine=_ENGINE, mutations=1) from error
            if is_fresh or self._is_closed:
                raise EngineUnavailableError(engine=_ENGINE, problem=f"{self.url}: {error}") from error
            self._kept.wire = None
            return self.ask(method, path, body, is_write=is_write)
        self._kept.used_at = SYSTEM_CLOCK.monotonic()
        if answer.status >= 300:
            raise self._failure(answer, is_write=is_write)
        return answer

    def close(self) -> None:
        """Close the connections of all threads. Closing twice is harmless."""
        with self._lock:
            self._is_closed = True
            made = list(self._made)
        for wire in made:
            wire.close()

    def _wire(self) -> tuple[Wire, bool]:
        """Return this thread's connection, and whether it is a new one."""
        kept = self._kept
        if kept.wire is not None:
            if SYSTEM_CLOCK.monotonic() - kept.used_at < _IDLE_SECONDS_MAX:
                return kept.wire, False
            kept.wire.close()
        wire = kept.wire = self._new_wire()
        with self._lock:
            if self._is_closed:
                raise EngineUnavailableError(engine=_ENGINE, problem="the store was closed")
            self._made.add(wire)
        return wire, True

    def _failure(self, answer: Answer, *, is_write: bool) -> KeyplanError:
        status = answer.status
        code, message, detail = _error_in(answer.body)
        if status == 401:
            return UnauthorizedError.of_client(self.url, had_token=self._has_token)
        kind = _KINDS.get(code)
        if kind is not None:
            return kind(**{name: fact for name, fact in detail.items() if name != "self"})
        if status == 403:
            return ForbiddenError(act="anything", problem=f"{self.url}: {message or 'it was refused'}")
        if status < 500:
            problem = f"{message or 'it is no HEPnOS server'} ({code or status})"
            return InvalidInputError(source=self.url, problem=problem)
        if is_write and status in {500, 502, 504}:
            return CommitOutcomeUnknownError(engine=_ENGINE, mutations=1)
        return EngineUnavailableError(engine=_ENGINE, problem=f"{self.url} answered {status}")


def _connector(url: str, timeout_seconds: float) -> tuple[Callable[[], socket.socket], str, str]:
    """Return what makes a connection, what the host is called, and what paths begin with. Raises EngineOpenError."""
    if url.startswith("unix:"):
        return partial(unix, url.removeprefix("unix:"), timeout_seconds), "localhost", ""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise EngineOpenError(url=url, problem=str(error)) from error
    if not host or parts.query or parts.fragment or parts.username is not None or not url.isascii() or " " in url:
        raise EngineOpenError(url=url, problem="a server's URL is http://HOST:PORT, without a user or a query")
    is_https = parts.scheme == "https"
    context = ssl.create_default_context() if is_https else None
    connect = partial(tcp, host, port or (443 if is_https else 80), timeout_seconds, context)
    return connect, parts.netloc, parts.path.rstrip("/")


def _error_in(raw: bytes) -> tuple[str, str, dict[str, Any]]:
    """The code, message and detail of an answer in keyplan's form; empty for any other."""
    try:
        error = json.loads(raw)["error"]
        code, message, detail = error["code"], error["message"], error["detail"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return "", "", {}
    if not (isinstance(code, str) and isinstance(message, str) and isinstance(detail, dict)):
        return "", "", {}
    return code, message, detail
