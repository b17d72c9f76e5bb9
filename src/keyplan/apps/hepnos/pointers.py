"""Where the rows of a collection point at: from the columns that a rule names to indexes of rows of other collections.

An index counts the rows of all events, one after the other, those of several targets target by target. What is not there,
a row beyond the end of its event's or a collection that the data set has not, is pointed at by nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from keyplan.apps.hepnos.event_lists import EventLists
from keyplan.apps.hepnos.podio import collection_id
from keyplan.apps.hepnos.schemas import Reference, Schema
from keyplan.errors import InvalidInputError

__all__ = ["Pointer", "Rule", "Target", "pointer_of", "rules_of"]

Numbers = npt.NDArray[np.int64]

_OBJECT: tuple[str, str] = ("index", "collectionID")
"""The columns of podio's ObjectIDs."""
_COUNTED_BELOW = 1 << 16
"""Why: no file had so many collections, and of 65,536 names one has a digest as small."""
_LINK: tuple[str, str] = ("m_persIndex", "m_persKey")


class Target(Protocol):
    """A collection, as far as pointers know it."""

    name: str

    @property
    def columns(self) -> Sequence[str]:
        """The names of its columns; "" is the rows themselves."""
        ...

    def column_lists(self, names: Sequence[str]) -> list[EventLists]:
        """Return columns as rows of all events, one after the other, and where those of each event begin and end."""
        ...


Known = Mapping[str, Target]


class Rule(NamedTuple):
    """What a reference is for one collection: its columns, and the collections that it may lead to."""

    name: str
    form: str
    columns: tuple[str, ...]
    targets: tuple[str, ...]


class Pointer(NamedTuple):
    """Rows of indexes, or of lists of them, with the events that they are of; and the collections that they are of."""

    lists: EventLists
    targets: tuple[Target, ...]
    may_lack: bool = True
    """Whether an index may be one of nothing."""


# ---- which there are ----------------------------------------------------------------------------------------------------


def rules_of(name: str, columns: Sequence[str], known: Mapping[str, Any], schema: Schema) -> dict[str, Rule]:
    """Return the references of a collection by name. Those to collections that are not known are none."""
    found: dict[str, Rule] = {}
    taken: set[str] = set()
    # Why with fields: a link is a record, whose fields are columns.
    heads = list(dict.fromkeys([*columns, *(column.rpartition(".")[0] for column in columns if "." in column)]))
    for reference in schema.references:
        if re.fullmatch(reference.collection, name) is None:
            continue
        for rule in _rules(reference, name, heads, known, schema):
            # Why: of two rules for a column the first counts.
            own = [column for column in rule.columns if column not in taken]
            if (rule.columns and not own) or (rule.name in found and found[rule.name].targets != rule.targets):
                continue
            before = found[rule.name].columns if rule.name in found else ()
            found[rule.name] = rule._replace(columns=(*before, *own))
            taken.update(own)
    return found


def _rules(
    reference: Reference, name: str, columns: Sequence[str], known: Mapping[str, Any], schema: Schema
) -> Iterator[Rule]:
    if reference.form == "object":
        pattern = reference.target.replace("{collection}", re.escape(name))
        for other in known:
            match = re.fullmatch(pattern, other)
            if match is not None and f"{match[1]}_begin" not in columns and not _is_longer(name, match[1], known):
                yield Rule(match.expand(reference.name), reference.form, (), (other,))
        return
    for column in columns:
        match = re.fullmatch(reference.column, column)
        if match is None:
            continue
        targets: tuple[str, ...] = (match.expand(reference.target.replace("{collection}", name)),)
        if not reference.target:
            targets = tuple(target for _, target in schema.link_keys if target in known)
        if all(target in known for target in targets) and (targets or reference.form == "self"):
            yield Rule(match.expand(reference.name), reference.form, (column,), targets)


