"""The registry's entries as they stand, each with its own fault: what reads many must not be stopped by one that is damaged."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from keyplan.engine import Entry, KeyRange, Snapshot
from keyplan.errors import CorruptionError, InvalidKeyError
from keyplan.keyspace.layout import KeySpaceRegistry
from keyplan.layout import BoundTable

__all__ = ["Row", "has_entries", "key_of", "prefixes_held", "rows_of", "value_of"]


class Row(NamedTuple):
    """An entry of a table. `key` None: no key of the table; `value` None: it cannot be read. `problem` says why."""

    raw_key: bytes
    key: Any
    value: Any
    problem: str

    @property
    def is_read(self) -> bool:
        """True when key and value are what the table holds."""
        return not self.problem


def rows_of(
    snapshot: Snapshot, name: str, *prefix: object, reverse: bool = False, limit: int | None = None
) -> Iterator[Row]:
    """Yield the entries of a table of the registry, readable or not."""
    table = _table(name)
    start, end = table.keys.range(prefix)
    for entry in snapshot.scan(KeyRange(start, end), reverse=reverse, limit=limit):
        yield _row(table, entry)


def value_of(snapshot: Snapshot, name: str, key: object) -> Row | None:
    """Return the entry at a key, readable or not; None when there is none."""
    table = _table(name)
    entry = snapshot.get(table.keys.encode(key))
    return None if entry is None else _row(table, entry)


def has_entries(snapshot: Snapshot, *names: str) -> bool:
    """Tell whether one of the tables has an entry, readable or not."""
    ranges = (KeyRange(*_table(name).keys.range(())) for name in names)
    return any(True for key_range in ranges for _ in snapshot.scan(key_range, limit=1, keys_only=True))


def prefixes_held(snapshot: Snapshot) -> list[bytes]:
    """Return every registered prefix. Why from the raw keys: whose it is, is not asked, and of thousands not wanted."""
    start, end = _table("holders").keys.range(())
    return [key[len(start) :] for key in snapshot.keys(KeyRange(start, end))]


def key_of(name: str, key: object) -> bytes:
    """Return the raw key of an entry."""
    return _table(name).keys.encode(key)


def _table(name: str) -> BoundTable:
    return KeySpaceRegistry.bound().tables[name]


def _row(table: BoundTable, entry: Entry) -> Row:
    try:
        key: Any = table.keys.decode(entry.key)
    except (CorruptionError, InvalidKeyError) as error:
        return Row(entry.key, None, None, error.summary)
    if key is None:
        return Row(entry.key, None, None, "it is no key of the table")
    try:
        return Row(entry.key, key, table.form.decode(entry.value), "")
    except (CorruptionError, InvalidKeyError) as error:
        return Row(entry.key, key, None, error.summary)
