"""An event has its rows of a table in one version: what is done where it has them in another already."""

from collections.abc import Iterator, Sequence
from typing import Final

from keyplan.apps.hepnos.bulk import OPERATION_KEYS, EventProducts, load_event_products, store_event_products
from keyplan.apps.hepnos.columns import EVENT_COLUMNS, key_numbers
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.keys import Kind, product_suffix
from keyplan.apps.hepnos.product_types import RowsType
from keyplan.apps.hepnos.table_notes import other_versions
from keyplan.errors import InvalidInputError

__all__ = ["refuse_other_versions", "replace_versions"]

_TRIES_MAX: Final = 100
"""Why so many: each is one that another loader came between, and of two one ends as a rule before the third."""
_LOOKED_AT_ONCE: Final = 1_000
"""Products whose values are in memory to see that they are there."""


def refuse_other_versions(
    dataset: DataSetRef, source: str, tables: Sequence[EventProducts], *, name: str | None = None
) -> None:
    """Raise InvalidInputError when an event has rows of one of the tables in another version than this one.

    A loader asks before it writes, so that nothing is written beside other rows; and again after it, because another may have
    written meanwhile: of two loaders that meet at an event at least one sees the other. `name` is that of a table which shares
    its label with others.
    """
    for label, other, item in _others(dataset, tables, name):
        run, subrun, event = key_numbers(item, EVENT_COLUMNS)[0].tolist()
        problem = f"event {run} {subrun} {event} has other rows of {label} already, in the version {other.name}"
        raise InvalidInputError(source=source, problem=problem)


def replace_versions(
    dataset: DataSetRef,
    tables: Sequence[EventProducts],
    *,
    name: str | None = None,
    operation_keys: int = OPERATION_KEYS,
) -> None:
    """Store products of tables in the place of what their events have of these, in whatever version.

    Of two that replace the same events in two versions, each may remove what the other has written. Who has removed something
    therefore looks whether its own is there, and writes it again where it is not: the events are left with rows. Raises
    InvalidInputError where others come between again and again.
    """
    own = {table.label: table.type for table in tables}
    for _ in range(_TRIES_MAX):
        store_event_products(dataset, tables, operation_keys=operation_keys)
        others = [(label, own[label].name, other.name, item) for label, other, item in _others(dataset, tables, name)]
        removed = [item + product_suffix(label, other) for label, _, other, item in others]
        dataset.datastore.databases.remove_many(Kind.PRODUCT, removed)
        if _are_there(dataset, [item + product_suffix(label, version) for label, version, _, item in others]):
            return
    problem = "others replace the same events at the same time: load one after the other"
    raise InvalidInputError(source=", ".join(own), problem=problem)


def _are_there(dataset: DataSetRef, keys: Sequence[bytes]) -> bool:
    databases = dataset.datastore.databases
    for database, own in databases.shares(Kind.PRODUCT, keys).items():
        with databases.snapshot(Kind.PRODUCT, database) as snapshot:
            for begin in range(0, len(own), _LOOKED_AT_ONCE):
                if None in snapshot.values(own[begin : begin + _LOOKED_AT_ONCE]):
                    return False
    return True


def _others(
    dataset: DataSetRef, tables: Sequence[EventProducts], name: str | None
) -> Iterator[tuple[str, RowsType, bytes]]:
    by_label = {table.label: table for table in tables}
    for other in other_versions(dataset, {label: table.type for label, table in by_label.items()}, name=name):
        events = dict(zip(EVENT_COLUMNS.names or (), by_label[other.label].columns, strict=True))
        for item, _ in load_event_products(dataset, other.label, other.type, events):
            yield other.label, other.type, item
