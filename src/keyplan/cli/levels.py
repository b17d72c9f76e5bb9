"""What stands at the next level of meaning: the distinct values of a key's next field, found by jumping from one to the next."""

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
        entry = next(snapshot.scan(KeyRange(start, end), limit=1, keys_only=True), None)
        if entry is None:
            return
        key = keys.decode(entry.key)
        if key is None:
            start = entry.key + b"\x00"
            continue
        value = keys.shape.split(key)[len(prefix)]
        yield Level(value, has_more)
        if not has_more:
            start = entry.key + b"\x00"
            continue
        after = keys.range((*prefix, value))[1]
        if after is None:
            return
        start = after
