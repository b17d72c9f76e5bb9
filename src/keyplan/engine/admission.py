"""What every engine checks before it writes anything, in one place: limits, capabilities, no key written twice."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final

from keyplan.engine.interface import (
    NO_LEASE,
    Commit,
    Delete,
    DeleteRange,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
)
from keyplan.engine.profile import Capability, Profile
from keyplan.errors import EngineLimitError, InvalidInputError, UnsupportedByEngineError

__all__ = ["admit_commit", "admit_key", "admit_pair", "admit_ttl", "admitted_batches", "refuse_writing", "require"]

_BATCH_ENTRIES_MAX: Final = 10_000
_BATCH_BYTES_MAX: Final = 1 << 24
"""Why: what one transaction of a load takes; more are hardly faster, and keep other writers waiting."""


_KEY: Final = attrgetter("key")
_VALUE: Final = attrgetter("value")
_LEASE: Final = attrgetter("lease")
_SEVERAL: Final = 4
"""Why: for fewer a step each costs less."""


def require(profile: Profile, capability: Capability) -> None:
    """Raise UnsupportedByEngineError unless the profile claims `capability`."""
    if capability not in profile.capabilities:
        raise UnsupportedByEngineError(engine=profile.name, capability=capability.value)


def refuse_writing(profile: Profile) -> UnsupportedByEngineError:
    """Return the error of an engine that was opened for reading only."""
    return UnsupportedByEngineError(engine=profile.name, capability="writing", problem="it is open for reading only")


def admit_key(profile: Profile, key: bytes) -> None:
    """Raise EngineLimitError when the engine cannot hold a key of this length."""
    if not key and not profile.empty_key:
        raise EngineLimitError(limit="key_bytes_min", allowed=1, actual=0)
    if profile.key_bytes_max is not None and len(key) > profile.key_bytes_max:
        raise EngineLimitError(limit="key_bytes_max", allowed=profile.key_bytes_max, actual=len(key))


def admit_pair(profile: Profile, key: bytes, value: bytes) -> None:
    """Raise EngineLimitError when the engine cannot hold this key or this value."""
    admit_key(profile, key)
    if profile.value_bytes_max is not None and len(value) > profile.value_bytes_max:
        raise EngineLimitError(limit="value_bytes_max", allowed=profile.value_bytes_max, actual=len(value))


def admitted_batches(entries: Iterable[tuple[bytes, bytes]], profile: Profile) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the pairs of a load in batches that one transaction takes. Raises InvalidInputError unless their keys ascend."""
    batch: list[tuple[bytes, bytes]] = []
    batch_bytes = 0
    previous = b""
    for pair in entries:
        key, value = pair
        admit_pair(profile, key, value)
        if key <= previous:
            raise InvalidInputError(source="load", problem="keys must ascend", raw_key=key.hex())
        previous = key
        batch.append(pair)
        batch_bytes += len(key) + len(value)
        if len(batch) >= _BATCH_ENTRIES_MAX or batch_bytes >= _BATCH_BYTES_MAX:
            yield batch
            batch, batch_bytes = [], 0
    if batch:
        yield batch


def admit_ttl(profile: Profile, ttl_seconds: float) -> None:
    """Raise UnsupportedByEngineError without leases, InvalidInputError when the time is not a positive number."""
    require(profile, Capability.LEASES)
    if not (math.isfinite(ttl_seconds) and ttl_seconds > 0):
        raise InvalidInputError(source="ttl_seconds", problem=f"a lease needs a positive time, not {ttl_seconds}")


