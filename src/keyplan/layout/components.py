"""Where each field of an index entry comes from: names in the declaration resolved to sources, and checked."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Protocol, get_args, get_origin, get_type_hints

from keyplan.codec import Secret
from keyplan.errors import LayoutError
from keyplan.layout.spec import Component, Condition, Origin, TableSpec
from keyplan.layout.template import Template

__all__ = ["Unlike", "index_components", "index_conditions", "item_class"]


@dataclass(frozen=True)
class Unlike:
    """In an index's `when`: the attribute has any value but this one, e.g. `when={"project": Unlike("")}`."""

    constant: str | int | bool | None


class IndexDeclaration(Protocol):
    """What resolving the components reads of a declared index."""

    @property
    def name(self) -> str: ...

    @property
    def bind(self) -> Mapping[str, str]: ...

    @property
    def each(self) -> Mapping[str | tuple[str, ...], str]: ...

    @property
    def when(self) -> Mapping[str, object]: ...

    @property
    def on(self) -> object: ...


def index_components(index: IndexDeclaration, template: Template, table: TableSpec) -> tuple[Component, ...]:
    """Return a source for every field of an index's template, in template order.

    Raises LayoutError for a name that is no field, an attribute that records do not have, or a fan-out over two collections.
    """
    names = template.field_names
    each = _fanned(index)
    for name in (*index.bind, *each):
        if name not in names:
            raise LayoutError(
                item=index.name, field=name, problem="the template has no such field", template=template.source
            )
    if len({component.path for component in each.values()}) > 1:
        raise LayoutError(item=index.name, problem="an index fans out over one collection", each=dict(index.each))
    primary = table.template.field_names
    tail = names[len(names) - len(primary) :] if names[len(names) - len(primary) :] == primary else ()
    components = []
    for place, name in enumerate(names):
        is_in_tail = bool(tail) and place >= len(names) - len(primary)
        components.append(_component(index, name, each, table, is_in_tail=is_in_tail))
    return tuple(components)


def index_conditions(index: IndexDeclaration, table: TableSpec) -> tuple[Condition, ...]:
    """Turn `when={"project": None, "state": Unlike("deleted")}` into conditions.

    Raises LayoutError for an attribute that records do not have, and for another constant.
    """
    conditions = []
    for path, constant in index.when.items():
        _require_attribute(index.name, path, path, table)
        _refuse_secret(index.name, path, Component(Origin.RECORD, path), table)
        plain = constant.constant if isinstance(constant, Unlike) else constant
        if not isinstance(plain, str | int | bool | None):
            raise LayoutError(item=index.name, field=path, problem="a condition compares with a str, int, bool or None")
        conditions.append(Condition(path, plain, is_equal=not isinstance(constant, Unlike)))
    return tuple(conditions)


def _fanned(index: IndexDeclaration) -> dict[str, Component]:
    each: dict[str, Component] = {}
    for names, source in index.each.items():
        path, bracket, attribute = source.partition("[]")
        attribute = attribute.removeprefix(".")
        if isinstance(names, str):
            each[names] = Component(Origin.EACH, path, attribute or None)
        elif bracket:
            raise LayoutError(
                item=index.name, problem="several fields of one item take its parts in order, without []", each=source
            )
        else:
            each.update({name: Component(Origin.EACH, path, place) for place, name in enumerate(names)})
    return each


def _component(
    index: IndexDeclaration, name: str, each: Mapping[str, Component], table: TableSpec, *, is_in_tail: bool
) -> Component:
    component = _source_of(index, name, each, table, is_in_tail=is_in_tail)
    _refuse_secret(index.name, name, component, table)
    return component


