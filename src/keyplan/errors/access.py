"""The errors of who may do what, and of writing down who did what."""

from typing import Self

from keyplan.errors.tree import KeyplanError
from keyplan.grpc_status import GrpcStatus

__all__ = ["AccessDeniedError", "AuditLogError", "AuditLogIncompleteError", "UnauthorizedError"]


class AccessDeniedError(KeyplanError):
    """No grant allows it, or the one that did holds no more. Nothing was read or written.

    Facts: `who` asked, "" where no name is known; `act`, as "read" or "write"; `where`, as it was asked for. They never tell
    whether something is stored there.
    """

    code = "access-denied"
    summary = "no grant allows this"
    exit_code = 11
    http_status = 403
    grpc_status = GrpcStatus.PERMISSION_DENIED


class UnauthorizedError(KeyplanError):
    """A server was asked without a token, or with one that it does not know. Nothing was read or written. Facts: `problem`."""

    code = "unauthorized"
    summary = "the server does not know who asks"
    exit_code = 11
    http_status = 401
    grpc_status = GrpcStatus.UNAUTHENTICATED

    @classmethod
    def of_client(cls, url: str, *, had_token: bool) -> Self:
        """Return what a client raises that a server has answered so."""
        if had_token:
            return cls(problem=f"{url} does not know the token, or its time is over")
        return cls(problem=f"{url} was sent no token: KEYPLAN_TOKEN or --token-file gives one")


class AuditLogError(KeyplanError):
    """The line that an audit log has before a change cannot be written. Nothing was changed. Facts: `problem`."""

    code = "audit-log"
    summary = "the audit log cannot be written, and nothing was changed"
    exit_code = 7
    http_status = 503
    grpc_status = GrpcStatus.UNAVAILABLE


class AuditLogIncompleteError(AuditLogError):
    """A change was made, and the line that tells its end cannot be written yet: look before another try. Facts: `problem`."""

    code = "audit-log-incomplete"
    summary = "the change was made, and the audit log cannot tell its end yet"
    exit_code = 9
    http_status = 500
    grpc_status = GrpcStatus.UNKNOWN
