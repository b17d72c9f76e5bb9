"""The tables of a data set, noted with it: which labels there are, and in which versions, each a type of product.

A type's name says a table's columns, `vector<struct{pt:float32,eta:float32}>`. Where that is too long for a key, it is the
table's name and a digest of the columns, `vector<rec_slc@5d2a91c05d2a91c0>`; the columns then stand in the note alone. A note
is a JSON product of the data set, labelled `table/LABEL/DIGEST`, and is written before any product of its type. Other products
may have labels that begin so.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from keyplan.apps.hepnos.batch import WriteBatch
from keyplan.apps.hepnos.column_types import ColumnType, RecordType, column_type, type_of_dtype
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.errors import TypeMismatchError
from keyplan.apps.hepnos.keys import ITEM_BYTES
from keyplan.apps.hepnos.product_id import ProductID
from keyplan.apps.hepnos.product_types import RowsType, VectorType
from keyplan.apps.hepnos.types import rows_type
from keyplan.errors import CorruptionError, InvalidInputError

__all__ = [
    "NotedTable",
    "chosen_columns",
    "lacking_patterns",
    "note_id",
    "note_table",
    "note_tables",
    "noted_tables",
    "other_versions",
    "table_type",
]

_NOTE: Final = "table/"
_LABEL: Final = re.compile(r"table/(.*)/[0-9a-f]{16}", re.DOTALL)
_KEY_BYTES_MAX: Final = 511
"""Why a number here: LMDB's limit; a table has the same type on every engine."""
_NAME_BYTES_MAX: Final = 255
_SHORT_MAX: Final = 48
_NOT_SHORT: Final = re.compile(r"[^A-Za-z0-9_.]", re.ASCII)


class NotedTable(NamedTuple):
    """A version of a table: `name` is its label as a rule; of several tables that share a label each has its own."""

    label: str
    name: str
    type: RowsType
    is_single: bool
    """Whether an event has one row of it: the single values of a file."""


class _Note(msgspec.Struct, omit_defaults=True):
    label: str
    table: str
    type: str
    row: str
    padded: Any = None
    """Of a C++ struct with padding, its fields and gaps, as numpy describes them."""
    single: bool = False
    """Whether an event has one row of it."""
    check: str = ""
    """The digest of all else. Why: a damaged name or type would be one of other products, and rows would be missing."""


def table_type(label: str, row: ColumnType, *, name: str | None = None) -> RowsType:
    """Return the type of a table's products; with a `name`, that of one of several tables that share the label.

    Raises InvalidInputError for a column without a name, by which nobody could ask for it, or a type that could not be read.
    """
    if isinstance(row, RecordType) and any(not column for column, _ in row.columns):
        raise InvalidInputError(source=label, problem="a column of the table has no name")
    if column_type(str(row)) != row:
        raise InvalidInputError(source=label, problem="its columns are nested too deep: 32 levels are the most")
    spelled = rows_type(row)
    room = min(_NAME_BYTES_MAX, _KEY_BYTES_MAX - ITEM_BYTES - len(label.encode(errors="replace")) - 1)
    if name is None and len(spelled.name.encode()) <= room:
        return spelled
    short = _NOT_SHORT.sub("_", label if name is None else name)[:_SHORT_MAX]
    return rows_type(row, f"{short}@{_digest(spelled.name)}")


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


def note_table(dataset: DataSetRef, label: str, kind: RowsType, *, name: str | None = None) -> None:
    """Keep with the data set that it has a table in a version; nothing is written when that is noted already.

    Raises InvalidInputError when other columns have the type's name.
    """
    note_tables(dataset, {label: kind}, name=name)


def note_tables(
    dataset: DataSetRef,
    tables: Mapping[str, RowsType],
    *,
    name: str | None = None,
    singles: Collection[str] = frozenset(),
) -> None:
    """Keep the same of several tables, given by label, in one commit. Of `singles` an event has one row each."""
    notes = {
        _note_label(label, kind): _note_of(label, kind, name, is_single=label in singles)
        for label, kind in tables.items()
    }
    stored = {noted: dataset.load(noted, dict) for noted in notes}
    missing = [noted for noted, found in stored.items() if found is None]
    if missing:
        dataset.require()
        with WriteBatch(dataset.datastore) as batch:
            for noted in missing:
                dataset.store(noted, msgspec.to_builtins(notes[noted]), type=dict, mode="new", into=batch)
        # Why again: another's may have been first.
        stored.update((noted, dataset.load(noted, dict)) for noted in missing)
    for noted, note in notes.items():
        found = stored[noted]
        if found == msgspec.to_builtins(note):
            continue
        if found is None or _noted(f"{dataset.path} {noted}", note.label, found).type.row != tables[note.label].row:
            problem = f"the type {note.type} is that of other columns in this data set"
            raise InvalidInputError(source=note.label, problem=problem)


