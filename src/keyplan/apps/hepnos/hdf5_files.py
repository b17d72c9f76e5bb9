"""Loading HDF5 files as HEPnOS's dataloader takes them. Reads through h5py.

Each group with a column `evt` is a table, each one-dimensional data set in it a column. Columns `run`, `subrun` and `evt` say
whose a row is; where a table has no run and subrun, the file's name does, as in `neardet_r00012096_s07.h5`. The others are
members of the struct, in the order of their sizes, largest first; `/`, `.` and spaces in names become `_`.
"""

import re
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.column_types import (
    ColumnType,
    FixedType,
    ListType,
    RecordType,
    TextType,
    type_of_dtype,
    unpadded,
    without_fixed_text,
)
from keyplan.apps.hepnos.errors import InvalidNumberError
from keyplan.apps.hepnos.layout import INVALID_NUMBER
from keyplan.apps.hepnos.loading import Loaded, Progress, Rows, Source, load_source, reading
from keyplan.apps.hepnos.product_types import VectorType, values_module
from keyplan.apps.hepnos.table_notes import chosen_columns, lacking_patterns, table_type
from keyplan.errors import InvalidInputError

if TYPE_CHECKING:  # Why: for its type alone.
    from keyplan.apps.hepnos.datasets import DataSet

__all__ = ["load_hdf5"]

_RUN: Final = re.compile(r"_r(\d+)")
_SUBRUN: Final = re.compile(r"_s(\d+)")
_DAMAGE: Final = (OSError, RuntimeError, KeyError, ValueError, TypeError)
"""What h5py raises for a file whose parts cannot be read; TypeError, where a column has a type that numpy does not know."""
_REPLACED: Final = str.maketrans("/. ", "___")


def load_hdf5(
    dataset: "DataSet",
    path: "str | PathLike[str]",
    *,
    tables: Sequence[str] = (),
    columns: Sequence[str] = (),
    exclude: Sequence[str] = (),
    label: str | None = None,
    event: str = "evt",
    run_offset: int = 0,
    replace: bool = False,
    may_lack: bool = False,
    same_events: bool = False,
    progress: Progress | None = None,
) -> list[Loaded]:
    """Load the tables of an HDF5 file: events, and for each table a product of each event that has rows in it.

    `tables` names groups, all that have the event's column without it; `columns` and `exclude` are patterns of their columns. A
    product's label is its table's name; with `label` all have that label, and types that are named after their tables.
    `run_offset` is added to run numbers. `replace` and `same_events` as of `load_source`, `may_lack` of `load_root`. Raises
    InvalidInputError, InvalidNumberError.
    """
    name = fspath(path)
    try:
        opened = h5py.File(name, "r")
    except OSError as error:
        raise InvalidInputError(source=name, problem="it is not there, or no HDF5 file") from error
    with opened as file:
        with reading(name, _DAMAGE):
            groups = _groups(file, event)
        unknown = [table for table in tables if table.strip("/") not in groups]
        if unknown or not groups:
            problem = f"it has no table {', '.join(unknown)}" if unknown else f"no group has a column {event}"
            raise InvalidInputError(source=name, problem=f"{problem}; tables: {', '.join(groups) or 'none'}")
        chosen = [table.strip("/") for table in tables] or list(groups)
        with reading(name, _DAMAGE):
            # Why of all tables: a pattern may be meant for one of them.
            known = list(dict.fromkeys(column for group in chosen for column in groups[group]))
            wanted = frozenset(chosen_columns(name, known, columns, exclude, may_lack=may_lack))
            sources = [_Table(name, group, groups[group], wanted, label, event, run_offset) for group in chosen]
            for source in sources:
                source.lacking = lacking_patterns(known, columns, exclude)
        _check_distinct(name, sources)
        return [
            load_source(dataset, source, replace=replace, same_events=same_events, progress=progress)
            for source in sources
        ]