def _source_of(
    index: IndexDeclaration, name: str, each: Mapping[str, Component], table: TableSpec, *, is_in_tail: bool
) -> Component:
    if name in each:
        _require_attribute(index.name, name, each[name].path, table)
        return each[name]
    if name in index.bind:
        _require_attribute(index.name, name, index.bind[name], table)
        return Component(Origin.RECORD, index.bind[name])
    if is_in_tail:
        return Component(Origin.KEY, name)
    if index.on is not None:
        return Component(Origin.FUNCTION, "")
    attributes = _attributes_of(table.form.value_type)
    is_key_field = name in table.template.field_names
    if attributes is not None and name in attributes:
        return Component(Origin.RECORD, name)
    if is_key_field:
        return Component(Origin.KEY, name)
    if attributes is None:
        return Component(Origin.RECORD, name)
    raise LayoutError(
        item=index.name,
        field=name,
        problem=f"neither records of {table.name} nor their keys have it; name its source in bind= or each=",
        attributes=sorted(attributes),
        key=list(table.template.field_names),
    )


def _require_attribute(item: str, field: str, path: str, table: TableSpec) -> None:
    """Follow a dotted path through the record's annotations as far as they say anything."""
    kind: object = table.form.value_type
    for name in path.split(".") if path else ():
        attributes = _attributes_of(kind)
        if attributes is None:
            return
        is_computed = isinstance(getattr(kind, name, None), property | cached_property)
        if name not in attributes and not is_computed:
            raise LayoutError(
                item=item,
                field=field,
                problem=f"{getattr(kind, '__name__', kind)} has no attribute {name!r}",
                attributes=sorted(attributes),
            )
        kind = attributes.get(name, object)


def item_class(component: Component, table: TableSpec) -> type | None:
    """Return the class of the items that a field is taken of, where annotations say it, and it has attributes."""
    if not isinstance(component.item, str) or "." in component.path:
        return None
    members = get_args((_attributes_of(table.form.value_type) or {}).get(component.path, object))
    kinds = [part for part in members if part is not Ellipsis]
    kind = kinds[0] if len(kinds) == 1 else None
    return kind if isinstance(kind, type) and component.item in (_attributes_of(kind) or ()) else None


def _refuse_secret(item: str, field: str, component: Component, table: TableSpec) -> None:
    """Raise LayoutError for a field that is taken of a secret: its value would stand in keys."""
    if component.origin not in (Origin.RECORD, Origin.EACH):
        return
    kinds: list[object] = [table.form.value_type]
    for name in component.path.split(".") if component.path else ():
        kinds = [(_attributes_of(kind) or {}).get(name, object) for kind in kinds]
    if isinstance(component.item, str):
        kinds = [(_attributes_of(part) or {}).get(component.item, object) for kind in kinds for part in get_args(kind)]
    if any(isinstance(part, type) and issubclass(part, Secret) for kind in kinds for part in _parts_of(kind)):
        raise LayoutError(
            item=item,
            field=field,
            problem="it is taken of a secret, and would stand readable in the keys of the index; index a digest of it, "
            "as a field of its own",
        )


def _parts_of(kind: object) -> list[object]:
    """A type and those inside it."""
    return [kind, *(part for inner in get_args(kind) for part in _parts_of(inner))]


def _attributes_of(kind: object) -> Mapping[str, object] | None:
    """The attributes of a record class with their types; None when the class does not say (a dict, a scalar, Any)."""
    members = [member for member in get_args(kind) if member is not type(None)]
    if get_origin(kind) is not None and not isinstance(kind, type):
        return _attributes_of(members[0]) if len(members) == 1 else None
    if not isinstance(kind, type):
        return None
    fields = getattr(getattr(kind, "DESCRIPTOR", None), "fields_by_name", None)
    if fields is not None:
        return dict.fromkeys(fields, object)
    if issubclass(kind, Mapping) or not (_is_record(kind)):
        return None
    return _hints(kind)  # type: ignore[arg-type]  # Why: mypy takes a class for one that cannot be hashed.


@cache
def _hints(kind: type) -> Mapping[str, object]:
    # Why kept: each field of each index asks, and reading a class's annotations takes longer than all the rest.
    return get_type_hints(kind)


def _is_record(kind: type) -> bool:
    markers: Sequence[str] = ("__struct_fields__", "model_fields", "__attrs_attrs__")
    return dataclasses.is_dataclass(kind) or any(hasattr(kind, marker) for marker in markers)
