"""The rows of a table as awkward arrays, and their bytes: of many products at once, column by column.

    product          u64 rows, then the row type's content of so many
    number, time     its bytes; a bool is 0 or 1
    str, bytes       a u32 length for each, then all bytes
    ref              the content of a struct of its `raw`, which is bytes, and its `index`, an option<int64>
    list<T>          a u32 count for each, then the content of all elements
    T[n]             the content of n times as many
    option<T>        a byte for each, 1 where there is one, then the content of those
    struct, tuple    the content of each column, one after the other
    nothing          no bytes; there is none

Little-endian. No byte is left over, and counts that lead beyond the end are damage. Text is not looked into: a file's is kept
as it is. `docs/design/hepnos-tables.md` has an example.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import awkward as ak
import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.column_types import (
    REF_RECORD,
    ColumnType,
    FixedType,
    ListType,
    NothingType,
    NumberType,
    OptionType,
    RecordType,
    RefType,
    TextType,
    holds_ref,
    packed_dtype,
    wider,
)
from keyplan.apps.hepnos.errors import TypeMismatchError
from keyplan.apps.hepnos.ref_values import as_refs, from_objects, is_ref
from keyplan.errors import CorruptionError

__all__ = [
    "cast",
    "contents_of",
    "counts_and_elements",
    "decoded",
    "encoded",
    "from_arrays",
    "from_arrow",
    "from_masked",
    "from_objects",
    "from_packed",
    "from_rows",
    "from_texts",
    "joined",
    "list_or_nothing",
    "nothing_of",
    "option_of",
    "rows_of_columns",
    "tightened",
    "to_packed",
    "type_of",
    "type_of_rows",
    "without_needless_options",
]

_U32_MAX: Final = 0xFFFFFFFF
_ROWS_MAX: Final = 1 << 48
"""Why: rows without columns have no bytes that would bound their number."""
_HEAD: Final = 8
_BARE_ROWS_MAX: Final = 1 << 24
"""Why less, of rows that have no bytes at all: who loads many products puts them in order, which takes memory for each row."""

Counts = npt.NDArray[np.int64]


# ---- types --------------------------------------------------------------------------------------------------------------


def type_of_rows(rows: Any) -> ColumnType:
    """Return the type of each element of an awkward array. Raises TypeMismatchError for what no column is, as a union."""
    return type_of(ak.to_layout(rows).form.type)


def type_of(kind: Any) -> ColumnType:
    """Return the type of a type of awkward. Raises TypeMismatchError for what no column is."""
    match kind:
        case ak.types.NumpyType():
            dtype = np.dtype(kind.primitive)
            # Why these: long doubles have other bytes on other machines.
            if (dtype.kind == "f" and dtype.itemsize > 8) or (dtype.kind == "c" and dtype.itemsize > 16):
                raise TypeMismatchError(type=kind.primitive, problem="its bytes differ from machine to machine")
            return NumberType(dtype.newbyteorder("<"))
        case ak.types.ListType() | ak.types.RegularType() if kind.parameter("__array__") in {"string", "bytestring"}:
            return TextType(kind.parameter("__array__") == "bytestring")
        case ak.types.ListType():
            return ListType(type_of(kind.content))
        case ak.types.RegularType():
            return FixedType(type_of(kind.content), int(kind.size))
        case ak.types.OptionType():
            return OptionType(type_of(kind.content))
        case ak.types.RecordType():
            names = [str(at) for at in range(len(kind.contents))] if kind.is_tuple else kind.fields
            columns = RecordType(tuple(zip(names, map(type_of, kind.contents), strict=True)), kind.is_tuple)
            return RefType() if is_ref(kind, columns) else columns
        case ak.types.UnknownType():
            return NothingType()
        case _:
            raise TypeMismatchError(type=str(kind), problem="a column has values of one type")


def _empty(kind: ColumnType) -> Any:
    """Return awkward's content of a type without elements."""
    match kind:
        case NumberType(dtype):
            return _leaf(np.empty(0, dtype))
        case TextType(is_bytes):
            return _text(np.zeros(1, np.int64), b"", is_bytes=is_bytes)
        case ListType(content):
            return ak.contents.ListOffsetArray(ak.index.Index64(np.zeros(1, np.int64)), _empty(content))
        case FixedType(content, size):
            return ak.contents.RegularArray(_empty(content), size, 0)
        case OptionType(content):
            return option_of(np.zeros(0, np.bool_), _empty(content))
        case RecordType(columns, is_tuple):
            return _record(columns, [_empty(each) for _, each in columns], 0, is_tuple=is_tuple)
        case RefType():
            return as_refs(_empty(REF_RECORD))
        case NothingType():
            return ak.contents.EmptyArray()


