"""Stored bytes to records, with the error that says where they lie. A value is never part of an error."""

from keyplan.errors import CorruptionError
from keyplan.layout import BoundTable

__all__ = ["corrupted", "decode_record"]


def decode_record(table: BoundTable, raw_key: bytes, raw_value: bytes) -> object:
    """Return the record. Raises CorruptionError naming the table and the raw key in hex."""
    try:
        return table.form.decode(raw_value)
    except CorruptionError as error:
        raise corrupted(table, raw_key, error) from error


def corrupted(table: BoundTable, raw_key: bytes, error: CorruptionError) -> CorruptionError:
    """Return the error with the facts about the place."""
    return CorruptionError(**{**error.facts, "table": table.name, "raw_key": raw_key.hex()})
