"""Whether one type of a schema reads everything that another one writes, and reads it as it was written.

The answers are those of msgspec's decoders; `tests/layout/test_differences_by_force.py` compares them with these.
"""

from collections.abc import Iterable
from math import inf
from typing import Any, Final, NamedTuple

from keyplan.layout.schema_nodes import SchemaNode

__all__ = ["Readability", "Verdict"]

_EXACT_MAX: Final = 2**53
"""The whole numbers up to which each one is a float."""
_TEXT_LENGTHS: Final = {"uuid": (36, 36), "date": (10, 10), "decimal": (1, inf), "duration": (3, inf), "time": (8, inf)}
"""How long what is no free text is as text."""


class Verdict(NamedTuple):
    """What becomes of one type's values in another type."""

    reads: bool
    """Every value is read."""
    keeps: bool
    """No value that is read is read as another one, or in part only."""

    @property
    def is_whole(self) -> bool:
        """Whether every value is read as it was written."""
        return self.reads and self.keeps


_WHOLE: Final = Verdict(reads=True, keeps=True)
_REFUSED: Final = Verdict(reads=False, keeps=True)

_Pair = tuple[int, int]


class Readability:
    """Verdicts on the types of two schemas, each pair judged once more only when one that it rests on got worse.

    A type that holds itself reads another one unless something says that it does not: every pair counts as whole until it is
    judged otherwise. A pair gets worse twice at most, so that it ends, whatever the types are; nothing recurses.

    `is_of_before`: the values that are read may have been stored before by still earlier layouts, which knew fewer fields: a
    field with a default may be missing. Else they are what programs of their layout write.
    """

    def __init__(self, *, is_of_before: bool, is_msgpack: bool) -> None:
        self._is_of_before = is_of_before
        self._is_msgpack = is_msgpack
        self._verdicts: dict[_Pair, Verdict] = {}
        self._nodes: dict[_Pair, tuple[SchemaNode, SchemaNode]] = {}
        self._resting: dict[_Pair, set[_Pair]] = {}
        self._pending: list[_Pair] = []
        self._judged: _Pair | None = None

    def of(self, wide: SchemaNode, narrow: SchemaNode) -> Verdict:
        """Return what becomes of the values of `narrow` in `wide`."""
        pair = self._known(wide, narrow)
        while self._pending:
            judged = self._judged = self._pending.pop()
            verdict = self._judge(*self._nodes[judged])
            if verdict != self._verdicts[judged]:
                self._verdicts[judged] = verdict
                self._pending += self._resting.get(judged, ())
        self._judged = None
        return self._verdicts[pair]

    def of_all(self, wide: SchemaNode, narrow: Iterable[SchemaNode]) -> Verdict:
        """Return what becomes of some alternatives' values."""
        return _all(self.of(wide, option) for option in narrow)

    def outside(self, wide: SchemaNode, narrow: SchemaNode) -> Verdict:
        """Return the verdict on two arrays or maps, whatever stands within them: their lengths and keys."""
        most = narrow.items_most
        reads = wide.lengths[0] <= narrow.lengths[0] and most <= wide.lengths[1]
        is_folded = most > 1 and bool(wide.content.get("uniqueItems")) and not narrow.content.get("uniqueItems")
        keys = self._look(wide.keys, narrow.keys) if wide.is_map else _WHOLE
        return _all([Verdict(reads, not is_folded), keys])

    def _known(self, wide: SchemaNode, narrow: SchemaNode) -> _Pair:
        pair = (id(wide), id(narrow))
        if pair not in self._verdicts:
            self._verdicts[pair] = _WHOLE
            self._nodes[pair] = (wide, narrow)
            self._pending.append(pair)
        return pair

    def _look(self, wide: SchemaNode, narrow: SchemaNode) -> Verdict:
        """The verdict as far as it is known; who asks is judged again when it gets worse."""
        if self._judged is None:
            return self.of(wide, narrow)
        pair = self._known(wide, narrow)
        self._resting.setdefault(pair, set()).add(self._judged)
        return self._verdicts[pair]

    def _judge(self, wide: SchemaNode, narrow: SchemaNode) -> Verdict:
        return _all(self._alternative(wide, other) for other in narrow.options)

    def _alternative(self, wide: SchemaNode, narrow: SchemaNode) -> Verdict:
        if narrow.words is not None:
            words = narrow.content.get("enum", [narrow.content.get("const")])
            return Verdict(all(_takes_word(wide, word) for word in words), keeps=True)
        options = wide.options
        if narrow.kind == "integer":
            # Why: where there is a type of whole numbers, they are read by it and by no other.
            options = tuple(option for option in options if _is_of_whole_numbers(option)) or options
        return _best([self._option(option, narrow) for option in options])

    def _option(self, wide: SchemaNode, narrow: SchemaNode) -> Verdict:
        if wide is narrow or wide.is_anything or narrow.is_nothing:
            return _WHOLE
        if narrow.is_anything:
            return Verdict(reads=False, keeps=not wide.is_record or wide.is_closed)
        if wide.is_nothing or wide.words is not None:
            return _REFUSED
        if wide.is_record or narrow.is_record:
            return self._record(wide, narrow)
        if wide.kind != narrow.kind or wide.is_scalar:
            return self._scalar(wide, narrow)
        return _all([self.outside(wide, narrow), self._inside(wide, narrow)])

    def _record(self, wide: SchemaNode, narrow: SchemaNode) -> Verdict:
        if wide.is_record and narrow.is_record:
            is_alike = wide.is_positional == narrow.is_positional
            return (
                (self._places(wide, narrow) if wide.is_positional else self._fields(wide, narrow))
                if is_alike
                else _REFUSED
            )
        if wide.is_record:
            # Why: a record that reads a map, or a list, passes over what it has no field for.
            is_alike = narrow.is_array if wide.is_positional else narrow.is_map
            return Verdict(reads=False, keeps=wide.is_closed or not is_alike)
        if narrow.is_positional or not wide.is_map or wide.lengths != (0, inf):
            return _REFUSED
        is_text = wide.keys.is_scalar and wide.keys.kind == "string" and not _limits(wide.keys)
        value = wide["additionalProperties"]
        return _all(
            [Verdict(is_text, keeps=True), *(self._look(value, kind) for kind in (narrow.fields or {}).values())]
        )

    def _fields(self, wide: SchemaNode, narrow: SchemaNode) -> Verdict:
        reads, writes = wide.fields or {}, narrow.fields or {}
        present = narrow.required if self._is_of_before else narrow.written
        beyond = writes.keys() - reads.keys()
        is_read = wide.required <= present and not (wide.is_closed and beyond)
        is_lost = any(not writes[name].is_constant or name not in present for name in beyond)
        is_other = any(
            wide.default(name) != narrow.default(name) for name in reads.keys() & writes.keys() - narrow.written
        )
        inner = [self._look(kind, writes[name]) for name, kind in reads.items() if name in writes]
        return _all([Verdict(is_read, not is_other and not (is_lost and not wide.is_closed)), *inner])

    def _places(self, wide: SchemaNode, narrow: SchemaNode) -> Verdict:
        reads, writes = list((wide.fields or {}).items()), list((narrow.fields or {}).items())
        is_longer = len(writes) > len(reads)
        present = len(narrow.required) if self._is_of_before else len(writes)
        is_read = len(wide.required) <= present and not (wide.is_closed and is_longer)
        both = list(zip(reads, writes, strict=False))
        is_kept = all(own == other for (own, _), (other, _) in both) and (wide.is_closed or not is_longer)
        return _all([Verdict(is_read, is_kept), *(self._look(kind, other) for (_, kind), (_, other) in both)])

    def _inside(self, wide: SchemaNode, narrow: SchemaNode) -> Verdict:
        return _all(self._look(own, other) for _, own, other in inner_types(wide, narrow))

    def _scalar(self, wide: SchemaNode, narrow: SchemaNode) -> Verdict:
        if (narrow.kind, wide.kind) == ("integer", "number"):
            is_exact = _lowest(narrow) >= -_EXACT_MAX and _highest(narrow) <= _EXACT_MAX
            return Verdict(_takes_bounds(wide, narrow), is_exact)
        if wide.kind != narrow.kind:
            return _REFUSED
        if wide.kind in {"integer", "number"}:
            return Verdict(_takes_bounds(wide, narrow), keeps=True)
        return Verdict(
            self._takes_text(wide, narrow) if wide.kind == "string" else _limits(wide) == _limits(narrow), keeps=True
        )

    def _takes_text(self, wide: SchemaNode, narrow: SchemaNode) -> bool:
        own, other = wide.text_kind, narrow.text_kind
        if own == other:
            is_within = wide.lengths[0] <= narrow.lengths[0] and narrow.lengths[1] <= wide.lengths[1]
            return is_within and wide.content.get("pattern") in {None, narrow.content.get("pattern")}
        if not own:
            # Why not those: bytes are not their base64 text, and msgpack has types of its own for them and for times.
            is_text = other != "bytes" and not (self._is_msgpack and other.startswith("date-time"))
            least, most = _TEXT_LENGTHS.get(other, (1, inf))
            return is_text and wide.lengths[0] <= least and most <= wide.lengths[1] and "pattern" not in wide.content
        return other.startswith(f"{own} with")


