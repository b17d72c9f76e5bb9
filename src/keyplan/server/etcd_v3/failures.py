"""What the JSON gateway answers when it cannot: gRPC's codes, etcd's sentences, grpc-gateway's statuses."""

from typing import Any, Final

from keyplan.errors import (
    AccessDeniedError,
    AuditLogError,
    AuditLogIncompleteError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    EngineError,
    EngineLimitError,
    EngineUnavailableError,
    InvalidInputError,
    KeyplanError,
    LeaseNotFoundError,
    QuotaExceededError,
    UnsupportedByEngineError,
)
from keyplan.grpc_status import GrpcStatus
from keyplan.server.etcd_member import NO_SPACE
from keyplan.server.holding import Excess
from keyplan.server.places import Full

__all__ = ["PERMISSION_DENIED", "CallFailure", "failure_of", "too_much_read"]

PERMISSION_DENIED: Final = "etcdserver: permission denied"


_STATUSES: Final = {
    GrpcStatus.INVALID_ARGUMENT: 400,
    GrpcStatus.RESOURCE_EXHAUSTED: 429,
    GrpcStatus.NOT_FOUND: 404,
    GrpcStatus.PERMISSION_DENIED: 403,
    GrpcStatus.RESOURCE_EXHAUSTED: 429,
    GrpcStatus.FAILED_PRECONDITION: 412,
    GrpcStatus.OUT_OF_RANGE: 400,
    GrpcStatus.UNIMPLEMENTED: 501,
    GrpcStatus.INTERNAL: 500,
    GrpcStatus.UNAVAILABLE: 503,
    GrpcStatus.UNAUTHENTICATED: 401,
}


class CallFailure(Exception):  # noqa: N818 # it is an answer, not an error of keyplan
    """A call is answered with this failure. The message is etcd's, because clients compare it.

    `is_last`: the rest of the request was not read, so that its connection is of no more use.
    """

    def __init__(self, code: GrpcStatus, message: str, *, is_last: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_last = is_last

    @property
    def status(self) -> int:
        """The HTTP status."""
        return _STATUSES[self.code]

    @property
    def body(self) -> dict[str, Any]:
        """The answer of a call that is no stream."""
        return {"error": self.message, "message": self.message, "code": int(self.code)}

    @property
    def stream_body(self) -> dict[str, Any]:
        """The last line of a stream."""
        return {"error": {"grpc_code": int(self.code), "http_code": self.status, "message": self.message}}


def too_much_read(bytes_max: int, excess: Excess | None) -> CallFailure:
    """Return the failure of a call that reads more than one may, or than its caller may hold."""
    if excess is not None:
        code = GrpcStatus.RESOURCE_EXHAUSTED if excess.full is Full.OF_ONE else GrpcStatus.UNAVAILABLE
        return CallFailure(code, f"keyplan: {excess.sentence}")
    problem = f"keyplan: the call reads more than {bytes_max >> 20} MiB: ask for less at once, with a limit"
    return CallFailure(GrpcStatus.RESOURCE_EXHAUSTED, problem)


_FAILURES: Final[tuple[tuple[type[KeyplanError], GrpcStatus, str], ...]] = (
    (AuditLogIncompleteError, GrpcStatus.INTERNAL, "keyplan: it was done, and the audit log cannot tell it yet"),
    (AuditLogError, GrpcStatus.UNAVAILABLE, "keyplan: the audit log cannot be written, and nothing was changed"),
    (AccessDeniedError, GrpcStatus.PERMISSION_DENIED, PERMISSION_DENIED),
    (LeaseNotFoundError, GrpcStatus.NOT_FOUND, "etcdserver: requested lease not found"),
    (QuotaExceededError, GrpcStatus.RESOURCE_EXHAUSTED, NO_SPACE),
    (EngineLimitError, GrpcStatus.INVALID_ARGUMENT, "etcdserver: request is too large"),
    # Why the same for both: it is what etcd says when it cannot tell; Patroni asks another member then.
    (CommitOutcomeUnknownError, GrpcStatus.UNAVAILABLE, "etcdserver: request timed out"),
    (EngineUnavailableError, GrpcStatus.UNAVAILABLE, "etcdserver: request timed out"),
    (CommitConflictError, GrpcStatus.UNAVAILABLE, "etcdserver: too many requests"),
    (UnsupportedByEngineError, GrpcStatus.UNIMPLEMENTED, "keyplan: the engine cannot do this"),
    (InvalidInputError, GrpcStatus.INVALID_ARGUMENT, "keyplan: the request is not valid"),
    # Why unavailable: nothing was written, a full disk for one; clients ask another member, or again, and do not give up.
    (EngineError, GrpcStatus.UNAVAILABLE, "keyplan: the engine failed"),
)


def failure_of(error: KeyplanError) -> CallFailure:
    """Return the failure that an error of the engine is answered with."""
    for kind, code, message in _FAILURES:
        if isinstance(error, kind):
            return CallFailure(code, message)
    return CallFailure(GrpcStatus.INTERNAL, f"keyplan: {error.summary}")
