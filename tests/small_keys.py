"""Random small templates, and all their short keys by trying every byte string: the judge beside lint, lists and decoders.

It uses nothing of keyplan but the codecs of single elements. A key is what the parts' encodings spell, one after the other.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from random import Random
from typing import Any, Final

from keyplan.codec import Element, RawForm
from keyplan.errors import InvalidKeyError, KeyplanError
from keyplan.layout import Field, KeyShape, LayoutSpec, Literal, TableSpec, Template, template_of_source

__all__ = [
    "KEY_BYTES_MAX",
    "KeysByBytes",
    "alphabet_of_keys",
    "layout_of",
    "random_template",
    "small_keys",
    "small_members",
]

KEY_BYTES_MAX: Final = 5

_TEXT: Final = (
    "text(allow='ab',bytes_max=2)",
    "text(allow='ab',bytes_max=2,empty=true)",
    "text(allow='a.',bytes_max=2,dots=false)",
    "text(allow='ab/',exclude='',bytes_max=3)",
    "text(allow='ab',bytes_max=3,reserved='a ab')",
    "decimal(most=12)",
    "decimal(width=2,most=11)",
    "word(words='a ab b/')",
    "enclosed(before='a/',after='/',bytes_max=1,empty=true)",
    "percent(bytes_max=3)",
    "path(components_max=2,bytes_max=3)",
)
_BINARY: Final = (
    "u8(most=98)",
    "u8",
    "i8",
    "tail(bytes_max=2)",
    "path(components_max=3,bytes_max=5)",
    "path(bytes_max=4)",
    "level_path(bytes_max=3)",
    "directory",
    "escaped(bytes_max=3)",
    "escaped_text(bytes_max=3)",
    "uvarint(bytes_max=2)",
    "prefix_varint(bytes_max=2)",
    "fixed(width=1)",
    "text_tail(bytes_max=2,empty=true)",
)
_TEXT_LITERALS: Final = ("a", "/", "b/", "a/", "1", "/a", "b", "ab")
_BINARY_LITERALS: Final = ("a", "/", "\\x00", "\\x01", "b")
_TEXT_ALPHABET: Final = b"ab/.012"
_BINARY_ALPHABET: Final = b"ab/\x00\x01\x02\x80"

KeysByBytes = dict[bytes, list[tuple[Any, ...]]]


def alphabet_of_keys(template: Template) -> bytes:
    """The bytes of which keys are tried."""
    return _TEXT_ALPHABET if template.is_text else _BINARY_ALPHABET


def random_template(rng: Random, *, is_text: bool, fields_max: int = 3) -> Template | None:
    """A template of a few parts; None when what was drawn is none."""
    source, fields = "", 0
    for _ in range(rng.randint(1, 4)):
        if rng.random() < 0.45 or fields == fields_max:
            source += rng.choice(_TEXT_LITERALS if is_text else _BINARY_LITERALS)
            continue
        name, fields = f"f{fields}", fields + 1
        codec = rng.choice(_TEXT if is_text else _BINARY)
        derived = _derived(rng, name, codec, is_text=is_text)
        field = f"{{{name}:{codec}}}"
        source += derived + field if rng.random() < 0.8 else field + derived
    try:
        template = template_of_source(source, is_text=is_text)
    except KeyplanError:
        return None
    return template if template.fields else None


def _derived(rng: Random, name: str, codec: str, *, is_text: bool) -> str:
    if rng.random() < 0.5 or not codec.startswith(("path", "directory")):
        return ""
    if is_text:
        return f"{{{name}.level:decimal(most=3)}}"
    return f"{{{name}.level:u8(most={rng.choice((1, 255))})}}"


@lru_cache(maxsize=4096)
def _members(element: Element[Any], alphabet: bytes) -> list[tuple[bytes, Any]]:
    found = []
    for length in range(KEY_BYTES_MAX + 1):
        for raw in map(bytes, product(alphabet, repeat=length)):
            try:
                value = element.decode(raw)
            except InvalidKeyError:
                continue
            assert element.encode(value) == raw, (element, raw)
            found.append((raw, value))
    return found


def small_members(element: Element[Any], *, is_text: bool) -> list[tuple[bytes, Any]]:
    """All short encodings of an element, with their values, in order of length."""
    return _members(element, _TEXT_ALPHABET if is_text else _BINARY_ALPHABET)


def small_keys(template: Template, alphabet: bytes = b"") -> KeysByBytes:
    """All keys of at most KEY_BYTES_MAX bytes of the alphabet, each with all values of its fields that spell it."""
    alphabet = alphabet or alphabet_of_keys(template)
    elements = {field.name: field.element for field in template.fields}
    found: KeysByBytes = {}
    for values in _values(template, alphabet, 0, 0):
        given = dict(zip(template.field_names, values, strict=True))
        try:
            raw = b"".join(
                part.raw if isinstance(part, Literal) else _spelled(part, elements[part.name], given[part.name])
                for part in template.parts
            )
        except InvalidKeyError:
            continue
        if len(raw) <= KEY_BYTES_MAX:
            found.setdefault(raw, []).append(values)
    return found


def _spelled(part: Field, element: Element[Any], value: Any) -> bytes:
    return part.element.encode(value if part.attribute is None else element.attributes[part.attribute](value))


def _values(template: Template, alphabet: bytes, number: int, used: int) -> Iterator[tuple[Any, ...]]:
    fields = template.fields
    if number == len(fields):
        yield ()
        return
    others = sum(field.element.bytes_min for field in fields[number + 1 :]) + len(template.literal_bytes)
    for raw, value in _members(fields[number].element, alphabet):
        if used + len(raw) + others > KEY_BYTES_MAX:
            break
        for rest in _values(template, alphabet, number + 1, used + len(raw)):
            yield (value, *rest)


def layout_of(*templates: Template, root: bytes = b"") -> LayoutSpec:
    """A layout of tables t0, t1, ... of raw bytes with these templates, their keys as tuples of the fields."""
    is_text = templates[0].is_text
    tables = tuple(
        TableSpec(f"t{number}", template, KeyShape("tuple", is_scalar=False, make=_together), RawForm())
        for number, template in enumerate(templates)
    )
    parts = (Literal(root),) if root else ()
    return LayoutSpec("Small", Template(parts, is_text), tables)


def _together(*values: object) -> tuple[object, ...]:
    return values
