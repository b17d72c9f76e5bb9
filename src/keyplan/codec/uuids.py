"""UUIDs in keys: 32 lower-case hexadecimal digits, or 16 raw bytes in the order of RFC 9562."""

import re
from typing import Final
from uuid import UUID, SafeUUID

from keyplan.codec.element import Element, FastStruct, FastText, register_element
from keyplan.codec.language import ANY_BYTE, Bytes, Language, Repeat, byte_class

__all__ = ["HexUuid", "RawUuid", "uuid_of_number"]

_HEX: Final = re.compile(rb"[0-9a-f]{32}")

_new_object: Final = object.__new__
_set_attribute: Final = object.__setattr__
_SAFETY_UNKNOWN: Final = SafeUUID.unknown


def uuid_of_number(number: int) -> UUID:
    """The UUID of a 128-bit number known to be in range.

    Why: the constructor examines six alternative arguments; this was measured at three times its speed, and lists decode many
    keys. It sets what the class itself sets when a UUID is unpickled.
    """
    made: UUID = _new_object(UUID)
    _set_attribute(made, "int", number)
    _set_attribute(made, "is_safe", _SAFETY_UNKNOWN)
    return made


class _UuidElement(Element[UUID]):
    @property
    def value_type(self) -> type:
        return UUID

    def _checked(self, value: object) -> UUID:
        if not isinstance(value, UUID):
            self.refuse(value, "not a uuid.UUID", type_found=type(value).__name__)
        return value


@register_element
class HexUuid(_UuidElement):
    """A UUID as 32 lower-case hexadecimal digits without hyphens."""

    code = "hex_uuid"

    @property
    def language(self) -> Language:
        return Repeat(Bytes(byte_class(b"0123456789abcdef")), 32, 32)

    def encode(self, value: UUID) -> bytes:
        return self._checked(value).hex.encode()

    def decode(self, raw: bytes) -> UUID:
        if _HEX.fullmatch(raw) is None:
            self.refuse(raw, "not 32 lower-case hexadecimal digits")
        return uuid_of_number(int(raw, 16))

    def fast_text(self) -> FastText | None:
        return FastText(
            check="{v}.__class__ is UUID",
            format="{v}.hex",
            parse="uuid_of_number(int({raw}, 16))",
            names={"UUID": UUID, "uuid_of_number": uuid_of_number},
        )


@register_element
class RawUuid(_UuidElement):
    """A UUID as its 16 bytes, most significant first."""

    code = "raw_uuid"

    @property
    def language(self) -> Language:
        return Repeat(Bytes(ANY_BYTE), 16, 16)

    def encode(self, value: UUID) -> bytes:
        return self._checked(value).bytes

    def decode(self, raw: bytes) -> UUID:
        if len(raw) != 16:
            self.refuse(raw, "wrong number of bytes", bytes_expected=16, bytes_found=len(raw))
        return uuid_of_number(int.from_bytes(raw, "big"))

    def fast_struct(self) -> FastStruct | None:
        return FastStruct(
            code="16s",
            check="{v}.__class__ is UUID",
            pack="{v}.bytes",
            parse="uuid_of_number(int.from_bytes({raw}, 'big'))",
            names={"UUID": UUID, "uuid_of_number": uuid_of_number},
        )