def nothing_of(kind: ColumnType, length: int) -> Any:
    """Return so many values of an option of a type, each of them nothing."""
    content = _empty(kind.content if isinstance(kind, OptionType) else kind)
    return ak.Array(option_of(np.zeros(length, np.bool_), content))


def cast(rows: Any, kind: ColumnType) -> Any:
    """Return an array as one of a type that holds all of its values. Raises TypeMismatchError for another type."""
    layout = ak.to_layout(rows)
    found = type_of(layout.form.type)
    # Why not of references: the index of some that all have one, or that none has, is no option in their array.
    if found == kind and not holds_ref(kind):
        return ak.Array(layout)
    if wider(kind, found) != kind:
        raise TypeMismatchError(type=str(kind), problem=f"its elements are {found}")
    # Why packed: awkward makes no option of rows that are taken by an index.
    return ak.enforce_type(ak.to_packed(ak.Array(layout)), _empty(kind).form.type)


def tightened(layout: Any) -> Any:
    """Return a content without options that nothing is missing from: Arrow's columns may all lack values, and few do."""
    if layout.is_option:
        if layout.mask_as_bool(valid_when=True).all():
            return tightened(layout.project())
        return option_of(layout.mask_as_bool(valid_when=True), tightened(layout.project()))
    if layout.is_indexed:
        return tightened(layout.project())
    if layout.parameter("__array__") is not None or layout.is_numpy or layout.is_unknown or layout.is_union:
        return layout
    if layout.is_record:
        contents = [tightened(each) for each in contents_of(layout)]
        names = None if layout.is_tuple else layout.fields
        return ak.contents.RecordArray(contents, names, length=len(layout), parameters=layout.parameters)
    if layout.is_regular:
        return ak.contents.RegularArray(tightened(layout.content), layout.size, len(layout))
    packed = layout.to_ListOffsetArray64(start_at_zero=True)
    content = packed.content[: packed.offsets[-1]]
    return ak.contents.ListOffsetArray(packed.offsets, tightened(content))


def contents_of(record: Any) -> list[Any]:
    """Return the columns of records in their order. Why not by name: awkward looks through all names for each."""
    return [content[: len(record)] for content in record.contents]


# ---- from other forms ---------------------------------------------------------------------------------------------------


def from_rows(rows: Any) -> Any:
    """Return rows of numpy, of awkward, or a list of records as an array of awkward."""
    if isinstance(rows, ak.Array):
        return rows
    return ak.Array(from_packed(rows)) if isinstance(rows, np.ndarray) else from_objects(rows)


def from_texts(raws: Sequence[bytes]) -> Any:
    """Return the bytes of texts as an array of text."""
    return ak.Array(_text(_ends(np.fromiter(map(len, raws), np.int64, len(raws))), b"".join(raws), is_bytes=False))


def from_arrays(arrays: Sequence[npt.NDArray[Any]], dtype: np.dtype[Any]) -> Any:
    """Return arrays of any lengths as an array of lists."""
    offsets = ak.index.Index64(_ends(np.fromiter(map(len, arrays), np.int64, len(arrays))))
    flat = np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype, copy=False)
    return ak.Array(ak.contents.ListOffsetArray(offsets, from_packed(flat)))


def from_masked(values: Any) -> Any:
    """Return a masked array of numpy as an array of options."""
    is_there = ~np.ma.getmaskarray(values)
    return ak.Array(option_of(is_there, from_packed(np.asarray(values)[is_there])))


def from_arrow(column: Any) -> Any:
    """Return a column of Arrow; it is one of options only if a value is missing."""
    return without_needless_options(ak.from_arrow(column))


def without_needless_options(rows: Any) -> Any:
    """Return an array without options that nothing is missing from, at any depth; see `tightened`."""
    return ak.Array(tightened(ak.to_layout(rows)))


def joined(parts: Sequence[Any], kind: ColumnType) -> Any:
    """Return arrays of a type, one after the other."""
    whole = ak.concatenate([from_rows(part) for part in parts]) if len(parts) > 1 else from_rows(parts[0])
    # Why again: awkward makes options of its own of arrays that have none.
    return cast(whole, kind)


