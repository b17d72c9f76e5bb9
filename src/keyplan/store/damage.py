"""Records that cannot say which index entries are theirs: those that point at them are looked for, through the whole index.

A record says none when its bytes do not decode, and none of an index whose function raises on it. Why the record's own guard is
enough for what is found here: expressions are pure, so that what cannot be told here nobody else can tell, and nobody writes
entries for the record as it is.
"""

from collections.abc import Callable, Iterable, Iterator

from keyplan.engine import Entry, KeyRange
from keyplan.errors import CorruptionError
from keyplan.layout import BoundIndex, BoundTable, IndexEntry
from keyplan.limits import LOOK_THROUGH_ENTRIES_MAX

__all__ = ["entries_pointing_at", "refused_as_damaged"]

Scan = Callable[[KeyRange], Iterator[Entry]]


def entries_pointing_at(
    table: BoundTable, raw_key: bytes, indexes: Iterable[BoundIndex], scan: Scan
) -> dict[bytes, IndexEntry]:
    """Return the stored entries of `indexes` that point at the record, by raw key. `scan` yields what is stored in a range.

    Raises CorruptionError when an index holds more than LOOK_THROUGH_ENTRIES_MAX.
    """
    key = table.keys.decode(raw_key)
    found: dict[bytes, IndexEntry] = {}
    for index in indexes:
        decode, primary_of = index.keys.decode, index.primary_of
        for number, entry in enumerate(scan(KeyRange(*index.keys.range(())))):
            if number == LOOK_THROUGH_ENTRIES_MAX:
                raise CorruptionError(
                    table=table.name,
                    raw_key=raw_key.hex(),
                    index=index.name,
                    problem=f"the record cannot say which index entries are its own, and the index has more than "
                    f"{LOOK_THROUGH_ENTRIES_MAX:,} to look through",
                    remedy="remove the raw key, then run `keyplan check --repair`",
                )
            if decode(entry.key) is not None and primary_of(entry.key, entry.value) == key:
                found[entry.key] = IndexEntry(index, entry.value)
    return found


def refused_as_damaged(error: CorruptionError, key: object) -> CorruptionError:
    """Return the error of a write whose record is damaged, with the remedy."""
    remedy = "restore the record, or replace or delete it with damaged_ok=True"
    return CorruptionError(**{**error.facts, "key": key, "remedy": remedy})