def _is_longer(name: str, rest: str, known: Mapping[str, Any]) -> bool:
    """Tell whether a relation is that of a collection whose name is longer: `_Jets_PID_x` of Jets_PID."""
    parts = rest.split("_")
    return any(f"{name}_{'_'.join(parts[:size])}" in known for size in range(1, len(parts)))


# ---- what they point at -------------------------------------------------------------------------------------------------


def pointer_of(
    arrays: Any, rule: Rule, source: Target, known: Known, schema: Schema, columns: Sequence[str]
) -> Pointer:
    """Return where the rows of a collection point at. `columns` are what will be read of the targets, if that is known.

    `arrays` is the module of awkward's arrays. Raises InvalidInputError.
    """
    targets = tuple(known[name] for name in rule.targets)
    if rule.form == "index":
        return _by_index(arrays, rule, source, targets, columns)
    if rule.form == "link":
        return _by_link(arrays, rule, source, targets, schema, columns)
    if rule.form == "count":
        return _by_count(arrays, rule, source, targets, columns)
    if rule.form == "slice":
        return _by_slice(arrays, rule, source, targets[0], known)
    if rule.form == "object":
        return _objects(arrays, targets[0], known, lists=_same_rows(source, targets[0]))
    return _objects(arrays, source, known, lists=None)


def _events_of(offsets: Numbers) -> Numbers:
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _offsets(target: Target, columns: Sequence[str]) -> Numbers:
    """Return where the rows of each event begin. Why by those columns: an event may lack one of them, and it is read anyway."""
    # Why also below: a link is a record, whose fields may be columns.
    heads = tuple(f"{column}." for column in columns)
    wanted = [column for column in target.columns if column in columns or column.startswith(heads)]
    wanted = wanted or list(target.columns[:1])
    return target.column_lists(wanted)[0].offsets


def _found(offsets: Numbers, events: Numbers, local: Numbers) -> Numbers:
    """Return indexes of rows from numbers of rows in their events, -1 for what is not there."""
    is_there = (local >= 0) & (local < np.diff(offsets)[events])
    return np.where(is_there, offsets[events] + local, -1)


def _by_index(arrays: Any, rule: Rule, source: Target, targets: Sequence[Target], columns: Sequence[str]) -> Pointer:
    lists = source.column_lists(rule.columns)
    offsets = _offsets(targets[0], columns)

    def find(events: Numbers, local: Numbers) -> Numbers:
        return _found(offsets, events, local)

    found = [arrays.indexes(each.rows, _events_of(each.offsets), find) for each in lists]
    rows = found[0] if len(found) == 1 else arrays.pairs([np.asarray(each) for each in found])
    return Pointer(lists[0]._replace(rows=rows), tuple(targets))


def _by_link(
    arrays: Any, rule: Rule, source: Target, targets: Sequence[Target], schema: Schema, columns: Sequence[str]
) -> Pointer:
    (link,) = rule.columns
    if link in source.columns:
        (lists,) = source.column_lists([link])
        index, key = (arrays.at(lists.rows, name) for name in _LINK)
    else:
        lists, other = source.column_lists([f"{link}.{name}" for name in _LINK])
        index, key = lists.rows, other.rows
    keys = {target: number for number, target in schema.link_keys}
    bases = _bases(targets, columns)

    def find(events: Numbers, local: Numbers, given: Numbers) -> Numbers:
        found = np.full(len(local), -1, np.int64)
        for target, (base, offsets) in zip(targets, bases, strict=True):
            # Why any key: where the link's name says the collection, there is one that it leads to.
            is_own = given != 0 if len(targets) == 1 and target.name not in keys else given == keys.get(target.name)
            own = _found(offsets, events, local)
            found = np.where(is_own & (own >= 0), base + own, found)
        return found

    rows = arrays.indexes(index, _events_of(lists.offsets), find, key)
    return Pointer(lists._replace(rows=rows), tuple(targets))


