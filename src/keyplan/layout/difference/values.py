"""What became of a table's values: their form, and the fields of its records as far as the form describes them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from keyplan.codec import element_of_spec
from keyplan.layout.difference.change import Impact, LayoutChange
from keyplan.layout.difference.keys import KeyRelation, compare_keys
from keyplan.layout.difference.schemas import FieldChange, TypeRelation, compare_schemas
from keyplan.layout.spec import TableSpec
from keyplan.layout.template import Field, Template

__all__ = ["value_changes"]

_REWRITE: Final = "`keyplan migrate` writes the values anew; give it a function where the new type does not say how"
_NOTHING: Final = "nothing to do"


def value_changes(old: TableSpec, new: TableSpec) -> Iterator[LayoutChange]:
    """Changes E8 to E11 and E18 of one table."""
    before, after = old.form.describe(), new.form.describe()
    if old.holds_keys != new.holds_keys:
        advice = "nothing to do: restores and copies below another prefix follow the new declaration"
        yield LayoutChange("E18", new.name, Impact.COMPATIBLE, "other places in its values hold whole keys", advice)
    if before["form"] != after["form"]:
        message = f"values are stored as {after['form']}, no longer as {before['form']}"
        yield LayoutChange("E8", new.name, Impact.REWRITE, message, _REWRITE)
    elif before["form"] == "element":
        yield from _element_changes(new.name, str(before["element"]), str(after["element"]))
    elif isinstance(before.get("schema"), Mapping) and isinstance(after.get("schema"), Mapping):
        for change in compare_schemas(before["schema"], after["schema"]):
            yield _field_change(new.name, change)
    elif isinstance(before.get("types"), Mapping) and isinstance(after.get("types"), Mapping):
        yield from _named_types(new.name, before, after)
    elif _without_names(before) != _without_names(after):
        message = f"values of the form {after['form']} are described otherwise"
        yield LayoutChange("E11", new.name, Impact.REWRITE, message, _REWRITE)


def _field_change(table: str, change: FieldChange) -> LayoutChange:
    if change.old is None:
        return _new_field(table, change)
    if change.new is None:
        return _gone_field(table, change)
    message = f"it was {change.old} and is {change.new}"
    if change.relation is TypeRelation.WIDER:
        advice = "upgrade all readers before one writes the new values"
        return LayoutChange("E11", table, Impact.READERS_FIRST, message, advice, change.path)
    advice = f"values from before may not be readable: {_REWRITE}"
    return LayoutChange("E11", table, Impact.REWRITE, message, advice, change.path)


def _new_field(table: str, change: FieldChange) -> LayoutChange:
    if change.is_required:
        message = f"a field of type {change.new} is new and has no default"
        advice = f"give it a default, and nothing is to be written; or {_REWRITE}"
        return LayoutChange("E9", table, Impact.REWRITE, message, advice, change.path)
    message = f"a field of type {change.new} is new, with a default"
    if change.is_refused:
        advice = "upgrade all readers before one writes it: the old ones refuse fields that they do not know"
        return LayoutChange("E9", table, Impact.READERS_FIRST, message, advice, change.path)
    advice = "upgrade all writers before one relies on it: an old one that changes a record drops the field"
    return LayoutChange("E9", table, Impact.WRITERS_FIRST, message, advice, change.path)


def _gone_field(table: str, change: FieldChange) -> LayoutChange:
    message = f"a field of type {change.old} is gone"
    if change.is_refused:
        advice = f"records that hold it are refused by the new layout: {_REWRITE}"
        return LayoutChange("E10", table, Impact.REWRITE, message, advice, change.path)
    lacks = "cannot read records without it" if change.is_required else "reads its default where it is missing"
    advice = f"upgrade all readers before one writes without it: an old one {lacks}"
    return LayoutChange("E10", table, Impact.READERS_FIRST, message, advice, change.path)


def _element_changes(table: str, old: str, new: str) -> Iterator[LayoutChange]:
    if old == new:
        return
    first, second = (Template((Field("value", None, element_of_spec(spec)),), is_text=False) for spec in (old, new))
    relation = compare_keys(first, second).relation
    message = f"values are {new}, no longer {old}"
    match relation:
        case KeyRelation.SAME:
            yield LayoutChange("E11", table, Impact.COMPATIBLE, message, _NOTHING)
        case KeyRelation.WIDER:
            advice = "upgrade all readers before one writes the new values"
            yield LayoutChange("E11", table, Impact.READERS_FIRST, message, advice)
        case _:
            yield LayoutChange("E11", table, Impact.REWRITE, message, _REWRITE)


def _named_types(table: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[LayoutChange]:
    """Forms that describe their types as names with fields, each with a default as proto3 has it."""
    before, after = _flat(old["types"]), _flat(new["types"])
    rest = [{**described, "types": None} for described in (old, new)]
    if rest[0] != rest[1]:
        yield LayoutChange("E11", table, Impact.REWRITE, "values are described otherwise", _REWRITE)
    is_refused = bool(old.get("is_strict")), bool(new.get("is_strict"))
    for path in after:
        if path not in before:
            yield _new_field(table, FieldChange(path, None, after[path], is_refused=is_refused[0]))
        elif before[path] != after[path]:
            yield _field_change(table, FieldChange(path, before[path], after[path], TypeRelation.OTHER))
    for path in before:
        if path not in after:
            yield _gone_field(table, FieldChange(path, before[path], None, is_refused=is_refused[1]))


def _flat(types: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{kind}.{name}": str(inner)
        for kind, fields in types.items()
        for name, inner in (fields.items() if isinstance(fields, Mapping) else [("values", fields)])
    }


def _without_names(described: Mapping[str, Any]) -> dict[str, Any]:
    """What decides bytes: a class may be called otherwise, a protobuf message's name says which one it is."""
    passed = {"type"} if described["form"] in {"json", "msgpack"} else set[str]()
    return {name: part for name, part in described.items() if name not in passed}
