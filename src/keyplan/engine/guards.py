"""Which guards of a commit do not hold, by reading: for engines that check them under their own lock."""

from collections.abc import Iterable

from keyplan.engine.interface import (
    Entry,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyUnchanged,
    RangeEmpty,
    RangeUnchanged,
    Snapshot,
)
from keyplan.errors import CommitConflictError

__all__ = ["check_guards", "first_difference"]


def check_guards(guards: Iterable[Guard], state: Snapshot) -> None:
    """Raise CommitConflictError naming every guard that does not hold in `state`, in the order given."""
    get = state.get
    failed: list[FailedGuard] = []
    for guard in guards:
        # Why: nearly all guards are about one key; told apart by the class itself, they cost a third of the match below.
        if type(guard) is KeyAbsent:
            entry = get(guard.key)
            failure = None if entry is None else FailedGuard(guard, guard.key, entry.mod_revision)
        elif type(guard) is KeyUnchanged:
            entry = get(guard.key)
            actual = 0 if entry is None else entry.mod_revision
            holds = entry is not None and actual == guard.revision
            failure = None if holds else FailedGuard(guard, guard.key, actual)
        else:
            assert isinstance(guard, RangeEmpty | RangeUnchanged)
            failure = _range_guard_failure(guard, state)
        if failure is not None:
            failed.append(failure)
    if failed:
        raise CommitConflictError(failed=tuple(failed))


def _range_guard_failure(guard: RangeEmpty | RangeUnchanged, state: Snapshot) -> FailedGuard | None:
    match guard:
        case RangeEmpty(key_range):
            for entry in state.scan(key_range, limit=1):  # with the value: where it makes the mod revision
                return FailedGuard(guard, entry.key, entry.mod_revision)
            return None
        case RangeUnchanged():
            return first_difference(guard, state.scan(guard.range, keys_only=True))


def first_difference(guard: RangeUnchanged, found: Iterable[Entry]) -> FailedGuard | None:
    """Walk the keys that were read beside the entries that are there; the first difference breaks the guard.

    `found` may end after one entry more than there are keys in the guard: a difference is found by then.
    """
    expected = iter(guard.keys)
    for entry in found:
        key = next(expected, None)
        if key is not None and key < entry.key:
            return FailedGuard(guard, key, 0)
        if key != entry.key or entry.mod_revision > guard.revision:
            return FailedGuard(guard, entry.key, entry.mod_revision)
    missing = next(expected, None)
    return None if missing is None else FailedGuard(guard, missing, 0)
