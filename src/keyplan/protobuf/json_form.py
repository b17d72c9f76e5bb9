"""proto3 JSON as Go writes it: records as text, and the form that stores them.

Compact; fields in declared order, by lowerCamelCase names or by their original ones; zero values left out; maps sorted by key.
Reading takes both spellings of a name. What a newer program added is kept where the record has `unknown_fields`.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Generic, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from keyplan.codec import (
    SEALED_FIELD,
    Secret,
    SecretSyntax,
    ValueForm,
    envelope_of_plain,
    envelope_of_secret,
    sealed_secret,
)
from keyplan.errors import CorruptionError, LayoutError
from keyplan.protobuf.records import Message, field_types
from keyplan.protobuf.scalars import JSON_SCALARS, JsonKind, MisfitError, enumeration_kind, escape, require_type

__all__ = ["JsonCodec", "JsonStyle", "ProtoJson", "json_codec"]

M = TypeVar("M", bound=Message)


class JsonStyle(NamedTuple):
    """What proto3 JSON leaves open: how names are written, and whether unknown fields are refused, in both directions."""

    is_camel: bool = True
    is_strict: bool = False


class JsonCodec:
    """Writes and reads the records of one class. Raises MisfitError, which names the field and quotes no content."""

    def __init__(self, record: Any, style: JsonStyle) -> None:
        self._record: Any = record
        self._style = style
        self._has_unknown = "unknown_fields" in record.__struct_fields__

    @cached_property
    def _fields(self) -> tuple["_Field", ...]:
        # Why: when first used, not when made, because messages may hold one another.
        return tuple(
            _Field(name, _camel(name) if self._style.is_camel else name, _kind_of(kind, self._style, name))
            for name, kind in field_types(self._record).items()
        )

    @cached_property
    def _by_name(self) -> dict[str, "_Field"]:
        return {spelled: field for field in self._fields for spelled in (_camel(field.name), field.name)}

    def write(self, value: Any) -> str:
        """Return a record as text."""
        if type(value) is not self._record:
            raise MisfitError(f"a {self._record.__name__} is needed, not a {type(value).__name__}")
        written: list[str] = []
        for name, json_name, kind in self._fields:
            content = getattr(value, name)
            if not kind.is_zero(content):
                try:
                    written.append(f'"{json_name}":{kind.write(content)}')
                except MisfitError as misfit:
                    raise misfit.within(name) from misfit
        if self._has_unknown and value.unknown_fields:
            self._check_unknown(value.unknown_fields)
            written.append(_write_unknown(value.unknown_fields))
        return "{" + ",".join(written) + "}"

    def read(self, value: Any) -> Any:
        """Return the record of a decoded JSON object."""
        require_type(dict, value)
        by_name = self._by_name
        found: dict[str, Any] = {}
        unknown: dict[str, Any] = {}
        for name, content in value.items():
            field = by_name.get(name)
            if field is None:
                unknown[name] = content
            elif content is not None:
                try:
                    found[field.name] = field.kind.read(content)
                except MisfitError as misfit:
                    raise misfit.within(field.json_name) from misfit
        if unknown:
            self._check_unknown(unknown)
            if self._has_unknown:
                found["unknown_fields"] = unknown
        return self._record(**found)

    def _check_unknown(self, unknown: Mapping[str, Any]) -> None:
        if self._style.is_strict:
            raise MisfitError("there is an unknown field")
        if any(name in self._by_name for name in unknown):
            raise MisfitError("an unknown field has the name of a known one")


class _Field(NamedTuple):
    name: str
    json_name: str
    kind: JsonKind


@cache
def json_codec(record: Any, style: JsonStyle) -> JsonCodec:
    """Return the codec of a class. Codecs are made once."""
    return JsonCodec(record, style)


class ProtoJson(ValueForm[M], Generic[M]):
    """Messages of one class as proto3 JSON.

    Reading takes numbers or quoted numbers, enumerators by name or number, and fields by their original_name as well. Unknown
    fields are kept, at every depth; with `is_strict` they are refused, in both directions.
    """

    code: ClassVar[str] = "proto3-json"

    def __init__(self, message: type[M], *, is_strict: bool = False) -> None:
        self._message = message
        self._is_strict = is_strict
        self._codec = json_codec(message, JsonStyle(is_strict=is_strict))

    @property
    def value_type(self) -> type[M]:
        return self._message

    @property
    def secret_syntax(self) -> SecretSyntax:
        return SecretSyntax.JSON

    def encode(self, value: M) -> bytes:
        try:
            return self._codec.write(value).encode()
        except MisfitError as misfit:
            self.refuse(misfit.problem, type_expected=self._message.__name__, field=misfit.place)
        except UnicodeEncodeError:
            self.refuse("a lone surrogate has no UTF-8", type_expected=self._message.__name__)

    def decode(self, raw: bytes) -> M:
        try:
            message: M = self._codec.read(msgspec.json.decode(raw))
        except MisfitError as misfit:
            where = f" at {misfit.place}" if misfit.place else ""
            raise CorruptionError(
                problem=f"the value is no {self._message.__name__}: {misfit.problem}{where}"
            ) from misfit
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise CorruptionError(problem=f"the value is no {self._message.__name__}: it is not JSON") from error
        return message

    def describe(self) -> dict[str, Any]:
        """The form with the fields of every message and the names of every enumeration, so that layouts can be compared."""
        types: dict[str, Any] = {}
        _describe(self._message, types)
        return {"form": self.code, "type": self._message.__name__, "is_strict": self._is_strict, "types": types}


# ---- the types of fields -------------------------------------------------------------------------------------------------

_SCALAR_OF: Final[Mapping[Any, str]] = {bool: "bool", int: "int64", float: "double", str: "string", bytes: "bytes"}
"""What a field's Python type means where it says nothing else."""


