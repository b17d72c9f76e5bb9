"""Records as proto3 wire bytes: field by field, by the numbers of wire_table.py, without the protobuf package.

Why own code: the layout must be readable where only keyplan's core is installed, records carry UUIDs where messages carry
text, and what is stored is exactly what proto3 says: fields in the order of their numbers, zero values left out.
"""

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_type_hints
from uuid import UUID

from msgspec import Struct

from keyplan.apps.runm.wire_table import MESSAGES, PACKAGE, WireField
from keyplan.codec import ValueForm
from keyplan.errors import CorruptionError

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
    """A Struct as the protobuf message of the same field names, in its one deterministic encoding.

    Decoding takes what proto3 takes: fields in any order, the last of a field that comes twice, unknown fields passed over.
    """

    code = "protobuf"

    def __init__(self, record: type[V], message: str | None = None) -> None:
        self._record = record
        self._name = message or record.__name__
        self._message = _Message(record, self._name)

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
        return {"form": self.code, "type": f"{PACKAGE}.{self._name}"}


class _Message:
    """A record class and its fields, in the order of their numbers. Fields that the class does not have are not stored."""

    def __init__(self, record: type[Struct], message: str) -> None:
        hints = get_type_hints(record)
        self._record = record
        self._fields = tuple(_codec(field, hints[field.name]) for field in MESSAGES[message] if field.name in hints)
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
        return b"".join(parts)

    def read(self, raw: bytes) -> Any:
        found: dict[str, Any] = {}
        repeated: dict[str, list[Any]] = {}
        position, end = 0, len(raw)
        by_tag = self._by_tag
        while position < end:
            # Why: in place where tag and size take one byte, as most do; calling takes three times as long.
            tag, position = raw[position], position + 1
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
                continue
            if field.is_repeated:
                repeated.setdefault(field.name, []).append(field.read(payload))
            else:
                found[field.name] = field.read(payload)
        for field in self._fields:
            if field.is_repeated:
                found[field.name] = tuple(repeated.get(field.name, ()))
            elif field.name not in found:
                found[field.name] = field.read(field.zero)
        return self._record(**found)


def _codec(field: WireField, hint: Any) -> _Codec:
    kind = get_args(hint)[0] if field.is_repeated else hint
    is_sized = field.kind in MESSAGES or field.kind == "string"
    tag = field.number << 3 | (_SIZED if is_sized else _VARINT)
    write, read = _value_codec(field, kind)
    return _Codec(field.name, tag, _varint(tag), write, read, b"" if is_sized else 0, field.is_repeated)


def _value_codec(field: WireField, kind: Any) -> tuple[Callable[[Any], bytes | None], Callable[[Any], Any]]:
    if field.kind in MESSAGES:
        message = _Message(kind, field.kind)
        return (lambda value: _sized(message.write(value))), message.read
    if kind is UUID:
        return _write_uuid, _read_uuid
    if kind is str:
        return (_write_each_text if field.is_repeated else _write_text), _read_text
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return (lambda value: _write_number(kind(value))), kind
    return _write_number, _read_number


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
