"""From awkward arrays, an entry for each event, to the products of loaders: which columns make which table.

one number                     a column of the table of single numbers, one row an event
list of numbers Muon_pt        with nMuon beside it: column pt of the table Muon, as NanoAOD has them
any other list of numbers      a table of its own, without columns
list of records of numbers     a table with these columns
all else                       is left out, and named
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import awkward as ak
import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.errors import InvalidNumberError
from keyplan.apps.hepnos.layout import INVALID_NUMBER
from keyplan.apps.hepnos.loading import Rows
from keyplan.apps.hepnos.table_notes import table_type
from keyplan.apps.hepnos.types import VectorType
from keyplan.errors import InvalidInputError

__all__ = ["NUMBER_COLUMNS", "Numbers", "Plan", "chosen_columns", "number_columns", "plan_of"]

NUMBER_COLUMNS: Final = (
    ("run", "luminosityBlock", "event"),
    ("run", "subrun", "event"),
    ("RunNum", "LumiBlockNum", "EvtNum"),
)
"""What run, subrun and event are called: NanoAOD, DUNE and this package's own export, TreeMaker."""

Numbers = tuple[str, str | int, str]
"""The columns of run, subrun and event; instead of a subrun column a number for all rows."""


def number_columns(
    source: str, known: Sequence[str], run: str | None, subrun: str | int | None, event: str | None
) -> Numbers:
    """Return the columns of run, subrun and event, as given or as files use to call them.

    Raises InvalidInputError; InvalidNumberError for a subrun that is no number of one.
    """
    if isinstance(subrun, int) and (isinstance(subrun, bool) or not 0 <= subrun < INVALID_NUMBER):
        raise InvalidNumberError(field="subrun", problem=f"{subrun} is no number of a subrun")
    for names in NUMBER_COLUMNS:
        found = (run or names[0], names[1] if subrun is None else subrun, event or names[2])
        if all(isinstance(name, int) or name in known for name in found):
            return found
    usual = NUMBER_COLUMNS[0]
    wanted = (run or usual[0], usual[1] if subrun is None else subrun, event or usual[2])
    missing = [name for name in wanted if isinstance(name, str) and name not in known]
    raise InvalidInputError(source=source, problem=f"it has no column {', '.join(missing)}; name those it has")


