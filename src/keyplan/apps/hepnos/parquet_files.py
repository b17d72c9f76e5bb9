"""Loading Parquet files with columns of run, subrun and event: numbers, lists, lists of records. Reads through pyarrow.

Row groups are read one at a time. `entries.py` says what becomes of columns; what `export_parquet` wrote comes back as it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from os import PathLike, fspath
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from keyplan.apps.hepnos.arrow_values import is_noted_single, noted_row, restored_lists
from keyplan.apps.hepnos.column_types import ColumnType, ListType, wider
from keyplan.apps.hepnos.entries import (
    ENTRY,
    Collection,
    collection_of,
    number_columns,
    numbers_of,
    plan_of,
    type_of_entries,
    whole_numbers,
)
from keyplan.apps.hepnos.entry_files import entry_file
from keyplan.apps.hepnos.loading import Loaded, Progress, Rows, Source, load_source, reading
from keyplan.apps.hepnos.table_notes import chosen_columns, lacking_patterns
from keyplan.apps.hepnos.table_values import without_needless_options
from keyplan.errors import InvalidInputError

if TYPE_CHECKING:  # Why: for its type alone.
    from keyplan.apps.hepnos.datasets import DataSet

__all__ = ["load_parquet"]

_NUMBER_BYTES: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
"""Of what Parquet stores as numbers. All else are texts to it, of any length."""

_DAMAGE: Final = (OSError, pa.ArrowException)
"""What pyarrow raises for a file whose parts cannot be read."""


def load_parquet(
    dataset: "DataSet",
    path: "str | PathLike[str]",
    *,
    columns: Sequence[str] = (),
    exclude: Sequence[str] = (),
    run: str | int | None = None,
    subrun: str | int | None = None,
    event: str | None = None,
    label: str | None = None,
    replace: bool = False,
    may_lack: bool = False,
    same_events: bool = False,
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
            choice = (columns, exclude, may_lack)
            source = _File(name, file, choice, (run, subrun, event), label or PurePath(name).stem)
        return load_source(dataset, source, replace=replace, same_events=same_events, progress=progress)


class _File(Source):
    def __init__(
        self,
        name: str,
        file: Any,
        choice: tuple[Sequence[str], Sequence[str], bool],
        numbers: tuple[str | int | None, str | int | None, str | None],
        label: str,
    ) -> None:
        self.name = name
        self._file = file
        schema = file.schema_arrow
        known = list(schema.names)
        repeated = sorted({field for field in known if known.count(field) > 1})
        if repeated:
            raise InvalidInputError(source=name, problem=f"several columns are called {', '.join(repeated)}")
        self._paths = {path: steps for field in schema for path, steps in _paths_below((field.name,), field.type)}
        self._numbers = number_columns(name, list(self._paths), *numbers)
        self.entry_file = entry_file(name) if ENTRY in self._numbers else None
        patterns, exclude, may_lack = choice
        others = [field for field in known if field not in self._numbers]
        chosen = chosen_columns(name, others, patterns, exclude, may_lack=may_lack)
        self.lacking = lacking_patterns(others, patterns, exclude)
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        self.entries = file.metadata.num_rows
        self._starts = np.cumsum([0, *(group.num_rows for group in groups)])
        self._last: tuple[int, Any] | None = None
        leaves = _leaves(name, schema, groups)
        self._rows = {field: row for field in chosen if (row := noted_row(schema.field(field))) is not None}
        types = {
            field: ListType(self._rows[field])
            if field in self._rows
            else self._type_of(field, schema.field(field).type, leaves[field])
            for field in chosen
        }
        known_names = frozenset(known)
        sizes: dict[str, tuple[int, ...]] = {}

        def collection(field: str) -> Collection:
            found = collection_of(field, known_names)
            size = tuple(leaf.num_values for leaf in leaves[field])
            # Why sizes: what is called Muon_x may have other lists than the muons.
            return found if found is not None and sizes.setdefault(found[0], size) == size else None

        self._plan = plan_of(name, label, types, collection)
        self._fields = [field for field in chosen if field not in self._plan.skipped]
        self.entry_bytes = self._bytes_of(leaves) // max(1, self.entries)
        self.skipped = self._plan.skipped
        self.tables = self._plan.tables
        self.has_lists = any(part.form != "singles" for part in self._plan.parts.values())
        noted = {field for field in self._rows if is_noted_single(schema.field(field))}
        self.singles = self._plan.singles | noted if self.has_lists else frozenset()

    def _bytes_of(self, leaves: Mapping[str, Sequence[Any]]) -> int:
        """Return about how many bytes the columns have once they are read, of texts by the row group that has most of them.

        Why not what the file says: of values that repeat it has one, and where each stands in next to nothing.
        """
        own = [leaves[field] for field in self._fields]
        numbers = sum(_bytes_of_numbers(leaf) for each in own for leaf in each)
        groups = len(self._starts) - 1
        texts = [each for each in own if any(_is_text(leaf) and leaf.has_dictionary_page for leaf in each)]
        if not texts:
            return numbers
        sizes = [0] * groups
        for each in texts:
            for at, leaf in enumerate(each):
                # Why so: leaves of a field stand group by group, as many in each.
                sizes[at * groups // len(each)] += leaf.total_uncompressed_size
        largest = int(np.argmax(sizes))
        rows = max(1, int(self._starts[largest + 1] - self._starts[largest]))
        return numbers + int(self._group(largest).nbytes) * self.entries // rows

    def numbers(self) -> tuple[Any, Any, Any]:
        return numbers_of(self._numbers, self.entries, self._number)

    def _number(self, name: str) -> Any:
        field, *below = self._paths[name]
        with reading(self.name, _DAMAGE):
            column = ak.from_arrow(self._file.read(columns=[field]).column(field))
        for step in below:
            column = column[step]
        return whole_numbers(self.name, name, column)

    def _type_of(self, field: str, kind: Any, leaves: Sequence[Any]) -> ColumnType | None:
        """Return the type of a column, None where no column has it. All columns of Arrow may lack values; few do."""
        try:
            empty = ak.from_arrow(pa.array([], kind))
        except (ValueError, TypeError, NotImplementedError, pa.ArrowException):
            return None
        whole = type_of_entries(without_needless_options(empty))
        if whole is None or all(_has_no_nulls(leaf) for leaf in leaves):
            return whole
        for group in range(len(self._starts) - 1):
            with reading(self.name, _DAMAGE):
                column = self._file.read_row_group(group, columns=[field]).column(field)
            found = type_of_entries(without_needless_options(ak.from_arrow(column)))
            whole = None if found is None or whole is None else wider(whole, found)
        return whole

    def read(self, begin: int, end: int) -> dict[str, Rows]:
        first = int(np.searchsorted(self._starts, begin, "right")) - 1
        last = int(np.searchsorted(self._starts, end, "left"))
        pieces: list[Any] = []
        for group in range(first, last):
            start = int(self._starts[group])
            pieces.append(self._group(group).slice(max(0, begin - start), end - max(begin, start)))
        table = pa.concat_tables(pieces)
        return self._plan.rows(
            end - begin, {field: self._entries(field, table.column(field)) for field in self._fields}
        )

    def _entries(self, field: str, column: Any) -> Any:
        if field not in self._rows:
            return ak.from_arrow(column)
        with reading(self.name, (ValueError, TypeError)):
            return restored_lists(column, self._rows[field])

    def _group(self, number: int) -> Any:
        """Return a row group; the last one is kept, because parts of the load are smaller as a rule."""
        if self._last is None or self._last[0] != number:
            self._last = None  # Why: so that there are never two in memory.
            with reading(self.name, _DAMAGE):
                read = self._file.read_row_group(number, columns=self._fields)
                self._last = (number, pa.table({field: _values_of(read.column(field)) for field in self._fields}))
        return self._last[1]


def _paths_below(steps: tuple[str, ...], kind: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the paths of what is in a column at any depth, as `EventHeader.runNumber`, and the steps to it."""
    yield ".".join(steps), steps
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _paths_below((*steps, field.name), field.type)


