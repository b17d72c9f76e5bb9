"""keyplan explain"""

from typing import Annotated, Any

import typer

from keyplan.cli.options import (
    ConfigOption,
    JsonOption,
    LayoutOption,
    ParameterOption,
    StoreOption,
    layout_of_option,
    root_parameters,
    store_of_option,
)
from keyplan.cli.output import print_json, print_text
from keyplan.cli.plain import plain_value, text_of_value
from keyplan.engine import Entry, Snapshot
from keyplan.errors import CorruptionError, InvalidInputError, KeyplanError
from keyplan.layout import BoundLayout, Kind, Meaning, raw_key_of, shown_key

__all__ = ["run"]


def run(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A raw key: text, with \\xNN for other bytes.")],
    *,
    store: StoreOption = None,
    layout: LayoutOption = None,
    parameter: ParameterOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
    is_hex: Annotated[bool, typer.Option("--hex", help="KEY is in hexadecimal digits.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not look into the store.")] = False,
) -> None:
    """Say what a raw key is: its template and fields; and, from the store, its record and the index entries that belong to it."""
    kind = layout_of_option(layout, config)
    bound = kind.bound(**root_parameters(kind, parameter))
    raw_key = _raw_key(key, is_hex=is_hex)
    meaning = bound.meaning(raw_key)
    facts: dict[str, Any] = {
        "key": shown_key(raw_key),
        "hex": raw_key.hex(),
        "kind": meaning.kind.value,
        "item": meaning.item,
        "template": meaning.template,
        "fields": {name: text_of_value(value) for name, value in meaning.fields.items()},
    }
    if not meaning.is_known:
        facts["departs_at_byte"] = meaning.position
    if not offline:
        with store_of_option(store, config) as opened, opened.engine.snapshot() as snapshot:
            facts["stored"] = _stored(bound, meaning, snapshot)
    if json:
        print_json(facts)
    else:
        print_text("\n".join([str(meaning), *_lines(facts)]))


def _raw_key(key: str, *, is_hex: bool) -> bytes:
    try:
        return bytes.fromhex(key) if is_hex else raw_key_of(key)
    except ValueError as error:
        raise InvalidInputError(source="KEY", problem=str(error)) from error


def _stored(bound: BoundLayout, meaning: Meaning, snapshot: Snapshot) -> dict[str, Any] | None:
    """What the store holds at the key, and at the keys that belong to it."""
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
    except KeyplanError as error:
        return {"damaged": str(error)}
    entries = [
        {
            "index": index.name,
            "key": shown_key(raw_key),
            "state": _state(snapshot.get(raw_key), raw_value, entry.lease),
        }
        for index in table.indexes
        for raw_key, raw_value in index.entries(meaning.key, record)
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


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = [f"  template   {facts['template']}"] if facts["template"] else []
    lines += [f"  {name:<10} {value}" for name, value in facts["fields"].items()]
    if "stored" not in facts:
        return lines
    stored = facts["stored"]
    if stored is None:
        return [*lines, "  stored     nothing"]
    lease = f", lease {stored['lease']}" if stored["lease"] else ""
    lines.append(
        f"  stored     {stored['bytes']} bytes, revision {stored['revision']}, version {stored['version']}{lease}"
    )
    if "record" in stored:
        lines.append(f"  record     {stored['record']}")
    for pointer in stored.get("index_entries", []):
        lines.append(f"  entry      {pointer['key']} ({pointer['index']}): {pointer['state']}")
    if "points_at" in stored:
        lines.append(f"  points at  {stored['points_at']}: {stored['record_state']}")
    lines += [f"  {name:<10} {stored[name]}" for name in ("next", "damaged") if name in stored]
    return lines
