"""How many of something there are at once, in all and of each caller: connections, watches, answers that are waited for, bytes.

One caller never has all places, so that nobody keeps everybody else from theirs; and who has all of their own is told that
first, and not how many the others have.
"""

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum, auto
from threading import Lock

__all__ = ["Full", "Places"]


class Full(Enum):
    """Why there is no place."""

    OF_ONE = auto()
    """This caller has as many as one may have."""
    OF_ALL = auto()
    """All together have as many as there are."""


class Places:
    """Places that callers have, by their names. Safe for use by several threads.

    Who is nobody in particular, whose name is empty, is bounded as all are, and not as one.
    """

    def __init__(self, of_all: int, of_one: int) -> None:
        self.of_all = of_all
        self.of_one = of_one
        self._lock = Lock()
        self._taken: Counter[str] = Counter()
        self._number = 0

    @property
    def number(self) -> int:
        """How many are taken."""
        return self._number

    def taken_by(self, who: str) -> int:
        """Return how many one caller has."""
        return self._taken[who]

    def enter(self, who: str, number: int = 1) -> Full | None:
        """Count one that is there, or some, whether there are places or not, until `leave`; return why there are too few."""
        with self._lock:
            full = self._full(who, number)
            self._count(who, number)
            return full

    def take(self, who: str, number: int = 1) -> Full | None:
        """Take a place, or some, until `leave`; or return why there are too few, and then nothing is taken."""
        with self._lock:
            full = self._full(who, number)
            if full is None:
                self._count(who, number)
            return full

    def leave(self, who: str, number: int = 1) -> None:
        """Give a place back, or some, or count so many less."""
        with self._lock:
            assert self._taken[who] >= number, "who leaves has entered"
            self._count(who, -number)

    @contextmanager
    def held(self, who: str, refusal: Callable[[Full], Exception]) -> Generator[None, None, None]:
        """Hold a place for a `with` block. Raises what `refusal` returns where there is none."""
        full = self.take(who)
        if full is not None:
            raise refusal(full)
        try:
            yield
        finally:
            self.leave(who)

    def _full(self, who: str, number: int) -> Full | None:
        if who and self._taken[who] + number > self.of_one:
            return Full.OF_ONE
        return Full.OF_ALL if self._number + number > self.of_all else None

    def _count(self, who: str, more: int) -> None:
        self._number += more
        self._taken[who] += more
        if not self._taken[who]:
            del self._taken[who]  # Why: of all who ever had one, nothing is kept.
