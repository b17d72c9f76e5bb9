"""Guards that are left out one kind at a time, by who makes them: a matrix that notices each can be trusted with the rest.

A kind of guard is the function that made the commit, the guard's class, and what its key is. Nothing in the source is changed.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from keyplan.engine import Commit, Delete, DeleteRange, Guard, Put
from keyplan.testing.schedules import explore
from tests.schedules.lines import Line
from tests.schedules.scenes import guard_key, guards_left_out

__all__ = ["GuardKind", "kinds_of", "noticed_by"]

ORIGINS = {
    "keyplan.maintenance.index_build",
    "keyplan.maintenance.index_states",
    "keyplan.maintenance.repair",
    "keyplan.keyspace.share",
    "keyplan.keyspace.removal",
    "keyplan.keyspace.transactions",
    "keyplan.keyspace.sweeper",
    "keyplan.keyspace.quota",
}
"""Who is asked for its guards: the nearest of these on the stack made the commit."""


class GuardKind(NamedTuple):
    """A guard, by what is equal in all runs."""

    module: str
    function: str
    guard: str
    key: str
    writes: str

    def __str__(self) -> str:
        return f"{self.module}.{self.function}: {self.guard} of {self.key}, where it {self.writes}"


def kind_of(guard: Guard, commit: Commit) -> GuardKind | None:
    """Return the kind of a guard of the code that is looked at; None for another's."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module in ORIGINS:
            return GuardKind(
                module.removeprefix("keyplan."),
                frame.f_code.co_name,
                type(guard).__name__,
                _area(guard_key(guard), commit),
                _effect(commit),
            )
        frame = frame.f_back
    return None


def _effect(commit: Commit) -> str:
    kinds = {Put: "puts", Delete: "deletes", DeleteRange: "deletes a range"}
    return " and ".join(sorted({kinds[type(mutation)] for mutation in commit.mutations})) or "writes nothing"


def _area(key: bytes, commit: Commit) -> str:
    if key.startswith(b"\x00ki"):
        return "an index state"
    if key.startswith(b"\x00kp"):
        return f"registry table {key[3]:x}"
    if key.startswith((b"/site/rack/", b"/site/members/")):
        own = {b"/site/" + mutation.value for mutation in commit.mutations if isinstance(mutation, Put)}
        return "a record that an entry is put for" if key in own else "a record"
    return "an entry" if key.startswith(b"/site/") else "data"


def kinds_of(lines: Iterable[Line]) -> dict[GuardKind, list[Line]]:
    """Explore lines as they are, and return the kinds of guards that their commits have, each with the lines it is in."""
    found: dict[GuardKind, list[Line]] = {}
    for line in lines:
        with _noted() as kinds:
            explore(line.make(), strategy=line.strategy, schedules_max=100)
        for kind in kinds:
            found.setdefault(kind, []).append(line)
    return found


@contextmanager
def _noted() -> Iterator[set[GuardKind]]:
    kinds: set[GuardKind] = set()

    def note(guard: Guard, commit: Commit) -> bool:
        kind = kind_of(guard, commit)
        if kind is not None:
            kinds.add(kind)
        return False

    with guards_left_out(note):
        yield kinds


def noticed_by(
    is_left_out: Callable[[GuardKind], bool], lines: Iterable[Line], *, schedules_max: int = 1_000
) -> Line | None:
    """Leave out kinds of guards, and return the first line that fails without them; None: nobody notices."""

    def is_out(guard: Guard, commit: Commit) -> bool:
        kind = kind_of(guard, commit)
        return kind is not None and is_left_out(kind)

    # Why so: what is searched to its end is quick, and mostly enough.
    for line in sorted(lines, key=lambda line: line.strategy is not None):
        with guards_left_out(is_out):
            found = explore(line.make(), strategy=line.strategy, schedules_max=schedules_max, stop_at_first=True)
        if found.failures:
            return line
    return None
