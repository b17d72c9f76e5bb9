"""A layout to JSON and back: the form that travels, is compared and is documented without the application's classes."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from keyplan.codec import ValueForm, value_form_of_description
from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.layout.soundness import check_described
from keyplan.layout.spec import (
    Component,
    Condition,
    CounterSpec,
    EmbeddedKey,
    IndexSpec,
    ItemSpec,
    KeyShape,
    LayoutSpec,
    Origin,
    TableSpec,
    Waiver,
)
from keyplan.layout.template import Template, template_of_source

__all__ = ["FORMAT", "canonical_description", "describe", "layout_fingerprint", "layout_of_description"]

FORMAT: Final = "keyplan-layout/1"

_NAMED_SCHEMAS: Final = frozenset({"$defs", "properties"})
"""Of a JSON schema: what holds schemas by names that the application chose."""
_VALUES: Final = frozenset({"const", "default", "enum", "examples", "mapping"})
"""Of a JSON schema: what holds values, not schemas."""


def describe(spec: LayoutSpec) -> dict[str, Any]:
    """Return the layout as plain JSON values. Templates have their codecs written out.

    Python functions and classes are not in it: an index with a function keeps its version, a record its field names and
    types as far as its form describes them.
    """
    # Why not always: nothing is sealed in most, and in most of the others it is the layout's name.
    is_sealed_apart = spec.has_secrets and spec.sealed_as != spec.name
    return {
        "format": FORMAT,
        "layout": spec.name,
        **({"sealed_as": spec.sealed_as} if is_sealed_apart else {}),
        "version": spec.version,
        "note": spec.note,
        "keys": "text" if spec.is_text else "binary",
        "root": spec.root.source,
        "parameters": _described_parameters(spec),
        "items": [_described_item(item) for item in spec.items],
        "waivers": [{"rule": w.rule, "items": w.items, "reason": w.reason} for w in spec.waivers],
    }


def canonical_description(spec: LayoutSpec) -> bytes:
    """The part of the description that decides bytes: the same for two layouts that store the same in the same way."""
    described = describe(spec)
    for name in ("layout", "note", "waivers", "version"):
        del described[name]
    described.pop("sealed_as", None)
    for item in described["items"]:
        del item["note"]
        item.pop("sealed", None)
        if isinstance(item.get("value"), dict):
            item["value"].pop("secrets", None)
            if "schema" in item["value"]:
                item["value"]["schema"] = _without_prose(item["value"]["schema"])
    return json.dumps(described, sort_keys=True, separators=(",", ":")).encode()


def layout_fingerprint(spec: LayoutSpec, root: bytes | None = None) -> str:
    """Return twelve hex digits that change when the layout's bytes could.

    `root`: the root's bytes, as the layout is bound. Without it two layouts whose roots have parameters differ by their
    templates; where the root has none, the fingerprint is that of the bound layout.
    """
    raw = spec.root.literal_bytes if root is None and not spec.root.fields else root or b""
    return hashlib.sha256(canonical_description(spec) + b"\x00" + raw).hexdigest()[:12]


def _without_prose(schema: Any) -> Any:
    """A JSON schema without the descriptions that docstrings make: who explains a record's class changes no stored byte."""
    if isinstance(schema, list):
        return [_without_prose(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for name, part in schema.items():
        if name in _NAMED_SCHEMAS and isinstance(part, dict):
            kept[name] = {field: _without_prose(inner) for field, inner in part.items()}
        elif name in _VALUES:
            kept[name] = part
        elif name != "description":
            kept[name] = _without_prose(part)
    return kept


def layout_of_description(described: Mapping[str, Any]) -> LayoutSpec:
    """Return the layout that `describe` described. Records decode to plain values: dict, list, str and so on.

    Raises InvalidInputError, TemplateError or UnknownNameError when it is not such a description.
    """
    try:
        if described.get("format") != FORMAT:
            raise InvalidInputError(source="layout", problem=f"not a layout description of format {FORMAT}")
        is_text = described["keys"] == "text"
        items = [_item_of(item, is_text=is_text) for item in described["items"]]
        root = template_of_source(described["root"], is_text=is_text)
        spec = LayoutSpec(
            name=str(described["layout"]),
            root=root,
            items=tuple(items),
            version=int(described["version"]),
            parameters=_parameters_of(described["parameters"], root),
            waivers=tuple(Waiver(str(w["rule"]), str(w["items"]), str(w["reason"])) for w in described["waivers"]),
            note=str(described["note"]),
            sealed_as=str(described.get("sealed_as", "")),
        )
        check_described(spec)
    except KeyplanError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise InvalidInputError(
            source="layout", problem=f"the description is incomplete or malformed: {error!r}"
        ) from error
    return spec


def _described_parameters(spec: LayoutSpec) -> dict[str, Any]:
    """The defaults of the root's parameters: as they are where JSON has them, else as the bytes that they are encoded to."""
    elements = {field.name: field.element for field in spec.root.fields}
    return {
        name: value if isinstance(value, str | int | float | None) else {"encoded": elements[name].encode(value).hex()}
        for name, value in spec.parameters.items()
    }


def _parameters_of(described: Mapping[str, Any], root: Template) -> dict[str, object]:
    elements = {field.name: field.element for field in root.fields}
    return {
        name: elements[name].decode(bytes.fromhex(value["encoded"])) if isinstance(value, Mapping) else value
        for name, value in described.items()
    }


def _described_item(item: ItemSpec) -> dict[str, Any]:
    described: dict[str, Any] = {"name": item.name, "template": item.template.source, "note": item.note}
    match item:
        case TableSpec():
            described |= {
                "kind": "table",
                "key": _described_key(item.key),
                "value": _described_form(item.form),
                "lease": item.has_lease,
                "place": list(item.place),
            }
            if item.holds_keys:
                # Why not always: descriptions that were stored before have none, and mean the same.
                described["holds_keys"] = [
                    {"path": list(held.path), "base64": held.is_base64} for held in item.holds_keys
                ]
            if not item.is_sealed:
                described["sealed"] = False
        case IndexSpec():
            described |= {
                "kind": "unique" if item.is_unique else "index",
                "of": item.of,
                "key": _described_key(item.key),
                "fields": [{"from": c.origin.value, "path": c.path, "item": c.item} for c in item.components],
                "when": [{"path": c.path, "is": c.constant, "equal": c.is_equal} for c in item.when],
                "version": item.version,
            }
        case CounterSpec():
            described |= {"kind": "counter", "start": item.start}
    return described


def _described_form(form: ValueForm[Any]) -> dict[str, Any]:
    """The form, with the places of secrets where there are any: names as they are stored, null for each item."""
    secrets = {"secrets": [list(path) for path in form.secrets]} if form.secrets else {}
    return form.describe() | secrets


def _described_key(shape: KeyShape) -> dict[str, Any]:
    return {"type": shape.type_name, "scalar": shape.is_scalar}


def _item_of(described: Mapping[str, Any], *, is_text: bool) -> ItemSpec:
    name = str(described["name"])
    template = template_of_source(described["template"], is_text=is_text)
    note = str(described["note"])
    kind = described["kind"]
    if kind == "counter":
        return CounterSpec(name, template, int(described["start"]), note)
    shape = _key_shape(described["key"], template.field_names)
    if kind == "table":
        form = value_form_of_description(described["value"])
        held = tuple(
            EmbeddedKey(tuple(map(str, h["path"])), bool(h["base64"])) for h in described.get("holds_keys", ())
        )
        lease, place, is_sealed = bool(described["lease"]), tuple(described["place"]), described.get("sealed", True)
        return TableSpec(name, template, shape, form, lease, place, note, held, is_sealed=bool(is_sealed))
    if kind not in ("unique", "index"):
        raise InvalidInputError(
            source="layout", problem="an item is a table, unique, index or counter", kind=kind, name=name
        )
    return IndexSpec(
        name,
        template,
        str(described["of"]),
        kind == "unique",
        shape,
        tuple(Component(Origin(c["from"]), str(c["path"]), c["item"]) for c in described["fields"]),
        tuple(Condition(str(c["path"]), c["is"], bool(c["equal"])) for c in described["when"]),
        int(described["version"]),
        note=note,
    )


def _key_shape(described: Mapping[str, Any], names: tuple[str, ...]) -> KeyShape:
    type_name = str(described["type"])
    if described["scalar"]:
        if len(names) != 1:
            raise InvalidInputError(source="layout", problem="a scalar key has one field", fields=list(names))
        return KeyShape(type_name, is_scalar=True, make=_itself)
    return KeyShape(type_name, is_scalar=False, make=_together)


def _itself(value: object) -> object:
    return value


def _together(*values: object) -> tuple[object, ...]:
    return values