def _note_of(label: str, kind: RowsType, name: str | None, *, is_single: bool) -> _Note:
    padded = None
    if isinstance(kind, VectorType) and kind.dtype.names is not None and not _is_packed(kind.dtype):
        padded = np.lib.format.dtype_to_descr(kind.dtype)
    note = _Note(label, label if name is None else name, kind.name, str(kind.row), padded, is_single)
    note.check = _check_of(note)
    return note


def other_versions(dataset: DataSetRef, tables: Mapping[str, RowsType], *, name: str | None = None) -> list[NotedTable]:
    """Return the noted versions of tables, given by label, that are others than these."""
    own = {(label, _digest(kind.name)) for label, kind in tables.items()}
    found = []
    for label, product in _notes(dataset, _NOTE if len(tables) > 1 else f"{_NOTE}{next(iter(tables), '')}/"):
        # Why by the digest: it is what a loader meets as a rule, and hundreds of them need not be read.
        if label not in tables or (label, product.label.rpartition("/")[2]) in own:
            continue
        noted = _loaded(dataset, label, product)
        if noted is not None and noted.name == (name or label) and noted.type.name != tables[label].name:
            found.append(noted)
    return found


def note_id(dataset: DataSetRef, noted: NotedTable) -> ProductID:
    """Return the id of the note of a version."""
    return dataset.product_id(_note_label(noted.label, noted.type), dict)


def _note_label(label: str, kind: RowsType) -> str:
    return f"{_NOTE}{label}/{_digest(kind.name)}"


def noted_tables(dataset: DataSetRef, label: str | None = None) -> Iterator[NotedTable]:
    """Yield the versions of the tables of a data set, or of one label. Raises CorruptionError for a note that is damaged."""
    for own, product in _notes(dataset, _NOTE if label is None else f"{_NOTE}{label}/"):
        # Why compared: the label of another table may begin with this one and a slash.
        if label in {None, own} and (noted := _loaded(dataset, own, product)) is not None:
            yield noted


def _notes(dataset: DataSetRef, prefix: str) -> Iterator[tuple[str, ProductID]]:
    """Yield the labels and the products of notes."""
    for product in dataset.products(prefix, is_prefix=True):
        match = _LABEL.fullmatch(product.label)
        if match is not None and product.type == "json":
            yield match[1], product


def _loaded(dataset: DataSetRef, label: str, product: ProductID) -> NotedTable | None:
    """Return None when the data set is removed at this moment."""
    value = dataset.load(product.label, dict)
    return None if value is None else _noted(f"{dataset.path} {product.label}", label, value)


def _check_of(note: _Note) -> str:
    return _digest(msgspec.json.encode(msgspec.structs.replace(note, check="")).decode())


def _noted(product: str, label: str, value: object) -> NotedTable:
    try:
        note = msgspec.convert(value, _Note)
        if note.label != label or note.check != _check_of(note):
            raise ValueError("it is not as it was written")
        row = column_type(note.row)
        if row is None:
            raise TypeMismatchError(type=note.row, problem="it is the name of no type")
        if note.padded is not None:
            dtype = np.lib.format.descr_to_dtype(_as_descr(note.padded))
            kind: RowsType = VectorType(note.type, dtype)
            if dtype.hasobject or kind.row != row:
                raise TypeMismatchError(type=note.type, problem="its fields are not those of its row")
        else:
            kind = rows_type(row).renamed_rows(note.type)
    except (msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
        raise CorruptionError(problem="the note of a table cannot be read", product=product) from error
    return NotedTable(note.label, note.table, kind, note.single)


def _is_packed(dtype: np.dtype[Any]) -> bool:
    try:
        type_of_dtype(dtype)
    except TypeMismatchError:
        return False
    return True


def _as_descr(value: Any) -> Any:
    """Return what JSON has made of numpy's description as that: fields are tuples in a list."""
    if not isinstance(value, list):
        return value
    return [(field[0], _as_descr(field[1]), *map(tuple, field[2:])) for field in value]


def chosen_columns(
    source: str,
    known: Sequence[str],
    patterns: Sequence[str] | None,
    exclude: Sequence[str] = (),
    *,
    may_lack: bool = False,
) -> list[str]:
    """Return the names that match one of the patterns, all without any, and none of `exclude`; in their own order.

    Raises InvalidInputError when a pattern matches none, unless `may_lack`; its fact `patterns` has those.
    """
    lacking = lacking_patterns(known, patterns, exclude)
    if lacking and not may_lack:
        raise InvalidInputError(source=source, problem=f"it has no column {', '.join(lacking)}", patterns=lacking)
    return [
        name
        for name in known
        if (not patterns or any(_matches(name, pattern) for pattern in patterns))
        and not any(_matches(name, pattern) for pattern in exclude)
    ]


def lacking_patterns(
    known: Sequence[str], patterns: Sequence[str] | None, exclude: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the patterns that match none of the names."""
    given = dict.fromkeys([*(patterns or ()), *exclude])
    return tuple(pattern for pattern in given if not any(_matches(name, pattern) for name in known))


def _matches(name: str, pattern: str) -> bool:
    # Why also equal: a name may hold brackets, which a pattern has a meaning for.
    return name == pattern or fnmatchcase(name, pattern)
