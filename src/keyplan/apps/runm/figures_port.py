"""Where Prometheus asks for the figures: HTTP on a port of its own, for whoever may ask a keyplan server for its figures.

With an access file that is a principal with the same grant, with tokens whoever has one, and without either anybody.
"""

import ssl
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from socket import AI_PASSIVE, SOCK_STREAM, getaddrinfo
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore, Thread
from typing import Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

from keyplan.access import OnOperation
from keyplan.apps.runm.callers import Callers
from keyplan.apps.runm.logs import LOGGER
from keyplan.apps.runm.refusal import RefusedError, denied
from keyplan.apps.runm.refusal_log import Refusals
from keyplan.errors import InvalidInputError
from keyplan.grpc_status import GrpcStatus
from keyplan.server import SERVER_NEEDS, RpcAsking

__all__ = ["figures_served"]

_OPERATION: Final = "getMetrics"
_NEED: Final = SERVER_NEEDS[_OPERATION]

_UNKNOWN: Final = GrpcStatus.UNAUTHENTICATED
_ANSWERS: Final = {
    _UNKNOWN: "401 Unauthorized",
    GrpcStatus.PERMISSION_DENIED: "403 Forbidden",
    GrpcStatus.RESOURCE_EXHAUSTED: "429 Too Many Requests",
}
_TEXT: Final = ("Content-Type", "text/plain; charset=utf-8")
_CHALLENGE: Final = ("WWW-Authenticate", 'Bearer realm="keyplan"')

_CONNECTIONS_MAX: Final = 16
"""Why: one Prometheus has one connection; each takes a thread."""

_SILENCE_SECONDS_MAX: Final = 10.0
"""How long a client may say nothing. Why: Prometheus gives up after as long."""

_LOOK_SECONDS: Final = 0.05
"""How long the end of the port may take to be noticed."""


@contextmanager
def figures_served(
    registry: CollectorRegistry,
    address: str,
    callers: Callers | None = None,
    certificate: tuple[Path, Path] | None = None,
) -> Generator[str, None, None]:
    """Give the figures over HTTP at an address HOST:PORT for the length of a block; port 0 takes any. Gives the address.

    `callers` are who is known; None: anybody may ask. With a certificate and its key it is HTTPS. Raises InvalidInputError when
    the address cannot be listened on, and for a certificate that cannot be used.
    """
    host, _, port = address.rpartition(":")
    refusals = Refusals()
    application = _guarded(make_wsgi_app(registry), callers or Callers(), refusals)
    context = None if certificate is None else _context(*certificate)
    try:
        server = _Server(host.strip("[]"), int(port), application, context)
    except (OSError, OverflowError, ValueError) as error:
        raise InvalidInputError(source="--metrics-listen", problem=f"{address} cannot be listened on") from error
    thread = Thread(target=server.serve_forever, args=(_LOOK_SECONDS,), name="runm-figures", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        refusals.tell_rest()


def _context(chain: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Why with a password: a key that needs one would have the service wait for a terminal.
        context.load_cert_chain(chain, key, password=lambda: b"")
    except OSError as error:
        problem = f"{chain} and {key} are no certificate and its key: {error.strerror or error}"
        raise InvalidInputError(source="--use-tls", problem=problem) from error
    return context


# ---- who may ask -----------------------------------------------------------------------------------------------------------


class _HttpAsking(NamedTuple):
    """A request of HTTP, as far as it says who makes it: by a token alone."""

    environ: WSGIEnvironment

    def invocation_metadata(self) -> Iterable[tuple[str, str]]:
        given = self.environ.get("HTTP_AUTHORIZATION")
        return () if given is None else (("authorization", given),)

    def auth_context(self) -> Mapping[str, Any]:
        return {}

    def peer(self) -> str:
        return f"ip:{self.environ['REMOTE_ADDR']}:0"


def _guarded(application: WSGIApplication, callers: Callers, refusals: Refusals) -> WSGIApplication:
    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        asking = _HttpAsking(environ)
        try:
            _require_reader(callers, asking)
        except RefusedError as error:
            refusals.tell(asking, _OPERATION, error.status, error.who, error.text)
            start(_ANSWERS[error.status], [_TEXT, _CHALLENGE] if error.status is _UNKNOWN else [_TEXT])
            return [f"{error.text}\n".encode()]
        return application(environ, start)

    return answer


def _require_reader(callers: Callers, asking: RpcAsking) -> None:
    """Return if who asks may have the figures. Raises RefusedError."""
    if callers.are_anybody:
        return
    if callers.access is None:
        callers.holder(asking)
        return
    policy = callers.access.policy
    who = callers.principal(policy, asking).name
    decision = policy.decide(who, _NEED.act, OnOperation(_OPERATION))
    if not decision.is_allowed:
        raise denied(f"{decision.reason}.", who=who)


# ---- the port --------------------------------------------------------------------------------------------------------------


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_SECONDS_MAX

    def log_message(self, format: str, *words: object) -> None:  # noqa: A002  # Why: the library's name.
        """Write nothing: what is refused has its line."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, which stays for one request. Of more than there are places for, none is listened to."""

    daemon_threads = True

    def __init__(self, host: str, port: int, application: WSGIApplication, context: ssl.SSLContext | None) -> None:
        self.address_family, _, _, _, place = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)[0]
        self._places = BoundedSemaphore(_CONNECTIONS_MAX)
        super().__init__((str(place[0]), port), _Handler)
        self.set_app(application)
        if context is not None:
            # Why no handshake on accepting: one thread accepts all, and would wait for a client that says nothing.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be started
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Why: a client that is gone, or speaks no TLS, is no failure of ours.
        if not isinstance(sys.exception(), OSError):
            LOGGER.exception("a request for figures failed")
