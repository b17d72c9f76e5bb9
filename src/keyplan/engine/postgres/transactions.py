"""From a commit to the parameters of its statement (`commit_sql`), and from the answer to what is told. Pure."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from keyplan.engine.interface import (
    NO_LEASE,
    Commit,
    Delete,
    DeleteRange,
    FailedGuard,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Put,
    RangeEmpty,
    RangeUnchanged,
)
from keyplan.engine.postgres.commit_sql import OF_KEY, OF_RANGE
from keyplan.engine.postgres.options import KEY_BYTES_MAX
from keyplan.engine.postgres.session import Request
from keyplan.engine.postgres.statements import Statements
from keyplan.engine.postgres.wire import bytes_array, number_array
from keyplan.errors import CommitConflictError, LeaseNotFoundError

__all__ = ["Outcome", "end_of", "outcome", "request_of"]

_ABOVE_ALL_KEYS: Final = b"\xff" * (KEY_BYTES_MAX + 1)
"""Greater than every key that can be stored: the end of a range that has none. Why: `key < $2 OR $2 IS NULL` walks no index."""

_NEVER: Final = -1
_REVISION_MAX: Final = (1 << 63) - 1


def end_of(key_range: KeyRange) -> bytes:
    """Return the end of a range as a key."""
    return _ABOVE_ALL_KEYS if key_range.end is None else key_range.end


def request_of(commit: Commit, statements: Statements) -> Request:
    """Return the statement that carries out a commit, with its parameters."""
    kinds: list[str] = []
    parameters: list[bytes] = []
    keys = [guard for guard in commit.guards if isinstance(guard, KeyAbsent | KeyUnchanged)]
    if keys:
        kinds.append("keys")
        # Why never for 0: a key that is unchanged since revision 0 would be one that is absent.
        expected = [0 if isinstance(guard, KeyAbsent) else guard.revision or _NEVER for guard in keys]
        parameters += (bytes_array([guard.key for guard in keys]), number_array(expected))
    ranges = [guard for guard in commit.guards if isinstance(guard, RangeEmpty | RangeUnchanged)]
    if ranges:
        kinds.append("ranges")
        parameters += _range_parameters(ranges)
    _add_mutations(commit, kinds, parameters)
    return statements.commit(tuple(kinds)), tuple(parameters)


def _range_parameters(guards: Sequence[RangeEmpty | RangeUnchanged]) -> list[bytes]:
    """Return starts, ends, the revisions since which nothing may be written, and the keys with their guard's position."""
    read = [
        (position, key)
        for position, guard in enumerate(guards, 1)
        if isinstance(guard, RangeUnchanged)
        for key in guard.keys
    ]
    return [
        bytes_array([guard.range.start for guard in guards]),
        bytes_array([end_of(guard.range) for guard in guards]),
        number_array([guard.revision if isinstance(guard, RangeUnchanged) else _REVISION_MAX for guard in guards]),
        number_array([position for position, _ in read]),
        bytes_array([key for _, key in read]),
    ]


def _add_mutations(commit: Commit, kinds: list[str], parameters: list[bytes]) -> None:
    puts = [mutation for mutation in commit.mutations if isinstance(mutation, Put)]
    leases = sorted({put.lease for put in puts if put.lease != NO_LEASE})
    if leases:
        kinds.append("leases")
        parameters.append(number_array(leases))
    if puts:
        kinds.append("put_leased" if leases else "put")
        parameters += (bytes_array([put.key for put in puts]), bytes_array([put.value for put in puts]))
        if leases:
            parameters.append(number_array([put.lease for put in puts]))
    deletes = [mutation.key for mutation in commit.mutations if isinstance(mutation, Delete)]
    if deletes:
        kinds.append("delete")
        parameters.append(bytes_array(deletes))
    swept = [mutation.range for mutation in commit.mutations if isinstance(mutation, DeleteRange)]
    if swept:
        kinds.append("sweep")
        parameters += (bytes_array([found.start for found in swept]), bytes_array([end_of(found) for found in swept]))


class Outcome(NamedTuple):
    """The store's revision after a commit, and whether the commit made it."""

    revision: int
    has_changed: bool


def outcome(commit: Commit, rows: Sequence[tuple[Any, ...]]) -> Outcome:
    """Read what the statement tells. Raises CommitConflictError, LeaseNotFoundError: nothing was written."""
    revision, changes = rows[0][:2]
    failed = sorted(row[3:] for row in rows if row[3] is not None)
    if not failed:
        return Outcome(revision + bool(changes), bool(changes))
    of_kind: dict[int, list[Guard]] = {
        OF_KEY: [guard for guard in commit.guards if isinstance(guard, KeyAbsent | KeyUnchanged)],
        OF_RANGE: [guard for guard in commit.guards if isinstance(guard, RangeEmpty | RangeUnchanged)],
    }
    found: dict[int, FailedGuard] = {}  # by identity: a guard may be given twice, and each is named
    for kind, position, key, actual in failed:
        if kind in of_kind:
            guard = of_kind[kind][position - 1]
            found.setdefault(id(guard), FailedGuard(guard, key, actual))
    if not found:
        raise LeaseNotFoundError(lease=failed[0][3])
    raise CommitConflictError(failed=tuple(found[id(guard)] for guard in commit.guards if id(guard) in found))
