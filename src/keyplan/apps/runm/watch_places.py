"""The places for watches: how many there are at once, of all callers and of one."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from keyplan.apps.runm.refusal import RefusedError
from keyplan.grpc_status import GrpcStatus

__all__ = ["WATCHES_MAX", "WATCHES_OF_CALLER_MAX", "WatchPlaces"]

WATCHES_MAX: Final = 24
"""Why: each keeps a thread, and the other threads must stay free for calls that end."""

WATCHES_OF_CALLER_MAX: Final = 8
"""Of these, those of one who is known. Why: who opens many must not keep everybody else from watching."""


class WatchPlaces:
    """Who has how many watches. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken: Counter[str] = Counter()

    @contextmanager
    def place_of(self, who: str) -> Generator[None, None, None]:
        """Keep a place for somebody; empty: for one who is not known by name. Raises RefusedError when there is none."""
        with self._lock:
            if who and self._taken[who] >= WATCHES_OF_CALLER_MAX:
                problem = f"{who} has {WATCHES_OF_CALLER_MAX} watches already."
                raise RefusedError(GrpcStatus.RESOURCE_EXHAUSTED, problem)
            if self._taken.total() >= WATCHES_MAX:
                raise RefusedError(GrpcStatus.RESOURCE_EXHAUSTED, f"there are {WATCHES_MAX} watches already.")
            self._taken[who] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[who] -= 1
                self._taken += Counter()  # Why: it forgets who has none.
