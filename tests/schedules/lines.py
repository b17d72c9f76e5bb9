"""A line of the matrix: a scenario with the way it is searched, and where it belongs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TypeVar

from keyplan.testing.schedules import BatonKind, Scenario, Strategy

__all__ = ["Line", "combined", "line_name"]

T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    """One scenario of the matrix. `make` makes it, when its turn comes."""

    name: str
    make: Callable[[], Scenario]
    strategy: Strategy | None = None
    """None: everything, which has to come to its end."""
    is_long: bool = False
    """Left to `scripts/schedules`: it takes seconds."""
    under: Callable[[], AbstractContextManager[None]] = nullcontext
    """What holds while it is explored: constants that are replaced."""
    baton: BatonKind | None = None
    """How its actors run: those with an event loop each are threads, of which each has one."""
    defect: str = ""
    """What is known to be wrong there. Such a line must fail."""


def combined(names: Sequence[str], count: int) -> Iterator[tuple[str, ...]]:
    """Yield the combinations of names, with themselves, too: the search tries all orders of actors."""
    yield from combinations_with_replacement(names, count)


def line_name(*names: str) -> str:
    return " x ".join(names)
