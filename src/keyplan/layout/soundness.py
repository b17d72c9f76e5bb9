"""What a described layout must have to be compiled. A declared one has it: its classes were checked when it was made.

A description may come from anybody. Names and paths in it become parts of generated Python, so they are judged here.
"""

from collections.abc import Mapping
from keyword import iskeyword
from typing import NoReturn

from keyplan.errors import InvalidInputError
from keyplan.layout.spec import CounterSpec, IndexSpec, LayoutSpec, Origin, TableSpec
from keyplan.layout.template import Field, Template

__all__ = ["check_described"]


def check_described(spec: LayoutSpec) -> None:
    """Raise InvalidInputError, with the item, when the layout cannot be compiled."""
    names = [item.name for item in spec.items]
    if len(set(names)) != len(names):
        _refuse("two items have one name", names=names)
    _check_template(spec.root, "root")
    if unknown := sorted(set(spec.parameters) - set(spec.root.field_names)):
        _refuse("parameters that the root does not have", parameters=unknown)
    for item in spec.items:
        _check_template(item.template, item.name)
        match item:
            case TableSpec():
                _check_places(item)
            case CounterSpec():
                _check_counter(item)
            case IndexSpec():
                _check_index(item, spec.tables)


def _check_template(template: Template, item: str) -> None:
    elements = {field.name: field.element for field in template.fields}
    for field in template.parts:
        if isinstance(field, Field) and field.attribute is not None:
            element = elements.get(field.name)
            if element is None or field.attribute not in element.attributes:
                _refuse("a field is derived from what is not there", item=item, field=field.reference)


def _check_places(table: TableSpec) -> None:
    elements = {field.name: field.element for field in table.template.fields}
    for place in table.place:
        name, _, attribute = str(place).partition(".")
        if name not in elements or (attribute and attribute not in elements[name].attributes):
            _refuse("a table is placed by what its keys do not have", item=table.name, place=place)


def _check_counter(counter: CounterSpec) -> None:
    if counter.template.fields:
        _refuse("a counter's template has no fields", item=counter.name)
    if not 0 <= counter.start < 1 << 63:
        _refuse("a counter starts between 0 and 2^63 - 1", item=counter.name)


def _check_index(index: IndexSpec, tables: Mapping[str, TableSpec]) -> None:
    table = tables.get(index.of)
    if table is None:
        _refuse("an index is of a table that is not there", index=index.name, table=index.of)
    names, primary = index.template.field_names, table.template.field_names
    if len(index.components) != len(names):
        _refuse("an index names a source for each field of its template", index=index.name)
    if not index.is_unique and (not primary or names[-len(primary) :] != primary):
        _refuse("the template of an index ends in the primary key's fields, in order", index=index.name)
    for component in index.components:
        if component.origin is Origin.KEY and component.path not in primary:
            _refuse("an index takes a field that the primary key does not have", index=index.name, path=component.path)
        if component.origin in (Origin.RECORD, Origin.EACH) and not _is_path(component.path):
            _refuse("a path is names with dots between them", index=index.name, path=component.path)
        if not isinstance(component.item, str | int | None):
            _refuse("a part of an item is a number or a name", index=index.name)
    if len({component.path for component in index.components if component.origin is Origin.EACH}) > 1:
        _refuse("an index fans out over one collection", index=index.name)
    for condition in index.when:
        if not _is_path(condition.path):
            _refuse("a path is names with dots between them", index=index.name, path=condition.path)
        if not isinstance(condition.constant, str | int | bool | None):
            _refuse("a condition compares with a str, int, bool or None", index=index.name)


def _is_path(path: str) -> bool:
    return path == "" or all(name.isidentifier() and not iskeyword(name) for name in path.split("."))


def _refuse(problem: str, **facts: object) -> NoReturn:
    raise InvalidInputError(source="layout", problem=problem, **facts)