def inner_types(one: SchemaNode, other: SchemaNode) -> Iterable[tuple[str, SchemaNode, SchemaNode]]:
    """Yield what stands within two arrays, or two maps: the place in a tuple (else empty), and both types."""
    if one.is_map:
        yield "", one["additionalProperties"], other["additionalProperties"]
        return
    count = min(max(len(one.places), len(other.places)), one.lengths[1], other.lengths[1])
    for place in range(int(count)):
        yield str(place), one.place(place), other.place(place)
    if min(one.lengths[1], other.lengths[1]) > count:
        yield "", one["items"], other["items"]


def _all(verdicts: Iterable[Verdict]) -> Verdict:
    reads = keeps = True
    for verdict in verdicts:
        reads &= verdict.reads
        keeps &= verdict.keeps
    return Verdict(reads, keeps)


def _best(verdicts: list[Verdict]) -> Verdict:
    """The verdict of the alternative that reads a value: a whole one, else one that reads it; else nobody does."""
    if _WHOLE in verdicts:
        return _WHOLE
    return Verdict(any(one.reads for one in verdicts), all(one.keeps for one in verdicts))


def _takes_word(wide: SchemaNode, word: object) -> bool:
    """Whether a type takes a word of an enumeration: as its own one, or as one of a plain type without bounds."""
    is_number = isinstance(word, int) and not isinstance(word, bool)
    options = wide.options
    if is_number:
        options = tuple(option for option in options if _is_of_whole_numbers(option)) or options
    kinds = {"integer", "number"} if is_number else {"null"} if word is None else {"string"}
    return any(
        option.is_anything
        or (repr(word) in option.words if option.words is not None else option.kind in kinds and not _limits(option))
        for option in options
    )


