"""What an engine or an index can refuse: L10 and L13.

L10: keys, values and commits that an engine can refuse, computed from the layout alone. L13: a field's default is refused by an
index over it, so that a record that was stored without the field fits no more. A stored record lacks a field that was declared
after it was written, or one that its writer left out. It is read with the default, and indexed by it: when the index cannot
spell that, every write of the record fails.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from reprlib import Repr
from typing import Any, TypeAlias

import msgspec

from keyplan.codec import Element
from keyplan.errors import InvalidKeyError
from keyplan.layout.defaults import Lacking, defaults_along, defaults_of_items
from keyplan.layout.entries import members, picker, reader_of
from keyplan.layout.rules.decision import shortest_key
from keyplan.layout.rules.finding import Finding, Severity
from keyplan.layout.rules.reading import readings
from keyplan.layout.rules.subject import Subject, key_with, member_of_length
from keyplan.layout.spec import Component, IndexSpec, LayoutSpec, Origin, TableSpec
from keyplan.layout.template import Field, Template, encoded_part

__all__ = ["EngineLimits", "exceeded_limits", "refused_defaults"]


# ---- L10: limits of an engine ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """An engine's limits, None where there is none; the caller takes them from the engine's profile.

    Commits are counted as the profile counts them.
    """

    key_bytes_max: int | None = None
    value_bytes_max: int | None = None
    commit_operations_max: int | None = None
    commit_bytes_max: int | None = None


def exceeded_limits(spec: LayoutSpec, own: Sequence[Subject], limits: EngineLimits) -> Iterator[Finding]:
    """Findings of L10. Sizes count the root with its longest parameters; a witness has the default ones.

    An update writes the record and, for each index entry that changes, removes one key and puts another.
    """
    for subject in own:
        yield from _long_keys(spec, subject, limits.key_bytes_max)
    for table in spec.tables.values():
        indexes = [index for index in spec.indexes.values() if index.of == table.name]
        yield from _long_values(table, indexes, limits.value_bytes_max)
        yield from _long_commits(table, indexes, limits.commit_operations_max)
        yield from _heavy_commits(spec, table, indexes, limits.commit_bytes_max)


def _long_keys(spec: LayoutSpec, subject: Subject, allowed: int | None) -> Iterator[Finding]:
    longest = _longest(spec, subject.spec.template)
    if allowed is not None and (longest is None or longest > allowed):
        size = "of any length" if longest is None else f"of up to {longest} bytes"
        message = f"keys can be {size}, the engine takes {allowed}"
        yield Finding("L10", (subject.name,), message, _key_longer_than(subject.template, allowed))


def _long_values(table: TableSpec, indexes: Sequence[IndexSpec], allowed: int | None) -> Iterator[Finding]:
    """A unique entry's value is the primary key, without the root."""
    longest = table.template.language.bytes_max
    if allowed is not None and (longest is None or longest > allowed):
        for index in indexes:
            if index.is_unique:
                size = "of any length" if longest is None else f"of up to {longest} bytes"
                message = f"entries hold primary keys that can be {size}, the engine takes values of {allowed}"
                yield Finding("L10", (index.name, "value"), message, _key_longer_than(table.template, allowed))


def _long_commits(table: TableSpec, indexes: Sequence[IndexSpec], allowed: int | None) -> Iterator[Finding]:
    if allowed is None:
        return
    spreading = [index for index in indexes if _is_spreading(index)]
    fixed = 1 + 2 * (len(indexes) - len(spreading))
    if fixed > allowed:
        message = f"an update can need {fixed} operations, the engine takes {allowed} in a commit"
        yield Finding("L10", (table.name, *(index.name for index in indexes)), message)
    elif spreading:
        sources = ", ".join(dict.fromkeys(_source(index) for index in spreading))
        message = (
            f"an update needs up to {fixed} operations and two for each changed item of {sources}, "
            f"the engine takes {allowed} in a commit"
        )
        yield Finding("L10", (table.name, *(index.name for index in spreading)), message, severity=Severity.NOTE)


def _heavy_commits(
    spec: LayoutSpec, table: TableSpec, indexes: Sequence[IndexSpec], allowed: int | None
) -> Iterator[Finding]:
    sizes = [_longest(spec, table.template), *(_longest(spec, index.template) for index in indexes for _ in range(2))]
    known = [size for size in sizes if size is not None]
    if allowed is not None and len(known) == len(sizes) and sum(known) > allowed:
        message = f"the keys of an update alone can be {sum(known)} bytes, the engine takes {allowed} in a commit"
        yield Finding("L10", (table.name, "commit"), message)


def _is_spreading(index: IndexSpec) -> bool:
    return index.function is not None or any(
        component.origin in (Origin.EACH, Origin.FUNCTION) for component in index.components
    )


def _source(index: IndexSpec) -> str:
    return next((one.path for one in index.components if one.origin is Origin.EACH), f"the function of {index.name}")


def _longest(spec: LayoutSpec, template: Template) -> int | None:
    return template.prefixed(spec.root).language.bytes_max


