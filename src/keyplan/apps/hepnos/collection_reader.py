"""The columns of some events, as collections read them: each once, and columns of several tables in the same length."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.chosen_events import arrays_module
from keyplan.apps.hepnos.column_types import column_type, wider
from keyplan.apps.hepnos.event_lists import EventLists, aligned, event_lists, unequal_event
from keyplan.apps.hepnos.product_types import values_module
from keyplan.apps.hepnos.tables import Table
from keyplan.errors import InvalidInputError

__all__ = ["Field", "Reader", "fields_of"]


class Field:
    """A column of a table, by the path that rules know it by; no column: the rows themselves, which have no names."""

    def __init__(self, table: Table, column: str, type_name: str) -> None:
        self.table = table
        self.column = column
        self.type_name = type_name
        path = f"{table.key}/{column}" if column else table.key
        self.path = column if table.is_single and column else path
        self.others: tuple[Field, ...] = ()
        """Columns that are the same by the rules: of files that have Muon_pt as a table, beside those with a table Muon."""

    @property
    def is_single(self) -> bool:
        """Whether it has one value for each event."""
        return self.table.is_single

    @property
    def parts(self) -> "tuple[Field, ...]":
        """The columns of tables that it is: an event has one of them."""
        return (self, *self.others)

    def with_other(self, other: "Field") -> "Field":
        """Return the union of both, with the type that holds the values of both, or both types where none does."""
        types = column_type(self.type_name), column_type(other.type_name)
        kind = wider(types[0], types[1]) if types[0] is not None and types[1] is not None else None
        told = " | ".join(dict.fromkeys((self.type_name, other.type_name)))
        found = Field(self.table, self.column, told if kind is None else str(kind))
        found.others = (*self.others, other)
        return found


def fields_of(tables: Mapping[str, Table]) -> list[Field]:
    """Return the columns of tables."""
    return [Field(table, column, kind) for table in tables.values() for column, kind in table.schema.items()]


class Reader:
    """The columns of some events, each read once."""

    def __init__(self, events: npt.NDArray[Any]) -> None:
        self.events = events
        self._read: dict[tuple[str, str], EventLists] = {}

    def lists(self, fields: Sequence[Field]) -> list[EventLists]:
        """Return fields, those of one table by one read of it. Raises InvalidInputError as `Table.load`."""
        parts = self._lists([part for field in fields for part in field.parts])
        return [_united(self.events, field, parts) for field in fields]

    def _lists(self, fields: Sequence[Field]) -> dict[Field, EventLists]:
        missing: dict[str, list[Field]] = {}
        for field in fields:
            if (field.table.key, field.column) not in self._read:
                missing.setdefault(field.table.key, []).append(field)
        for key, own in missing.items():
            names = [field.column for field in own]
            found = event_lists(own[0].table, self.events, None if names == [""] else names)
            for name in names:
                self._read[key, name] = found._replace(rows=found.rows[name] if name else found.rows)
        return {field: self._read[field.table.key, field.column] for field in fields}

    def together(self, source: str, fields: Mapping[str, Field], missing: Any = "null") -> list[EventLists]:
        """Return fields by name as rows of the same events and of the same number.

        Of an event that has no product of one of them, or has it in a version without the column, `missing` says what is in
        its rows, as of `Table.load`; for each column by its name in a dict. Raises InvalidInputError: two columns have lists
        of two lengths in an event, or one has none, with "refuse".
        """
        names, own = list(fields), list(fields.values())
        is_null = isinstance(missing, str) and missing == "null"
        lists = self.lists(own) if is_null else self._with_missing(fields, missing)
        self.check_lengths(source, names, lists)
        if isinstance(missing, str) and missing == "refuse":
            self.check_lengths(source, names, lists, may_lack=False)
        arrays = arrays_module()
        values = [None if is_null else _value_of(name, missing) for name in names]
        return aligned(
            lists,
            [partial(arrays.taken_or_missing, source, name, value) for name, value in zip(names, values, strict=True)],
        )

    def _with_missing(self, fields: Mapping[str, Field], missing: Any) -> list[EventLists]:
        parts: dict[Field, EventLists] = {}
        for name, field in fields.items():
            for part in field.parts:
                given = {part.column: missing.get(name)} if isinstance(missing, Mapping) else missing
                columns = [part.column] if part.column else None
                read = event_lists(part.table, self.events, columns, missing=given)
                parts[part] = read._replace(rows=read.rows[part.column] if part.column else read.rows)
        return [_united(self.events, field, parts) for field in fields.values()]

    def counts(self, fields: Sequence[Field]) -> npt.NDArray[np.int64]:
        """Return how many rows the fields have in each event, reading tables until each event was seen in one."""
        found = np.full(len(self.events), -1, np.int64)
        for field in {field.table.key: field for field in reversed(fields)}.values():
            (lists,) = self.lists([field])
            found = np.where(lists.is_there, np.diff(lists.offsets), found)
            if found.min(initial=0) >= 0:
                break
        return np.maximum(found, 0)

    def check_counts(self, source: str, name: str, lists: EventLists, counts: npt.NDArray[np.int64]) -> None:
        """Raise InvalidInputError when an event has other rows of a column than the collection has."""
        is_other = np.diff(lists.offsets) != counts
        if is_other.any():
            event = " ".join(map(str, self.events[int(is_other.argmax())].tolist()))
            problem = f"event {event} has not so many {name} as rows: choose events that have it, or exclude its table"
            raise InvalidInputError(source=source, problem=problem)

    def check_lengths(
        self, source: str, names: Sequence[str], lists: Sequence[EventLists], *, may_lack: bool = True
    ) -> None:
        """Raise InvalidInputError when two columns differ in the length of an event's lists; None is no list if `may_lack`."""
        given = lists if may_lack else [each._replace(is_there=np.ones(len(self.events), np.bool_)) for each in lists]
        unequal = unequal_event(given)
        if unequal is None:
            return
        one, other, position = unequal
        event = " ".join(map(str, self.events[position].tolist()))
        absent = [names[at] for at in (one, other) if not lists[at].is_there[position]]
        if absent:
            present = names[other if absent[0] == names[one] else one]
            problem = f"event {event} has {present} and no {absent[0]}: choose events that have it, or leave it out"
        else:
            problem = (
                f"{names[one]} and {names[other]} have lists of two lengths in event {event}: take them one by one"
            )
        raise InvalidInputError(source=source, problem=problem)


