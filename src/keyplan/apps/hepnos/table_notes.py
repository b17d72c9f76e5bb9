"""The tables that loaders write: which labels and types a data set has, kept with it, so that others can read what was loaded.

A table's type says its columns, `vector<struct{pt:float32,eta:float32}>`. Where that is too long for a key, or several tables
share a label, it is the table's name and a digest of the columns, `vector<rec_slc@5d2a91c0>`; the columns then stand in the
note on the data set alone: a JSON product labelled `table/LABEL/DIGEST`.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from keyplan.apps.hepnos.errors import MissingError
from keyplan.apps.hepnos.types import ProductType, VectorType, product_type, vector
from keyplan.errors import CorruptionError, InvalidInputError

if TYPE_CHECKING:  # Why: a table is one of a data set, whose module imports those that store tables.
    from keyplan.apps.hepnos.datasets import DataSet

__all__ = ["StoredTable", "note_table", "table_named", "table_type", "tables"]

_NOTE: Final = "table/"
_NAME_BYTES_MAX: Final = 255
"""Why: a key of LMDB has 511 bytes, 40 of which say whose product it is; the label needs some."""
_FORBIDDEN: Final = frozenset("#<>{},:")


class StoredTable(NamedTuple):
    """A table of a data set: load it with `dataset.load_table(label, type)`, preload it as `(label, type)`."""

    label: str
    type: ProductType
    columns: tuple[str, ...]


class _Note(msgspec.Struct):
    label: str
    type: str
    dtype: str | list[tuple[str, str]]


def table_type(name: str, dtype: np.dtype[Any], *, is_named: bool = False) -> VectorType:
    """Return the type of a table's products. Raises InvalidInputError for the names of columns that no type can hold."""
    for column in dtype.names or ():
        if not column or _FORBIDDEN & set(column):
            raise InvalidInputError(source=name, problem=f"the name of column {column!r} cannot be part of a type's")
    spelled = vector(dtype)
    assert isinstance(spelled, VectorType)
    if not is_named and len(spelled.name.encode()) <= _NAME_BYTES_MAX:
        return spelled
    return VectorType(f"vector<{name}@{_digest(spelled.name)}>", spelled.dtype)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()


def note_table(dataset: "DataSet", label: str, kind: VectorType) -> None:
    """Keep with the data set that it has a table. The same again changes nothing."""
    fields: Any = kind.dtype.fields or {}
    columns = [(name, fields[name][0].name) for name in kind.dtype.names or ()]
    note = _Note(label, kind.name, columns or kind.dtype.name)
    dataset.store(f"{_NOTE}{label}/{_digest(kind.name)}", msgspec.to_builtins(note), type=dict, mode="new")


def tables(dataset: "DataSet") -> tuple[StoredTable, ...]:
    """Return the tables that loaders wrote into a data set, by label."""
    return tuple(_noted(dataset.datastore.load_product(each)) for each in dataset.products(_NOTE, is_prefix=True))


def table_named(dataset: "DataSet", label: str) -> StoredTable:
    """Return the one table of a label. Raises MissingError; InvalidInputError when files with other columns made several."""
    found = [table for table in tables(dataset) if table.label == label]
    if not found:
        raise MissingError(table="tables", key=f"{dataset.path} {label}")
    if len(found) > 1:
        types = ", ".join(table.type.name for table in found)
        raise InvalidInputError(source=label, problem=f"there are several tables of this label: {types}")
    return found[0]


def _noted(value: object) -> StoredTable:
    try:
        note = msgspec.convert(value, _Note)
        dtype = np.dtype(note.dtype).newbyteorder("<")
    except (msgspec.ValidationError, TypeError) as error:
        raise CorruptionError(problem="the note of a table cannot be read") from error
    kind = product_type(VectorType(note.type, dtype))
    return StoredTable(note.label, kind, dtype.names or (note.label,))