def _leaves(name: str, schema: Any, groups: Sequence[Any]) -> dict[str, list[Any]]:
    """Return what the file says of the columns that each field is stored as, in every row group.

    Why by their number: they stand in the order of the fields, and a path says little where names of fields hold points.
    """
    ends = np.cumsum([0, *(_leaf_count(field.type) for field in schema)]).tolist()
    if any(group.num_columns != ends[-1] for group in groups):
        raise InvalidInputError(
            source=name, problem=f"its fields are {ends[-1]} columns, and its row groups have others"
        )
    return {
        field: [group.column(number) for group in groups for number in range(begin, end)]
        for field, (begin, end) in zip(schema.names, pairwise(ends), strict=True)
    }


def _leaf_count(kind: Any) -> int:
    """Return as how many columns a type is stored."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaf_count(kind.storage_type)
    return sum(_leaf_count(kind.field(at).type) for at in range(kind.num_fields)) if kind.num_fields else 1


def _values_of(column: Any) -> Any:
    """Return a column of values, where it has categories. Why: awkward joins none of several row groups."""
    kind = _without_categories(column.type)
    return column if kind.equals(column.type) else column.cast(kind)


def _without_categories(kind: Any) -> Any:
    """Return a type with the values of categories in their place."""
    if pa.types.is_dictionary(kind):
        return _without_categories(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_categories(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_categories(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_without_categories(kind.value_type)))
    return kind


def _is_text(leaf: Any) -> bool:
    return leaf.physical_type not in _NUMBER_BYTES


def _bytes_of_numbers(leaf: Any) -> int:
    """Return how many bytes a column of a row group has once it is read; of texts, those in the file."""
    return max(int(leaf.total_uncompressed_size), int(leaf.num_values) * _NUMBER_BYTES.get(leaf.physical_type, 0))


def _has_no_nulls(leaf: Any) -> bool:
    statistics = leaf.statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == 0
