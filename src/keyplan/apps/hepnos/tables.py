"""Tables of a data set: what is stored under a label, in versions that are read as one.

A version is a type of product: some columns with their types. Files of several years, or loaded with other columns, make
several; an event has its rows in one of them. A table is read as the union of its versions.
"""

from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.access import ProductSource
from keyplan.apps.hepnos.bulk import (
    OPERATION_KEYS,
    EventProducts,
    create_items,
    load_event_products,
    load_products,
    sorted_rows,
)
from keyplan.apps.hepnos.column_types import (
    ColumnType,
    OptionType,
    RecordType,
    converted,
    packed_dtype,
    wider,
    without_fixed_text,
)
from keyplan.apps.hepnos.columns import EVENT_COLUMNS, checked_column, key_numbers
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.errors import MissingError
from keyplan.apps.hepnos.keys import ITEM_BYTES, NO_EVENT, Kind, product_suffix
from keyplan.apps.hepnos.numbered import Event
from keyplan.apps.hepnos.product_types import RowsType, values_module
from keyplan.apps.hepnos.table_filling import filled
from keyplan.apps.hepnos.table_input import rows_of
from keyplan.apps.hepnos.table_notes import NotedTable, chosen_columns, note_table, noted_tables, table_type
from keyplan.apps.hepnos.table_versions import replace_versions
from keyplan.apps.hepnos.types import product_type
from keyplan.errors import CorruptionError, InvalidInputError

__all__ = ["Table", "TableRows", "TableVersion", "Tables", "store_table", "taken"]

_VALUE: Final = ""
"""The name that the one column of rows without names has here."""


class TableRows(NamedTuple):
    """Rows of a table, those of all events one after the other; event i has rows offsets[i] to offsets[i + 1].

    `rows` is an array of numpy when each column is of numbers, times or texts of one size; else one of awkward.
    """

    events: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]
    rows: Any


class TableVersion(NamedTuple):
    """A version of a table: the type of its products, and the types of its columns by name."""

    type: RowsType
    columns: dict[str, str]


class _Column(NamedTuple):
    """A column of a union: its type, None when no type holds all versions' values; `lacking` says that a version has none."""

    type: ColumnType | None
    is_lacking: bool
    found: tuple[tuple[RowsType, ColumnType], ...]


class _Part(NamedTuple):
    kind: RowsType
    items: list[bytes]
    values: list[bytes]


