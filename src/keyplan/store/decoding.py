"""What comes from outside: stored bytes to records, and numbers that callers hand in.

The error for bytes that do not decode says where they lie; a value is never part of an error. Where revisions, limits and ids
are asked for, a number is a whole one: True and 5.0 are none.
"""

from keyplan.engine import Entry
from keyplan.errors import CorruptionError, InvalidInputError
from keyplan.layout import BoundTable, Damaged, Versioned

__all__ = ["check_limit", "check_whole", "corrupted", "decode_record", "row_of", "versioned"]


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
        return table.form.decode(raw_value)
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
