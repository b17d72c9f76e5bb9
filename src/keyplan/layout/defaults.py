"""The values that fields of records have where a stored record lacks them: what a class, or its schema, says of each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from msgspec import NODEFAULT, inspect

from keyplan.codec import ValueForm
from keyplan.layout.schema_nodes import SchemaGraph, SchemaNode

__all__ = ["Lacking", "defaults_along", "defaults_of_items"]


@dataclass(frozen=True, slots=True)
class Lacking:
    """A field that a stored record may lack, by its path of attributes, and the value that it is read with then."""

    path: tuple[str, ...]
    default: object


def defaults_along(form: ValueForm[Any], path: str, *, is_described: bool = False) -> Iterator[Lacking]:
    """Yield the fields with a default on the way to an attribute, and that attribute's own; dotted, outer fields first.

    A description of a form tells the defaults that a JSON schema can: not those that a function makes. `is_described` asks
    the description of a form that has a class as well.
    """
    kinds = list(_kinds_of(form, is_described=is_described))
    names = tuple(path.split(".")) if path else ()
    for place, name in enumerate(names):
        fields = _fields(kinds, name)
        yield from (Lacking(names[: place + 1], default) for one in fields for default in one.defaults)
        kinds = [kind for one in fields for kind in one.kinds]


def defaults_of_items(
    form: ValueForm[Any], path: str, attribute: str, *, is_described: bool = False
) -> Iterator[object]:
    """Yield the default of an attribute that the items of a record's collection have; nothing where it has none."""
    kinds = list(_kinds_of(form, is_described=is_described))
    for name in path.split(".") if path else ():
        kinds = [kind for one in _fields(kinds, name) for kind in one.kinds]
    items = [item for kind in kinds for item in kind.items()]
    yield from (default for one in _fields(items, attribute) for default in one.defaults)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field's default, none or one, and its types: several where it is a union."""

    defaults: tuple[object, ...]
    kinds: Sequence["_Kind"]


class _Kind(Protocol):
    """A type that is no union."""

    def field(self, name: str) -> _Field | None:
        """The field of a record; None where there is no such."""
        ...

    def items(self) -> Sequence["_Kind"]:
        """The types of a collection's members."""
        ...


def _kinds_of(form: ValueForm[Any], *, is_described: bool) -> Sequence[_Kind]:
    kind: Any = Any if is_described else form.value_type
    if hasattr(kind, "DESCRIPTOR"):
        return [_Message(kind.DESCRIPTOR)]
    if kind is not Any:
        return _typed(inspect.type_info(kind))
    schema = form.describe().get("schema")
    return _drawn(SchemaGraph(schema).root) if isinstance(schema, Mapping) else ()


def _fields(kinds: Sequence[_Kind], name: str) -> list[_Field]:
    found = [kind.field(name) for kind in kinds]
    return [one for one in found if one is not None]


# ---- classes ----------------------------------------------------------------------------------------------------------------

_Record: TypeAlias = inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType
_Collection: TypeAlias = inspect.ListType | inspect.SetType | inspect.FrozenSetType | inspect.VarTupleType


def _typed(described: inspect.Type) -> list[_Kind]:
    if isinstance(described, inspect.Metadata):
        return _typed(described.type)
    if isinstance(described, inspect.UnionType):
        return [kind for option in described.types for kind in _typed(option)]
    return [_Typed(described)]


@dataclass(frozen=True, slots=True)
class _Typed:
    """A type as msgspec describes it; a model of pydantic is one that msgspec knows nothing of."""

    described: inspect.Type

    def field(self, name: str) -> _Field | None:
        kind = self.described
        if isinstance(kind, _Record):
            found = next((one for one in kind.fields if one.name == name), None)
            return None if found is None else _Field(_default_of(found), _typed(found.type))
        model = getattr(kind.cls, "model_fields", {}) if isinstance(kind, inspect.CustomType) else {}
        if name not in model:
            return None
        given = model[name]
        return _Field(_default_of_model(given), _typed(inspect.type_info(given.annotation)))

    def items(self) -> Sequence[_Kind]:
        kind = self.described
        if isinstance(kind, _Collection):
            return _typed(kind.item_type)
        if isinstance(kind, inspect.TupleType):
            return [item for place in kind.item_types for item in _typed(place)]
        return ()


def _default_of(field: inspect.Field) -> tuple[object, ...]:
    if field.default_factory is not NODEFAULT:
        return (field.default_factory(),)
    return () if field.default is NODEFAULT else (field.default,)


def _default_of_model(field: Any) -> tuple[object, ...]:
    if field.is_required():
        return ()
    try:
        return (field.get_default(call_default_factory=True),)
    except (TypeError, ValueError):
        return ()  # Why: the default is made of the record's other fields, so that there is none to judge alone.


# ---- messages ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Message:
    """A protobuf message: an absent field of it has its type's default, an absent message inside it those of its fields."""

    descriptor: Any

    def field(self, name: str) -> _Field | None:
        found = self.descriptor.fields_by_name.get(name)
        if found is None:
            return None
        is_plain = found.message_type is None and not isinstance(found.default_value, list)
        return _Field((found.default_value,) if is_plain else (), self._inner(found))

    def _inner(self, field: Any) -> Sequence[_Kind]:
        return () if field.message_type is None else [_Message(field.message_type)]

    def items(self) -> Sequence[_Kind]:
        # Why: a repeated field's type is its items' type.
        return [self]


# ---- schemas ----------------------------------------------------------------------------------------------------------------


def _drawn(node: SchemaNode) -> list[_Kind]:
    return [_Drawn(option) for option in node.options]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A type as a JSON schema draws it; its defaults are JSON."""

    node: SchemaNode

    def field(self, name: str) -> _Field | None:
        inner = (self.node.fields or {}).get(name)
        if inner is None:
            return None
        return _Field(self.node.default(name), _drawn(inner))

    def items(self) -> Sequence[_Kind]:
        if not self.node.is_array:
            return ()
        return [kind for one in (*self.node.places, self.node["items"]) for kind in _drawn(one)]
