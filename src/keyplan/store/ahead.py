"""Reading ahead: what a piece of work is known to read, read at once: over a network, one round trip in place of many."""

from collections.abc import Iterable
from typing import TypeAlias

from keyplan.layout import BoundIndex, BoundTable
from keyplan.store.index_state import index_state_key

__all__ = ["KeyRef", "raw_keys_of"]

KeyRef: TypeAlias = tuple[BoundTable, object] | tuple[BoundIndex, object]
"""One record of a table, or one entry of a unique index; of any index, with None as its key, whether it may be read."""


def raw_keys_of(refs: Iterable[KeyRef]) -> list[bytes]:
    """Return the raw keys that a look at these keys reads, each once. Raises InvalidKeyError."""
    raw_keys: dict[bytes, None] = {}
    for source, key in refs:
        if isinstance(source, BoundIndex):
            raw_keys[index_state_key(source)] = None
        if key is not None:
            raw_keys[source.keys.encode(key)] = None
    return list(raw_keys)
