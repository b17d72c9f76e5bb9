"""The log of a node, which Patroni, PostgreSQL and pgBackRest write: why they gave up, as their last words tell."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["add_failure", "failure_in", "log_bytes"]

_FAILURE: Final = re.compile(
    r"(?:(?:FATAL|PANIC):  ?|CRITICAL: system ID mismatch|ERROR: \[[0-9]{3}\]: )[^\x00-\x1f\x7f-\x9f]+"
)
"""Why no other lines: what a statement said may hold a secret, and who has the cluster may have it log anything."""
_FAILURE_MAX: Final = 300
_LOG_BYTES_MAX: Final = 16_384


def log_bytes(file: Path) -> int:
    """Return how long a log is; 0 where there is none."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def failure_in(file: Path, *, after: int = 0) -> str:
    """Return the last line of a log by which a program said that it cannot go on; empty where none is near the end.

    What lies before `after`, in bytes, is passed over.
    """
    try:
        with file.open("rb") as log:
            log.seek(max(after, log.seek(0, os.SEEK_END) - _LOG_BYTES_MAX))
            told = _FAILURE.findall(log.read(_LOG_BYTES_MAX).decode(errors="replace"))
    except OSError:
        return ""
    return told[-1][:_FAILURE_MAX].rstrip() if told else ""


def add_failure(file: Path, text: str) -> None:
    """Add a line to a log, which `failure_in` then tells. A log that cannot be written to stays as it is."""
    with suppress(OSError), file.open("a") as log:
        log.write(f"FATAL:  {text}\n")
