"""Two JSON schemas of records compared: which fields came, went, or changed their type, at any depth.

A field inside a list, a map, a union or a tagged record has the names on the way to it in its path: `lines.sku`,
`shape.Circle.radius`, `pair.0`. Titles and notes are passed over.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec import json

from keyplan.layout.difference.readability import Readability, TypeRelation
from keyplan.layout.schema_nodes import SchemaGraph, SchemaNode

__all__ = ["FieldChange", "TypeRelation", "compare_schemas"]

_USES_MAX: Final = 64
"""Why: a type that stands in a thousand places is told at the first ones; the answer must end whatever the types are."""

_Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that came (`old` None), went (`new` None) or has another type; the types as JSON schemas call them.

    `is_required`: the one layout that has it does not read records without it. `is_refused`: the other layout does not read
    records with it. `relation` is that of the types. `loses_values`: the new layout reads records that hold it and passes over
    the values, so that they are gone when the record is written again. `renamed_to`: new fields of the same type beside it.
    """

    path: str
    old: str | None
    new: str | None
    relation: TypeRelation = TypeRelation.OTHER
    is_required: bool = False
    is_refused: bool = False
    loses_values: bool = False
    renamed_to: tuple[str, ...] = ()
    is_default: bool = False
    """Whether it is the field's default that is another one; `old` and `new` are the values, as JSON."""


