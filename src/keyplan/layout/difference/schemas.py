"""Two JSON schemas of records compared: which fields came, went, or changed their type. Titles and notes are passed over."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

__all__ = ["FieldChange", "TypeRelation", "compare_schemas"]

_SAYS_NOTHING: Final = frozenset({"title", "description", "default", "examples", "$defs"})
_Seen = frozenset[tuple[int, int]]
"""Pairs of types that are being compared already. Why: a type may hold itself, and more than once."""


class TypeRelation(Enum):
    """How the values of two types lie to one another."""

    SAME = "same"
    WIDER = "wider"
    NARROWER = "narrower"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that came (`old` None), went (`new` None) or has another type; the types as JSON schemas call them.

    `is_required`: the one layout that has it does not read records without it. `is_refused`: the other layout does not read
    records with it. `relation` is that of the types.
    """

    path: str
    old: str | None
    new: str | None
    relation: TypeRelation = TypeRelation.OTHER
    is_required: bool = False
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class _Schema:
    root: Mapping[str, Any]
    node: Any

    def at(self, node: Any) -> "_Schema":
        return _Schema(self.root, node)

    @property
    def resolved(self) -> "_Schema":
        node = self.node
        while isinstance(node, Mapping) and "$ref" in node:
            node = self.root.get("$defs", {}).get(str(node["$ref"]).rpartition("/")[2], {})
        return self.at(node)


