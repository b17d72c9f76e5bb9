"""Which events a slice, a mask or positions choose."""

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.product_types import is_of_package, values_module
from keyplan.errors import InvalidInputError

__all__ = ["arrays_module", "chosen_events"]


def arrays_module() -> Any:
    """Return the module that makes arrays of awkward. Raises InvalidInputError where awkward is not installed."""
    values_module()
    return import_module("keyplan.apps.hepnos.collection_values")


def chosen_events(events: npt.NDArray[Any], key: Any) -> npt.NDArray[Any]:
    """Return the events that a slice, a mask or positions choose; what is nothing in a mask chooses none.

    Raises InvalidInputError for what is none of these, IndexError for positions that there are not.
    """
    if isinstance(key, slice):
        return events[key]
    given = _one_for_each(key)
    if given.dtype.kind != "b" and np.ma.is_masked(given):
        raise InvalidInputError(
            source="events", problem="some of the positions are nothing: choose by a mask, or drop them"
        )
    found: npt.NDArray[Any] = np.asarray(np.ma.filled(given, fill_value=False) if given.dtype.kind == "b" else given)
    if found.dtype.kind not in "biu" and found.size:
        raise InvalidInputError(source="events", problem=f"{found.dtype} are no positions of events, and no mask")
    own: npt.NDArray[Any] = events[found if found.size or found.dtype.kind == "b" else found.astype(np.int64)]
    return own


def _one_for_each(key: Any) -> "np.ma.MaskedArray[Any, np.dtype[Any]]":
    """Return a mask or positions as an array of one dimension. Raises InvalidInputError."""
    parts = key if isinstance(key, list) else []
    has_parts = any(hasattr(each, "__len__") and not isinstance(each, str) for each in parts)
    if not has_parts and not isinstance(key, tuple) and getattr(key, "ndim", 1) == 1:
        # Why by awkward: to numpy what is masked has a value all the same, and None in a list makes it objects.
        is_theirs = is_of_package(key, "awkward") or any(each is None for each in parts)
        given = np.ma.asarray(arrays_module().as_masked(key) if is_theirs else key)
        if given.ndim == 1:
            return given
    problem = "events are chosen by a slice, a mask or positions; rows are chosen in the array of a column"
    raise InvalidInputError(source="events", problem=problem)