def _groups(file: Any, event: str) -> dict[str, Any]:
    """Return the groups that have the event's column, by their path."""
    found: dict[str, Any] = {"": file} if isinstance(file.get(event), h5py.Dataset) else {}

    def visit(path: str, item: Any) -> None:
        if isinstance(item, h5py.Group) and isinstance(item.get(event), h5py.Dataset):
            found[path] = item

    file.visititems(visit)
    return dict(sorted(found.items()))


def _check_distinct(name: str, sources: "Sequence[_Table]") -> None:
    """Refuse tables that would be stored as one: `a/b` and `a.b` both become `a_b`."""
    seen: set[tuple[str, str]] = set()
    for source in sources:
        for label, kind in source.tables.items():
            if (label, kind.name) in seen:
                raise InvalidInputError(source=name, problem=f"two tables would both be {label}")
            seen.add((label, kind.name))


class _Table(Source):
    """A group whose columns are data sets of one length."""

    def __init__(
        self,
        name: str,
        path: str,
        group: Any,
        wanted: frozenset[str],
        label: str | None,
        event: str,
        run_offset: int,
    ) -> None:
        self.name = f"{name}:{path}"
        self._group = group
        self._event = event
        self._run_offset = run_offset
        self._file_name = PurePath(name).name
        columns = {column: item for column, item in group.items() if isinstance(item, h5py.Dataset)}
        indexing = {"run", "subrun", event}
        members = {column: item for column, item in columns.items() if column not in indexing and _is_column(item)}
        members = {column: item for column, item in members.items() if column in wanted}
        self.skipped = tuple(sorted((set(columns) & wanted) - indexing - set(members)))
        if not group[event].shape:
            raise InvalidInputError(source=self.name, problem=f"{event} is one value, and no column")
        self.entries = len(group[event])
        for column, item in members.items():
            if len(item) != self.entries:
                problem = f"column {column} has {len(item)} rows, and {event} {self.entries}"
                raise InvalidInputError(source=self.name, problem=problem)
        # Why by size: the dataloader's structs have no padding between members like this.
        ordered = sorted(members, key=lambda column: (-members[column].dtype.itemsize, column))
        self._members = {column.translate(_REPLACED): members[column] for column in ordered}
        if len(self._members) < len(members):
            raise InvalidInputError(source=self.name, problem="two of its columns would have one name")
        table = path.translate(_REPLACED) or "table"
        is_packed = not any(item.dtype.hasobject for item in members.values())
        row = RecordType(tuple((column, _type_of(item, is_packed=is_packed)) for column, item in self._members.items()))
        self._label = label if label is not None else table
        self.table_name = table if label is not None else None
        # Why none: a table of numbers of events alone says that there are these events.
        self.tables = {self._label: table_type(self._label, row, name=self.table_name)} if members else {}
        self.entry_bytes = sum(item.dtype.itemsize * int(np.prod(item.shape[1:])) for item in members.values())
        if not is_packed:
            # Why of the file: HDF5 does not say how long its lists and texts are, and compresses none of them.
            self.entry_bytes += group.file.id.get_filesize() // max(1, self.entries)

    def numbers(self) -> tuple[Any, Any, Any]:
        with reading(self.name, _DAMAGE):
            run = self._column_or_name("run", _RUN)
            subrun = self._column_or_name("subrun", _SUBRUN)
            event = self._column(self._event)
        return _moved(run, self._run_offset), subrun, event

    def read(self, begin: int, end: int) -> dict[str, Rows]:
        found: dict[str, Rows] = {}
        for label, kind in self.tables.items():
            with reading(self.name, _DAMAGE):
                columns = {column: _values(item, begin, end) for column, item in self._members.items()}
            if isinstance(kind, VectorType):
                rows: Any = np.empty(end - begin, kind.dtype)
                for column, values in columns.items():
                    rows[column] = values
            else:
                rows = kind.fitted(values_module().rows_of_columns(columns))
            found[label] = Rows(kind, np.ones(len(rows), np.int64), rows)
        return found

    def _column(self, column: str) -> npt.NDArray[Any]:
        return np.asarray(self._group[column][()]).reshape(-1)

    def _column_or_name(self, column: str, pattern: "re.Pattern[str]") -> npt.NDArray[Any]:
        """Return a column; where the table has none, the number that the file's name says, for each row."""
        if isinstance(self._group.get(column), h5py.Dataset):
            return self._column(column)
        match = pattern.search(self._file_name)
        if match is None:
            problem = f"it has no column {column}, and the file's name does not say it, as {pattern.pattern} would"
            raise InvalidInputError(source=self.name, problem=problem)
        number = int(match[1])
        if number >= INVALID_NUMBER:
            raise InvalidNumberError(field=column, problem=f"{number}, which the file's name says, is out of range")
        return np.full(self.entries, number, np.uint64)


