"""The rows of a table aligned with given events: which of them have a product, and where each one's rows begin and end."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.columns import EVENT_COLUMNS
from keyplan.apps.hepnos.tables import Table, taken

__all__ = ["EventLists", "event_lists"]


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
