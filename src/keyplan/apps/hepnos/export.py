"""From tables of a data set to awkward arrays and to Parquet: an entry for each event, with its rows of each table as a list.

An event that has no product of a table has no list there, which is another thing than an empty one.
"""

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from keyplan.apps.hepnos.bulk import load_table
from keyplan.apps.hepnos.columns import EVENT_COLUMNS
from keyplan.apps.hepnos.loading import Progress
from keyplan.apps.hepnos.table_notes import StoredTable, table_named, tables
from keyplan.apps.hepnos.types import VectorType, product_type
from keyplan.errors import InvalidInputError

if TYPE_CHECKING:  # Why: for its type alone.
    from keyplan.apps.hepnos.datasets import DataSet

__all__ = ["export_parquet", "to_awkward"]

_BATCH_EVENTS = 16_384

TableNames = Sequence["str | tuple[str, Any]"]


def to_awkward(dataset: "DataSet", names: "TableNames" = (), *, events: Any = None) -> Any:
    """Return the events of a data set, or those in an array of EVENT_COLUMNS, with tables, as one awkward array of records.

    `names` are labels of loaded tables, or (label, type) of any vectors of numbers; all loaded tables without any. Fields are
    run, subrun, event, and a list for each label. All events come sorted by run, subrun and event, wherever they lie; those of
    an array in its order. Raises MissingError, InvalidInputError.
    """
    chosen = _chosen(dataset, names)
    found = _sorted(dataset.events().to_numpy()) if events is None else np.asarray(events)
    return _entries(dataset, chosen, found)


def export_parquet(
    dataset: "DataSet",
    path: "str | PathLike[str]",
    names: "TableNames" = (),
    *,
    batch_events: int = _BATCH_EVENTS,
    progress: Progress | None = None,
) -> int:
    """Write the events of a data set with tables to a Parquet file, a row for each event; return how many.

    Rows are sorted by run, subrun and event. `names` as of `to_awkward`. Memory is that of a batch, and 24 bytes for each
    event. The file appears when it is complete.
    """
    chosen = _chosen(dataset, names)
    # Why all at once: a ring of databases has events in an order that depends on their placement.
    events = _sorted(dataset.events().to_numpy())
    target = Path(fspath(path))
    unfinished = target.with_name(f".{target.name}.unfinished")
    done = 0
    try:
        with pq.ParquetWriter(str(unfinished), _schema(chosen), compression="zstd") as writer:
            for start in range(0, len(events), batch_events):
                batch = events[start : start + batch_events]
                writer.write_table(pa.table(_columns(dataset, chosen, batch), schema=_schema(chosen)))
                done += len(batch)
                if progress is not None:
                    progress(done, len(events))
        unfinished.replace(target)
    except OSError as error:
        raise InvalidInputError(source=str(target), problem=error.strerror or "it cannot be written") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return done


def _chosen(dataset: "DataSet", names: "TableNames") -> list[tuple[str, VectorType]]:
    given: list[StoredTable | tuple[str, Any]] = (
        [each if isinstance(each, tuple) else table_named(dataset, each) for each in names]
        if names
        else list(tables(dataset))
    )
    chosen: list[tuple[str, VectorType]] = []
    for label, kind in ((each[0], product_type(each[1])) for each in given):
        if not isinstance(kind, VectorType):
            raise InvalidInputError(source=label, problem=f"a table is of vectors of numbers, not of {kind.name}")
        chosen.append((label, kind))
    labels = [*(EVENT_COLUMNS.names or ()), *(label for label, _ in chosen)]
    if len(set(labels)) < len(labels):
        raise InvalidInputError(source="tables", problem="two columns would have one name; name the tables with types")
    return chosen


