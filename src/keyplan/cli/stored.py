"""What a store holds at a key, and at the keys that belong to it: the record's index entries, an index entry's record."""

from typing import Any

from keyplan.cli.plain import plain_value
from keyplan.engine import Entry, Snapshot
from keyplan.errors import CorruptionError, KeyplanError
from keyplan.layout import BoundLayout, Kind, Meaning, shown_key

__all__ = ["stored_facts"]


def stored_facts(bound: BoundLayout, meaning: Meaning, snapshot: Snapshot) -> dict[str, Any] | None:
    """Return what is stored at the key, as JSON values; None when nothing is. Damage is a fact, not an error."""
    entry = snapshot.get(meaning.raw_key)
    if entry is None:
        return None
    stored: dict[str, Any] = {
        "revision": entry.mod_revision,
        "create_revision": entry.create_revision,
        "version": entry.version,
        "lease": entry.lease,
        "bytes": len(entry.value),
    }
    try:
        if meaning.kind is Kind.RECORD:
            stored |= _record(bound, meaning, entry, snapshot)
        elif meaning.kind is Kind.INDEX_ENTRY:
            stored |= _pointed_at(bound, meaning, entry, snapshot)
        elif meaning.kind is Kind.COUNTER:
            stored["next"] = bound.counters[str(meaning.item)].decode(entry.value)
    except CorruptionError as error:
        stored["damaged"] = str(error)
    return stored


def _record(bound: BoundLayout, meaning: Meaning, entry: Entry, snapshot: Snapshot) -> dict[str, Any]:
    table = bound.tables[str(meaning.item)]
    try:
        record = table.form.decode(entry.value)
        expected = [(index.name, pair) for index in table.indexes for pair in index.entries(meaning.key, record)]
    except KeyplanError as error:
        return {"damaged": str(error)}
    entries = [
        {"index": name, "key": shown_key(raw_key), "state": _state(snapshot.get(raw_key), raw_value, entry.lease)}
        for name, (raw_key, raw_value) in expected
    ]
    return {"record": plain_value(record), "index_entries": entries}


def _state(found: Entry | None, expected: bytes, lease: int) -> str:
    if found is None:
        return "missing"
    if found.value != expected:
        return "of another record"
    return "present" if found.lease == lease else "on another lease"


def _pointed_at(bound: BoundLayout, meaning: Meaning, entry: Entry, snapshot: Snapshot) -> dict[str, Any]:
    index = bound.indexes[str(meaning.item)]
    primary = index.table.keys.encode(index.primary_key(meaning.raw_key, entry.value))
    record = snapshot.get(primary)
    return {"points_at": shown_key(primary), "record_state": "missing" if record is None else "present"}