def _united(events: npt.NDArray[Any], field: Field, parts: Mapping[Field, EventLists]) -> EventLists:
    """Return a column of several tables as one. Raises InvalidInputError: an event has two of them, or no type holds both."""
    found = [parts[part] for part in field.parts]
    if len(found) == 1:
        return found[0]
    kind = column_type(field.type_name)
    keys = " and ".join(part.table.key for part in field.parts)
    if kind is None:
        raise InvalidInputError(source=field.path, problem=f"it is {field.type_name} in {keys}: take the tables")
    is_twice = np.sum([each.is_there for each in found], axis=0) > 1
    if is_twice.any():
        event = " ".join(map(str, events[int(is_twice.argmax())].tolist()))
        raise InvalidInputError(source=field.path, problem=f"event {event} has it in {keys}: take one of the tables")
    counts = np.sum([np.diff(each.offsets) for each in found], axis=0)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    # Why by these: row i of the events is the next of whichever table its event has it in.
    source = np.argmax([each.is_there for each in found], axis=0)
    order = np.argsort(np.repeat(source, counts), kind="stable")
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    rows = values_module().joined(
        [values_module().cast(values_module().from_rows(each.rows), kind) for each in found], kind
    )
    return EventLists(np.any([each.is_there for each in found], axis=0), offsets, rows[position])


def _value_of(name: str, missing: Any) -> Any:
    return missing.get(name) if isinstance(missing, Mapping) else missing
