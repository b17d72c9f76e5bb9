"""Two JSON schemas of records compared: which fields came, went, or changed their type, at any depth.

A field inside a list, a map, a union or a tagged record has the names on the way to it in its path: `lines.sku`,
`shape.Circle.radius`, `pair.0`. Titles and notes are passed over.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec import json

from keyplan.layout.difference.readability import Readability, Verdict, inner_types
from keyplan.layout.schema_nodes import SchemaGraph, SchemaNode

__all__ = ["FieldChange", "TypeRelation", "compare_schemas"]

_USES_MAX: Final = 64
"""Why: a type that stands in a thousand places is told at the first ones; the answer must end whatever the types are."""

_WHOLE: Final = Verdict(reads=True, keeps=True)

_Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TypeRelation:
    """What becomes of the values of two layouts, each in the other one."""

    reads_old: bool = True
    """The new layout reads every value of the old one."""
    reads_new: bool = True
    """The old layout reads every value that programs of the new one write, as it was written."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that came (`old` None), went (`new` None) or has another type; the types as people call them.

    `is_required`: the one layout that has it does not read records without it. `is_refused`: the other layout does not read
    records with it. `loses_values`: the new layout reads records that hold it and passes over the values, or reads others, so
    that they are gone when the record is written again. `renamed_to`: new fields of the same type beside it.
    """

    path: str
    old: str | None
    new: str | None
    relation: TypeRelation = TypeRelation()
    is_required: bool = False
    is_refused: bool = False
    loses_values: bool = False
    renamed_to: tuple[str, ...] = ()
    is_default: bool = False
    """Whether it is the field's default that is another one; `old` and `new` are the values, as JSON."""


def compare_schemas(old: Mapping[str, Any], new: Mapping[str, Any], *, is_msgpack: bool = False) -> list[FieldChange]:
    """Return what differs, outer fields first; a type that is no record of fields is the field "". It always ends.

    `is_msgpack`: values are stored as msgpack, which has types of its own for bytes and times; else they are JSON.
    """
    return list(_Comparison(is_msgpack=is_msgpack).changes(SchemaGraph(old), SchemaGraph(new)))


@dataclass(frozen=True, slots=True)
class _Place:
    """Two types that stand at one path; `above` are the pairs of types around them."""

    path: str
    old: SchemaNode
    new: SchemaNode
    above: frozenset[_Pair] = frozenset()

    def inner(self, name: str, old: SchemaNode, new: SchemaNode) -> "_Place":
        return _Place(_joined(self.path, name), old, new, self.above | {(id(self.old), id(self.new))})


