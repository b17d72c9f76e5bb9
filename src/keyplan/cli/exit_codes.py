"""Exit codes that no error of keyplan has; those stand on their classes. docs/reference/cli.md prints both."""

from typing import Final

__all__ = [
    "FINDINGS",
    "INTERRUPTED",
    "NOT_INSTALLED",
    "OUTPUT_FAILED",
    "TERMINATED",
    "USAGE",
]

FINDINGS: Final = 1
"""The command ran, and found what it was asked to look for: lint findings, a stale map."""

USAGE: Final = 2
"""The command line cannot be read."""

NOT_INSTALLED: Final = 69
"""The packages that the command line needs are not there."""

OUTPUT_FAILED: Final = 74
"""What was to be printed could not be: a full disk behind `>`."""

INTERRUPTED: Final = 130
"""Ended by Ctrl-C, as shells count it."""

TERMINATED: Final = 143
"""Ended by SIGTERM, as shells count it."""