def compare_schemas(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[FieldChange]:
    """Return what differs, in the order of the new fields; a type that is no record of fields is the field ""."""
    return list(_fields(_Schema(old, old).resolved, _Schema(new, new).resolved, "", frozenset()))


def _fields(old: _Schema, new: _Schema, path: str, seen: _Seen) -> Iterator[FieldChange]:
    pair = (id(old.node), id(new.node))
    if pair in seen or _plain(old) == _plain(new):
        return
    seen |= {pair}
    if not (_is_record(old.node) and _is_record(new.node)):
        relation = _relation(old, new, seen - {pair})
        if relation is not TypeRelation.SAME:
            yield FieldChange(path, _name(old), _name(new), relation)
        return
    before, after = old.node["properties"], new.node["properties"]
    for name, kind in after.items():
        inner = f"{path}.{name}".lstrip(".")
        if name not in before:
            is_required = name in new.node.get("required", ())
            yield FieldChange(
                inner, None, _name(new.at(kind)), is_required=is_required, is_refused=_is_closed(old.node)
            )
            continue
        yield from _fields(old.at(before[name]).resolved, new.at(kind).resolved, inner, seen)
        was, is_now = name in old.node.get("required", ()), name in new.node.get("required", ())
        if was != is_now:
            relation = TypeRelation.NARROWER if is_now else TypeRelation.WIDER
            words = ("it may be left out", "it must be there")
            yield FieldChange(inner, words[was], words[is_now], relation)
    for name, kind in before.items():
        if name not in after:
            is_required = name in old.node.get("required", ())
            inner = f"{path}.{name}".lstrip(".")
            yield FieldChange(
                inner, _name(old.at(kind)), None, is_required=is_required, is_refused=_is_closed(new.node)
            )


def _is_record(node: Any) -> bool:
    return isinstance(node, Mapping) and isinstance(node.get("properties"), Mapping)


def _is_closed(node: Mapping[str, Any]) -> bool:
    return node.get("additionalProperties") is False


def _relation(old: _Schema, new: _Schema, seen: _Seen) -> TypeRelation:
    old, new = old.resolved, new.resolved
    pair = (id(old.node), id(new.node))
    if pair in seen or _plain(old) == _plain(new):
        return TypeRelation.SAME
    seen |= {pair}
    ours, theirs = _options(old), _options(new)
    if len(ours) == 1 and len(theirs) == 1:
        return _single_relation(old, new, seen)
    # An option fits when the other type has one that takes everything it does.
    has_ours = all(any(_takes(other, own, seen) for other in theirs) for own in ours)
    has_theirs = all(any(_takes(own, other, seen) for own in ours) for other in theirs)
    if has_ours and has_theirs:
        return TypeRelation.SAME
    return TypeRelation.WIDER if has_ours else TypeRelation.NARROWER if has_theirs else TypeRelation.OTHER


def _takes(wide: _Schema, narrow: _Schema, seen: _Seen) -> bool:
    return _relation(narrow, wide, seen) in {TypeRelation.SAME, TypeRelation.WIDER}


def _single_relation(old: _Schema, new: _Schema, seen: _Seen) -> TypeRelation:
    before, after = old.node, new.node
    if not before or not after:  # an empty schema takes everything
        return TypeRelation.WIDER if before else TypeRelation.NARROWER
    if "enum" in before and "enum" in after:
        return _of_sets({repr(word) for word in before["enum"]}, {repr(word) for word in after["enum"]})
    if "enum" in before or "enum" in after:
        return _enum_and_type(before, after)
    kinds = before.get("type"), after.get("type")
    if kinds in {("integer", "number"), ("number", "integer")}:
        return TypeRelation.WIDER if kinds[0] == "integer" else TypeRelation.NARROWER
    if kinds[0] != kinds[1]:
        return TypeRelation.OTHER
    for inside in ("items", "additionalProperties"):
        if isinstance(before.get(inside), Mapping) and isinstance(after.get(inside), Mapping):
            rest = [{name: part for name, part in node.items() if name != inside} for node in (before, after)]
            if _plain(old.at(rest[0])) == _plain(new.at(rest[1])):
                return _relation(old.at(before[inside]), new.at(after[inside]), seen)
    if _is_record(before) and _is_record(after):
        return _of_changes(list(_fields(old, new, "", seen - {(id(before), id(after))})))
    return TypeRelation.OTHER


def _of_changes(changes: list[FieldChange]) -> TypeRelation:
    """The relation of two records from their fields: readable by the other one, or not."""
    reads_old = all(_reads(change, is_new=True) for change in changes)
    reads_new = all(_reads(change, is_new=False) for change in changes)
    if reads_old:
        return TypeRelation.SAME if reads_new else TypeRelation.WIDER
    return TypeRelation.NARROWER if reads_new else TypeRelation.OTHER


def _reads(change: FieldChange, *, is_new: bool) -> bool:
    """Whether the new (or the old) type reads what the other one wrote, as far as this field goes."""
    if change.old is None:
        return not (change.is_required if is_new else change.is_refused)
    if change.new is None:
        return not (change.is_refused if is_new else change.is_required)
    return change.relation is (TypeRelation.WIDER if is_new else TypeRelation.NARROWER)


def _enum_and_type(before: Mapping[str, Any], after: Mapping[str, Any]) -> TypeRelation:
    words = before["enum"] if "enum" in before else after["enum"]
    kind = after.get("type") if "enum" in before else before.get("type")
    fits = {"string": str, "integer": int, "number": int | float}.get(str(kind))
    if fits is None or set(after if "enum" in before else before) - {"type", *_SAYS_NOTHING}:
        return TypeRelation.OTHER
    if not all(isinstance(word, fits) and not isinstance(word, bool) for word in words):
        return TypeRelation.OTHER
    return TypeRelation.WIDER if "enum" in before else TypeRelation.NARROWER


def _of_sets(old: set[str], new: set[str]) -> TypeRelation:
    if old == new:
        return TypeRelation.SAME
    return TypeRelation.WIDER if old < new else TypeRelation.NARROWER if new < old else TypeRelation.OTHER


def _options(schema: _Schema) -> list[_Schema]:
    node = schema.node
    if not isinstance(node, Mapping):
        return [schema]
    for union in ("anyOf", "oneOf"):
        if union in node:
            return [option for inner in node[union] for option in _options(schema.at(inner).resolved)]
    if isinstance(node.get("type"), list):
        return [schema.at({**node, "type": kind}) for kind in node["type"]]
    return [schema]


def _plain(schema: _Schema, within: frozenset[str] = frozenset()) -> Any:
    """The schema without what decides no bytes, references followed until they come back to themselves."""
    node = schema.node
    if isinstance(node, list):
        return [_plain(schema.at(inner), within) for inner in node]
    if not isinstance(node, Mapping):
        return node
    if "$ref" in node:
        reference = str(node["$ref"])
        return "..." if reference in within else _plain(schema.resolved, within | {reference})
    plain: dict[str, Any] = {}
    for name, inner in node.items():
        if name == "properties" and isinstance(inner, Mapping):
            plain[name] = {field: _plain(schema.at(kind), within) for field, kind in inner.items()}
        elif name == "required":
            plain[name] = sorted(inner)
        elif name not in _SAYS_NOTHING:
            plain[name] = _plain(schema.at(inner), within)
    return plain


def _name(schema: _Schema) -> str:
    """The type for people: "integer", "string or null", the record's name."""
    resolved = schema.resolved
    options = _options(resolved)
    if len(options) > 1:
        return " or ".join(_name(option) for option in options)
    node = resolved.node
    if not isinstance(node, Mapping) or not node:
        return "anything"
    if "enum" in node:
        return "one of " + ", ".join(str(word) for word in node["enum"])
    if node.get("type") == "array" and isinstance(node.get("items"), Mapping):
        return f"array of {_name(resolved.at(node['items']))}"
    if node.get("type") == "object" and isinstance(node.get("additionalProperties"), Mapping):
        return f"map of {_name(resolved.at(node['additionalProperties']))}"
    return str(node.get("title") or node.get("format") or node.get("type") or "another type")
