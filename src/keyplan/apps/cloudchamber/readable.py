"""Lists that one damaged record does not end: what can be read, and the keys of what cannot.

`keyplan check` names the damaged ones too, and why they cannot be read.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from keyplan.apps.cloudchamber.layout import CloudChamber
from keyplan.errors import CorruptionError
from keyplan.layout import TableView

__all__ = ["Listed", "listed", "listed_of"]

_BATCH: Final = 512
"""Records read at once; halved around a damaged one until that stands alone."""


class Listed(NamedTuple):
    """The records of a list, and the keys whose records cannot be read, both by key."""

    records: list[tuple[Any, Any]]
    damaged: list[Any]


def listed(state: CloudChamber, table: str, *prefix: Any) -> Listed:
    """Return the records of a table whose first key fields equal `prefix`, as a snapshot sees them."""
    view: TableView[Any, Any] = state.view(table)
    try:
        return Listed(list(view.list(*prefix)), [])
    except CorruptionError:
        return listed_of(view, view.keys(*prefix))


def listed_of(view: TableView[Any, Any], keys: Iterable[Any]) -> Listed:
    """Return the records of these keys, in the order given; those that are gone are left out."""
    found, wanted = Listed([], []), list(keys)
    for start in range(0, len(wanted), _BATCH):
        _read(view, wanted[start : start + _BATCH], found)
    return found


def _read(view: TableView[Any, Any], keys: Sequence[Any], found: Listed) -> None:
    try:
        records = view.get_many(keys)
    except CorruptionError:
        if len(keys) == 1:
            found.damaged.append(keys[0])
            return
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
            _read(view, half, found)
        return
    found.records.extend((key, record) for key, record in zip(keys, records, strict=True) if record is not None)
