"""What a refused commit means to the caller: the error about its own words instead of a failed guard or a bare limit."""

from collections.abc import Callable, Mapping, Set

from keyplan.engine import Commit, Entry, FailedGuard, KeyAbsent, KeyUnchanged, Profile, Put, Snapshot
from keyplan.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ConflictError,
    EngineLimitError,
    StaleRecordError,
)
from keyplan.store.plan import IndexEntry, Write, unique_violation

__all__ = ["explain_conflict", "explain_limit"]


def explain_conflict(
    conflict: CommitConflictError,
    writes: Mapping[bytes, Write],
    read_set: Set[bytes],
    snapshot: Callable[[], Snapshot],
) -> ConflictError:
    """Return the error for a conflict that nobody will retry.

    Where the caller said what it expects (insert: absent; a revision; a unique entry that is free), the answer is in these
    terms. Where a guard failed that came from a read, another try may decide otherwise: the conflict itself is returned, with
    the table, key and index of the caller's write that it is about.
    """
    failures = conflict.facts.get("failed", ())
    assert isinstance(failures, tuple)
    if any(failure.key in read_set for failure in failures):
        return conflict
    for failure in failures:
        write = writes.get(failure.key)
        told = _about_record(failure, write) if write is not None else _about_entry(failure, writes, snapshot)
        if told is not None:
            return told
    for failure in failures:
        place = _place(failure.key, writes) if failure.key is not None else {}
        if "table" in place:
            return CommitConflictError(**{**conflict.facts, **place})
    return conflict


def _about_record(failure: FailedGuard, write: Write) -> ConflictError | None:
    if write.is_insert:
        return AlreadyExistsError(table=write.table.name, key=write.key, revision=failure.actual_revision)
    if write.expected_revision is not None:
        return StaleRecordError(
            table=write.table.name,
            key=write.key,
            expected_revision=write.expected_revision,
            actual_revision=failure.actual_revision,
        )
    return None


def _about_entry(
    failure: FailedGuard, writes: Mapping[bytes, Write], snapshot: Callable[[], Snapshot]
) -> ConflictError | None:
    """The error of a unique entry that was free, or the record's own, and that another record holds now."""
    if not isinstance(failure.guard, (KeyAbsent, KeyUnchanged)):
        return None
    index_entry = _index_entry_at(failure.guard.key, writes)
    if index_entry is None:
        return None
    with snapshot() as state:
        entry = state.get(failure.guard.key)
    if entry is None or entry.value == index_entry.raw_value or _is_given_up(entry, writes):
        return None  # Why: it is free again, or ours: another try would go through.
    return unique_violation(index_entry.source, failure.guard.key, entry.value)


def _is_given_up(entry: Entry, writes: Mapping[bytes, Write]) -> bool:
    """Whether the entry points at a record that gives it up in this very commit."""
    return any(
        write.old is not None
        and (write.new is None or entry.key not in write.new.index_entries)
        and (index_entry := write.old.index_entries.get(entry.key)) is not None
        and index_entry.raw_value == entry.value
        for write in writes.values()
    )


def _index_entry_at(raw_key: bytes, writes: Mapping[bytes, Write]) -> IndexEntry | None:
    for write in writes.values():
        if write.new is not None and raw_key in write.new.index_entries:
            return write.new.index_entries[raw_key]
    return None


def explain_limit(
    error: EngineLimitError, commit: Commit, profile: Profile, writes: Mapping[bytes, Write]
) -> EngineLimitError:
    """Return the limit error with the table and key whose write exceeds it, where it is about one of them."""
    for mutation in commit.mutations:
        if isinstance(mutation, Put) and (
            _is_over(profile.key_bytes_max, mutation.key) or _is_over(profile.value_bytes_max, mutation.value)
        ):
            return EngineLimitError(**{**error.facts, **_place(mutation.key, writes)})
    tables = sorted({write.table.name for write in writes.values()})
    counted = {"records": len(writes), "guards": len(commit.guards), "mutations": len(commit.mutations)}
    return EngineLimitError(**{**error.facts, "tables": tables, **counted})


def _is_over(bytes_max: int | None, raw: bytes) -> bool:
    return bytes_max is not None and len(raw) > bytes_max


def _place(raw_key: bytes, writes: Mapping[bytes, Write]) -> dict[str, object]:
    for write in writes.values():
        if raw_key == write.raw_key:
            return {"table": write.table.name, "key": write.key}
        for state in (write.new, write.old):
            if state is not None and raw_key in state.index_entries:
                return {"table": write.table.name, "key": write.key, "index": state.index_entries[raw_key].source.name}
    return {"raw_key": raw_key.hex()}
