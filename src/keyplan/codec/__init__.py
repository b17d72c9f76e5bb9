"""Values to ordered bytes and back: the elements that keys are made of, and the forms that records are stored in."""

from keyplan.codec.binary import EscapedBytes, EscapedText, FixedBytes, Tail, TextTail
from keyplan.codec.element import (
    Element,
    FastStruct,
    FastText,
    element_of_spec,
    register_element,
    registered_elements,
)
from keyplan.codec.language import (
    ANY_BYTE,
    Automaton,
    Bytes,
    Choice,
    Language,
    Limited,
    Repeat,
    Series,
    byte_class,
    literal,
)
from keyplan.codec.numbers import F64, I8, I16, I32, I64, U8, U16, U32, U64, Decimal
from keyplan.codec.text import Percent, Text
from keyplan.codec.uuids import HexUuid, RawUuid

__all__ = [
    "ANY_BYTE",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "U8",
    "U16",
    "U32",
    "U64",
    "Automaton",
    "Bytes",
    "Choice",
    "Decimal",
    "Element",
    "EscapedBytes",
    "EscapedText",
    "FastStruct",
    "FastText",
    "FixedBytes",
    "HexUuid",
    "Language",
    "Limited",
    "Percent",
    "RawUuid",
    "Repeat",
    "Series",
    "Tail",
    "Text",
    "TextTail",
    "byte_class",
    "element_of_spec",
    "literal",
    "register_element",
    "registered_elements",
]
