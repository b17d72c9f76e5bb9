"""A server as a process: listens, opens the engine once, serves until it is told to stop, and leaves nothing behind."""

import asyncio
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.server import ServerState

from keyplan.audit_log import NO_ROTATION, AuditLog, Rotation
from keyplan.codec import SecretCipher
from keyplan.engine import SYSTEM_CLOCK, open_engine
from keyplan.errors import InvalidInputError
from keyplan.server.access import Access
from keyplan.server.application import Application, service_builders
from keyplan.server.auditing import log_notice
from keyplan.server.bounds import EdgeBounds
from keyplan.server.closing import Closing
from keyplan.server.connections import Connections
from keyplan.server.handshake import HandshakeProtocol
from keyplan.server.listen import LISTEN_DEFAULT, UNIX_MODE, UNIX_MODE_OF_POLICY, Listener, listener
from keyplan.server.logs import LOGGER
from keyplan.server.protocol import BoundedProtocol
from keyplan.server.rpc import RpcTerms
from keyplan.store import LayoutCheck

__all__ = ["GRACE_SECONDS_DEFAULT", "ServerOptions", "serve", "uvicorn_config"]

GRACE_SECONDS_DEFAULT: Final = 15.0
"""Why: service managers kill after 30 to 90 seconds, and a commit is answered long before."""

_FAR_SECONDS: Final = 86_400

_SWITCH_SECONDS: Final = 0.00005
"""Why: at Python's 5 ms, one computing thread leaves committing threads 170 commits/s of 2,500 (measured)."""


@dataclass(frozen=True)
class ServerOptions:
    """What a server serves, where, and to whom. `access` may be without tokens: then it listens on this machine alone.

    `audit_log` is the file in which each change stands, on the disk before it is answered with `audit_syncs`; see `Rotation`.
    `secrets` are the keys of sealed secrets, for the services that keep such records; `layout_check` is for their stores.
    Clients may show a TLS certificate if `tls_client_authority` has signed it: the file of one or several authorities, in PEM.
    """

    store_url: str
    listen: Sequence[str] = (LISTEN_DEFAULT,)
    services: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_authority: Path | None = None
    grace_seconds: float = GRACE_SECONDS_DEFAULT
    bounds: EdgeBounds = field(default_factory=EdgeBounds)
    has_to_exist: bool = False
    audit_log: Path | None = None
    audit_syncs: bool = True
    audit_rotation: Rotation = NO_ROTATION
    secrets: SecretCipher | None = field(default=None, repr=False)
    layout_check: LayoutCheck = "warn"


def serve(options: ServerOptions, *, on_listening: Callable[[Sequence[str]], object]) -> None:
    """Serve until SIGTERM or SIGINT; then finish the requests that are there, end watches, and close the engine.

    `on_listening` is called with the addresses, as URLs, once requests are answered there. Raises InvalidInputError for an
    address that cannot be bound, or that others could reach while no token is configured; EngineOpenError; and what the
    services raise when they are built and started.
    """
    with ExitStack() as stack:
        listeners = [stack.enter_context(_bound(text, options)) for text in options.listen]
        # Why before the store: a server that cannot note changes is not to make any.
        log = _audit_log(options)
        if log is not None:
            stack.enter_context(log)
        engine = stack.enter_context(open_engine(options.store_url, create=not options.has_to_exist))
        names = frozenset(one.host for one in listeners if one.host)
        application = Application.build(
            engine,
            service_builders(options.services),
            access=replace(options.access, host_names=options.access.host_names | names),
            settings=options.settings,
            bounds=options.bounds,
            audit_log=log,
            secrets=options.secrets,
            layout_check=options.layout_check,
        )
        options = replace(options, bounds=options.bounds.shared_by(1 + application.rpc_listeners))
        config = uvicorn_config(application, options)
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                serving = _run(application, options, config, listeners, on_listening)
                runner.run(serving if log is None else _reopening(log, serving))
        finally:
            sys.setswitchinterval(before)


