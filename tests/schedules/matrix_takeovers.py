"""The lines of long acts that a second process begins while the first one still runs.

Where one process at a time has the work, whoever it was taken from changes nothing any more; where several share it, none
of them spoils it. In the end, after the act is given once more, there is what a single run leaves.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from keyplan.engine import Commit, Delete, Mutation, Put
from keyplan.errors import (
    ConflictError,
    InvalidInputError,
    MigrationRefusedError,
    RingMismatchError,
    TargetNotEmptyError,
    TargetTakenError,
)
from keyplan.testing.schedules import Outcome, Preemptions, Scenario, actor
from tests.kills.furniture import Scene
from tests.kills.scenes import GROUPS
from tests.schedules.lines import Line

__all__ = ["TAKEOVER_GROUPS"]

_ONE_AT_A_TIME: Final[Mapping[str, bytes]] = {
    "copy": b"\x00kt",
    "copy over": b"\x00kt",
    "copy that follows": b"\x00kt",
    "restore": b"\x00kt",
    "restore over": b"\x00kt",
    "restore of an index that is not readable, built": b"\x00kt",
    "restore one key space over, indexes built": b"\x00kt",
    "drop by_tag": b"\x00ki",
    "switch to Moved": b"\x00kms",
    "switch to Reindexed": b"\x00kms",
    "switch to Stated": b"\x00kms",
    "switch to People": b"\x00kms",
    "clean up after Moved": b"\x00kms",
    "clean up after People": b"\x00kms",
}
"""Acts that one process at a time carries out, and where the record stands that says which one: its `run`."""

_SHARED: Final = (
    "build by_tag, half built",
    "build by_serial",
    "migrate to Moved",
    "migrate to People",
    "sweep one",
    "runm reindex",
    "runm migrate",
    "runm import",
    "cloudchamber import",
    "rebalance a ring",
    "hepnos migrate",
)
"""Acts that several processes may be at."""

_LONG: Final = frozenset(
    {
        "switch to Stated",
        "switch to People",
        "clean up after People",
        "copy that follows",
        "build by_serial",
        "migrate to People",
        "runm reindex",
        "cloudchamber import",
        "rebalance a ring",
    }
)

_CLEAR: Final = (
    ConflictError,
    InvalidInputError,
    MigrationRefusedError,
    RingMismatchError,
    TargetNotEmptyError,
    TargetTakenError,
)
"""What a process may end with that meets another one at its work."""


def _scenes() -> dict[str, Scene]:
    return {scene.name: scene for scenes in GROUPS.values() for scene in scenes()}


def _twice(scene: Scene, invariants: list[Callable[[Outcome], None]]) -> Scenario:
    given = scene.scenario
    return Scenario(
        actor(given.job, "first"),
        actor(given.job, "second"),
        setup=given.setup,
        engines=given.engines,
        profile=given.profile,
        invariants=[*invariants, partial(_comes_to_its_end, scene)],
        only_raises=(*_CLEAR, *given.told),
    )


def _comes_to_its_end(scene: Scene, outcome: Outcome) -> None:
    """Given once more, the act leaves what one process alone leaves."""
    given = scene.scenario
    wanted = given.compared(*outcome.in_order(["first"]).stores)
    with suppress(*given.told):
        given.job(*outcome.stores)
    given.holds(*outcome.stores)
    assert given.compared(*outcome.stores) == wanted, "it is not as one process alone leaves it"


def _only_the_holder_writes(area: bytes, outcome: Outcome) -> None:
    """From the commit on by which one process takes the work, the other one's commits change nothing."""
    holder = run = ""
    earlier: set[str] = set()
    for made in outcome.commits:
        taken = _run_of(made.commit, area)
        assert taken not in earlier, (
            f"{made.actor} wrote its record at revision {made.revision} after it had lost the work"
        )
        if taken not in {"", run}:
            earlier |= {run} - {""}
            holder, run = made.actor, taken
        elif made.actor != holder and holder and not all(map(_is_left_over, made.commit.mutations)):
            raise AssertionError(f"{made.actor} wrote revision {made.revision} after {holder} had taken the work")
    assert holder or not outcome.answers, f"{', '.join(outcome.answers)} ended without a record of a run in {area!r}"


def _is_left_over(mutation: Mutation) -> bool:
    """Whether a write removes a mark or a hint: what is left of a migration that is over is removed by whoever comes."""
    return isinstance(mutation, Delete) and mutation.key.startswith((b"\x00kmm", b"\x00kmc"))


def _run_of(commit: Commit, area: bytes) -> str:
    """The run whose record a commit writes; empty when it writes none."""
    for mutation in commit.mutations:
        if isinstance(mutation, Put) and mutation.key.startswith(area):
            return str(msgspec.json.decode(mutation.value).get("run", ""))
    return ""


def takeovers() -> Iterator[Line]:
    """Acts of one process at a time, begun by a second one before any call of the first."""
    scenes = _scenes()
    for name, area in _ONE_AT_A_TIME.items():
        make = partial(_twice, scenes[name], [partial(_only_the_holder_writes, area)])
        yield Line(f"{name} x the same", make, Preemptions(1, is_hashed=False), is_long=name in _LONG)


def sharings() -> Iterator[Line]:
    """Acts of several processes, begun by a second one before any call of the first."""
    scenes = _scenes()
    for name in _SHARED:
        make = partial(_twice, scenes[name], [])
        yield Line(f"{name} x the same", make, Preemptions(1, is_hashed=False), is_long=name in _LONG)


TAKEOVER_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {"takeovers": takeovers, "sharings": sharings}