class Table:
    """A table of a data set: `label` is what its products are labelled, `name` tells it from others that share the label."""

    def __init__(
        self, dataset: DataSetRef, label: str, name: str, types: Sequence[RowsType], *, is_single: bool = False
    ) -> None:
        self.dataset = dataset
        self.label = label
        self.name = name
        self.is_single = is_single
        """Whether an event has one row of it: its columns are the single values of a file."""
        # Why so: the order of columns should not hang on digests.
        self._types = sorted(types, key=lambda kind: (-len(kind.columns), kind.name))

    @property
    def key(self) -> str:
        """What `dataset.tables` has it as: its label, and its name behind a slash where it has another."""
        return self.label if self.name == self.label else f"{self.label}/{self.name}"

    @property
    def versions(self) -> tuple[TableVersion, ...]:
        """Its versions, the one with the most columns first."""
        return tuple(
            TableVersion(kind, {name: str(each) for name, each in kind.columns.items()}) for kind in self._types
        )

    @property
    def types(self) -> tuple[RowsType, ...]:
        """The types of its products: one for each version."""
        return tuple(self._types)

    @property
    def type(self) -> RowsType:
        """The type of its products, where it has one version. Raises InvalidInputError when it has several."""
        if len(self._types) > 1:
            problem = f"it has {len(self._types)} versions, each of its own type: load it, or take one of `types`"
            raise InvalidInputError(source=self.key, problem=problem)
        return self._types[0]

    @property
    def schema(self) -> dict[str, str]:
        """The columns of all versions with their types, as `load` returns them: an option where a version has none.

        "int64 | float64" is a column that has no type which holds both, and is loaded by version. Rows without columns have
        one here, called "".
        """
        union = _union(self._types)
        types = {name: each for name, column in union.items() if (each := _null_or_value(column)) is not None}
        shown = {name: str(kind) for name, kind in _as_loaded(types).items()}
        told = {name: " | ".join(str(kind) for _, kind in _distinct(column)) for name, column in union.items()}
        return {name: shown.get(name, told[name]) for name in union}

    def load(
        self,
        columns: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        missing: Any = "null",
        *,
        version: "TableVersion | RowsType | str | None" = None,
        events: Any = None,
    ) -> TableRows:
        """Return the rows of all events, or of those in an array of EVENT_COLUMNS, sorted by run, subrun and event.

        `columns` and `exclude` are names or patterns, as in `trk_*`. A column that a version lacks is an option of nothing
        with `missing` "null", an error with "refuse", else has the value that is given, or given by name in a dict. With a
        `version` only its events come. Raises InvalidInputError: a column has types that no one type holds, an event has rows
        in two versions. Raises CorruptionError, which names the product.
        """
        kinds = self._types if version is None else [self._version(version)]
        union = self._chosen(kinds, columns, exclude, missing)
        parts = [_Part(kind, *_products(self.dataset, self.label, kind, events)) for kind in kinds]
        offsets, rows = self._joined(parts, union, missing)
        found = key_numbers(b"".join([item for part in parts for item in part.items]), EVENT_COLUMNS)
        _, starts, order = sorted_rows([found[name] for name in EVENT_COLUMNS.names or ()])
        if len(starts) < len(found):
            self._refuse_repeated(parts)
        if order is not None:
            found = found[order]
            offsets, rows = taken(offsets, rows, order)
        return TableRows(found, offsets, rows)

    def of(
        self,
        event: Event,
        columns: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        missing: Any = "null",
        *,
        source: ProductSource | None = None,
    ) -> Any:
        """Return the rows of one event, None when it has none; `source`: a prefetcher or preloaded products. As `load`."""
        union = self._chosen(self._types, columns, exclude, missing)
        parts: list[_Part] = []
        for kind in self._types:
            key = event.item + product_suffix(self.label, kind.name)
            raw = (self.dataset.datastore if source is None else source).raw_product(key)
            parts.append(_Part(kind, *(([], []) if raw is None else ([event.item], [raw]))))
        if sum(len(part.items) for part in parts) > 1:
            self._refuse_repeated(parts)
        return self._joined(parts, union, missing)[1] if any(part.items for part in parts) else None

    def row_type(
        self, columns: Sequence[str] | None = None, exclude: Sequence[str] = (), missing: Any = "null"
    ) -> ColumnType:
        """Return the type of a row as `load` returns it. Raises as `load`."""
        return _row_of(self._chosen(self._types, columns, exclude, missing))

    def __repr__(self) -> str:
        return f"<Table {self.key} of {self.dataset.path}>"

    # ---- the union -----------------------------------------------------------------------------------------------------

    def _version(self, given: "TableVersion | RowsType | str") -> RowsType:
        wanted = given.type if isinstance(given, TableVersion) else given
        name = wanted if isinstance(wanted, str) else wanted.name
        for kind in self._types:
            if kind.name == name:
                return kind
        known = ", ".join(kind.name for kind in self._types)
        raise InvalidInputError(source=self.key, problem=f"it has no version {name}; it has {known}")

    def _chosen(
        self, kinds: Sequence[RowsType], columns: Sequence[str] | None, exclude: Sequence[str], missing: Any
    ) -> dict[str, ColumnType]:
        """Return the columns to load, with their types."""
        union = _union(kinds)
        found: dict[str, ColumnType] = {}
        for name in chosen_columns(self.key, list(union), columns, exclude):
            column = union[name]
            if column.type is None:
                told = " and ".join(f"{kind} in {version.name}" for version, kind in _distinct(column))
                problem = f"{_called(name)} is {told}; load it by version, or exclude it"
                raise InvalidInputError(source=self.key, problem=problem)
            if column.is_lacking and _is_word(missing, "refuse"):
                lacking = ", ".join(kind.name for kind in kinds if name not in _columns(kind))
                raise InvalidInputError(source=self.key, problem=f"{_called(name)} is missing in {lacking}")
            found[name] = (_null_or_value(column) if _is_word(missing, "null") else None) or column.type
        return _as_loaded(found)

    def _joined(
        self, parts: Sequence[_Part], union: Mapping[str, ColumnType], missing: Any
    ) -> tuple[npt.NDArray[np.int64], Any]:
        counts: list[npt.NDArray[np.int64]] = []
        rows: list[Any] = []
        for part in parts:
            # Why also empty ones: the type of the rows is that of all versions, whatever events there are.
            own, found = self._decoded(part, [name for name in union if name in _columns(part.kind)])
            counts.append(own)
            rows.append(found)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(counts))])
        if len(parts) == 1 and _is_as_stored(parts[0].kind, union):
            return offsets, rows[0]
        return offsets, _united(self.key, rows, parts, union, missing)

    def _decoded(self, part: _Part, columns: Sequence[str]) -> tuple[npt.NDArray[np.int64], Any]:
        kind = part.kind
        chosen = None if not kind.columns or len(columns) == len(kind.columns) else frozenset(columns)
        try:
            return kind.decode_rows(part.values, chosen)
        except CorruptionError:
            for item, value in zip(part.items, part.values, strict=True):
                try:
                    kind.decode_rows([value], chosen)
                except CorruptionError as error:
                    product = f"{self._path(item)} {self.label}#{kind.name}"
                    raise CorruptionError(**error.facts, product=product) from error
            raise

    def _refuse_repeated(self, parts: Sequence[_Part]) -> None:
        items = sorted(item for part in parts for item in part.items)
        item = next(one for one, other in pairwise(items) if one == other)
        names = " and ".join(part.kind.name for part in parts if item in part.items)
        problem = f"event {self._path(item)} has rows in {names}; remove one of them, or load its file again to replace"
        raise InvalidInputError(source=self.key, problem=problem)

    def _path(self, item: bytes) -> str:
        run, subrun, event = key_numbers(item, EVENT_COLUMNS)[0].tolist()
        return f"{self.dataset.path} {run} {subrun} {event}"


