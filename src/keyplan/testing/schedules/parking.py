"""The engine that parks its caller: each call waits until the schedule lets it go, and leaves a footprint.

It controls every method of the engine contract. A method that the contract gets and this engine does not know is a
TypeError when this module is imported: a call that passed by would not be explored, and nobody would notice.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from keyplan.engine import (
    NO_LEASE,
    Commit,
    Delete,
    DeleteRange,
    Engine,
    Event,
    Fences,
    FencesHolder,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Lease,
    Lineage,
    Memory,
    Profile,
    Put,
    Snapshot,
    Watch,
)
from keyplan.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    HistoryCompactedError,
    InvalidInputError,
    KeyplanError,
)
from keyplan.testing.contract import controls
from keyplan.testing.schedules.footprint import (
    CLOCK,
    history_key,
    lease_ids_key,
    lease_key,
    placed_range,
    revision_key,
)
from keyplan.testing.schedules.snapshots import ParkingSnapshot, RecordedSnapshot
from keyplan.testing.schedules.steps import Parking, Step, failed, note
from keyplan.testing.schedules.watching import ParkingLease, ParkingWatch

__all__ = ["ParkingEngine"]

_LOAD_BATCH_ENTRIES: Final = 1_000
"""As the memory engine loads: each batch is one state, and so one step."""


@controls(Engine)
class ParkingEngine(Engine):
    """One actor's engine on a memory that all actors of a run share. Every call but `profile` and `close` parks."""

    def __init__(self, inner: Engine, memory: Memory, run: Parking, number: int) -> None:
        self.inner = inner
        self._memory = memory
        self.run = run
        self.number = number
        self._prefix = b"%c" % number

    @property
    def profile(self) -> Profile:
        return self.inner.profile

    def lineage(self) -> Lineage:
        # Why it does not park: no actor changes it.
        return self.inner.lineage()

    def snapshot(self) -> Snapshot:
        step = self.run.park("snapshot")
        inner = self.inner.snapshot()
        return (ParkingSnapshot if step.answers is None else RecordedSnapshot)(inner, step, self.run, self.number)

    def value(self, key: bytes) -> bytes | None:
        step = self.run.park("value", key)
        step.keys_read.add(self._prefix + key)
        value = self.inner.value(key)
        note(step, "value", key, value)
        return value

    def fenced_reader(
        self, prefix: bytes, holder: FencesHolder, otherwise: Callable[[bytes], bytes | None]
    ) -> Callable[[bytes], bytes | None]:
        return Engine.fenced_reader(self, prefix, holder, otherwise)  # Why: it reads by `fenced_value`.

    def fenced_snapshot(self, prefix: bytes, fences: Fences) -> None:
        """Return None: who wants one reads by `snapshot`."""

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        step = self.run.park("fenced_value", key)
        step.keys_read |= {self._prefix + read for read in (key, *[fence for fence, _ in fences])}
        answer = self.inner.fenced_value(key, fences)
        note(step, "fenced_value", key, answer)
        return answer

    def commit(self, commit: Commit) -> int:
        step = self.run.park("commit", commit)
        return self.carry_out(step, commit)

    def carry_out(self, step: Step, commit: Commit) -> int:
        """Do a commit that was let go, with the fault that is planned for it."""
        self._read(step, commit)
        if step.fault == "o":
            raise failed(step, CommitConflictError(failed=()))
        if step.fault == "n":
            raise failed(step, self._unknown(commit))
        try:
            revision = self._committed(step, commit)
        except KeyplanError as error:
            step.outcome = error
            raise
        if step.fault == "u":
            raise failed(step, self._unknown(commit))
        step.outcome = revision
        self.run.acknowledge(step, self.number, revision, commit)
        return revision

    def _committed(self, step: Step, commit: Commit) -> int:
        before = self._memory.revision
        revision = self.inner.commit(commit)
        if revision != before:
            self.run.revision_names[revision] = (step.actor, step.number)
            self._wrote(step, self._memory.history[revision])
        elif self.run.revisions_matter:
            # Why: it has changed nothing, and is told the latest revision, which others have made.
            step.keys_read.add(revision_key(self.number))
        return revision

    def _unknown(self, commit: Commit) -> CommitOutcomeUnknownError:
        return CommitOutcomeUnknownError(engine=self.profile.name, mutations=len(commit.mutations))

    def _read(self, step: Step, commit: Commit) -> None:
        """Join what a commit looks at: its guards, the leases it puts on, and what it deletes, which may not be there."""
        prefix = self._prefix
        for guard in commit.guards:
            _read_guard(step, guard, prefix, self.number)
        for mutation in commit.mutations:
            if isinstance(mutation, Delete):
                step.keys_read.add(prefix + mutation.key)
            elif isinstance(mutation, DeleteRange):
                step.ranges_read.append(placed_range(self.number, mutation.range))
            elif mutation.lease != NO_LEASE:
                step.keys_read.add(lease_key(self.number, mutation.lease))

    def _wrote(self, step: Step, events: Iterable[Event]) -> None:
        written = step.keys_written
        for event in events:
            written.add(self._prefix + event.key)
            old = NO_LEASE if event.previous is None else event.previous.lease
            new = NO_LEASE if event.entry is None else event.entry.lease
            if old != new:
                written.update(lease_key(self.number, lease) for lease in (old, new) if lease != NO_LEASE)
        if self.run.revisions_matter:
            written.add(revision_key(self.number))

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        # Why the contract's own: its parts are a snapshot and a commit, which park.
        return Engine.put_sorted(self, keys, values, guards=guards, overwrite=overwrite)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        loaded = 0
        pairs = iter(entries)
        last: bytes | None = None
        while batch := list(islice(pairs, _LOAD_BATCH_ENTRIES)):
            if last is not None and batch[0][0] <= last:
                raise InvalidInputError(source="load", problem="keys must ascend", raw_key=batch[0][0].hex())
            step = self.run.park("load", (batch[0][0], batch[-1][0]))
            step.keys_read.update(self._prefix + key for key, _ in batch)
            try:
                loaded += self.inner.load(batch)
            except KeyplanError as error:
                step.outcome = error
                raise
            step.outcome = revision = self._loaded(step)
            self.run.acknowledge(step, self.number, revision, Commit((), tuple(Put(*pair) for pair in batch)))
            last = batch[-1][0]
        return loaded

    def _loaded(self, step: Step) -> int:
        self._wrote(step, self._memory.history[self._memory.revision])
        return self._memory.revision

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        step = self.run.park("watch", key_range)
        step.keys_read.add(history_key(self.number))
        if step.fault == "h":
            raise failed(step, HistoryCompactedError(revision=after, compacted_revision=self._memory.revision))
        return ParkingWatch(self.inner.watch(key_range, after=after), key_range, self.run, (self.number, self._memory))

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        step = self.run.park("lease", resume)
        step.keys_read.add(CLOCK)
        if resume == NO_LEASE:
            inner = self.inner.lease(ttl_seconds)
            step.keys_written |= {lease_ids_key(self.number), lease_key(self.number, inner.id)}
        else:
            step.keys_read.add(lease_key(self.number, resume))
            inner = self.inner.lease(ttl_seconds, resume=resume)
        note(step, "lease", resume, inner.id)
        return ParkingLease(inner, self.run, (self.number, self._memory))

    def compact(self, revision: int) -> None:
        self._compact(self.run.park("compact", revision), revision)

    def compact_all_but(self, keep: int) -> None:
        """Forget all history but the latest `keep` revisions: looked at and done in one step."""
        step = self.run.park("compact", keep)
        self._compact(step, max(0, self._memory.revision - keep))

    def _compact(self, step: Step, revision: int) -> None:
        step.keys_read.add(revision_key(self.number))
        step.keys_written.add(history_key(self.number))
        self.inner.compact(revision)
        step.outcome = revision

    def close(self) -> None:
        self.inner.close()


def _read_guard(step: Step, guard: Guard, prefix: bytes, number: int) -> None:
    if isinstance(guard, KeyAbsent | KeyUnchanged):
        step.keys_read.add(prefix + guard.key)
    else:
        step.ranges_read.append(placed_range(number, guard.range))