def list_or_nothing(is_there: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int64], rows: Any) -> Any:
    """Return rows as a list for each event, and nothing for events that have none."""
    lists = ak.contents.ListOffsetArray(ak.index.Index64(offsets), ak.to_layout(from_rows(rows)))
    mask = ak.index.Index8(is_there.view("i1"))
    return ak.Array(ak.contents.ByteMaskedArray(mask, lists, valid_when=True))


def counts_and_elements(lists: Any) -> tuple[Counts, Any]:
    """Return how many elements each list has, -1 for nothing in a list's place, and all elements, one after the other."""
    layout = _plain(ak.to_layout(lists))
    if layout.is_option:
        is_there = np.asarray(layout.mask_as_bool(valid_when=True))
        own, elements = _elements(layout.project())
        counts = np.full(len(layout), -1, np.int64)
        counts[is_there] = own
        return counts, ak.Array(elements)
    counts, elements = _elements(layout)
    return counts, ak.Array(elements)


def _elements(layout: Any) -> tuple[Counts, Any]:
    layout = _plain(layout)
    packed = (layout.to_RegularArray() if layout.is_numpy else layout).to_ListOffsetArray64(start_at_zero=True)
    offsets = np.asarray(packed.offsets.data)
    return np.diff(offsets), packed.content[: int(offsets[-1])]


def rows_of_columns(columns: Mapping[str, Any]) -> Any:
    """Return columns of one length, of numpy or of awkward, as rows."""
    contents = [ak.to_layout(from_rows(column)) for column in columns.values()]
    return ak.Array(ak.contents.RecordArray(contents, list(columns)))


# ---- numpy --------------------------------------------------------------------------------------------------------------


def from_packed(rows: npt.NDArray[Any]) -> Any:
    """Return an array of numpy, with fields, rows of fixed sizes, and text of fixed sizes, as awkward's content."""
    if rows.dtype.names is not None:
        names = list(rows.dtype.names)
        if rows.ndim > 1:
            return ak.contents.RegularArray(from_packed(rows.reshape(-1)), rows.shape[1], len(rows))
        return ak.contents.RecordArray([from_packed(rows[name]) for name in names], names, length=len(rows))
    if rows.dtype.kind in "SU":
        if rows.ndim > 1:
            return ak.contents.RegularArray(from_packed(rows.reshape(-1, *rows.shape[2:])), rows.shape[1], len(rows))
        texts = rows.tolist()
        raws = [text.encode() for text in texts] if rows.dtype.kind == "U" else texts
        return _text(
            _ends(np.fromiter(map(len, raws), np.int64, len(raws))), b"".join(raws), is_bytes=rows.dtype.kind == "S"
        )
    # Why: awkward knows no other order of bytes.
    return _leaf(np.ascontiguousarray(rows, rows.dtype.newbyteorder("<")))


def to_packed(rows: Any, kind: ColumnType) -> npt.NDArray[Any]:
    """Return an awkward array of a type as an array of numpy. Raises TypeMismatchError."""
    dtype = packed_dtype(kind)
    assert dtype is not None
    layout = ak.to_layout(cast(rows, kind))
    found = np.empty(len(layout), dtype)
    _fill(found, layout, kind)
    return found


def _fill(rows: npt.NDArray[Any], layout: Any, kind: ColumnType) -> None:
    layout = _plain(layout)
    if isinstance(kind, RecordType):
        for (name, each), content in zip(kind.columns, contents_of(layout), strict=True):
            _fill(rows[name], content, each)
    elif isinstance(kind, FixedType):
        inner = (layout.to_RegularArray() if layout.is_numpy else layout).content[: len(layout) * kind.size]
        flat = np.empty(len(inner), packed_dtype(kind.content))
        _fill(flat, inner, kind.content)
        rows[...] = flat.reshape(rows.shape)
    else:
        rows[...] = layout.data


# ---- bytes --------------------------------------------------------------------------------------------------------------


def encoded(rows: Any, kind: ColumnType, counts: Counts) -> list[bytes]:
    """Return the bytes of products that have so many of the rows each, one after the other. Raises TypeMismatchError."""
    layout = ak.to_layout(ak.to_packed(cast(rows, kind)))
    parts: list[list[bytes]] = [_slices(counts.astype("<u8").tobytes(), np.full(len(counts), _HEAD))]
    _encode(kind, layout, counts, parts)
    found = list(map(b"".join, zip(*parts, strict=True)))
    if _has_too_many_bare(found, counts):
        raise TypeMismatchError(type=str(kind), problem="so many rows without bytes are no table")
    return found


def _has_too_many_bare(raws: Sequence[bytes], counts: Counts) -> bool:
    return any(len(raws[at]) == _HEAD for at in np.flatnonzero(counts > _BARE_ROWS_MAX).tolist())


