"""From what was found to a layout: the root, names, key types and value forms, as the description that `--layout` reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Final
from uuid import UUID

from keyplan.codec import value_form_of
from keyplan.layout import Literal, Template
from keyplan.maintenance.inference.decisions import Confidence
from keyplan.maintenance.inference.found import Found, Note, Part, joined, shared_start
from keyplan.maintenance.inference.naming import class_name, table_name
from keyplan.maintenance.inference.record_types import RecordType, RecordTypes
from keyplan.maintenance.inference.stored_values import ValueProfile

__all__ = ["NamedTable", "assembled", "description_of", "root_of"]

_FORMS: Final[dict[str, tuple[Any, str, str | None]]] = {
    "empty": (None, "None", None),
    "decimal": (int, "int", "decimal"),
    "uuid": (UUID, "UUID", "hex_uuid"),
    "raw_uuid": (UUID, "UUID", "raw_uuid"),
    "text": (str, "str", None),
    "bytes": (bytes, "bytes", None),
}
"""For each kind of values its type, the type in source, and the form where the type's own may be another."""


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table of the inferred layout, ready to be described and to be written as source. `template` is below the root."""

    name: str
    template: Template
    key_type: str
    is_scalar: bool
    value: RecordType
    form: str | None
    has_lease: bool
    found: Found


def root_of(found: Sequence[Found], separator: str, *, is_text: bool) -> bytes:
    """Return the literal that all keys begin with, at a separator; every table keeps something of its template."""
    heads = [one.parts[0].raw if one.parts and isinstance(one.parts[0], Literal) else b"" for one in found]
    root = shared_start(heads)
    if not is_text:
        return root if len(found) > 1 and all(_below(one.parts, root) for one in found) else b""
    cut = separator.encode()
    root = root[: root.rfind(cut) + 1]
    rests = [_below(one.parts, root) for one in found]
    if any(not rest or not isinstance(rest[0], Literal) for rest in rests) and root:
        # Why: a table is named after the literal before its first field, and a template is not empty.
        root = root[: root.rfind(cut, 0, len(root) - 1) + 1]
    return root


def assembled(found: Sequence[Found], root: bytes, *, is_text: bool, records: RecordTypes) -> list[NamedTable]:
    """Return the tables with their names and types, in the order of their keys."""
    tables: list[NamedTable] = []
    named: dict[str, Found] = {}
    for one in sorted(found, key=lambda one: [_order(part) for part in one.parts]):
        named[table_name(_below(one.parts, root), named)] = one
    records.reserve(class_name(name, "Key") for name in named)
    for name, one in named.items():
        parts = _below(one.parts, root)
        key_type, is_scalar = _key_type(one, name)
        value, form = _value_of(one.values, name, records, is_text=is_text)
        one.notes.extend(_value_notes(one.values, name))
        has_lease = one.values.leased == one.values.count > 0
        tables.append(NamedTable(name, Template(parts, is_text), key_type, is_scalar, value, form, has_lease, one))
    return tables


def description_of(
    name: str, root: bytes, tables: Sequence[NamedTable], table_notes: dict[str, str], *, is_text: bool, note: str
) -> dict[str, Any]:
    """Return the layout as `describe` would: the form that `--layout FILE.json` reads."""
    items = []
    for table in tables:
        form = value_form_of(table.value.made, form=table.form, is_text=is_text)
        items.append(
            {
                "name": table.name,
                "template": table.template.source,
                "note": table_notes.get(table.name, ""),
                "kind": "table",
                "key": {"type": table.key_type, "scalar": table.is_scalar},
                "value": form.describe(),
                "lease": table.has_lease,
                "place": [],
            }
        )
    return {
        "format": "keyplan-layout/1",
        "layout": name,
        "version": 1,
        "note": note,
        "keys": "text" if is_text else "binary",
        "root": Template((Literal(root),) if root else (), is_text).source,
        "parameters": {},
        "items": items,
        "waivers": [],
    }


def _order(part: Part) -> bytes:
    return part.raw if isinstance(part, Literal) else b"\xff"


def _below(parts: tuple[Part, ...], root: bytes) -> tuple[Part, ...]:
    if not root:
        return joined(parts)
    first = parts[0]
    assert isinstance(first, Literal)
    return joined((Literal(first.raw.removeprefix(root)), *parts[1:]))


def _key_type(found: Found, table: str) -> tuple[str, bool]:
    fields = found.fields
    if not fields:
        return "Only", False
    if len(fields) == 1:
        return fields[0].element.value_type.__name__, True
    return class_name(table, "Key"), False


def _value_of(
    values: ValueProfile, table: str, records: RecordTypes, *, is_text: bool
) -> tuple[RecordType, str | None]:
    kind = values.main_kind
    if kind == "json" and values.shape is not None:
        record = records.of(values.shape.type(), class_name(table, "Record"))
        if isinstance(record.made, UnionType) or record.made is Any:
            return RecordType(object, "object"), None  # Why: a table is of one type; a union is none for type checkers.
        return record, "json" if record.made is str else None
    made, source, form = _FORMS[kind]
    is_default = form is None or (form == "raw_uuid" and not is_text) or (form in ("decimal", "hex_uuid") and is_text)
    return RecordType(made, source), None if is_default else form


def _value_notes(values: ValueProfile, table: str) -> list[Note]:
    kind, count = values.main_kind, values.count
    seen = ", ".join(f"{number} {name}" for name, number in values.kinds.most_common())
    notes = []
    if len(values.kinds) > 1:
        sureness = Confidence.FAIR if values.exceptions else Confidence.LOW
        notes.append(Note(table, f"values are {kind}", f"of {count} values {seen}", sureness))
    elif kind == "bytes":
        notes.append(
            Note(table, "values are bytes", f"{count} values of a form unknown here, perhaps protobuf", Confidence.LOW)
        )
    else:
        notes.append(Note(table, f"values are {kind}", f"all {count} are"))
    if values.leased:
        decided = "records hang on leases" if values.leased == count else "records hang on no lease"
        sureness = Confidence.HIGH if values.leased == count else Confidence.LOW
        notes.append(Note(table, decided, f"{values.leased} of {count} do", sureness))
    return notes
