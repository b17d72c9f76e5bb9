"""What the JSON gateway answers when it cannot: gRPC's codes, etcd's sentences, grpc-gateway's statuses."""

from enum import IntEnum
from typing import Any, Final

from keyplan.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    EngineError,
    EngineLimitError,
    EngineUnavailableError,
    InvalidInputError,
    KeyplanError,
    LeaseNotFoundError,
    UnsupportedByEngineError,
)

__all__ = ["CallFailure", "Code", "failure_of"]


class Code(IntEnum):
    """gRPC's codes."""

    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    FAILED_PRECONDITION = 9
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


_STATUSES: Final = {
    Code.INVALID_ARGUMENT: 400,
    Code.NOT_FOUND: 404,
    Code.PERMISSION_DENIED: 403,
    Code.FAILED_PRECONDITION: 412,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
}


class CallFailure(Exception):  # noqa: N818 # it is an answer, not an error of keyplan
    """A call is answered with this failure. The message is etcd's, because clients compare it."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

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


_FAILURES: Final[tuple[tuple[type[KeyplanError], Code, str], ...]] = (
    (LeaseNotFoundError, Code.NOT_FOUND, "etcdserver: requested lease not found"),
    (EngineLimitError, Code.INVALID_ARGUMENT, "etcdserver: request is too large"),
    # Why the same for both: it is what etcd says when it cannot tell; Patroni asks another member then.
    (CommitOutcomeUnknownError, Code.UNAVAILABLE, "etcdserver: request timed out"),
    (EngineUnavailableError, Code.UNAVAILABLE, "etcdserver: request timed out"),
    (CommitConflictError, Code.UNAVAILABLE, "etcdserver: too many requests"),
    (UnsupportedByEngineError, Code.UNIMPLEMENTED, "keyplan: the engine cannot do this"),
    (InvalidInputError, Code.INVALID_ARGUMENT, "keyplan: the request is not valid"),
    # Why unavailable: nothing was written, a full disk for one; clients ask another member, or again, and do not give up.
    (EngineError, Code.UNAVAILABLE, "keyplan: the engine failed"),
)


def failure_of(error: KeyplanError) -> CallFailure:
    """Return the failure that an error of the engine is answered with."""
    for kind, code, message in _FAILURES:
        if isinstance(error, kind):
            return CallFailure(code, message)
    return CallFailure(Code.INTERNAL, f"keyplan: {error.summary}")
