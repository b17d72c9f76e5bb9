"""By which bytes of a raw key a record is placed: from a layout's `place=`, for keys and for ranges. Pure.

The placed bytes are those of the fields that `place=` names, as they stand in the key, one after the other. A key that no
template spells is placed as the keys are that begin like it, up to the last placed field; so that what one database has of a
range is all that there is. Tables without `place=`, and keys that begin like nothing that is placed, are in the first database.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from keyplan.codec import alphabet_of, byte_class, is_self_delimiting
from keyplan.engine import KeyRange
from keyplan.errors import LayoutError
from keyplan.layout import BoundLayout, Field, KeyShape, Literal, Template, compile_keys, template_of_source
from keyplan.ring.rendezvous import fnv1a_64, place

__all__ = ["FIRST", "Placement", "described_placement", "placement_of", "read_placement"]

FIRST: Final = 0
"""The database of what is not placed."""

_PLACES_KEPT: Final = 1 << 16
"""Why: a job works on few places at a time, and finding one takes tens of microseconds."""

_RULES_KEPT: Final = 256
"""Why: a rule takes milliseconds to make, and each database of a ring that is opened names the same ones."""

_PLAIN_TUPLE: Final = KeyShape("tuple", is_scalar=False, make=lambda *values: values)


@dataclass(frozen=True)
class _Rule:
    """How the keys of one template are placed.

    `start` is the literal that they begin with, `owns` tells them from others, `may_begin` whether any of them has a prefix.
    `of_key` gives the placed bytes; `of_prefix` those of everything that begins with this prefix, spelled or not, None when
    they may differ. Both are None for what is not placed. `width` is set when the placed bytes are the key's first ones.
    """

    start: bytes
    owns: Callable[[bytes], object]
    may_begin: Callable[[bytes], bool]
    of_key: Callable[[bytes], bytes | None] | None = None
    of_prefix: Callable[[bytes], bytes | None] | None = None
    width: int | None = None


class Placement:
    """Where the keys of a layout are, in a ring of so many databases."""

    def __init__(self, rules: Sequence[_Rule], databases: int) -> None:
        self._rules = tuple(rules)
        self.databases = databases
        self._place = lru_cache(_PLACES_KEPT)(self._found)
        self._of_prefix = lru_cache(_PLACES_KEPT)(self._found_for_all)
        self.width = rules[0].width if len(rules) == 1 else None
        """The number of leading bytes by which every key is placed, where it is that simple."""

    def over(self, databases: int) -> "Placement":
        """Return the placement of the same layout over another number of databases."""
        return Placement(self._rules, databases)

    def placed_bytes(self, raw_key: bytes) -> bytes | None:
        """Return the bytes that are hashed; None for a key that is not placed."""
        is_alone = len(self._rules) == 1
        for rule in self._rules:
            if is_alone or (raw_key.startswith(rule.start) and rule.owns(raw_key) is not None):
                placed = None if rule.of_key is None else rule.of_key(raw_key)
                if placed is not None or not is_alone:
                    return placed
        # Why: a scan of a prefix must find it where the keys are that the templates spell there.
        begun = (rule.of_prefix(raw_key) for rule in self._rules if rule.of_prefix is not None)
        return next((placed for placed in begun if placed is not None), None)

    def of_key(self, raw_key: bytes) -> int:
        """Return the database of a raw key."""
        # Why these two apart: it is asked for every key, and nearly all are such.
        if self.databases == 1:
            return FIRST
        width = self.width
        if width is not None and len(raw_key) >= width:
            return self._place(raw_key[:width])
        placed = self.placed_bytes(raw_key)
        return FIRST if placed is None else self._place(placed)

    def of_range(self, key_range: KeyRange) -> int | None:
        """Return the database that has all keys of the range; None when there may be several: the list fans out."""
        if self.databases == 1:
            return FIRST
        if key_range.end == key_range.start + b"\x00":
            return self.of_key(key_range.start)
        return self._of_prefix(_shared_prefix(key_range))

    def group_of(self, raw_key: bytes) -> KeyRange | None:
        """Return the range of all keys that are placed by the same leading bytes; None where it is not that simple."""
        width = self.width
        return None if width is None or len(raw_key) < width else KeyRange.of_prefix(raw_key[:width])

    def _found_for_all(self, prefix: bytes) -> int | None:
        """Return the one database that all keys with this prefix are in, by whatever template; None when there is none.

        Keys that no template spells are there as well: each is placed by a rule that the prefix begins, or may still begin.
        """
        found: set[int] = set()
        for rule in self._rules:
            if rule.of_prefix is not None and (placed := rule.of_prefix(prefix)) is not None:
                found.add(self._place(placed))
            elif len(self._rules) == 1 or rule.may_begin(prefix):
                if rule.of_prefix is not None:
                    return None
                found.add(FIRST)
        return FIRST if not found else found.pop() if len(found) == 1 else None

    def _found(self, placed: bytes) -> int:
        return place(fnv1a_64(placed), self.databases)


def placement_of(layout: BoundLayout, databases: int) -> Placement:
    """Return the placement that a layout declares with `place=`.

    Raises LayoutError when a table, or one of its indexes, is placed by a field that does not stand in its keys: an index
    entry must lie in the database of its record, because a commit cannot span two.
    """
    return read_placement(described_placement(layout), databases)


def described_placement(layout: BoundLayout) -> dict[str, list[str]]:
    """Return what a ring's databases remember of a layout: for each table and index its template, and what it is placed by."""
    described: dict[str, list[str]] = {"is_text": [str(layout.spec.is_text).lower()]}
    for table in layout.tables.values():
        for name, template in ((table.name, table.keys.template), *((i.name, i.keys.template) for i in table.indexes)):
            standing = {_reference(part) for part in template.parts if isinstance(part, Field)}
            for wanted in table.spec.place:
                if wanted not in standing:
                    problem = f"it is placed by {wanted}, which its keys do not hold"
                    raise LayoutError(layout=layout.name, item=name, problem=problem)
            described[f"item {name}"] = [template.source, *table.spec.place]
    return described