def _columns(kind: RowsType) -> dict[str, ColumnType]:
    return dict(kind.columns) or {_VALUE: kind.row}


def _union(kinds: Sequence[RowsType]) -> dict[str, _Column]:
    found: dict[str, list[tuple[RowsType, ColumnType]]] = {}
    for kind in kinds:
        for name, each in _columns(kind).items():
            found.setdefault(name, []).append((kind, each))
    union: dict[str, _Column] = {}
    for name, owners in found.items():
        whole: ColumnType | None = owners[0][1]
        for _, each in owners[1:]:
            whole = None if whole is None else wider(whole, each)
        # Why none: rows without names beside rows with columns are no column of theirs.
        is_alone = _VALUE in found and len(found) > 1 and name == _VALUE
        union[name] = _Column(None if is_alone else whole, len(owners) < len(kinds), tuple(owners))
    return union


def _distinct(column: _Column) -> list[tuple[RowsType, ColumnType]]:
    """Return a version for each type that a column has."""
    return list({kind: (version, kind) for version, kind in reversed(column.found)}.values())[::-1]


def _null_or_value(column: _Column) -> ColumnType | None:
    """Return the type of a column that is nothing where a version has none of it; None where it has no type."""
    is_option = column.is_lacking and column.type is not None and not isinstance(column.type, OptionType)
    return OptionType(column.type) if is_option and column.type is not None else column.type


def _as_loaded(union: dict[str, ColumnType]) -> dict[str, ColumnType]:
    """Return the types that columns have in the array that they are loaded into, of numpy or of awkward."""
    if packed_dtype(_row_of(union)) is not None:
        return union
    return {name: without_fixed_text(kind) for name, kind in union.items()}


def _is_word(missing: Any, word: str) -> bool:
    # Why the type, too: an array compares with each of its elements.
    return isinstance(missing, str) and missing == word


def _called(name: str) -> str:
    return f"column {name}" if name else "the value of its rows"


def _row_of(union: Mapping[str, ColumnType]) -> ColumnType:
    return union[_VALUE] if list(union) == [_VALUE] else RecordType(tuple(union.items()))


def _is_as_stored(kind: RowsType, union: Mapping[str, ColumnType]) -> bool:
    own = _columns(kind)
    return list(union) == [name for name in own if name in union] and all(own[name] == union[name] for name in union)


def _united(
    source: str, rows: Sequence[Any], parts: Sequence[_Part], union: Mapping[str, ColumnType], missing: Any
) -> Any:
    """Return the rows of several versions as those of the union."""
    is_plain = list(union) == [_VALUE]
    columns = {
        name: [
            _column_of(source, name, kind, part.kind, found, missing) for part, found in zip(parts, rows, strict=True)
        ]
        for name, kind in union.items()
    }
    dtype = packed_dtype(_row_of(union))
    if dtype is None:
        joined = {name: values_module().joined(own, union[name]) for name, own in columns.items()}
        return joined[_VALUE] if is_plain else values_module().rows_of_columns(joined)
    found = np.empty(sum(len(each) for each in rows), dtype)
    for name, own in columns.items():
        (found if is_plain else found[name])[...] = np.concatenate(own)
    return found


def _column_of(source: str, name: str, kind: ColumnType, version: RowsType, rows: Any, missing: Any) -> Any:
    """Return a version's column as the union's type, or what stands for it where the version has none."""
    if name in _columns(version):
        own = rows if name == _VALUE else rows[name]
        dtype = packed_dtype(kind)
        if dtype is None or not isinstance(own, np.ndarray):
            own = values_module().cast(values_module().from_rows(own), kind)
            return own if dtype is None else values_module().to_packed(own, kind)
        return converted(own, dtype)
    if _is_word(missing, "null"):
        return values_module().nothing_of(kind, len(rows))
    value = missing.get(name) if isinstance(missing, Mapping) else missing
    return filled(source, name, kind, value, len(rows))


