"""The rows of a table aligned with given events: which of them have a product, and where each one's rows begin and end."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.columns import EVENT_COLUMNS
from keyplan.apps.hepnos.tables import Table, taken

__all__ = ["EventLists", "aligned", "event_lists", "unequal_event"]


class EventLists(NamedTuple):
    """Event i, in the order given, has rows offsets[i] to offsets[i + 1]; it has a product where `is_there`."""

    is_there: npt.NDArray[np.bool_]
    offsets: npt.NDArray[np.int64]
    rows: Any


def event_lists(
    table: Table,
    events: npt.NDArray[Any],
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    missing: Any = "null",
) -> EventLists:
    """Return the rows of events in an array of EVENT_COLUMNS, in their order, which may have one several times.

    All else as of `Table.load`.
    """
    found = table.load(columns, exclude, missing, events=events)
    own_order = np.lexsort([events[name] for name in reversed(EVENT_COLUMNS.names or ())])
    ordered = events[own_order]
    is_found = _is_among(ordered, found.events)
    # Why counted: an array of events may have one several times.
    is_first = np.concatenate([np.ones(min(1, len(ordered)), bool), ordered[1:] != ordered[:-1]])
    position = np.full(len(events), -1, np.int64)
    position[own_order[is_found]] = (np.cumsum(is_first & is_found) - 1)[is_found]
    is_there = position >= 0
    offsets, rows = taken(found.offsets, found.rows, position[is_there])
    counts = np.zeros(len(events), np.int64)
    counts[is_there] = np.diff(offsets)
    return EventLists(is_there, np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), rows)


def _is_among(events: npt.NDArray[Any], found: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Tell which of the sorted events are among others that are sorted and all among them."""
    if len(found) == len(events):
        return np.ones(len(events), bool)
    return np.isin(events.view("V24").ravel(), found.view("V24").ravel())


# ---- columns of several tables ------------------------------------------------------------------------------------------


def unequal_event(lists: Sequence[EventLists]) -> tuple[int, int, int] | None:
    """Return two of the columns, and an event, where both have a product and other numbers of rows; None for none."""
    for at, each in enumerate(lists):
        for other in range(at):
            is_other = np.diff(each.offsets) != np.diff(lists[other].offsets)
            is_other &= each.is_there & lists[other].is_there
            if is_other.any():
                return other, at, int(is_other.argmax())
    return None


def aligned(
    lists: Sequence[EventLists], lacking: Sequence[Callable[[Any, npt.NDArray[np.int64]], Any]]
) -> list[EventLists]:
    """Return columns of the same events with as many rows each: in an event without a product of a column, rows of nothing.

    Of files of several years with a table for each column, one year has not all tables. `lacking[i]` returns rows of column i
    taken by an index, which is -1 for a row that is nothing. Nowhere may two columns that are there differ in length.
    """
    is_there = np.logical_or.reduce([each.is_there for each in lists])
    counts = np.maximum.reduce([np.diff(each.offsets) for each in lists])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    found: list[EventLists] = []
    for each, take in zip(lists, lacking, strict=True):
        is_own = np.repeat(each.is_there, counts)
        # Why not as soon as an event lacks it: one that has no rows at all lacks none.
        rows = each.rows if is_own.all() else take(each.rows, np.where(is_own, np.cumsum(is_own) - 1, -1))
        found.append(EventLists(is_there, offsets, rows))
    return found
