"""proto3 JSON as the Go program writes it: messages as Python classes, and the form that stores them (2.2, R18).

Compact; lowerCamelCase names in declared order; zero values left out; 64-bit numbers quoted; enumerators by name; bytes in
base64; maps sorted by key. What a newer program added is kept in `unknown_fields` and written back.
"""

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import StrEnum
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar, cast, get_args, get_origin

import msgspec

from keyplan.codec import ValueForm
from keyplan.errors import CorruptionError, LayoutError

__all__ = ["Message", "ProtoJson", "with_unknown_fields_of"]

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

M = TypeVar("M", bound="Message")


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A proto3 message: fields with defaults, which are their zero values.

    A field is a bool, int (64 bits), float, str, bytes, StrEnum (numbered from 0 in order), Message or None, list of messages,
    or a dict from int or str to messages. `unknown_fields` holds what was read and is none of them, as JSON values by name.
    """

    unknown_fields: dict[str, Any] = msgspec.field(default_factory=dict)


def with_unknown_fields_of(old: Message, new: M) -> M:
    """Return `new` with the unknown fields that `old` has, at every depth that both have: what a newer program added stays."""
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
        if merged != after:
            kept[name] = merged
    return msgspec.structs.replace(new, **kept) if kept else new


def _kept_within(before: object, after: Message) -> Message:
    return with_unknown_fields_of(before, after) if isinstance(before, Message) else after


class ProtoJson(ValueForm[M], Generic[M]):
    """Messages of one class as proto3 JSON.

    Reading takes numbers or quoted numbers, enumerators by name or number, and fields by their original_name as well. Unknown
    fields are kept, at every depth; with `is_strict` they are refused, in both directions.
    """

    code: ClassVar[str] = "proto3-json"

    def __init__(self, message: type[M], *, is_strict: bool = False) -> None:
        self._message = message
        self._is_strict = is_strict
        self._kind = _message_kind(message, is_strict)

    @property
    def value_type(self) -> type[M]:
        return self._message

    def encode(self, value: M) -> bytes:
        try:
            return self._kind.write(value).encode()
        except _MisfitError as misfit:
            self.refuse(misfit.problem, type_expected=self._message.__name__, field=misfit.place)
        except UnicodeEncodeError:
            self.refuse("a lone surrogate has no UTF-8", type_expected=self._message.__name__)

    def decode(self, raw: bytes) -> M:
        try:
            message: M = self._kind.read(msgspec.json.decode(raw))
        except _MisfitError as misfit:
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


class _MisfitError(Exception):
    """A value that its field cannot take. `place` is the path of fields to it; content is never quoted."""

    def __init__(self, problem: str, place: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.place = place

    def within(self, name: str) -> "_MisfitError":
        """The same, seen from one level further out."""
        return _MisfitError(self.problem, f"{name}.{self.place}" if self.place else name)


class _Kind(NamedTuple):
    """How the values of one type are written and read. `is_zero` tells which a message leaves out."""

    write: Callable[[Any], str]
    read: Callable[[Any], Any]
    is_zero: Callable[[Any], bool]


# ---- scalars -------------------------------------------------------------------------------------------------------------

# Why: Go writes these characters of a text as \u and four digits, the first five of _SHORT excepted.
_ESCAPED: Final = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})")


def _quoted(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def _require(kind: type, value: object) -> None:
    if type(value) is not kind:
        raise _MisfitError(f"a {kind.__name__} is needed, not a {type(value).__name__}")


def _write_truth(value: object) -> str:
    _require(bool, value)
    return "true" if value else "false"


def _read_truth(value: object) -> bool:
    _require(bool, value)
    return value is True


def _write_number(value: Any) -> str:
    _require(int, value)
    if not INT64_MIN <= value <= INT64_MAX:
        raise _MisfitError("the number does not fit into 64 bits")
    return f'"{value}"'


def _read_number(value: Any) -> int:
    number: Any = int(value) if type(value) is str and _WHOLE.fullmatch(value) else value
    _require(int, number)
    if not INT64_MIN <= number <= INT64_MAX:
        raise _MisfitError("the number does not fit into 64 bits")
    return cast("int", number)


def _write_float(value: Any) -> str:
    if type(value) is not int:
        _require(float, value)
    value = float(value)
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if value != 0 and not 1e-6 <= abs(value) < 1e21:
        return repr(value).replace("e-0", "e-")
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")


def _read_float(value: Any) -> float:
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError) as error:
        raise _MisfitError("a number is needed") from error
    raise _MisfitError(f"a number is needed, not a {type(value).__name__}")


def _write_text(value: Any) -> str:
    _require(str, value)
    return _quoted(value)


def _read_text(value: Any) -> str:
    _require(str, value)
    return cast("str", value)


def _write_bytes(value: Any) -> str:
    _require(bytes, value)
    return f'"{base64.b64encode(value).decode()}"'


def _read_bytes(value: Any) -> bytes:
    _require(str, value)
    # Why: the specification lets readers take the URL alphabet and missing padding as well.
    text = value.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise _MisfitError("base64 is needed") from error


_SCALARS: Final[dict[Any, _Kind]] = {
    bool: _Kind(_write_truth, _read_truth, lambda value: value is False),
    int: _Kind(_write_number, _read_number, lambda value: type(value) is int and value == 0),
    float: _Kind(_write_float, _read_float, lambda value: type(value) in {int, float} and value == 0),
    str: _Kind(_write_text, _read_text, lambda value: type(value) is str and not value),
    bytes: _Kind(_write_bytes, _read_bytes, lambda value: type(value) is bytes and not value),
}


@cache
def _enumeration_kind(enumeration: type[StrEnum]) -> _Kind:
    members = list(enumeration)
    by_name = {str(member): member for member in members}

    def write(value: object) -> str:
        _require(enumeration, value)
        return f'"{value}"'

    def read(value: object) -> StrEnum:
        if isinstance(value, str) and value in by_name:
            return by_name[value]
        if type(value) is int and 0 <= value < len(members):
            return members[value]
        raise _MisfitError(f"a name or number of {enumeration.__name__} is needed")

    return _Kind(write, read, lambda value: value is members[0])


# ---- messages ------------------------------------------------------------------------------------------------------------


class _Field(NamedTuple):
    name: str
    json_name: str
    kind: _Kind


class _MessageCodec:
    """Writes and reads the messages of one class."""

    def __init__(self, message: type[Message], *, is_strict: bool) -> None:
        self._message = message
        self._is_strict = is_strict

    @cached_property
    def _fields(self) -> tuple[_Field, ...]:
        # Why: when first used, not when made, because messages may hold one another.
        return tuple(
            _Field(info.name, info.encode_name, _kind_of(info.type, self._is_strict, info.name))
            for info in msgspec.structs.fields(self._message)
            if info.name != "unknown_fields"
        )

    @cached_property
    def _by_name(self) -> dict[str, _Field]:
        return {name: field for field in self._fields for name in (field.name, field.json_name)}

    def write(self, value: Any) -> str:
        if type(value) is not self._message:
            raise _MisfitError(f"a {self._message.__name__} is needed, not a {type(value).__name__}")
        written: list[str] = []
        for name, json_name, kind in self._fields:
            content = getattr(value, name)
            if not kind.is_zero(content):
                try:
                    written.append(f'"{json_name}":{kind.write(content)}')
                except _MisfitError as misfit:
                    raise misfit.within(name) from misfit
        if value.unknown_fields:
            self._check_unknown(value.unknown_fields)
            written.append(_write_unknown(value.unknown_fields))
        return "{" + ",".join(written) + "}"

    def read(self, value: Any) -> Message:
        _require(dict, value)
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
                except _MisfitError as misfit:
                    raise misfit.within(field.json_name) from misfit
        if unknown:
            self._check_unknown(unknown)
            found["unknown_fields"] = unknown
        return self._message(**found)

    def _check_unknown(self, unknown: Mapping[str, Any]) -> None:
        if self._is_strict:
            raise _MisfitError("there is an unknown field")
        if any(name in self._by_name for name in unknown):
            raise _MisfitError("an unknown field has the name of a known one")


@cache
def _message_kind(message: type[Message], is_strict: bool) -> _Kind:  # noqa: FBT001  # Why: `cache` wants it by position.
    codec = _MessageCodec(message, is_strict=is_strict)
    return _Kind(codec.write, codec.read, lambda value: value is None)


def _kind_of(kind: Any, is_strict: bool, place: str) -> _Kind:  # noqa: FBT001  # Why: as above.
    if kind in _SCALARS:
        return _SCALARS[kind]
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _enumeration_kind(kind)
    message = _message_in(kind)
    if message is not None:
        inner = _message_kind(message, is_strict)
        if get_origin(kind) is list:
            return _list_kind(inner)
        if get_origin(kind) is dict:
            return _map_kind(inner, get_args(kind)[0])
        return inner
    raise LayoutError(problem="proto3 JSON has no field of this type", field=place)


def _message_in(kind: Any) -> type[Message] | None:
    """The message class of `Message | None`, `list[Message]` or `dict[int or str, Message]`; None for anything else."""
    origin, arguments = get_origin(kind), get_args(kind)
    is_optional = origin is UnionType and len(arguments) == 2 and arguments[1] is NoneType
    is_map = origin is dict and arguments[0] in {int, str}
    last = arguments[0] if is_optional or origin is list else arguments[1] if is_map else None
    return last if isinstance(last, type) and issubclass(last, Message) else None


def _list_kind(item: _Kind) -> _Kind:
    def write(value: Any) -> str:
        _require(list, value)
        return "[" + ",".join(_placed(item.write, one, str(number)) for number, one in enumerate(value)) + "]"

    def read(value: Any) -> list[Any]:
        _require(list, value)
        return [_placed(item.read, one, str(number)) for number, one in enumerate(value)]

    return _Kind(write, read, lambda value: type(value) is list and not value)


def _map_kind(item: _Kind, key_type: type) -> _Kind:
    def write(value: Any) -> str:
        _require(dict, value)
        for key in value:
            _require(key_type, key)
        keys = ((key, _quoted(key) if isinstance(key, str) else _write_number(key)) for key in sorted(value))
        return "{" + ",".join(f"{spelled}:{_placed(item.write, value[key], str(key))}" for key, spelled in keys) + "}"

    def read(value: Any) -> dict[Any, Any]:
        _require(dict, value)
        read_key = _read_number if key_type is int else _read_text
        return {_placed(read_key, key, "key"): _placed(item.read, one, str(key)) for key, one in value.items()}

    return _Kind(write, read, lambda value: type(value) is dict and not value)


def _placed(act: Callable[[Any], Any], value: object, place: str) -> Any:
    try:
        return act(value)
    except _MisfitError as misfit:
        raise misfit.within(place) from misfit


def _write_unknown(unknown: Mapping[str, Any]) -> str:
    try:
        text = msgspec.json.encode(unknown).decode()
        is_kept = msgspec.json.decode(text) == unknown
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise _MisfitError("the unknown fields are no JSON values") from error
    if not is_kept:
        raise _MisfitError("the unknown fields are no JSON values")
    # Why: in JSON these characters stand inside texts only, so that replacing them everywhere is right.
    return re.sub("[<>&\u2028\u2029]", _escape, text[1:-1])


def _describe(kind: Any, types: dict[str, Any]) -> str:
    """The name of a field's type; every message and enumeration that it needs is added to `types`."""
    message = kind if isinstance(kind, type) and issubclass(kind, Message) else _message_in(kind)
    if message is not None:
        if message.__name__ not in types:
            shown: dict[str, str] = {}
            types[message.__name__] = shown
            for info in msgspec.structs.fields(message):
                if info.name != "unknown_fields":
                    shown[info.encode_name] = _describe(info.type, types)
        origin = get_origin(kind)
        if origin is dict:
            return f"map of {get_args(kind)[0].__name__} to {message.__name__}"
        return f"list of {message.__name__}" if origin is list else message.__name__
    name = str(kind.__name__)
    if issubclass(kind, StrEnum):
        types[name] = [str(member) for member in kind]
    return name
