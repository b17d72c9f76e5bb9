"""Indexes after a restore: checked against the records, and put right where they differ."""

from dataclasses import dataclass

from keyplan.engine import Engine
from keyplan.layout import BoundLayout
from keyplan.maintenance.check import check
from keyplan.maintenance.repair import RepairResult, carry_out, plan_repairs
from keyplan.store import Store

__all__ = ["IndexesAfterwards", "put_indexes_right"]


@dataclass(frozen=True, slots=True)
class IndexesAfterwards:
    """How many keys were examined, how many repairs were made, and the findings that are left, a sentence each."""

    keys: int
    repaired: int
    remaining: tuple[str, ...]


def put_indexes_right(engine: Engine, layout: BoundLayout) -> IndexesAfterwards:
    """Check the layout on the engine, carry out each repair that the records decide, and check again what is left."""
    store = Store(engine)
    repaired = 0
    first = check(store, layout)
    for finding in first:
        for outcome in carry_out(store, layout, plan_repairs(store, layout, [finding])):
            repaired += outcome.result is RepairResult.REPAIRED
    remaining = tuple(str(finding) for finding in check(store, layout) if not finding.kind.is_note) if repaired else ()
    if not repaired:
        remaining = tuple(str(finding) for finding in check(store, layout) if not finding.kind.is_note)
    return IndexesAfterwards(first.keys_examined, repaired, remaining)
