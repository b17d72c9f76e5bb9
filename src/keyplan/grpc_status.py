"""The numbers of gRPC's statuses, and the HTTP statuses that gateways in front of gRPC give for them.

Sources: https://github.com/grpc/grpc/blob/master/doc/statuscodes.md and google/rpc/code.proto, whose comments name the HTTP
statuses.
"""

from enum import IntEnum

__all__ = ["GrpcStatus"]


class GrpcStatus(IntEnum):
    """A status of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16