def admit_commit(profile: Profile, commit: Commit) -> None:
    """Raise unless the engine may carry out `commit`; what is found here never depends on what is stored.

    EngineLimitError: a key, a value, the number of operations or the bytes in all are over a limit of the profile.
    UnsupportedByEngineError: a lease, or a range guarded by revision, where the profile does not claim it.
    InvalidInputError: a key is written twice.
    """
    key_bytes_max, value_bytes_max = profile.key_bytes_max or math.inf, profile.value_bytes_max or math.inf
    # Why the class itself is compared, here and below: to find that a struct is no instance of another class takes ten times as
    # long, and each guard and mutation of each commit is asked. None of these classes is subclassed.
    mutations = commit.mutations
    are_plain = len(mutations) >= _SEVERAL and _are_plain_puts(mutations, key_bytes_max, value_bytes_max)
    for mutation in () if are_plain else mutations:
        if type(mutation) is Put:
            # Why: every write comes through here, and nearly every one fits.
            if not (0 < len(mutation.key) <= key_bytes_max and len(mutation.value) <= value_bytes_max):
                admit_pair(profile, mutation.key, mutation.value)
            if mutation.lease != NO_LEASE:
                require(profile, Capability.LEASES)
        elif type(mutation) is Delete:
            admit_key(profile, mutation.key)
    for guard in commit.guards:
        if type(guard) is KeyUnchanged or type(guard) is KeyAbsent:
            if not 0 < len(guard.key) <= key_bytes_max:
                admit_key(profile, guard.key)
        elif type(guard) is RangeUnchanged:
            # Why: without revisions an engine cannot tell whether a value in the range was rewritten.
            require(profile, Capability.REVISIONS)
    if len(commit.mutations) > 1 and not _is_plainly_distinct(commit):
        _refuse_double_writes(commit)
    if profile.commit_operations_max is not None:
        actual = max(len(commit.mutations), sum(map(_comparisons, commit.guards)))
        if actual > profile.commit_operations_max:
            raise EngineLimitError(limit="commit_operations_max", allowed=profile.commit_operations_max, actual=actual)
    if profile.commit_bytes_max is not None:
        actual = _commit_bytes(commit)
        if actual > profile.commit_bytes_max:
            raise EngineLimitError(limit="commit_bytes_max", allowed=profile.commit_bytes_max, actual=actual)


def _are_plain_puts(mutations: Sequence[Mutation], key_bytes_max: float, value_bytes_max: float) -> bool:
    """True when there are only puts, all on no lease and of lengths that fit. Why: it is found without a step for each."""
    if set(map(type, mutations)) != {Put}:
        return False
    lengths = set(map(len, map(_KEY, mutations)))
    return (
        min(lengths) > 0
        and max(lengths) <= key_bytes_max
        and max(map(len, map(_VALUE, mutations))) <= value_bytes_max
        and set(map(_LEASE, mutations)) == {NO_LEASE}
    )


def _comparisons(guard: Guard) -> int:
    """Return how many single comparisons a guard is, where an engine can only compare keys: the range itself is one."""
    return 1 + len(guard.keys) if type(guard) is RangeUnchanged else 1


def _is_plainly_distinct(commit: Commit) -> bool:
    """True when there are only single keys, all different."""
    try:
        return len(set(map(_KEY, commit.mutations))) == len(commit.mutations)
    except AttributeError:  # a range has no key
        return False


def _refuse_double_writes(commit: Commit) -> None:
    written: set[bytes] = set()
    ranges: list[KeyRange] = []
    for mutation in commit.mutations:
        if isinstance(mutation, Put | Delete):
            if mutation.key in written:
                raise _written_twice(mutation.key)
            written.add(mutation.key)
        elif not mutation.range.is_empty:
            ranges.append(mutation.range)
    if not ranges:
        return
    ranges.sort(key=lambda key_range: key_range.start)
    for earlier, later in pairwise(ranges):
        if later.start in earlier:
            raise _written_twice(later.start)
    starts = [key_range.start for key_range in ranges]
    for key in written:
        position = bisect_right(starts, key) - 1
        if position >= 0 and key in ranges[position]:
            raise _written_twice(key)


def _written_twice(key: bytes) -> InvalidInputError:
    return InvalidInputError(source="commit", problem="a key is written twice", raw_key=key.hex())


def _commit_bytes(commit: Commit) -> int:
    total = 0
    for mutation in commit.mutations:
        if type(mutation) is Put:
            total += len(mutation.key) + len(mutation.value)
        elif type(mutation) is Delete:
            total += len(mutation.key)
        elif type(mutation) is DeleteRange:
            total += _range_bytes(mutation.range)
    for guard in commit.guards:
        total += _guard_bytes(guard)
    return total


def _guard_bytes(guard: Guard) -> int:
    if type(guard) is KeyAbsent or type(guard) is KeyUnchanged:
        return len(guard.key)
    if type(guard) is RangeUnchanged:
        return _range_bytes(guard.range) + _bytes_in(guard.keys)
    return _range_bytes(guard.range) if type(guard) is RangeEmpty else 0


def _range_bytes(key_range: KeyRange) -> int:
    return len(key_range.start) + len(key_range.end or b"")


def _bytes_in(keys: Sequence[bytes] | Iterable[bytes]) -> int:
    return sum(map(len, keys))
