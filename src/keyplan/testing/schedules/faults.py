"""Faults of a run: at which call of which actor, and what happens there. They are variants, not choices of a schedule."""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Final, NamedTuple

__all__ = ["FAULT_LETTERS", "FAULT_MEANINGS", "Fault", "fits", "variants_of"]

FAULT_MEANINGS: Final = {
    "c": "crash: it never goes on; its leases live, its `finally` blocks run when the run was judged",
    "u": "carried out, then the answer is lost: CommitOutcomeUnknownError",
    "n": "not carried out, and the answer is lost: CommitOutcomeUnknownError",
    "f": "EngineUnavailableError before anything is done",
    "o": "CommitConflictError although no guard failed; nothing is written",
    "h": "HistoryCompactedError",
}
FAULT_LETTERS: Final = "".join(FAULT_MEANINGS)

_OF_COMMITS: Final = "uno"
_OF_WATCHES: Final = "h"
_OF_ENGINES: Final = "f"
_OF_NO_ENGINE: Final = frozenset({"clock", "passes", "renews", "restarts", "waits"})
"""Calls that park as others do, and ask no engine that could be unavailable."""


class Fault(NamedTuple):
    """What happens at an actor's call; calls are counted from 1."""

    actor: int
    call: int
    letter: str


def fits(letter: str, call: str) -> bool:
    """Whether a fault can happen at a call of that name."""
    if letter in _OF_COMMITS:
        return call == "commit"
    if letter in _OF_ENGINES:
        return call not in _OF_NO_ENGINE
    return letter not in _OF_WATCHES or call in {"poll", "watch"}


def variants_of(
    calls: Iterable[tuple[int, int, str]], letters: dict[int, str], *, faults_max: int
) -> Iterator[tuple[Fault, ...]]:
    """Yield the sets of faults to try: none, then one at each call, then up to `faults_max` together.

    `calls` are those that runs have made: actor, number, name. Two faults of one variant are at different calls.
    """
    single = sorted(
        {
            Fault(actor, number, letter)
            for actor, number, call in calls
            for letter in letters.get(actor, "")
            if fits(letter, call)
        }
    )
    yield ()
    for size in range(1, faults_max + 1):
        for chosen in combinations(single, size):
            if len({fault[:2] for fault in chosen}) == size:
                yield chosen
