"""Requests to a HEPnOS server over HTTP, on a connection for each thread."""

import socket
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock, local
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit
from weakref import WeakSet

from keyplan.apps.hepnos.frames import OPERATIONS, FrameKind, single_value
from keyplan.apps.hepnos.keys import Kind
from keyplan.apps.hepnos.operations import MORE_HEADER
from keyplan.apps.hepnos.packed import PACKED
from keyplan.apps.hepnos.remote_transport import ENGINE_NAME, Answer, Reader, failure_of
from keyplan.apps.hepnos.remote_wire import Answer as WireAnswer
from keyplan.apps.hepnos.remote_wire import Wire, tcp, unix
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import (
    CommitOutcomeUnknownError,
    EngineOpenError,
    EngineUnavailableError,
    InvalidInputError,
)
from keyplan.operations import Operation, Place

__all__ = ["Calls", "ServerPlace", "authorization", "is_server_url"]

_GET: Final = OPERATIONS[FrameKind.GET]
_SCHEMES: Final = ("http://", "https://", "unix:")
_IDLE_SECONDS_MAX: Final = 2.0
"""Why: servers close idle connections after five; what a write sent on a closing one did is not known."""

_NEVER_SENT: Final = (ConnectionRefusedError, socket.gaierror, FileNotFoundError, ssl.SSLCertVerificationError)


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
        headers = {"Content-Type": PACKED, **authorization(token)}
        place = ServerPlace.of(url)
        self._base = place.base
        self._new_wire = partial(Wire, place.connector(timeout_seconds), place.named, headers)
        self._kept = _Kept()
        self._made: WeakSet[Wire] = WeakSet()
        self._lock = Lock()
        self._is_closed = False

    def ask(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> Answer:
        """Send a request; see `Transport`."""
        if operation.body is None:
            path, body = operation.path, b""
        else:
            is_placed = "kind" in arguments
            place = {"kind": arguments["kind"].value, "number": arguments["number"]} if is_placed else {}
            words = [
                f"&{one.word}={one.form.write(arguments[one.name])}"
                for one in operation.at(Place.QUERY)
                if one.form is not None and one.name in arguments
            ]
            named = ["?ring=", ring, *words] if is_placed else []
            path = "".join([operation.path.format_map(place), *named])
            body = operation.body.write(arguments)
        answer = self._asked(operation.method, path, body, is_write=operation.changes)
        return Answer(answer.body, answer.headers.get(MORE_HEADER) == "1")

    def ask_in_parts(self, operation: Operation, arguments: Mapping[str, Any], ring: str) -> None:
        """Return None: an answer of HTTP is one whole."""

    def reader(self, kind: Kind, number: int, ring: str) -> Reader:
        """Return what reads one value of a database; see `Transport`."""

        def value(key: bytes) -> bytes | None:
            return single_value(self.ask(_GET, {"kind": kind, "number": number, "keys": (key,)}, ring).body)

        return value

    def _asked(self, method: str, path: str, body: bytes, *, is_write: bool) -> WireAnswer:
        wire, is_fresh = self._wire()
        try:
            answer = wire.ask(method, self._base + path, body)
        except OSError as error:
            if is_write and not isinstance(error, _NEVER_SENT):
                raise CommitOutcomeUnknownError(engine=ENGINE_NAME, mutations=1) from error
            if is_fresh or self._is_closed:
                raise EngineUnavailableError(engine=ENGINE_NAME, problem=f"{self.url}: {error}") from error
            self._kept.wire = None
            return self._asked(method, path, body, is_write=is_write)
        self._kept.used_at = SYSTEM_CLOCK.monotonic()
        if answer.status >= 300:
            raise failure_of(self.url, answer.status, answer.body, had_token=self._has_token, is_write=is_write)
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
                raise EngineUnavailableError(engine=ENGINE_NAME, problem="the store was closed")
            self._made.add(wire)
        return wire, True


def authorization(token: str | None) -> dict[str, str]:
    """Return the header that a token is sent with. Raises InvalidInputError for one that a header cannot carry."""
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()):
        # Why: the token is not shown.
        raise InvalidInputError(source="token", problem="a token is printable ASCII")
    return {"Authorization": f"Bearer {token}"}


class ServerPlace(NamedTuple):
    """Where a server is: a host and a port, with TLS or without, or a unix socket; and what its paths begin with."""

    host: str
    port: int
    path: str
    is_tls: bool
    named: str
    base: str

    @classmethod
    def of(cls, url: str) -> Self:
        """Read a server's URL. Raises EngineOpenError."""
        if url.startswith("unix:"):
            return cls("", 0, url.removeprefix("unix:"), is_tls=False, named="localhost", base="")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise EngineOpenError(url=url, problem=str(error)) from error
        if not host or parts.query or parts.fragment or parts.username is not None or not url.isascii() or " " in url:
            raise EngineOpenError(url=url, problem="a server's URL is http://HOST:PORT, without a user or a query")
        is_tls = parts.scheme == "https"
        base = parts.path.rstrip("/")
        return cls(host, port or (443 if is_tls else 80), "", is_tls=is_tls, named=parts.netloc, base=base)

    @property
    def is_unix(self) -> bool:
        """Whether it is a unix socket."""
        return not self.host

    def connector(self, timeout_seconds: float) -> Callable[[], socket.socket]:
        """Return what makes a connection. That raises OSError."""
        if self.is_unix:
            return partial(unix, self.path, timeout_seconds)
        context = ssl.create_default_context() if self.is_tls else None
        return partial(tcp, self.host, self.port, timeout_seconds, context)
