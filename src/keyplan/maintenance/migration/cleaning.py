"""The clean-up of a migration: what only the old layout knows is removed, after everything was verified once more.

An old record is removed in a commit that is guarded by its being what was carried over: one that was written since is carried
over first, and one that cannot be is left and reported.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec import structs

from keyplan.engine import Commit, Delete, Entry, KeyRange, Put
from keyplan.errors import CommitConflictError, MigrationRefusedError
from keyplan.layout import BoundIndex, BoundTable
from keyplan.maintenance.batches import operations_max
from keyplan.maintenance.check import batch_of
from keyplan.maintenance.migration.batching import Batches
from keyplan.maintenance.migration.driver import MigrationProgress, move_counter, remove_marks, require_state
from keyplan.maintenance.migration.marks import (
    as_read,
    encoded,
    read_state,
)
from keyplan.maintenance.migration.merge import Contest, Merger, Outcome
from keyplan.maintenance.migration.plan import MigrationPlan, TableWork
from keyplan.maintenance.migration.removal import Remover
from keyplan.maintenance.migration.verify import Verification, verify_table
from keyplan.store import Backoff, IndexStage, IndexState, Store, index_state_key, index_state_value

__all__ = ["CleanUpReport", "clean_up_migration"]

_CONTESTS_MAX: Final = 100

_RECORD_AND_MARK: Final = 2


@dataclass
class CleanUpReport:
    """What was removed: old records, index entries, other keys. `left`: what could not be. `is_cleaned`: nothing is left."""

    records: int = 0
    entries: int = 0
    numbers: int = 0
    left: list[Contest] = field(default_factory=list)
    verified: list[Verification] = field(default_factory=list)
    is_cleaned: bool = False


def clean_up_migration(
    store: Store,
    plan: MigrationPlan,
    *,
    progress: Callable[[MigrationProgress], None] | None = None,
    backoff: Backoff | None = None,
) -> CleanUpReport:
    """Remove what only the old layout knows: moved records, entries of indexes that went, dropped tables, marks.

    To be called when no program needs the old layout any more, and after `migrate(is_switched=True)` settled everything, which
    is verified again. Killed at any moment, it goes on when it is called again. Raises MigrationRefusedError when the migration
    is not settled or the plan has obstacles, EngineError, CommitOutcomeUnknownError.
    """
    if plan.obstacles:
        raise MigrationRefusedError(obstacles=plan.obstacles)
    return _Cleaning(store, plan, progress, backoff or Backoff()).run()


class _Cleaning:
    def __init__(
        self,
        store: Store,
        plan: MigrationPlan,
        progress: Callable[[MigrationProgress], None] | None,
        backoff: Backoff,
    ) -> None:
        self._engine, self._plan = store.engine, plan
        self._progress = progress
        self._backoff = backoff
        self._report = CleanUpReport()
        self._done = 0

    def run(self) -> CleanUpReport:
        """Clean up."""
        _, state = require_state(self._engine, self._plan)
        if state.is_cleaned or not self._plan.steps:
            self._remove_marks()
            return self._report
        moved = [work for work in self._plan.tables if work.is_moving]
        self._report.verified = [verify_table(self._engine, self._plan.id, work) for work in moved]
        unequal = [found.table for found in self._report.verified if not found.is_equal]
        if not state.is_settled or unequal:
            problem = f"not everything of {', '.join(unequal)} was carried over" if unequal else "it is not settled"
            raise MigrationRefusedError(obstacles=(f"{problem}: run the migration with --switched first",))
        for work in moved:
            self._remove_records(work)
        for name in self._plan.indexes_to_remove:
            self._remove_index(self._plan.old.indexes[name])
        for name in self._plan.tables_to_remove:
            self._report.records += self._swept(self._plan.old.tables[name])
        self._remove_numbers()
        if not self._report.left:
            self._finish()
        return self._report

    # ---- records -----------------------------------------------------------------------------------------------------------

    def _remove_records(self, work: TableWork) -> None:
        merger = Merger(self._plan.id, work.converter, is_switched=True)
        remover = Remover(self._plan.id, work.converter)
        batches = Batches(self._engine, self._backoff)
        for batch in self._batches(work.old_range):
            keys = [entry.key for entry in batch if work.converter.old.keys.decode(entry.key) is not None]
            # Why first: what was written since it was verified is carried over.
            carried = batches.decide(merger, keys)
            settled = [key for key, decision in zip(keys, carried, strict=True) if decision.contest is None]
            for decision in (*(found for found in carried if found.contest), *batches.decide(remover, settled)):
                if decision.contest is not None:
                    self._leave(decision.contest)
                elif decision.outcome is Outcome.REMOVED and decision.commit is not None:
                    self._report.records += 1
                    self._report.entries += len(decision.commit.mutations) - _RECORD_AND_MARK
            self._tell(work.name, len(keys))

    # ---- indexes, tables, numbers ------------------------------------------------------------------------------------------

    def _remove_index(self, index: BoundIndex) -> None:
        """Refuse whoever still reads by it, and remove its entries."""
        raw_key = index_state_key(index)
        own = {index_state_key(other) for other in self._plan.new.indexes.values()}
        if raw_key not in own:
            # Why it stays: a program of the old layout that comes back must not be told that there is nothing.
            value = index_state_value(IndexState(IndexStage.WRITE_ONLY, self._plan.old.fingerprint))
            self._engine.commit(Commit((), (Put(raw_key, value),)))
        self._report.entries += self._swept(index)

    def _swept(self, item: BoundTable | BoundIndex) -> int:
        """Remove every key of an item that the new layout does not know; return how many."""
        removed = 0
        for batch in self._batches(KeyRange(*item.keys.range(()))):
            own = [
                entry.key
                for entry in batch
                if item.keys.decode(entry.key) is not None and not self._plan.new.meanings(entry.key)
            ]
            most = operations_max(self._engine.profile)
            for start in range(0, len(own), most):
                self._engine.commit(Commit((), tuple(map(Delete, own[start : start + most]))))
            removed += len(own)
            self._tell(item.name, len(own))
        return removed

    def _remove_numbers(self) -> None:
        for old_name, new_name in self._plan.counters_to_move:
            self._backoff.until_committed(partial(self._counter_removed, old_name, new_name))
        for name in self._plan.counters_to_remove:
            self._engine.commit(Commit((), (Delete(self._plan.old.counters[name].raw_key),)))
            self._report.numbers += 1

    def _counter_removed(self, old_name: str, new_name: str) -> None:
        move_counter(self._engine, self._plan, old_name, new_name)
        raw_key = self._plan.old.counters[old_name].raw_key
        with self._engine.snapshot() as snapshot:
            entry, new = snapshot.get_many([raw_key, self._plan.new.counters[new_name].raw_key])
        if entry is None:
            return
        if new is None or self._plan.new.counters[new_name].decode(new.value) < self._plan.old.counters[
            old_name
        ].decode(entry.value):
            raise CommitConflictError(failed=())
        self._engine.commit(Commit((as_read(raw_key, entry),), (Delete(raw_key),)))
        self._report.numbers += 1

    # ---- the end -----------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Write down that the migration is over, then remove the marks: what is left of it is one small entry."""

        def over() -> None:
            entry, state = read_state(self._engine, self._plan.id)
            assert entry is not None
            assert state is not None
            put = Put(entry.key, encoded(structs.replace(state, is_cleaned=True)))
            self._engine.commit(Commit((as_read(entry.key, entry),), (put,)))

        self._backoff.until_committed(over)
        self._remove_marks()

    def _remove_marks(self) -> None:
        remove_marks(self._engine, self._plan.id)
        self._report.is_cleaned = True

    def _batches(self, key_range: KeyRange) -> Iterator[list[Entry]]:
        while not key_range.is_empty:
            with self._engine.snapshot() as snapshot:
                batch = batch_of(snapshot, key_range)
            if not batch:
                return
            yield batch
            key_range = KeyRange(batch[-1].key + b"\x00", key_range.end)

    def _leave(self, contest: Contest) -> None:
        if len(self._report.left) < _CONTESTS_MAX:
            self._report.left.append(contest)

    def _tell(self, item: str, records: int) -> None:
        self._done += records
        if self._progress is not None:
            self._progress(MigrationProgress("removing", item, self._done))
