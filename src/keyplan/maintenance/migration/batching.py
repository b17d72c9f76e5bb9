"""Decisions about many units: read from one snapshot, carried out in as few commits as the engine takes."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from keyplan.engine import Commit, Engine, KeyRange, ended_lease_is_conflict
from keyplan.errors import CommitConflictError, CorruptionError, EngineLimitError
from keyplan.jobs import BATCH_KEYS_MAX, JOB_BYTES_MAX, CommitRoom, Lookup, batch_of, batches_of, halved, joined
from keyplan.layout import shown_key
from keyplan.maintenance.migration.decision import Decision, contested
from keyplan.maintenance.migration.marks import mark_range, marks_in
from keyplan.maintenance.migration.route import Route, units_of
from keyplan.maintenance.migration.run_state import Run
from keyplan.store import Backoff

__all__ = ["Batches", "Decider", "MarkedBatch", "UnitBatch", "gone_batches", "marked_batches", "unit_batches"]


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


class MarkedBatch(NamedTuple):
    """Units of a route that have a mark, and what is said of marks that cannot be read, of whatever unit."""

    units: Sequence[bytes]
    unreadable: Sequence[Decision]


def marked_batches(
    engine: Engine, migration: bytes, route: Route, *, only_pending: bool = False, keys_max: int = BATCH_KEYS_MAX
) -> Iterator[MarkedBatch]:
    """Yield the units of a route that have a mark, batch by batch; with `only_pending` those that were left as they are."""
    for batch in batches_of(engine, mark_range(migration), keys_max):
        marks, unreadable = marks_in(batch)
        due = [mark.key for mark in marks if mark.is_pending or not only_pending]
        own = [unit for unit in due if route.unit_of(unit) == unit]
        yield MarkedBatch(own, [_unreadable(raw_key) for raw_key in unreadable])


def gone_batches(engine: Engine, migration: bytes, route: Route) -> Iterator[MarkedBatch]:
    """Yield the units of a route that were carried over and have no old record any more, batch by batch."""
    for batch in marked_batches(engine, migration, route):
        own = {unit: route.source_keys(unit) for unit in batch.units}
        with engine.snapshot() as snapshot:
            read = Lookup(snapshot)
            read.fetch(raw_key for raw_keys in own.values() for raw_key in raw_keys)
            gone = [unit for unit, raw_keys in own.items() if all(read.get(raw_key) is None for raw_key in raw_keys)]
        yield MarkedBatch(gone, batch.unreadable)


def _unreadable(raw_key: bytes) -> Decision:
    """A mark that cannot be read does not even say of which record it is.

    Why it is told: an old program may have deleted that record, and nobody would take the deletion over.
    """
    problem = "the mark of a record cannot be read, and nobody can tell what was done to the record since"
    remedy = f"see that it is there or not, and as it is to be, then `keyplan raw delete {shown_key(raw_key)}`"
    return contested(raw_key, None, f"{problem}: {remedy}")


class Decider(Protocol):
    """Says what to do about one record."""

    def keys_of(self, unit: bytes) -> list[bytes]:
        """The raw keys that a decision looks at first."""
        ...

    def decide(self, unit: bytes, read: Lookup) -> Decision:
        """Say what to do about a unit, from one snapshot. Pure: it may be asked several times."""
        ...


class Batches:
    """Decides about records, many in one snapshot, and commits what follows, many in one commit, for one run, at its pace.

    `is_counted`: its records count for a pace of so many a second; others do so when they are decided about again.
    """

    def __init__(self, run: Run, backoff: Backoff, *, is_counted: bool = True) -> None:
        self._run = run
        self._backoff = backoff
        self._is_counted = is_counted

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
        self._run.pace.spend(len(old_keys) if self._is_counted else 0, self._run.stops)
        return decisions

    def _looked(self, decider: Decider, old_keys: Sequence[bytes]) -> list[Decision]:
        """Decide about each record, in one snapshot."""
        engine = self._run.engine
        with engine.snapshot() as snapshot:
            read = Lookup(snapshot, is_near=engine.profile.has_local_reads)
            read.fetch(raw_key for old_key in old_keys for raw_key in decider.keys_of(old_key))
            return read.each(old_keys, partial(_decided, decider, read))

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
            return contested(old_key, None, reason)

        return halved(old_keys, together, alone)

    @property
    def _room(self) -> CommitRoom:
        # Why: the run's state is guarded, and may be written, as well.
        return CommitRoom.of(self._run.engine.profile, operations=2, size=JOB_BYTES_MAX)

    def _commit(self, commit: Commit) -> None:
        with ended_lease_is_conflict():
            self._run.commit(commit.mutations, guards=commit.guards)


def _decided(decider: Decider, read: Lookup, unit: bytes) -> Decision:
    """What a decider says; what it cannot even look at is left to a person, and holds up no other."""
    try:
        return decider.decide(unit, read)
    except CorruptionError as error:
        return contested(unit, None, str(error.facts.get("problem", error.summary)))
