"""From awkward arrays, an entry for each event, to the products of loaders: which columns make which table.

a list Muon_pt            with nMuon beside it: column pt of the table Muon, as NanoAOD has them
a list Jet/Jet.pt         a branch below Jet: column pt of the table Jet, as edm4hep and Delphes have them
a list of records         a table with these columns
any other list            a table of its own, without columns
all else                  a column of the table of single values, one row an event
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import awkward as ak
import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.column_types import ColumnType, FixedType, ListType, OptionType, RecordType
from keyplan.apps.hepnos.errors import InvalidNumberError, TypeMismatchError
from keyplan.apps.hepnos.keys import is_label
from keyplan.apps.hepnos.layout import INVALID_NUMBER
from keyplan.apps.hepnos.loading import Rows
from keyplan.apps.hepnos.product_types import RowsType
from keyplan.apps.hepnos.table_notes import table_type
from keyplan.apps.hepnos.table_values import counts_and_elements, rows_of_columns, type_of, without_needless_options
from keyplan.errors import InvalidInputError

__all__ = [
    "ENTRY",
    "NUMBER_COLUMNS",
    "Collection",
    "Numbers",
    "Plan",
    "collection_of",
    "number_columns",
    "numbers_of",
    "plan_of",
    "type_of_entries",
    "type_of_form",
    "whole_numbers",
]

NUMBER_COLUMNS: Final = (
    ("run", "luminosityBlock", "event"),
    ("run", "subrun", "event"),
    ("RunNum", "LumiBlockNum", "EvtNum"),
)
"""What run, subrun and event are called: NanoAOD, DUNE and this package's own export, TreeMaker."""

ENTRY: Final = "Entry$"
"""Instead of a column: the number of each entry in its file, from 0. Why so: it is ROOT's word, and no branch is called so."""

Numbers = tuple[str | int, str | int, str]
"""The columns of run, subrun and event, or ENTRY; instead of a column of runs or subruns a number for all rows."""

Collection = tuple[str, str] | None
"""The table and the column that a list belongs to, or None for one that is a table of its own."""


def number_columns(
    source: str, known: Sequence[str], run: str | int | None, subrun: str | int | None, event: str | None
) -> Numbers:
    """Return the columns of run, subrun and event, as given or as files use to call them.

    Raises InvalidInputError; InvalidNumberError for a run or subrun that is no number of one.
    """
    for field, number in (("run", run), ("subrun", subrun)):
        if isinstance(number, int) and (isinstance(number, bool) or not 0 <= number < INVALID_NUMBER):
            raise InvalidNumberError(field=field, problem=f"{number} is no number of a {field}")
    columns = frozenset([*known, ENTRY])
    usual = [(_given(run, names[0]), _given(subrun, names[1]), event or names[2]) for names in NUMBER_COLUMNS]
    missing = [[isinstance(name, str) and name not in columns for name in names] for names in usual]
    # Why the least: of TreeMaker's columns two may be there, and the third is the one to be told.
    least = min(range(len(usual)), key=lambda at: sum(missing[at]))
    if not any(missing[least]):
        return usual[least]
    raise InvalidInputError(source=source, problem=_without_numbers(known, usual[least], missing[least]))


def _given(name: str | int | None, usual: str) -> str | int:
    return name if isinstance(name, int) else name or usual


def _without_numbers(known: Sequence[str], names: Numbers, is_missing: Sequence[bool]) -> str:
    """Say which columns of numbers are missing, and what can be done."""
    missing = ", ".join(str(name) for name, each in zip(names, is_missing, strict=True) if each)
    likely = [
        name for name in known if name not in names and name.rpartition("/")[2].rpartition(".")[2].lower() in _LIKELY
    ]
    for_all = [f"--{field} 0" for field, each in zip(("run", "subrun"), is_missing[:2], strict=True) if each]
    problem = f"it has no column {missing}; name those it has"
    if likely:
        problem += f", as {', '.join(likely[:6])}"
    if for_all:
        problem += f", or one number for all entries, as {' '.join(for_all)}"
    return f"{problem}, or number events by entry, --event '{ENTRY}'" if is_missing[2] else problem


def numbers_of(names: Numbers, entries: int, column: Callable[[str], Any]) -> tuple[Any, Any, Any]:
    """Return run, subrun and event of so many entries; `column` returns a column."""
    run, subrun, event = (
        np.full(entries, name, np.uint64)
        if isinstance(name, int)
        else np.arange(entries, dtype=np.uint64)
        if name == ENTRY
        else column(name)
        for name in names
    )
    return run, subrun, event


_LIKELY: Final = frozenset({"run", "runnumber", "event", "eventnumber", "number", "lumiblock", "subrun"})


def whole_numbers(source: str, name: str, values: Any) -> npt.NDArray[Any]:
    """Return the numbers of entries from a column at any depth: a number for each, or a list with one.

    Raises InvalidInputError when an entry has none, or several.
    """
    found = without_needless_options(values)
    while found.ndim > 1:
        counts = ak.num(found, axis=1)
        if ak.any(ak.is_none(counts)) or not ak.all(counts == 1):
            entry = int(ak.argmax(ak.fill_none(counts, 0) != 1))
            problem = f"column {name} has not one number in entry {entry}, but {counts[entry]}"
            raise InvalidInputError(source=source, problem=problem)
        found = found[:, 0]
    if ak.any(ak.is_none(found)):
        raise InvalidInputError(source=source, problem=f"column {name} lacks a number in some rows")
    try:
        return np.asarray(ak.to_numpy(found, allow_missing=False))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(source=source, problem=f"column {name} has no numbers") from error


