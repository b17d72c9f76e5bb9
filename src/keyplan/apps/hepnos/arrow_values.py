"""Rows of tables as arrays of Arrow, for Parquet, and back.

A complex number is a record of `real` and `imag`, a reference one of `raw` and `index`: Arrow has neither. NaT is null. What is
in a record that may be nothing may be null, too: it is where the record is. The type of a row stands in the metadata of its
field, so that what Arrow has no type for comes back as it was.
"""

from typing import Any, Final

import awkward as ak
import numpy as np
import pyarrow as pa

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
    column_type,
    without_fixed_text,
)
from keyplan.apps.hepnos.errors import TypeMismatchError
from keyplan.apps.hepnos.ref_values import as_refs
from keyplan.apps.hepnos.table_values import contents_of, from_arrow, from_rows, option_of

__all__ = ["arrow_content", "arrow_item", "arrow_lists", "is_noted_single", "noted_row", "restored_lists"]

_ROW: Final = "keyplan.row"
_SINGLE: Final = "keyplan.single"


def arrow_item(kind: ColumnType, name: str = "item", *, is_optional: bool = False) -> Any:
    """Return the field of Arrow that holds values of a type; `is_optional`: null where the record around it is nothing."""
    found = _arrow_type(kind, is_optional=is_optional)
    is_nullable = is_optional or isinstance(kind, OptionType | NothingType) or pa.types.is_temporal(found)
    return pa.field(name, found, nullable=is_nullable)


def _arrow_type(kind: ColumnType, *, is_optional: bool = False) -> Any:
    match kind:
        case NumberType(dtype) if dtype.kind == "c":
            part = pa.from_numpy_dtype(np.dtype(f"f{dtype.itemsize // 2}"))
            return pa.struct([pa.field(each, part, nullable=is_optional) for each in ("real", "imag")])
        case NumberType(dtype) if dtype.kind in "SU":
            return pa.large_binary() if dtype.kind == "S" else pa.large_string()
        case NumberType(dtype) if dtype.kind in "mM":
            return _time_type(dtype)
        case NumberType(dtype):
            if dtype.itemsize > 8:
                raise TypeMismatchError(type=dtype.name, problem="Parquet has no such numbers: exclude the column")
            return pa.from_numpy_dtype(dtype)
        case TextType(is_bytes):
            return pa.large_binary() if is_bytes else pa.large_string()
        case FixedType(content, size) if size:
            return pa.list_(arrow_item(content, is_optional=is_optional), size)
        # Trap: pyarrow ends the process at lists of the size 0.
        case ListType(content) | FixedType(content, _):
            return pa.large_list(arrow_item(content))
        case RecordType(columns, _):
            return pa.struct([arrow_item(each, name, is_optional=is_optional) for name, each in columns])
        case RefType() | OptionType():
            content = REF_RECORD if isinstance(kind, RefType) else kind.content
            return _arrow_type(content, is_optional=is_optional or isinstance(kind, OptionType))
        case NothingType():
            return pa.null()


def _time_type(dtype: np.dtype[Any]) -> Any:
    unit, count = np.datetime_data(dtype)
    if count == 1 and unit == "D" and dtype.kind == "M":
        return pa.date32()
    # Why else: Arrow has no other units, and a wider one may not hold what these do.
    exact = unit if count == 1 and unit in {"s", "ms", "us", "ns"} else None
    if exact is None:
        return pa.int64()
    return pa.timestamp(exact) if dtype.kind == "M" else pa.duration(exact)


def arrow_lists(name: str, row: ColumnType, *, is_single: bool) -> Any:
    """Return the field of a table's rows, a list for each event, which says what a row is."""
    metadata = {_ROW: str(row)} | ({_SINGLE: "true"} if is_single else {})
    return pa.field(name, pa.large_list(arrow_item(row)), metadata=metadata)


def noted_row(field: Any) -> ColumnType | None:
    """Return the type of a row that a field's metadata says, as it comes back; None where it says none, or another's."""
    noted = (field.metadata or {}).get(_ROW.encode())
    row = None if noted is None else column_type(noted.decode(errors="replace"))
    # Why compared: a program may have kept the metadata, and changed the column.
    is_own = row is not None and field.type.equals(pa.large_list(arrow_item(row)))
    return without_fixed_text(row) if row is not None and is_own else None


def is_noted_single(field: Any) -> bool:
    """Tell whether a field's metadata says that an event has one row of it."""
    return _SINGLE.encode() in (field.metadata or {})


def restored_lists(column: Any, row: ColumnType) -> Any:
    """Return a column that `arrow_content` made as lists of rows. Raises ValueError for what it did not make."""
    layout = ak.to_layout(from_arrow(column))
    lists = ListType(row)
    return ak.Array(_restored(layout, OptionType(lists) if layout.is_option else lists))