def _kind_of(kind: Any, style: JsonStyle, place: str) -> JsonKind:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list:
        return _list_kind(_single_kind(arguments[0], style, place))
    if origin is dict and arguments[0] in {int, str}:
        return _map_kind(_single_kind(arguments[1], style, place), arguments[0])
    if origin in {Union, UnionType} and len(arguments) == 2 and arguments[1] is NoneType:
        inner = _single_kind(arguments[0], style, place)
        return JsonKind(inner.write, inner.read, lambda value: value is None)
    return _single_kind(kind, style, place, is_alone=True)


def _single_kind(kind: Any, style: JsonStyle, place: str, *, is_alone: bool = False) -> JsonKind:
    if isinstance(kind, type) and issubclass(kind, Secret):
        return _secret_kind(kind, _single_kind(kind.kind, style, place))
    scalar = get_args(kind)[1] if get_origin(kind) is Annotated else _SCALAR_OF.get(kind)
    if scalar is not None:
        return JSON_SCALARS[scalar]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return enumeration_kind(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and not is_alone:
        codec = json_codec(kind, style)
        return JsonKind(codec.write, codec.read, lambda value: value is None)
    raise LayoutError(problem="proto3 JSON has no field of this type", field=place)


def _secret_kind(kind: type[Secret[Any]], held: JsonKind) -> JsonKind:
    def write(secret: Any) -> str:
        if not isinstance(secret, Secret):
            raise MisfitError(f"a Secret is needed, not a {type(secret).__name__}")
        envelope = envelope_of_secret(secret)
        if envelope is not None:
            return msgspec.json.encode({SEALED_FIELD: envelope}).decode()
        return held.write(secret.reveal())

    def read(value: Any) -> Secret[Any]:
        envelope = envelope_of_plain(value)
        if envelope is None:
            return kind(held.read(value))
        return sealed_secret(kind, envelope, lambda raw, _: held.read(msgspec.json.decode(raw)))

    def is_zero(secret: Any) -> bool:
        # Why not a sealed one: a value that is not written is not sealed.
        return isinstance(secret, Secret) and secret.sealed is None and held.is_zero(secret.reveal())

    return JsonKind(write, read, is_zero)


def _list_kind(item: JsonKind) -> JsonKind:
    def write(value: Any) -> str:
        require_type(list, value)
        return "[" + ",".join(_placed(item.write, one, str(number)) for number, one in enumerate(value)) + "]"

    def read(value: Any) -> list[Any]:
        require_type(list, value)
        return [_placed(item.read, one, str(number)) for number, one in enumerate(value)]

    return JsonKind(write, read, lambda value: type(value) is list and not value)


def _map_kind(item: JsonKind, key_type: type) -> JsonKind:
    key_kind = JSON_SCALARS[_SCALAR_OF[key_type]]

    def write(value: Any) -> str:
        require_type(dict, value)
        for key in value:
            require_type(key_type, key)
        spelled = ((key, key_kind.write(key)) for key in sorted(value))
        return "{" + ",".join(f"{name}:{_placed(item.write, value[key], str(key))}" for key, name in spelled) + "}"

    def read(value: Any) -> dict[Any, Any]:
        require_type(dict, value)
        return {_placed(key_kind.read, key, "key"): _placed(item.read, one, str(key)) for key, one in value.items()}

    return JsonKind(write, read, lambda value: type(value) is dict and not value)


def _placed(act: Callable[[Any], Any], value: object, place: str) -> Any:
    try:
        return act(value)
    except MisfitError as misfit:
        raise misfit.within(place) from misfit


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def _write_unknown(unknown: Mapping[str, Any]) -> str:
    try:
        text = msgspec.json.encode(unknown).decode()
        is_kept = msgspec.json.decode(text) == unknown
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise MisfitError("the unknown fields are no JSON values") from error
    if not is_kept:
        raise MisfitError("the unknown fields are no JSON values")
    # Why: in JSON these characters stand inside texts only, so that replacing them everywhere is right.
    return re.sub("[<>&\u2028\u2029]", escape, text[1:-1])


def _describe(kind: Any, types: dict[str, Any]) -> str:
    """The name of a field's type; every message and enumeration that it needs is added to `types`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list:
        return f"list of {_describe(arguments[0], types)}"
    if origin is dict:
        return f"map of {arguments[0].__name__} to {_describe(arguments[1], types)}"
    if origin is not None:
        return _describe(arguments[0], types)
    if issubclass(kind, Secret):
        return _describe(kind.kind, types)
    name = str(kind.__name__)
    if issubclass(kind, Message) and name not in types:
        shown: dict[str, str] = {}
        types[name] = shown
        for field, own in field_types(kind).items():
            shown[_camel(field)] = _describe(own, types)
    if issubclass(kind, StrEnum):
        types[name] = [str(member) for member in kind]
    return name
