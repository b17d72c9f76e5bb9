"""An event has its rows of a table in one version: what is done where it has them in another already."""

from collections.abc import Iterator, Sequence

from keyplan.apps.hepnos.bulk import EventProducts, load_event_products
from keyplan.apps.hepnos.columns import EVENT_COLUMNS, key_numbers
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.keys import Kind, product_suffix
from keyplan.apps.hepnos.product_types import RowsType
from keyplan.apps.hepnos.table_notes import other_versions
from keyplan.errors import InvalidInputError

__all__ = ["refuse_other_versions", "remove_other_versions"]


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


def remove_other_versions(dataset: DataSetRef, tables: Sequence[EventProducts], *, name: str | None = None) -> None:
    """Remove what the events have of the tables in other versions than these."""
    keys = [item + product_suffix(label, other.name) for label, other, item in _others(dataset, tables, name)]
    dataset.datastore.databases.remove_many(Kind.PRODUCT, keys)


def _others(
    dataset: DataSetRef, tables: Sequence[EventProducts], name: str | None
) -> Iterator[tuple[str, RowsType, bytes]]:
    by_label = {table.label: table for table in tables}
    for other in other_versions(dataset, {label: table.type for label, table in by_label.items()}, name=name):
        events = dict(zip(EVENT_COLUMNS.names or (), by_label[other.label].columns, strict=True))
        for item, _ in load_event_products(dataset, other.label, other.type, events):
            yield other.label, other.type, item
