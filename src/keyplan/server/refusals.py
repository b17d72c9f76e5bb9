"""A line in the log for each request that is refused: who, from where, what, and why; bounded, so that a flood fills no disk.

Each address has some lines for each reason, and gets one back every few seconds; all together have some more. What is left
without a line is counted. The count is in the next line of its kind, or, when none comes, in a line about all of them.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from keyplan.engine import SYSTEM_CLOCK
from keyplan.server.allowances import Allowances
from keyplan.server.guessing import place_of
from keyplan.server.logs import LOGGER

__all__ = ["LINES_MAX", "REFUSED", "UNTOLD", "RefusalLog"]

REFUSED: Final = "request refused"
"""What such a line says; the facts stand beside it."""

UNTOLD: Final = "refused requests have no line"
"""What the line about all others says."""

LINES_MAX: Final = 20
"""Lines that an address has at once, for each reason. Why: enough to see what it tries."""

_SECONDS_EACH: Final = 3.0
_ALL_MAX: Final = 1_000
_ALL_SECONDS_EACH: Final = 0.1
"""Why: ten lines a second are 300 MB a day, however many addresses a flood comes from."""

_ADDRESSES_MAX: Final = 10_000
_REST_SECONDS: Final = 60.0
"""How long a count may wait for the next line of its kind."""


class RefusalLog:
    """Lines for refused requests. `write` takes what a line says, and its facts. For one event loop, or under a lock."""

    def __init__(
        self,
        write: Callable[[str, Mapping[str, Any]], object] | None = None,
        *,
        monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic,
    ) -> None:
        self._write = write or _write
        self._monotonic = monotonic
        self._left: Allowances[tuple[str, str]] = Allowances(
            LINES_MAX, _SECONDS_EACH, keys_max=_ADDRESSES_MAX, monotonic=monotonic
        )
        self._left_of_all: Allowances[None] = Allowances(_ALL_MAX, _ALL_SECONDS_EACH, keys_max=1, monotonic=monotonic)
        self._untold: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._forgotten = 0
        self._rest_at = 0.0

    def tell(self, address: str, reason: str, facts: Mapping[str, Any]) -> None:
        """Write a line for a refused request, or count it."""
        kind = (place_of(address), reason)
        self.tell_rest_if_due()
        if self._left.take_if_left(kind) and self._left_of_all.take_if_left(None):
            untold = self._untold.pop(kind, 0)
            self._write(REFUSED, {**facts, "untold": untold} if untold else facts)
            return
        if not self._untold:
            self._rest_at = self._monotonic() + _REST_SECONDS
        self._untold[kind] = self._untold.get(kind, 0) + 1
        if len(self._untold) > _ADDRESSES_MAX:
            self._forgotten += self._untold.popitem(last=False)[1]

    def tell_rest_if_due(self) -> None:
        """Write what was counted and told in no line, when that has waited long enough."""
        if self._untold and self._monotonic() >= self._rest_at:
            self.tell_rest()

    def tell_rest(self) -> None:
        """Write what was counted and told in no line, if there is any."""
        if not self._untold:
            return
        untold, self._untold = self._untold, OrderedDict()
        forgotten, self._forgotten = self._forgotten, 0
        addresses = len({place for place, _ in untold})
        self._write(UNTOLD, {"requests": sum(untold.values()) + forgotten, "addresses": addresses})


def _write(message: str, facts: Mapping[str, Any]) -> None:
    LOGGER.warning(message, extra={"facts": facts})
