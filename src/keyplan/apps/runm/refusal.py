"""Answers that are no success: gRPC's status numbers, the one exception that carries them, and which keyplan error is which."""

from enum import IntEnum
from typing import Final

from keyplan.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptionError,
    EngineError,
    EngineLimitError,
    EngineUnavailableError,
    HistoryCompactedError,
    IndexNotReadyError,
    KeyplanError,
    NotFoundError,
    RecordError,
    UniqueViolationError,
    UnsupportedByEngineError,
)

__all__ = ["RefusedError", "Status", "already_exists", "invalid", "missing", "not_found", "status_of"]


class Status(IntEnum):
    """The status numbers of gRPC that the service gives."""

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


class RefusedError(Exception):
    """A call that is answered with a status and a text, both of which the contract names."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def missing(text: str) -> RefusedError:
    """Something that a call needs was not given, or does not exist: FAILED_PRECONDITION, as in the original."""
    return RefusedError(Status.FAILED_PRECONDITION, text)


def invalid(text: str) -> RefusedError:
    """Something was given that cannot be: INVALID_ARGUMENT. The text quotes no values."""
    return RefusedError(Status.INVALID_ARGUMENT, text)


def not_found(text: str = "object could not be found.") -> RefusedError:
    """What is not there, and what the caller may not see: one answer for both, so that nothing is given away."""
    return RefusedError(Status.NOT_FOUND, text)


def already_exists(text: str = "duplicate record.") -> RefusedError:
    """A name or a UUID is taken."""
    return RefusedError(Status.ALREADY_EXISTS, text)


_STATUSES: Final[tuple[tuple[type[KeyplanError], Status], ...]] = (
    (NotFoundError, Status.NOT_FOUND),
    (UniqueViolationError, Status.ALREADY_EXISTS),
    (AlreadyExistsError, Status.ALREADY_EXISTS),
    (IndexNotReadyError, Status.FAILED_PRECONDITION),
    (ConflictError, Status.ABORTED),
    (RecordError, Status.INVALID_ARGUMENT),
    (EngineLimitError, Status.INVALID_ARGUMENT),
    (HistoryCompactedError, Status.OUT_OF_RANGE),
    (UnsupportedByEngineError, Status.UNIMPLEMENTED),
    (EngineUnavailableError, Status.UNAVAILABLE),
    # Why: gRPC's word for an answer that did not come in time, whether or not the work was done.
    (CommitOutcomeUnknownError, Status.DEADLINE_EXCEEDED),
    (EngineError, Status.UNAVAILABLE),
    (CorruptionError, Status.DATA_LOSS),
)


def status_of(error: KeyplanError) -> Status:
    """Return the status that tells a client what an error of keyplan means for it: the first class in order that fits."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), Status.INTERNAL)
