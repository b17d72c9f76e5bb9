"""The logs of the service, on standard error: `keyplan.runm` by the original's levels 0 to 3, and the registry's part of it.

The registry's part has a level and a form of its own, as the original's registry library has.
"""

import logging
from typing import Final

__all__ = ["CALL", "LOGGER", "REGISTRY_LOGGER", "set_up_logging", "set_up_registry_logging"]

LOGGER: Final = logging.getLogger("keyplan.runm")
REGISTRY_LOGGER: Final = logging.getLogger("keyplan.runm.registry")

CALL: Final = (logging.INFO + logging.DEBUG) // 2
"""The level of the line for each call."""

logging.addLevelName(CALL, "CALL")

_LEVELS: Final = (logging.WARNING, logging.INFO, CALL, logging.DEBUG)


def set_up_logging(level: int) -> None:
    """Write warnings at level 0, starts and stops at 1, each call at 2, everything at 3."""
    _set_up(LOGGER, level, "%(asctime)s %(levelname)s %(message)s")


def set_up_registry_logging(level: int, *, has_microseconds: bool, has_file_trace: bool) -> None:
    """Write what the registry says: warnings at level 0, when the service comes and goes from 1, everything at 3."""
    place = "%(filename)s:%(lineno)d " if has_file_trace else ""
    line = f"%(asctime)s %(levelname)s {place}%(message)s"
    _set_up(REGISTRY_LOGGER, level, line, has_microseconds=has_microseconds)


class _Lines(logging.Formatter):
    """Times to the second, or to the microsecond."""

    def __init__(self, line: str, *, has_microseconds: bool) -> None:
        super().__init__(line)
        self._has_microseconds = has_microseconds

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  # Why: logging's.
        seconds = super().formatTime(record, datefmt or "%Y-%m-%d %H:%M:%S")
        return f"{seconds}.{int(record.created % 1 * 1_000_000):06}" if self._has_microseconds else seconds


def _set_up(logger: logging.Logger, level: int, line: str, *, has_microseconds: bool = False) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines(line, has_microseconds=has_microseconds))
    logger.handlers = [handler]
    logger.setLevel(_LEVELS[max(0, min(level, len(_LEVELS) - 1))])
    logger.propagate = False
