"""How often a node's Patroni has ended by itself, one end after the other: kept beside it, so that the next agent counts on.

Why: what makes a cluster from a backup or an upgrade is given up by this count, after tries that may take hours each.
"""

from pathlib import Path
from typing import Final

from msgspec import Struct

from keyplan.codec import JsonForm
from keyplan.errors import CorruptionError
from keyplan.files import write_whole

__all__ = ["NodeFailures"]


class _Failures(Struct, frozen=True, kw_only=True):
    count: int = 0
    reason: str = ""


_FORM: Final[JsonForm[_Failures]] = JsonForm(_Failures)
_NONE: Final = _Failures()


class NodeFailures:
    """The failures of one node, in a file of their own that is there while there are some."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found = _read(file)

    @property
    def count(self) -> int:
        """How many there are."""
        return self._found.count

    @property
    def reason(self) -> str:
        """What the node's log said of the last; empty where there is none."""
        return self._found.reason

    def add(self, reason: str) -> None:
        """Count one more. Raises InvalidInputError where it is not written down; this agent counts it all the same."""
        self._found = _Failures(count=self.count + 1, reason=reason)
        write_whole(self._file, _FORM.encode(self._found))

    def forget(self) -> None:
        """Begin to count anew. Raises OSError where the next agent would not; this one does."""
        if self.count:
            self._found = _NONE
            self._file.unlink(missing_ok=True)


def _read(file: Path) -> _Failures:
    try:
        return _FORM.decode(file.read_bytes())
    except (OSError, CorruptionError):
        # Why none: without it a node is tried more often, and that is all.
        return _NONE