def taken(offsets: npt.NDArray[np.int64], rows: Any, order: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Any]:
    """Return the rows of events in another order, and where each event's begin and end."""
    counts = np.diff(offsets)[order]
    found = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    shifts = np.repeat(offsets[:-1][order] - found[:-1], counts)
    return found, rows[np.arange(int(found[-1])) + shifts]


def _products(dataset: DataSetRef, label: str, kind: RowsType, events: Any) -> tuple[list[bytes], list[bytes]]:
    if events is not None:
        pairs = load_event_products(dataset, label, kind, events)
    else:
        # Why a database at a time: their order is made by numpy, where a merge would go through all pairs.
        targets = range(len(dataset.datastore.databases.rings[Kind.PRODUCT].databases))
        pairs = [pair for target in targets for pair in load_products(dataset, label, kind, target=target)]
        # Why not all: a product of a subrun may have the label and the type, too.
        if any(item.endswith(NO_EVENT) for item, _ in pairs):
            pairs = [pair for pair in pairs if not pair[0].endswith(NO_EVENT)]
    return [item for item, _ in pairs], [value for _, value in pairs]


# ---- the tables of a data set -------------------------------------------------------------------------------------------


class Tables(Mapping[str, Table]):
    """The tables of a data set by label; each look reads what is noted now."""

    def __init__(self, dataset: DataSetRef) -> None:
        self._dataset = dataset

    def __getitem__(self, key: str) -> Table:
        found = self._labelled(key)
        if not found and "/" in key:
            label, _, name = key.rpartition("/")
            found = [table for table in self._labelled(label) if table.name == name]
        if not found:
            raise MissingError(table="tables", key=f"{self._dataset.path} {key}")
        if len(found) > 1:
            known = ", ".join(table.key for table in found)
            raise InvalidInputError(source=key, problem=f"several tables have this label: {known}")
        return found[0]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in set(self)

    def __iter__(self) -> Iterator[str]:
        return iter([table.key for table in self._labelled(None)])

    def __len__(self) -> int:
        return len(self._labelled(None))

    # Why these, too: a look-up for each would read the notes again.

    def values(self) -> ValuesView[Table]:
        return {table.key: table for table in self._labelled(None)}.values()

    def items(self) -> ItemsView[str, Table]:
        return {table.key: table for table in self._labelled(None)}.items()

    def _labelled(self, label: str | None) -> list[Table]:
        found: dict[tuple[str, str], list[NotedTable]] = {}
        for noted in noted_tables(self._dataset, label):
            found.setdefault((noted.label, noted.name), []).append(noted)
        return [
            Table(self._dataset, *key, [each.type for each in own], is_single=all(each.is_single for each in own))
            for key, own in sorted(found.items())
        ]

    def __repr__(self) -> str:
        return f"<Tables of {self._dataset.path}: {', '.join(self)}>"


def _rows_type(label: str, given: Any) -> RowsType:
    kind = product_type(given)
    if not isinstance(kind, RowsType):
        raise InvalidInputError(source=label, problem=f"a table is of rows, not of {kind.name}")
    return kind


def store_table(
    dataset: DataSetRef,
    label: str,
    table: Any,
    *,
    run: Any,
    subrun: Any,
    event: Any,
    type: Any = None,  # noqa: A002  # Why: as above.
    create: bool = False,
    operation_keys: int = OPERATION_KEYS,
) -> int:
    """Store a table with a row's event in three columns: all rows of an event become one product; return how many.

    The rows of an event keep their order and need not stand together. `table` is a structured array, one column, a dict of
    columns of one length, a table of awkward, pandas or Arrow, or a list of records. With `create` the events and their
    parents are created, too. What the event has of the table is replaced, in whatever version: give all rows of an event at
    once. The table is noted with the data set first. Raises InvalidInputError, TypeMismatchError, EngineLimitError.
    """
    rows, row = rows_of(table)
    kind = table_type(label, row) if type is None else _rows_type(label, type)
    columns = [checked_column(name, given) for name, given in (("run", run), ("subrun", subrun), ("event", event))]
    if {len(column) for column in columns} != {len(rows)}:
        raise InvalidInputError(source="columns", problem="a run, subrun and event are needed for each row")
    dataset.datastore.check_key(Kind.PRODUCT, bytes(ITEM_BYTES) + product_suffix(label, kind.name))
    ordered, starts, order = sorted_rows(columns)  # stable: the rows of an event stay in the order given
    counts = np.diff(starts, append=len(rows))
    values = kind.encode_rows(kind.fitted(rows if order is None else rows[order]), counts)
    first = [column[starts] for column in ordered]
    if create:
        create_items(dataset, *columns, operation_keys=operation_keys)
    note_table(dataset, label, kind)
    replace_versions(dataset, [EventProducts(label, kind, first, values)], operation_keys=operation_keys)
    note_table(dataset, label, kind)  # Why again: a sweep may have found the note without products.
    return len(values)
