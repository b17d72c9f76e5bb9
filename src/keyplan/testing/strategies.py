"""Hypothesis strategies for the values of key elements.

`element_values(element)` serves every codec, one's own included: where nothing is registered for its class, members of its
language are drawn and decoded. Register a better one with `@element_values.register`.
"""

import string
from functools import singledispatch
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from keyplan.codec import (
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Decimal,
    Directory,
    Element,
    Enclosed,
    EscapedBytes,
    EscapedText,
    FixedBytes,
    HexUuid,
    LevelPath,
    Percent,
    PrefixVarint,
    RawUuid,
    SingleFloat,
    SlashPath,
    Tail,
    Text,
    TextTail,
    TimestampNanos,
    TimestampText,
    TupleElement,
    Uvarint,
    Versionstamp,
)
from keyplan.errors import InvalidKeyError

__all__ = ["element_members", "element_values"]


def element_members(element: Element[Any]) -> SearchStrategy[bytes]:
    """Draw byte strings of the element's language, from nothing but the language."""
    language = element.language
    return st.from_regex(language.pattern, fullmatch=True).filter(language.accepts)


@singledispatch
def element_values(element: Element[Any]) -> SearchStrategy[Any]:
    """Draw values that the element encodes."""
    return element_members(element).map(element.decode)


def _unicode() -> SearchStrategy[str]:
    # Why: lone surrogates have no UTF-8; plain names are the common case, so half of the characters are ASCII.
    return st.sampled_from(string.printable + "\x00\x01\x1f\x7f") | st.characters(exclude_categories=["Cs"])


def _that_fit(element: Element[Any], values: SearchStrategy[Any]) -> SearchStrategy[Any]:
    def is_encodable(value: object) -> bool:
        try:
            element.encode(value)
        except InvalidKeyError:
            return False
        return True

    return values.filter(is_encodable)


def _integers_of_all_sizes(bits: int) -> SearchStrategy[int]:
    # Why: numbers drawn evenly are nearly all of the greatest length, where a variable-length code has the least cases.
    near = st.integers(0, bits - 1).flatmap(lambda size: st.integers(2**size - 1, 2 ** (size + 1) - 1))
    return near | st.integers(0, 2**bits - 1)


@element_values.register(U8)
@element_values.register(U16)
@element_values.register(U32)
@element_values.register(U64)
@element_values.register(I8)
@element_values.register(I16)
@element_values.register(I32)
@element_values.register(I64)
@element_values.register(Decimal)
def _integers(
    element: U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64 | Decimal,
) -> SearchStrategy[int]:
    return st.integers(element.least, element.most)


@element_values.register
def _floats(element: F64) -> SearchStrategy[float]:
    return st.floats(allow_nan=False)


@element_values.register(Uvarint)
@element_values.register(PrefixVarint)
def _varints(element: Uvarint | PrefixVarint) -> SearchStrategy[int]:
    sizes = _integers_of_all_sizes(64)
    return sizes.filter(lambda size: element.least <= size <= element.most) | st.integers(element.least, element.most)


@element_values.register(TimestampText)
@element_values.register(TimestampNanos)
def _instants(element: TimestampText | TimestampNanos) -> SearchStrategy[int]:
    return st.integers(element.least, element.most)


@element_values.register
def _names(element: Text) -> SearchStrategy[str]:
    alphabet: SearchStrategy[str] = st.sampled_from(element.ascii_characters)
    if not element.is_ascii_only:
        alphabet |= st.characters(min_codepoint=0x80, exclude_categories=["Cs"])
    return _that_fit(element, st.text(alphabet))


@element_values.register
def _percent_names(element: Percent) -> SearchStrategy[str]:
    return _that_fit(element, st.text(_unicode(), min_size=1))


@element_values.register(HexUuid)
@element_values.register(RawUuid)
def _uuids(element: HexUuid | RawUuid) -> SearchStrategy[Any]:
    return st.uuids()


@element_values.register
def _fixed(element: FixedBytes) -> SearchStrategy[bytes]:
    return st.binary(min_size=element.size, max_size=element.size)


@element_values.register(EscapedBytes)
@element_values.register(Tail)
def _binary(element: EscapedBytes | Tail) -> SearchStrategy[bytes]:
    # Why: the bytes that are escaped are rare among 256.
    return _that_fit(element, st.binary() | st.lists(st.sampled_from([0, 1, 2, 255])).map(bytes))


@element_values.register(EscapedText)
@element_values.register(TextTail)
def _texts(element: EscapedText | TextTail) -> SearchStrategy[str]:
    return _that_fit(element, st.text(_unicode()))


@element_values.register(SlashPath)
@element_values.register(LevelPath)
@element_values.register(Directory)
def _paths(element: SlashPath | LevelPath | Directory) -> SearchStrategy[str]:
    component = st.text(_unicode().filter(lambda character: character not in "/\x00"), min_size=1, max_size=6)
    least = 0 if isinstance(element, Directory) else 1
    return _that_fit(element, st.lists(component, min_size=least, max_size=6).map("/".join))


@element_values.register
def _enclosed(element: Enclosed) -> SearchStrategy[str]:
    whole = element_values(element.name).map(lambda name: f"{element.before}{name}{element.after}")
    return st.just("") | whole if element.is_empty_allowed else whole


@element_values.register
def _tuples(element: TupleElement) -> SearchStrategy[tuple[Any, ...]]:
    large = st.integers(-(2**80), 2**80) | st.integers(2030, 2040).map(lambda bits: 1 - 2**bits)
    sizes = _integers_of_all_sizes(72).flatmap(lambda size: st.sampled_from([size, -size]))
    stamps = st.builds(Versionstamp, st.binary(min_size=10, max_size=10), st.integers(0, 0xFFFF))
    singles = st.floats(width=32, allow_nan=False).map(SingleFloat)
    doubles = st.floats(allow_nan=False)
    zeros = st.lists(st.sampled_from([0, 1, 255])).map(bytes)
    plain = st.none() | st.booleans() | st.binary() | zeros | st.text(_unicode()) | sizes | large | st.uuids()
    items = st.recursive(
        plain | stamps | singles | doubles, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8
    )
    return st.lists(items, max_size=5).map(tuple)