def _encode(kind: ColumnType, layout: Any, counts: Counts, parts: list[list[bytes]]) -> None:
    """Append for each product its part of the bytes of a column; `counts` are how many elements of it each one has."""
    layout = _plain(layout)
    match kind:
        case NumberType(dtype):
            parts.append(_slices(np.ascontiguousarray(layout.data, dtype).tobytes(), counts * dtype.itemsize))
        case TextType() | ListType():
            lists = layout.to_ListOffsetArray64(start_at_zero=True)
            offsets = np.asarray(lists.offsets.data)
            lengths = np.diff(offsets)
            if len(lengths) and lengths.max() > _U32_MAX:
                raise TypeMismatchError(type=str(kind), problem="a list is longer than 2**32 - 1")
            parts.append(_slices(lengths.astype("<u4").tobytes(), counts * 4))
            below = _below(lengths, counts)
            content = lists.content[: int(offsets[-1])]
            if isinstance(kind, ListType):
                _encode(kind.content, content, below, parts)
            else:
                parts.append(_slices(np.ascontiguousarray(_plain(content).data).tobytes(), below))
        case FixedType(content, size):
            whole = (layout.to_RegularArray() if layout.is_numpy else layout).content[: len(layout) * size]
            _encode(content, whole, counts * size, parts)
        case OptionType(content):
            is_there = (
                np.asarray(layout.mask_as_bool(valid_when=True)) if layout.is_option else np.ones(len(layout), bool)
            )
            parts.append(_slices(is_there.astype("u1").tobytes(), counts))
            _encode(content, layout.project() if layout.is_option else layout, _below(is_there, counts), parts)
        case RecordType(columns, _):
            for (_, each), content in zip(columns, contents_of(layout), strict=True):
                _encode(each, content, counts, parts)
        case RefType():
            _encode(REF_RECORD, layout, counts, parts)
        case NothingType():
            return  # Why: no element of it was seen, and so there are no bytes.


def _plain(layout: Any) -> Any:
    return layout.project() if layout.is_indexed and not layout.is_option else layout


def _slices(raw: bytes, sizes: npt.NDArray[Any]) -> list[bytes]:
    return [raw[begin:end] for begin, end in pairwise([0, *np.cumsum(sizes).tolist()])]


def _ends(lengths: npt.NDArray[Any]) -> Counts:
    found = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=found[1:])
    return found


def _below(lengths: npt.NDArray[Any], counts: Counts) -> Counts:
    """Return how many elements the lists of each product have together."""
    ends = np.cumsum(counts)
    sums = _ends(lengths)
    return np.asarray(sums[ends] - sums[ends - counts])


def decoded(kind: ColumnType, raws: Sequence[bytes], columns: Collection[str] | None = None) -> tuple[Counts, Any]:
    """Return the rows of products one after the other, and how many each has; of a record's columns only those named.

    Raises CorruptionError.
    """
    reader = _Reader(kind, raws)
    heads = np.frombuffer(reader.take(np.full(len(raws), _HEAD, np.int64)), "<u8")
    if len(heads) and heads.max() > _ROWS_MAX:
        raise reader.damaged("the count of rows is beyond all measure")
    counts = heads.astype(np.int64)
    if columns is None or not isinstance(kind, RecordType):
        found = _decode(kind, reader, counts)
    else:
        contents = [_decode(each, reader, counts, is_wanted=name in columns) for name, each in kind.columns]
        chosen = [name in columns for name, _ in kind.columns]
        named = [column for column, is_chosen in zip(kind.columns, chosen, strict=True) if is_chosen]
        kept = [content for content, is_chosen in zip(contents, chosen, strict=True) if is_chosen]
        found = _record(named, kept, int(counts.sum()), is_tuple=kind.is_tuple)
    reader.end()
    if _has_too_many_bare(raws, counts):
        raise reader.damaged("the count of rows is beyond all measure")
    return counts, ak.Array(found)


