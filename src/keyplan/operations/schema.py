"""JSON schemas of the classes that requests and answers are made of, as OpenAPI 3.1 has them.

Structs and named tuples become objects, whose fields are required unless they may be UNSET. What a field means stands in its
annotation, as `Annotated[str, Schema("The name.", pattern="...")]`; lengths, as msgspec checks them, in `msgspec.Meta`. A class
whose JSON is another one has `add_schema_to(components)`, which returns a reference, as protobuf's messages do.
"""

from collections.abc import Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

__all__ = ["Components", "Schema", "Some", "parts_of", "schema_of"]

Components = dict[str, dict[str, Any]]
"""Schemas by name, which others refer to."""

_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "format": "binary"},
    NoneType: {"type": "null"},
    Any: {},
}


class Schema:
    """What a schema says beyond its type, as part of `Annotated`: a description, and keywords of JSON Schema by their names."""

    def __init__(self, description: str = "", **keywords: Any) -> None:
        self.keywords = {**({"description": description} if description else {}), **keywords}


class Some(NamedTuple):
    """In place of a type: an object with some of the fields of a class."""

    kind: Any


def schema_of(kind: Any, components: Components) -> dict[str, Any]:
    """Return the schema of a type; those of classes are added to `components` and referred to.

    Raises TypeError for a type that has none.
    """
    origin = get_origin(kind)
    if isinstance(kind, Some):
        return {"type": "object", "properties": _object(kind.kind, components)["properties"]}
    if origin is Annotated:
        inner, *notes = get_args(kind)
        found = schema_of(inner, components)
        for note in notes:
            if isinstance(note, Schema):
                found = {**found, **note.keywords}
            elif isinstance(note, msgspec.Meta):
                lengths = {"minLength": note.min_length, "maxLength": note.max_length}
                found = {**found, **{word: length for word, length in lengths.items() if length is not None}}
        return found
    if origin in {Union, UnionType}:
        return _union([schema_of(part, components) for part in get_args(kind) if part is not msgspec.UnsetType])
    if origin in {list, tuple}:
        return {"type": "array", "items": schema_of(get_args(kind)[0], components)}
    if origin in {dict, Mapping} or kind is dict:
        values = next(iter(get_args(kind)[1:]), Any)
        return {
            "type": "object",
            **({} if values in {Any, object} else {"additionalProperties": schema_of(values, components)}),
        }
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if hasattr(kind, "add_schema_to"):
        reference: dict[str, Any] = kind.add_schema_to(components)
        return reference
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"type": "string", "enum": [str(member.value) for member in kind]}
    if isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or hasattr(kind, "_fields")):
        return _reference(kind, components)
    raise TypeError(f"{kind!r} has no JSON schema")


def _union(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The schema of a type or null, with null among the types; of others, one of them."""
    others = [part for part in parts if part != _PLAIN[NoneType]]
    if len(others) == 1 and len(parts) == 1:
        return others[0]
    if len(others) == 1 and "type" in others[0]:
        members = {"enum": [*others[0]["enum"], None]} if "enum" in others[0] else {}
        return {**others[0], "type": [others[0]["type"], "null"], **members}
    return {"anyOf": parts}


def _reference(kind: Any, components: Components) -> dict[str, Any]:
    name = getattr(kind, "schema_name", kind.__name__)
    if name not in components:
        components[name] = {}  # Why first: a class may hold its own kind.
        components[name].update(_object(kind, components))
    return {"$ref": f"#/components/schemas/{name}"}


def _is_struct(kind: Any) -> bool:
    return issubclass(kind, msgspec.Struct)


def parts_of(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, without what is annotated."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)


def _object(kind: Any, components: Components) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    fields = kind.__struct_fields__ if _is_struct(kind) else kind._fields
    words = dict(zip(fields, kind.__struct_encode_fields__ if _is_struct(kind) else fields, strict=True))
    properties = {words[field]: schema_of(hints[field], components) for field in fields}
    required = [words[field] for field in fields if msgspec.UnsetType not in parts_of(hints[field])]
    found: dict[str, Any] = {"type": "object", "required": required, "properties": properties}
    return {**found, "additionalProperties": False, **getattr(kind, "schema_keywords", {})}
