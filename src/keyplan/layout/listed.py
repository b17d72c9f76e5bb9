"""Which keys a list asks for: a range of raw keys, and the rule for the keys in it that are not of the list.

A range holds everything that begins with a prefix. Where a field of the prefix is followed by something that its own values
could go on with ("york" and then an id, in a place where "yorktown" fits), keys with another value stand in the same range. So
whoever reads a range takes it together with the function that reads its keys. Where the range alone is exact, which is decided
once for each template, that function is the template's decoder itself, and nothing is compared.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from keyplan.codec import ANY_BYTE, Element, alphabet_of, byte_class, is_self_delimiting
from keyplan.errors import InvalidKeyError
from keyplan.layout.spec import KeyShape
from keyplan.layout.template import Field, Literal, Template

__all__ = ["LastField", "ListedKeys", "exact_places", "reader_of"]

Decode = Callable[[bytes], object | None]


class ListedKeys(msgspec.Struct, frozen=True, eq=False):
    """The keys of one template whose first fields equal a prefix, the next field within the bounds asked for.

    They stand between `start` and `end` (exclusive; None: to the end of all keys). `read` gives the key for the bytes of one
    in the range, None for all other bytes there, and never raises. `is_exact`: all keys of the template in the range are.
    `compared` is what `read` compares keys with, spelled: lists of one range may differ in it. It is empty when that is exact.
    `last`, where an exact range leaves nothing open but a last field of fixed width, gives that field alone, as `read` would.
    """

    start: bytes
    end: bytes | None
    read: Decode
    is_exact: bool
    compared: tuple[bytes, ...] = ()
    last: Decode | None = None


class LastField(NamedTuple):
    """The last field of a template, of fixed width, that nothing is derived from. Only the literal `tail` follows it."""

    element: Element[Any]
    width: int
    tail: bytes

    @classmethod
    def of(cls, template: Template) -> "LastField | None":
        """Return the last field of a template, if it is such a one."""
        if not template.fields:
            return None
        field = template.fields[-1]
        width, behind = field.element.width, template.parts[template.parts.index(field) + 1 :]
        derived = (part for part in template.parts if isinstance(part, Field) and part.is_derived)
        if width is None or any(part in behind or part.name == field.name for part in derived):
            return None
        return cls(field.element, width, b"".join(part.raw for part in behind if isinstance(part, Literal)))

    def reader(self, begin: int) -> Decode:
        """Return what gives the field of a key whose bytes before `begin` are known; None for bytes that are no such key."""
        decode, tail = self.element.decode, self.tail
        end = begin + self.width
        size = end + len(tail)

        def read(raw_key: bytes) -> object | None:
            if len(raw_key) != size or not raw_key.endswith(tail):
                return None
            try:
                value: object = decode(raw_key[begin:end])
            except InvalidKeyError:
                return None
            return value

        return read


def exact_places(template: Template) -> tuple[bool, ...]:
    """For each field, and once more for the whole key: whether all fields before it end where their bytes say so.

    Then every key that begins with the bytes of a prefix up to there has the prefix's values. The last field of the key ends
    where the key does.
    """
    exact, is_exact = [], True
    for number, part in enumerate(template.parts):
        if not isinstance(part, Field):
            continue
        if not part.is_derived:
            exact.append(is_exact)
        is_exact = is_exact and _is_delimited(template, number, part)
    return (*exact, is_exact)


def _is_delimited(template: Template, number: int, field: Field) -> bool:
    if number + 1 == len(template.parts) or field.element.width is not None:
        return True
    following = template.parts[number + 1]
    comes_next = byte_class(following.raw[:1]) if isinstance(following, Literal) else ANY_BYTE
    if not alphabet_of(field.language) & comes_next:
        return True
    known = [part.attribute for part in template.parts[:number] if isinstance(part, Field) and part.name == field.name]
    if any(attribute and field.element.is_ended_by(attribute, comes_next) for attribute in known):
        return True
    return is_self_delimiting(field.element)


def reader_of(
    template: Template, shape: KeyShape, decode: Decode, spelled: tuple[bytes, ...], raw_start: bytes
) -> Decode:
    """Return the decoder that gives None for keys with other first fields, or whose next one does not begin with `raw_start`.

    `spelled` are the first fields, encoded. Values are compared as a decoder gives them.
    """
    fields = template.fields
    wanted = tuple(field.element.decode(raw) for field, raw in zip(fields, spelled, strict=False))
    count, split = len(wanted), shape.split
    started = fields[count].element if raw_start else None

    def read(raw_key: bytes) -> object | None:
        key = decode(raw_key)
        if key is None:
            return None
        values = split(key)
        if values[:count] != wanted:
            return None
        if started is not None and not started.encode(values[count]).startswith(raw_start):
            return None
        return key

    return read
