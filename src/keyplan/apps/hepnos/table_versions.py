"""An event has its rows of a table in one version: what is done where it has them in another already."""

from collections.abc import Iterator

from keyplan.apps.hepnos.bulk import load_event_products
from keyplan.apps.hepnos.columns import EVENT_COLUMNS, Columns, key_numbers
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.keys import Kind, product_suffix
from keyplan.apps.hepnos.product_types import RowsType
from keyplan.apps.hepnos.table_notes import noted_tables
from keyplan.errors import InvalidInputError

__all__ = ["refuse_other_versions", "remove_other_versions"]


def refuse_other_versions(
    dataset: DataSetRef, source: str, label: str, table: str, kind: RowsType, columns: Columns
) -> None:
    """Raise InvalidInputError when one of the events has rows of the table in another version than this one.

    A loader asks before it writes, so that nothing is written beside other rows; and again after it, because another may have
    written meanwhile: of two loaders that meet at an event at least one sees the other.
    """
    for other, item in _others(dataset, label, table, kind, columns):
        run, subrun, event = key_numbers(item, EVENT_COLUMNS)[0].tolist()
        problem = f"event {run} {subrun} {event} has other rows of {label} already, in the version {other.name}"
        raise InvalidInputError(source=source, problem=problem)


def remove_other_versions(dataset: DataSetRef, label: str, table: str, kind: RowsType, columns: Columns) -> None:
    """Remove what the events have of the table in other versions than this one."""
    for other, item in _others(dataset, label, table, kind, columns):
        dataset.datastore.remove(Kind.PRODUCT, item + product_suffix(label, other.name))


def _others(
    dataset: DataSetRef, label: str, table: str, kind: RowsType, columns: Columns
) -> Iterator[tuple[RowsType, bytes]]:
    events = dict(zip(EVENT_COLUMNS.names or (), columns, strict=True))
    for other in noted_tables(dataset, label):
        if other.name == table and other.type.name != kind.name:
            for item, _ in load_event_products(dataset, label, other.type, events):
                yield other.type, item
