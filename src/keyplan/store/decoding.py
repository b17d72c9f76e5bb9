"""Stored bytes to records, with the error that says where they lie. A value is never part of an error."""

from keyplan.engine import Entry
from keyplan.errors import CorruptionError
from keyplan.layout import BoundTable, Damaged, Versioned

__all__ = ["corrupted", "decode_record", "row_of", "versioned"]


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
