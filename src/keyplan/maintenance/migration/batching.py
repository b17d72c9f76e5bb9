"""Decisions about many units: read from one snapshot, carried out in as few commits as the engine takes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from keyplan.engine import Commit, Engine, KeyRange, ended_lease_is_conflict
from keyplan.errors import CommitConflictError, EngineLimitError
from keyplan.jobs import BATCH_KEYS_MAX, JOB_BYTES_MAX, CommitRoom, Lookup, Pace, batch_of, batches_of, halved, joined
from keyplan.maintenance.migration.marks import decoded, mark_range
from keyplan.maintenance.migration.merge import Contest, Decision, Outcome, Side
from keyplan.maintenance.migration.plan import MigrationPlan, TableWork
from keyplan.maintenance.migration.route import Route, units_of
from keyplan.maintenance.migration.run_state import Run
from keyplan.store import Backoff

__all__ = ["Batches", "Decider", "UnitBatch", "gone_batches", "unit_batches", "winner"]


class UnitBatch(NamedTuple):
    """Units of one source of a route, and the raw key behind the last that was looked at."""

    place: int
    units: Sequence[bytes]
    end: bytes


def unit_batches(
    engine: Engine, route: Route, *, start: bytes = b"", keys_max: int = BATCH_KEYS_MAX
) -> Iterator[UnitBatch]:
    """Yield the units of a route whose old records are there, batch by batch; of the first source from `start` on.

    No snapshot is open while the caller works.
    """
    for place, source in enumerate(route.sources):
        key_range = KeyRange(*source.keys.range(()))
        if place == 0:
            key_range = KeyRange(max(start, key_range.start), key_range.end)
        while not key_range.is_empty:
            with engine.snapshot() as snapshot:
                batch = batch_of(snapshot, key_range, keys_max)
                units = tuple(units_of(route, place, batch, Lookup(snapshot)))
            if not batch:
                break
            key_range = KeyRange(batch[-1].key + b"\x00", key_range.end)
            yield UnitBatch(place, units, key_range.start)


def gone_batches(engine: Engine, migration: bytes, route: Route) -> Iterator[Sequence[bytes]]:
    """Yield the units of a route that were carried over and have no old record any more, batch by batch."""
    for batch in batches_of(engine, mark_range(migration)):
        marked = [decoded(entry).key for entry in batch]
        own = {unit: route.source_keys(unit) for unit in marked if route.unit_of(unit) == unit}
        with engine.snapshot() as snapshot:
            read = Lookup(snapshot)
            read.fetch(raw_key for raw_keys in own.values() for raw_key in raw_keys)
            gone = [unit for unit, raw_keys in own.items() if all(read.get(raw_key) is None for raw_key in raw_keys)]
        yield gone


def winner(plan: MigrationPlan, work: TableWork) -> Side | None:
    """Which side a consent of the plan lets win where both have changed a record."""
    return next((side for side in Side if f"{side.value}:{work.name}" in plan.accepts), None)


class Decider(Protocol):
    """Says what to do about one record."""

    def keys_of(self, unit: bytes) -> list[bytes]:
        """The raw keys that a decision looks at first."""
        ...

    def decide(self, unit: bytes, read: Lookup) -> Decision:
        """Say what to do about a unit, from one snapshot. Pure: it may be asked several times."""
        ...


class Batches:
    """Decides about records, many in one snapshot, and commits what follows, many in one commit, for one run."""

    def __init__(self, run: Run, backoff: Backoff, pace: Pace | None = None) -> None:
        self._run = run
        self._pace = pace
        self._backoff = backoff

    def decide(self, decider: Decider, old_keys: Sequence[bytes]) -> list[Decision]:
        """Decide about each record and carry it out; in ever smaller batches where a writer came between."""
        decisions = self._looked(decider, old_keys)
        due = [(place, decision.commit) for place, decision in enumerate(decisions) if decision.commit is not None]
        for members, commit in joined([commit for _, commit in due], self._room):
            try:
                self._commit(commit)
            except (CommitConflictError, EngineLimitError):
                places = [due[member][0] for member in members]
                again = [old_keys[place] for place in places]
                for place, decision in zip(places, self._again(decider, again), strict=True):
                    decisions[place] = decision
        if self._pace is not None:
            self._pace.spend(len(old_keys), self._run.stops)
        return decisions

    def _looked(self, decider: Decider, old_keys: Sequence[bytes]) -> list[Decision]:
        """Decide about each record, in one snapshot."""
        engine = self._run.engine
        with engine.snapshot() as snapshot:
            read = Lookup(snapshot, is_near=engine.profile.has_local_reads)
            read.fetch(raw_key for old_key in old_keys for raw_key in decider.keys_of(old_key))
            return read.each(old_keys, lambda old_key: decider.decide(old_key, read))

    def _again(self, decider: Decider, old_keys: Sequence[bytes]) -> list[Decision]:
        def attempt(keys: Sequence[bytes]) -> list[Decision]:
            decisions = self._looked(decider, keys)
            commits = list(joined([found.commit for found in decisions if found.commit is not None], self._room))
            if len(commits) > 1:
                # Why: by halves they are one commit again, made whole or not at all.
                raise CommitConflictError(failed=())
            for _, commit in commits:
                self._commit(commit)
            return decisions

        def together(keys: Sequence[bytes]) -> list[Decision]:
            try:
                return attempt(keys)
            except EngineLimitError as error:
                # Why: one of them is too large for the engine, and by halves it is found.
                raise CommitConflictError(failed=()) from error

        def alone(old_key: bytes) -> Decision:
            try:
                return self._backoff.until_committed(lambda: attempt([old_key])[0])
            except CommitConflictError:
                reason = "other writers came between again and again"
            except EngineLimitError as error:
                limit, allowed, actual = (error.facts[name] for name in ("limit", "allowed", "actual"))
                reason = f"one commit of this engine does not take it: {limit} is {allowed}, not {actual}"
            return Decision(Outcome.CONTESTED, None, Contest(old_key, None, reason))

        return halved(old_keys, together, alone)

    @property
    def _room(self) -> CommitRoom:
        # Why: the run's state is guarded, and may be written, as well.
        return CommitRoom.of(self._run.engine.profile, operations=2, size=JOB_BYTES_MAX)

    def _commit(self, commit: Commit) -> None:
        with ended_lease_is_conflict():
            self._run.commit(commit.mutations, guards=commit.guards)
