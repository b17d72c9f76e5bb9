"""Repairs of what a check found: planned as plain data, printed, then carried out, each as one guarded commit.

The records are the truth: a repair writes and removes index entries. It never touches a record or a counter. What the records
do not decide is listed and left, with the command that mends it. A repair that fails stops no other.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from keyplan.engine import Commit, Delete, Entry, Guard, KeyAbsent, KeyUnchanged, Put, Snapshot, ended_lease_is_conflict
from keyplan.errors import (
    CommitConflictError,
    CorruptionError,
    EngineLimitError,
    KeyplanError,
    RecordError,
)
from keyplan.jobs import Lookup
from keyplan.layout import BoundLayout, Layout, bound_layout_of
from keyplan.maintenance.examine import Examiner, primary_of
from keyplan.maintenance.findings import Finding, FindingKind
from keyplan.store import Backoff, Store, index_entries_of

__all__ = ["Outcome", "Repair", "RepairResult", "carry_out", "plan_repairs"]


@dataclass(frozen=True, slots=True)
class Repair:
    """What to do about a finding, as of the moment of planning. Without a commit, a person must decide."""

    finding: Finding
    commit: Commit | None

    @property
    def needs_decision(self) -> bool:
        """Whether the records do not say what to do."""
        return self.commit is None

    @property
    def what(self) -> str:
        """What would be done, in a sentence; where a person must decide, what to choose from."""
        return _ACTIONS.get(self.finding.kind) or f"not repaired: {self.finding.kind.advice}"


_ACTIONS = {
    FindingKind.MISSING_ENTRY: "write the entry, as the record calls for it",
    FindingKind.WRONG_ENTRY: "let the entry point at the record that calls for it",
    FindingKind.ENTRY_LEASE: "put the entry on its record's lease",
    FindingKind.DANGLING_ENTRY: "remove the entry",
    FindingKind.STALE_ENTRY: "remove the entry",
    FindingKind.DAMAGED_ENTRY: "remove the entry",
}


class RepairResult(Enum):
    """How a repair ended."""

    REPAIRED = "repaired"
    GONE = "gone"
    """There was nothing left to repair: somebody wrote the record since, or another repair took care of it."""
    LEFT = "left"
    """It needs a decision."""
    CONTENDED = "contended"
    """Every try lost a race against other writers; nothing was written."""
    FAILED = "failed"
    """The engine refused the write, as for a limit; nothing was written. The outcome's `error` says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A repair, how it ended, the revision of its commit (0: none), and the error of one that failed."""

    repair: Repair
    result: RepairResult
    revision: int = 0
    error: KeyplanError | None = None


def plan_repairs(store: Store, layout: Layout | BoundLayout, findings: Iterable[Finding]) -> list[Repair]:
    """Return what to do about each finding that is still there, and write nothing.

    A plan is for reading: `carry_out` looks again before it writes.
    """
    examiner = Examiner(bound_layout_of(layout), key_bytes_max=store.engine.profile.key_bytes_max)
    repairs: list[Repair] = []
    for finding in findings:
        with store.engine.snapshot() as snapshot:
            repair = _repair_now(examiner, finding, snapshot)
        if repair is not None:
            repairs.append(repair)
    return repairs


def carry_out(
    store: Store, layout: Layout | BoundLayout, repairs: Iterable[Repair], *, backoff: Backoff | None = None
) -> Iterator[Outcome]:
    """Carry out repairs one by one, as the outcomes are taken.

    Each is planned anew from a fresh snapshot and sent as one commit, whose guards say that the record and the entry are as
    they were read. So it cannot race a writer: when one came between, nothing is written and the repair looks again, with
    growing waits, at most COMMIT_RETRIES_MAX times. What is in the way of one repair is told in its outcome and stops no other.
    Raises EngineError when the store cannot be reached, CommitOutcomeUnknownError.
    """
    examiner = Examiner(bound_layout_of(layout), key_bytes_max=store.engine.profile.key_bytes_max)
    waits = backoff if backoff is not None else Backoff()
    for repair in repairs:
        if repair.needs_decision:
            yield Outcome(repair, RepairResult.LEFT)
            continue
        try:
            yield waits.until_committed(partial(_attempt, store, examiner, repair))
        except CommitConflictError:
            yield Outcome(repair, RepairResult.CONTENDED)
        except (CorruptionError, EngineLimitError, RecordError) as error:
            yield Outcome(repair, RepairResult.FAILED, error=error)


def _attempt(store: Store, examiner: Examiner, repair: Repair) -> Outcome:
    with store.engine.snapshot() as snapshot:
        now = _repair_now(examiner, repair.finding, snapshot)
    if now is None:
        return Outcome(repair, RepairResult.GONE)
    if now.commit is None:
        return Outcome(now, RepairResult.LEFT)
    with ended_lease_is_conflict():
        return Outcome(now, RepairResult.REPAIRED, store.engine.commit(now.commit))


def _repair_now(examiner: Examiner, finding: Finding, snapshot: Snapshot) -> Repair | None:
    """What is to be done now; None when nothing is wrong there any more.

    Why not only the finding's own kind: an entry that pointed elsewhere may be missing by now, and is still to be put right.
    """
    read = Lookup(snapshot)
    origin = read.get(finding.origin)
    if origin is None:
        return None
    found = examiner.examine([origin], read)
    same_place = [now for now in found if (now.raw_key, now.record_key) == (finding.raw_key, finding.record_key)]
    if not same_place:
        return None
    now = next((other for other in same_place if other.kind is finding.kind), same_place[0])
    return Repair(now, _commit_of(examiner.layout, now, read))


def _commit_of(bound: BoundLayout, finding: Finding, read: Lookup) -> Commit | None:
    entry = read.get(finding.raw_key)
    match finding.kind:
        case FindingKind.MISSING_ENTRY | FindingKind.WRONG_ENTRY | FindingKind.ENTRY_LEASE:
            return _put_entry(bound, finding, entry, read)
        case FindingKind.DANGLING_ENTRY | FindingKind.STALE_ENTRY | FindingKind.DAMAGED_ENTRY:
            keys = [finding.raw_key] if finding.record_key is None else [finding.raw_key, finding.record_key]
            return Commit(tuple(_as_read(key, read) for key in keys), (Delete(finding.raw_key),), read.epoch)
        case _:
            return None


def _put_entry(bound: BoundLayout, finding: Finding, entry: Entry | None, read: Lookup) -> Commit:
    record_key = finding.record_key
    assert record_key is not None
    record = read.get(record_key)
    assert record is not None
    meaning = bound.meanings(record_key)[0]
    table = bound.table(str(meaning.item))
    index_entry = index_entries_of(table, meaning.key, table.form.decode(record.value))[finding.raw_key]
    guarded = [record_key, finding.raw_key]
    if entry is not None and entry.value != index_entry.raw_value:
        # Why: that the other record, where there is one, does not call for the entry must still hold.
        other = primary_of(index_entry.source, entry)
        if other is not None and other[1] != record_key:
            guarded.append(other[1])
    put = Put(finding.raw_key, index_entry.raw_value, record.lease)
    return Commit(tuple(_as_read(key, read) for key in guarded), (put,), read.epoch)


def _as_read(raw_key: bytes, read: Lookup) -> Guard:
    entry = read.get(raw_key)
    return KeyAbsent(raw_key) if entry is None else KeyUnchanged(raw_key, entry.mod_revision)