async def _reopening(log: AuditLog, serving: Coroutine[Any, Any, None]) -> None:
    """Serve; SIGHUP has the log go on in the file that has its name by then."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, log.reopen)
    try:
        await serving
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _audit_log(options: ServerOptions) -> AuditLog | None:
    if options.audit_log is None:
        return None
    return AuditLog(
        options.audit_log,
        wall=SYSTEM_CLOCK.wall,
        syncs=options.audit_syncs,
        rotation=options.audit_rotation,
        on_notice=log_notice,
    )


class _BoundListener:
    """A listener for the length of a block."""

    def __init__(self, bound: Listener) -> None:
        self._bound = bound

    def __enter__(self) -> Listener:
        return self._bound

    def __exit__(self, *_error: object) -> None:
        self._bound.close()


def _bound(text: str, options: ServerOptions) -> _BoundListener:
    scheme = "https" if options.tls_certificate else "http"
    mode = UNIX_MODE if options.access.policy is None else UNIX_MODE_OF_POLICY
    return _BoundListener(listener(text, scheme=scheme, allow_remote=options.access.has_callers, unix_mode=mode))


def uvicorn_config(application: Application, options: ServerOptions) -> uvicorn.Config:
    """Return how uvicorn is to serve an application. Raises InvalidInputError for certificates that cannot be read."""
    if options.tls_client_authority is not None:
        _check_authority(options.tls_client_authority)
    connections = Connections(options.bounds, options.access.proxies, application.refusals)
    config = uvicorn.Config(
        application.asgi,
        # Why ignored: uvicorn calls it as it calls a class.
        http=partial(BoundedProtocol, connections=connections),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Why: a header says who the client was, and loopback is trusted here.
        proxy_headers=False,
        # Why far away: this connection's own timers close it.
        timeout_keep_alive=_FAR_SECONDS,
        timeout_graceful_shutdown=max(1, round(options.grace_seconds)),
        ssl_certfile=options.tls_certificate,
        ssl_keyfile=options.tls_key,
        # Why no need of one: callers may be known by tokens instead, and /health is for everybody.
        ssl_cert_reqs=ssl.CERT_OPTIONAL if options.tls_client_authority else ssl.CERT_NONE,
        ssl_ca_certs=options.tls_client_authority,
    )
    try:
        config.load()
    except OSError as error:
        problem = f"the certificate or its key cannot be read: {error.strerror or error}"
        raise InvalidInputError(source=str(options.tls_certificate), problem=problem) from error
    if config.ssl is not None:
        # Why not uvicorn's way, which is asyncio's: see HandshakeProtocol.
        with_handshake = partial(_with_handshake, config.http_protocol_class, config.ssl, connections)
        config.http_protocol_class = with_handshake  # type: ignore[assignment] # uvicorn calls it as it calls a class
        config.ssl = None
    return config


def _with_handshake(
    make_protocol: Callable[..., asyncio.Protocol],
    context: ssl.SSLContext,
    connections: Connections,
    *,
    server_state: ServerState,
    **named: Any,
) -> HandshakeProtocol:
    return HandshakeProtocol(
        partial(make_protocol, server_state=server_state, **named),
        context=context,
        connections=connections,
        open_protocols=server_state.connections,
    )


def _check_authority(path: Path) -> None:
    """Raise InvalidInputError for a file that is none of authorities. Why apart: uvicorn's error does not say which file."""
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        problem = f"the authorities of clients cannot be read: {error.strerror or error}"
        raise InvalidInputError(source=str(path), problem=problem) from error


def _say_who_may_ask(application: Application, access: Access) -> None:
    """Say in the log what is open to whom."""
    whole = [service.name for service in application.services if not service.is_confined]
    LOGGER.info("who may ask", extra={"facts": {**access.described(), "whole_store_by": whole}})


async def _run(
    application: Application,
    options: ServerOptions,
    config: uvicorn.Config,
    listeners: Sequence[Listener],
    on_listening: Callable[[Sequence[str]], object],
) -> None:
    addresses = [one.address for one in listeners]

    def started() -> None:
        LOGGER.info("listening", extra={"facts": {"addresses": addresses}})
        on_listening(addresses)

    _say_who_may_ask(application, options.access)
    async with application.running(), application.listening_for_rpcs(_rpc_terms(application, options)) as spoken:
        addresses += spoken
        server = _Server(config, application.closing, started)
        await server.serve(sockets=[one.socket for one in listeners])
    LOGGER.info("stopped", extra={"facts": {"signal": server.signal_name}})


def _rpc_terms(application: Application, options: ServerOptions) -> RpcTerms:
    return RpcTerms(
        Connections(options.bounds, options.access.proxies, application.refusals),
        application.closing,
        allow_remote=options.access.has_callers,
        grace_seconds=options.grace_seconds,
        tls_certificate=options.tls_certificate,
        tls_key=options.tls_key,
        tls_client_authority=options.tls_client_authority,
    )


class _Server(uvicorn.Server):
    """Uvicorn's server, which tells when it listens and when it begins to stop, and ends as a success then."""

    def __init__(self, config: uvicorn.Config, closing: Closing, started: Callable[[], object]) -> None:
        super().__init__(config)
        self._closing = closing
        self._tell_started = started
        self.signal_name = ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets=sockets)
        self._tell_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; at a second SIGINT, wait for nobody."""
        super().handle_exit(sig, frame)
        # Why: uvicorn would raise the signal again at the end, and a server that did what it was told has not failed.
        self._captured_signals.clear()
        self.signal_name = signal.Signals(sig).name
        self._closing.set_by_signal()
