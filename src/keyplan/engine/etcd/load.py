"""Cutting a load into commits."""

from collections.abc import Iterable, Iterator
from typing import Final

from keyplan.engine.admission import admit_pair
from keyplan.engine.profile import Profile
from keyplan.errors import InvalidInputError

__all__ = ["Pair", "batches"]

Pair = tuple[bytes, bytes]

_BATCH_BYTES_MAX: Final = 1 << 19
"""Why: half a MiB is written in a few milliseconds, and does not hold up what other clients propose meanwhile."""
_ENTRY_BYTES: Final = 64
"""What a put and its guard take beside key and value, at most."""


def batches(entries: Iterable[Pair], profile: Profile) -> Iterator[list[Pair]]:
    """Yield the pairs in order, each list small enough for one commit that guards every key.

    Raises InvalidInputError when keys do not ascend, EngineLimitError for a pair that no commit can hold.
    """
    operations_max = profile.commit_operations_max or 1
    bytes_max = min(_BATCH_BYTES_MAX, profile.commit_bytes_max or _BATCH_BYTES_MAX)
    batch: list[Pair] = []
    batch_bytes = 0
    previous: bytes | None = None
    for key, value in entries:
        if previous is not None and key <= previous:
            raise InvalidInputError(source="load", problem="keys must ascend", raw_key=key.hex())
        admit_pair(profile, key, value)
        previous = key
        # Why the key three times: it is written, guarded, and read when the guard fails.
        size = 3 * len(key) + len(value) + _ENTRY_BYTES
        if batch and (len(batch) >= operations_max or batch_bytes + size > bytes_max):
            yield batch
            batch, batch_bytes = [], 0
        batch.append((key, value))
        batch_bytes += size
    if batch:
        yield batch
