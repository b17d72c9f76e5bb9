"""JSON schemas of what is stored, with what decides bytes and JSON schema has no words for.

Two types whose values differ must have schemas that differ: `keyplan diff` compares schemas, and fingerprints rest on them.
So a schema of ours says more, in keywords of its own, `x-...`. Secrets are what they hold.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import NODEFAULT, inspect

from keyplan.codec.secrets import MASK, Secret

__all__ = ["BYTE_LENGTHS", "MAP_KEYS", "OMITTED_FIELDS", "POSITIONAL_NAMES", "TAG_FIELD", "TEXT_KIND", "value_schema"]


POSITIONAL_NAMES: Final = "x-fields"
"""The names of the places of a record that is stored as an array: two fields of one type may change places."""

OMITTED_FIELDS: Final = "x-omitted"
"""Of a record: the fields that it is stored without at times, as with `omit_defaults`; absent where there is none."""

TAG_FIELD: Final = "x-tag"
"""Of a tagged record: the name of the field that tells it from others."""

MAP_KEYS: Final = "x-keys"
"""Of a map: the schema of its keys, where these are no plain text."""

TEXT_KIND: Final = "x-kind"
"""Of text: what it spells, where `format` does not say, as with a date and time."""

BYTE_LENGTHS: Final = "x-lengths"
"""Of bytes: the least and the most of them, null for no bound; those of base64 text are rounded."""


_Record: TypeAlias = inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType
_Bytes: TypeAlias = inspect.BytesType | inspect.ByteArrayType | inspect.MemoryViewType


def value_schema(value_type: Any) -> dict[str, Any]:
    """Return the JSON schema of a type, with our keywords. Raises TypeError for a type that has none."""
    schema = msgspec.json.schema(value_type, schema_hook=_schema_of_secret)
    _Notes(schema.get("$defs", {})).note(inspect.type_info(value_type), schema)
    return schema


class _Notes:
    """A walk through a type and its schema side by side; each record is entered once."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._seen: set[int] = set()

    def note(self, kind: inspect.Type, schema: Any) -> None:
        pending: list[tuple[inspect.Type, Any]] = [(kind, schema)]
        while pending:
            kind, schema = pending.pop()
            schema = self._defined(schema)
            if isinstance(kind, inspect.Metadata):
                pending.append((kind.type, schema))
            elif id(schema) not in self._seen and isinstance(schema, dict):
                self._seen.add(id(schema))
                _note_one(kind, schema)
                pending += _inside(kind, schema)

    def _defined(self, schema: Any) -> Any:
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        return schema if reference is None else self._definitions.get(str(reference).rpartition("/")[2])


def _note_one(kind: inspect.Type, schema: dict[str, Any]) -> None:
    if isinstance(kind, _Record):
        names = _names_of_places(kind)
        if names and len(schema.get("prefixItems", ())) == len(names):
            schema[POSITIONAL_NAMES] = names
        if isinstance(kind, inspect.StructType) and kind.tag_field is not None:
            schema[TAG_FIELD] = str(kind.tag_field)
        omitted = sorted(_omitted(kind))
        if omitted:
            schema[OMITTED_FIELDS] = omitted
        for name, plain in _defaults_of_secrets(kind):
            schema.get("properties", {}).get(name, {})["default"] = plain
    elif isinstance(kind, inspect.DateTimeType | inspect.TimeType):
        name = "date-time" if isinstance(kind, inspect.DateTimeType) else "time"
        schema[TEXT_KIND] = {None: name, True: f"{name} with a zone", False: f"{name} without a zone"}[kind.tz]
    elif isinstance(kind, _Bytes) and (kind.min_length, kind.max_length) != (None, None):
        schema[BYTE_LENGTHS] = [kind.min_length, kind.max_length]
    elif isinstance(kind, inspect.DictType):
        keys = _schema_of_keys(kind.key_type)
        if keys.get("type") != "string" or set(keys) & {TEXT_KIND, "format", "contentEncoding"}:
            schema[MAP_KEYS] = keys


