"""The seam below the client: bytes to one endpoint and back, and waiting. What is tried again, and where, is the client's.

Why a seam: all that is above it is plain code without threads or event loops. The synchronous transport blocks its thread; the
asynchronous twin runs the same code in greenlets on a transport that gives way to its event loop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from keyplan.engine.etcd.options import EtcdOptions
from keyplan.protobuf import ETCD

__all__ = [
    "AUTHENTICATE",
    "COMPACT",
    "LEASE_GRANT",
    "LEASE_KEEP_ALIVE",
    "LEASE_LEASES",
    "LEASE_REVOKE",
    "LEASE_TIME_TO_LIVE",
    "RANGE",
    "STATUS",
    "TRANSACTION",
    "WATCH",
    "Message",
    "Metadata",
    "Method",
    "Stream",
    "Transport",
    "TransportError",
    "TransportFactory",
    "messages",
]

messages: Final = ETCD.classes
"""The classes of etcd's messages, as attributes."""

Message = Any
"""A protobuf message. Why Any: classes that are made at run time have no static type; this package wraps each use."""

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """A remote procedure: its path, and the classes of its request and its response."""

    path: str
    request: Message
    response: Message


def _method(service: str, name: str) -> Method:
    declared = ETCD.method(service, name)
    return Method(declared.path, getattr(messages, declared.request), getattr(messages, declared.response))


RANGE: Final = _method("KV", "Range")
TRANSACTION: Final = _method("KV", "Txn")
COMPACT: Final = _method("KV", "Compact")
WATCH: Final = _method("Watch", "Watch")
LEASE_GRANT: Final = _method("Lease", "LeaseGrant")
LEASE_REVOKE: Final = _method("Lease", "LeaseRevoke")
# Why a unary call of a streaming procedure: a stream of one request and one response has the same bytes.
LEASE_KEEP_ALIVE: Final = _method("Lease", "LeaseKeepAlive")
LEASE_TIME_TO_LIVE: Final = _method("Lease", "LeaseTimeToLive")
LEASE_LEASES: Final = _method("Lease", "LeaseLeases")
AUTHENTICATE: Final = _method("Auth", "Authenticate")
STATUS: Final = _method("Maintenance", "Status")


class TransportError(Exception):
    """A call failed. `code` is gRPC's name for it, as in UNAVAILABLE; `details` what was said, by whomever.

    With `is_unsent` the request certainly never left this machine.
    """

    def __init__(self, code: str, details: str, *, is_unsent: bool = False) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details
        self.is_unsent = is_unsent


class Stream(Protocol):
    """A bidirectional stream of one method. One thread receives; any may send and close."""

    def send(self, request: Message) -> None:
        """Queue a request. Sending on a stream that ended is harmless: receiving tells."""
        ...

    def receive(self, timeout_seconds: float) -> Message | None:
        """Wait for the next response; None when none came in time. Raises TransportError when the stream has ended."""
        ...

    def close(self) -> None:
        """End the stream and wake whoever receives. Closing twice is harmless."""


class Transport(Protocol):
    """Calls to endpoints, which are `host:port`. Connections are made when first needed, and kept."""

    def call(
        self, endpoint: str, method: Method, request: Message, *, timeout_seconds: float, metadata: Metadata
    ) -> Message:
        """Make a call and return its response. Raises TransportError, with DEADLINE_EXCEEDED when the time is over."""
        ...

    def stream(self, endpoint: str, method: Method, *, metadata: Metadata) -> Stream:
        """Open a stream; whether it could be opened is told by what is received."""
        ...

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""
        ...

    def close(self) -> None:
        """Drop all connections; calls and streams under way end with TransportError. Closing twice is harmless."""


TransportFactory = Callable[[EtcdOptions], Transport]
