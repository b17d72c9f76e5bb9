"""The server process: gRPC with health and reflection, where it listens, its entry in the registry, and its graceful end."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import Any, Final

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from keyplan.access import AccessFile
from keyplan.apps.runm.authorizer import Authorizer
from keyplan.apps.runm.call_pool import CallPool
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.dispatch import READERS, STATUS_CODES, WORKERS, Dispatcher
from keyplan.apps.runm.figures import Figures
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.refusal_log import Refusals
from keyplan.apps.runm.wire_table import RUNM, messages
from keyplan.errors import InvalidInputError
from keyplan.grpc_status import GrpcStatus
from keyplan.server import ServiceAudit, Token, rpc_tls

__all__ = ["GRACE_SECONDS", "Listening", "RunningServer", "is_local_address", "serving"]

GRACE_SECONDS: Final = 3.0
"""How long calls may take to end once the server was told to stop. Why: a supervisor that waits five seconds kills nothing, and
the registry is told before."""

_HEALTH_NAMES: Final = ("", *map(RUNM.full_name, RUNM.services))

_REQUEST_BYTES_MAX: Final = 4 << 20

_CALLS_MAX: Final = 1_000
"""Calls that are answered or wait for a thread. Why: a request may have four megabytes, and is kept while it waits."""

_DESCRIPTIONS_MAX: Final = 8
"""Streams of reflection at once. Why: each keeps a thread for as long as its client likes."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen, HOST:PORT each (port 0: any), and the certificate and key to do it with; None: in clear.

    With `client_authority`, the file of one or several authorities in PEM, every client has to show a certificate that one of
    them has signed: gRPC for Python cannot only ask for one. `is_shared`: other processes listen there as well.
    """

    addresses: Sequence[str]
    certificate: tuple[Path, Path] | None = None
    client_authority: Path | None = None
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that takes calls. `addresses` have the ports that it got."""

    addresses: Sequence[str]
    server: grpc.Server
    health: health.HealthServicer
    closing: Event

    def tell_health(self, answers: bool) -> None:  # noqa: FBT001  # Why: what it is called with is its only word.
        """Let health say whether calls can be answered: SERVING or NOT_SERVING, of the whole and of each service."""
        status = health_pb2.HealthCheckResponse
        for name in _HEALTH_NAMES:
            self.health.set(name, status.SERVING if answers else status.NOT_SERVING)

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Take no more calls, let those under way end, and return when they have, or when the time is over."""
        self.health.enter_graceful_shutdown()
        self.closing.set()
        self.server.stop(grace_seconds).wait()


@contextmanager
def serving(
    deployment: Deployment,
    listening: Listening,
    tokens: Sequence[Token] = (),
    *,
    access: AccessFile | None = None,
    audit: ServiceAudit | None = None,
    figures: Figures | None = None,
) -> Generator[RunningServer, None, None]:
    """Serve a deployment for the length of a block. Raises InvalidInputError when an address cannot be listened on.

    With an access file, what it says is what each caller may. Without it and without tokens every caller is let in, so that
    only this machine may reach it unless the operator said otherwise. The health service never asks for a token. `audit` notes
    who changes what; the commits are noted if the store's engine does it (`NotingEngine`). `figures` counts the calls.
    """
    closing, authorizer = Event(), Authorizer(deployment, tokens=tokens, access=access)
    with (
        CallPool(WORKERS, "runm") as workers,
        CallPool(READERS, "runm-reader") as readers,
    ):
        dispatcher = Dispatcher(deployment, closing, authorizer, audit, figures, readers)
        server = grpc.server(
            workers,
            handlers=dispatcher.handlers(),
            # Why not for one alone: two servers on one port would share its calls without anybody's knowing.
            options=[
                ("grpc.so_reuseport", int(listening.is_shared)),
                ("grpc.max_receive_message_length", _REQUEST_BYTES_MAX),
            ],
            maximum_concurrent_rpcs=_CALLS_MAX,
        )
        servicer = _with_health(server)
        _with_reflection(server, authorizer, dispatcher.refusals)
        running = RunningServer(_bound(server, listening), server, servicer, closing)
        server.start()
        try:
            yield running
        finally:
            running.stop()
            dispatcher.refusals.tell_rest()


def is_local_address(address: str) -> bool:
    """Whether only this machine can reach an address HOST:PORT or unix:PATH."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bound(server: grpc.Server, listening: Listening) -> list[str]:
    credentials = _credentials(listening)
    bound = []
    for address in listening.addresses:
        try:
            port = (
                server.add_insecure_port(address)
                if credentials is None
                else server.add_secure_port(address, credentials)
            )
        except RuntimeError as error:
            raise InvalidInputError(source="--listen", problem=f"{address} cannot be listened on") from error
        bound.append(address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}")
    return bound


def _credentials(listening: Listening) -> grpc.ServerCredentials | None:
    if listening.certificate is None:
        return None
    found = rpc_tls(*listening.certificate, listening.client_authority, source="--use-tls")
    has_authority = found.authority is not None
    return grpc.ssl_server_credentials(
        [(found.key, found.chain)], root_certificates=found.authority, require_client_auth=has_authority
    )


def _with_health(server: grpc.Server) -> health.HealthServicer:
    servicer = health.HealthServicer()
    for name in _HEALTH_NAMES:
        servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    return servicer


def _with_reflection(server: grpc.Server, authorizer: Authorizer, refusals: Refusals) -> None:
    standard = (health_pb2, reflection_pb2)
    open_pool = DescriptorPool()
    for module in standard:
        # Why: reflection reads one pool, and clients ask it for the services around ours as well.
        messages.pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        open_pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    open_names = [next(iter(m.DESCRIPTOR.services_by_name.values())).full_name for m in standard]
    servicer = _Reflection(
        authorizer,
        refusals,
        reflection.ReflectionServicer([*map(RUNM.full_name, RUNM.services), *open_names], pool=messages.pool),
        reflection.ReflectionServicer(open_names, pool=open_pool),
    )
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)


class _Reflection:
    """Describes all services to whoever may call one of ours, and to others whom it knows what is open to everybody."""

    def __init__(self, authorizer: Authorizer, refusals: Refusals, whole: Any, public: Any) -> None:
        self._authorizer = authorizer
        self._refusals = refusals
        self._whole = whole
        self._public = public
        self._streams = BoundedSemaphore(_DESCRIPTIONS_MAX)

    def ServerReflectionInfo(self, request_iterator: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802  # Why: gRPC's.
        """Answer each question of a stream, as who asks may be told when it comes."""
        try:
            self._authorizer.may_describe(context)
            if not self._streams.acquire(blocking=False):
                raise RefusedError(GrpcStatus.RESOURCE_EXHAUSTED, "too many clients ask for descriptions: wait.")
            try:
                for question in request_iterator:
                    servicer = self._whole if self._authorizer.may_describe(context) else self._public
                    yield from servicer.ServerReflectionInfo(iter((question,)), context)
            finally:
                self._streams.release()
        except RefusedError as error:
            self._refusals.tell(context, "ServerReflection", error.status, error.who, error.text)
            context.abort(STATUS_CODES[error.status], error.text)
