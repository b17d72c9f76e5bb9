"""Collections of events: columns of tables that belong together, as the rules of a schema say, and what refers to what.

    muons = dataset.events()["Muon"]
    muons.pt                            an array: a list for each event; of all columns this one is read
    muons[["pt", "eta"]]                an array of records
    muons.matched_jet.pt                of the jet that each muon's jetIdx is the number of; None where there is none
    muons[:1000], muons[mask]           the same of some of the events

A view reads a column when it is first asked for, and keeps it. The columns of an event in one table are one product, so that
a column costs the reading of its table, and of no other.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.chosen_events import arrays_module, chosen_events
from keyplan.apps.hepnos.collection_reader import Field, Reader, fields_of
from keyplan.apps.hepnos.column_types import column_type
from keyplan.apps.hepnos.dataset_ref import DataSetRef
from keyplan.apps.hepnos.errors import MissingError
from keyplan.apps.hepnos.event_lists import EventLists
from keyplan.apps.hepnos.pointers import Pointer, Rule, pointer_of, rules_of
from keyplan.apps.hepnos.schemas import Schema, placed, schema_named, schema_of
from keyplan.apps.hepnos.table_notes import chosen_columns
from keyplan.apps.hepnos.tables import TableRows, Tables
from keyplan.errors import InvalidInputError

__all__ = ["Collection", "Collections", "Related"]


class Collections(Mapping[str, "Collection"]):
    """The collections of some events of a data set by name, and the schema that they were recognised by."""

    def __init__(self, dataset: DataSetRef, events: npt.NDArray[Any], schema: str | None = None) -> None:
        self.dataset = dataset
        self._reader = Reader(events)
        self._given = schema

    @property
    def events(self) -> npt.NDArray[Any]:
        """The events, an array of EVENT_COLUMNS."""
        return self._reader.events

    @cached_property
    def schema(self) -> Schema:
        """The rules that say what belongs together: those that were named, or that the columns are recognised by.

        Raises InvalidInputError for a name of none.
        """
        if self._given is None:
            return schema_of([field.path for field in self.fields])
        found = schema_named(self._given)
        if found is None:
            raise InvalidInputError(source="schema", problem=f"there is none called {self._given}")
        return found

    @cached_property
    def fields(self) -> list[Field]:
        """The columns of all tables."""
        return fields_of(Tables(self.dataset))

    @cached_property
    def _columns(self) -> dict[str, dict[str, Field]]:
        places = placed(self.schema, [field.path for field in self.fields])
        found: dict[str, dict[str, Field]] = {}
        for field in self.fields:
            if (place := places.get(field.path)) is not None:
                columns = found.setdefault(place.collection, {})
                known = columns.get(place.column)
                columns[place.column] = field if known is None else known.with_other(field)
        return found

    def of_events(self, events: npt.NDArray[Any]) -> "Collections":
        """Return the same of other events."""
        found = Collections(self.dataset, events, self._given)
        found.__dict__ |= {
            name: self.__dict__[name] for name in ("schema", "fields", "_columns") if name in self.__dict__
        }
        return found

    def __getitem__(self, name: str) -> "Collection":
        if name not in self._columns:
            raise MissingError(table="collections", key=f"{self.dataset.path} {name}")
        return Collection(self, self._reader, name, self._columns[name])

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return (
            f"<Collections of {len(self.events)} events of {self.dataset.path}, {self.schema.name}: {', '.join(self)}>"
        )


class Collection:
    """What events have of one kind: columns by name, and rows of other collections that its rows refer to.

    `muons["pt"]` and `muons.pt` are an array with a list, or a value, for each event, None where an event has no product;
    `muons[["pt", "eta"]]` and `array()` are records. A number chooses an event; a slice, a mask or an array of numbers
    chooses events, and gives a Collection. Where a column is called like a method, the brackets find it.
    """

    def __init__(self, collections: Collections, reader: Reader, name: str, columns: Mapping[str, Field]) -> None:
        self.collections = collections
        self._reader = reader
        self._fields = columns
        self.name = name

    @property
    def events(self) -> npt.NDArray[Any]:
        """The events, an array of EVENT_COLUMNS; entry i of each array is of event i."""
        return self._reader.events

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of its columns; none where it is one array."""
        return tuple(name for name in self._fields if name)

    @property
    def schema(self) -> dict[str, str]:
        """The types of its columns; "" is the array of one without columns."""
        return {name: field.type_name for name, field in self._fields.items()}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns; "" where it is one array."""
        return tuple(self._fields)

    @cached_property
    def references(self) -> tuple[str, ...]:
        """What its rows refer to: `muons.matched_jet`."""
        return tuple(self.rules)

    @cached_property
    def rules(self) -> dict[str, Rule]:
        """The references by name, with the columns that they are made of."""
        return rules_of(self.name, self.columns, self.collections, self.collections.schema)

    def array(self, columns: Sequence[str] | None = None, exclude: Sequence[str] = ()) -> Any:
        """Return columns, by names or patterns, as one array: of records in a list for each event.

        Columns that have lists and columns that have a value for each event are, together, one record for each event. Raises
        InvalidInputError: there is no such column, or lists of two columns differ in length, which no records have.
        """
        return self._array(self._chosen(columns, exclude))

    def _chosen(self, columns: Sequence[str] | None, exclude: Sequence[str]) -> list[str]:
        chosen = chosen_columns(self.name, list(self._fields), columns, exclude)
        if not chosen:
            raise InvalidInputError(source=self.name, problem="all of its columns are excluded")
        return chosen

    def _array(self, chosen: Sequence[str]) -> Any:
        arrays = arrays_module()
        fields = [self._fields[name] for name in chosen]
        if list(chosen) == [""]:
            return self._entries(fields[0])
        if any(self._is_single(field) for field in fields):
            return arrays.of_events({name: self._entries(each) for name, each in zip(chosen, fields, strict=True)})
        lists = self.column_lists(chosen)
        rows = arrays.records({name: each.rows for name, each in zip(chosen, lists, strict=True)})
        return arrays.listed(lists[0]._replace(rows=rows))

    def filled(self, columns: Sequence[str], *, is_column: bool = False) -> Any:
        """Return columns as records, or one column by itself; an event without a product of the table has an empty list.

        The form of the array hangs on its type alone.

        Raises InvalidInputError for single values that an event has none of, and as `array`.
        """
        arrays = arrays_module()
        lists = self._reader.lists([self._fields[name] for name in columns])
        found = {
            name: self._single(self._fields[name], each)
            if self.is_single(name)
            else arrays.listed(each, is_filled=True)
            for name, each in zip(columns, lists, strict=True)
        }
        for name, each in zip(columns, lists, strict=True):
            if self.is_single(name) and not np.diff(each.offsets).all():
                event = " ".join(map(str, self.events[int(np.diff(each.offsets).argmin())].tolist()))
                problem = f"event {event} has no {name or self.name}: choose events that have it, or leave it out"
                raise InvalidInputError(source=self.name, problem=problem)
        if is_column or list(columns) == [""]:
            return arrays.packed(found[columns[0]])
        if any(self.is_single(name) for name in columns):
            return arrays.packed(arrays.of_events(found))
        self._reader.check_lengths(self.name, columns, lists, may_lack=False)
        rows = arrays.records({name: each.rows for name, each in zip(columns, lists, strict=True)})
        return arrays.packed(arrays.listed(lists[0]._replace(rows=rows), is_filled=True))

    def is_single(self, name: str) -> bool:
        """Tell whether a column has one value for each event."""
        return self._is_single(self._fields[name])

    def has_type(self, name: str) -> bool:
        """Tell whether one type holds the column in all versions of its table."""
        return column_type(self._fields[name].type_name) is not None

    def branch(self, name: str) -> Any:
        """Return a column as the file has it: a list for each event, also where each has one row; else as `filled`."""
        if not self.has_lists(name):
            return self.filled([name], is_column=True)
        (lists,) = self.column_lists([name])
        if "" not in self._fields:
            self._reader.check_counts(self.name, name, lists, self.counts())
        return arrays_module().packed(arrays_module().listed(lists, is_filled=True))

    def sources(self, columns: Sequence[str] | None = None, exclude: Sequence[str] = ()) -> dict[str, list[Field]]:
        """Return the columns of tables that its columns are, by names or patterns, by table. Raises InvalidInputError."""
        found: dict[str, list[Field]] = {}
        for name in self._chosen(columns, exclude):
            for part in self._fields[name].parts:
                found.setdefault(part.table.key, []).append(part)
        return found

    def counts(self) -> npt.NDArray[np.int64]:
        """Return how many rows each event has; 0 where it has no product. One column tells, of tables of columns another."""
        return self._reader.counts([field for field in self._fields.values() if not field.is_single])

    def has_lists(self, name: str) -> bool:
        """Tell whether a column is of a table that has any number of rows in an event."""
        return not self._fields[name].is_single

    def branch_of(self, name: str) -> str:
        """Return what a file of this kind calls a column."""
        field = self._fields[name]
        if field.is_single or not field.column:
            return field.path
        template, _ = self.collections.schema.branch_names
        return template.format(table=field.table.key, column=field.column)

    def rows(
        self, columns: Sequence[str] | None = None, exclude: Sequence[str] = (), missing: Any = "null"
    ) -> TableRows:
        """Return the same as the rows of all events that have it, one after the other; `missing` as of `Table.load`.

        Raises as `array`.
        """
        chosen = self._chosen(columns, exclude)
        lists = self._reader.together(self.name, {name: self._fields[name] for name in chosen}, missing)
        if chosen == [""]:
            found = lists[0].rows
        else:
            found = arrays_module().records({name: each.rows for name, each in zip(chosen, lists, strict=True)})
        is_there = lists[0].is_there
        counts = np.diff(lists[0].offsets)[is_there]
        return TableRows(self.events[is_there], np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), found)

    def _is_single(self, field: Field) -> bool:
        return field.is_single or self.name in self.collections.schema.single_rows

    def _entries(self, field: Field) -> Any:
        (lists,) = self._reader.lists([field])
        return self._single(field, lists) if self._is_single(field) else arrays_module().listed(lists)

    def _single(self, field: Field, lists: EventLists) -> Any:
        if len(lists.offsets) and int(np.diff(lists.offsets).max(initial=0)) > 1:
            run, subrun, event = self.events[int(np.diff(lists.offsets).argmax())].tolist()
            problem = f"event {run} {subrun} {event} has several, where each has one: take its table, {field.table.key}"
            raise InvalidInputError(source=self.name, problem=problem)
        return arrays_module().single(lists)

    def column_lists(self, names: Sequence[str]) -> list[EventLists]:
        """Return columns as rows of all events, one after the other, and where those of each event begin and end.

        The same for all of them: of a column that an event has no product of, its rows are nothing. Raises
        InvalidInputError: lists of two columns differ in length.
        """
        return self._reader.together(self.name, {name: self._fields[name] for name in names})

    # ---- what is asked for -------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._named(key)
        if isinstance(key, list) and key and all(isinstance(name, str) for name in key):
            # Why one by one: in the order that was asked for.
            chosen = [column for name in key for column in chosen_columns(self.name, [*self._fields], [name])]
            return self._array(list(dict.fromkeys(chosen)))
        if isinstance(key, int | np.integer):
            position = range(len(self))[int(key)]
            return self[position : position + 1].array()[0]
        return self.collections.of_events(chosen_events(self.events, key))[self.name]

    def _named(self, name: str) -> Any:
        if name in self._fields:
            return self._entries(self._fields[name])
        if name in self.rules:
            return Related(self, (self.rules[name],))
        group = {
            column.removeprefix(f"{name}."): field
            for column, field in self._fields.items()
            if column.startswith(f"{name}.")
        }
        if not group:
            raise InvalidInputError(source=self.name, problem=self._unknown(name))
        return Collection(self.collections, self._reader, f"{self.name}.{name}", group).array()

    def __getattr__(self, name: str) -> Any:
        # Why no underscore: copying and pickling ask for names that no column has.
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self:
            raise AttributeError(f"{self.name}: {self._unknown(name)}", name=name, obj=self)
        return self._named(name)

    def _unknown(self, name: str) -> str:
        known = ", ".join([*self.fields, *self.references][:40])
        return f"it has no column or reference {name}; it has {known}"

    def __contains__(self, name: object) -> bool:
        return (
            name in self._fields or name in self.references or any(each.startswith(f"{name}.") for each in self._fields)
        )

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array())

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.fields, *self.references})

    def __repr__(self) -> str:
        columns = ", ".join([*self.fields, *self.references])
        return f"<Collection {self.name} of {len(self)} events of {self.collections.dataset.path}: {columns}>"


class Related:
    """The rows that those of a collection refer to: for each row one, or a list; None where there is none.

    `muons.matched_jet.pt` reads what says which jet it is, and the jets' pt. Of several collections it has the columns that
    all of them have.
    """

    def __init__(self, source: Collection, rules: tuple[Rule, ...]) -> None:
        self._collections = source.collections
        self._source = source
        self._rules = rules

    def _pointer(self, columns: Sequence[str]) -> Pointer:
        """Return what is pointed at in the end, reference by reference; `columns` are what will be read there."""
        source, found = self._source, None
        arrays = arrays_module()
        for at, rule in enumerate(self._rules):
            # Why these: rows are counted in the columns that are read next, as they are read.
            wanted = columns if at == len(self._rules) - 1 else self._rules[at + 1].columns
            step = pointer_of(arrays, rule, source, self._collections, self._collections.schema, wanted)
            if found is None:
                found = step
            else:
                rows = arrays.pointed(found.lists.rows, step.lists.rows, may_lack=found.may_lack)
                found = Pointer(found.lists._replace(rows=rows), step.targets, step.may_lack)
            if at < len(self._rules) - 1:
                source = self._one(found)
        assert found is not None
        return found

    def _one(self, pointer: Pointer) -> Collection:
        if len(pointer.targets) != 1:
            problem = f"{self.name} leads to several collections, whose references are not followed"
            raise InvalidInputError(source=self._source.name, problem=problem)
        return self._collections[pointer.targets[0].name]

    @property
    def name(self) -> str:
        """The way to it: "matched_jet.matched_gen"."""
        return ".".join(rule.name for rule in self._rules)

    @property
    def targets(self) -> tuple[str, ...]:
        """The collections that it leads to. Which these are may stand in the data, which is then read."""
        return self._rules[-1].targets if self._is_declared else tuple(each.name for each in self._pointer(()).targets)

    @property
    def _is_declared(self) -> bool:
        return self._rules[-1].form in {"index", "link", "count"}

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns that all of the targets have."""
        each = [self._collections[name].fields for name in self.targets]
        return tuple(name for name in each[0] if all(name in other for other in each)) if each else ()

    @property
    def references(self) -> tuple[str, ...]:
        """What its rows refer to in turn."""
        targets = self.targets
        return self._collections[targets[0]].references if len(targets) == 1 else ()

    def array(self, columns: Sequence[str] | None = None, exclude: Sequence[str] = ()) -> Any:
        """Return columns of what is referred to, by names or patterns, as records; as `Collection.array`."""
        chosen = chosen_columns(self.name, list(self.fields) or [""], columns, exclude)
        return self._read(chosen, is_one=chosen == [""])

    def _read(self, names: Sequence[str], *, is_one: bool) -> Any:
        pointer = self._pointer(names)
        arrays = arrays_module()
        parts: list[Any] = []
        for target in pointer.targets:
            lists = target.column_lists(names)
            own = {name: each.rows for name, each in zip(names, lists, strict=True)}
            parts.append(own[names[0]] if is_one else arrays.records(own))
        content = arrays.joined_rows(parts) if parts else arrays.nothing()
        rows = arrays.pointed(pointer.lists.rows, content, may_lack=pointer.may_lack)
        return arrays.listed(pointer.lists._replace(rows=rows))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, list) and key and all(isinstance(name, str) for name in key):
            return self.array(key)
        if isinstance(key, str):
            return self._named(key)
        return Related(self._source[key], self._rules)

    def _named(self, name: str) -> Any:
        if name in self.fields:
            return self._read([name], is_one=True)
        rules = self._next_rules
        if name not in rules:
            raise InvalidInputError(source=self.name, problem=self._unknown(name))
        return Related(self._source, (*self._rules, rules[name]))

    @property
    def _next_rules(self) -> dict[str, Rule]:
        targets = self.targets
        return self._collections[targets[0]].rules if len(targets) == 1 else {}

    def _unknown(self, name: str) -> str:
        known = ", ".join([*self.fields, *self._next_rules][:40])
        return f"it has no column or reference {name}; it has {known}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # Why: as above.
            raise AttributeError(name)
        if name not in self.fields and name not in self._next_rules:
            raise AttributeError(f"{self.name}: {self._unknown(name)}", name=name, obj=self)
        return self._named(name)

    def __len__(self) -> int:
        return len(self._source)

    def __repr__(self) -> str:
        return f"<{self._source.name}.{self.name} of {len(self)} events>"
