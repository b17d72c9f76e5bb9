"""How much of a store one request may bring into memory: a small one may ask for everything, many times over."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from keyplan.engine import Entry

__all__ = ["READ_BYTES_MAX", "ReadAllowance"]

READ_BYTES_MAX: Final = 32 << 20
"""Why: an answer is several times as large while it is written as JSON, and 16 are made at once."""

_ENTRY_BYTES: Final = 64
"""What an entry is counted as beside its key and value."""


class ReadAllowance:
    """What one request may still read of what it is shown, or what is compared for it. `refusal` makes what is raised."""

    def __init__(self, refusal: Callable[[int], Exception], *, bytes_max: int = READ_BYTES_MAX) -> None:
        self._refusal = refusal
        self._bytes_max = self._left = bytes_max

    def take(self, entry: Entry) -> Entry:
        """Count an entry that was read, and return it. Raises what `refusal` makes of the bound, once it is passed."""
        self._left -= len(entry.key) + len(entry.value) + _ENTRY_BYTES
        if self._left < 0:
            raise self._refusal(self._bytes_max)
        return entry

    def taken(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield entries, each counted as it is read."""
        return map(self.take, entries)