def _sorted(events: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return events by run, subrun and event."""
    order = np.lexsort([events[name] for name in reversed(EVENT_COLUMNS.names or ())])
    return events if (order[:-1] < order[1:]).all() else events[order]


def _entries(dataset: "DataSet", chosen: Sequence[tuple[str, VectorType]], events: npt.NDArray[Any]) -> Any:
    fields: dict[str, Any] = {name: np.ascontiguousarray(events[name]) for name in EVENT_COLUMNS.names or ()}
    for label, kind in chosen:
        is_present, offsets, rows = _lists(dataset, label, kind, events)
        mask: Any = is_present.view("i1")
        lists = ak.contents.ListOffsetArray(ak.index.Index64(offsets), _content(rows))
        fields[label] = ak.Array(ak.contents.ByteMaskedArray(ak.index.Index8(mask), lists, True))  # noqa: FBT003
    return ak.zip(fields, depth_limit=1)


def _columns(dataset: "DataSet", chosen: Sequence[tuple[str, VectorType]], events: npt.NDArray[Any]) -> list[Any]:
    """Return the same as arrays of Arrow."""
    columns = [pa.array(np.ascontiguousarray(events[name])) for name in EVENT_COLUMNS.names or ()]
    for label, kind in chosen:
        is_present, offsets, rows = _lists(dataset, label, kind, events)
        columns.append(
            pa.LargeListArray.from_arrays(
                pa.array(offsets), _arrow_rows(rows), type=_list_type(kind.dtype), mask=pa.array(~is_present)
            )
        )
    return columns


def _arrow_rows(rows: npt.NDArray[Any]) -> Any:
    if rows.dtype.names is None:
        return pa.array(rows)
    columns = [pa.array(np.ascontiguousarray(rows[name])) for name in rows.dtype.names]
    return pa.StructArray.from_arrays(columns, fields=list(_arrow_type(rows.dtype)))


def _lists(
    dataset: "DataSet", label: str, kind: VectorType, events: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.bool_], Any, npt.NDArray[Any]]:
    """Return which events have a product, where each one's rows begin and end, and the rows in the order of the events."""
    table = load_table(dataset, label, kind, events=events)
    names = tuple(reversed(EVENT_COLUMNS.names or ()))
    found_order = np.lexsort([table.events[name] for name in names])
    own_order = np.lexsort([events[name] for name in names])
    position = np.full(len(events), -1, np.int64)
    position[own_order[_is_among(events[own_order], table.events[found_order])]] = found_order
    is_present = position >= 0
    counts = np.zeros(len(events), np.int64)
    counts[is_present] = np.diff(table.offsets)[position[is_present]]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    begins = table.offsets[:-1][position[is_present]]
    shifts = np.repeat(begins - offsets[:-1][is_present], counts[is_present])
    return is_present, offsets, table.rows[np.arange(offsets[-1]) + shifts]


def _content(rows: Any) -> Any:
    if rows.dtype.names is None:
        return ak.contents.NumpyArray(rows)
    contents = [ak.contents.NumpyArray(_whole(rows[name])) for name in rows.dtype.names]
    return ak.contents.RecordArray(contents, list(rows.dtype.names), length=len(rows))


def _whole(column: Any) -> Any:
    return np.ascontiguousarray(column)


def _is_among(events: npt.NDArray[Any], found: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Tell which of the sorted events are among others that are sorted and all among them."""
    if len(found) == len(events):
        return np.ones(len(events), bool)
    return np.isin(events.view("V24").ravel(), found.view("V24").ravel())


def _schema(chosen: Sequence[tuple[str, VectorType]]) -> Any:
    numbers = [pa.field(name, pa.uint64(), nullable=False) for name in EVENT_COLUMNS.names or ()]
    return pa.schema([*numbers, *(pa.field(label, _list_type(kind.dtype)) for label, kind in chosen)])


def _list_type(dtype: np.dtype[Any]) -> Any:
    return pa.large_list(pa.field("item", _arrow_type(dtype), nullable=False))


def _arrow_type(dtype: np.dtype[Any]) -> Any:
    if dtype.names is None:
        return pa.from_numpy_dtype(dtype)
    fields: Any = dtype.fields
    return pa.struct([pa.field(name, _arrow_type(fields[name][0]), nullable=False) for name in dtype.names])