def _inside(kind: inspect.Type, schema: dict[str, Any]) -> Iterator[tuple[inspect.Type, Any]]:
    """The types within a type, each with its schema."""
    match kind:
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType() | inspect.NamedTupleType():
            named = schema.get("properties")
            if not isinstance(named, dict):
                named = dict(zip(_names_of_places(kind), schema.get("prefixItems", ()), strict=False))
            yield from ((field.type, named.get(field.encode_name)) for field in kind.fields)
        case inspect.TupleType():
            yield from zip(kind.item_types, schema.get("prefixItems", ()), strict=False)
        case inspect.CollectionType():
            yield kind.item_type, schema.get("items")
        case inspect.DictType():
            yield kind.value_type, schema.get("additionalProperties")
        case inspect.UnionType():
            yield from _options(kind, schema)
        case _:
            pass


def _options(kind: inspect.UnionType, schema: dict[str, Any]) -> Iterator[tuple[inspect.Type, Any]]:
    """The members of a union with their schemas. msgspec puts tagged records that are objects last, and None behind them."""
    drawn: list[Any] = []
    pending: list[Any] = [schema]
    while pending:
        one = pending.pop()
        listed = one.get("anyOf") if isinstance(one, dict) else None
        if isinstance(listed, list):
            pending += reversed(listed)
        else:
            drawn.append(one)
    yield from zip(sorted(kind.types, key=_place_in_union), drawn, strict=False)


def _place_in_union(kind: inspect.Type) -> int:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.NoneType):
        return 2
    return 1 if isinstance(kind, inspect.StructType) and not kind.array_like else 0


def _schema_of_keys(kind: inspect.Type) -> dict[str, Any]:
    """The schema of a map's keys."""
    match kind:
        case inspect.Metadata():
            return _schema_of_keys(kind.type)
        case inspect.UnionType():
            return {"anyOf": [_schema_of_keys(option) for option in kind.types]}
        case inspect.LiteralType():
            return {"enum": sorted(kind.values, key=repr)}
        case inspect.EnumType():
            return {"title": kind.cls.__name__, "enum": sorted((one.value for one in kind.cls), key=repr)}
        case inspect.StrType():
            return {"type": "string"}  # Why no more: its bounds stand in the schema, as `propertyNames`.
        case inspect.IntType() | inspect.FloatType():
            words = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
            bounds = {word: getattr(kind, name) for name, word in {**words, "multiple_of": "multipleOf"}.items()}
            own = {"type": "integer" if isinstance(kind, inspect.IntType) else "number"}
            return own | {word: bound for word, bound in bounds.items() if bound is not None}
        case inspect.AnyType():
            return {}
        case _:
            return {"type": "string", TEXT_KIND: _word_of(kind)}


def _word_of(kind: inspect.Type) -> str:
    facts = [f"{name}={getattr(kind, name)}" for name in kind.__struct_fields__ if name in _SCALAR_FACTS]
    told = [fact for fact in facts if not fact.endswith("=None")]
    return " ".join([type(kind).__name__.removesuffix("Type").lower(), *told])


_SCALAR_FACTS: Final = frozenset({"tz", "min_length", "max_length"})


def _omitted(kind: _Record) -> Iterator[str]:
    """The fields that a record is stored without at times: those that may be unset, and defaults that are left out."""
    if _names_of_places(kind):
        return
    omits_defaults = isinstance(kind, inspect.StructType) and bool(kind.cls.__struct_config__.omit_defaults)
    for field in kind.fields:
        has_default = field.default is not NODEFAULT or field.default_factory is not NODEFAULT
        # Why these: of what other functions make msgspec cannot tell whether it is the default, and stores it.
        is_left_out = omits_defaults and (field.default is not NODEFAULT or field.default_factory in {list, dict, set})
        if not field.required and (is_left_out or not has_default):
            yield field.encode_name


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