class _Comparison:
    def __init__(self, *, is_msgpack: bool) -> None:
        self._in_new = Readability(is_of_before=True, is_msgpack=is_msgpack)
        self._in_old = Readability(is_of_before=False, is_msgpack=is_msgpack)
        self._uses: Counter[_Pair] = Counter()
        self._pending: deque[_Place] = deque()

    def changes(self, old: SchemaGraph, new: SchemaGraph) -> Iterator[FieldChange]:
        self._pending.append(_Place("", old.root, new.root))
        while self._pending:
            place = self._pending.popleft()
            pair = (id(place.old), id(place.new))
            self._uses[pair] += 1
            is_told = not place.old.is_scalar and self._uses[pair] > _USES_MAX
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
            else:
                yield from self._container(place)
        if matches != [("", place.old, place.new)]:
            yield from self._alternatives(place, matches)

    def _alternatives(self, place: _Place, matches: list[tuple[str, SchemaNode, SchemaNode]]) -> Iterator[FieldChange]:
        """Whether the alternatives that were not matched fit the other type."""
        olds = [option for option in place.old.options if option not in [old for _, old, _ in matches]]
        news = [option for option in place.new.options if option not in [new for _, _, new in matches]]
        yield from self._told(place, self._in_new.of_all(place.new, olds), self._in_old.of_all(place.old, news))

    def _container(self, place: _Place) -> Iterator[FieldChange]:
        """Two arrays or two maps: what is said of all of it, and then what stands within."""
        old, new = place.old, place.new
        yield from self._told(place, self._in_new.outside(new, old), self._in_old.outside(old, new))
        for name, own, other in inner_types(old, new):
            self._pending.append(place.inner(name, own, other))

    def _told(self, place: _Place, of_old: Verdict, of_new: Verdict) -> Iterator[FieldChange]:
        if (of_old, of_new) != (_WHOLE, _WHOLE):
            relation = TypeRelation(of_old.reads, of_new.is_whole)
            yield FieldChange(place.path, place.old.name(), place.new.name(), relation, loses_values=not of_old.keeps)

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
            yield from _other_presence(path, name, old, new)
            yield from _other_default(path, name, old, new)
            yield from _moved(path, list(before).index(name), list(after).index(name), old, new)
        for name, kind in before.items():
            if name not in after:
                yield self._gone(place, name, kind)

    def _gone(self, place: _Place, name: str, kind: SchemaNode) -> FieldChange:
        old, new = place.old, place.new
        is_told = kind.is_constant and name in old.required  # Why: what is always the same says nothing.
        return FieldChange(
            _joined(place.path, name),
            kind.name(),
            None,
            is_required=name in old.required,
            is_refused=new.is_closed,
            loses_values=not is_told,
            renamed_to=() if is_told else tuple(self._like(kind, old, new)),
        )

    def _like(self, kind: SchemaNode, old: SchemaNode, new: SchemaNode) -> Iterator[str]:
        """The new record's fields that the old one lacks, and that take the same values."""
        for name, other in (new.fields or {}).items():
            is_new = name not in (old.fields or {})
            if is_new and self._in_new.of(other, kind).is_whole and self._in_old.of(kind, other).is_whole:
                yield name


def _other_presence(path: str, name: str, old: SchemaNode, new: SchemaNode) -> Iterator[FieldChange]:
    was, is_now = name in old.required, name in new.required
    if was != is_now:
        # Why: a default alone leaves nothing out; every program goes on writing the field.
        relation = TypeRelation(reads_old=not is_now, reads_new=is_now or name in new.written)
        words = ("optional", "required")
        yield FieldChange(path, words[was], words[is_now], relation)


def _other_default(path: str, name: str, old: SchemaNode, new: SchemaNode) -> Iterator[FieldChange]:
    """A field with another default than before. Why `repr`: true is not 1."""
    was, is_now = old.default(name), new.default(name)
    is_left_out = name not in old.written or (name not in new.written and name not in old.required)
    is_other = repr(was) != repr(is_now) and name not in old.required | new.required
    if is_other and ((was and is_now) or is_left_out):
        words = ["nothing" if not value else json.encode(value[0]).decode() for value in (was, is_now)]
        relation = TypeRelation(name in old.written, name in new.written)
        yield FieldChange(path, words[0], words[1], relation, is_default=True)


def _moved(path: str, was: int, is_now: int, old: SchemaNode, new: SchemaNode) -> Iterator[FieldChange]:
    """A field of a record that is stored as an array, when it stands at another place, or has one for the first time."""
    if (old.is_positional, was) == (new.is_positional, is_now) or not (old.is_positional or new.is_positional):
        return
    words = [
        f"at place {place} of an array" if node.is_positional else "stored by its name"
        for node, place in ((old, was), (new, is_now))
    ]
    yield FieldChange(path, words[0], words[1], TypeRelation(reads_old=False, reads_new=False))


def _matches(old: SchemaNode, new: SchemaNode) -> Iterator[tuple[str, SchemaNode, SchemaNode]]:
    """The alternatives that are the same one in both types, each with its name on the way to it: records, arrays, maps."""
    olds, news = old.options, new.options
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
        if len(first) == len(second) == 1:
            yield "", first[0], second[0]


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}".strip(".")
