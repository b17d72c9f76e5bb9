"""The string of a schedule: `kps1:SCENARIO:FAULTS:STEPS`. Written, read, and matched with the scenario that it belongs to.

kps1:f370ac30:a2u:ab25a     the scenario's digest; actor a loses the answer of its 2nd call; a steps, b 25 times, a
"""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from keyplan.errors import InvalidInputError
from keyplan.limits import SCHEDULE_STEPS_MAX, SCHEDULE_TEXT_MAX
from keyplan.testing.schedules.faults import FAULT_LETTERS, Fault
from keyplan.testing.schedules.scenario import Scenario

__all__ = ["Schedule", "fault_text", "parse_schedule", "steps_text", "text_of"]

_LETTERS: Final = "abcdefgh"
_BLOCK: Final = re.compile(r"([a-h])([1-9][0-9]+|[2-9])?")
_STEPS: Final = re.compile(rf"-|({_BLOCK.pattern})+")
_FAULT: Final = re.compile(rf"([a-h])([1-9][0-9]*)([{FAULT_LETTERS}])")
_DIGEST: Final = re.compile(r"[0-9a-f]{8}")


class Schedule(NamedTuple):
    """Who steps, step by step, and with which faults."""

    faults: tuple[Fault, ...]
    steps: tuple[int, ...]


def steps_text(steps: Sequence[int]) -> str:
    """Return the STEPS of a string: a letter for each block of one actor's steps, with its length unless that is 1."""
    blocks = [(actor, len(list(block))) for actor, block in groupby(steps)]
    return "".join(_LETTERS[actor] + (str(length) if length > 1 else "") for actor, length in blocks) or "-"


def fault_text(fault: Fault) -> str:
    """Return a fault as strings have it."""
    return f"{_LETTERS[fault.actor]}{fault.call}{fault.letter}"


def text_of(scenario: Scenario, schedule: Schedule) -> str:
    """Return the string of a schedule of the scenario."""
    faults = ".".join(map(fault_text, schedule.faults))
    return f"kps1:{scenario.digest}:{faults or '-'}:{steps_text(schedule.steps)}"


def parse_schedule(scenario: Scenario, text: str) -> Schedule:
    """Read a string. Raises InvalidInputError when it is none, or belongs to another scenario."""
    if len(text) > SCHEDULE_TEXT_MAX:
        raise _refused(f"not a schedule: it has more than {SCHEDULE_TEXT_MAX:,} characters")
    parts = text.split(":")
    if len(parts) != 4 or parts[0] != "kps1" or not _DIGEST.fullmatch(parts[1]):
        raise _refused(f"not a schedule: {text!r} is not kps1:SCENARIO:FAULTS:STEPS")
    if parts[1] != scenario.digest:
        raise _refused(f"of another scenario ({parts[1]}, this is {scenario.digest})")
    schedule = Schedule(_faults(parts[2]), _steps(parts[3]))
    known = len(scenario.actors)
    strange = [actor for actor in (*schedule.steps, *(fault.actor for fault in schedule.faults)) if actor >= known]
    if strange:
        raise _refused(f"not a schedule: there is no actor {_LETTERS[strange[0]]}; the scenario has {known}")
    return schedule


def _faults(text: str) -> tuple[Fault, ...]:
    if text == "-":
        return ()
    found = [_FAULT.fullmatch(part) for part in text.split(".")]
    faults = tuple(Fault(_LETTERS.index(match[1]), int(match[2]), match[3]) for match in found if match is not None)
    if len(faults) != len(found):
        raise _refused(f"not a schedule: {text!r} is not a list of faults such as a2u.b7c")
    if len({fault[:2] for fault in faults}) < len(faults):
        raise _refused(f"not a schedule: {text!r} has two faults at one call")
    return faults


def _steps(text: str) -> tuple[int, ...]:
    if not _STEPS.fullmatch(text):
        raise _refused(f"not a schedule: {text!r} is not a list of steps such as ab25a")
    steps: list[int] = []
    for letter, count in _BLOCK.findall(text):
        actor = _LETTERS.index(letter)
        if steps and steps[-1] == actor:
            raise _refused(f"not a schedule: the blocks of {letter} in {text!r} are neighbours; write them as one")
        if len(count) > len(str(SCHEDULE_STEPS_MAX)) or int(count or 1) > SCHEDULE_STEPS_MAX:
            raise _refused(f"not a schedule: {letter}{count} are too many steps; an actor makes {SCHEDULE_STEPS_MAX:,}")
        steps += [actor] * int(count or 1)
    return tuple(steps)


def _refused(problem: str) -> InvalidInputError:
    return InvalidInputError(source="schedule", problem=problem)
