"""FoundationDB's tuple encoding as one element that takes the rest of a key, byte for byte as its bindings write it.

Each item is a type code and its bytes; docs/design/key-encoding.md lists the codes. Bytes sort by type, then by value:

    null 00   bytes 01 .. 00   text 02 .. 00   tuple 05 .. 00   integer 0b..1d   float 20, 21   bool 26, 27   UUID 30
    versionstamp 33
"""

import math
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NoReturn
from uuid import UUID

from keyplan.codec.element import Element, register_element
from keyplan.codec.language import ANY_BYTE, Bytes, Choice, Language, Refined, Repeat, Series, byte_class
from keyplan.codec.limited import utf8_bytes, utf8_text
from keyplan.codec.numbers import ordered_float_bytes, plain_float_bytes
from keyplan.codec.uuids import uuid_of_number
from keyplan.errors import InvalidKeyError

__all__ = ["SingleFloat", "TupleElement", "Versionstamp"]

TUPLE_NESTING_MAX: Final = 64
"""Why: keys come from anywhere; without a bound, a key of 05 bytes would exhaust the interpreter's stack."""

INTEGER_BYTES_MAX: Final = 255
"""Why: one byte holds the length of a large integer."""


class _Code(IntEnum):
    """The first byte of an item."""

    NULL = 0x00
    BYTES = 0x01
    TEXT = 0x02
    TUPLE = 0x05
    INTEGER_LARGE_NEGATIVE = 0x0B
    INTEGER_ZERO = 0x14
    INTEGER_LARGE = 0x1D
    SINGLE = 0x20
    DOUBLE = 0x21
    FALSE = 0x26
    TRUE = 0x27
    UUID = 0x30
    VERSIONSTAMP = 0x33


_FIRST_BYTES: Final = byte_class(
    bytes(_Code),  # the codes of integers stand for a range:
    range(_Code.INTEGER_LARGE_NEGATIVE, _Code.INTEGER_LARGE + 1),
)


@dataclass(frozen=True, slots=True, order=True)
class SingleFloat:
    """A 32-bit float in a tuple; `value` is rounded to the nearest one. A plain float is stored in 64 bits."""

    value: float

    def __post_init__(self) -> None:
        try:
            raw = struct.pack(">f", self.value)
        except (struct.error, OverflowError) as error:
            raise InvalidKeyError(
                value=self.value, problem="no 32-bit float is so large, or it is no number"
            ) from error
        object.__setattr__(self, "value", struct.unpack(">f", raw)[0])


@dataclass(frozen=True, slots=True, order=True)
class Versionstamp:
    """A commit's 10-byte version, and the number that orders keys written by that one commit (0..65535)."""

    transaction_version: bytes
    user_version: int = 0

    def __post_init__(self) -> None:
        version: object = self.transaction_version
        if not isinstance(version, bytes) or len(version) != 10 or not 0 <= self.user_version <= 0xFFFF:
            raise InvalidKeyError(
                value=(self.transaction_version, self.user_version),
                problem="a versionstamp has 10 bytes of transaction version and a user version of two bytes",
            )


@register_element
class TupleElement(Element[tuple[Any, ...]]):
    """A tuple of None, bytes, str, int, float, `SingleFloat`, bool, UUID, `Versionstamp` and tuples of these.

    The encoding of the one that FoundationDB's bindings call the tuple layer. Items sort by type first, in the order null,
    bytes, text, tuple, number by its kind, bool, UUID, versionstamp. Integers take up to 255 bytes, tuples nest 64 deep.
    NaN is refused, since it does not equal itself; -0.0 and 0.0 are two keys, as there. Only shortest integers decode: the
    form that a binding writes for +-(2^64-1) by mistake does not.
    """

    code = "tuple"

    @property
    def value_type(self) -> type:
        return tuple

    @property
    def language(self) -> Language:
        # Why: nested tuples are no regular language; the first type code is what tells tuples from a template's literals.
        start = Series((Bytes(_FIRST_BYTES), Repeat(Bytes(ANY_BYTE))))
        return Refined(Choice((Series(()), start)), self._is_member)

    def encode(self, value: tuple[Any, ...]) -> bytes:
        if not isinstance(value, tuple):
            self.refuse(value, "not a tuple", type_found=type(value).__name__)
        return b"".join(self._encode_item(item, depth=0) for item in value)

    def decode(self, raw: bytes) -> tuple[Any, ...]:
        return _Reader(self, raw).read()

    def _is_member(self, raw: bytes) -> bool:
        try:
            self.decode(raw)
        except InvalidKeyError:
            return False
        return True

    def _encode_item(self, item: object, *, depth: int) -> bytes:
        match item:
            case None:
                return bytes([_Code.NULL])
            case bool():
                return bytes([_Code.TRUE if item else _Code.FALSE])
            case int():
                return self._encode_integer(item)
            case bytes():
                return bytes([_Code.BYTES]) + item.replace(b"\x00", b"\x00\xff") + b"\x00"
            case str():
                return bytes([_Code.TEXT]) + utf8_bytes(self, item).replace(b"\x00", b"\x00\xff") + b"\x00"
            case float() | SingleFloat():
                return self._encode_float(item)
            case UUID():
                return bytes([_Code.UUID]) + item.bytes
            case Versionstamp(transaction_version, user_version):
                return bytes([_Code.VERSIONSTAMP]) + transaction_version + user_version.to_bytes(2, "big")
            case tuple():
                return self._encode_tuple(item, depth=depth + 1)
            case _:
                return self._refuse_type(item)

    def _refuse_type(self, item: object) -> NoReturn:
        self.refuse(item, "a type that tuples do not hold", type_found=type(item).__name__)

    def _encode_tuple(self, items: tuple[object, ...], *, depth: int) -> bytes:
        if depth > TUPLE_NESTING_MAX:
            self.refuse(items, "nested too deep", nesting_max=TUPLE_NESTING_MAX)
        # Why: inside a tuple a null is escaped, so that it is not taken for the end.
        encoded = (b"\x00\xff" if item is None else self._encode_item(item, depth=depth) for item in items)
        return bytes([_Code.TUPLE]) + b"".join(encoded) + b"\x00"

    def _encode_integer(self, number: int) -> bytes:
        size = (abs(number).bit_length() + 7) // 8
        if size > INTEGER_BYTES_MAX:
            self.refuse(number, "the integer is too large", bytes_max=INTEGER_BYTES_MAX, bytes_found=size)
        if number >= 0:
            head = bytes([_Code.INTEGER_ZERO + size]) if size <= 8 else bytes([_Code.INTEGER_LARGE, size])
            return head + number.to_bytes(size, "big")
        head = bytes([_Code.INTEGER_ZERO - size]) if size <= 8 else bytes([_Code.INTEGER_LARGE_NEGATIVE, size ^ 0xFF])
        return head + (number + (1 << 8 * size) - 1).to_bytes(size, "big")

    def _encode_float(self, item: float | SingleFloat) -> bytes:
        code, form, number = (
            (_Code.SINGLE, ">f", item.value) if isinstance(item, SingleFloat) else (_Code.DOUBLE, ">d", item)
        )
        if math.isnan(number):
            self.refuse(number, "NaN does not equal itself")
        return bytes([code]) + ordered_float_bytes(struct.pack(form, number))


