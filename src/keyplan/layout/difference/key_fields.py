"""A table's keys that get fields, lose some, or whose fields are split or joined: what a function has to say, with keys."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from keyplan.errors import InvalidKeyError
from keyplan.layout.difference.change import Impact, LayoutChange
from keyplan.layout.difference.pairing import field_of
from keyplan.layout.rules.decision import shortest_key
from keyplan.layout.rules.finding import abridged
from keyplan.layout.rules.reading import readings, spelled
from keyplan.layout.rules.subject import members
from keyplan.layout.schema_nodes import SchemaGraph
from keyplan.layout.spec import TableSpec
from keyplan.layout.template import Template

__all__ = ["key_field_change"]


def key_field_change(old: TableSpec, new: TableSpec, roots: tuple[Template, Template]) -> LayoutChange:
    """Return change E23. The witness is an old key; the second a new one with the same values in the fields that stay."""
    fields = _Fields.of(old.template, new.template)
    before, after = old.template.prefixed(roots[0]), new.template.prefixed(roots[1])
    witness = shortest_key(before).key
    second = None if witness is None else _key_beside(before, after, fields, witness)
    message = f"its keys are of {_listed(new.template)}, no longer of {_listed(old.template)}: {fields.in_words}"
    if fields.gone and not fields.new:
        twin = None if witness is None else _twin(before, fields.gone, witness)
        if witness is not None and twin is not None:
            message += f"; {abridged(witness)} and {abridged(twin)} would be one"
    return LayoutChange(
        "E23",
        new.name,
        Impact.BREAKING,
        message,
        f"give the migration a `Transform` that says {fields.asked(_named_in_records(new, fields.new))}; "
        "or declare a new table",
        witness=witness,
        second=second,
        key_fields_gone=fields.gone,
        key_fields_new=fields.new,
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    """The key fields that went and that came, each in the order of its template."""

    gone: tuple[str, ...]
    new: tuple[str, ...]

    @classmethod
    def of(cls, old: Template, new: Template) -> "_Fields":
        before, after = old.field_names, new.field_names
        return cls(
            tuple(name for name in before if name not in after), tuple(name for name in after if name not in before)
        )

    @property
    def in_words(self) -> str:
        if not self.gone:
            return f"{_and(self.new)} {'is' if len(self.new) == 1 else 'are'} new"
        if not self.new:
            return f"{_and(self.gone)} {'is' if len(self.gone) == 1 else 'are'} gone"
        if len(self.gone) == 1 < len(self.new):
            return f"{self.gone[0]} is split into {_and(self.new)}"
        if len(self.new) == 1 < len(self.gone):
            return f"{_and(self.gone)} are joined to {self.new[0]}"
        return f"{_and(self.gone)} became {_and(self.new)}"

    def asked(self, in_records: tuple[str, ...]) -> str:
        """What the function has to say."""
        if not self.new:
            return f"which record stays where several have one key without {_and(self.gone)}"
        if self.gone:
            return f"how {_and(self.new)} {'is' if len(self.new) == 1 else 'are'} made of {_and(self.gone)}"
        own = f" (records have a field {_and(in_records)})" if in_records else ""
        return f"what {_and(self.new)} {'is' if len(self.new) == 1 else 'are'} for each record{own}"


def _and(names: tuple[str, ...]) -> str:
    return " and ".join(names)


def _listed(template: Template) -> str:
    return ", ".join(template.field_names) or "nothing"


def _named_in_records(table: TableSpec, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the names that the table's records have a field of."""
    described: Mapping[str, Any] = table.form.describe()
    schema = described.get("schema")
    fields = (SchemaGraph(schema).root.fields if isinstance(schema, Mapping) else None) or {}
    return tuple(name for name in names if name in fields)


def _key_beside(old: Template, new: Template, fields: _Fields, key: bytes) -> bytes | None:
    """The new key with the values that the old one has, and the shortest ones in the other fields."""
    found = next(readings(old, key), None)
    if found is None:
        return shortest_key(new).key
    try:
        raw = {
            name: field_of(new, name).element.encode(field_of(old, name).element.decode(found[name]))
            for name in new.field_names
            if name not in fields.new
        }
        raw |= {name: next(_raw_members(new, name)) for name in fields.new}
        return spelled(new, raw)
    except (InvalidKeyError, StopIteration):
        return shortest_key(new).key


def _twin(template: Template, gone: tuple[str, ...], key: bytes) -> bytes | None:
    """Another key that differs from this one in the fields that go."""
    found = next(readings(template, key), None)
    if found is None:
        return None
    for raw in _raw_members(template, gone[-1]):
        if raw != found[gone[-1]]:
            try:
                return spelled(template, {**found, gone[-1]: raw})
            except InvalidKeyError:
                continue
    return None


def _raw_members(template: Template, name: str) -> Iterator[bytes]:
    return (raw for _, raw in members(field_of(template, name).element))
