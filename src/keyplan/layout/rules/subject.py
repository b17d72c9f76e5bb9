"""An item of a layout as the rules see it: its whole template, with the root's bytes known, and its lists' prefixes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from keyplan.layout.rules.decision import shortest_key
from keyplan.layout.rules.reading import readings
from keyplan.layout.rules.samples import members
from keyplan.layout.spec import CounterSpec, ItemSpec, LayoutSpec, TableSpec
from keyplan.layout.template import Field, Literal, Part, Template

__all__ = ["Subject", "bound_root", "ends_in_literal", "prefix_of", "subjects_of"]


@dataclass(frozen=True)
class Subject:
    """One table, index or counter; `name` says its layout as well when that is not the one under judgement."""

    name: str
    spec: ItemSpec
    template: Template

    @property
    def is_list(self) -> bool:
        """Whether there are lists of it: a counter is one key, and so is a template without fields."""
        return not isinstance(self.spec, CounterSpec) and bool(self.template.fields)

    @property
    def is_leased(self) -> bool:
        return isinstance(self.spec, TableSpec) and self.spec.has_lease

    @cached_property
    def prefixes(self) -> tuple[Template, ...]:
        """The prefix of the list that binds no field, one field, ... all but the last; empty when there are no lists."""
        return (
            tuple(prefix_of(self.template, bound) for bound in range(len(self.template.fields))) if self.is_list else ()
        )


def subjects_of(spec: LayoutSpec, others: Sequence[LayoutSpec] = ()) -> tuple[list[Subject], list[Subject]]:
    """The subjects of `spec` and those of the other layouts, each under the root with its default parameters."""
    own = [Subject(item.name, item, item.template.prefixed(bound_root(spec))) for item in spec.items]
    foreign = [
        Subject(f"{other.name}.{item.name}", item, item.template.prefixed(bound_root(other)))
        for other in others
        for item in other.items
    ]
    return own, foreign


def bound_root(spec: LayoutSpec) -> Template:
    """The root with its parameters' defaults; a parameter without one has its shortest value."""
    missing = [name for name in spec.root.field_names if spec.parameters.get(name) is None]
    values = dict(spec.parameters)
    if missing:
        raw_fields = _shortest_fields(spec.root)
        elements = {field.name: field.element for field in spec.root.fields}
        values.update({name: elements[name].decode(raw_fields[name]) for name in missing})
    return spec.root.bound({name: values[name] for name in spec.root.field_names})


def prefix_of(template: Template, bound_fields: int) -> Template:
    """The part of every key that is known when the first `bound_fields` fields are: what an exact list reads by."""
    bound = set(template.field_names[:bound_fields])
    parts: list[Part] = []
    for part in template.parts:
        if isinstance(part, Field) and part.name not in bound:
            break
        parts.append(part)
    return Template(tuple(parts), template.is_text)


def _shortest_fields(root: Template) -> dict[str, bytes]:
    """The fields of the shortest root; where none was found, each field's own shortest encoding."""
    key = shortest_key(root).key
    if key is not None:
        return next(readings(root, key))
    return {field.name: next(raw for _, raw in members(field.element)) for field in root.fields}


def ends_in_literal(template: Template) -> bytes:
    """The bytes of the literal that the template ends in; none when it ends in a field."""
    last = template.parts[-1] if template.parts else None
    return last.raw if isinstance(last, Literal) else b""
