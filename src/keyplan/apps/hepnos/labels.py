"""What is loaded by its label alone: the only product of a label, a table, or a collection, which is no table itself."""

from collections.abc import Sequence
from typing import Any

from keyplan.apps.hepnos.access import ProductSource
from keyplan.apps.hepnos.collection import Collections
from keyplan.apps.hepnos.columns import EVENT_COLUMNS, key_numbers
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.errors import MissingError, TypeMismatchError
from keyplan.apps.hepnos.event_set import EventSet
from keyplan.apps.hepnos.numbered import Event
from keyplan.apps.hepnos.product_types import ProductType, RowsType
from keyplan.apps.hepnos.products import Container
from keyplan.apps.hepnos.table_notes import noted_tables
from keyplan.apps.hepnos.tables import Table, TableRows, Tables
from keyplan.apps.hepnos.types import product_type, type_named
from keyplan.errors import InvalidInputError

__all__ = ["load_by_label", "load_table"]


def load_table(
    dataset: DataSetRef,
    label: str,
    type: Any = None,  # noqa: A002  # Why: the word of the document.
    *,
    events: Any = None,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    missing: Any = "null",
) -> TableRows:
    """Load a table by its label, as `Table.load` does; with a type, the rows of all events that are stored as that type.

    A label that no table has may be the name of a collection, as Muons of PHYSLITE, whose columns are tables of their own.
    """
    if type is not None:
        return Table(dataset, label, label, [_rows_type(label, type)]).load(columns, exclude, missing, events=events)
    try:
        table = Tables(dataset)[label]
    except MissingError:
        collections = Collections(dataset, EventSet(dataset).to_numpy() if events is None else events)
        if label not in collections:
            raise
        return collections[label].rows(columns, exclude, missing)
    return table.load(columns, exclude, missing, events=events)


def _rows_type(label: str, given: Any) -> RowsType:
    kind = product_type(given)
    if not isinstance(kind, RowsType):
        raise InvalidInputError(source=label, problem=f"a table is of rows, not of {kind.name}")
    return kind


def load_by_label(dataset: DataSetRef, container: Container, label: str, source: ProductSource | None) -> Any:
    """Return the only product of a label, or the rows of an event in the collection of that name; None for neither.

    Raises InvalidInputError, which names the types, when there are several products.
    """
    names = [product.type for product in container.products(label)]
    if len(names) > 1:
        problem = f"{container.path} has products of several types with this label: name one of {', '.join(names)}"
        raise InvalidInputError(source=label, problem=problem)
    if names:
        return container.load(label, _type(dataset, label, names[0]), source=source)
    if not isinstance(container, Event):
        return None
    collections = Collections(dataset, key_numbers(container.item, EVENT_COLUMNS))
    return collections[label].array()[0] if label in collections else None


def _type(dataset: DataSetRef, label: str, name: str) -> ProductType:
    """Return the type of a name, which may be that of a table whose columns stand in its note."""
    try:
        return type_named(name)
    except TypeMismatchError:
        for noted in noted_tables(dataset, label):
            if noted.type.name == name:
                return noted.type
        raise
