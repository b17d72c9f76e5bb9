"""Arrays of awkward that collections are given as: lists, single values, and rows that are pointed at."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.event_lists import EventLists
from keyplan.apps.hepnos.table_filling import filled
from keyplan.apps.hepnos.table_values import from_rows, joined, list_or_nothing, rows_of_columns, type_of_rows

__all__ = [
    "as_masked",
    "at",
    "indexes",
    "joined_rows",
    "listed",
    "nothing",
    "numbers",
    "of_events",
    "pairs",
    "pointed",
    "ranges",
    "records",
    "single",
    "taken_or_missing",
]

Numbers = npt.NDArray[np.int64]


def listed(lists: EventLists, *, is_filled: bool = False) -> Any:
    """Return a list for each event, and nothing for events that have no product: no option where all have one.

    With `is_filled` such events have an empty list.
    """
    if is_filled or lists.is_there.all():
        content = ak.to_layout(from_rows(lists.rows))
        offsets: Any = lists.offsets
        return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), content))
    return list_or_nothing(lists.is_there, lists.offsets, lists.rows)


def single(lists: EventLists) -> Any:
    """Return the one row of each event, which each has at most."""
    content = ak.to_layout(from_rows(lists.rows))
    is_there = np.diff(lists.offsets) > 0
    if is_there.all():
        return ak.Array(content)
    index: Any = np.where(is_there, lists.offsets[:-1], -1)
    return ak.Array(ak.contents.IndexedOptionArray.simplified(ak.index.Index64(index), content))


def packed(array: Any) -> Any:
    """Return an array in the form that its type has whatever rows it was taken from: other packages go by forms."""
    return ak.to_packed(array)


def records(columns: Mapping[str, Any]) -> Any:
    """Return columns of one length as records."""
    return rows_of_columns(columns)


def of_events(columns: Mapping[str, Any]) -> Any:
    """Return arrays that have an entry for each event as one record for each event."""
    return ak.zip(dict(columns), depth_limit=1)


def as_masked(array: Any) -> Any:
    """Return an array as one of numpy, masked where it is nothing."""
    return ak.to_numpy(array, allow_missing=True)


def joined_rows(parts: Sequence[Any]) -> Any:
    """Return rows one after the other."""
    arrays = [from_rows(part) for part in parts]
    return arrays[0] if len(arrays) == 1 else ak.concatenate(arrays)


def nothing() -> Any:
    """Return rows of which there are none."""
    return ak.Array(ak.contents.EmptyArray())


def at(rows: Any, name: str) -> Any:
    """Return a field of rows, through lists and options."""
    return from_rows(rows)[name]


def indexes(rows: Any, events: Numbers, find: Callable[..., Numbers], *others: Any) -> Any:
    """Return rows of whole numbers, which may be in lists, as what `find` makes of them.

    It is given the number of the event of each and the numbers, then those of `others`, which are rows of the same form.
    """
    every: Any = None  # Why Any: awkward takes None for all axes, and its hint has whole numbers alone.
    # Why filled: an index that is nothing points nowhere. Why lists of any size: to those of one, events spread as columns.
    packed = [
        ak.to_packed(ak.fill_none(ak.from_regular(from_rows(each), axis=every), -1, axis=-1))
        for each in (rows, *others)
    ]
    own, *more = packed
    found: Any = find(*(_flat(each) for each in (ak.broadcast_arrays(events, own)[0], own, *more)))
    return _with_leaves(own, lambda leaves: ak.contents.NumpyArray(found[: len(leaves)]))


def numbers(rows: Any, nothing: int) -> Numbers:
    """Return rows of whole numbers as an array of numpy, with a number for those that are nothing."""
    return np.asarray(ak.to_numpy(ak.fill_none(from_rows(rows), nothing))).astype(np.int64)


def pairs(columns: Sequence[Numbers]) -> Any:
    """Return columns of indexes as a list for each row."""
    size = len(columns)
    flat: Any = np.stack(columns, axis=1).reshape(-1)
    offsets = ak.index.Index64(np.arange(0, len(flat) + 1, size))
    return ak.Array(ak.contents.ListOffsetArray(offsets, ak.contents.NumpyArray(flat)))


def ranges(begins: Numbers, counts: Numbers) -> Any:
    """Return for each row the indexes from its begin on, as many as its count."""
    offsets: Any = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    flat: Any = np.repeat(begins - offsets[:-1], counts) + np.arange(int(offsets[-1]))
    return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), ak.contents.NumpyArray(flat)))


def pointed(indexes: Any, rows: Any, *, may_lack: bool = True) -> Any:
    """Return the rows at indexes, which may be in lists; nothing where one is less than 0, if any may be."""
    content = ak.to_layout(from_rows(rows))

    def taken(index: npt.NDArray[Any]) -> Any:
        raw: Any = index.astype(np.int64)
        numbers = ak.index.Index64(raw)
        if may_lack:
            return ak.contents.IndexedOptionArray.simplified(numbers, content)
        return ak.contents.IndexedArray.simplified(numbers, content)

    return _with_leaves(from_rows(indexes), taken)


def taken_or_missing(source: str, name: str, value: Any, rows: Any, index: Numbers) -> Any:
    """Return the rows at an index, and where that is -1 a value, or nothing for None. Raises InvalidInputError for no value."""
    content = from_rows(rows)
    if value is None:
        numbers: Any = ak.index.Index64(index)
        return ak.Array(ak.contents.IndexedOptionArray.simplified(numbers, ak.to_layout(content)))
    kind = type_of_rows(content)
    whole = joined([content, filled(source, name, kind, value, 1)], kind)
    return whole[np.where(index < 0, len(content), index)]


def _flat(rows: Any) -> npt.NDArray[Any]:
    whole: Any = None  # Why so: awkward says that it is a number.
    flat = ak.flatten(rows, axis=whole)
    return np.asarray(ak.to_numpy(flat)).astype(np.int64)


def _with_leaves(rows: Any, make: Callable[[npt.NDArray[Any]], Any]) -> Any:
    """Return rows with what is made of their numbers in place of them."""

    def replaced(layout: Any, **_: Any) -> Any:
        if layout.is_unknown:
            return make(np.zeros(0, np.int64))
        return make(layout.data) if layout.is_numpy else None

    return ak.transform(replaced, rows)
