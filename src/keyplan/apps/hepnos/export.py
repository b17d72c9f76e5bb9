"""From tables of a data set to awkward arrays and to Parquet: an entry for each event, with its rows of each table as a list.

An event that has no product of a table has no list there, which is another thing than an empty one.
"""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import awkward as ak
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from keyplan.apps.hepnos.arrow_values import arrow_content, arrow_lists
from keyplan.apps.hepnos.collection import Collections
from keyplan.apps.hepnos.collection_reader import Field
from keyplan.apps.hepnos.column_types import ColumnType
from keyplan.apps.hepnos.columns import EVENT_COLUMNS
from keyplan.apps.hepnos.errors import MissingError, TypeMismatchError
from keyplan.apps.hepnos.event_lists import EventLists, event_lists
from keyplan.apps.hepnos.loading import Progress
from keyplan.apps.hepnos.product_types import RowsType
from keyplan.apps.hepnos.table_values import list_or_nothing
from keyplan.apps.hepnos.tables import Table
from keyplan.apps.hepnos.types import product_type
from keyplan.errors import InvalidInputError

if TYPE_CHECKING:  # Why: for its type alone.
    from keyplan.apps.hepnos.datasets import DataSet

__all__ = ["export_parquet", "to_awkward"]

_BATCH_EVENTS = 16_384

TableNames = Sequence["str | tuple[str, Any]"]


class _Choice(NamedTuple):
    """A table, and which of its columns: what is loaded of it for every batch of events."""

    table: Table
    columns: Sequence[str] | None
    exclude: Sequence[str]
    missing: Any

    @property
    def row(self) -> ColumnType:
        return self.table.row_type(self.columns, self.exclude, self.missing)


def to_awkward(
    dataset: "DataSet",
    names: "TableNames" = (),
    *,
    events: Any = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    exclude: Mapping[str, Sequence[str]] | None = None,
    missing: Any = "null",
) -> Any:
    """Return the events of a data set, or those in an array of EVENT_COLUMNS, with tables, as one awkward array of records.

    `names` are labels of tables, names of Collections for the tables that these are made of, or (label, type) for the rows that
    are stored as that type; all tables without any. Fields are run, subrun, event, and a list for each table. All events come
    sorted by run, subrun and event, wherever they lie; those of an array in its order. `columns` and `exclude` have names or
    patterns by label; with `missing` as of `Table.load`. Raises MissingError, InvalidInputError.
    """
    chosen = _chosen(dataset, names, columns, exclude, missing)
    found = dataset.events().to_numpy() if events is None else np.asarray(events)
    return _entries(chosen, found)


def export_parquet(
    dataset: "DataSet",
    path: "str | PathLike[str]",
    names: "TableNames" = (),
    *,
    columns: Mapping[str, Sequence[str]] | None = None,
    exclude: Mapping[str, Sequence[str]] | None = None,
    missing: Any = "null",
    batch_events: int = _BATCH_EVENTS,
    progress: Progress | None = None,
) -> int:
    """Write the events of a data set with tables to a Parquet file, a row for each event; return how many.

    Rows are sorted by run, subrun and event. All else as of `to_awkward`; a complex number is a record of `real` and `imag`.
    Memory is that of a batch, and 24 bytes for each event. The file appears when it is complete.
    """
    chosen = _chosen(dataset, names, columns, exclude, missing)
    schema = _schema(chosen)
    events = dataset.events().to_numpy()
    target = Path(fspath(path))
    unfinished = target.with_name(f".{target.name}.unfinished")
    done = 0
    try:
        with pq.ParquetWriter(str(unfinished), schema, compression="zstd") as writer:
            for start in range(0, len(events), batch_events):
                batch = events[start : start + batch_events]
                writer.write_table(pa.table(_columns(chosen, batch, schema), schema=schema))
                done += len(batch)
                if progress is not None:
                    progress(done, len(events))
        unfinished.replace(target)
    except OSError as error:
        raise InvalidInputError(source=str(target), problem=error.strerror or "it cannot be written") from error
    except (
        pa.ArrowNotImplementedError
    ) as error:  # Why: Parquet has no records without fields, nor may it have others' types.
        raise InvalidInputError(source=str(target), problem=f"{error} Or exclude the column.") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return done


