"""From the rows of a file's table to products: what loaders of all formats share. Files are read elsewhere.

Of a table only the numbers of its rows are kept whole, some sixty bytes a row. All else is read in parts: events in the order
in which they first appear, as many as have GROUP_BYTES of rows; all rows of an event are in one part, wherever they stand.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.bulk import EventProducts, create_items, store_event_products
from keyplan.apps.hepnos.columns import Columns, checked_column, key_matrix, places, raw_keys
from keyplan.apps.hepnos.entry_files import EntryFile, EntrySubruns
from keyplan.apps.hepnos.errors import InvalidNumberError
from keyplan.apps.hepnos.keys import Kind, product_suffix
from keyplan.apps.hepnos.product_types import RowsType, values_module
from keyplan.apps.hepnos.table_notes import note_tables
from keyplan.apps.hepnos.table_versions import refuse_other_versions, replace_versions
from keyplan.errors import InvalidInputError, KeyplanError

if TYPE_CHECKING:  # Why: what is loaded goes into a data set; its module knows nothing of files.
    from keyplan.apps.hepnos.datasets import DataSet

__all__ = ["GROUP_BYTES", "Loaded", "Progress", "Rows", "Source", "load_source", "reading"]

GROUP_BYTES: Final = 32 << 20
"""Why: a part is in memory about five times, read, joined, sorted, serialized, with keys; and a commit has some MiB anyway."""

_COMPARED_AT_ONCE: Final = 1_000
"""Why: over a network many products are one call."""

_NAMES: Final = ("run", "subrun", "event")

Progress = Callable[[int, int], None]
"""Told how many events of a table are done, and how many there are; 0 when the table begins."""


class Rows(NamedTuple):
    """Some entries of a table. Entry i has counts[i] rows, which stand one after the other; -1: it has no product."""

    kind: RowsType
    counts: npt.NDArray[np.int64]
    rows: Any
    """Of numpy or of awkward, as `RowsType.encode_rows` takes them."""


class Source(ABC):
    """One table of one file. `tables` are the labels and types of the products that its entries become."""

    name: str
    entries: int
    entry_bytes: int
    tables: Mapping[str, RowsType]
    table_name: str | None = None
    """What the table is called, where it shares its label with others."""
    skipped: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    """Patterns of columns that match none of it."""
    singles: frozenset[str] = frozenset()
    """Those of the tables that have one row for each event: its single values."""
    entry_file: EntryFile | None = None
    """The file, where its entries are what numbers its events."""
    has_lists: bool = False
    """True when an entry is a whole event, with any number of rows for each label."""

    @abstractmethod
    def numbers(self) -> tuple[Any, Any, Any]:
        """Return run, subrun and event of all entries."""

    @abstractmethod
    def read(self, begin: int, end: int) -> dict[str, Rows]:
        """Return the entries from `begin` to before `end`, by label."""


class Loaded(NamedTuple):
    """What was loaded of a table. `created` counts the events that were new; `skipped` names columns that nothing here holds.

    `lacking` are patterns of columns that match none of its file, which only `may_lack` lets pass.
    """

    source: str
    entries: int
    events: int
    created: int
    products: int
    labels: tuple[str, ...]
    skipped: tuple[str, ...]
    lacking: tuple[str, ...] = ()


@contextmanager
def reading(source: str, damage: tuple[type[BaseException], ...]) -> Iterator[None]:
    """Raise InvalidInputError for what a package raises when a file is damaged, or in a form that it does not know."""
    try:
        yield
    except KeyplanError:
        raise  # Why: some of ours are errors of these kinds as well.
    except damage as error:
        first_line = str(error).strip().partition("\n")[0]
        problem = f"it cannot be read: {type(error).__name__}{': ' if first_line else ''}{first_line}"
        raise InvalidInputError(source=source, problem=problem) from error


def load_source(
    dataset: "DataSet",
    source: Source,
    *,
    replace: bool = False,
    same_events: bool = False,
    progress: Progress | None = None,
) -> Loaded:
    """Load a table: create its events with their parents, and store the rows of each event as a product of each label.

    Doing it again, after a crash for one, ends in the same. A product that has other rows is refused, after the others of its
    part are written, or replaced with `replace`. A subrun whose events are the entries of one file takes nothing of another,
    unless the caller knows that these are the `same_events`. Raises InvalidInputError, InvalidNumberError.
    """
    try:
        columns = [checked_column(name, given) for name, given in zip(_NAMES, source.numbers(), strict=True)]
    except InvalidNumberError as error:
        raise InvalidNumberError(source=source.name, **error.facts) from error
    if {len(column) for column in columns} != {source.entries}:
        raise InvalidInputError(
            source=source.name, problem="run, subrun and event are not as long as the other columns"
        )
    blocks = _Blocks(columns)
    if source.has_lists and blocks.repeated is not None:
        run, subrun, event = (int(column[blocks.repeated]) for column in columns)
        problem = f"event {run} {subrun} {event} stands in several entries, whose lists cannot be told apart"
        problem += "; number events by entry, --event 'Entry$'"
        raise InvalidInputError(source=source.name, problem=problem)
    subruns = EntrySubruns(dataset, source.name, source.entry_file, columns[:2])
    subruns.begin(same_events=same_events)
    done = created = products = 0
    if progress is not None:
        progress(0, blocks.events)
    for begin, end, is_chosen, events in blocks.groups(max(1, GROUP_BYTES // max(1, source.entry_bytes))):
        own = [column[begin:end][is_chosen] for column in columns]
        created += create_items(dataset, *own).events
        products += _store(dataset, source, own, _read(source, begin, end, is_chosen), replace=replace)
        done += events
        if progress is not None:
            progress(done, blocks.events)
    if not same_events:
        subruns.refuse_others()
    # Why again: there may be no entries, and a sweep may have found a note before there were products.
    note_tables(dataset, source.tables, name=source.table_name, singles=source.singles)
    labels = tuple(source.tables)
    return Loaded(source.name, source.entries, blocks.events, created, products, labels, source.skipped, source.lacking)


class _Blocks:
    """The rows of a table as blocks of consecutive rows of one event."""

    def __init__(self, columns: Columns) -> None:
        is_first = np.zeros(len(columns[0]), bool)
        is_first[:1] = True
        for column in columns:
            is_first[1:] |= column[1:] != column[:-1]
        self._starts = np.flatnonzero(is_first)
        self._sizes = np.diff(self._starts, append=len(columns[0]))
        heads = [column[self._starts] for column in columns]
        order = np.lexsort(heads[::-1])
        is_new = np.zeros(len(order), bool)
        is_new[:1] = True
        for head in heads:
            is_new[1:] |= head[order][1:] != head[order][:-1]
        # Why stable: of the blocks of an event, the first in the file comes first.
        first_blocks = order[is_new]
        self.events = len(first_blocks)
        appearance = np.empty(self.events, np.int64)
        appearance[np.argsort(first_blocks)] = np.arange(self.events)
        self._event_of = np.empty(len(order), np.int64)
        self._event_of[order] = appearance[np.cumsum(is_new) - 1]
        again = order[~is_new]
        is_one_row = bool((self._sizes == 1).all())
        long = self._starts[self._sizes > 1]
        self.repeated: int | None = (
            int(self._starts[again.min()]) if len(again) else None if is_one_row else int(long[0])
        )
        """A row whose event has other rows, too."""

    def groups(self, rows_max: int) -> Iterator[tuple[int, int, Any, int]]:
        """Yield parts of about `rows_max` rows: from which row to which, which of them, all or as a mask, and their events."""
        if not len(self._starts):
            return
        rows_of = np.bincount(self._event_of, weights=self._sizes).astype(np.int64)
        groups = (np.cumsum(rows_of) - 1) // rows_max
        events = np.unique(groups, return_counts=True)[1].tolist()
        group_of = groups[self._event_of]
        order = np.argsort(group_of, kind="stable")
        cuts = np.flatnonzero(np.diff(group_of[order])) + 1
        for blocks, count in zip(np.split(order, cuts), events, strict=True):
            first, last = int(blocks[0]), int(blocks[-1])
            begin, end = int(self._starts[first]), int(self._starts[last] + self._sizes[last])
            if len(blocks) == last - first + 1:
                yield begin, end, slice(None), count
                continue
            is_own = group_of[first : last + 1] == group_of[first]
            yield begin, end, np.repeat(is_own, self._sizes[first : last + 1]), count


def _read(source: Source, begin: int, end: int, is_chosen: Any) -> dict[str, Rows]:
    """Read a part. Where its rows are scattered, what lies between them is read in pieces, and left."""
    if isinstance(is_chosen, slice):
        return source.read(begin, end)
    step = max(1, GROUP_BYTES // max(1, source.entry_bytes))
    parts: dict[str, list[Any]] = {label: [] for label in source.tables}
    for at in range(begin, end, step):
        own = is_chosen[at - begin : at - begin + step]
        if own.any():
            for label, piece in source.read(at, min(at + step, end)).items():
                parts[label].append(piece.rows[own])
    return {label: _flat(source.tables[label], rows) for label, rows in parts.items()}


def _flat(kind: RowsType, parts: Sequence[Any]) -> Rows:
    is_numpy = isinstance(parts[0], np.ndarray)
    rows = np.concatenate(parts) if is_numpy else values_module().joined(parts, kind.row)
    return Rows(kind, np.ones(len(rows), np.int64), rows)


# ---- writing ------------------------------------------------------------------------------------------------------------


def _store(dataset: "DataSet", source: Source, columns: Columns, read: Mapping[str, Rows], *, replace: bool) -> int:
    """Store the rows of a part; return how many products they are."""
    as_products = _as_lists if source.has_lists else _as_rows
    tables = [
        EventProducts(label, rows.kind, *as_products(*_without_absent(columns, rows))) for label, rows in read.items()
    ]
    name = source.table_name
    if not replace:
        # Why before the notes: a version that was refused would stay in the union, and have no rows.
        refuse_other_versions(dataset, source.name, tables, name=name)
    note_tables(dataset, {table.label: table.type for table in tables}, name=name, singles=source.singles)
    count = sum(len(table.values) for table in tables)
    if replace:
        replace_versions(dataset, tables, name=name)
        return count
    if store_event_products(dataset, tables, mode="new") < count:
        for table in tables:
            _compare(dataset, source, table)
    refuse_other_versions(dataset, source.name, tables, name=name)
    return count


def _without_absent(columns: Columns, rows: Rows) -> tuple[Columns, Rows]:
    is_present = rows.counts >= 0
    if is_present.all():
        return columns, rows
    return [column[is_present] for column in columns], rows._replace(counts=rows.counts[is_present])


def _as_rows(columns: Columns, rows: Rows) -> tuple[Columns, list[bytes]]:
    """Return the events of rows that each are of one event, and the products; an event's rows stay in their order."""
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    is_first = np.zeros(len(order), bool)
    is_first[:1] = True
    for column in ordered:
        is_first[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(is_first)
    counts = np.diff(starts, append=len(order))
    return [column[starts] for column in ordered], rows.kind.encode_rows(rows.rows[order], counts)


def _as_lists(columns: Columns, rows: Rows) -> tuple[Columns, list[bytes]]:
    return columns, rows.kind.encode_rows(rows.rows, rows.counts)


def _compare(dataset: "DataSet", source: Source, table: EventProducts) -> None:
    """Refuse when an event already had other rows: another file, or another version of this one, was loaded before.

    Why after writing: so that of two loaders which meet at an event at least one sees the other.
    """
    databases = dataset.datastore.databases
    columns, values = table.columns, table.values
    matrix = key_matrix(dataset.uuid, columns)
    suffix = product_suffix(table.label, table.type.name)
    homes = places(matrix[:, :4], len(databases.rings[Kind.PRODUCT].databases))
    items = raw_keys(matrix)
    for database in np.unique(homes).tolist():
        own = np.flatnonzero(homes == database).tolist()
        with databases.snapshot(Kind.PRODUCT, database) as snapshot:
            for begin in range(0, len(own), _COMPARED_AT_ONCE):
                part = own[begin : begin + _COMPARED_AT_ONCE]
                stored = snapshot.values([items[at] + suffix for at in part])
                other = next((at for at, value in zip(part, stored, strict=True) if value != values[at]), None)
                if other is not None:
                    run, subrun, event = (int(column[other]) for column in columns)
                    problem = f"event {run} {subrun} {event} has other rows of {table.label} already"
                    raise InvalidInputError(source=source.name, problem=problem)