def compare_schemas(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[FieldChange]:
    """Return what differs, outer fields first; a type that is no record of fields is the field "". It always ends."""
    return list(_Comparison().changes(SchemaGraph(old), SchemaGraph(new)))


@dataclass(frozen=True, slots=True)
class _Place:
    """Two types that stand at one path; `above` are the pairs of records around them."""

    path: str
    old: SchemaNode
    new: SchemaNode
    above: frozenset[_Pair]

    def inner(self, name: str, old: SchemaNode, new: SchemaNode) -> "_Place":
        return _Place(_joined(self.path, name), old, new, self.above | {(id(self.old), id(self.new))})


class _Comparison:
    def __init__(self) -> None:
        self._reading = Readability()
        self._uses: Counter[_Pair] = Counter()
        self._pending: deque[_Place] = deque()

    def changes(self, old: SchemaGraph, new: SchemaGraph) -> Iterator[FieldChange]:
        self._pending.append(_Place("", old.root, new.root, frozenset()))
        while self._pending:
            place = self._pending.popleft()
            pair = (id(place.old), id(place.new))
            self._uses[pair] += 1
            is_told = place.old.has_records and self._uses[pair] > _USES_MAX
            if pair not in place.above and not is_told:
                yield from self._at(place)

    def _at(self, place: _Place) -> Iterator[FieldChange]:
        """What differs at one place itself; what stands inside it becomes pending."""
        matches = list(_matches(place.old, place.new))
        for name, old, new in matches:
            if (old, new) != (place.old, place.new):
                self._pending.append(place.inner(name, old, new))
            elif old.is_record:
                yield from self._fields(place)
            elif old.is_array:
                self._arrays(place)
            else:
                self._pending.append(place.inner("", old["additionalProperties"], new["additionalProperties"]))
        yield from self._shells(place, matches)

    def _shells(self, place: _Place, matches: list[tuple[str, SchemaNode, SchemaNode]]) -> Iterator[FieldChange]:
        """Whether the alternatives that were not matched fit the other type."""
        olds = [option for option in place.old.options if option not in [old for _, old, _ in matches]]
        news = [option for option in place.new.options if option not in [new for _, _, new in matches]]
        takes = self._reading.takes
        reads_old = all(any(takes(new, old) for new in place.new.options) for old in olds)
        reads_new = all(any(takes(old, new) for old in place.old.options) for new in news)
        relation = TypeRelation.of(reads_old=reads_old, reads_new=reads_new)
        if relation is not TypeRelation.SAME:
            # Why: a record that reads a map, or anything, passes over what it has no field for.
            is_lossy = any(old.is_map or old.is_anything for old in olds) and any(
                new.is_record and not new.is_closed for new in news
            )
            yield FieldChange(place.path, place.old.name(), place.new.name(), relation, loses_values=is_lossy)

    def _arrays(self, place: _Place) -> None:
        old, new = place.old, place.new
        for number, (own, other) in enumerate(zip(old.places, new.places, strict=False)):
            self._pending.append(place.inner(str(number), own, other))
        if not old.places and not new.places:
            self._pending.append(place.inner("", old["items"], new["items"]))

    def _fields(self, place: _Place) -> Iterator[FieldChange]:
        old, new = place.old, place.new
        before, after = old.fields or {}, new.fields or {}
        for name, kind in after.items():
            path = _joined(place.path, name)
            if name not in before:
                is_required = name in new.required
                yield FieldChange(path, None, kind.name(), is_required=is_required, is_refused=old.is_closed)
                continue
            self._pending.append(place.inner(name, before[name], kind))
            was, is_now = name in old.required, name in new.required
            if was != is_now:
                relation = TypeRelation.NARROWER if is_now else TypeRelation.WIDER
                words = ("it may be left out", "it must be there")
                yield FieldChange(path, words[was], words[is_now], relation)
            yield from _other_default(path, old.default(name), new.default(name))
            yield from _moved(path, list(before).index(name), list(after).index(name), old, new)
        for name, kind in before.items():
            if name not in after:
                yield self._gone(place, name, kind)

    def _gone(self, place: _Place, name: str, kind: SchemaNode) -> FieldChange:
        old, new = place.old, place.new
        alike = [
            other
            for other, type_now in (new.fields or {}).items()
            if other not in (old.fields or {}) and self._reading.relation(kind, type_now) is TypeRelation.SAME
        ]
        return FieldChange(
            _joined(place.path, name),
            kind.name(),
            None,
            is_required=name in old.required,
            is_refused=new.is_closed,
            loses_values=not kind.is_constant,
            renamed_to=() if kind.is_constant else tuple(alike),
        )


def _other_default(path: str, was: tuple[object, ...], is_now: tuple[object, ...]) -> Iterator[FieldChange]:
    """A field with another default than before. Why `repr`: true is not 1."""
    if was and is_now and repr(was) != repr(is_now):
        words = [json.encode(value).decode() for (value,) in (was, is_now)]
        yield FieldChange(path, words[0], words[1], TypeRelation.SAME, is_default=True)


def _moved(path: str, was: int, is_now: int, old: SchemaNode, new: SchemaNode) -> Iterator[FieldChange]:
    """A field of a record that is stored as an array, when it stands at another place, or has one for the first time."""
    if (old.is_positional, was) == (new.is_positional, is_now) or not (old.is_positional or new.is_positional):
        return
    words = [
        f"at place {place} of an array" if node.is_positional else "stored by its name"
        for node, place in ((old, was), (new, is_now))
    ]
    yield FieldChange(path, words[0], words[1], TypeRelation.OTHER)


def _matches(old: SchemaNode, new: SchemaNode) -> Iterator[tuple[str, SchemaNode, SchemaNode]]:
    """The alternatives that are the same one in both types and hold records, each with its name on the way to it."""
    olds, news = ([option for option in node.options if option.has_records] for node in (old, new))
    ours, theirs = ([option for option in options if option.is_record] for options in (olds, news))
    if len(ours) == len(theirs) == 1:
        yield "", ours[0], theirs[0]
    else:
        by_tag = {option.tag: option for option in theirs}
        for option in ours:
            if option.tag in by_tag:
                yield option.tag, option, by_tag[option.tag]
    for first, second in (
        ([one for one in olds if one.is_array], [one for one in news if one.is_array]),
        ([one for one in olds if one.is_map], [one for one in news if one.is_map]),
    ):
        if len(first) == len(second) == 1 and len(first[0].places) == len(second[0].places):
            yield "", first[0], second[0]


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}".strip(".")
