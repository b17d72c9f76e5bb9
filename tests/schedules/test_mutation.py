"""One guard at a time is left out of what maintenance and key spaces commit: the matrix notices each, but for those listed."""

from collections.abc import Callable
from functools import cache, partial
from operator import eq

import pytest

from tests.schedules.lines import Line
from tests.schedules.matrix import GROUPS
from tests.schedules.mutation import GuardKind, kinds_of, noticed_by

EQUIVALENT = {
    "maintenance.index_states.replace_index_state: KeyAbsent of an index state, where it puts": (
        "Whoever prepares or drops a readable index may write over the state of another who did so meanwhile: the state that "
        "is written is the strictest, a build that had begun loses its next step and begins again, and a drop removes "
        "entries only under the state that it reads as its own afterwards."
    ),
}
"""Guards without which nothing becomes wrong, each with the reason."""


@cache
def kinds() -> dict[GuardKind, list[Line]]:
    lines = [line for name in ("builds", "repairs", "drops", "maintainers") for line in GROUPS[name]()]
    return kinds_of(line for line in lines if not line.is_long)


ORIGINS = ("maintenance.index_build", "maintenance.index_states", "maintenance.repair")


@pytest.mark.usefixtures("brief_failures")
@pytest.mark.slow
@pytest.mark.parametrize("origin", ORIGINS)
def test_no_guard_of_maintenance_can_be_left_out(origin: str) -> None:
    seen = {kind: lines for kind, lines in kinds().items() if kind.module == origin}
    assert seen
    survivors = [
        str(kind)
        for kind, lines in seen.items()
        if str(kind) not in EQUIVALENT and noticed_by(partial(eq, kind), lines) is None
    ]
    assert survivors == []


def test_what_is_called_equivalent_is_a_guard_that_there_is() -> None:
    assert EQUIVALENT.keys() <= {str(kind) for kind in kinds()}


def of_fence(kind: GuardKind) -> bool:
    """The guard by which every write through a handle says that its key space is as it was opened."""
    return kind.module == "keyspace.share" and kind.key == "registry table 3"


def of_removal(kind: GuardKind) -> bool:
    """The guards by which a sweep removes data only of the deletion that it read.

    Why together: the fence and the deletion's own record are written in the same commits, so that either one is enough.
    """
    return kind.module == "keyspace.removal"


def of_acts(kind: GuardKind) -> bool:
    """The guards of the acts of the registry.

    Why together: each act writes the next entry of the log, so that no two that read the same state can both commit; what
    an act guards beside that tells it who came between.
    """
    return kind.module == "keyspace.transactions"


@pytest.mark.slow
@pytest.mark.parametrize("is_left_out", [of_fence, of_removal, of_acts], ids=["fence", "removal", "acts"])
def test_no_fence_of_key_spaces_can_be_left_out(is_left_out: Callable[[GuardKind], bool]) -> None:
    lines = [line for line in GROUPS["key spaces"]() if not line.is_long]
    assert noticed_by(is_left_out, lines) is not None
