"""Which item of the new layout is which of the old one. Stated or plain to see, never guessed.

A table is the same when its renaming is stated, else when its template spells the same keys, else when its name is the same.
Indexes and counters hold nothing that the records or a number do not say, and go by name after that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

from keyplan.errors import InvalidInputError, UnknownNameError
from keyplan.layout.spec import CounterSpec, IndexSpec, ItemSpec, LayoutSpec, TableSpec
from keyplan.layout.template import Field, Literal, Template

__all__ = ["LayoutPairs", "field_labels", "field_of", "literal_head", "pair_items", "plain_shape"]

Item = TypeVar("Item", TableSpec, IndexSpec, CounterSpec)


@dataclass(frozen=True)
class LayoutPairs:
    """The items of two layouts, paired: names of the new ones with those of the old ones; and what is only in one of them."""

    old: LayoutSpec
    new: LayoutSpec
    names: Mapping[str, str]
    """New names, each with the old name of the same item."""

    @cached_property
    def tables(self) -> list[tuple[TableSpec, TableSpec]]:
        """Old and new table of each pair, in the new order."""
        return [(self.old.tables[self.names[name]], new) for name, new in self.new.tables.items() if name in self.names]

    @cached_property
    def indexes(self) -> list[tuple[IndexSpec, IndexSpec]]:
        """Old and new index of each pair."""
        return [
            (self.old.indexes[self.names[name]], new) for name, new in self.new.indexes.items() if name in self.names
        ]

    @cached_property
    def counters(self) -> list[tuple[CounterSpec, CounterSpec]]:
        """Old and new counter of each pair."""
        return [
            (self.old.counters[self.names[name]], new) for name, new in self.new.counters.items() if name in self.names
        ]

    @cached_property
    def added(self) -> list[ItemSpec]:
        """Items that only the new layout has."""
        return [item for item in self.new.items if item.name not in self.names]

    @cached_property
    def gone(self) -> list[ItemSpec]:
        """Items that only the old layout has."""
        kept = set(self.names.values())
        return [item for item in self.old.items if item.name not in kept]


def pair_items(old: LayoutSpec, new: LayoutSpec, renames: Mapping[str, str] | None = None) -> LayoutPairs:
    """Pair the items of two layouts. `renames`: old names with the new ones, for what cannot be seen.

    Raises UnknownNameError for a renamed item that is not there, InvalidInputError for one of another kind.
    """
    names: dict[str, str] = {}
    for old_name, new_name in (renames or {}).items():
        before, after = _stated(old, old_name), _stated(new, new_name)
        if type(before) is not type(after) or new_name in names:
            problem = f"{old_name} and {new_name} cannot be one item: another kind, or renamed twice"
            raise InvalidInputError(source="renames", problem=problem)
        names[new_name] = old_name
    _pair(old.tables.values(), new.tables.values(), names)
    _pair(old.indexes.values(), new.indexes.values(), names)
    _pair(old.counters.values(), new.counters.values(), names)
    return LayoutPairs(old, new, names)


@lru_cache(maxsize=1024)
def plain_shape(template: Template) -> tuple[object, ...]:
    """The template without its fields' names: what decides its bytes."""
    places = {name: place for place, name in enumerate(template.field_names)}
    return tuple(
        part.raw if isinstance(part, Literal) else (places.get(part.name, part.name), part.attribute, part.element.spec)
        for part in template.parts
    )


@lru_cache(maxsize=4096)
def literal_head(template: Template) -> bytes:
    """Return the bytes that all keys of a template begin with, as far as literals say.

    Two templates share a key only where one of these begins with the other.
    """
    raw = b""
    for part in template.parts:
        if not isinstance(part, Literal):
            break
        raw += part.raw
    return raw


def _stated(spec: LayoutSpec, name: str) -> ItemSpec:
    try:
        return spec.item(name)
    except UnknownNameError as error:
        raise UnknownNameError(**{**error.facts, "problem": "a renaming names an item that is not there"}) from error


def _pair(olds: Iterable[Item], news: Iterable[Item], names: dict[str, str]) -> None:
    left = {item.name: item for item in olds if item.name not in names.values()}
    shapes = {plain_shape(item.template): item.name for item in left.values()}
    waiting = [item for item in news if item.name not in names]
    # Why: a template that only changed places with another one is two renamed tables; their records stay where they are.
    for item in waiting:
        own = shapes.get(plain_shape(item.template))
        if own is not None and own in left:
            names[item.name] = own
            del left[own]
    for item in waiting:
        if item.name not in names and item.name in left:
            names[item.name] = item.name
            del left[item.name]


def field_labels(old: Template, new: Template) -> dict[str, str] | None:
    """The new template's field names with the old ones of the same field; None when they are not the same fields.

    Fields are the same by name; where some names changed, the others must have kept their places, and so have these.
    """
    before, after = old.field_names, new.field_names
    if set(before) == set(after):
        return {name: name for name in after}
    if len(before) != len(after):
        return None
    for own, other in zip(after, before, strict=True):
        if own != other and (own in before or other in after):
            return None
    return dict(zip(after, before, strict=True))


def field_of(template: Template, name: str) -> Field:
    """The field of that name that carries information."""
    return next(field for field in template.fields if field.name == name)
