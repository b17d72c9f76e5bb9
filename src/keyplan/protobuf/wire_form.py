"""Records as proto3 wire bytes: field by field, by the numbers of a table, without the protobuf package.

Why own code: a layout must be readable where only keyplan's core is installed, records carry UUIDs where messages carry text,
and what is stored is exactly what Go writes: fields in the order declared, zero values left out, unknown fields last.
"""

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_type_hints
from uuid import UUID

from msgspec import Struct

from keyplan.codec import ValueForm
from keyplan.errors import CorruptionError, LayoutError
from keyplan.protobuf.declaration import Declaration, Field

__all__ = ["WireForm"]

V = TypeVar("V", bound=Struct)

_VARINT, _EIGHT_BYTES, _SIZED, _FOUR_BYTES = 0, 1, 2, 5
_VARINT_BYTES_MAX: Final = 10
_U32_MAX: Final = 2**32 - 1
_HEX: Final = re.compile(rb"[0-9a-f]{32}")


class _Codec(NamedTuple):
    """How one field is written (None: left out, as proto3 leaves out zero values) and read; `zero` reads as its absence."""

    name: str
    tag: int
    raw_tag: bytes
    write: Callable[[Any], bytes | None]
    read: Callable[[Any], Any]
    zero: Any
    is_repeated: bool


class WireForm(ValueForm[V]):
    """A Struct as the message of the same field names, in its one deterministic encoding.

    Decoding takes what proto3 takes: fields in any order, the last of a field that comes twice. Unknown fields are passed over,
    or kept where the Struct has a field `unknown_fields` of bytes. A UUID stands for a string of its 32 hexadecimal digits.
    """

    code = "protobuf"

    def __init__(self, declared: Declaration, record: type[V], message: str | None = None) -> None:
        """Raises LayoutError for a Struct with a field that the message has not, or not of this type."""
        self._record = record
        self._name = message or record.__name__
        self._full_name = declared.full_name(self._name)
        self._message = _Message(declared, record, self._name)

    @property
    def value_type(self) -> Any:
        return self._record

    def encode(self, value: V) -> bytes:
        if not isinstance(value, self._record):
            self.refuse("a value of the wrong type", type_found=type(value).__name__)
        try:
            return self._message.write(value)
        except (TypeError, ValueError, AttributeError) as error:
            # Why: not the error's text, which may quote the value.
            self.refuse("a field is of the wrong type or out of range", message=self._name, reason=type(error).__name__)

    def decode(self, raw: bytes) -> V:
        try:
            record: V = self._message.read(raw)
        except (ValueError, IndexError, TypeError) as error:
            raise CorruptionError(problem=f"the value is no {self._name} message") from error
        return record

    def describe(self) -> dict[str, Any]:
        return {"form": self.code, "type": self._full_name}


class _Message:
    """A record class and its fields, in the order declared. Fields that the class does not have are not stored."""

    def __init__(self, declared: Declaration, record: type[Struct], message: str) -> None:
        hints = get_type_hints(record)
        self._record: Any = record
        self._keeps_unknown = hints.pop("unknown_fields", None) is bytes
        fields = [field for field in declared.messages.get(message, ()) if field.name in hints]
        strangers = sorted(hints.keys() - {field.name for field in fields})
        if strangers:
            raise LayoutError(problem="a record has fields that its message has not", message=message, fields=strangers)
        self._fields = tuple(_codec(declared, message, field, hints[field.name]) for field in fields)
        self._by_tag = {field.tag: field for field in self._fields}

    def write(self, value: Any) -> bytes:
        if not isinstance(value, self._record):
            raise TypeError(self._record.__name__)
        parts: list[bytes] = []
        for name, _, raw_tag, write, _, _, is_repeated in self._fields:
            attribute = getattr(value, name)
            for item in attribute if is_repeated else (attribute,):
                raw = write(item)
                if raw is not None:
                    parts += (raw_tag, raw)
        if self._keeps_unknown:
            parts.append(value.unknown_fields)
        return b"".join(parts)

    def read(self, raw: bytes) -> Any:
        found: dict[str, Any] = {}
        repeated: dict[str, list[Any]] = {}
        unknown: list[bytes] = []
        position, end = 0, len(raw)
        by_tag = self._by_tag
        while position < end:
            # Why: in place where tag and size take one byte, as most do; calling takes three times as long.
            begin, tag, position = position, raw[position], position + 1
            if tag > 0x7F:
                tag, position = _read_varint(raw, position - 1)
            if tag & 7 == _SIZED and position < end and raw[position] < 0x80:
                start = position + 1
                position = start + raw[position]
                payload: Any = raw[start:position]
                if position > end:
                    raise ValueError("cut off")
            else:
                payload, position = _payload(raw, position, tag & 7)
            field = by_tag.get(tag)
            if field is None:
                unknown.append(raw[begin:position])
            elif field.is_repeated:
                repeated.setdefault(field.name, []).append(field.read(payload))
            else:
                found[field.name] = field.read(payload)
        for field in self._fields:
            if field.is_repeated:
                found[field.name] = tuple(repeated.get(field.name, ()))
            elif field.name not in found:
                found[field.name] = field.read(field.zero)
        if self._keeps_unknown:
            found["unknown_fields"] = b"".join(unknown)
        return self._record(**found)


