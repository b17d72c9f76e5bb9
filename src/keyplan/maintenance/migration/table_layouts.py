"""Whether the records of a table may be converted where they stand: a conversion is done once, whoever asks for it again.

Nothing in a converted record says that it was converted. So the store says it, per table: the definition that the records have
now, and the migrations that brought them there.
"""

from enum import Enum

from keyplan.engine import Entry, Put, Snapshot
from keyplan.layout import BoundLayout
from keyplan.maintenance.definitions import table_definition
from keyplan.maintenance.migration.marks import TableLayout, decoded, encoded, layout_key
from keyplan.maintenance.migration.plan import MigrationPlan
from keyplan.store import layouts_at

__all__ = ["ConversionStage", "conversion_stage", "is_welcome", "layouts_of", "recorded"]


class ConversionStage(Enum):
    """What the store says about a conversion where the records stand."""

    DUE = "due"
    """The records are in the old layout, as far as the store knows."""
    DONE = "done"
    """This migration has converted them."""
    FOREIGN = "foreign"
    """Another migration has converted them to something else than the old layout, which programs may not use now."""


def layouts_of(plan: MigrationPlan, table: str) -> tuple[bytes, bytes]:
    """Return the raw keys of what the store says about a table: under its old root and name, and under its new ones."""
    work = next(work for work in plan.tables if work.name == table)
    return layout_key(plan.old.root, work.route.sources[0].name), layout_key(plan.new.root, table)


def conversion_stage(
    before: Entry | None, migration: bytes, old: str, new: str, *, is_welcome: bool
) -> ConversionStage:
    """Tell whether `migration`, from one definition of a table to another, is still to be done.

    `before` is what the store says about the table under its old name. `is_welcome`: programs may use the old layout now, so
    that records fit it whatever definition they were brought to: changes without steps lead from one such layout to another.
    """
    if before is None:
        return ConversionStage.DUE
    layout: TableLayout = decoded(before)
    is_done = migration in layout.migrations
    if layout.definition == old and (old != new or not is_done) and layout.migrations[-1] != migration:
        return ConversionStage.DUE
    if is_done:
        return ConversionStage.DONE
    return ConversionStage.DUE if is_welcome else ConversionStage.FOREIGN


def is_welcome(layout: BoundLayout, snapshot: Snapshot) -> bool:
    """Whether the store notes a layout as one that programs may use at its root now."""
    found = layouts_at(snapshot, layout.root)
    return found is not None and layout.fingerprint in found.layouts


def recorded(plan: MigrationPlan, table: str, *befores: Entry | None) -> Put:
    """Return the put that says that this migration has brought a table where it is, from what the store said before."""
    earlier = [one for before in befores if before is not None for one in decoded(before).migrations]
    # Why: a migration that is done again, after its layout was left, has one place, the last.
    migrations = (*dict.fromkeys(one for one in earlier if one != plan.id), plan.id)
    layout = TableLayout(plan.new.root, table, table_definition(plan.new, table), migrations)
    return Put(layout_key(plan.new.root, table), encoded(layout))
