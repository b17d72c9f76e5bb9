"""Shortest words of products of automata: the machine under every rule that answers with a witness.

A product is a graph whose edges carry byte classes. Of the shortest words the first one in reading order is returned:
lower-case letters before digits before capitals before other printable bytes before the rest, position by position.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from keyplan.codec import ANY_BYTE, Automaton, byte_class

__all__ = [
    "AmbiguousWords",
    "CommonWords",
    "Edges",
    "Effort",
    "OwnWords",
    "PartedWords",
    "Product",
    "SearchTooLargeError",
    "reading_rank",
    "shortest_word",
    "told_apart",
    "words",
]

Edges = Sequence[tuple[int, int]]

_READING_ORDER: Final = (
    byte_class(range(ord("a"), ord("z") + 1)),
    byte_class(range(ord("0"), ord("9") + 1)),
    byte_class(range(ord("A"), ord("Z") + 1)),
    byte_class(range(ord("!"), ord("~") + 1)),
    ANY_BYTE,
)

PRODUCT_STATES_MAX: Final = 1_000_000
"""Why: about a second and 200 MB; products of templates that people write have some thousands of states."""


SCANS_PER_EDGE: Final = 4
"""Why: to look at a known edge again takes about a quarter of what it took to find it."""

EFFORT_MAX: Final = 2_000_000
"""Why: some two seconds; no question about a shipped layout takes a tenth of it."""


class SearchTooLargeError(Exception):
    """The product has more states than PRODUCT_STATES_MAX, or the search took more than EFFORT_MAX.

    Never leaves the layout package: the question counts as undecided.
    """


class Effort:
    """What one question has cost, in states and edges looked at: a bound that holds alike on every machine.

    Automata count each time that they are asked for, whether they are kept or not: an answer must not depend on what was
    asked before.
    """

    __slots__ = ("_left",)

    def __init__(self, most: int = EFFORT_MAX) -> None:
        self._left = most

    @property
    def is_spent(self) -> bool:
        return self._left < 0

    def spend(self, count: int) -> None:
        """Count so many states or edges. Raises SearchTooLargeError when that is more than the question may cost."""
        self._left -= count
        if self._left < 0:
            raise SearchTooLargeError


class Product(Protocol):
    """A graph with byte classes on its edges; state 0 is the start."""

    def edges(self, state: int) -> Edges:
        """The byte class and target of every edge that leaves `state`; no class is empty."""
        ...

    def is_accepting(self, state: int) -> bool:
        """Tell whether the bytes read up to `state` are a word."""
        ...


class OwnWords:
    """The words of one automaton."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton

    def edges(self, state: int) -> Edges:
        return [(self._automaton.classes[target], target) for target in self._automaton.followers[state]]

    def is_accepting(self, state: int) -> bool:
        return state in self._automaton.accepting


class CommonWords:
    """The words that two automata share."""

    def __init__(self, first: Automaton, second: Automaton) -> None:
        self._first, self._second = first, second
        self._width = len(second.classes)

    def edges(self, state: int) -> Edges:
        left, right = divmod(state, self._width)
        classes, width = self._second.classes, self._width
        others = [(classes[other], other) for other in self._second.followers[right]]
        found = []
        for one in self._first.followers[left]:
            allowed, row = self._first.classes[one], one * width
            found += [(allowed & also, row + other) for also, other in others if allowed & also]
        return found

    def is_accepting(self, state: int) -> bool:
        left, right = divmod(state, self._width)
        return left in self._first.accepting and right in self._second.accepting