def _codec(declared: Declaration, message: str, field: Field, hint: Any) -> _Codec:
    kind = next(iter(get_args(hint)), None) if field.is_repeated else hint
    is_sized = field.kind in declared.messages or field.kind in {"bytes", "string"}
    tag = field.number << 3 | (_SIZED if is_sized else _VARINT)
    # Why: a zero in a list would be left out, and a field of a choice that is zero would be read as one that is not set.
    is_lossy = field.is_choice or (field.is_repeated and not is_sized)
    found = None if is_lossy else _value_codec(declared, field, kind)
    if found is None:
        raise LayoutError(
            problem="a record's field cannot be stored as its message's",
            field=f"{message}.{field.name}",
            kind=field.kind,
        )
    write, read = found
    return _Codec(field.name, tag, _varint(tag), write, read, b"" if is_sized else 0, field.is_repeated)


_ValueCodec = tuple[Callable[[Any], bytes | None], Callable[[Any], Any]]


def _value_codec(declared: Declaration, field: Field, kind: Any) -> _ValueCodec | None:
    if field.kind in declared.messages:
        message = _Message(declared, kind, field.kind)
        return (lambda value: _sized(message.write(value))), message.read
    if field.kind in declared.enums and isinstance(kind, type) and issubclass(kind, IntEnum):
        return (lambda value: _write_number(kind(value))), kind
    known: dict[tuple[str, Any], _ValueCodec] = {
        ("string", UUID): (_write_uuid, _read_uuid),
        ("string", str): (_write_each_text if field.is_repeated else _write_text, _read_text),
        ("uint32", int): (_write_number, _read_number),
    }
    return known.get((field.kind, kind))


def _payload(raw: bytes, position: int, wire_type: int) -> tuple[Any, int]:
    if wire_type == _VARINT:
        return _read_varint(raw, position)
    if wire_type == _SIZED:
        size, position = _read_varint(raw, position)
    elif wire_type == _EIGHT_BYTES:
        size = 8
    elif wire_type == _FOUR_BYTES:
        size = 4
    else:
        raise ValueError("a group, which proto3 does not have")
    end = position + size
    if end > len(raw):
        raise ValueError("cut off")
    return raw[position:end], end


# ---- single values -----------------------------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(raw: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    for count in range(_VARINT_BYTES_MAX):
        byte = raw[position + count]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position + count + 1
        shift += 7
    raise ValueError("a number that does not end")


def _sized(raw: bytes) -> bytes:
    return _varint(len(raw)) + raw


def _write_text(value: str) -> bytes | None:
    raw = value.encode()
    return _sized(raw) if raw else None


def _write_each_text(value: str) -> bytes:
    return _sized(value.encode())


def _read_text(raw: bytes) -> str:
    return str(raw, "utf-8")


def _write_uuid(value: UUID) -> bytes:
    return b"\x20" + value.hex.encode()


def _read_uuid(raw: bytes) -> UUID:
    if _HEX.fullmatch(raw) is None:
        raise ValueError("no 32 lower-case hexadecimal digits")
    return UUID(int=int(raw, 16))


def _write_number(value: int) -> bytes | None:
    if not 0 <= value <= _U32_MAX:
        raise ValueError("out of range")
    return _varint(value) if value else None


def _read_number(number: int) -> int:
    return number & _U32_MAX
