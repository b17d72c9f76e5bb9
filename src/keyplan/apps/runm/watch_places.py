"""The places for watches: how many there are at once, of all callers and of one."""

from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from keyplan.apps.runm.refusal import RefusedError
from keyplan.grpc_status import GrpcStatus
from keyplan.server import Full, Places

__all__ = ["WATCHES_MAX", "WATCHES_OF_CALLER_MAX", "WatchPlaces"]

WATCHES_MAX: Final = 24
"""Why: each keeps a thread, and the other threads must stay free for calls that end."""

WATCHES_OF_CALLER_MAX: Final = 8
"""Of these, those of one who is known. Why: who opens many must not keep everybody else from watching."""


class WatchPlaces:
    """Who has how many watches. Safe for use by several threads."""

    def __init__(self) -> None:
        self._places = Places(WATCHES_MAX, WATCHES_OF_CALLER_MAX)

    def place_of(self, who: str) -> AbstractContextManager[None]:
        """Keep a place for somebody; empty: for one who is not known by name. Raises RefusedError when there is none."""
        return self._places.held(who, partial(_no_place, who))


def _no_place(who: str, full: Full) -> RefusedError:
    problem = f"{who} has {WATCHES_OF_CALLER_MAX} watches already."
    if full is Full.OF_ALL:
        problem = f"there are {WATCHES_MAX} watches already."
    return RefusedError(GrpcStatus.RESOURCE_EXHAUSTED, problem)
