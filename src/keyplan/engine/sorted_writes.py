"""Many sorted keys written by guarded commits: over what exists and nothing else, or where nothing is yet."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from keyplan.engine.interface import (
    Commit,
    Engine,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Put,
    RangeEmpty,
)
from keyplan.engine.prefixed import failures_of
from keyplan.engine.retry import until_put
from keyplan.engine.sorted_keys import check_sorted, commit_parts, parts_of
from keyplan.errors import CommitConflictError, InvalidInputError

__all__ = ["load_by_commits", "put_absent", "put_existing"]

_LOAD_ENTRIES: Final = 1_000
"""Why: what one commit of a load takes at most; more are hardly faster, and keep other writers waiting."""


def put_existing(
    engine: Engine, keys: Sequence[bytes], values: Sequence[bytes] | None = None, *, guards: Sequence[Guard] = ()
) -> int:
    """Write those of the keys that exist, in ascending order, and return how many they are; see `Engine.put_sorted`.

    A key that is deleted while it is looked up stays deleted.
    """
    given = check_sorted(keys, values, engine.profile)
    parts = commit_parts(keys, given, engine.profile, guards=len(guards))
    return sum(_put_part(engine, part, tuple(guards)) for part in parts)


def _put_part(engine: Engine, part: list[tuple[bytes, bytes]], guards: tuple[Guard, ...]) -> int:
    def attempt() -> int:
        with engine.snapshot() as snapshot:
            found = snapshot.get_many([key for key, _ in part])
            epoch = snapshot.epoch
        own = tuple(KeyUnchanged(entry.key, entry.mod_revision) for entry in found if entry is not None)
        if own:
            puts = tuple(Put(*pair) for pair, entry in zip(part, found, strict=True) if entry is not None)
            engine.commit(Commit((*guards, *own), puts, epoch))
        return len(own)

    return until_put(engine.profile.name, attempt, guards)


def put_absent(
    commit: Callable[[Commit], object],
    pairs: Sequence[tuple[bytes, bytes]],
    *,
    guards: Sequence[Guard] = (),
    epoch: str = "",
) -> None:
    """Commit ascending pairs that do not exist, `guards` with them, whose epoch is given.

    Raises what `commit` raises; CommitConflictError when a key exists or a guard of the caller fails.
    """
    puts = tuple(Put(key, value) for key, value in pairs)
    between = RangeEmpty(KeyRange(pairs[0][0], pairs[-1][0] + b"\x00"))
    try:
        # Why: one guard where nothing lies between the keys, as is usual, instead of one for each key.
        commit(Commit((*guards, between), puts, epoch))
    except CommitConflictError as conflict:
        if any(failure.guard in guards for failure in failures_of(conflict)):
            raise
        commit(Commit((*guards, *(KeyAbsent(key) for key, _ in pairs)), puts, epoch))


def load_by_commits(engine: Engine, entries: Iterable[tuple[bytes, bytes]]) -> int:
    """Load as `Engine.load` does, by guarded commits: for an engine whose every write has to pass its `commit`."""
    profile = engine.profile
    pairs_max = min(_LOAD_ENTRIES, profile.commit_operations_max or _LOAD_ENTRIES)
    bytes_max = math.inf if profile.commit_bytes_max is None else profile.commit_bytes_max
    loaded = 0
    for part in parts_of(_ascending(entries), pairs_max=pairs_max, bytes_max=bytes_max):
        engine.commit(Commit(tuple(KeyAbsent(key) for key, _ in part), tuple(Put(*pair) for pair in part)))
        loaded += len(part)
    return loaded


def _ascending(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs. Raises InvalidInputError unless their keys ascend."""
    previous: bytes | None = None
    for pair in entries:
        if previous is not None and pair[0] <= previous:
            raise InvalidInputError(source="load", problem="keys must ascend", raw_key=pair[0].hex())
        previous = pair[0]
        yield pair
