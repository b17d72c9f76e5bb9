"""What comes from outside: stored bytes to records, damaged ones among them, and numbers that callers hand in.

The error for bytes that do not decode says where they lie; a value is never part of an error. Where revisions, limits and ids
are asked for, a number is a whole one: True and 5.0 are none.

A damaged record says no index entry when its bytes do not decode, and none of an index whose function raises on it. Those that
point at it are looked for, through the whole index. Why the record's own guard is enough for what is found so: expressions are
pure, so that what cannot be told here nobody else can tell, and nobody writes entries for the record as it is.
"""

from collections.abc import Callable, Iterable, Iterator

from keyplan.engine import Entry, KeyRange
from keyplan.errors import CorruptionError, InvalidInputError
from keyplan.layout import BoundIndex, BoundTable, Damaged, IndexEntry, Versioned
from keyplan.limits import LOOK_THROUGH_ENTRIES_MAX

__all__ = [
    "check_limit",
    "check_whole",
    "corrupted",
    "decode_record",
    "entries_pointing_at",
    "refused_as_damaged",
    "row_of",
    "versioned",
]


def check_whole(value: object, source: str) -> None:
    """Raise InvalidInputError unless `value` is an int and no bool. Why: True would be stored, or compared, as 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInputError(source=source, problem=f"must be a whole number, not a {type(value).__name__}")


def check_limit(limit: int | None) -> None:
    """Raise InvalidInputError for a limit that is no number of records."""
    if limit is not None:
        check_whole(limit, "limit")
        if limit < 0:
            raise InvalidInputError(source="limit", problem=f"a list cannot have {limit} records")


def decode_record(table: BoundTable, raw_key: bytes, raw_value: bytes) -> object:
    """Return the record. Raises CorruptionError naming the table and the raw key in hex."""
    try:
        return table.form.decode(raw_value) if table.seal is None else table.seal.decode(raw_key, raw_value)
    except CorruptionError as error:
        raise corrupted(table, raw_key, error) from error


def corrupted(table: BoundTable, raw_key: bytes, error: CorruptionError) -> CorruptionError:
    """Return the error with the facts about the place."""
    return CorruptionError(**{**error.facts, "table": table.name, "raw_key": raw_key.hex()})


def row_of(table: BoundTable, key: object, entry: Entry, epoch: str) -> Versioned[object, object] | Damaged[object]:
    """Return the record with its history, or that it is damaged."""
    try:
        return versioned(table, key, entry, epoch)
    except CorruptionError as error:
        return Damaged(key, entry.key, entry.mod_revision, error)


def versioned(table: BoundTable, key: object, entry: Entry, epoch: str) -> Versioned[object, object]:
    """Return the record with its history; `epoch` is that of the state which the entry was read in. Raises CorruptionError."""
    record = decode_record(table, entry.key, entry.value)
    return Versioned(key, record, entry.create_revision, entry.mod_revision, entry.version, entry.lease, epoch)


# ---- damaged records ------------------------------------------------------------------------------------------------------


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
