"""The types of columns: their names, which keys and notes hold, and the type that takes the values of two of them.

float32, bool, complex64, datetime64[ns]     a number or a time of numpy; bytes24, str96: text of 3 bytes, of 3 characters
str, bytes                                   text and bytes of any length
list<T>; T[3], T[2][3]                       any number of T; 3 of T, 2 rows of 3
struct{x:float32,"a:b":str}; tuple{T,T}      a record: a name that is no plain word is spelled as JSON spells it
option<T>                                    T, or nothing
ref                                          a reference, as `hepnos.Ref`
nothing                                      of what is always empty
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.errors import TypeMismatchError

__all__ = [
    "REF_RECORD",
    "ColumnType",
    "FixedType",
    "ListType",
    "NothingType",
    "NumberType",
    "OptionType",
    "RecordType",
    "RefType",
    "TextType",
    "column_type",
    "converted",
    "dtype_name",
    "dtype_named",
    "holds_ref",
    "packed_dtype",
    "type_of_dtype",
    "unpadded",
    "wider",
    "without_fixed_text",
]

_KINDS: Final = frozenset("biufcmMSU")
_NUMBERS: Final = frozenset("biufc")
_TEXTS: Final = {"bytes": ("S", 8), "str": ("U", 32)}
_DEPTH_MAX: Final = 32
"""Why: a name comes from a key, and a reader of it must not be led to the end of its stack."""
_SIZE_MAX: Final = 10**9
"""Why: so that a size times a count fits any number that is used here."""


@dataclass(frozen=True)
class NumberType:
    """A number, a time, or text of a fixed size; little-endian."""

    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return self.dtype.name


@dataclass(frozen=True)
class TextType:
    """Text, or bytes."""

    is_bytes: bool

    def __str__(self) -> str:
        return "bytes" if self.is_bytes else "str"


@dataclass(frozen=True)
class ListType:
    """Any number of something."""

    content: "ColumnType"

    def __str__(self) -> str:
        return f"list<{self.content}>"


@dataclass(frozen=True)
class FixedType:
    """So many of something."""

    content: "ColumnType"
    size: int

    def __str__(self) -> str:
        # Why in front of others: 2 rows of 3 are spelled [2][3], from the outside in.
        element: ColumnType = self.content
        sizes = f"[{self.size}]"
        while isinstance(element, FixedType):
            sizes += f"[{element.size}]"
            element = element.content
        return f"{element}{sizes}"


@dataclass(frozen=True)
class OptionType:
    """Something, or nothing."""

    content: "ColumnType"

    def __str__(self) -> str:
        return f"option<{self.content}>"


@dataclass(frozen=True)
class RecordType:
    """Columns side by side; those of a tuple have no names but their numbers."""

    columns: "tuple[tuple[str, ColumnType], ...]"
    is_tuple: bool = False

    def __str__(self) -> str:
        if self.is_tuple:
            return f"tuple{{{','.join(str(kind) for _, kind in self.columns)}}}"
        return f"struct{{{','.join(f'{_spelled(name)}:{kind}' for name, kind in self.columns)}}}"


@dataclass(frozen=True)
class RefType:
    """A reference to a product, or to an element of one."""

    def __str__(self) -> str:
        return "ref"


@dataclass(frozen=True)
class NothingType:
    """Of what is empty wherever it was seen, as the elements of empty lists."""

    def __str__(self) -> str:
        return "nothing"


ColumnType = NumberType | TextType | ListType | FixedType | OptionType | RecordType | RefType | NothingType

_WORDS: Final[dict[str, ColumnType]] = {
    str(kind): kind for kind in (TextType(is_bytes=False), TextType(is_bytes=True), RefType(), NothingType())
}
REF_RECORD: Final = RecordType((("raw", TextType(is_bytes=True)), ("index", OptionType(NumberType(np.dtype("<i8"))))))
"""The columns that a reference has the bytes of; a record of these that is no reference is another type."""


def holds_ref(kind: ColumnType) -> bool:
    """Tell whether there are references in values of a type."""
    match kind:
        case RefType():
            return True
        case ListType(content) | FixedType(content, _) | OptionType(content):
            return holds_ref(content)
        case RecordType(columns, _):
            return any(holds_ref(each) for _, each in columns)
        case _:
            return False


_PLAIN_NAME: Final = re.compile(r'[^{},:\[\]"\x00-\x1f\x7f\ud800-\udfff]+')


def _spelled(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)


# ---- types of numpy -----------------------------------------------------------------------------------------------------


def type_of_dtype(dtype: np.dtype[Any]) -> ColumnType:
    """Return the type of values of a numpy type. Raises TypeMismatchError for one that has padding, or no fixed bytes."""
    if dtype.subdtype is not None:
        element, sizes = dtype.subdtype
        kind = type_of_dtype(element)
        for size in reversed(sizes):
            kind = FixedType(kind, size)
        return kind
    if dtype.names is None:
        if dtype.kind not in _KINDS or not dtype.itemsize:
            raise TypeMismatchError(type=dtype.name, problem="such elements have no fixed bytes that C++ shares")
        return NumberType(dtype.newbyteorder("<"))
    fields: Any = dtype.fields
    position, columns = 0, list[tuple[str, ColumnType]]()
    for name in dtype.names:
        field, offset = fields[name][:2]
        if offset != position:
            raise TypeMismatchError(type=dtype.name, problem="it has padding: register a name for it, or pack it")
        position += field.itemsize
        columns.append((name, type_of_dtype(field)))
    if position != dtype.itemsize or not position:
        problem = "it has padding, or nothing: register a name for it, or pack it"
        raise TypeMismatchError(type=dtype.name, problem=problem)
    return RecordType(tuple(columns))


def unpadded(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the same fields without the gaps that a C++ struct has."""
    if dtype.subdtype is not None:
        element, sizes = dtype.subdtype
        return np.dtype((unpadded(element), sizes))
    if dtype.names is None:
        return dtype
    fields: Any = dtype.fields
    return np.dtype([(name, unpadded(fields[name][0])) for name in dtype.names])


