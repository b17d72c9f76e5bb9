"""JSON schemas in which records that are stored as arrays keep the names of their fields.

JSON schema gives such a record's types by their places alone: two fields of one type that change places would be no change.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

__all__ = ["POSITIONAL_NAMES", "schema_with_names"]

POSITIONAL_NAMES: Final = "x-fields"
"""The schema's keyword for the names of an array's places."""


def schema_with_names(value_type: Any) -> dict[str, Any]:
    """Return the JSON schema of a type, with the names of the fields of records that are arrays. Raises TypeError."""
    schema = msgspec.json.schema(value_type)
    definitions = schema.get("$defs", {})
    for kind, names in _positional(inspect.type_info(value_type)):
        for name in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}"):
            places = definitions.get(name, {}).get("prefixItems", ())
            if len(places) == len(names):
                definitions[name][POSITIONAL_NAMES] = names
    return schema


def _positional(described: inspect.Type) -> Iterator[tuple[type, list[str]]]:
    """The classes below a type whose records are arrays, with the names of their places."""
    pending: list[Any] = [described]
    seen: set[int] = set()
    while pending:
        part = pending.pop()
        if isinstance(part, list | tuple):
            pending += part
        elif isinstance(part, inspect.Type | inspect.Field) and id(part) not in seen:
            seen.add(id(part))
            if isinstance(part, inspect.StructType) and part.array_like:
                tag = [str(part.tag_field)] if part.tag_field is not None else []
                yield part.cls, [*tag, *(field.encode_name for field in part.fields)]
            elif isinstance(part, inspect.NamedTupleType):
                yield part.cls, [field.encode_name for field in part.fields]
            pending += [getattr(part, name) for name in part.__struct_fields__]
