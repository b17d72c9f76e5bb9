"""PD's record of a key space, KeyspaceMeta, in the wire format of protocol buffers; without the package protobuf.

    1 id          uint32      absent when 0; newer servers, where it is one of several identities, write `08 00`
    2 name        string
    3 state       enum        ENABLED 0, DISABLED 1, ARCHIVED 2, TOMBSTONE 3
    4 created_at, 5 state_changed_at      int64, seconds since 1970
    7 config      map of strings

Fields of other numbers are passed over, as every reader of protocol buffers does.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import ClassVar, Final

import msgspec

from keyplan.codec import ValueForm
from keyplan.errors import CorruptionError

__all__ = ["SpaceMetadata", "SpaceMetadataForm", "SpaceMetadataState"]

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5
_VARINT_BYTES_MAX: Final = 10
_UINT64: Final = 1 << 64
_UINT32: Final = 1 << 32


class SpaceMetadataState(IntEnum):
    """PD's states of a key space."""

    ENABLED = 0
    DISABLED = 1
    ARCHIVED = 2
    TOMBSTONE = 3


class SpaceMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A key space as PD keeps it. Times are seconds since 1970, 0 where there is none."""

    id: int
    name: str
    state: SpaceMetadataState = SpaceMetadataState.ENABLED
    created_at: int = 0
    state_changed_at: int = 0
    config: dict[str, str] = {}


class SpaceMetadataForm(ValueForm[SpaceMetadata]):
    """KeyspaceMeta, read in both forms of id 0; written as the older servers do, without it."""

    code: ClassVar[str] = "pd-keyspace-meta"

    @property
    def value_type(self) -> type[SpaceMetadata]:
        return SpaceMetadata

    def encode(self, value: SpaceMetadata) -> bytes:
        given: object = value
        if not isinstance(given, SpaceMetadata):
            self.refuse("not a key space's metadata", type_found=type(value).__name__)
        if not 0 <= value.id < _UINT32:
            self.refuse("the id is no unsigned 32-bit number")
        for seconds in (value.created_at, value.state_changed_at):
            if not -(_UINT64 >> 1) <= seconds < _UINT64 >> 1:
                self.refuse("a time is no signed 64-bit number")
        numbers = ((1, value.id), (3, int(value.state)), (4, value.created_at), (5, value.state_changed_at))
        before = b"".join(_number(field, number) for field, number in numbers if field < 2)
        after = b"".join(_number(field, number) for field, number in numbers if field > 2)
        name = _text(2, value.name) if value.name else b""
        pairs = (_text(1, key) + _text(2, text) for key, text in sorted(value.config.items()))
        return before + name + after + b"".join(_bytes(7, pair) for pair in pairs)

    def decode(self, raw: bytes) -> SpaceMetadata:
        numbers = {1: 0, 3: 0, 4: 0, 5: 0}
        name = ""
        config: dict[str, str] = {}
        for field, wire, number, content in _fields(raw):
            if field in numbers and wire == _VARINT:
                numbers[field] = number
            elif field == 2 and wire == _LENGTH:
                name = _decoded_text(content)
            elif field == 7 and wire == _LENGTH:
                pair = {inner: _decoded_text(text) for inner, kind, _, text in _fields(content) if kind == _LENGTH}
                config[pair.get(1, "")] = pair.get(2, "")
            elif field in numbers or field in (2, 7):
                raise CorruptionError(problem=f"field {field} of a key space's metadata has another type")
        try:
            state = SpaceMetadataState(numbers[3])
        except ValueError as error:
            raise CorruptionError(problem="a state that PD does not have") from error
        if numbers[1] >= _UINT32:
            raise CorruptionError(problem="an id that is no unsigned 32-bit number")
        return SpaceMetadata(
            id=numbers[1],
            name=name,
            state=state,
            created_at=_signed(numbers[4]),
            state_changed_at=_signed(numbers[5]),
            config=config,
        )


def _fields(raw: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Field number, wire type, number (of a varint) and content (of bytes)."""
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        field, wire = tag >> 3, tag & 7
        if not field:
            raise CorruptionError(problem="a field of number 0")
        if wire == _VARINT:
            number, position = _varint(raw, position)
            yield field, wire, number, b""
            continue
        if wire == _LENGTH:
            length, position = _varint(raw, position)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise CorruptionError(problem="a wire type that protocol buffers do not have")
        if length > len(raw) - position:
            raise CorruptionError(problem="a field ends beyond the value")
        yield field, wire, 0, raw[position : position + length]
        position += length


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(raw[position : position + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number % _UINT64, position + place + 1
    raise CorruptionError(problem="a number without an end")


def _signed(number: int) -> int:
    return number - _UINT64 if number >= _UINT64 >> 1 else number


def _decoded_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError(problem="a text that is not UTF-8") from error


def _number(field: int, number: int) -> bytes:
    return _varint_bytes(field << 3 | _VARINT) + _varint_bytes(number % _UINT64) if number else b""


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _bytes(field: int, raw: bytes) -> bytes:
    return _varint_bytes(field << 3 | _LENGTH) + _varint_bytes(len(raw)) + raw


def _varint_bytes(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