def _chosen(
    dataset: "DataSet",
    names: "TableNames",
    columns: Mapping[str, Sequence[str]] | None,
    exclude: Mapping[str, Sequence[str]] | None,
    missing: Any,
) -> list[_Choice]:
    columns, exclude = dict(columns or {}), dict(exclude or {})
    given = _named(dataset, names, columns, exclude) if names else list(dataset.tables.values())
    keys = [table.key for table in given]
    if len({*(EVENT_COLUMNS.names or ()), *keys}) < len(keys) + len(EVENT_COLUMNS.names or ()):
        raise InvalidInputError(source="tables", problem="two columns would have one name; name each table once")
    for label in {**columns, **exclude}:
        if label not in keys:
            raise InvalidInputError(source="columns", problem=f"there is no table {label} among {', '.join(keys)}")
    return [_Choice(table, columns.get(table.key), exclude.get(table.key, ()), missing) for table in given]


def _named(
    dataset: "DataSet", names: "TableNames", columns: dict[str, Sequence[str]], exclude: dict[str, Sequence[str]]
) -> list[Table]:
    """Return the tables that are named, and those of named Collections; what is chosen of these is chosen of their tables."""
    found: list[Table] = []
    others: list[str] = []
    for name in names:
        try:
            found.append(_table(dataset, name))
        except MissingError:
            others.append(str(name))
    keys = {table.key for table in found}
    # Why no events: which columns there are does not hang on them.
    collections = Collections(dataset, np.empty(0, EVENT_COLUMNS))
    chosen: dict[str, list[Field]] = {}
    for name in others:
        if name not in collections:
            problem = "it has no table and no Collection of this name; `keyplan hepnos tables` lists its tables"
            raise MissingError(table="tables", key=f"{dataset.path} {name}", problem=problem)
        for key, own in collections[name].sources(columns.pop(name, None), exclude.pop(name, ())).items():
            # Why not again: a table that is named itself is written whole.
            if key not in keys:
                chosen.setdefault(key, []).extend(own)
    for key, fields in chosen.items():
        found.append(fields[0].table)
        if all(field.column for field in fields):
            columns.setdefault(key, list(dict.fromkeys(field.column for field in fields)))
    return found


def _table(dataset: "DataSet", name: str | tuple[str, Any]) -> Table:
    if not isinstance(name, tuple):
        return dataset.tables[name]
    label, kind = name[0], product_type(name[1])
    if not isinstance(kind, RowsType):
        raise InvalidInputError(source=label, problem=f"a table is of rows, not of {kind.name}")
    return Table(dataset, label, label, [kind])


def _entries(chosen: Sequence[_Choice], events: npt.NDArray[Any]) -> Any:
    fields: dict[str, Any] = {name: np.ascontiguousarray(events[name]) for name in EVENT_COLUMNS.names or ()}
    for choice in chosen:
        is_present, offsets, rows = _lists(choice, events)
        fields[choice.table.key] = list_or_nothing(is_present, offsets, rows)
    return ak.zip(fields, depth_limit=1)


def _columns(chosen: Sequence[_Choice], events: npt.NDArray[Any], schema: Any) -> list[Any]:
    """Return the same as arrays of Arrow."""
    columns = [pa.array(np.ascontiguousarray(events[name])) for name in EVENT_COLUMNS.names or ()]
    for choice in chosen:
        is_present, offsets, rows = _lists(choice, events)
        kind = schema.field(choice.table.key).type
        try:
            content = arrow_content(rows, choice.row)
        except TypeMismatchError as error:
            raise TypeMismatchError(**error.facts, table=choice.table.key) from error
        columns.append(pa.LargeListArray.from_arrays(pa.array(offsets), content, type=kind, mask=pa.array(~is_present)))
    return columns


def _lists(choice: _Choice, events: npt.NDArray[Any]) -> EventLists:
    return event_lists(choice.table, events, choice.columns, choice.exclude, choice.missing)


def _schema(chosen: Sequence[_Choice]) -> Any:
    numbers = [pa.field(name, pa.uint64(), nullable=False) for name in EVENT_COLUMNS.names or ()]
    lists: list[Any] = []
    for choice in chosen:
        try:
            lists.append(arrow_lists(choice.table.key, choice.row, is_single=choice.table.is_single))
        except TypeMismatchError as error:
            raise TypeMismatchError(**error.facts, table=choice.table.key) from error
    return pa.schema([*numbers, *lists])