def _moved(run: npt.NDArray[Any], offset: int) -> npt.NDArray[Any]:
    """Return numbers with the offset added. Trap: numpy's sums go round, from the greatest number to 0."""
    if not offset or not run.size or run.dtype.kind not in "iu":
        return run
    least, greatest = int(run.min()) + offset, int(run.max()) + offset
    if least < 0 or greatest >= INVALID_NUMBER:
        raise InvalidNumberError(field="run", problem=f"with the offset {offset} a number is out of range")
    # Why unsigned: an offset below 0 is added by going round, and ends where it should.
    return run.astype(np.uint64) + np.uint64(offset % (INVALID_NUMBER + 1))


def _is_column(item: Any) -> bool:
    """True for a value in each row, of numbers, times, text, records of these, or of so many or any number of them."""
    try:
        item.dtype  # noqa: B018  # Why: asking is what fails, for a type that numpy has none for.
    except TypeError:
        return False
    if not item.shape or not all(item.shape[1:]):
        return False
    is_object = item.dtype.hasobject
    if is_object and item.shape[1:] not in {(), (1,)}:
        return False
    return h5py.check_string_dtype(item.dtype) is not None or _is_plain(_element(item.dtype))


def _is_plain(dtype: np.dtype[Any]) -> bool:
    if dtype.subdtype is not None:
        return all(dtype.shape) and _is_plain(dtype.base)
    if dtype.names is not None:
        fields: Any = dtype.fields
        return bool(dtype.names) and all(_is_plain(fields[name][0]) for name in dtype.names)
    if h5py.check_string_dtype(dtype) is not None:
        return not dtype.hasobject
    # Why a size: long doubles have other bytes on other machines.
    return dtype.kind in "biufcmM" and dtype.itemsize <= (16 if dtype.kind == "c" else 8)


def _element(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of what a list of any length has; of others the type itself."""
    return np.dtype(h5py.check_vlen_dtype(dtype) or dtype)


def _type_of(item: Any, *, is_packed: bool) -> ColumnType:
    text = h5py.check_string_dtype(item.dtype)
    # Why bytes: awkward has no text of a fixed size, and a file's may be in any code.
    if text is not None and not is_packed:
        kind: ColumnType = TextType(is_bytes=text.length is not None)
    else:
        kind = type_of_dtype(unpadded(_element(item.dtype)).newbyteorder("<"))
        kind = kind if is_packed else without_fixed_text(kind)
    if h5py.check_vlen_dtype(item.dtype) is not None and text is None:
        kind = ListType(kind)
    for size in reversed(item.shape[1:] if item.shape[1:] != (1,) else ()):
        kind = FixedType(kind, size)
    return kind


def _values(item: Any, begin: int, end: int) -> Any:
    values = item[begin:end]
    if values.shape[1:] == (1,):
        values = values.reshape(-1)
    if not values.dtype.hasobject:
        # Why packed: a file's records may have gaps between their fields.
        return values.astype(unpadded(values.dtype), copy=False)
    if h5py.check_string_dtype(item.dtype) is not None:
        return values_module().from_texts(values.tolist())
    return values_module().from_arrays(values.tolist(), unpadded(_element(item.dtype)).newbyteorder("<"))
