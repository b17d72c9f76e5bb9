"""JSON schemas of what is stored: records that are stored as arrays keep the names of their fields, secrets are what they hold.

JSON schema gives such a record's types by their places alone: two fields of one type that change places would be no change.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

from keyplan.codec.secrets import MASK, Secret

__all__ = ["POSITIONAL_NAMES", "schema_with_names"]

POSITIONAL_NAMES: Final = "x-fields"
"""The schema's keyword for the names of an array's places."""


def schema_with_names(value_type: Any) -> dict[str, Any]:
    """Return the JSON schema of a type, with the names of the fields of records that are arrays. Raises TypeError."""
    schema = msgspec.json.schema(value_type, schema_hook=_schema_of_secret)
    definitions = schema.get("$defs", {})
    for part in _parts(inspect.type_info(value_type)):
        defined = [
            definitions[name]
            for name in (part.cls.__name__, f"{part.cls.__module__}.{part.cls.__qualname__}")
            if name in definitions
        ]
        names = _names_of_places(part)
        for definition in defined:
            if names and len(definition.get("prefixItems", ())) == len(names):
                definition[POSITIONAL_NAMES] = names
            for name, plain in _defaults_of_secrets(part):
                definition.get("properties", {}).get(name, {})["default"] = plain
    return schema


def _schema_of_secret(kind: type) -> dict[str, Any]:
    """The schema of what a secret holds. That it is one decides no bytes, and stands beside the schema."""
    if not issubclass(kind, Secret):
        raise NotImplementedError
    schema = msgspec.json.schema(kind.kind)
    # Why no fields of a record: its schema is a reference to a definition, which would have to stand elsewhere.
    return {"title": kind.__name__} if "$defs" in schema else schema


def _defaults_of_secrets(part: Any) -> Iterator[tuple[str, Any]]:
    """The defaults of a record's secret fields as they are stored: msgspec gives those of its own types alone."""
    for field in getattr(part, "fields", ()):
        factory = getattr(field, "default_factory", None)
        if isinstance(field, inspect.Field) and isinstance(field.type, inspect.CustomType) and callable(factory):
            default = factory()
            if isinstance(default, Secret):
                # Why the empty ones alone: a description is for everybody, and what a function makes may be new each time.
                plain = msgspec.to_builtins(default.reveal(), str_keys=True)
                yield field.encode_name, MASK if plain else plain


def _names_of_places(part: Any) -> list[str]:
    """The names of the places of a record that is an array; empty for another one."""
    if isinstance(part, inspect.StructType) and part.array_like:
        tag = [str(part.tag_field)] if part.tag_field is not None else []
        return [*tag, *(field.encode_name for field in part.fields)]
    return [field.encode_name for field in part.fields] if isinstance(part, inspect.NamedTupleType) else []


def _parts(described: inspect.Type) -> Iterator[Any]:
    """The records below a type, each once."""
    pending: list[Any] = [described]
    seen: set[int] = set()
    while pending:
        part = pending.pop()
        if isinstance(part, list | tuple):
            pending += part
        elif isinstance(part, inspect.Type | inspect.Field) and id(part) not in seen:
            seen.add(id(part))
            if isinstance(
                part, inspect.StructType | inspect.NamedTupleType | inspect.DataclassType | inspect.TypedDictType
            ):
                yield part
            pending += [getattr(part, name) for name in part.__struct_fields__]
