"""What stands for a column that a version of a table lacks, where a program gives a value for it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.column_types import ColumnType, OptionType, packed_dtype
from keyplan.apps.hepnos.product_types import values_module
from keyplan.errors import InvalidInputError

__all__ = ["filled"]


def filled(source: str, name: str, kind: ColumnType, value: Any, length: int) -> Any:
    """Return a value for each row. Raises InvalidInputError for one that the column's type does not hold."""
    held = kind.content if isinstance(kind, OptionType) else kind
    dtype = packed_dtype(held)
    whole: Any = None
    try:
        if value is not None and dtype is not None:
            one = _one(value, dtype)
            whole = None if one is None else np.broadcast_to(one, (length, *dtype.shape)).copy()
        elif value is not None:
            one = values_module().cast(values_module().from_objects([value]), held)
            whole = one[np.zeros(length, np.int64)]
    except (TypeError, ValueError, OverflowError):  # A TypeMismatchError is a TypeError, too.
        whole = None
    if whole is None:
        problem = (
            f"{value!r} is no value of column {name}, which is {held}: give one of its own in a dict, or missing='null'"
        )
        raise InvalidInputError(source=source, problem=problem)
    return whole if held is kind else values_module().cast(values_module().from_rows(whole), kind)


def _one(value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
    """Return a value as one of a numpy type, None when it would be another value."""
    if dtype.names is None:
        return _as_dtype(np.asarray(value), dtype)
    if not isinstance(value, Mapping) or set(value) != set(dtype.names):
        return None
    fields: Any = dtype.fields
    found = np.empty((), dtype)
    for name in dtype.names:
        one = _one(value[name], fields[name][0])
        if one is None:
            return None
        found[name] = one
    return found


def _as_dtype(value: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
    if dtype.base.names is not None or value.dtype.kind == "O" or value.shape not in {(), dtype.shape}:
        return None
    # Why: to numpy 0 is no seconds.
    if (value.dtype.kind in "mM") != (dtype.base.kind in "mM"):
        return None
    with np.errstate(all="ignore"):
        found = value.astype(dtype.base)
    # Why asked for: nothing but these has a value that is not equal to itself, and numpy compares no others so.
    has_nan = value.dtype.kind in "fcmM" and dtype.base.kind in "fcmM"
    return found if np.array_equal(found, value, equal_nan=has_nan) else None
