"""A JSON schema as a graph of nodes: references followed, alternatives listed, and what a node is called."""

from collections.abc import Mapping
from functools import cached_property
from math import inf
from typing import Any, Final

from keyplan.codec import BYTE_LENGTHS, MAP_KEYS, OMITTED_FIELDS, POSITIONAL_NAMES, TAG_FIELD, TEXT_KIND

__all__ = ["SAYS_NOTHING", "SchemaGraph", "SchemaNode"]

SAYS_NOTHING: Final = frozenset({"title", "description", "default", "examples", "$defs", "discriminator"})
"""What a schema says that decides no bytes."""

_UNIONS: Final = ("anyOf", "oneOf")
_LENGTHS: Final = {"array": "Items", "object": "Properties", "string": "Length"}
_NAME_DEPTH_MAX: Final = 4
"""Why: a name is for people, and types may share others at many levels."""


class SchemaNode:
    """One type in a schema, behind all references. Two nodes of one graph are one type when they are one object."""

    def __init__(self, graph: "SchemaGraph", content: Any) -> None:
        self._graph = graph
        self.content: Mapping[str, Any] = content if isinstance(content, Mapping) else {}
        self.is_nothing = content is False

    def __getitem__(self, key: str) -> "SchemaNode":
        """The type that stands under a keyword; anything at all where there is none."""
        return self._graph.node(self.content.get(key, {}))

    @property
    def is_anything(self) -> bool:
        return not self.is_nothing and not self.facts

    @cached_property
    def options(self) -> tuple["SchemaNode", ...]:
        """The alternatives, nested unions resolved; a type that is no union is its only one."""
        pending: list[SchemaNode] = [self]
        seen: set[int] = set()
        found: dict[int, SchemaNode] = {}
        while pending:
            node = pending.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            inner = node.alternatives
            if inner:
                pending += reversed(inner)
            else:
                found[id(node)] = node
        return tuple(found.values())

    @property
    def alternatives(self) -> list["SchemaNode"]:
        """The parts of a union; empty for a type that is none."""
        listed = next((self.content[union] for union in _UNIONS if isinstance(self.content.get(union), list)), None)
        if listed is not None:
            return [self._graph.node(option) for option in listed]
        kinds = self.content.get("type")
        if not isinstance(kinds, list):
            return []
        return [self._graph.node({**self.content, "type": kind}, key=(id(self.content), str(kind))) for kind in kinds]

    @cached_property
    def fields(self) -> Mapping[str, "SchemaNode"] | None:
        """The fields of a record, by name, in their order; None for what is no record."""
        named = self.content.get("properties")
        if isinstance(named, Mapping):
            return {str(name): self._graph.node(kind) for name, kind in named.items()}
        names, places = self.content.get(POSITIONAL_NAMES), self.content.get("prefixItems")
        if isinstance(names, list) and isinstance(places, list) and len(names) == len(places):
            return {str(name): self._graph.node(kind) for name, kind in zip(names, places, strict=True)}
        return None

    def default(self, name: str) -> tuple[object, ...]:
        """The value of a field in records that lack it, as JSON; nothing where the schema does not say."""
        drawn = self.content.get("properties")
        if not isinstance(drawn, Mapping):
            drawn = dict(zip(self.fields or {}, self.content.get("prefixItems", ()), strict=False))
        own = drawn.get(name)
        return (own["default"],) if isinstance(own, Mapping) and "default" in own else ()

    @property
    def is_record(self) -> bool:
        return self.fields is not None

    @property
    def is_positional(self) -> bool:
        """Whether it is a record whose fields are found by their places."""
        return self.is_record and "properties" not in self.content

    @cached_property
    def required(self) -> frozenset[str]:
        """The fields without which a record is not read."""
        if self.is_positional:
            least = self.content.get("minItems", 0)
            return frozenset(list(self.fields or ())[: least if isinstance(least, int) else 0])
        return frozenset(map(str, self.content.get("required", ())))

    @cached_property
    def written(self) -> frozenset[str]:
        """The fields that are in every record that a program of this layout writes."""
        return frozenset(self.fields or ()) - frozenset(map(str, self.content.get(OMITTED_FIELDS, ())))

    @property
    def is_closed(self) -> bool:
        """Whether fields that a record does not have are refused."""
        if self.is_positional:
            return "maxItems" in self.content
        return self.content.get("additionalProperties") is False

    @property
    def is_map(self) -> bool:
        return self.content.get("type") == "object" and not self.is_record

    @property
    def is_array(self) -> bool:
        return self.content.get("type") == "array" and not self.is_record

    @cached_property
    def places(self) -> tuple["SchemaNode", ...]:
        """The types of a tuple's places; empty for other arrays."""
        listed = self.content.get("prefixItems")
        return tuple(map(self._graph.node, listed)) if isinstance(listed, list) else ()

    def place(self, number: int) -> "SchemaNode":
        """The type at a place of an array."""
        return self.places[number] if number < len(self.places) else self["items"]

    @property
    def keys(self) -> "SchemaNode":
        """The type of a map's keys."""
        if MAP_KEYS in self.content:
            return self[MAP_KEYS]
        named = self.content.get("propertyNames", {})
        content = {"type": "string", **(named if isinstance(named, Mapping) else {})}
        return self._graph.node(content, key=(id(self.content), "propertyNames"))

    @property
    def kind(self) -> str:
        """The type of JSON that its values have; empty where the schema does not say."""
        return str(self.content.get("type", ""))

    @property
    def text_kind(self) -> str:
        """What its texts spell, as "uuid", "date-time" or "bytes"; empty for any text."""
        if self.content.get("contentEncoding"):
            return "bytes"
        return str(self.content.get(TEXT_KIND) or self.content.get("format") or "")

    @cached_property
    def lengths(self) -> tuple[int, float]:
        """The least and the most items, fields or characters of a value; of bytes the bytes."""
        word = _LENGTHS.get(self.kind, "")
        exact = self.content.get(BYTE_LENGTHS)
        least, most = exact or (self.content.get(f"min{word}"), self.content.get(f"max{word}"))
        return least or 0, inf if most is None else most

    @cached_property
    def items_most(self) -> float:
        """The most items or fields that a value has: no key of a map, and no item of a set, is there twice."""
        each = self.keys if self.is_map else self["items"] if self.content.get("uniqueItems") else None
        words = None if each is None else each.words
        return self.lengths[1] if words is None else min(self.lengths[1], len(words))

    @cached_property
    def words(self) -> frozenset[str] | None:
        """The values of an enumeration, as `repr` writes them; None for other types."""
        if "const" in self.content:
            return frozenset({repr(self.content["const"])})
        listed = self.content.get("enum")
        return frozenset(map(repr, listed)) if isinstance(listed, list) else None

    @property
    def is_constant(self) -> bool:
        """Whether there is one value only, as for the field that tells tagged records apart: dropping it loses nothing."""
        return self.words is not None and len(self.words) == 1

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the schema says that decides bytes, references as they are written."""
        return {name: part for name, part in self.content.items() if name not in SAYS_NOTHING}

    @cached_property
    def tag(self) -> str:
        """What tells this record from others of its union: its tag, else its first constant field by name, else its title."""
        fields = self.fields or {}
        for name in (str(self.content.get(TAG_FIELD)), *sorted(fields)):
            if name in fields and fields[name].is_constant:
                return next(iter(fields[name].words or ())).strip("'\"")
        return str(self.content.get("title", ""))

    @property
    def is_scalar(self) -> bool:
        """Whether nothing stands within it."""
        return not (self.is_record or self.is_array or self.is_map or len(self.options) > 1)

    def name(self, depth: int = 0) -> str:
        """The type for people: "integer", "string or null", the record's name."""
        if depth == _NAME_DEPTH_MAX:
            return "..."
        if len(self.options) > 1:
            return " or ".join(option.name(depth + 1) for option in self.options)
        if self.is_anything:
            return "anything"
        if "enum" in self.content:
            return "one of " + ", ".join(str(word) for word in self.content["enum"])
        if "const" in self.content:
            return str(self.content["const"])
        title = self.content.get("title")
        if self.is_array and not title:
            return self._array_name(depth) + self._limits()
        if self.is_map and not title:
            keys = "" if self.keys.name() == "string" else f"{self.keys.name(depth + 1)} to "
            return f"map of {keys}{self['additionalProperties'].name(depth + 1)}{self._limits()}"
        return str(title or self.text_kind or self.kind or "another type") + self._limits()

    def _array_name(self, depth: int) -> str:
        if self.places:
            return f"tuple of {', '.join(place.name(depth + 1) for place in self.places)}"
        return f"{'set' if self.content.get('uniqueItems') else 'array'} of {self['items'].name(depth + 1)}"

    def _limits(self) -> str:
        """Bounds of numbers and lengths, for people."""
        told = [f"{word} {self.content[name]}" for name, word in _BOUNDS.items() if name in self.content]
        least, most = self.lengths
        if not self.places and not self.is_record and (least, most) != (0, inf):
            told.append(f"{least} to {most} long" if most != inf else f"at least {least} long")
        return f" ({', '.join(told)})" if told else ""


