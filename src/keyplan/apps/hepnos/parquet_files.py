"""Loading Parquet files with columns of run, subrun and event: numbers, lists, lists of records. Reads through pyarrow.

Row groups are read one at a time. `entries.py` says what becomes of columns; what `export_parquet` wrote comes back as it was.
"""

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from keyplan.apps.hepnos.entries import chosen_columns, number_columns, plan_of
from keyplan.apps.hepnos.loading import Loaded, Progress, Rows, Source, load_source, reading
from keyplan.errors import InvalidInputError

if TYPE_CHECKING:  # Why: for its type alone.
    from keyplan.apps.hepnos.datasets import DataSet

__all__ = ["load_parquet"]

_DAMAGE: Final = (OSError, pa.ArrowException)
"""What pyarrow raises for a file whose parts cannot be read."""


def load_parquet(
    dataset: "DataSet",
    path: "str | PathLike[str]",
    *,
    columns: Sequence[str] = (),
    run: str | None = None,
    subrun: str | int | None = None,
    event: str | None = None,
    label: str | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> Loaded:
    """Load a Parquet file: events, and products of each event; options as of `load_root`, `label` else the file's name.

    Raises InvalidInputError, InvalidNumberError.
    """
    name = fspath(path)
    try:
        opened = pq.ParquetFile(name)
    except (OSError, pa.ArrowException) as error:
        raise InvalidInputError(source=name, problem="it is not there, or no Parquet file") from error
    with opened as file:
        with reading(name, _DAMAGE):
            source = _File(name, file, columns, (run, subrun, event), label or PurePath(name).stem)
        return load_source(dataset, source, replace=replace, progress=progress)


class _File(Source):
    def __init__(
        self,
        name: str,
        file: Any,
        columns: Sequence[str],
        numbers: tuple[str | None, str | int | None, str | None],
        label: str,
    ) -> None:
        self.name = name
        self._file = file
        schema = file.schema_arrow
        known = list(schema.names)
        repeated = sorted({field for field in known if known.count(field) > 1})
        if repeated:
            raise InvalidInputError(source=name, problem=f"several columns are called {', '.join(repeated)}")
        self._numbers = number_columns(name, known, *numbers)
        chosen = chosen_columns(name, known, columns, self._numbers)
        empty = {field: _empty(schema.field(field).type) for field in chosen}
        self._plan = plan_of(name, label, empty, chosen, known)
        self._fields = [field for field in chosen if field not in self._plan.skipped]
        self.skipped = self._plan.skipped
        self.tables = self._plan.tables
        self.entries = file.metadata.num_rows
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        self.entry_bytes = sum(group.total_byte_size for group in groups) // max(1, self.entries)
        self._starts = np.cumsum([0, *(group.num_rows for group in groups)])
        self._last: tuple[int, Any] | None = None
        self.has_lists = any(part.form != "numbers" for part in self._plan.parts.values())

    def numbers(self) -> tuple[Any, Any, Any]:
        names = [name for name in self._numbers if isinstance(name, str)]
        with reading(self.name, _DAMAGE):
            table = self._file.read(columns=names)
        found = [
            np.full(self.entries, name, np.uint64) if isinstance(name, int) else self._number(table, name)
            for name in self._numbers
        ]
        return found[0], found[1], found[2]

    def _number(self, table: Any, name: str) -> Any:
        column = table.column(name)
        if column.null_count:
            raise InvalidInputError(source=self.name, problem=f"column {name} lacks a number in some rows")
        return column.to_numpy()

    def read(self, begin: int, end: int) -> dict[str, Rows]:
        first = int(np.searchsorted(self._starts, begin, "right")) - 1
        last = int(np.searchsorted(self._starts, end, "left"))
        pieces: list[Any] = []
        for group in range(first, last):
            start = int(self._starts[group])
            pieces.append(self._group(group).slice(max(0, begin - start), end - max(begin, start)))
        table = pa.concat_tables(pieces)
        return self._plan.rows(end - begin, {field: ak.from_arrow(table.column(field)) for field in self._fields})

    def _group(self, number: int) -> Any:
        """Return a row group; the last one is kept, because parts of the load are smaller as a rule."""
        if self._last is None or self._last[0] != number:
            self._last = None  # Why: so that there are never two in memory.
            with reading(self.name, _DAMAGE):
                self._last = (number, self._file.read_row_group(number, columns=self._fields))
        return self._last[1]


def _empty(kind: Any) -> Any:
    """Return an array of no values of a type; of no type where awkward has none, so that the column is left out."""
    try:
        return ak.from_arrow(pa.array([], kind))
    except (ValueError, TypeError, NotImplementedError):
        return ak.Array([])
