"""Exit codes, by error class: one table, for people and scripts alike; docs/reference/cli.md prints it."""

from typing import Final

from keyplan.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptionError,
    EngineError,
    KeyplanError,
    KeySpaceError,
    LayoutError,
    NotFoundError,
    RecordError,
)

__all__ = [
    "EXIT_CODES",
    "FINDINGS",
    "INTERRUPTED",
    "NOT_INSTALLED",
    "OTHER",
    "OUTPUT_FAILED",
    "TERMINATED",
    "USAGE",
    "exit_code_of",
]

FINDINGS: Final = 1
"""The command ran, and found what it was asked to look for: lint findings, a stale map."""

USAGE: Final = 2
"""The command line cannot be read."""

NOT_INSTALLED: Final = 69
"""The packages that the command line needs are not there."""

OTHER: Final = 70
"""An error without a code of its own; a test sees to it that there is none."""

OUTPUT_FAILED: Final = 74
"""What was to be printed could not be: a full disk behind `>`."""

INTERRUPTED: Final = 130
"""Ended by Ctrl-C, as shells count it."""

TERMINATED: Final = 143
"""Ended by SIGTERM, as shells count it."""

EXIT_CODES: Final[dict[type[KeyplanError], int]] = {
    NotFoundError: 3,
    ConflictError: 4,
    RecordError: 5,
    LayoutError: 6,
    CommitOutcomeUnknownError: 9,
    EngineError: 7,
    CorruptionError: 8,
    KeySpaceError: 10,
}
"""The code of the first class in this order that an error belongs to."""


def exit_code_of(error: KeyplanError) -> int:
    """Return the exit code for an error."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), OTHER)
