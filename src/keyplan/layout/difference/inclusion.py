"""Two templates compared exactly: a key of one that the other lacks, and a key that both spell and read differently.

Products of automata as under the lint, except that the second automaton is made deterministic as the search goes: only so can
it say that it has no run. Answers are verified keys, proofs that there is none, or open; see rules/decision.py.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final

from keyplan.codec import Automaton, AutomatonTooLargeError, Choice, Language, Limited, Refined, Repeat, Series
from keyplan.layout.rules.decision import CANDIDATE_BYTES_MAX, CANDIDATES_MAX, Answer
from keyplan.layout.rules.reading import holds, readings
from keyplan.layout.rules.search import (
    Edges,
    PartedWords,
    Product,
    SearchTooLargeError,
    shortest_word,
    told_apart,
    words,
)
from keyplan.layout.rules.spelling import spelling_of
from keyplan.layout.template import Field, Template

__all__ = ["Labels", "key_beyond", "key_read_otherwise"]

Labels = Mapping[str, str]
"""The fields of the second template by name, to those of the first that they are."""

_NONE: Final = Answer(None)
_OPEN: Final = Answer(None, is_proven=False)


class _WordsBeyond:
    """The words of one automaton that another one does not have."""

    def __init__(self, first: Automaton, second: Automaton) -> None:
        self._first, self._second = first, second
        self._states: list[tuple[int, frozenset[int]]] = [(0, frozenset({0}))]
        self._numbers = {self._states[0]: 0}

    def edges(self, state: int) -> Edges:
        one, others = self._states[state]
        second = self._second
        reached = sorted({follower for other in others for follower in second.followers[other]})
        found = []
        for target in self._first.followers[one]:
            allowed = self._first.classes[target]
            rest = allowed
            for block in told_apart([allowed & second.classes[other] for other in reached]):
                rest &= ~block
                found.append((block, self._number(target, frozenset(o for o in reached if second.classes[o] & block))))
            if rest:
                found.append((rest, self._number(target, frozenset())))
        return found

    def is_accepting(self, state: int) -> bool:
        one, others = self._states[state]
        return one in self._first.accepting and not others & self._second.accepting

    def _number(self, one: int, others: frozenset[int]) -> int:
        pair = (one, others)
        number = self._numbers.setdefault(pair, len(self._states))
        if number == len(self._states):
            self._states.append(pair)
        return number


@lru_cache(maxsize=1024)
def key_beyond(first: Template, second: Template) -> Answer:
    """Return the shortest key of `first` that `second` cannot produce."""
    try:
        product = _WordsBeyond(
            spelling_of(first).automaton(relaxed=False), spelling_of(second).automaton(relaxed=False)
        )
    except AutomatonTooLargeError:
        return _OPEN
    # Why: beyond the automaton of `second` is beyond `second`, whose rules beside it only take words away.
    answer = _searched(product, lambda key: holds(first, key) and not holds(second, key))
    return answer if answer.key is not None or _is_told_by_automaton(first, second) else _OPEN


def key_read_otherwise(first: Template, second: Template, labels: Labels) -> Answer:
    """Return the shortest key that both templates produce and split into fields in different ways."""
    try:
        product = PartedWords(
            spelling_of(first).automaton(relaxed=False),
            spelling_of(second).automaton(relaxed=False),
            tuple(_label(part, {}) for part in first.parts),
            tuple(_label(part, labels) for part in second.parts),
        )
    except AutomatonTooLargeError:
        return _OPEN

    def is_one(key: bytes) -> bool:
        ours, theirs = next(readings(first, key), None), next(readings(second, key), None)
        if ours is None or theirs is None:
            return False
        return ours != {labels.get(name, name): raw for name, raw in theirs.items()}

    return _searched(product, is_one)


def _searched(product: Product, is_one: Callable[[bytes], bool]) -> Answer:
    try:
        word = shortest_word(product)
        if word is None:
            return _NONE
        if is_one(word):
            return Answer(word)
        # Why: rules beside the automata (derived fields, calendars) take words away; a later one may stand.
        candidates = islice(words(product, bytes_max=CANDIDATE_BYTES_MAX, alike_max=2), CANDIDATES_MAX)
        return next((Answer(candidate) for candidate in candidates if is_one(candidate)), _OPEN)
    except (AutomatonTooLargeError, SearchTooLargeError):
        return _OPEN


def _is_told_by_automaton(first: Template, second: Template) -> bool:
    """Whether no word beyond the automaton means no key beyond: `second` is regular, or its rules are those of `first`."""
    fields = [part for part in second.parts if isinstance(part, Field)]
    own = {part for part in first.parts if isinstance(part, Field)}
    return all((not part.is_derived and _is_regular(part.language)) or part in own for part in fields)


def _is_regular(language: Language) -> bool:
    match language:
        case Refined():
            return False
        case Series(parts) | Choice(parts):
            return all(map(_is_regular, parts))
        case Repeat(item) | Limited(item):
            return _is_regular(item)
        case _:
            return True


def _label(part: object, labels: Labels) -> str:
    if not isinstance(part, Field):
        return ""
    name = labels.get(part.name, part.name)
    return f"{name}.{part.attribute}" if part.attribute else name