def _restored(layout: Any, kind: ColumnType) -> Any:
    if layout.is_indexed and not layout.is_option:
        layout = layout.project()
    if isinstance(kind, OptionType):
        if not layout.is_option:
            return _restored(layout, kind.content)
        return option_of(np.asarray(layout.mask_as_bool(valid_when=True)), _restored(layout.project(), kind.content))
    match kind:
        case NumberType(dtype) if dtype.kind in "mM":
            return _times(layout, dtype)
        case _ if layout.is_option:
            raise ValueError("something is null that was not")
        case NumberType(dtype) if dtype.kind == "c":
            real, imag = (np.asarray(part.data) for part in contents_of(layout))
            values: Any = np.empty(len(layout), dtype)
            values.real, values.imag = real, imag
            return ak.contents.NumpyArray(values)
        case ListType(content):
            lists = layout.to_ListOffsetArray64(start_at_zero=True)
            inner = lists.content[: int(lists.offsets[-1])]
            return ak.contents.ListOffsetArray(lists.offsets, _restored(inner, content))
        case FixedType(content, size):
            inner = layout.content[: len(layout) * size]
            return ak.contents.RegularArray(_restored(inner, content), size, len(layout))
        case RecordType(columns, is_tuple):
            contents = [_restored(each, own) for each, (_, own) in zip(contents_of(layout), columns, strict=True)]
            names = None if is_tuple else [name for name, _ in columns]
            return ak.contents.RecordArray(contents, names, length=len(layout))
        case RefType():
            return as_refs(_restored(layout, REF_RECORD))
        case _:
            return layout


def _times(layout: Any, dtype: np.dtype[Any]) -> Any:
    is_there = np.asarray(layout.mask_as_bool(valid_when=True)) if layout.is_option else np.ones(len(layout), np.bool_)
    values = np.asarray((layout.project() if layout.is_option else layout).data)
    found: Any = np.full(len(layout), "NaT", dtype)
    found[is_there] = values.view(dtype) if values.dtype.kind == "i" else values.astype(dtype)
    return ak.contents.NumpyArray(found)


def arrow_content(rows: Any, kind: ColumnType) -> Any:
    """Return rows of numpy or of awkward as an array of Arrow of the type's field."""
    return _array(ak.to_layout(from_rows(rows)), kind)


def _array(layout: Any, kind: ColumnType, *, is_optional: bool = False) -> Any:
    if isinstance(kind, OptionType):
        return _optional(layout, kind)
    if layout.is_indexed:
        layout = layout.project()
    match kind:
        case NumberType(dtype) if dtype.kind not in "SU":
            return _numbers(np.asarray(layout.data), dtype, is_optional=is_optional)
        case NumberType() | TextType():
            lists = layout.to_ListOffsetArray64(start_at_zero=True)
            raw = np.ascontiguousarray(lists.content.data)
            offsets = pa.py_buffer(np.ascontiguousarray(lists.offsets.data))
            return pa.Array.from_buffers(_arrow_type(kind), len(layout), [None, offsets, pa.py_buffer(raw)])
        case ListType(content):
            lists = layout.to_ListOffsetArray64(start_at_zero=True)
            offsets = np.asarray(lists.offsets.data)
            inner = _array(lists.content[: int(offsets[-1])], content)
            return pa.LargeListArray.from_arrays(pa.array(offsets), inner, type=_arrow_type(kind))
        case FixedType(content, size):
            whole = (layout.to_RegularArray() if layout.is_numpy else layout).content[: len(layout) * size]
            if not size:
                none = pa.array(np.zeros(len(layout) + 1, np.int64))
                return pa.LargeListArray.from_arrays(none, _array(whole, content), type=_arrow_type(kind))
            inner = _array(whole, content, is_optional=is_optional)
            return pa.FixedSizeListArray.from_arrays(inner, type=_arrow_type(kind, is_optional=is_optional))
        case RecordType(columns, _):
            contents = [
                _array(content, each, is_optional=is_optional)
                for (_, each), content in zip(columns, contents_of(layout), strict=True)
            ]
            if not contents:
                return pa.array([{}] * len(layout), pa.struct([]))
            return pa.StructArray.from_arrays(contents, fields=list(_arrow_type(kind, is_optional=is_optional)))
        case RefType():
            return _array(layout, REF_RECORD, is_optional=is_optional)
        case _:
            return pa.nulls(len(layout))


def _optional(layout: Any, kind: OptionType) -> Any:
    """Return what is there, taken by an index that is null where nothing is."""
    is_there = np.asarray(layout.mask_as_bool(valid_when=True)) if layout.is_option else np.ones(len(layout), np.bool_)
    present = _array(layout.project() if layout.is_option else layout, kind.content, is_optional=True)
    index = np.where(is_there, np.cumsum(is_there) - 1, 0)
    return present.take(pa.array(index, mask=~is_there))


def _numbers(values: Any, dtype: np.dtype[Any], *, is_optional: bool) -> Any:
    if dtype.kind == "c":
        parts = [pa.array(np.ascontiguousarray(part)) for part in (values.real, values.imag)]
        fields = list(_arrow_type(NumberType(dtype), is_optional=is_optional))
        return pa.StructArray.from_arrays(parts, fields=fields)
    kind = _arrow_type(NumberType(dtype))
    if pa.types.is_int64(kind) and dtype.kind in "mM":
        values = np.ascontiguousarray(values).view("i8")
    # Trap: pyarrow cuts days to 32 bits.
    elif pa.types.is_date32(kind) and np.any(np.abs(values[~np.isnat(values)].view("i8")) > np.iinfo(np.int32).max):
        raise TypeMismatchError(type="date32", problem="a day is more than 2**31 days from 1970; exclude its column")
    return pa.array(values, kind)