class _Reader:
    """The bytes of several products, each read from its begin to its end."""

    def __init__(self, kind: ColumnType, raws: Sequence[bytes]) -> None:
        self._kind = kind
        self._raw = raws[0] if len(raws) == 1 else b"".join(raws)
        self._end = np.cumsum(np.fromiter(map(len, raws), np.int64, len(raws)))
        self._at = np.concatenate([self._end[:0], np.zeros(min(1, len(raws)), np.int64), self._end[:-1]])

    def take(self, counts: Counts, size: int = 1, *, is_wanted: bool = True) -> bytes:
        """Return the next elements of each product, of so many bytes each, joined."""
        # Why a quotient: a count of damaged bytes times a size may go beyond any number.
        if size and np.any(counts > (self._end - self._at) // size):
            raise self.damaged("it ends within a column")
        begin = self._at
        end = self._at = begin + counts * size
        if not is_wanted:
            return b""
        raw = self._raw
        if len(begin) == 1:
            return raw[int(begin[0]) : int(end[0])]
        return b"".join([raw[first:last] for first, last in zip(begin.tolist(), end.tolist(), strict=True)])

    def end(self) -> None:
        """Raise CorruptionError unless all bytes were read."""
        if np.any(self._at != self._end):
            raise self.damaged("bytes are left over behind its columns")

    def damaged(self, problem: str) -> CorruptionError:
        """Return the error for these bytes."""
        return CorruptionError(type=str(self._kind), problem=problem)


def _decode(kind: ColumnType, reader: _Reader, counts: Counts, *, is_wanted: bool = True) -> Any:
    """Read so many elements of each product; return awkward's content of all, or None when they are not wanted."""
    match kind:
        case NumberType(dtype):
            raw = reader.take(counts, dtype.itemsize, is_wanted=is_wanted)
            if dtype.kind == "b":
                _all_flags(reader, raw)
            return _leaf(np.frombuffer(raw, dtype)) if is_wanted else None
        case TextType(is_bytes):
            lengths = np.frombuffer(reader.take(counts, 4), "<u4")
            raw = reader.take(_below(lengths, counts), is_wanted=is_wanted)
            return _text(_ends(lengths), raw, is_bytes=is_bytes) if is_wanted else None
        case ListType(element):
            lengths = np.frombuffer(reader.take(counts, 4), "<u4")
            content = _decode(element, reader, _below(lengths, counts), is_wanted=is_wanted)
            return ak.contents.ListOffsetArray(ak.index.Index64(_ends(lengths)), content) if is_wanted else None
        case FixedType(element, size):
            if len(counts) and int(counts.max()) * size > _ROWS_MAX:
                raise reader.damaged("a count is beyond all measure")
            content = _decode(element, reader, counts * size, is_wanted=is_wanted)
            return ak.contents.RegularArray(content, size, int(counts.sum())) if is_wanted else None
        case OptionType(element):
            flags = reader.take(counts)
            _all_flags(reader, flags)
            is_there = np.frombuffer(flags, np.bool_)
            content = _decode(element, reader, _below(is_there, counts), is_wanted=is_wanted)
            return option_of(is_there, content) if is_wanted else None
        case RecordType(columns, is_tuple):
            contents = [_decode(each, reader, counts, is_wanted=is_wanted) for _, each in columns]
            return _record(columns, contents, int(counts.sum()), is_tuple=is_tuple) if is_wanted else None
        case RefType():
            record = _decode(REF_RECORD, reader, counts, is_wanted=is_wanted)
            return as_refs(record) if is_wanted else None
        case NothingType():
            if counts.any():
                raise reader.damaged("there are elements of a type that has none")
            return ak.contents.EmptyArray() if is_wanted else None


def _all_flags(reader: _Reader, raw: bytes) -> None:
    if len(raw) and np.frombuffer(raw, "u1").max() > 1:
        raise reader.damaged("a flag is neither 0 nor 1")


def _leaf(values: Any, parameters: Mapping[str, str] | None = None) -> Any:
    return ak.contents.NumpyArray(values, parameters=parameters)


def _text(offsets: Counts, raw: bytes, *, is_bytes: bool) -> Any:
    outer, inner = ("bytestring", "byte") if is_bytes else ("string", "char")
    content = _leaf(np.frombuffer(raw, "u1"), parameters={"__array__": inner})
    return ak.contents.ListOffsetArray(ak.index.Index64(offsets), content, parameters={"__array__": outer})


def option_of(is_there: npt.NDArray[np.bool_], content: Any) -> Any:
    """Return a content as an option, with nothing where there is none."""
    index = np.where(is_there, np.cumsum(is_there) - 1, -1).astype(np.int64)
    return ak.contents.IndexedOptionArray.simplified(ak.index.Index64(index), content)


def _record(columns: Sequence[tuple[str, ColumnType]], contents: list[Any], length: int, *, is_tuple: bool) -> Any:
    names = None if is_tuple else [name for name, _ in columns]
    return ak.contents.RecordArray(contents, names, length=length)
