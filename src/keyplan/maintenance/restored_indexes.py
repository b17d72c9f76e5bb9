"""Indexes after a restore: checked against the records, and put right where they differ."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from keyplan.engine import Engine
from keyplan.jobs import UNSTOPPED, Progress, StopCheck
from keyplan.layout import BoundLayout
from keyplan.maintenance.checking import check
from keyplan.maintenance.repair import RepairResult, carry_out, plan_repairs
from keyplan.store import Store

__all__ = ["IndexesAfterwards", "put_indexes_right"]


_REMAINING_MAX: Final = 1000
"""Why: they are read by a person; `keyplan check` prints them all."""


@dataclass(frozen=True, slots=True)
class IndexesAfterwards:
    """How many keys were examined, how many repairs were made, and the first thousand findings that are left."""

    keys: int
    repaired: int
    remaining: tuple[str, ...]


def put_indexes_right(
    engine: Engine,
    layout: BoundLayout,
    *,
    stops: StopCheck = UNSTOPPED,
    is_resumed: bool = True,
    progress: Callable[[Progress], None] | None = None,
) -> IndexesAfterwards:
    """Check the layout on the engine, carry out each repair that the records decide, and check again what is left.

    Raises StoppedError when it is told to stop, between two batches of keys or two repairs. Without `is_resumed` the same work
    does not find what is left when it is begun again, and a stop is not looked at any more behind a repair.
    """
    store = Store(engine)
    repaired = 0

    def check_stop() -> None:
        if is_resumed or not repaired:
            stops.check()

    def looked(now: Progress) -> None:
        check_stop()
        if progress is not None:
            progress(now)

    first = check(store, layout, progress=looked)
    left: list[str] = []
    for finding in first:
        check_stop()
        plan = plan_repairs(store, layout, [finding])
        done = sum(outcome.result is RepairResult.REPAIRED for outcome in carry_out(store, layout, plan))
        repaired += done
        if not done and not finding.kind.is_note and len(left) < _REMAINING_MAX:
            left.append(str(finding))
    if repaired:
        # Why again: a repair may bring out what was hidden behind it.
        found = (str(finding) for finding in check(store, layout, progress=looked) if not finding.kind.is_note)
        left = list(islice(found, _REMAINING_MAX))
    return IndexesAfterwards(first.keys_examined, repaired, tuple(left))
