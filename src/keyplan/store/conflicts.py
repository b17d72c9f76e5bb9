"""What a refused commit means to the caller: the error about its own words instead of a failed guard or a bare limit."""

from collections.abc import Callable, Mapping, Set

from keyplan.engine import Commit, FailedGuard, KeyAbsent, Profile, Put, Snapshot
from keyplan.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ConflictError,
    EngineLimitError,
    StaleRecordError,
)
from keyplan.store.plan import Pointer, Write, unique_violation

__all__ = ["telling_conflict", "telling_limit"]


def telling_conflict(
    conflict: CommitConflictError,
    writes: Mapping[bytes, Write],
    premises: Set[bytes],
    snapshot: Callable[[], Snapshot],
) -> ConflictError:
    """Return the error for a conflict that nobody will retry.

    Where the caller said what it expects (insert: absent; a revision; a unique entry that is free), the answer is in these
    terms. Where a guard failed that came from a read, another try may decide otherwise: the conflict itself is returned.
    """
    failures = conflict.facts.get("failed", ())
    assert isinstance(failures, tuple)
    if any(failure.key in premises for failure in failures):
        return conflict
    for failure in failures:
        write = writes.get(failure.key)
        told = _about_record(failure, write) if write is not None else _about_entry(failure, writes, snapshot)
        if told is not None:
            return told
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
    if not isinstance(failure.guard, KeyAbsent):
        return None
    pointer = _pointer_at(failure.guard.key, writes)
    if pointer is None:
        return None
    with snapshot() as state:
        entry = state.get(failure.guard.key)
    if entry is None or entry.value == pointer.raw_value:
        return None  # Why: it is free again, or ours: another try would go through.
    return unique_violation(pointer.source, failure.guard.key, entry.value)


def _pointer_at(raw_key: bytes, writes: Mapping[bytes, Write]) -> Pointer | None:
    for write in writes.values():
        if write.new is not None and raw_key in write.new.pointers:
            return write.new.pointers[raw_key]
    return None


def telling_limit(
    error: EngineLimitError, commit: Commit, profile: Profile, writes: Mapping[bytes, Write]
) -> EngineLimitError:
    """Return the limit error with the table and key whose write exceeds it, where it is about one of them."""
    for mutation in commit.mutations:
        if isinstance(mutation, Put) and (
            _is_over(profile.key_bytes_max, mutation.key) or _is_over(profile.value_bytes_max, mutation.value)
        ):
            return EngineLimitError(**{**error.facts, **_place(mutation.key, writes)})
    tables = sorted({write.table.name for write in writes.values()})
    return EngineLimitError(**{**error.facts, "tables": tables, "records": len(writes)})


def _is_over(bytes_max: int | None, raw: bytes) -> bool:
    return bytes_max is not None and len(raw) > bytes_max


def _place(raw_key: bytes, writes: Mapping[bytes, Write]) -> dict[str, object]:
    for write in writes.values():
        if raw_key == write.raw_key:
            return {"table": write.table.name, "key": write.key}
        for version in (write.new, write.old):
            if version is not None and raw_key in version.pointers:
                return {"table": write.table.name, "key": write.key, "index": version.pointers[raw_key].source.name}
    return {"raw_key": raw_key.hex()}
