"""Bringing a store to an inventory: read, plan, write; in one commit where the engine takes it, else in guarded steps.

The same for both layouts: an `InventoryShape` says which tables an inventory is there.
"""

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast, overload

from keyplan.apps.cloudchamber.go_inventory import GO_INVENTORY_TABLES, GO_VIEW, GoPlace, GoRecord
from keyplan.apps.cloudchamber.go_served import SERVED_ZONE
from keyplan.apps.cloudchamber.import_plan import ImportChange, ImportPlan, InventoryPlace, StoredRecord, plan_import
from keyplan.apps.cloudchamber.inventory import INVENTORY_TABLES, InventoryKey, InventoryRecord
from keyplan.apps.cloudchamber.layout import CloudChamber, CloudChamberGo
from keyplan.apps.cloudchamber.layout_keys import BladeKey, GoBladeKey
from keyplan.apps.cloudchamber.namespace_store import InUseError
from keyplan.apps.cloudchamber.part_actuals import actual_beside
from keyplan.apps.cloudchamber.placement import require_capacity
from keyplan.apps.cloudchamber.records import Blade, Capacity
from keyplan.apps.cloudchamber.steps import Steps, is_too_large, no_report
from keyplan.errors import CommitConflictError, ConflictError, EngineLimitError
from keyplan.layout import Layout

__all__ = [
    "ImportOutcome",
    "InventoryShape",
    "planned_import",
    "reconcile",
    "stored_inventory",
    "write_changes",
]

ROUNDS_MAX: Final = 8
"""Why: a round starts again only when another writer came between; eight in a row is somebody who imports something else."""

P = TypeVar("P", bound=InventoryPlace)

Approve: TypeAlias = Callable[[ImportPlan, int], None]
"""Is given a plan, and how many commits were made of it before; raises what the import ends with."""


class ImportOutcome(NamedTuple):
    """What an import did: the plan it began with, how many commits it made, and the store's revision after the last."""

    plan: ImportPlan
    commits: int
    revision: int


class InventoryShape(NamedTuple, Generic[P]):
    """The tables that an inventory is in a layout, the key fields that all of them begin with, and how a place is made."""

    tables: tuple[str, ...]
    prefix: tuple[object, ...]
    place: Callable[[str, Any], P]


DOCUMENT_SHAPE: Final = InventoryShape(INVENTORY_TABLES, (), InventoryKey)
GO_SHAPE: Final = InventoryShape(GO_INVENTORY_TABLES, (GO_VIEW,), GoPlace)


@overload
def planned_import(chamber: CloudChamber, desired: Mapping[InventoryKey, InventoryRecord]) -> ImportPlan: ...


@overload
def planned_import(chamber: CloudChamberGo, desired: Mapping[GoPlace, GoRecord]) -> ImportPlan: ...


def planned_import(chamber: Layout, desired: Mapping[Any, Any]) -> ImportPlan:
    """Return what `reconcile` would write, and write nothing."""
    with chamber.snapshot() as state:
        return plan_import(stored_inventory(state, _shape_of(chamber)), desired)


@overload
def reconcile(
    chamber: CloudChamber,
    desired: Mapping[InventoryKey, InventoryRecord],
    *,
    report: Callable[[int, int], None] = no_report,
    approve: Approve | None = None,
    in_steps: bool = True,
) -> ImportOutcome: ...


@overload
def reconcile(
    chamber: CloudChamberGo,
    desired: Mapping[GoPlace, GoRecord],
    *,
    report: Callable[[int, int], None] = no_report,
    approve: Approve | None = None,
    in_steps: bool = True,
) -> ImportOutcome: ...


def reconcile(
    chamber: Layout,
    desired: Mapping[Any, Any],
    *,
    report: Callable[[int, int], None] = no_report,
    approve: Approve | None = None,
    in_steps: bool = True,
) -> ImportOutcome:
    """Make the store's inventory the desired one. Users, workloads and everything outside the layout's root are not touched.

    One commit, which holds only if nobody changed any part of the inventory since it was read; after a lost race it reads and
    plans again. Where the engine's limits do not allow one commit, several: each guards every record that it writes, and at
    the end the inventory is read again and must be as desired. When such an import is cut off, running it again completes it.
    A part that goes takes its actual state along. Under the Go program's keys a record and its list key are always written by
    the same commit, and no view but the definition is touched.

    `report` is told how many of the changes are done. `approve` is given each plan before anything of it is written, and raises
    what the import then ends with. Raises InUseError where a blade would go, or become too small, that instances need; another
    ConflictError when other writers keep coming between; CorruptionError, before anything is written, when a stored record
    cannot be read; EngineLimitError for what is several commits, unless `in_steps`.
    """
    approve = approve or _approve_all
    try:
        outcome = _in_one_commit(chamber, desired, approve)
    except EngineLimitError as error:
        if not in_steps or not is_too_large(error):
            raise
        return _in_steps(chamber, desired, report, approve)
    total = len(outcome.plan.changes)
    report(total, total)
    return outcome


