"""What became of a table's values: their form, and the fields of its records as far as the form describes them."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from keyplan.codec import element_of_spec, shown_path
from keyplan.layout.difference.change import Impact, LayoutChange
from keyplan.layout.difference.keys import KeyRelation, compare_keys
from keyplan.layout.difference.messages import compare_messages
from keyplan.layout.difference.schemas import FieldChange, compare_schemas
from keyplan.layout.spec import TableSpec
from keyplan.layout.template import Field, Template

__all__ = ["value_changes"]

_REWRITE: Final = "`keyplan migrate` writes the values anew; give it a function where the new type does not say how"
_NOTHING: Final = "nothing to do"


def value_changes(old: TableSpec, new: TableSpec, drops: Collection[str] = ()) -> Iterator[LayoutChange]:
    """Changes E8 to E11, E18 and E20 to E22 of one table. `drops` names fields, `table.field`, whose values shall be lost."""
    before, after = old.form.describe(), new.form.describe()
    yield from _secret_changes(old, new)
    if old.holds_keys != new.holds_keys:
        advice = "nothing to do: restores and copies below another prefix follow the new declaration"
        yield LayoutChange("E18", new.name, Impact.COMPATIBLE, "other places in its values hold whole keys", advice)
    is_same_form = before["form"] == after["form"]
    if not is_same_form:
        message = f"values are stored as {after['form']}, no longer as {before['form']}"
        yield LayoutChange("E8", new.name, Impact.REWRITE, message, _REWRITE)
    if isinstance(before.get("schema"), Mapping) and isinstance(after.get("schema"), Mapping):
        is_msgpack = before["form"] == after["form"] == "msgpack"
        for change in compare_schemas(before["schema"], after["schema"], is_msgpack=is_msgpack):
            yield _field_change(new.name, _decided(new.name, change, drops))
    elif isinstance(before.get("types"), Mapping) and isinstance(after.get("types"), Mapping):
        for change in _named_types(before, after):
            yield _field_change(new.name, _decided(new.name, change, drops))
        if is_same_form and {**before, "types": None} != {**after, "types": None}:
            yield LayoutChange("E11", new.name, Impact.REWRITE, "values are described otherwise", _REWRITE)
    elif is_same_form and "messages" in before and "messages" in after:
        for change in compare_messages(before, after):
            yield _field_change(new.name, _decided(new.name, change, drops))
    elif before["form"] == after["form"] == "element":
        yield from _element_changes(new.name, str(before["element"]), str(after["element"]))
    elif is_same_form and _without_names(before) != _without_names(after):
        message = f"values of the form {after['form']} are described otherwise"
        yield LayoutChange("E11", new.name, Impact.REWRITE, message, _REWRITE)


def _secret_changes(old: TableSpec, new: TableSpec) -> Iterator[LayoutChange]:
    for path in sorted({*new.form.secrets} - {*old.form.secrets}, key=str):
        advice = "nothing to do: it is masked from now on, and stored as before"
        yield LayoutChange("E21", new.name, Impact.COMPATIBLE, "it is secret now", advice, shown_path(path))
    for path in sorted({*old.form.secrets} - {*new.form.secrets}, key=str):
        message, shown = "it is secret no longer", shown_path(path)
        if old.is_sealed:
            # Why breaking: what is sealed is no value of a field that is none, and its record would be a damaged one.
            advice = "leave none sealed: `keyplan secrets open` with the old layout; everybody who reads sees it from then on"
            yield LayoutChange("E22", new.name, Impact.BREAKING, message, advice, shown)
        else:
            advice = "everybody who reads the records sees it from now on"
            yield LayoutChange("E21", new.name, Impact.COMPATIBLE, message, advice, shown)


def _decided(table: str, change: FieldChange, drops: Collection[str]) -> FieldChange:
    """The change without its loss, when somebody said that he knows it."""
    return replace(change, loses_values=False) if f"{table}.{change.path}" in drops else change


def _field_change(table: str, change: FieldChange) -> LayoutChange:
    if change.old is None:
        return _new_field(table, change)
    if change.new is None:
        return _gone_field(table, change)
    if change.is_default:
        return _other_default(table, change)
    message = f"it was {change.old} and is {change.new}"
    if change.loses_values:
        message += ": what it has no place for is lost when a record is written again"
        return _loss("E11", table, change, message)
    if not change.relation.reads_old:
        advice = f"values from before may not be readable: {_REWRITE}"
        return LayoutChange("E11", table, Impact.REWRITE, message, advice, change.path)
    if change.relation.reads_new:
        return LayoutChange("E11", table, Impact.COMPATIBLE, message, _NOTHING, change.path)
    advice = "upgrade all readers before one writes the new values"
    return LayoutChange("E11", table, Impact.READERS_FIRST, message, advice, change.path)


def _other_default(table: str, change: FieldChange) -> LayoutChange:
    message = f"records without it were read with {change.old} there, and are with {change.new}"
    if not change.relation.reads_old:
        impact, advice = Impact.REWRITE, f"records are stored without it where it is {change.old}: {_REWRITE}"
    elif not change.relation.reads_new:
        advice = f"upgrade all readers before one leaves it out, where it is {change.new}"
        impact = Impact.READERS_FIRST
    else:
        impact, advice = (
            Impact.COMPATIBLE,
            "where the old value is to stay, write those records anew by the old layout first",
        )
    return LayoutChange("E20", table, impact, message, advice, change.path)


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
    if change.loses_values:
        return _loss("E10", table, change, f"{message}: its values are lost when a record is written again")
    if change.is_refused:
        advice = f"records that hold it are refused by the new layout: {_REWRITE}"
        return LayoutChange("E10", table, Impact.REWRITE, message, advice, change.path)
    lacks = "cannot read records without it" if change.is_required else "reads its default where it is missing"
    advice = f"upgrade all readers before one writes without it: an old one {lacks}"
    return LayoutChange("E10", table, Impact.READERS_FIRST, message, advice, change.path)


def _loss(code: str, table: str, change: FieldChange, message: str) -> LayoutChange:
    consent = f"say that the values shall be dropped (--drop {table}.{change.path})"
    names = " or ".join(change.renamed_to)
    advice = f"renamed to {names}? Then give `keyplan migrate` a function that moves the values; else {consent}"
    return LayoutChange(
        code,
        table,
        Impact.BREAKING,
        message,
        advice if names else f"give `keyplan migrate` a function that keeps the values; or {consent}",
        change.path,
        loses_values=True,
        renamed_to=change.renamed_to,
    )


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


def _named_types(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[FieldChange]:
    """Forms that describe their types as names with fields, each with a default as proto3 has it."""
    before, after = _flat(old["types"]), _flat(new["types"])
    is_refused = bool(old.get("is_strict")), bool(new.get("is_strict"))
    for path in after:
        if path not in before:
            yield FieldChange(path, None, after[path], is_refused=is_refused[0])
        elif before[path] != after[path]:
            yield FieldChange(path, before[path], after[path])
    for path in before:
        if path not in after:
            kind = path.partition(".")[0]
            alike = [
                name.partition(".")[2]
                for name in after
                if name not in before and name.partition(".")[0] == kind and after[name] == before[path]
            ]
            yield FieldChange(
                path, before[path], None, is_refused=is_refused[1], loses_values=True, renamed_to=tuple(alike)
            )


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