_BOUNDS: Final = {
    "minimum": "from",
    "exclusiveMinimum": "above",
    "maximum": "to",
    "exclusiveMaximum": "below",
    "multipleOf": "multiples of",
    "pattern": "matching",
}


class SchemaGraph:
    """The nodes of one schema, each made once. Why: a type may hold itself, so that types are compared by identity."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes: dict[object, SchemaNode] = {}
        self._kept: list[Any] = []

    @property
    def root(self) -> SchemaNode:
        return self.node(self._root)

    def node(self, content: Any, *, key: object = None) -> SchemaNode:
        """Return the node of a part of the schema, references followed."""
        content = self._resolved(content)
        key = id(content) if key is None else key
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = SchemaNode(self, content)
            self._kept.append(content)  # Why: an identity means nothing once its object is gone.
        return node

    def _resolved(self, content: Any) -> Any:
        seen: set[str] = set()
        while isinstance(content, Mapping):
            if "$ref" in content:
                reference = str(content["$ref"])
                if reference in seen:
                    return {}
                seen.add(reference)
                definitions = self._root.get("$defs", {})
                content = definitions.get(reference.rpartition("/")[2], {}) if isinstance(definitions, Mapping) else {}
            elif isinstance(content.get("allOf"), list) and len(content["allOf"]) == 1:
                content = content["allOf"][0]
            else:
                break
        return content