class AmbiguousWords:
    """The words that one automaton reads in two ways: by two runs that stand in different parts at some byte."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._width = len(automaton.classes)

    def edges(self, state: int) -> Edges:
        pair, has_parted = divmod(state, 2)
        left, right = divmod(pair, self._width)
        classes, part_of = self._automaton.classes, self._automaton.part_of
        found = []
        for one in self._automaton.followers[left]:
            for other in self._automaton.followers[right]:
                both = classes[one] & classes[other]
                if both:
                    parted = 1 if has_parted or part_of[one] != part_of[other] else 0
                    # Why: the two runs are interchangeable; keeping them sorted halves the states.
                    low, high = (one, other) if one <= other else (other, one)
                    found.append((both, (low * self._width + high) * 2 + parted))
        return found

    def is_accepting(self, state: int) -> bool:
        pair, has_parted = divmod(state, 2)
        left, right = divmod(pair, self._width)
        return bool(has_parted) and left in self._automaton.accepting and right in self._automaton.accepting


class PartedWords:
    """The words that two automata share and do not read alike: at some byte they stand in parts with different labels."""

    def __init__(
        self, first: Automaton, second: Automaton, first_labels: tuple[str, ...], second_labels: tuple[str, ...]
    ) -> None:
        self._first, self._second = first, second
        self._first_labels, self._second_labels = first_labels, second_labels
        self._width = len(second.classes)

    def edges(self, state: int) -> Edges:
        pair, has_parted = divmod(state, 2)
        left, right = divmod(pair, self._width)
        first, second = self._first, self._second
        found = []
        for one in first.followers[left]:
            for other in second.followers[right]:
                both = first.classes[one] & second.classes[other]
                if both:
                    labels = self._first_labels[first.part_of[one]], self._second_labels[second.part_of[other]]
                    found.append((both, (one * self._width + other) * 2 + int(has_parted or labels[0] != labels[1])))
        return found

    def is_accepting(self, state: int) -> bool:
        pair, has_parted = divmod(state, 2)
        left, right = divmod(pair, self._width)
        return bool(has_parted) and left in self._first.accepting and right in self._second.accepting


def shortest_word(product: Product, effort: Effort | None = None) -> bytes | None:
    """Return the shortest word of `product`, the first of these in reading order; None when it has no word.

    Raises SearchTooLargeError.
    """
    effort = effort or Effort()
    if product.is_accepting(0):
        return b""
    edges: dict[int, Edges] = {}
    levels: list[set[int]] = [{0}]
    seen = {0}
    while levels[-1]:
        reached: set[int] = set()
        for state in levels[-1]:
            edges[state] = product.edges(state)
            effort.spend(1 + len(edges[state]))
            reached.update(target for _, target in edges[state] if target not in seen)
        seen |= reached
        if len(seen) > PRODUCT_STATES_MAX:
            raise SearchTooLargeError
        levels.append(reached)
        ends = {state for state in reached if product.is_accepting(state)}
        if ends:
            return _first_spelling(edges, levels, ends)
    return None


def words(
    product: Product, *, bytes_max: int, bytes_min: int = 0, alike_max: int = 1, effort: Effort | None = None
) -> Iterator[bytes]:
    """Yield words of `product`, `bytes_min` to `bytes_max` long, short ones first, each length in reading order.

    Of bytes that the product does not tell apart at some place, the first `alike_max` stand for all. Raises
    SearchTooLargeError.
    """
    effort = effort or Effort()
    edges = _reachable(product, effort)
    size = sum(map(len, edges.values()))
    # Invariant: finishing[n] holds the states from which a word ends after exactly n more bytes.
    finishing = [{state for state in edges if product.is_accepting(state)}]
    for length in range(bytes_max + 1):
        if length:
            effort.spend(1 + size // SCANS_PER_EDGE)
            ahead = finishing[-1]
            finishing.append({state for state, out in edges.items() if any(target in ahead for _, target in out)})
        if length >= bytes_min and 0 in finishing[length]:
            yield from _spellings(edges, finishing, length, alike_max, effort)


def _reachable(product: Product, effort: Effort) -> dict[int, Edges]:
    edges: dict[int, Edges] = {}
    frontier = [0]
    while frontier:
        state = frontier.pop()
        if state in edges:
            continue
        if len(edges) >= PRODUCT_STATES_MAX:
            raise SearchTooLargeError
        edges[state] = product.edges(state)
        effort.spend(1 + len(edges[state]))
        frontier.extend(target for _, target in edges[state] if target not in edges)
    return edges


def _first_spelling(edges: dict[int, Edges], levels: list[set[int]], ends: set[int]) -> bytes:
    """The first word in reading order that leads from the start to one of `ends`, both at their levels."""
    useful = [ends]
    for level in reversed(levels[:-1]):
        ahead = useful[-1]
        useful.append({state for state in level if any(target in ahead for _, target in edges[state])})
    useful.reverse()
    word = bytearray()
    current = {0}
    for ahead in useful[1:]:
        steps = [(allowed, target) for state in current for allowed, target in edges[state] if target in ahead]
        mask = 0
        for allowed, _ in steps:
            mask |= allowed
        byte = _first_byte(mask)
        word.append(byte)
        current = {target for allowed, target in steps if allowed >> byte & 1}
    return bytes(word)


def _spellings(
    edges: dict[int, Edges], finishing: list[set[int]], length: int, alike_max: int, effort: Effort
) -> Iterator[bytes]:
    """The words of exactly `length` bytes in reading order, `alike_max` for each class of bytes that are not told apart."""
    stack: list[tuple[bytes, frozenset[int]]] = [(b"", frozenset({0}))]
    while stack:
        word, current = stack.pop()
        left = length - len(word)
        if left == 0:
            yield word
            continue
        steps = [
            (allowed, target) for state in current for allowed, target in edges[state] if target in finishing[left - 1]
        ]
        effort.spend(1 + len(steps))
        branches = [
            (byte, frozenset(target for allowed, target in steps if allowed >> byte & 1))
            for byte in sorted(
                (
                    byte
                    for block in told_apart([allowed for allowed, _ in steps])
                    for byte in _first_bytes(block, alike_max)
                ),
                key=reading_rank,
            )
        ]
        stack.extend((word + bytes((byte,)), targets) for byte, targets in reversed(branches))


def told_apart(classes: Sequence[int]) -> list[int]:
    """The coarsest partition of the union of `classes` in which each of them is a union of blocks."""
    blocks: list[int] = []
    for allowed in dict.fromkeys(classes):
        rest, split = allowed, []
        for block in blocks:
            split += [part for part in (block & allowed, block & ~allowed) if part]
            rest &= ~block
        blocks = [*split, rest] if rest else split
    return blocks


def _first_byte(mask: int) -> int:
    for group in _READING_ORDER:
        found = mask & group
        if found:
            return (found & -found).bit_length() - 1
    raise ValueError("an empty byte class has no first byte")


def _first_bytes(mask: int, count: int) -> Iterator[int]:
    while mask and count:
        byte = _first_byte(mask)
        yield byte
        mask, count = mask & ~(1 << byte), count - 1


def reading_rank(byte: int) -> tuple[int, int]:
    """Where a byte stands in reading order."""
    return next(place for place, group in enumerate(_READING_ORDER) if group >> byte & 1), byte
