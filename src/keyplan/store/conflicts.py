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
from keyplan.store.plan import Change, Pointer, unique_violation

__all__ = ["telling_conflict", "telling_limit"]


def telling_conflict(
    conflict: CommitConflictError,
    changes: Mapping[bytes, Change],
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
        change = changes.get(failure.key)
        told = _about_record(failure, change) if change is not None else _about_entry(failure, changes, snapshot)
        if told is not None:
            return told
    return conflict


def _about_record(failure: FailedGuard, change: Change) -> ConflictError | None:
    if change.is_insert:
        return AlreadyExistsError(table=change.table.name, key=change.key, revision=failure.actual_revision)
    if change.expected_revision is not None:
        return StaleRecordError(
            table=change.table.name,
            key=change.key,
            expected_revision=change.expected_revision,
            actual_revision=failure.actual_revision,
        )
    return None


def _about_entry(
    failure: FailedGuard, changes: Mapping[bytes, Change], snapshot: Callable[[], Snapshot]
) -> ConflictError | None:
    if not isinstance(failure.guard, KeyAbsent):
        return None
    pointer = _pointer_at(failure.guard.key, changes)
    if pointer is None:
        return None
    with snapshot() as state:
        entry = state.get(failure.guard.key)
    if entry is None or entry.value == pointer.raw_value:
        return None  # Why: it is free again, or ours: another try would go through.
    return unique_violation(pointer.source, failure.guard.key, entry.value)


def _pointer_at(raw_key: bytes, changes: Mapping[bytes, Change]) -> Pointer | None:
    for change in changes.values():
        if change.new is not None and raw_key in change.new.pointers:
            return change.new.pointers[raw_key]
    return None


def telling_limit(
    error: EngineLimitError, commit: Commit, profile: Profile, changes: Mapping[bytes, Change]
) -> EngineLimitError:
    """Return the limit error with the table and key whose write exceeds it, where it is about one of them."""
    for mutation in commit.mutations:
        if isinstance(mutation, Put) and (
            _is_over(profile.key_bytes_max, mutation.key) or _is_over(profile.value_bytes_max, mutation.value)
        ):
            return EngineLimitError(**{**error.facts, **_place(mutation.key, changes)})
    tables = sorted({change.table.name for change in changes.values()})
    return EngineLimitError(**{**error.facts, "tables": tables, "records": len(changes)})


def _is_over(bytes_max: int | None, raw: bytes) -> bool:
    return bytes_max is not None and len(raw) > bytes_max


def _place(raw_key: bytes, changes: Mapping[bytes, Change]) -> dict[str, object]:
    for change in changes.values():
        if raw_key == change.raw_key:
            return {"table": change.table.name, "key": change.key}
        for version in (change.new, change.old):
            if version is not None and raw_key in version.pointers:
                return {"table": change.table.name, "key": change.key, "index": version.pointers[raw_key].source.name}
    return {"raw_key": raw_key.hex()}
