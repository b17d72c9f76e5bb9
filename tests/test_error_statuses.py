"""How errors are reported elsewhere: exit codes, HTTP and gRPC statuses, each stated on the class of an error."""

import pytest

from keyplan import errors
from keyplan.errors import KeyplanError
from keyplan.grpc_status import GrpcStatus


@pytest.mark.parametrize(
    ("kind", "exit_code", "http_status", "grpc_status"),
    [
        (errors.KeyplanError, 70, 500, GrpcStatus.INTERNAL),
        (errors.TemplateError, 6, 500, GrpcStatus.INTERNAL),
        (errors.UnknownNameError, 6, 404, GrpcStatus.INTERNAL),
        (errors.InvalidKeyError, 5, 400, GrpcStatus.INVALID_ARGUMENT),
        (errors.NotFoundError, 3, 404, GrpcStatus.NOT_FOUND),
        (errors.CommitConflictError, 4, 409, GrpcStatus.ABORTED),
        (errors.AlreadyExistsError, 4, 409, GrpcStatus.ALREADY_EXISTS),
        (errors.UniqueViolationError, 4, 409, GrpcStatus.ALREADY_EXISTS),
        (errors.IndexNotReadyError, 4, 409, GrpcStatus.FAILED_PRECONDITION),
        (errors.EngineRefusedError, 7, 500, GrpcStatus.UNAVAILABLE),
        (errors.WriterBusyError, 7, 503, GrpcStatus.UNAVAILABLE),
        (errors.CommitOutcomeUnknownError, 9, 504, GrpcStatus.DEADLINE_EXCEEDED),
        (errors.HistoryCompactedError, 7, 410, GrpcStatus.OUT_OF_RANGE),
        (errors.LeaseNotFoundError, 7, 404, GrpcStatus.UNAVAILABLE),
        (errors.EngineLimitError, 7, 413, GrpcStatus.INVALID_ARGUMENT),
        (errors.UnsupportedByEngineError, 7, 501, GrpcStatus.UNIMPLEMENTED),
        (errors.AccessDeniedError, 11, 403, GrpcStatus.PERMISSION_DENIED),
        (errors.UnauthorizedError, 11, 401, GrpcStatus.UNAUTHENTICATED),
        (errors.AuditLogError, 7, 503, GrpcStatus.UNAVAILABLE),
        (errors.AuditLogIncompleteError, 9, 500, GrpcStatus.UNKNOWN),
        (errors.CorruptionError, 8, 500, GrpcStatus.DATA_LOSS),
        (errors.KeySpaceError, 10, 500, GrpcStatus.INTERNAL),
        (errors.InvalidNameError, 5, 400, GrpcStatus.INVALID_ARGUMENT),
        (errors.ForbiddenError, 10, 403, GrpcStatus.INTERNAL),
        (errors.KeySpaceNotFoundError, 3, 404, GrpcStatus.NOT_FOUND),
        (errors.KeySpaceDeletedError, 4, 409, GrpcStatus.ABORTED),
        (errors.ImmutableFieldError, 5, 422, GrpcStatus.INVALID_ARGUMENT),
        (errors.QuotaExceededError, 10, 507, GrpcStatus.INTERNAL),
        (errors.KeyOutOfKeySpaceError, 8, 500, GrpcStatus.DATA_LOSS),
    ],
)
def test_an_error_is_reported_by_its_class(
    kind: type[KeyplanError], exit_code: int, http_status: int, grpc_status: GrpcStatus
) -> None:
    assert (kind.exit_code, kind.http_status, kind.grpc_status) == (exit_code, http_status, grpc_status)
