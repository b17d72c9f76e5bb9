"""Why the broker does not do what it was asked for: the statuses and words of the Open Service Broker API."""

from typing import Final

from keyplan.errors import InvalidInputError

__all__ = ["ASYNC_REQUIRED", "CONCURRENCY", "MAINTENANCE_CONFLICT", "NoPortsLeftError", "RefusedError"]

ASYNC_REQUIRED: Final = "AsyncRequired"
CONCURRENCY: Final = "ConcurrencyError"
MAINTENANCE_CONFLICT: Final = "MaintenanceInfoConflict"


class RefusedError(Exception):
    """A request is refused, and nothing was changed. `status` is HTTP's, `word` the API's for programs, the text for people."""

    def __init__(self, status: int, description: str, *, word: str = "") -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.word = word


class NoPortsLeftError(InvalidInputError):
    """Every port of the range is allocated. Facts: `source`, `problem`."""