class _Table(NamedTuple):
    kind: RowsType
    columns: tuple[tuple[str, str], ...]
    """Fields of an entry, and the columns that they are."""
    form: str


class Plan(NamedTuple):
    """Which products the entries of a source become."""

    source: str
    parts: Mapping[str, _Table]
    skipped: tuple[str, ...]

    @property
    def tables(self) -> dict[str, RowsType]:
        """The labels and their types."""
        return {label: part.kind for label, part in self.parts.items()}

    @property
    def singles(self) -> frozenset[str]:
        """The labels of single values."""
        return frozenset(label for label, part in self.parts.items() if part.form == "singles")

    def rows(self, length: int, entries: Any) -> dict[str, Rows]:
        """Return the products of so many entries, given by column. Raises InvalidInputError: lists differ in length."""
        return {label: self._rows(label, part, length, entries) for label, part in self.parts.items()}

    def _rows(self, label: str, part: _Table, length: int, entries: Any) -> Rows:
        if part.form == "singles":
            columns = {column: entries[field] for field, column in part.columns}
            return self._fitted(label, part.kind, np.ones(length, np.int64), rows_of_columns(columns))
        flat, counts = {}, np.zeros(0, np.int64)
        for field, column in part.columns:
            own, flat[column] = counts_and_elements(entries[field])
            if len(flat) == 1:
                counts = own
            elif not np.array_equal(own, counts):
                problem = f"{label}: {column} has lists of other lengths; exclude it, or load it alone"
                raise InvalidInputError(source=self.source, problem=problem)
        if not counts[counts > 0].size:
            # Why: lists that are all empty may have other records than those with elements.
            return Rows(part.kind, counts, part.kind.decode_rows(())[1])
        rows = rows_of_columns(flat) if part.form == "columns" else next(iter(flat.values()))
        return self._fitted(label, part.kind, counts, rows)

    def _fitted(self, label: str, kind: RowsType, counts: npt.NDArray[np.int64], rows: Any) -> Rows:
        try:
            return Rows(kind, counts, kind.fitted(without_needless_options(rows)))
        except TypeMismatchError as error:
            # Why here: a type was found from what the file says of its columns.
            problem = f"{label} has other values than its file says: {error.facts['problem']}; exclude its columns"
            raise InvalidInputError(source=self.source, problem=problem) from error


def plan_of(
    source: str,
    label: str,
    types: Mapping[str, ColumnType | None],
    collection: Callable[[str], Collection],
    *,
    counters: Sequence[str] = (),
) -> Plan:
    """Return the plan for entries of fields with these types; of a type None a field is left out, and named.

    So is a list whose table would have a name that is no label, as that of podio's Muon#0.

    `counters` are fields that count the lists of others. Raises InvalidInputError when two tables would have one label.
    """
    singles: list[tuple[str, str, ColumnType]] = []
    lists: dict[str, list[tuple[str, str, ColumnType]]] = {}
    parts: dict[str, _Table] = {}
    skipped: list[str] = []
    for field, kind in types.items():
        row = None if kind is None else _row_of_list(kind)
        has_name = bool(field) and not (isinstance(row, RecordType) and any(not column for column, _ in row.columns))
        found = None if row is None else collection(field)
        if kind is None or not has_name or not (row is None or is_label(field if found is None else found[0])):
            skipped.append(field)
        elif row is None:
            singles.append((field, field, kind))
        elif found is not None:
            lists.setdefault(found[0], []).append((field, found[1], row))
        else:
            _add(source, parts, field, _Table(table_type(field, row), ((field, field),), "rows"))
    for table, columns in lists.items():
        _add(source, parts, table, _with_columns(table, columns, "columns"))
    counted = {f"n{table}" for table in lists} | set(counters)
    singles = [column for column in singles if column[0] not in counted]
    if singles:
        _add(source, parts, label, _with_columns(label, singles, "singles"))
    return Plan(source, parts, tuple(skipped))


def _with_columns(label: str, columns: Sequence[tuple[str, str, ColumnType]], form: str) -> _Table:
    row = RecordType(tuple((column, kind) for _, column, kind in columns))
    return _Table(table_type(label, row), tuple((field, column) for field, column, _ in columns), form)


def _add(source: str, parts: dict[str, _Table], label: str, table: _Table) -> None:
    if label in parts:
        raise InvalidInputError(
            source=source, problem=f"two tables would be called {label}; give the label another name"
        )
    parts[label] = table


def _row_of_list(kind: ColumnType) -> ColumnType | None:
    """Return the type of a list's elements; an entry without a list has no product."""
    present = kind.content if isinstance(kind, OptionType) else kind
    return present.content if isinstance(present, ListType | FixedType) else None


def collection_of(field: str, known: Sequence[str] | frozenset[str]) -> Collection:
    """Return the longest beginning of a column's name that has a counter: Muon of Muon_pt when there is nMuon."""
    parts = field.split("_")
    for size in range(len(parts) - 1, 0, -1):
        table = "_".join(parts[:size])
        if f"n{table}" in known:
            return table, field[len(table) + 1 :]
    return None


def type_of_entries(entries: Any) -> ColumnType | None:
    """Return the type of the entries of a column, None where no column has it."""
    return type_of_form(ak.to_layout(entries).form)


def type_of_form(form: Any) -> ColumnType | None:
    """Return the same of a form of awkward."""
    try:
        return type_of(form.type)
    except TypeMismatchError:
        return None
