"""What a run, a clean-up and a rollback of a migration work with, and what they have in common."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, Self, TypeVar

from keyplan.engine import Engine
from keyplan.jobs import Pace, Progress, Seen, Stop, StopCheck, Teller, YieldingPace
from keyplan.maintenance.migration.batching import Batches, gone_batches
from keyplan.maintenance.migration.decision import CONTESTS_MAX, Contest, Decision
from keyplan.maintenance.migration.marks import MigrationState, Stage, mark_key
from keyplan.maintenance.migration.merge import Merger
from keyplan.maintenance.migration.new_entries import EntryGiver, new_batches
from keyplan.maintenance.migration.pausing import PauseCheck
from keyplan.maintenance.migration.plan import MigrationPlan, TableWork
from keyplan.maintenance.migration.root_history import NOTHING_REMEMBERED, Remembered
from keyplan.maintenance.migration.run_state import Run, take_over
from keyplan.maintenance.migration.unit_limits import Limits
from keyplan.maintenance.migration.verify import Verification, verify_held_keys, verify_table
from keyplan.store import Backoff, Store

__all__ = ["RunContext"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class RunContext:
    """A store and a plan, how fast and until when, whom to tell: as the caller gave it."""

    store: Store
    plan: MigrationPlan
    stops: StopCheck
    command: Sequence[str]
    tell: Teller
    pace: Pace
    backoff: Backoff

    @classmethod
    def of(
        cls,
        act: str,
        store: Store,
        plan: MigrationPlan,
        *,
        stop: Stop | None,
        command: Sequence[str],
        progress: Callable[[Progress], None] | None,
        pace: Pace | None,
        backoff: Backoff | None,
    ) -> Self:
        """The context of an act, named as in "the clean-up of the migration", of what its caller gave."""
        stops = PauseCheck(store.engine, plan.id, stop, act)
        return cls(
            store, plan, stops, command, Teller(progress), pace or YieldingPace(store.engine), backoff or Backoff()
        )

    @property
    def engine(self) -> Engine:
        """The store's."""
        return self.store.engine

    @property
    def moving(self) -> list[TableWork]:
        """The work on tables whose records get other keys."""
        return [work for work in self.plan.tables if work.is_moving]

    def until_committed(self, attempt: Callable[P, R], *given: P.args, **named: P.kwargs) -> R:
        """Call until it loses no race; then return what it returned."""
        return self.backoff.until_committed(partial(attempt, *given, **named))

    def taken_over(self, seen: Seen[MigrationState], stage: Stage, remembered: Remembered = NOTHING_REMEMBERED) -> Run:
        """Let this process have the migration, as it was seen, and write down what is remembered with it.

        Raises StoppedError, CommitConflictError.
        """
        self.stops.check()
        return take_over(self.engine, seen, stage, self.command, self.stops, self.pace, remembered)

    def batches(self, run: Run, *, is_counted: bool = True) -> Batches:
        """Who decides about many records, and commits what follows, for a run."""
        return Batches(run, self.backoff, is_counted=is_counted)

    def merger(self, work: TableWork, *, is_switched: bool) -> Merger:
        """Who decides about the units of a table."""
        limits = Limits.of(self.engine.profile)
        return Merger(self.plan.id, work.route, limits, self.plan.accepts, is_switched=is_switched)

    def gone(self, work: TableWork, merger: Merger, batches: Batches) -> Iterator[list[Decision]]:
        """Carry over that old records are not there any more, batch by batch. Raises StoppedError."""
        for found in self.stops.each(gone_batches(self.engine, self.plan.id, work.route)):
            yield [*batches.decide(merger, found.units), *found.unreadable]

    def given_entries(self, work: TableWork, batches: Batches) -> Iterator[Decision]:
        """Give new records the entries that an old program has taken along with its own, once none writes any more."""
        for keys in self.stops.each(new_batches(self.engine, work.route)):
            yield from batches.decide(EntryGiver(work.route), keys)

    def leave(self, left: list[Contest], contest: Contest | None) -> None:
        """Add what a person must decide to a report's, each once: a mark that cannot be read is met with its record as well."""
        if contest is not None and len(left) < CONTESTS_MAX:
            known = {key for one in left for key in (one.old_key, mark_key(self.plan.id, one.old_key))}
            if contest.old_key not in known:
                left.append(contest)

    def verified(self) -> list[Verification]:
        """Compare both sides of everything that moves, and look for keys that values hold. Raises StoppedError."""
        return [
            *(verify_table(self.engine, self.plan.id, work, self.stops, self.pace) for work in self.moving),
            *verify_held_keys(self.engine, self.plan, self.stops),
        ]
