"""Many keys in ascending order: what is looked at before they are put, and keys that were looked at already."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from operator import lt
from typing import Final

from keyplan.engine.profile import Profile
from keyplan.errors import EngineLimitError, InvalidInputError

__all__ = ["AscendingKeys", "check_sorted", "commit_parts", "parts_of"]

Pair = tuple[bytes, bytes]


class AscendingKeys(list[bytes]):
    """Keys that are known to ascend, and to have at most so many bytes each: `put_sorted` does not look at them again.

    For keys that are made of sorted columns of numbers. Who makes one answers for it.
    """

    __slots__ = ("key_bytes_max",)

    def __init__(self, keys: Iterable[bytes], *, key_bytes_max: int) -> None:
        super().__init__(keys)
        self.key_bytes_max = key_bytes_max


def check_sorted(keys: Sequence[bytes], values: Sequence[bytes] | None, profile: Profile) -> Iterable[bytes]:
    """Return a value for each key, when keys ascend and all are within the profile's limits.

    Raises InvalidInputError, EngineLimitError. Why by `max` and `map`: it is paid for each of millions of keys.
    """
    key_bytes = keys.key_bytes_max if isinstance(keys, AscendingKeys) else None
    if values is not None and len(values) != len(keys):
        raise InvalidInputError(source="put_sorted", problem=f"{len(keys)} keys and {len(values)} values")
    if key_bytes is None and not all(map(lt, keys, islice(keys, 1, None))):
        raise InvalidInputError(source="put_sorted", problem="keys must ascend")
    if keys and not keys[0] and not profile.empty_key:
        raise EngineLimitError(limit="key_bytes_min", allowed=1, actual=0)
    for limit, allowed, known, given in (
        ("key_bytes_max", profile.key_bytes_max, key_bytes, keys),
        ("value_bytes_max", profile.value_bytes_max, None, values or ()),
    ):
        if allowed is None:
            continue
        actual = max(map(len, given), default=0) if known is None else known
        if actual > allowed:
            raise EngineLimitError(limit=limit, allowed=allowed, actual=actual)
    return repeat(b"", len(keys)) if values is None else values


def parts_of(
    pairs: Iterable[Pair], *, pairs_max: float, bytes_max: float, key_times: int = 2, beside_bytes: int = 0
) -> Iterator[list[Pair]]:
    """Cut pairs into parts that a commit takes, each of one pair at least.

    A pair counts as its value, its key `key_times`, because it is guarded as well as written, and `beside_bytes`.
    """
    part: list[Pair] = []
    part_bytes = 0
    for pair in pairs:
        size = key_times * len(pair[0]) + len(pair[1]) + beside_bytes
        if part and (len(part) >= pairs_max or part_bytes + size > bytes_max):
            yield part
            part, part_bytes = [], 0
        part.append(pair)
        part_bytes += size
    if part:
        yield part


_PART_OPERATIONS_MAX: Final = 10_000
_GUARD_BYTES_MAX: Final = 1_024
"""Why: room in a commit for a caller's guards, which are few and on short keys."""


def commit_parts(
    keys: Sequence[bytes], values: Iterable[bytes], profile: Profile, *, guards: int
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Cut the pairs into parts that a commit takes, each key being guarded as well as written."""
    operations_max = min(profile.commit_operations_max or math.inf, _PART_OPERATIONS_MAX + guards) - guards
    bytes_max = math.inf if profile.commit_bytes_max is None else profile.commit_bytes_max - _GUARD_BYTES_MAX * guards
    return parts_of(zip(keys, values, strict=True), pairs_max=operations_max, bytes_max=bytes_max)