def _is_of_whole_numbers(option: SchemaNode) -> bool:
    numbers = option.content.get("enum", [option.content.get("const")]) if option.words is not None else []
    return option.kind == "integer" or any(isinstance(number, int) for number in numbers)


_BOUNDS: Final = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")
_SPOKEN: Final = frozenset({"type"})


def _limits(node: SchemaNode) -> dict[str, Any]:
    """What the schema says beside the type."""
    return {name: part for name, part in node.facts.items() if name not in _SPOKEN}


def _takes_bounds(wide: SchemaNode, narrow: SchemaNode) -> bool:
    rest = [{name: part for name, part in _limits(node).items() if name not in _BOUNDS} for node in (wide, narrow)]
    return rest[0] == rest[1] and _contains(wide, narrow) and _divides(wide, narrow)


def _contains(wide: SchemaNode, narrow: SchemaNode) -> bool:
    is_low = _least(wide) <= _least(narrow)
    return is_low and _most(wide) >= _most(narrow)


def _least(node: SchemaNode) -> tuple[float, bool]:
    """The lower bound, and whether it is no value itself: a later one in their order takes less."""
    at_least, above = node.content.get("minimum", -inf), node.content.get("exclusiveMinimum", -inf)
    if node.kind == "integer":
        return _lowest(node), False
    return max((at_least, False), (above, above != -inf))


def _most(node: SchemaNode) -> tuple[float, bool]:
    """The upper bound, and whether it is a value itself."""
    at_most, below = node.content.get("maximum", inf), node.content.get("exclusiveMaximum", inf)
    if node.kind == "integer":
        return _highest(node), True
    return min((at_most, True), (below, below == inf))


def _lowest(node: SchemaNode) -> float:
    """The least whole number of a type of whole numbers."""
    bounds: list[float] = [node.content.get("minimum", -inf), node.content.get("exclusiveMinimum", -inf) + 1]
    return max(bounds)


def _highest(node: SchemaNode) -> float:
    """The largest one."""
    bounds: list[float] = [node.content.get("maximum", inf), node.content.get("exclusiveMaximum", inf) - 1]
    return min(bounds)


def _divides(wide: SchemaNode, narrow: SchemaNode) -> bool:
    own, other = wide.content.get("multipleOf"), narrow.content.get("multipleOf")
    if own is None or own == other:
        return True
    return isinstance(own, int) and isinstance(other, int) and other % own == 0
