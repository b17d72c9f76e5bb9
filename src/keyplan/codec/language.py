"""Regular languages of bytes: what a key element or a template can spell.

One description serves all readers: the lint asks the automaton which keys two templates share, decoding asks the compiled
pattern where each element begins, limits ask for the shortest and longest spelling, test strategies walk the automaton.

A byte class is an integer with bit b set when byte b is allowed, so that the intersection of two classes is one `&`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

__all__ = [
    "ANY_BYTE",
    "AUTOMATON_STATES_MAX",
    "Automaton",
    "AutomatonTooLargeError",
    "Bytes",
    "Choice",
    "Language",
    "Limited",
    "Refined",
    "Repeat",
    "Series",
    "byte_class",
    "literal",
]

ANY_BYTE: Final = (1 << 256) - 1

# Why: bounded repeats longer than this become unbounded in a relaxed automaton. The relaxed language only grows, so "no
# shared key" stays proven, and a witness found in it is checked against the exact language.
_RELAXED_REPEAT_MAX: Final = 40


AUTOMATON_STATES_MAX: Final = 200_000
"""Why: some 100 MB; a name of 255 bytes has 2,000 states, all paths of 256 components some 3,000."""


class AutomatonTooLargeError(Exception):
    """The automaton of a language has more than AUTOMATON_STATES_MAX states: a bound on a length is too large for it."""


def byte_class(*allowed: int | bytes | range) -> int:
    """Return the class that allows the given bytes: single values, every byte of a string, or a range."""
    mask = 0
    for item in allowed:
        for byte in (item,) if isinstance(item, int) else item:
            mask |= 1 << byte
    return mask


class Language:
    """A set of byte strings. Immutable; compared by structure."""

    __slots__ = ()

    @property
    def bytes_min(self) -> int:
        """The length of the shortest member."""
        raise NotImplementedError

    @property
    def bytes_max(self) -> int | None:
        """The length of the longest member; None when there is no longest."""
        raise NotImplementedError

    @property
    def width(self) -> int | None:
        """The length of every member, when they all have the same; else None."""
        return self.bytes_min if self.bytes_min == self.bytes_max else None

    @property
    def pattern(self) -> bytes:
        """A regular expression for `re.fullmatch` on bytes, without capturing groups.

        The bounds of a `Limited` language and the rule of a `Refined` one are not in it; check them beside it.
        """
        raise NotImplementedError

    @property
    def is_plain(self) -> bool:
        """Whether `pattern` tells members exactly: no part is `Limited` or `Refined`."""
        return True

    def accepts(self, raw: bytes) -> bool:
        """Tell whether `raw` is a member, length bounds and rules of every part included."""
        if re.fullmatch(self.pattern, raw) is None:
            return False
        return self.is_plain or len(raw) in self.ends(raw, 0)

    def ends(self, raw: bytes, start: int) -> set[int]:
        """Every position in `raw` where a member that begins at `start` may end. Exact, and slow: for what no pattern says."""
        raise NotImplementedError

    def automaton(self, *, relaxed: bool = True) -> "Automaton":
        """Return the position automaton; relaxed, long bounded repeats and length bounds are dropped (the language grows).

        The rule of a `Refined` language is in neither.
        """
        return Automaton.of((self,), relaxed=relaxed)

    def __add__(self, other: "Language") -> "Language":
        return Series((self, other))

    def __or__(self, other: "Language") -> "Language":
        return Choice((self, other))


@dataclass(frozen=True, slots=True)
class Bytes(Language):
    """One byte out of a class."""

    allowed: int

    @property
    def bytes_min(self) -> int:
        return 1

    @property
    def bytes_max(self) -> int | None:
        return 1

    @property
    def pattern(self) -> bytes:
        return _class_pattern(self.allowed)

    def ends(self, raw: bytes, start: int) -> set[int]:
        return {start + 1} if start < len(raw) and self.allowed >> raw[start] & 1 else set()


@dataclass(frozen=True, slots=True)
class Series(Language):
    """One member of each part, in order."""

    parts: tuple[Language, ...]

    @property
    def bytes_min(self) -> int:
        return sum(part.bytes_min for part in self.parts)

    @property
    def bytes_max(self) -> int | None:
        return _sum_or_none(part.bytes_max for part in self.parts)

    @property
    def pattern(self) -> bytes:
        return b"".join(part.pattern for part in self.parts)

    @property
    def is_plain(self) -> bool:
        return all(part.is_plain for part in self.parts)

    def ends(self, raw: bytes, start: int) -> set[int]:
        positions = {start}
        for part in self.parts:
            positions = {end for position in positions for end in part.ends(raw, position)}
        return positions


@dataclass(frozen=True, slots=True)
class Choice(Language):
    """A member of any one of the options."""

    options: tuple[Language, ...]

    @property
    def bytes_min(self) -> int:
        return min(option.bytes_min for option in self.options)

    @property
    def bytes_max(self) -> int | None:
        longest = [option.bytes_max for option in self.options]
        known = [length for length in longest if length is not None]
        return max(known) if len(known) == len(longest) else None

    @property
    def pattern(self) -> bytes:
        return b"(?:" + b"|".join(option.pattern for option in self.options) + b")"

    @property
    def is_plain(self) -> bool:
        return all(option.is_plain for option in self.options)

    def ends(self, raw: bytes, start: int) -> set[int]:
        return {end for option in self.options for end in option.ends(raw, start)}


@dataclass(frozen=True, slots=True)
class Repeat(Language):
    """`least` to `most` members of `item`, one after the other; `most` None means without end."""

    item: Language
    least: int = 0
    most: int | None = None

    @property
    def bytes_min(self) -> int:
        return self.item.bytes_min * self.least

    @property
    def bytes_max(self) -> int | None:
        longest = self.item.bytes_max
        return None if self.most is None or longest is None else longest * self.most

    @property
    def pattern(self) -> bytes:
        most = b"" if self.most is None else str(self.most).encode()
        return b"(?:" + self.item.pattern + b"){" + str(self.least).encode() + b"," + most + b"}"

    @property
    def is_plain(self) -> bool:
        return self.item.is_plain

    def ends(self, raw: bytes, start: int) -> set[int]:
        reached = {start}
        for _ in range(self.least):
            reached = {end for position in reached for end in self.item.ends(raw, position)}
        found, frontier, count = set(reached), reached, self.least
        while frontier and (self.most is None or count < self.most):
            frontier = {end for position in frontier for end in self.item.ends(raw, position)} - found
            found |= frontier
            count += 1
        return found


@dataclass(frozen=True, slots=True)
class Limited(Language):
    """The members of `item` that are at most `limit` bytes long."""

    item: Language
    limit: int

    @property
    def bytes_min(self) -> int:
        return self.item.bytes_min

    @property
    def bytes_max(self) -> int | None:
        longest = self.item.bytes_max
        return self.limit if longest is None else min(longest, self.limit)

    @property
    def pattern(self) -> bytes:
        return self.item.pattern

    @property
    def is_plain(self) -> bool:
        return False

    def accepts(self, raw: bytes) -> bool:
        return len(raw) <= self.limit and self.item.accepts(raw)

    def ends(self, raw: bytes, start: int) -> set[int]:
        return {end for end in self.item.ends(raw, start) if end - start <= self.limit}


@dataclass(frozen=True, slots=True)
class Refined(Language):
    """The members of `item` for which `holds` is true: a rule that no regular language, or no small one, can say.

    Automaton and pattern are those of `item`, which is larger: what they exclude is proven, what they find is to be checked.
    """

    item: Language
    holds: Callable[[bytes], bool]

    @property
    def bytes_min(self) -> int:
        return self.item.bytes_min

    @property
    def bytes_max(self) -> int | None:
        return self.item.bytes_max

    @property
    def pattern(self) -> bytes:
        return self.item.pattern

    @property
    def is_plain(self) -> bool:
        return False

    def accepts(self, raw: bytes) -> bool:
        return self.item.accepts(raw) and self.holds(raw)

    def ends(self, raw: bytes, start: int) -> set[int]:
        return {end for end in self.item.ends(raw, start) if self.holds(raw[start:end])}


def literal(raw: bytes) -> Language:
    """The language of exactly this byte string."""
    return Series(tuple(Bytes(1 << byte) for byte in raw))


@dataclass(frozen=True)
class Automaton:
    """A non-deterministic automaton without empty moves, one state for each byte position of the languages it was made of.

    State 0 is the start and has no incoming edge. `classes[s]` is the byte class read on entering state s; `part_of[s]` is
    the index of the language (element or literal of a template) that state s belongs to, -1 for the start: two runs over one
    key that pass through different parts are two different readings of that key.
    """

    classes: tuple[int, ...]
    followers: tuple[tuple[int, ...], ...]
    accepting: frozenset[int]
    part_of: tuple[int, ...]

    @classmethod
    def of(cls, parts: Sequence[Language], *, relaxed: bool = True) -> "Automaton":
        """Build the automaton of the concatenation of `parts` (Glushkov's construction)."""
        builder = _Builder(relaxed=relaxed)
        for index, part in enumerate(parts):
            builder.append(part, index)
        return builder.finish()

    @cached_property
    def live(self) -> frozenset[int]:
        """The states from which an accepting state can be reached."""
        before: list[list[int]] = [[] for _ in self.classes]
        for state, next_states in enumerate(self.followers):
            for follower in next_states:
                if self.classes[follower]:
                    before[follower].append(state)
        reached, frontier = set(self.accepting), list(self.accepting)
        while frontier:
            found = [state for state in before[frontier.pop()] if state not in reached]
            reached.update(found)
            frontier += found
        return frozenset(reached)

    def step(self, states: Iterable[int], byte: int) -> frozenset[int]:
        """The states reached from any of `states` by reading `byte`."""
        bit = 1 << byte
        return frozenset(s for state in states for s in self.followers[state] if self.classes[s] & bit)


@dataclass(frozen=True, slots=True)
class _Fragment:
    nullable: bool
    first: tuple[int, ...]
    last: tuple[int, ...]


class _Builder:
    """Glushkov's construction over a growing list of positions."""

    def __init__(self, *, relaxed: bool) -> None:
        self._relaxed = relaxed
        self._classes: list[int] = [0]
        self._part_of: list[int] = [-1]
        self._followers: list[set[int]] = [set()]
        self._whole = _Fragment(nullable=True, first=(), last=())
        self._part = 0

    def append(self, language: Language, part: int) -> None:
        self._part = part
        self._whole = self._series(self._whole, self._build(language))

    def finish(self) -> Automaton:
        self._followers[0] = set(self._whole.first)
        accepting = set(self._whole.last) | ({0} if self._whole.nullable else set())
        return Automaton(
            classes=tuple(self._classes),
            followers=tuple(tuple(sorted(next_states)) for next_states in self._followers),
            accepting=frozenset(accepting),
            part_of=tuple(self._part_of),
        )

    def _build(self, language: Language) -> _Fragment:
        match language:
            case Bytes(allowed):
                return self._position(allowed)
            case Series(parts):
                whole = _Fragment(nullable=True, first=(), last=())
                for part in parts:
                    whole = self._series(whole, self._build(part))
                return whole
            case Choice(options):
                return self._choice([self._build(option) for option in options])
            case Repeat(item, least, most):
                return self._repeat(item, least, most)
            case Limited(item, limit):
                return self._build(item) if self._relaxed else self._build_limited(item, limit)
            case Refined(item):
                return self._build(item)
            case _:
                raise TypeError(f"not a language: {language!r}")

    def _position(self, allowed: int) -> _Fragment:
        if len(self._classes) >= AUTOMATON_STATES_MAX:
            raise AutomatonTooLargeError
        self._classes.append(allowed)
        self._part_of.append(self._part)
        self._followers.append(set())
        state = len(self._classes) - 1
        return _Fragment(nullable=False, first=(state,), last=(state,))

    def _series(self, left: _Fragment, right: _Fragment) -> _Fragment:
        for state in left.last:
            self._followers[state].update(right.first)
        return _Fragment(
            nullable=left.nullable and right.nullable,
            first=left.first + right.first if left.nullable else left.first,
            last=left.last + right.last if right.nullable else right.last,
        )

    def _choice(self, options: list[_Fragment]) -> _Fragment:
        return _Fragment(
            nullable=any(option.nullable for option in options),
            first=tuple(state for option in options for state in option.first),
            last=tuple(state for option in options for state in option.last),
        )

    def _optional(self, fragment: _Fragment) -> _Fragment:
        return _Fragment(nullable=True, first=fragment.first, last=fragment.last)

    def _repeat(self, item: Language, least: int, most: int | None) -> _Fragment:
        if most is not None and self._relaxed and most - least > _RELAXED_REPEAT_MAX:
            most = None
        whole = _Fragment(nullable=True, first=(), last=())
        for _ in range(least):
            whole = self._series(whole, self._build(item))
        if most is None:
            loop = self._build(item)
            for state in loop.last:
                self._followers[state].update(loop.first)
            return self._series(whole, self._optional(loop))
        # Why: nested from the right, (x(x(x)?)?)?, so that one spelling has one run and readings can be counted.
        rest = _Fragment(nullable=True, first=(), last=())
        for _ in range(most - least):
            rest = self._optional(self._series(self._build(item), rest))
        return self._series(whole, rest)

    def _build_limited(self, item: Language, limit: int) -> _Fragment:
        """Unroll the automaton of `item` along the length, so that no member passes `limit` bytes."""
        inner = Automaton.of((item,), relaxed=False)
        states: dict[tuple[int, int], int] = {}
        frontier = {0}
        first: tuple[int, ...] = ()
        last: list[int] = []
        for length in range(1, limit + 1):
            reached: set[int] = set()
            for state in frontier:
                for follower in inner.followers[state]:
                    node = states.get((length, follower))
                    if node is None:
                        (node,) = self._position(inner.classes[follower]).first
                        states[length, follower] = node
                        if follower in inner.accepting:
                            last.append(node)
                    reached.add(follower)
                    if length > 1:
                        self._followers[states[length - 1, state]].add(node)
            if length == 1:
                first = tuple(states.values())
            frontier = reached
        return _Fragment(nullable=0 in inner.accepting, first=first, last=tuple(last))


def _sum_or_none(lengths: Iterable[int | None]) -> int | None:
    total = 0
    for length in lengths:
        if length is None:
            return None
        total += length
    return total


@cache
def _class_pattern(allowed: int) -> bytes:
    """A regular expression's character class of the bytes in `allowed`."""
    ranges: list[tuple[int, int]] = []
    for byte in range(256):
        if allowed >> byte & 1:
            if ranges and ranges[-1][1] == byte - 1:
                ranges[-1] = (ranges[-1][0], byte)
            else:
                ranges.append((byte, byte))
    if not ranges:
        return b"(?!)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return re.escape(bytes([ranges[0][0]]))
    return b"[" + b"".join(b"\\x%02x-\\x%02x" % bounds for bounds in ranges) + b"]"
