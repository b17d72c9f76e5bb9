"""The shape of JSON values: which fields, of which types, how often; and the record type that all of them fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["JsonShape", "JsonType"]

FIELDS_MAX: Final = 64
"""Why: an object with more different fields than a person would declare holds data in its field names."""

_DEPTH_MAX: Final = 8
_MAPPING_FIELDS_MIN: Final = 6

_SCALARS: Final = ("bool", "int", "float", "str")


@dataclass(frozen=True, slots=True)
class JsonType:
    """A type that values fit: scalars, perhaps None, perhaps a list, perhaps a mapping or fields. With nothing, anything.

    `fields` maps stored names to types and to whether every object had them.
    """

    scalars: tuple[str, ...] = ()
    has_null: bool = False
    item: "JsonType | None" = None
    value: "JsonType | None" = None
    fields: "Mapping[str, tuple[JsonType, bool]] | None" = None

    @property
    def is_anything(self) -> bool:
        return not (self.scalars or self.item or self.value or self.fields is not None)


class JsonShape:
    """What was seen at one place of JSON values."""

    __slots__ = ("_depth", "fields", "is_mapping", "item", "kinds", "value")

    def __init__(self, depth: int = 0) -> None:
        self.kinds: dict[str, int] = {}
        self.fields: dict[str, JsonShape] = {}
        self.item: JsonShape | None = None
        self.value: JsonShape | None = None
        self.is_mapping = False
        self._depth = depth

    @property
    def count(self) -> int:
        return sum(self.kinds.values())

    def add(self, value: Any) -> None:
        """Take in one decoded value."""
        kind = _kind_of(value)
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if self._depth >= _DEPTH_MAX:
            return
        if kind == "array":
            for one in value:
                self._item().add(one)
        elif kind == "object":
            for name, one in value.items():
                self._field(name).add(one)

    def merge(self, other: "JsonShape") -> None:
        """Take in all that another shape saw."""
        for kind, number in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + number
        if other.item is not None:
            self._item().merge(other.item)
        if other.is_mapping and not self.is_mapping:
            self._become_mapping()
        if other.value is not None:
            self._value().merge(other.value)
        for name, field in other.fields.items():
            self._field(name).merge(field)

    def _item(self) -> "JsonShape":
        if self.item is None:
            self.item = JsonShape(self._depth + 1)
        return self.item

    def _value(self) -> "JsonShape":
        if self.value is None:
            self.value = JsonShape(self._depth + 1)
        return self.value

    def _field(self, name: str) -> "JsonShape":
        if self.is_mapping:
            return self._value()
        field = self.fields.get(name)
        if field is None:
            if len(self.fields) >= FIELDS_MAX:
                self._become_mapping()
                return self._value()
            field = self.fields[name] = JsonShape(self._depth + 1)
        return field

    def _become_mapping(self) -> None:
        self.is_mapping = True
        for field in self.fields.values():
            self._value().merge(field)
        self.fields = {}

    # ---- the type ----------------------------------------------------------------------------------------------------------

    def type(self) -> JsonType:
        """Return the type that every value seen fits."""
        scalars = [kind for kind in _SCALARS if kind in self.kinds]
        if "float" in scalars and "int" in scalars:
            scalars.remove("int")
        item = (self.item.type() if self.item is not None else JsonType()) if "array" in self.kinds else None
        value, fields = None, None
        if "object" in self.kinds:
            value, fields = self._object_type()
        return JsonType(tuple(scalars), "null" in self.kinds, item, value, fields)

    def _object_type(self) -> "tuple[JsonType | None, dict[str, tuple[JsonType, bool]] | None]":
        if self.is_mapping or not self.fields or self._is_keyed_by_data():
            merged = JsonShape(self._depth)
            merged.merge(self)
            merged._become_mapping()
            return merged._value().type(), None
        number = self.kinds["object"]
        return None, {name: (field.type(), field.count == number) for name, field in self.fields.items()}

    def _is_keyed_by_data(self) -> bool:
        """Whether the names of fields are data: many of them, no object has most of them, and all hold the same kind."""
        names = len(self.fields)
        if names < _MAPPING_FIELDS_MIN:
            return False
        mostly = max(field.count for field in self.fields.values())
        kinds = {frozenset(field.kinds) for field in self.fields.values()}
        return len(kinds) == 1 and 2 * mostly <= self.kinds["object"]


def _kind_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case str():
            return "str"
        case list():
            return "array"
        case _:
            return "object"
