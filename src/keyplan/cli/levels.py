"""What stands at the next level of meaning: the distinct values of a key's next field, found by jumping to the next one."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from keyplan.engine import KeyRange, Snapshot
from keyplan.layout import BoundIndex, BoundTable

__all__ = ["Level", "levels"]


class Level(NamedTuple):
    """One value of the next field. `has_more` tells that the key goes on behind it."""

    value: Any
    has_more: bool


def levels(item: BoundTable | BoundIndex, prefix: tuple[Any, ...], snapshot: Snapshot) -> Iterator[Level]:
    """Yield the distinct values that the field after `prefix` has in stored keys, in key order.

    One short read for each value, however many records it has; keys of other templates in between are passed over.
    """
    keys = item.keys
    has_more = len(prefix) + 1 < len(keys.template.fields)
    start, end = keys.range(prefix)
    while True:
        found = _first(item, KeyRange(start, end), snapshot)
        if found is None:
            return
        raw_key, key = found
        value = keys.shape.split(key)[len(prefix)]
        yield Level(value, has_more)
        if not has_more:
            start = raw_key + b"\x00"
            continue
        after = keys.range((*prefix, value))[1]
        if after is None:
            return
        start = after


def _first(item: BoundTable | BoundIndex, key_range: KeyRange, snapshot: Snapshot) -> tuple[bytes, Any] | None:
    """The first key of the item in the range, as stored and as read. One scan passes over the keys of others."""
    for entry in snapshot.scan(key_range, keys_only=True):
        key = item.keys.decode(entry.key)
        if key is not None:
            return entry.key, key
    return None
