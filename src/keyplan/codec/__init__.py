"""Values to ordered bytes and back: the elements that keys are made of, and the forms that records are stored in."""

from keyplan.codec.binary import EscapedBytes, EscapedText, FixedBytes, Tail, TextTail
from keyplan.codec.delimiting import alphabet_of, is_self_delimiting
from keyplan.codec.element import (
    Element,
    FastStruct,
    FastText,
    element_of_spec,
    register_element,
    registered_elements,
)
from keyplan.codec.foreign_forms import ProtobufForm, PydanticForm, pydantic_problem
from keyplan.codec.language import (
    ANY_BYTE,
    AUTOMATON_STATES_MAX,
    Automaton,
    AutomatonTooLargeError,
    Bytes,
    Choice,
    Language,
    Limited,
    Refined,
    Repeat,
    Series,
    byte_class,
    literal,
)
from keyplan.codec.numbers import F64, I8, I16, I32, I64, U8, U16, U32, U64, Decimal
from keyplan.codec.paths import Directory, LevelPath, SlashPath
from keyplan.codec.plain_forms import ElementForm, EmptyForm, RawForm, TextForm
from keyplan.codec.positional_names import POSITIONAL_NAMES
from keyplan.codec.secrets import MASK, Secret, SecretPath, change_at, secret_of_plain, shown_path
from keyplan.codec.serialized_forms import JsonForm, MsgpackForm
from keyplan.codec.text import Percent, Text
from keyplan.codec.timestamps import TimestampNanos, TimestampText
from keyplan.codec.tuples import SingleFloat, TupleElement, Versionstamp
from keyplan.codec.uuids import HexUuid, RawUuid
from keyplan.codec.value_form import ValueForm
from keyplan.codec.values import value_form_of, value_form_of_description
from keyplan.codec.varints import PrefixVarint, Uvarint
from keyplan.codec.words import Enclosed, Word

__all__ = [
    "ANY_BYTE",
    "AUTOMATON_STATES_MAX",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "MASK",
    "POSITIONAL_NAMES",
    "U8",
    "U16",
    "U32",
    "U64",
    "Automaton",
    "AutomatonTooLargeError",
    "Bytes",
    "Choice",
    "Decimal",
    "Directory",
    "Element",
    "ElementForm",
    "EmptyForm",
    "Enclosed",
    "EscapedBytes",
    "EscapedText",
    "FastStruct",
    "FastText",
    "FixedBytes",
    "HexUuid",
    "JsonForm",
    "Language",
    "LevelPath",
    "Limited",
    "MsgpackForm",
    "Percent",
    "PrefixVarint",
    "ProtobufForm",
    "PydanticForm",
    "RawForm",
    "RawUuid",
    "Refined",
    "Repeat",
    "Secret",
    "SecretPath",
    "Series",
    "SingleFloat",
    "SlashPath",
    "Tail",
    "Text",
    "TextForm",
    "TextTail",
    "TimestampNanos",
    "TimestampText",
    "TupleElement",
    "Uvarint",
    "ValueForm",
    "Versionstamp",
    "Word",
    "alphabet_of",
    "byte_class",
    "change_at",
    "element_of_spec",
    "is_self_delimiting",
    "literal",
    "pydantic_problem",
    "register_element",
    "registered_elements",
    "secret_of_plain",
    "shown_path",
    "value_form_of",
    "value_form_of_description",
]
