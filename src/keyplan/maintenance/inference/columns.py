"""Keys of one width, column by column: UUIDs and big-endian numbers where the bytes bear them out, plain bytes elsewhere."""

from collections.abc import Sequence
from typing import Any, Final

from keyplan.codec import I64, U8, U16, U32, U64, Element, FixedBytes, RawUuid
from keyplan.layout import Field, Literal
from keyplan.maintenance.inference.found import Part
from keyplan.maintenance.inference.naming import unused
from keyplan.maintenance.inference.stored_values import is_raw_uuid

__all__ = ["fields_of_columns", "uuid_stands_at"]

_NUMBERS: Final[tuple[Element[int], ...]] = (U64(), U32(), U16())
_SIGN_POSITIVE: Final = b"\x80\x00"
_UUID_BYTES: Final = 16


def fields_of_columns(keys: Sequence[bytes], taken: set[str]) -> list[Part]:
    """Return the parts of keys that all have one width. Names are added to `taken`.

    A UUID has its version and variant in every key; a number begins with zeros, since few count to 2^48. What is neither is
    bytes of a fixed width: nothing is claimed about them.
    """
    width = len(keys[0])
    parts: list[Part] = []
    position, unknown_from = 0, 0
    while position < width:
        element = _element_at(keys, position, is_behind_known=unknown_from == position)
        literal = _literal_at(keys, position) if element is None else b""
        if element is None and not literal:
            position += 1
            continue
        parts += _unknown(unknown_from, position, taken)
        if element is not None:
            name = "uuid" if isinstance(element, RawUuid) else "number"
            parts.append(Field(_taken(name, taken), None, element))
            position += element.width or 0
        else:
            parts.append(Literal(literal))
            position += len(literal)
        unknown_from = position
    return parts + _unknown(unknown_from, position, taken)


def uuid_stands_at(keys: Sequence[bytes], position: int) -> bool:
    """Tell whether every key has a UUID at a position: of several different ones, or of one that is not all zeros."""
    found = {key[position : position + _UUID_BYTES] for key in keys}
    return all(map(is_raw_uuid, found))


def _element_at(keys: Sequence[bytes], position: int, *, is_behind_known: bool) -> Element[Any] | None:
    rest = len(keys[0]) - position
    if rest >= _UUID_BYTES and uuid_stands_at(keys, position):
        return RawUuid()
    for number in _NUMBERS:
        size = number.width or 0
        if rest >= size and _is_number(keys, position, size):
            return number
    if rest >= 8 and all(key[position : position + 2] == _SIGN_POSITIVE for key in keys):
        return I64()
    if rest == 1 and is_behind_known and len({key[position] for key in keys}) > 1:
        return U8()
    return None


def _is_number(keys: Sequence[bytes], position: int, size: int) -> bool:
    """Whether the column may be a number of so many bytes: the high ones zero, or all bytes FF, which marks "none"."""
    high = 2 if size > 2 else 1
    columns = {key[position : position + size] for key in keys}
    numbers = [column for column in columns if column != b"\xff" * size]
    if not numbers or any(any(column[:high]) for column in numbers):
        return False
    if size == 8:
        # Why: four printable bytes behind four others are a name behind a number of 32 bits.
        return not all(all(0x20 <= byte <= 0x7E for byte in column[4:]) for column in numbers)
    # Why: a column of zeros alone, or of one number, is a number only where eight bytes of it stand together.
    return len(numbers) > 1


def _literal_at(keys: Sequence[bytes], position: int) -> bytes:
    """The printable bytes that all of several keys have from a position on."""
    if len(set(keys)) < 2:
        return b""
    first, end = keys[0], position
    while end < len(first) and 0x20 <= first[end] <= 0x7E and all(key[end] == first[end] for key in keys):
        end += 1
    return first[position:end]


def _unknown(start: int, end: int, taken: set[str]) -> list[Part]:
    return [Field(_taken("unknown", taken), None, FixedBytes(width=end - start))] if end > start else []


def _taken(name: str, taken: set[str]) -> str:
    name = unused(name, taken)
    taken.add(name)
    return name