class _Reader:
    """One pass over the bytes of a tuple."""

    def __init__(self, element: TupleElement, raw: bytes) -> None:
        self._element = element
        self._raw = raw
        self._position = 0

    def read(self) -> tuple[object, ...]:
        items: list[object] = []
        while self._position < len(self._raw):
            items.append(self._item(depth=0))
        return tuple(items)

    def _refuse(self, problem: str) -> NoReturn:
        self._element.refuse(self._raw, problem, position=self._position)

    def _take(self, count: int) -> bytes:
        taken = self._raw[self._position : self._position + count]
        if len(taken) < count:
            self._refuse("the key ends inside an item")
        self._position += count
        return taken

    def _item(self, *, depth: int) -> object:
        (code,) = self._take(1)
        if _Code.INTEGER_LARGE_NEGATIVE <= code <= _Code.INTEGER_LARGE:
            return self._integer(code)
        match code:
            case _Code.NULL:
                return None
            case _Code.BYTES | _Code.TEXT:
                plain = self._terminated()
                return plain if code == _Code.BYTES else utf8_text(self._element, plain)
            case _Code.TUPLE:
                return self._tuple(depth=depth + 1)
            case _Code.SINGLE:
                return SingleFloat(self._float(">f", 4))
            case _Code.DOUBLE:
                return self._float(">d", 8)
            case _Code.FALSE | _Code.TRUE:
                return code == _Code.TRUE
            case _Code.UUID:
                return uuid_of_number(int.from_bytes(self._take(16), "big"))
            case _Code.VERSIONSTAMP:
                return Versionstamp(self._take(10), int.from_bytes(self._take(2), "big"))
            case _:
                return self._refuse("an unknown type code")

    def _terminated(self) -> bytes:
        end = self._position
        while True:
            end = self._raw.find(b"\x00", end)
            if end < 0:
                self._refuse("bytes or text without their final zero")
            if self._raw[end + 1 : end + 2] != b"\xff":
                break
            end += 2
        plain = self._raw[self._position : end].replace(b"\x00\xff", b"\x00")
        self._position = end + 1
        return plain

    def _tuple(self, *, depth: int) -> tuple[object, ...]:
        if depth > TUPLE_NESTING_MAX:
            self._refuse("nested too deep")
        items: list[object] = []
        while True:
            following = self._raw[self._position : self._position + 2]
            if following == b"\x00\xff":
                self._position += 2
                items.append(None)
            elif following[:1] == b"\x00":
                self._position += 1
                return tuple(items)
            else:
                items.append(self._item(depth=depth))

    def _integer(self, code: int) -> int:
        is_negative = code < _Code.INTEGER_ZERO
        size = abs(code - _Code.INTEGER_ZERO)
        if size == 9:
            (length,) = self._take(1)
            size = length ^ 0xFF if is_negative else length
            if size < 9:
                self._refuse("a large integer that is not large: its shortest spelling has another type code")
        digits = self._take(size)
        if digits[:1] == (b"\xff" if is_negative else b"\x00"):
            self._refuse("not the shortest spelling of an integer")
        number = int.from_bytes(digits, "big")
        return number - (1 << 8 * size) + 1 if is_negative else number

    def _float(self, form: str, size: int) -> float:
        number: float = struct.unpack(form, plain_float_bytes(self._take(size)))[0]
        if math.isnan(number):
            self._refuse("NaN does not equal itself")
        return number