def chosen_columns(source: str, known: Sequence[str], patterns: Sequence[str], numbers: Numbers) -> list[str]:
    """Return the columns that match one of the patterns, all without any. Raises InvalidInputError when one matches none."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise InvalidInputError(source=source, problem=f"it has no column {pattern}")
    others = [name for name in known if name not in numbers]
    return [name for name in others if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]


class _Table(NamedTuple):
    kind: VectorType
    columns: tuple[tuple[str, str], ...]
    form: str


class Plan(NamedTuple):
    """Which products the entries of a source become."""

    source: str
    parts: Mapping[str, _Table]
    skipped: tuple[str, ...]

    @property
    def tables(self) -> dict[str, VectorType]:
        """The labels and their types."""
        return {label: part.kind for label, part in self.parts.items()}

    def rows(self, length: int, entries: Any) -> dict[str, Rows]:
        """Return the products of so many entries, given by column.

        Raises InvalidInputError: a number is missing, or lists differ in length.
        """
        return {label: self._rows(label, part, length, entries) for label, part in self.parts.items()}

    def _rows(self, label: str, part: _Table, length: int, entries: Any) -> Rows:
        if part.form == "numbers":
            counts = np.ones(length, np.int64)
            columns = {column: self._whole(field, entries[field]) for field, column in part.columns}
            return Rows(part.kind, counts, _joined(part.kind.dtype, length, columns))
        if part.form == "records":
            lists = {column: entries[label][column] for column, _ in part.columns}
        else:
            lists = {column: entries[field] for field, column in part.columns}
        first = ak.num(next(iter(lists.values())))
        counts = np.asarray(ak.fill_none(first, -1), np.int64)
        for column, each in lists.items():
            if not ak.all(ak.fill_none(ak.num(each), -1) == counts):
                raise InvalidInputError(source=self.source, problem=f"{label}: {column} has lists of other lengths")
        flat = {column: self._whole(column, ak.flatten(ak.drop_none(each, axis=0))) for column, each in lists.items()}
        return Rows(part.kind, counts, _joined(part.kind.dtype, int(counts[counts > 0].sum()), flat))

    def _whole(self, column: str, values: Any) -> npt.NDArray[Any]:
        if ak.any(ak.is_none(values)):
            raise InvalidInputError(source=self.source, problem=f"column {column} lacks a number in some rows")
        return np.asarray(ak.to_numpy(values, allow_missing=False))


def _joined(dtype: np.dtype[Any], length: int, columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if dtype.names is None:
        (only,) = columns.values()
        return np.ascontiguousarray(only, dtype)
    rows = np.empty(length, dtype)
    for column, values in columns.items():
        rows[column] = values
    return rows


def plan_of(source: str, label: str, empty: Any, fields: Sequence[str], known: Sequence[str]) -> Plan:
    """Return the plan for entries of the type that an empty array has; `known` are all columns that the file has.

    Raises InvalidInputError when two tables would have one label, or when there is nothing to load.
    """
    numbers: list[tuple[str, str, str]] = []
    lists: dict[str, list[tuple[str, str, str]]] = {}
    parts: dict[str, _Table] = {}
    skipped: list[str] = []
    for field in fields:
        form, detail = _form_of(empty[field].type.content)
        if form == "number":
            numbers.append((field, field, detail))
        elif form == "list":
            collection = _collection_of(field, known)
            lists.setdefault(collection or field, []).append(
                (field, field[len(collection) + 1 :] if collection else "", detail)
            )
        elif form == "records":
            dtype = np.dtype([(name, kind) for name, kind in detail])
            parts[field] = _Table(table_type(field, dtype), tuple((name, name) for name, _ in detail), "records")
        else:
            skipped.append(field)
    for collection, columns in lists.items():
        _add(source, parts, collection, columns, "lists")
    counters = {f"n{collection}" for collection, columns in lists.items() if columns[0][1]}
    singles = [column for column in numbers if column[0] not in counters]
    if singles:
        _add(source, parts, label, singles, "numbers")
    return Plan(source, parts, tuple(skipped))


def _add(source: str, parts: dict[str, _Table], label: str, columns: Sequence[tuple[str, str, str]], form: str) -> None:
    if label in parts:
        raise InvalidInputError(
            source=source, problem=f"two tables would be called {label}; give the label another name"
        )
    is_plain = not columns[0][1]
    dtype = np.dtype(columns[0][2]) if is_plain else np.dtype([(column, kind) for _, column, kind in columns])
    kind = table_type(label, dtype)
    parts[label] = _Table(kind, tuple((field, column or field) for field, column, _ in columns), form)


def _collection_of(field: str, known: Sequence[str]) -> str:
    """Return the longest beginning of a column's name that has a counter: Muon of Muon_pt when there is nMuon; else ""."""
    parts = field.split("_")
    for size in range(len(parts) - 1, 0, -1):
        collection = "_".join(parts[:size])
        if f"n{collection}" in known:
            return collection
    return ""


def _form_of(kind: Any) -> tuple[str, Any]:
    if isinstance(kind, ak.types.OptionType):
        kind = kind.content
    if isinstance(kind, ak.types.NumpyType):
        return ("number", kind.primitive) if _is_number(kind) else ("other", "")
    # Why parameters: text is a list of characters to awkward.
    if isinstance(kind, ak.types.ListType | ak.types.RegularType) and not kind.parameters:
        inner = kind.content
        inner = inner.content if isinstance(inner, ak.types.OptionType) else inner
        if isinstance(inner, ak.types.NumpyType) and _is_number(inner):
            return "list", inner.primitive
        if isinstance(inner, ak.types.RecordType) and inner.fields and not inner.is_tuple:
            forms = [(name, _form_of(content)) for name, content in zip(inner.fields, inner.contents, strict=True)]
            if all(form == "number" for _, (form, _) in forms):
                return "records", [(name, detail) for name, (_, detail) in forms]
    return "other", ""


def _is_number(kind: Any) -> bool:
    return kind.primitive == "bool" or (np.dtype(kind.primitive).kind in "iuf" and kind.primitive != "float128")
