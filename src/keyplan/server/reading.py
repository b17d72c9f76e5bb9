"""How much of a store one request may bring into memory: a small one may ask for everything, many times over."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from keyplan.engine import Entry
from keyplan.server.holding import FREE_BYTES, Excess, holding_of_request

__all__ = ["READ_BYTES_MAX", "ReadAllowance", "ReadRefusal"]

READ_BYTES_MAX: Final = 32 << 20
"""Why: an answer is several times as large while it is written as JSON, and 16 are made at once."""

_ENTRY_BYTES: Final = 64
"""What an entry is counted as beside its key and value."""


_STEP_BYTES: Final = 1 << 20
"""How much more is asked of what the caller may hold, at a time. Why: to ask for each entry takes longer than to read it."""

ReadRefusal = Callable[[int, Excess | None], Exception]
"""What is raised where no more may be read: of how many bytes a request may read, or of why its caller may hold no more."""


class ReadAllowance:
    """What one request may still read of what it is shown, or what is compared for it. `refusal` makes what is raised.

    What is read counts as held by the request's caller, too, where there is one.
    """

    def __init__(self, refusal: ReadRefusal, *, bytes_max: int = READ_BYTES_MAX) -> None:
        self._refusal = refusal
        self._bytes_max = bytes_max
        self._granted = self._left = min(FREE_BYTES, bytes_max)
        self._holding = holding_of_request()

    def take(self, entry: Entry) -> Entry:
        """Count an entry that was read, and return it. Raises what `refusal` makes, once more was read than may be."""
        self._left -= len(entry.key) + len(entry.value) + _ENTRY_BYTES
        if self._left < 0:
            self._take_more()
        return entry

    def taken(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield entries, each counted as it is read."""
        return map(self.take, entries)

    def take_bytes(self, number: int) -> None:
        """Count so many bytes that were read. Raises as `take` does."""
        self._left -= number
        if self._left < 0:
            self._take_more()

    def _take_more(self) -> None:
        more = max(_STEP_BYTES, -self._left)
        if self._granted - self._left > self._bytes_max:
            raise self._refusal(self._bytes_max, None)
        more = min(more, self._bytes_max - self._granted)
        excess = None if self._holding is None else self._holding.take(more)
        if excess is not None:
            raise self._refusal(self._bytes_max, excess)
        self._granted += more
        self._left += more
