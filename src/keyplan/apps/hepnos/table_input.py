"""What programs hand over as a table, as rows: arrays and dicts of numpy, tables of awkward, pandas and Arrow, lists.

Rows of numbers, times and text of fixed sizes are an array of numpy; with anything else in them they are one of awkward.
"""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np

from keyplan.apps.hepnos.column_types import (
    ColumnType,
    FixedType,
    ListType,
    NumberType,
    OptionType,
    RecordType,
    packed_dtype,
    type_of_dtype,
    unpadded,
)
from keyplan.apps.hepnos.errors import TypeMismatchError
from keyplan.apps.hepnos.product_types import is_of_package, values_module
from keyplan.errors import InvalidInputError

__all__ = ["rows_of"]


def rows_of(table: Any) -> tuple[Any, ColumnType]:
    """Return the rows of a table, and the type of a row. Raises InvalidInputError, TypeMismatchError."""
    rows, kind = _rows_of(table)
    _refuse_long_doubles("", kind)
    return rows, kind


def _refuse_long_doubles(path: str, kind: ColumnType) -> None:
    match kind:
        case NumberType(dtype) if dtype.itemsize > {"f": 8, "c": 16}.get(dtype.kind, dtype.itemsize):
            problem = "its bytes differ from machine to machine: convert it to float64"
            raise TypeMismatchError(type=str(kind), problem=problem, **({"column": path} if path else {}))
        case ListType(content) | FixedType(content, _) | OptionType(content):
            _refuse_long_doubles(path, content)
        case RecordType(columns, _):
            for name, each in columns:
                _refuse_long_doubles(f"{path}.{name}" if path else name, each)
        case _:
            return


def _rows_of(table: Any) -> tuple[Any, ColumnType]:
    if is_of_package(table, "awkward"):
        return _of_awkward(table)
    if is_of_package(table, "pandas") and hasattr(table, "columns"):
        table = {str(name): table[name] for name in table.columns}
    elif hasattr(table, "column_names"):  # Arrow
        table = {name: table.column(name) for name in table.column_names}
    elif isinstance(table, np.ndarray) and table.dtype.names is not None:
        if not table.dtype.hasobject:
            return _of_numpy(table)
        table = {name: table[name] for name in table.dtype.names}
    if isinstance(table, Mapping):
        return _of_columns({name: _column(name, values) for name, values in table.items()})
    column = _column("", table)
    return _of_awkward(column) if is_of_package(column, "awkward") else _of_numpy(column)


def _of_numpy(rows: Any) -> tuple[Any, ColumnType]:
    if rows.ndim != 1:
        raise InvalidInputError(source="table", problem=f"a table has one dimension, not {rows.ndim}")
    rows = rows.astype(unpadded(rows.dtype).newbyteorder("<"), copy=False)
    return rows, type_of_dtype(rows.dtype)


def _of_awkward(rows: Any) -> tuple[Any, ColumnType]:
    values = values_module()
    if not hasattr(rows, "layout") or not hasattr(rows, "__len__") or not hasattr(rows, "ndim"):
        raise InvalidInputError(source="table", problem="one record is no table: give a list of one")
    kind = values.type_of_rows(rows)
    if packed_dtype(kind) is None or isinstance(kind, FixedType):
        return rows, kind
    return values.to_packed(rows, kind), kind


def _of_columns(columns: dict[str, Any]) -> tuple[Any, ColumnType]:
    if not columns or len({len(column) for column in columns.values()}) != 1:
        raise InvalidInputError(source="table", problem="columns of one length are needed")
    length = len(next(iter(columns.values())))
    if all(name and isinstance(column, np.ndarray) for name, column in columns.items()):
        rows = np.empty(
            length, [(name, each.dtype.newbyteorder("<"), each.shape[1:]) for name, each in columns.items()]
        )
        for name, column in columns.items():
            rows[name] = column
        return rows, type_of_dtype(rows.dtype)
    return _of_awkward(values_module().rows_of_columns(columns))


# ---- a column -----------------------------------------------------------------------------------------------------------


def _column(name: str, values: Any) -> Any:
    """Return a column as an array of numpy, or of awkward where that has no type for it."""
    try:
        if is_of_package(values, "pyarrow"):
            return _of_arrow(values)
        if is_of_package(values, "pandas"):
            values = _of_pandas(values)
        if is_of_package(values, "awkward"):
            found, kind = _of_awkward(values_module().without_needless_options(values))
            return values_module().from_rows(found) if isinstance(kind, FixedType) else found
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
            return values_module().from_masked(values)
        if isinstance(values, np.ndarray):
            return np.asarray(values) if not values.dtype.hasobject else _of_objects(values.tolist())
        return _of_list(list(values))
    except TypeMismatchError as error:
        raise TypeMismatchError(**{**error.facts, "column": name} if name else error.facts) from error
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        problem = f"column {name!r} is of what no column holds" if name else "it is of what no table holds"
        raise InvalidInputError(source="table", problem=problem) from error


def _of_arrow(column: Any) -> Any:
    values = values_module().from_arrow(column)
    found, kind = _of_awkward(values)
    return values if isinstance(kind, FixedType) else found


def _of_pandas(column: Any) -> Any:
    found = column.to_numpy() if isinstance(column.dtype, np.dtype) else None
    if found is not None and not found.dtype.hasobject:
        return found
    # Why in Python: pandas has several types for text and for what may be missing, and Arrow need not be there.
    return np.array([None if _is_missing(value) else value for value in column.tolist()] + [None], object)[:-1]


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in {"NAType", "NaTType"} or (isinstance(value, float) and isnan(value))


def _of_list(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if kinds <= {bool, int, float} and (len(kinds) == 1 or kinds == {int, float}):
        return np.array(values, np.uint64) if kinds == {int} and _is_beyond_int64(values) else np.array(values)
    if kinds and all(issubclass(kind, np.generic | np.ndarray) for kind in kinds):
        return np.asarray(values)
    return _of_objects(values)


def _is_beyond_int64(values: Sequence[int]) -> bool:
    return max(values) > np.iinfo(np.int64).max


def _of_objects(values: list[Any]) -> Any:
    return values_module().from_objects([_builtin(value) for value in values])


def _builtin(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _builtin(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_builtin(each) for each in value]
    return tuple(map(_builtin, value)) if isinstance(value, tuple) else value
