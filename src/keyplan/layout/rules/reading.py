"""Reading a key by a template, part by part, with every length bound and every derived field checked; and spelling one.

This is the judge of witnesses: slow, plain, and independent of automata and of the compiled keys.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from keyplan.codec import Element
from keyplan.errors import InvalidKeyError
from keyplan.layout.template import Field, Literal, Template

__all__ = ["derived_bytes", "holds", "readings", "spelled"]


def holds(template: Template, key: bytes) -> bool:
    """Tell whether `template` can produce exactly `key`."""
    return next(readings(template, key), None) is not None


def readings(template: Template, key: bytes) -> Iterator[dict[str, bytes]]:
    """Yield every way in which `template` can have produced `key`: the bytes of each field that carries information."""
    for raw_parts in _splits(template, key):
        fields = dict(_named(template, raw_parts))
        if _is_consistent(template, raw_parts, fields):
            yield fields


def spelled(template: Template, fields: Mapping[str, bytes]) -> bytes:
    """Return the key whose fields have these bytes; derived fields are computed. Raises InvalidKeyError."""
    return b"".join(
        part.raw
        if isinstance(part, Literal)
        else derived_bytes(template, part, fields)
        if part.is_derived
        else fields[part.name]
        for part in template.parts
    )


def derived_bytes(template: Template, part: Field, fields: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a derived field, computed from the field that it is derived from. Raises InvalidKeyError."""
    source = next(field for field in template.fields if field.name == part.name)
    assert part.attribute is not None
    attribute = source.element.attributes[part.attribute]
    return part.element.encode(attribute(source.element.decode(fields[part.name])))


def _named(template: Template, raw_parts: tuple[bytes, ...]) -> Iterator[tuple[str, bytes]]:
    for part, raw in zip(template.parts, raw_parts, strict=True):
        if isinstance(part, Field) and not part.is_derived:
            yield part.name, raw


def _is_consistent(template: Template, raw_parts: tuple[bytes, ...], fields: Mapping[str, bytes]) -> bool:
    """Whether every field decodes, and every derived field is what its source says (when its source is in the template)."""
    try:
        for part, raw in zip(template.parts, raw_parts, strict=True):
            if not isinstance(part, Field):
                continue
            part.element.decode(raw)
            if part.is_derived and part.name in fields and derived_bytes(template, part, fields) != raw:
                return False
    except InvalidKeyError:
        return False
    return True


def _splits(template: Template, key: bytes) -> Iterator[tuple[bytes, ...]]:
    """Every division of `key` into members of the parts' languages."""
    parts = template.parts
    hopeless: set[tuple[int, int]] = set()

    def rest(index: int, begin: int) -> Iterator[tuple[bytes, ...]]:
        if index == len(parts):
            if begin == len(key):
                yield ()
            return
        if (index, begin) in hopeless:
            return
        is_hopeless = True
        for end in _ends(template, index, key, begin):
            for tail in rest(index + 1, end):
                is_hopeless = False
                yield (key[begin:end], *tail)
        if is_hopeless:
            hopeless.add((index, begin))

    return rest(0, 0)


def _ends(template: Template, index: int, key: bytes, begin: int) -> Iterator[int]:
    part = template.parts[index]
    if isinstance(part, Literal):
        if key.startswith(part.raw, begin):
            yield begin + len(part.raw)
        return
    spelling, least, most = _member(part.element)
    last = len(key) if most is None else min(len(key), begin + most)
    for end in range(begin + least, last + 1):
        if spelling.fullmatch(key, begin, end):
            yield end


@lru_cache(maxsize=1024)
def _member(element: Element[object]) -> tuple[re.Pattern[bytes], int, int | None]:
    """What a member of the element's language looks like: its pattern, and its least and greatest length."""
    language = element.language
    return re.compile(language.pattern), language.bytes_min, language.bytes_max