def _bases(targets: Sequence[Target], columns: Sequence[str]) -> list[tuple[int, Numbers]]:
    """Return for each target how many rows the targets before it have, and where the rows of each event begin."""
    found: list[tuple[int, Numbers]] = []
    base = 0
    for target in targets:
        offsets = _offsets(target, columns)
        found.append((base, offsets))
        base += int(offsets[-1])
    return found


def _by_count(arrays: Any, rule: Rule, source: Target, targets: Sequence[Target], columns: Sequence[str]) -> Pointer:
    (lists,) = source.column_lists(rule.columns)
    offsets = _offsets(targets[0], columns)
    counts = arrays.numbers(lists.rows, 0)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    if np.any(counts < 0) or not np.array_equal(sums[lists.offsets], offsets):
        problem = f"{rule.columns[0]} counts other rows than {targets[0].name} has"
        raise InvalidInputError(source=source.name, problem=problem)
    return Pointer(lists._replace(rows=arrays.ranges(sums[:-1], counts)), tuple(targets), may_lack=False)


def _by_slice(arrays: Any, rule: Rule, source: Target, relation: Target, known: Known) -> Pointer:
    names = [rule.columns[0], f"{rule.name}_end"]
    lists, ends = source.column_lists(names)
    first = arrays.numbers(lists.rows, 0)
    counts = arrays.numbers(ends.rows, 0) - first
    offsets = _offsets(relation, _OBJECT[:1])
    events = _events_of(lists.offsets)
    if np.any(first < 0) or np.any(counts < 0) or np.any(first + counts > np.diff(offsets)[events]):
        raise InvalidInputError(source=source.name, problem=f"{names[0]} leads beyond the rows of {relation.name}")
    rows = arrays.ranges(offsets[events] + first, counts)
    if not set(_OBJECT) <= set(relation.columns):
        return Pointer(lists._replace(rows=rows), (relation,), may_lack=False)
    objects = _objects(arrays, relation, known, lists=None)
    numbers = np.asarray(objects.lists.rows)

    def follow(_: Numbers, relations: Numbers) -> Numbers:
        return numbers[relations]

    return Pointer(lists._replace(rows=arrays.indexes(rows, events, follow)), objects.targets)


def _same_rows(source: Target, relation: Target) -> EventLists:
    """Return the rows of a collection, whose ObjectIDs stand in another one row by row."""
    lists = source.column_lists([source.columns[0]])[0]
    if not np.array_equal(lists.offsets, _offsets(relation, _OBJECT[:1])):
        raise InvalidInputError(source=source.name, problem=f"{relation.name} has not a row for each of its rows")
    return lists


def _objects(arrays: Any, relation: Target, known: Known, *, lists: EventLists | None) -> Pointer:
    """Return what the ObjectIDs of a collection point at."""
    own, other = relation.column_lists(list(_OBJECT))
    local, ids = arrays.numbers(own.rows, -1), arrays.numbers(other.rows, 0)
    targets = tuple(_with_ids(relation, np.unique(ids[local >= 0]).tolist(), known))
    events = _events_of(own.offsets)
    found = np.full(len(local), -1, np.int64)
    for target, (base, offsets) in zip(targets, _bases(targets, ()), strict=True):
        rows = _found(offsets, events, local)
        found = np.where((ids == collection_id(target.name)) & (rows >= 0), base + rows, found)
    return Pointer((own if lists is None else lists)._replace(rows=found), targets)


def _with_ids(relation: Target, ids: Sequence[int], known: Known) -> Iterator[Target]:
    """Yield the collections of podio's numbers. Raises InvalidInputError for numbers of a podio before version 1."""
    names = {collection_id(name): name for name in known}
    found = [names[number] for number in ids if number in names]
    counted = [number for number in ids if number < _COUNTED_BELOW]
    if counted and not found:
        problem = f"its collectionID {counted[0]} is none of podio 1: before, each file counted its collections"
        raise InvalidInputError(source=relation.name, problem=problem)
    yield from (known[name] for name in found)