def packed_dtype(kind: ColumnType) -> np.dtype[Any] | None:
    """Return the numpy type whose bytes, one value after the other, are the type's; None where values differ in size."""
    match kind:
        case NumberType(dtype):
            return dtype
        case FixedType(content, size):
            element = packed_dtype(content)
            if element is None or not size:
                return None
            # Why unpacked: to numpy an array of arrays and one of two dimensions are two types, of the same bytes.
            base, sizes = (element, ()) if element.subdtype is None else element.subdtype
            return np.dtype((base, (size, *sizes)))
        case RecordType(columns, False) if columns and all(name for name, _ in columns):
            fields = [(name, packed_dtype(each)) for name, each in columns]
            return None if any(each is None for _, each in fields) else np.dtype(fields)
        case _:
            return None


def converted(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array as one of another type, of a record each field by its name. Trap: numpy goes by their order."""
    base = dtype.base
    if base.names is None or values.dtype == base:
        return values.astype(base, copy=False)
    fields: Any = base.fields
    found = np.empty(values.shape, base)
    for name in base.names:
        found[name] = converted(values[name], fields[name][0])
    return found


def without_fixed_text(kind: ColumnType) -> ColumnType:
    """Return the type as awkward has it, which knows no text of a fixed size."""
    match kind:
        case NumberType(dtype) if dtype.kind in "SU":
            return TextType(dtype.kind == "S")
        case ListType(content):
            return ListType(without_fixed_text(content))
        case FixedType(content, size):
            return FixedType(without_fixed_text(content), size)
        case OptionType(content):
            return OptionType(without_fixed_text(content))
        case RecordType(columns, is_tuple):
            return RecordType(tuple((name, without_fixed_text(each)) for name, each in columns), is_tuple)
        case _:
            return kind


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a numpy type. Raises TypeMismatchError for one that has padding, or no name that can be read back."""
    return str(type_of_dtype(dtype))


def dtype_named(name: str) -> np.dtype[Any] | None:
    """Return the little-endian numpy type of a name that `dtype_name` gives to what is no field, or None."""
    kind = column_type(name)
    return None if kind is None or isinstance(kind, FixedType) else packed_dtype(kind)


# ---- names --------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1_024)  # Why: each look at a table reads its notes, and a wide one's type takes long to spell.
def column_type(name: str) -> ColumnType | None:
    """Return the type of a name, None for what is none. A name is as its type spells it: there is no other way."""
    reader = _Reader(name)
    try:
        kind = reader.type(0)
    except (ValueError, TypeError, SyntaxError, OverflowError):
        return None
    return kind if reader.at == len(name) and str(kind) == name else None


class _Reader:
    _WORD: Final = re.compile(r"[a-z]+\d*(?:\[\d{0,9}[A-Za-z]+\])?", re.ASCII)
    _TEXT: Final = re.compile(r"(bytes|str)([1-9]\d{0,8})", re.ASCII)
    _SIZE: Final = re.compile(r"\[(\d{1,9})\]", re.ASCII)

    def __init__(self, name: str) -> None:
        self._name = name
        self.at = 0

    def type(self, depth: int) -> ColumnType:
        if depth > _DEPTH_MAX:
            raise ValueError
        kind = self._element(depth)
        sizes: list[int] = []
        while (match := self._SIZE.match(self._name, self.at)) is not None and len(sizes) < _DEPTH_MAX:
            sizes.append(int(match[1]))
            self.at = match.end()
        for size in reversed(sizes):
            kind = FixedType(kind, size)
        if sizes and (_levels(kind) > 2 * _DEPTH_MAX or _least_bytes(kind) > _SIZE_MAX):
            raise ValueError
        return kind

    def _element(self, depth: int) -> ColumnType:
        for begin, end, make in (("list<", ">", ListType), ("option<", ">", OptionType)):
            if self._takes(begin):
                content = self.type(depth + 1)
                if not self._takes(end) or (make is OptionType and isinstance(content, OptionType)):
                    raise ValueError
                return make(content)
        for begin, is_tuple in (("struct{", False), ("tuple{", True)):
            if self._takes(begin):
                return RecordType(tuple(self._columns(depth, is_tuple=is_tuple)), is_tuple)
        match = self._WORD.match(self._name, self.at)
        if match is None:
            raise ValueError
        self.at = match.end()
        return self._word(match[0])

    def _word(self, word: str) -> ColumnType:
        if word in _WORDS:
            return _WORDS[word]
        if (text := self._TEXT.fullmatch(word)) is not None:
            letter, bits = _TEXTS[text[1]]
            return NumberType(np.dtype(f"<{letter}{int(text[2]) // bits}"))
        dtype = np.dtype(word)
        if dtype.kind not in _KINDS or not dtype.itemsize:
            raise ValueError
        return NumberType(dtype.newbyteorder("<"))

    def _columns(self, depth: int, *, is_tuple: bool) -> list[tuple[str, ColumnType]]:
        columns: list[tuple[str, ColumnType]] = []
        while not self._takes("}"):
            if columns and not self._takes(","):
                raise ValueError
            name = str(len(columns)) if is_tuple else self._column_name()
            columns.append((name, self.type(depth + 1)))
        if len({name for name, _ in columns}) < len(columns):
            raise ValueError
        return columns

    def _column_name(self) -> str:
        if self._name.startswith('"', self.at):
            name, self.at = json.JSONDecoder().raw_decode(self._name, self.at)
        else:
            end = self._name.index(":", self.at)
            name, self.at = self._name[self.at : end], end
        if not self._takes(":"):
            raise ValueError
        return str(name)

    def _takes(self, text: str) -> bool:
        if not self._name.startswith(text, self.at):
            return False
        self.at += len(text)
        return True


def _levels(kind: ColumnType) -> int:
    """Return how deep a type is."""
    match kind:
        case ListType(content) | OptionType(content) | FixedType(content, _):
            return 1 + _levels(content)
        case RecordType(columns, _):
            return 1 + max((_levels(each) for _, each in columns), default=0)
        case _:
            return 1


def _least_bytes(kind: ColumnType) -> int:
    """Return a size that no value of a type is less than, but for those without bytes, which count as one."""
    match kind:
        case NumberType(dtype):
            return dtype.itemsize
        case FixedType(content, size):
            return _least_bytes(content) * size
        case RecordType(columns, _):
            return max(1, sum(_least_bytes(each) for _, each in columns))
        case _:
            return 1


# ---- two of them --------------------------------------------------------------------------------------------------------


def wider(one: ColumnType, other: ColumnType) -> ColumnType | None:
    """Return the type that holds every value of both as it is; None where there is none, as of int64 and float64."""
    if one == other or isinstance(other, NothingType):
        return one
    match one, other:
        case NothingType(), _:
            return other
        case (OptionType(), _) | (_, OptionType()):
            content = wider(_present(one), _present(other))
            return None if content is None else OptionType(content)
        case NumberType(), NumberType():
            return _wider_number(one.dtype, other.dtype)
        case (NumberType() as fixed, TextType() as text) | (TextType() as text, NumberType() as fixed):
            return text if fixed.dtype.kind == ("S" if text.is_bytes else "U") else None
        case FixedType(), FixedType() if one.size == other.size:
            content = wider(one.content, other.content)
            return None if content is None else FixedType(content, one.size)
        case ((ListType() | FixedType()), (ListType() | FixedType())):
            content = wider(one.content, other.content)
            return None if content is None else ListType(content)
        case RecordType(), RecordType() if one.is_tuple == other.is_tuple:
            return _wider_record(one, other)
        case _:
            return None


def _present(kind: ColumnType) -> ColumnType:
    return kind.content if isinstance(kind, OptionType) else kind


def _wider_record(one: RecordType, other: RecordType) -> ColumnType | None:
    theirs = dict(other.columns)
    # Why the same names: a column that only one has within a record is another thing than a column that a version lacks.
    if {name for name, _ in one.columns} != set(theirs):
        return None
    columns = [(name, wider(kind, theirs[name])) for name, kind in one.columns]
    if any(kind is None for _, kind in columns):
        return None
    return RecordType(tuple((name, kind) for name, kind in columns if kind is not None), one.is_tuple)


def _wider_number(one: np.dtype[Any], other: np.dtype[Any]) -> ColumnType | None:
    if one.kind != other.kind and not {one.kind, other.kind} <= _NUMBERS:
        return None
    # Why no times: days in nanoseconds go beyond 64 bits.
    if one.kind in "mM":
        return None
    promoted = np.promote_types(one, other)
    is_held = _holds(promoted, one) and _holds(promoted, other)
    return NumberType(promoted.newbyteorder("<")) if is_held else None


def _holds(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Tell whether every value is held as it is. Trap: to numpy float64 holds int64."""
    if narrow.kind in "iu" and wide.kind in "fc":
        return narrow.itemsize * 8 - (narrow.kind == "i") <= np.finfo(wide).nmant + 1
    return bool(np.can_cast(narrow, wide, "safe"))
