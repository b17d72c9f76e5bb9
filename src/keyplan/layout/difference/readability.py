"""Whether one type of a schema reads everything that another one writes."""

from enum import Enum
from typing import Any, Final

from keyplan.layout.schema_nodes import SchemaNode

__all__ = ["Readability", "TypeRelation"]

_FITTING: Final[dict[str, Any]] = {"string": str, "integer": int, "number": int | float}
_STRUCTURE: Final = frozenset({"properties", "required", "additionalProperties", "items", "prefixItems", "type"})


class TypeRelation(Enum):
    """How the values of two types lie to one another."""

    SAME = "same"
    WIDER = "wider"
    NARROWER = "narrower"
    OTHER = "other"

    @classmethod
    def of(cls, *, reads_old: bool, reads_new: bool) -> "TypeRelation":
        """The relation of a new type that reads the old one's values, or not, and of the old one to the new one's."""
        if reads_old:
            return cls.SAME if reads_new else cls.WIDER
        return cls.NARROWER if reads_new else cls.OTHER


class Readability:
    """Answers, for the types of two schemas, with a memory: each pair of types is judged once, so that it always ends.

    A type that holds itself reads another one unless something says that it does not: a pair that is under judgement counts as
    fitting. What rested on a pair that turned out not to fit is judged again.
    """

    def __init__(self) -> None:
        self._assumed: dict[tuple[int, int], tuple[SchemaNode, SchemaNode]] = {}
        self._refuted: dict[tuple[int, int], tuple[SchemaNode, SchemaNode]] = {}

    def relation(self, old: SchemaNode, new: SchemaNode) -> TypeRelation:
        """Return how the values of the two types lie to one another."""
        return TypeRelation.of(reads_old=self.takes(new, old), reads_new=self.takes(old, new))

    def takes(self, wide: SchemaNode, narrow: SchemaNode) -> bool:
        """Return whether `wide` reads every value of `narrow`."""
        pair = (id(wide), id(narrow))
        if pair in self._assumed:
            return True
        if pair in self._refuted:
            return False
        before = dict(self._assumed)
        self._assumed[pair] = (wide, narrow)
        if all(any(self._takes_option(own, other) for own in wide.options) for other in narrow.options):
            return True
        self._assumed = before
        self._refuted[pair] = (wide, narrow)
        return False

    def _takes_option(self, wide: SchemaNode, narrow: SchemaNode) -> bool:
        if wide is narrow or wide.is_anything:
            return True
        if narrow.is_anything or wide.is_nothing or narrow.is_nothing:
            return False
        if narrow.words is not None:
            return narrow.words <= wide.words if wide.words is not None else _takes_words(wide, narrow)
        if wide.words is not None:
            return False
        kinds = narrow.content.get("type"), wide.content.get("type")
        if kinds == ("integer", "number"):
            return True
        if kinds[0] != kinds[1] or wide.is_record != narrow.is_record:
            return False
        if wide.is_record:
            return self._takes_record(wide, narrow)
        return _limits(wide) == _limits(narrow) and self._takes_inside(wide, narrow)

    def _takes_record(self, wide: SchemaNode, narrow: SchemaNode) -> bool:
        reads, writes = wide.fields or {}, narrow.fields or {}
        if wide.is_positional != narrow.is_positional:
            return False
        if wide.is_positional and list(reads)[: len(writes)] != list(writes)[: len(reads)]:
            return False
        if wide.is_closed and not writes.keys() <= reads.keys():
            return False
        if not wide.required <= narrow.required:
            return False
        return all(self.takes(kind, writes[name]) for name, kind in reads.items() if name in writes)

    def _takes_inside(self, wide: SchemaNode, narrow: SchemaNode) -> bool:
        if wide.is_array:
            places = zip(wide.places, narrow.places, strict=False)
            return len(wide.places) == len(narrow.places) and (
                all(self.takes(own, other) for own, other in places) and self.takes(wide["items"], narrow["items"])
            )
        return not wide.is_map or self.takes(wide["additionalProperties"], narrow["additionalProperties"])


def _takes_words(wide: SchemaNode, narrow: SchemaNode) -> bool:
    """Whether a plain type takes all words of an enumeration."""
    kind = _FITTING.get(str(wide.content.get("type")))
    words = narrow.content.get("enum", [narrow.content.get("const")])
    if kind is None or set(wide.facts) - {"type"}:
        return False
    return all(isinstance(word, kind) and not isinstance(word, bool) for word in words)


def _limits(node: SchemaNode) -> dict[str, Any]:
    """What the schema says beside the structure: formats, bounds, patterns."""
    return {name: part for name, part in node.facts.items() if name not in _STRUCTURE}