def stored_inventory(chamber: Layout, shape: InventoryShape[P]) -> dict[P, StoredRecord]:
    """Return every record of the inventory as it is stored, parts without a rack among them."""
    return {
        shape.place(table, found.key): StoredRecord(found.record, found)
        for table in shape.tables
        for found in chamber.view(table).entries(*shape.prefix)
    }


def _shape_of(chamber: Layout) -> InventoryShape[Any]:
    return cast("InventoryShape[Any]", GO_SHAPE if isinstance(chamber, CloudChamberGo) else DOCUMENT_SHAPE)


def _approve_all(_plan: ImportPlan, _commits: int) -> None:
    """Let anything be done."""


def _in_one_commit(chamber: Layout, desired: Mapping[Any, Any], approve: Approve) -> ImportOutcome:
    def work(transaction: Layout) -> tuple[ImportPlan, Layout]:
        plan = plan_import(stored_inventory(transaction, _shape_of(chamber)), desired)
        approve(plan, 0)
        write_changes(transaction, plan.changes, chamber)
        return plan, transaction

    plan, transaction = chamber.run(work)
    return ImportOutcome(plan, 0 if plan.is_empty else 1, transaction.revision)


def _in_steps(
    chamber: Layout, desired: Mapping[Any, Any], report: Callable[[int, int], None], approve: Approve
) -> ImportOutcome:
    first: ImportPlan | None = None
    commits = 0
    lost: ConflictError = CommitConflictError(problem="other writers keep changing the inventory")
    for _ in range(ROUNDS_MAX):
        with chamber.snapshot() as state:
            revision = state.revision
            plan = plan_import(stored_inventory(state, _shape_of(chamber)), desired)
        approve(plan, commits)
        first = first or plan
        if plan.is_empty:
            return ImportOutcome(first, commits, revision)
        units = [tuple(unit) for _, unit in groupby(plan.changes, key=lambda change: change.place.unit)]
        steps = Steps(units, lambda step: _write_step(chamber, step), report)
        try:
            steps.carry_out()
        except InUseError:
            raise
        except ConflictError as conflict:
            # Why: somebody else wrote a record between the plan and the step: plan again from what is there now.
            lost = conflict
        commits += steps.commits
    raise lost


def _write_step(chamber: Layout, step: tuple[ImportChange, ...]) -> None:
    with chamber.transaction() as transaction:
        write_changes(transaction, step, chamber)


def write_changes(transaction: Layout, changes: tuple[ImportChange, ...], chamber: Layout) -> None:
    """Write changes in a transaction that holds only if every record is still as the plan found it.

    `chamber` is what the transaction was begun on. Raises InUseError for a blade that instances need as it was.
    """
    for place, old, seen, new in changes:
        table = transaction.view(place.table)
        if isinstance(old, Blade):
            assert isinstance(place.key, BladeKey | GoBladeKey), "a blade stands at a blade's key"
            _require_room(transaction, place.key, old, new, chamber)
        if new is None:
            table.delete(place.key, expected_revision=seen)
            for actual in actual_beside(place.table, place.key):
                transaction.view(actual.table).delete(actual.key, damaged_ok=True)
        else:
            table.put(place.key, new, expected_revision=seen)


def _require_room(transaction: Any, key: BladeKey | GoBladeKey, old: Blade, new: Any, chamber: Any) -> None:
    # Why of one zone: targets name racks of that which is served.
    if isinstance(key, GoBladeKey) and key[:3] != SERVED_ZONE:
        return
    capacity = None if new is None else new.capacity or Capacity()
    require_capacity(chamber, transaction, BladeKey(key.rack, key.blade), capacity, before=old.capacity or Capacity())
