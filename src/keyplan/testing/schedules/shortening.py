"""From a schedule that fails to a shorter one that fails alike, by replaying candidates."""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from keyplan.errors import InvalidInputError
from keyplan.limits import SCHEDULE_REPLAYS_MAX
from keyplan.testing.schedules.judging import Judge, Verdict
from keyplan.testing.schedules.strings import Schedule, steps_text

__all__ = ["rank_of", "shortened", "switches_of"]

Blocks = list[tuple[int, int]]


def switches_of(steps: Sequence[int]) -> int:
    """How often another actor follows."""
    return sum(one != other for one, other in pairwise(steps))


def rank_of(schedule: Schedule) -> tuple[int, int, int, str]:
    """What makes a schedule shorter than another: fewer faults, switches, steps; then its text."""
    return (len(schedule.faults), switches_of(schedule.steps), len(schedule.steps), steps_text(schedule.steps))


def shortened(judge: Judge, schedule: Schedule, verdict: Verdict) -> tuple[Schedule, int]:
    """Return the shortest schedule found that fails with a verdict of the same kind, and how many replays it took."""
    replays = 0
    best = schedule
    is_better = True
    while is_better:
        is_better = False
        for candidate in _candidates(best):
            if replays >= SCHEDULE_REPLAYS_MAX:
                return best, replays
            replays += 1
            found = _failing(judge, candidate, verdict)
            if found is not None and rank_of(found) < rank_of(best):
                best, is_better = found, True
                break
    return best, replays


def _failing(judge: Judge, candidate: Schedule, verdict: Verdict) -> Schedule | None:
    """Run a candidate; return it whole, as it was carried out, when it fails alike."""
    try:
        run = judge.run(schedule=candidate)
    except InvalidInputError:
        return None
    try:
        found = judge.verdict(run)
    finally:
        run.end()
    if found is None or found.kind != verdict.kind:
        return None
    return Schedule(candidate.faults, tuple(step.actor for step in run.steps))


def _candidates(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules that may be shorter: without a fault, without the tail, with two blocks of an actor joined."""
    for fault in schedule.faults:
        yield schedule._replace(faults=tuple(each for each in schedule.faults if each != fault))
    blocks: Blocks = [(actor, len(list(block))) for actor, block in groupby(schedule.steps)]
    for cut in range(1, len(blocks)):
        yield _of(schedule, blocks[:cut])
    for place in range(1, len(blocks) - 1):
        before, middle, after = blocks[place - 1 : place + 2]
        if before[0] == after[0]:
            joined = (before[0], before[1] + after[1])
            yield _of(schedule, [*blocks[: place - 1], joined, middle, *blocks[place + 2 :]])
            yield _of(schedule, [*blocks[: place - 1], middle, joined, *blocks[place + 2 :]])


def _of(schedule: Schedule, blocks: Blocks) -> Schedule:
    return schedule._replace(steps=tuple(actor for actor, length in blocks for _ in range(length)))
