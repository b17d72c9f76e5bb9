"""Bringing a store to an inventory: read, plan, write; in one commit where the engine takes it, else in guarded steps."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from keyplan.apps.cloudchamber.import_plan import ImportChange, ImportPlan, StoredRecord, plan_import
from keyplan.apps.cloudchamber.inventory import INVENTORY_TABLES, InventoryRecord, Place
from keyplan.apps.cloudchamber.layout import CloudChamber
from keyplan.errors import CommitConflictError, ConflictError, EngineLimitError

__all__ = ["ImportOutcome", "planned_import", "reconcile", "stored_inventory"]

COMMIT_LIMITS: Final = ("commit_operations_max", "commit_bytes_max")
STEP_CHANGES_FIRST: Final = 1_024
"""Why: halved until the engine takes it: three refusals, which cost nothing, come to etcd's 128 operations."""
ROUNDS_MAX: Final = 8
"""Why: a round starts again only when another writer came between; eight in a row is somebody who imports something else."""


class ImportOutcome(NamedTuple):
    """What an import did: the plan it began with, how many commits it made, and the store's revision after the last."""

    plan: ImportPlan
    commits: int
    revision: int


def _no_report(_done: int, _total: int) -> None:
    """Report to nobody."""


def planned_import(chamber: CloudChamber, desired: Mapping[Place, InventoryRecord]) -> ImportPlan:
    """Return what `reconcile` would write, and write nothing."""
    with chamber.snapshot() as state:
        return plan_import(stored_inventory(state), desired)


def reconcile(
    chamber: CloudChamber,
    desired: Mapping[Place, InventoryRecord],
    *,
    report: Callable[[int, int], None] = _no_report,
) -> ImportOutcome:
    """Make the store's inventory the desired one. Users, workloads and everything outside the layout's root are not touched.

    One commit, which holds only if nobody changed any part of the inventory since it was read; after a lost race it reads and
    plans again. Where the engine's limits do not allow one commit, several: each guards every record that it writes, and at
    the end the inventory is read again and must be as desired. When such an import is cut off, running it again completes it.

    `report` is told how many of the changes are done. Raises a ConflictError when other writers keep coming between, and
    CorruptionError, before anything is written, when a stored record cannot be read.
    """
    try:
        outcome = _in_one_commit(chamber, desired)
    except EngineLimitError as error:
        if error.facts.get("limit") not in COMMIT_LIMITS:
            raise
        return _in_steps(chamber, desired, report)
    total = len(outcome.plan.changes)
    report(total, total)
    return outcome


def stored_inventory(chamber: CloudChamber) -> dict[Place, StoredRecord]:
    """Return every record of the inventory as it is stored, parts without a rack among them."""
    return {
        Place(table, found.key): StoredRecord(found.record, found.revision)
        for table in INVENTORY_TABLES
        for found in chamber.view(table).entries()
    }


def _in_one_commit(chamber: CloudChamber, desired: Mapping[Place, InventoryRecord]) -> ImportOutcome:
    def work(transaction: CloudChamber) -> tuple[ImportPlan, CloudChamber]:
        plan = plan_import(stored_inventory(transaction), desired)
        _write(transaction, plan.changes)
        return plan, transaction

    plan, transaction = chamber.run(work)
    return ImportOutcome(plan, 0 if plan.is_empty else 1, transaction.revision)


def _in_steps(
    chamber: CloudChamber, desired: Mapping[Place, InventoryRecord], report: Callable[[int, int], None]
) -> ImportOutcome:
    first: ImportPlan | None = None
    commits = 0
    lost: ConflictError = CommitConflictError(problem="other writers keep changing the inventory")
    for _ in range(ROUNDS_MAX):
        with chamber.snapshot() as state:
            revision = state.revision
            plan = plan_import(stored_inventory(state), desired)
        first = first or plan
        if plan.is_empty:
            return ImportOutcome(first, commits, revision)
        steps = _Steps(chamber, plan.changes, report)
        try:
            steps.carry_out()
        except ConflictError as conflict:
            # Why: somebody else wrote a record between the plan and the step: plan again from what is there now.
            lost = conflict
        commits += steps.commits
    raise lost


class _Steps:
    """Carries changes out in order, as many at a time as the engine takes."""

    def __init__(
        self, chamber: CloudChamber, changes: tuple[ImportChange, ...], report: Callable[[int, int], None]
    ) -> None:
        self._chamber = chamber
        self._changes = changes
        self._report = report
        self.commits = 0

    def carry_out(self) -> None:
        done, size = 0, STEP_CHANGES_FIRST
        while done < len(self._changes):
            step = self._changes[done : done + size]
            try:
                with self._chamber.transaction() as transaction:
                    _write(transaction, step)
            except EngineLimitError as error:
                if len(step) == 1 or error.facts.get("limit") not in COMMIT_LIMITS:
                    raise
                size = len(step) // 2
                continue
            self.commits += 1
            done += len(step)
            self._report(done, len(self._changes))


def _write(transaction: CloudChamber, changes: tuple[ImportChange, ...]) -> None:
    for place, _, revision, new in changes:
        table = transaction.view(place.table)
        if new is None:
            table.delete(place.key, expected_revision=revision)
        else:
            table.put(place.key, new, expected_revision=revision)