def read_placement(described: Mapping[str, Sequence[str]], databases: int) -> Placement:
    """Return the placement that `described_placement` described."""
    is_text = list(described["is_text"]) == ["true"]
    rules = [
        _rule(source, frozenset(wanted), is_text=is_text)
        for name, (source, *wanted) in described.items()
        if name.startswith("item ")
    ]
    return Placement(rules, databases)


@lru_cache(maxsize=_RULES_KEPT)
def _rule(source: str, wanted: frozenset[str], *, is_text: bool) -> _Rule:
    template = template_of_source(source, is_text=is_text)
    parts = template.parts
    start = parts[0].raw if parts and isinstance(parts[0], Literal) else b""
    owns = compile_keys(template, _PLAIN_TUPLE).decode
    may_begin = _prefix_judge(template)
    if not wanted:
        return _Rule(start, owns, may_begin)
    last = max(at for at, part in enumerate(parts) if _is_placed(part, wanted))
    of_prefix = _prefix_reader(template, wanted, last, may_begin)
    if all(_is_placed(part, wanted) for part in parts[: last + 1]):
        widths = [part.element.width for part in parts[: last + 1] if isinstance(part, Field)]
        if None not in widths:
            width = sum(width for width in widths if width is not None)
            return _Rule(start, owns, may_begin, _first(width), of_prefix, width)
    whole = re.compile(_pattern(parts, wanted), re.DOTALL).fullmatch

    def of_key(raw: bytes) -> bytes | None:
        match = whole(raw)
        return None if match is None else b"".join(match.groups())

    return _Rule(start, owns, may_begin, of_key, of_prefix)


def _first(width: int) -> Callable[[bytes], bytes | None]:
    """Read the placed bytes of keys that are placed by their first ones."""
    return lambda raw: raw[:width] if len(raw) >= width else None


def _prefix_judge(template: Template) -> Callable[[bytes], bool]:
    """Tell of a prefix whether a key of the template can begin with it; in doubt it can."""
    automaton = template.automaton

    def may_begin(prefix: bytes) -> bool:
        states = frozenset({0})
        for byte in prefix:
            states = automaton.step(states, byte) & automaton.live
            if not states:
                return False
        return True

    return may_begin


def _prefix_reader(
    template: Template, wanted: frozenset[str], last: int, may_begin: Callable[[bytes], bool]
) -> Callable[[bytes], bytes | None]:
    """Read the placed bytes from a prefix of keys, when it holds them to their end, whatever comes behind it."""
    # Why: a field ends at the literal behind it, one of fixed width by itself; any other may go on behind the prefix.
    has_literal = isinstance(_following(template, last), Literal)
    final = template.parts[last]
    is_ended = has_literal or (isinstance(final, Field) and final.element.width is not None)
    if not is_ended or not all(_is_told_apart(template, at) for at in range(last + 1)):
        return lambda _: None
    leading = re.compile(_pattern(template.parts[: last + 1 + has_literal], wanted), re.DOTALL).match

    def of_prefix(prefix: bytes) -> bytes | None:
        match = leading(prefix)
        # Why both: the pattern knows no bounds of a field, and what cannot begin a key may begin another template's.
        return None if match is None or not may_begin(prefix[: match.end()]) else b"".join(match.groups())

    return of_prefix


def _is_told_apart(template: Template, at: int) -> bool:
    """Tell whether a part has one end only, whatever comes behind it."""
    part, following = template.parts[at], _following(template, at)
    if not isinstance(part, Field) or part.element.width is not None or is_self_delimiting(part.element):
        return True
    return isinstance(following, Literal) and not alphabet_of(part.language) & byte_class(following.raw[:1])


def _following(template: Template, at: int) -> Literal | Field | None:
    return template.parts[at + 1] if at + 1 < len(template.parts) else None


def _pattern(parts: Sequence[Literal | Field], wanted: frozenset[str]) -> bytes:
    return b"".join(_part_patterns(parts, wanted))


def _part_patterns(parts: Sequence[Literal | Field], wanted: frozenset[str]) -> Iterator[bytes]:
    for part in parts:
        if isinstance(part, Literal):
            yield re.escape(part.raw)
        else:
            yield (b"(%b)" if _is_placed(part, wanted) else b"(?:%b)") % part.language.pattern


def _is_placed(part: Literal | Field, wanted: frozenset[str]) -> bool:
    return isinstance(part, Field) and _reference(part) in wanted


def _reference(part: Field) -> str:
    return part.name if part.attribute is None else f"{part.name}.{part.attribute}"


def _shared_prefix(key_range: KeyRange) -> bytes:
    """Return the longest prefix that all keys of the range begin with."""
    for size in range(len(key_range.start), 0, -1):
        end = KeyRange.of_prefix(key_range.start[:size]).end
        if end is None or (key_range.end is not None and key_range.end <= end):
            return key_range.start[:size]
    return b""
