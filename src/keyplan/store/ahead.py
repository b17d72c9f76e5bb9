"""Reading ahead: what a piece of work is known to read, read at once: over a network, one round trip in place of many."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from keyplan.layout import BoundIndex, BoundTable
from keyplan.store.index_state import index_state_key

__all__ = ["Place", "raw_keys_of"]

Place: TypeAlias = tuple[BoundTable, object] | tuple[BoundIndex, object]
"""One record of a table, or one entry of a unique index; of any index, with None as its key, whether it may be read."""


def raw_keys_of(places: Iterable[Place]) -> list[bytes]:
    """Return the raw keys that a look at the places reads, each once. Raises InvalidKeyError."""
    return list(dict.fromkeys(_raw_keys(places)))


def _raw_keys(places: Iterable[Place]) -> Iterator[bytes]:
    for source, key in places:
        if isinstance(source, BoundIndex):
            yield index_state_key(source)
        if key is not None:
            yield source.keys.encode(key)
