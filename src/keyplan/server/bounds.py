"""What one server takes: how large, how slow and how many. The defaults are those of docs/guide/serving.md."""

import resource
from dataclasses import dataclass, replace
from typing import Final

from keyplan.errors import InvalidInputError

__all__ = ["BODY_BYTES_MAX", "BODY_BYTES_PER_SECOND_MIN", "HEADER_BYTES_MAX", "EdgeBounds"]

BODY_BYTES_MAX: Final = 1 << 20
"""Why: no record of the registry is near it; a route that takes more says so with `allow_body`."""

HEADER_BYTES_MAX: Final = 32 << 10
"""Why: four times what common servers take; a browser's cookies for localhost fit."""

BODY_BYTES_PER_SECOND_MIN: Final = 10_000
"""How fast a large body is at least, and how fast an answer is taken. Why: a telephone's network is ten times as fast."""

_FILES_OF_THE_SERVER: Final = 200
"""Why: the engine's files, threads, pipes and the log are open files too."""

_CONNECTIONS_LEAST: Final = 8


@dataclass(frozen=True, kw_only=True)
class EdgeBounds:
    """Bounds of requests and connections. Raises InvalidInputError for those with which nobody could be served.

    A body has `body_seconds_max` and a second more for each BODY_BYTES_PER_SECOND_MIN bytes that have come. Of an answer the
    client takes that many bytes a second, or all that there are, in each `unread_seconds_max`. `idle_seconds_max` is between an
    answer that was taken and the next request. `connections_per_address_max` None: half of all. `held_bytes_max` are bytes of
    bodies, of what is read and of answers, of all callers at once; `held_bytes_per_caller_max` None: a quarter of them.
    """

    body_bytes_max: int = BODY_BYTES_MAX
    head_seconds_max: float = 20.0
    body_seconds_max: float = 20.0
    idle_seconds_max: float = 5.0
    unread_seconds_max: float = 60.0
    connections_max: int = 4_096
    connections_per_address_max: int | None = None
    held_bytes_max: int = 1 << 30
    held_bytes_per_caller_max: int | None = None

    def __post_init__(self) -> None:
        for name in ("body_seconds_max", "idle_seconds_max"):
            if not 0 < getattr(self, name) < float("inf"):
                option = f"--{name.removesuffix('_max').replace('_', '-')}"
                raise InvalidInputError(source=option, problem="it is a number of seconds, more than 0: give one")

    @property
    def held_bytes_of_one(self) -> int:
        """How many bytes one caller may have held."""
        given = self.held_bytes_per_caller_max
        return max(1, self.held_bytes_max // 4) if given is None else given

    @property
    def of_one_address(self) -> int:
        """How many connections one address may have."""
        given = self.connections_per_address_max
        return max(1, self.connections_of_all // 2) if given is None else given

    @property
    def connections_of_all(self) -> int:
        """How many connections there may be: no more than the system lets this process have open."""
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed == resource.RLIM_INFINITY:
            return self.connections_max
        return min(self.connections_max, max(_CONNECTIONS_LEAST, allowed - _FILES_OF_THE_SERVER))

    def shared_by(self, listening: int) -> "EdgeBounds":
        """Return the bounds of each of so many that listen and count their own connections: together they have all.

        Why: a process that has as many as it may open files, twice, opens no file of the store any more.
        """
        of_each = max(1, self.connections_of_all // listening)
        return self if listening == 1 else replace(self, connections_max=of_each)
