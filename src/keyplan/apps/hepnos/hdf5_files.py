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

from keyplan.apps.hepnos.errors import InvalidNumberError
from keyplan.apps.hepnos.layout import INVALID_NUMBER
from keyplan.apps.hepnos.loading import Loaded, Progress, Rows, Source, load_source, reading
from keyplan.apps.hepnos.table_notes import table_type
from keyplan.errors import InvalidInputError

if TYPE_CHECKING:  # Why: for its type alone.
    from keyplan.apps.hepnos.datasets import DataSet

__all__ = ["load_hdf5"]

_RUN: Final = re.compile(r"_r(\d+)")
_SUBRUN: Final = re.compile(r"_s(\d+)")
_DAMAGE: Final = (OSError, RuntimeError, KeyError, ValueError)
"""What h5py raises for a file whose parts cannot be read."""
_REPLACED: Final = str.maketrans("/. ", "___")


def load_hdf5(
    dataset: "DataSet",
    path: "str | PathLike[str]",
    *,
    tables: Sequence[str] = (),
    label: str | None = None,
    event: str = "evt",
    run_offset: int = 0,
    replace: bool = False,
    progress: Progress | None = None,
) -> list[Loaded]:
    """Load the tables of an HDF5 file: events, and for each table a vector product of each event that has rows in it.

    `tables` names groups, all that have the event's column without it. A product's label is its table's name; with `label` all
    have that label, and types that are named after their tables. `run_offset` is added to run numbers. `replace` as of
    `load_source`. Raises InvalidInputError, InvalidNumberError.
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
            sources = [_Table(name, group, groups[group], label, event, run_offset) for group in chosen]
        _check_distinct(name, sources)
        return [load_source(dataset, source, replace=replace, progress=progress) for source in sources]


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

    def __init__(self, name: str, path: str, group: Any, label: str | None, event: str, run_offset: int) -> None:
        self.name = f"{name}:{path}"
        self._group = group
        self._event = event
        self._run_offset = run_offset
        self._file_name = PurePath(name).name
        columns = {column: item for column, item in group.items() if isinstance(item, h5py.Dataset)}
        indexing = {"run", "subrun", event}
        members = {column: item for column, item in columns.items() if column not in indexing and _is_column(item)}
        self.skipped = tuple(sorted(set(columns) - indexing - set(members)))
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
        dtype = np.dtype([(column, item.dtype.newbyteorder("<")) for column, item in self._members.items()])
        self._label = label if label is not None else table
        # Why none: a table of numbers of events alone says that there are these events.
        self.tables = {self._label: table_type(table, dtype, is_named=label is not None)} if members else {}
        self.entry_bytes = dtype.itemsize

    def numbers(self) -> tuple[Any, Any, Any]:
        with reading(self.name, _DAMAGE):
            run = self._column_or_name("run", _RUN)
            subrun = self._column_or_name("subrun", _SUBRUN)
            event = self._column(self._event)
        return _moved(run, self._run_offset), subrun, event

    def read(self, begin: int, end: int) -> dict[str, Rows]:
        found: dict[str, Rows] = {}
        for label, kind in self.tables.items():
            rows = np.empty(end - begin, kind.dtype)
            with reading(self.name, _DAMAGE):
                for column, item in self._members.items():
                    rows[column] = item[begin:end].reshape(-1)
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
        return np.full(self.entries, int(match[1]), np.uint64)


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
    """True for numbers in one dimension, or in a second one of length 1."""
    return item.dtype.kind in "biuf" and item.dtype.names is None and bool(item.shape) and item.shape[1:] in {(), (1,)}
