"""A failure for people: a line a step, keys by their meaning, what raced marked. The same run gives the same bytes."""

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from keyplan.engine import Commit, Delete, DeleteRange, Event, Guard, KeyAbsent, KeyRange, KeyUnchanged, Mutation, Put
from keyplan.layout import BoundLayout, Kind, shown_key
from keyplan.testing.schedules.outcome import Outcome
from keyplan.testing.schedules.running import Run
from keyplan.testing.schedules.steps import REVISION_SEEN, TIME_SEEN, Step
from keyplan.testing.schedules.traces import races

__all__ = ["script_of"]

_CALLS_SHOWN: Final = 6
"""Calls of one actor in a row that are all shown; of more, the first, the last and those that raced."""

_NAMES_SHOWN: Final = 8
"""Keys of one call. Why: a reader wants to see which, and a line is read at one look."""

_COLUMN: Final = 100


def script_of(run: Run) -> str:
    """Return the script of a recorded run. `KEYPLAN_SCHEDULES=full` in the environment shows every call."""
    racing, last = _racing(run.steps)
    names = run.scenario.names
    width = max(len(name) for name in names)
    lines: list[str] = []
    place = 0
    for actor, block in groupby(run.steps, key=lambda step: step.actor):
        steps = list(block)
        shown = _shown(place, len(steps), racing)
        skipped = 0
        label = names[actor]
        for offset, step in enumerate(steps):
            if place + offset not in shown:
                skipped += 1
                continue
            if skipped:
                lines.append(f"  {'':{width}}  ... {skipped} calls")
                skipped = 0
            mark = "<--" if place + offset in last else ""
            text = f"  {label:{width}}  {_line(step, run.scenario.layouts)}"
            lines.append(f"{text:{_COLUMN}}  {mark}" if mark else text)
            label = ""
        place += len(steps)
    lines += [f"  {name:{width}}  crashed" for name in Outcome(run).crashed]
    lines += [
        f"  {name:{width}}  raised {type(error).__name__}: {error}" for name, error in Outcome(run).errors.items()
    ]
    return "\n".join(lines)


def _racing(steps: Sequence[Step]) -> tuple[set[int], set[int]]:
    """Return the places of all steps that race, and of the last race's two."""
    found = [(race.second, race.first) for race in races(steps)]
    return {place for pair in found for place in pair}, set(max(found, default=()))


def _shown(first: int, count: int, racing: set[int]) -> set[int]:
    everything = set(range(first, first + count))
    if count <= _CALLS_SHOWN or os.environ.get("KEYPLAN_SCHEDULES") == "full":
        return everything
    return {first, first + count - 1} | (everything & racing)


def _line(step: Step, layouts: Sequence[BoundLayout]) -> str:
    words = "; ".join(part for part in _parts(step, layouts) if part)
    failure = ""
    if isinstance(step.outcome, BaseException):
        failure = f"{type(step.outcome).__name__} "
    elif step.call in {"commit", "load"}:
        failure = f"@{step.outcome} "
    return f"{step.call:8} {failure}{words}".rstrip()


def _parts(step: Step, layouts: Sequence[BoundLayout]) -> Iterator[str]:
    if isinstance(step.subject, Commit):
        yield _listed("puts", [_mutation(each, layouts) for each in step.subject.mutations if isinstance(each, Put)])
        yield _listed(
            "deletes", [_mutation(each, layouts) for each in step.subject.mutations if not isinstance(each, Put)]
        )
        yield _listed("guards", [_guard(guard, layouts) for guard in step.subject.guards])
    elif answers := [answer for answer in step.answers or () if answer[0] not in {REVISION_SEEN, TIME_SEEN}]:
        yield _listed("reads", [_read(*answer, layouts) for answer in answers])
    elif step.subject is not None and not isinstance(step.subject, tuple):
        yield _subject(step.subject, layouts)


def _subject(subject: object, layouts: Sequence[BoundLayout]) -> str:
    match subject:
        case bytes():
            return _named(subject, layouts)
        case KeyRange():
            return _ranged(subject, layouts)
        case _:
            return str(subject)


def _listed(verb: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"{verb} {', '.join(names[:_NAMES_SHOWN])}{more}"


def _named(key: bytes, layouts: Sequence[BoundLayout]) -> str:
    for layout in layouts:
        meaning = layout.meaning(key)
        if meaning.kind in {Kind.RECORD, Kind.INDEX_ENTRY, Kind.COUNTER}:
            fields = "/".join(str(value) for value in meaning.fields.values())
            return f"{meaning.item} {fields}".rstrip()
    return shown_key(key)


def _ranged(key_range: KeyRange, layouts: Sequence[BoundLayout]) -> str:
    if key_range.end == key_range.start + b"\x00":
        return _named(key_range.start, layouts)
    return f"{shown_key(key_range.start)} .. {'the end' if key_range.end is None else shown_key(key_range.end)}"


def _mutation(mutation: Mutation, layouts: Sequence[BoundLayout]) -> str:
    match mutation:
        case Put(key, _, lease):
            return _named(key, layouts) + (f" on lease {lease}" if lease else "")
        case Delete(key):
            return _named(key, layouts)
        case DeleteRange(key_range):
            return _ranged(key_range, layouts)


def _guard(guard: Guard, layouts: Sequence[BoundLayout]) -> str:
    match guard:
        case KeyAbsent(key):
            return f"{_named(key, layouts)} absent"
        case KeyUnchanged(key, revision):
            return f"{_named(key, layouts)} @{revision}"
        case _:
            return _ranged(guard.range, layouts)


def _read(method: str, asked: object, answer: object, layouts: Sequence[BoundLayout]) -> str:
    match asked:
        case bytes():
            return _named(asked, layouts) + (" absent" if answer is None else "")
        case KeyRange() if isinstance(answer, list):
            what = "events" if answer and isinstance(answer[0], Event) else "found"
            return f"{_ranged(asked, layouts)}: {len(answer)} {what}"
        case KeyRange():
            return f"{_ranged(asked, layouts)}: {answer}"
        case _:
            return f"{method} {answer}"
