"""Messages as records: msgspec Structs that are written by hand, where a program holds them, or made of a declaration."""

from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from types import GenericAlias, UnionType
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

import msgspec

from keyplan.protobuf.declaration import Declaration, Field
from keyplan.protobuf.scalars import SCALARS

__all__ = ["Message", "Record", "RecordClasses", "field_types", "unknown_field_paths", "with_unknown_fields_of"]

M = TypeVar("M", bound="Message")


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A proto3 message that declares itself: fields with defaults, which are their zero values.

    A field is a bool, int (64 bits), float, str, bytes, StrEnum (numbered from 0 in order), Message or None, list of messages,
    or a dict from int or str to messages. `unknown_fields` holds what was read and is none of them, as JSON values by name.
    """

    unknown_fields: dict[str, Any] = msgspec.field(default_factory=dict)

    @classmethod
    def add_schema_to(cls, schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Add the JSON Schema of its proto3 JSON, and those of the messages that it holds, by name; return the reference to it.

        As it is written and may be sent: every field may be left out, and numbers of 64 bits are strings.
        """
        name = cls.__name__
        if name not in schemas:
            properties: dict[str, Any] = {}
            # Why no additional ones, although `unknown_fields` keeps them: what is described is what is understood.
            schemas[name] = {"type": "object", "description": (cls.__doc__ or "").strip(), "properties": properties}
            schemas[name]["additionalProperties"] = False
            for info in msgspec.structs.fields(cls):
                if info.name != "unknown_fields":
                    properties[info.encode_name] = _schema(info.type, schemas)
        return {"$ref": f"#/components/schemas/{name}"}


def _schema(kind: Any, schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _schema(arguments[0], schemas)
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], schemas)}
    if origin is dict:
        names = {"pattern": "^(0|[1-9][0-9]{0,17})$"} if arguments[0] is int else {"type": "string"}
        return {"type": "object", "propertyNames": names, "additionalProperties": _schema(arguments[1], schemas)}
    if issubclass(kind, Message):
        reference: dict[str, Any] = kind.add_schema_to(schemas)
        return reference
    if issubclass(kind, StrEnum):
        return {"type": "string", "enum": [str(member) for member in kind]}
    if kind is int:
        return {"type": "string", "pattern": "^(0|-?[1-9][0-9]{0,17})$", "description": "a whole number of 64 bits"}
    words = {bool: "boolean", str: "string", float: "number", bytes: "string"}
    return {"type": words[kind]}


class Record(msgspec.Struct, kw_only=True):
    """A message as a table declares it. A message or a choice that is not set is None; a repeated field is a list."""

    declared_types: ClassVar[Any] = None


class RecordClasses:
    """Record classes as attributes. Classes are made once: equal names give the same class."""

    def __init__(self, declared: Declaration) -> None:
        self._declared = declared

    def __getattr__(self, name: str) -> Any:
        # Only names that are not there yet come here: a class, once made, is an ordinary attribute.
        fields = self._declared.messages.get(name)
        if fields is None:
            raise AttributeError(f"{self._declared.package} has no message {name}")

        # Why asked for later: messages may hold one another.
        @cache
        def types() -> dict[str, Any]:
            return {field.name: self._type(field) for field in fields}

        attributes = [(field.name, Any, self._default(field)) for field in fields]
        found = msgspec.defstruct(
            name, attributes, bases=(Record,), kw_only=True, namespace={"declared_types": staticmethod(types)}
        )
        # Why: of two threads that made it, both return the one that was first.
        return self.__dict__.setdefault(name, found)

    def _single(self, kind: str) -> Any:
        if kind in SCALARS:
            return Annotated[SCALARS[kind], kind]
        return self._declared.enums.get(kind) or getattr(self, kind)

    def _type(self, field: Field) -> Any:
        single = self._single(field.kind)
        if field.is_repeated:
            return GenericAlias(list, (single,))
        is_optional = field.is_choice or field.kind in self._declared.messages
        return single | None if is_optional else single

    def _default(self, field: Field) -> Any:
        if field.is_repeated:
            return msgspec.field(default_factory=list)
        if field.is_choice or field.kind in self._declared.messages:
            return None
        return SCALARS[field.kind]() if field.kind in SCALARS else self._declared.enums[field.kind](0)


def field_types(record: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of a record's fields by name, without `unknown_fields`."""
    if issubclass(record, Record):
        declared: dict[str, Any] = record.declared_types()
        return declared
    return {info.name: info.type for info in msgspec.structs.fields(record) if info.name != "unknown_fields"}


def unknown_field_paths(message: Message, place: str = "") -> Iterator[str]:
    """Yield where a message has fields that its class does not know, at every depth: `capacity.corse`, as JSON spells them."""
    for info in msgspec.structs.fields(message):
        value, here = getattr(message, info.name), f"{place}{info.encode_name}"
        if info.name == "unknown_fields":
            yield from (f"{place}{name}" for name in value)
        elif isinstance(value, Message):
            yield from unknown_field_paths(value, f"{here}.")
        elif isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in items:
                if isinstance(item, Message):
                    yield from unknown_field_paths(item, f"{here}.{key}.")


def with_unknown_fields_of(old: Message, new: M) -> M:
    """Return `new` with the unknown fields that `old` has, at every depth that both have: what a newer program added stays.

    An item of a list has no name: it keeps those of an old item that is the same but for them.
    """
    kept: dict[str, Any] = {}
    for name in new.__struct_fields__:
        before: Any = getattr(old, name, None)
        after: Any = getattr(new, name)
        merged: Any = after
        if name == "unknown_fields":
            merged = {**(before or {}), **after}
        elif isinstance(after, Message):
            merged = _kept_within(before, after)
        elif isinstance(after, dict) and isinstance(before, dict):
            merged = {key: _kept_within(before.get(key), item) for key, item in after.items()}
        elif isinstance(after, list) and isinstance(before, list):
            merged = _kept_in_list(before, after)
        if merged != after:
            kept[name] = merged
    return msgspec.structs.replace(new, **kept) if kept else new


def _kept_within(before: object, after: Message) -> Message:
    return with_unknown_fields_of(before, after) if isinstance(before, Message) else after


def _kept_in_list(before: list[Any], after: list[Any]) -> list[Any]:
    left, kept = list(before), []
    for item in after:
        same = next((place for place, old in enumerate(left) if _kept_within(old, item) == old), None)
        kept.append(item if same is None else left.pop(same))
    return kept
