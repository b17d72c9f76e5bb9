"""Writes that no single commit takes, in several: as many at a time as the engine allows."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from keyplan.errors import EngineLimitError

__all__ = ["Steps", "is_too_large", "no_report"]

UNITS_FIRST: Final = 1_024
"""Why: halved until the engine takes it: three refusals, which cost nothing, come to etcd's 128 operations."""

W = TypeVar("W")


def is_too_large(error: EngineLimitError) -> bool:
    """Tell whether less in one commit would do, as against a key or value that is too long by itself."""
    return error.facts.get("limit") in {"commit_operations_max", "commit_bytes_max"}


def no_report(_done: int, _total: int) -> None:
    """Report to nobody."""


class Steps(Generic[W]):
    """Carries writes out in order, as many at a time as the engine takes; what belongs to one unit is one commit."""

    def __init__(
        self,
        units: list[tuple[W, ...]],
        write: Callable[[tuple[W, ...]], object],
        report: Callable[[int, int], None] = no_report,
    ) -> None:
        self._units = units
        self._total = sum(map(len, units))
        self._write = write
        self._report = report
        self.commits = 0

    def carry_out(self) -> None:
        """Write everything. Raises what a commit raises; what was committed before stays."""
        begun, done, size = 0, 0, UNITS_FIRST
        while begun < len(self._units):
            units = self._units[begun : begun + size]
            step = tuple(change for unit in units for change in unit)
            try:
                self._write(step)
            except EngineLimitError as error:
                if len(units) == 1 or not is_too_large(error):
                    raise
                size = len(units) // 2
                continue
            self.commits += 1
            begun += len(units)
            done += len(step)
            self._report(done, self._total)