def _key_longer_than(template: Template, allowed: int) -> bytes | None:
    """A key just longer than `allowed`, made by lengthening the fields in order; None when the root must be longer for it."""
    key = shortest_key(template).key
    if key is None:
        return None
    fields = next(readings(template, key))
    missing = allowed + 1 - len(key)
    for field in template.fields:
        if missing <= 0:
            break
        before = len(fields[field.name])
        wanted = before + missing if field.element.bytes_max is None else min(field.element.bytes_max, before + missing)
        fields[field.name] = member_of_length(field.element, wanted) or fields[field.name]
        missing -= len(fields[field.name]) - before
    longer = key_with(template, fields)
    return longer if longer is not None and len(longer) > allowed else None


# ---- L13: defaults ---------------------------------------------------------------------------------------------------


_Named: TypeAlias = tuple[str, Component]


def refused_defaults(spec: LayoutSpec) -> Iterator[Finding]:
    """Findings of L13, one for each index and field with a default that it refuses.

    All other fields of the record are taken to fit, unless the default decides about them. What a function of the index does
    with the default is not judged.
    """
    for index in spec.indexes.values():
        found: dict[tuple[str, ...], Finding] = {}
        for finding in _Judge(index, spec.tables[index.of]).refused():
            found.setdefault(finding.items, finding)
        yield from found.values()


class _Judge:
    """The questions about one index: what of it a field of the record decides, when the record lacks the field."""

    def __init__(self, index: IndexSpec, table: TableSpec) -> None:
        self._index, self._form = index, table.form
        self._read = reader_of(table)
        named = list(zip(index.template.field_names, index.components, strict=True))
        self._own: list[_Named] = [one for one in named if one[1].origin is Origin.RECORD]
        self._fanned: list[_Named] = [one for one in named if one[1].origin is Origin.EACH]

    def refused(self) -> Iterator[Finding]:
        """A finding for each field with a default that is refused; one field may come more than once."""
        for path in dict.fromkeys(component.path for _, component in (*self._own, *self._fanned)):
            for lacking in defaults_along(self._form, path):
                if self._has_entries(lacking):
                    yield from self._findings(".".join(lacking.path), self._decided(lacking))
        for name, component in self._fanned:
            if isinstance(component.item, str):
                place = f"{component.path}[].{component.item}"
                for default in defaults_of_items(self._form, component.path, component.item):
                    yield from self._findings(place, [(name, default)] if default is not None else [])

    def _findings(self, place: str, decided: Sequence[tuple[str, object]]) -> Iterator[Finding]:
        for name, value in decided:
            problem = self._problem(name, value)
            if problem:
                message = (
                    f"a record stored without {place} is read with {_shown(value)}, which {name} cannot spell: {problem}; "
                    f"take None as the default, which has no entry, or a codec that spells it"
                )
                yield Finding("L13", (self._index.name, place), message)
                return

    def _has_entries(self, lacking: Lacking) -> bool:
        """Whether a record without the field has entries, if all that the field does not decide is as it should be."""
        for condition in self._index.when:
            place = _below(condition.path, lacking)
            if place is not None and (self._read(lacking.default, place) == condition.constant) != condition.is_equal:
                return False
            # Why: a constant has no attributes, so that the record has no such field where it stands.
            if condition.is_equal and ".".join(lacking.path).startswith(f"{condition.path}."):
                return False
        return all(value is not None for _, value in self._own_values(lacking))

    def _decided(self, lacking: Lacking) -> list[tuple[str, object]]:
        """The fields of the entries that the default decides, with their values; nothing where there is no entry."""
        own = self._own_values(lacking)
        place = _below(self._fanned[0][1].path, lacking) if self._fanned else None
        if place is None:
            return own
        picked = [
            [(name, picker(component)(item)) for name, component in self._fanned]
            for item in members(self._read(lacking.default, place))
        ]
        entries = [one for one in picked if all(value is not None for _, value in one)]
        return [*own, *(field for one in entries for field in one)] if entries else []

    def _own_values(self, lacking: Lacking) -> list[tuple[str, object]]:
        return [
            (name, self._read(lacking.default, place))
            for name, component in self._own
            for place in (_below(component.path, lacking),)
            if place is not None
        ]

    def _problem(self, name: str, value: object) -> str:
        """Why the field cannot be spelled with this value, nor what is derived from it; empty when it can."""
        element = next(field.element for field in self._index.template.fields if field.name == name)
        spelled = self._as_read(value, element)
        for part in self._index.template.parts:
            if isinstance(part, Field) and part.name == name:
                try:
                    encoded_part(part, element, spelled)
                except InvalidKeyError as error:
                    return str(error.facts.get("problem", error))
        return ""

    def _as_read(self, value: object, element: Element[Any]) -> object:
        """The value as records hold it: a schema's default is JSON."""
        if self._form.value_type is not Any:
            return value
        try:
            return msgspec.convert(value, element.value_type)
        except (msgspec.ValidationError, TypeError):
            return value


_shown = Repr().repr


def _below(path: str, lacking: Lacking) -> str | None:
    """The rest of a path that leads to the field or into it; None for another one."""
    names = tuple(path.split(".")) if path else ()
    count = len(lacking.path)
    return ".".join(names[count:]) if names[:count] == lacking.path else None
