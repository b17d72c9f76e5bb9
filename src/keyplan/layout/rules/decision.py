"""Questions about keys that are answered with a verified shortest key, with a proof that there is none, or not at all.

In which sense an answer is exact. The automata accept at least the keys that the templates produce, so "no such key" is a
proof. A key is answered only after `reading.holds` has taken it apart with every bound on length and every derived field.
The first search drops bounds on length; when its word fails, the exact automata are searched. Where all codecs are regular
and no field is derived, that word is the shortest key. Else the templates are divided, by the value of a derived field or as
the codec says (`Element.members_where`, `Element.slices`), and each slice is searched: shortest again where slices are
regular, else words of a slice are tried in order of length, CANDIDATES_MAX of them, up to CANDIDATE_BYTES_MAX long, first with
one and then with two bytes of each kind that the automata tell apart: such a witness need not be a shortest one. A question
that is open after that, whose product has more than a million states, or that has cost EFFORT_MAX, is answered "undecided",
which the lint reports rather than hides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from typing import Final, Protocol

from keyplan.codec import ANY_BYTE, AutomatonTooLargeError, Bytes, Language, Repeat
from keyplan.layout.listed import exact_places
from keyplan.layout.rules.reading import holds, readings
from keyplan.layout.rules.search import (
    AmbiguousWords,
    CommonWords,
    Effort,
    OwnWords,
    PartedWords,
    Product,
    SearchTooLargeError,
    shortest_word,
    words,
)
from keyplan.layout.rules.spelling import Counted, Slice, Spelling, slices_of, spelling_of
from keyplan.layout.template import Template

__all__ = ["Answer", "ambiguous_key", "key_below", "key_listed_astray", "shortest_key"]

CANDIDATES_MAX: Final = 512
"""Why: words that the automata cannot tell apart are tried once, so 512 cover every mix of a dozen places with two kinds."""

CANDIDATE_BYTES_MAX: Final = 96
"""Why: room for 40-byte binary keys and two short names; longer keys only repeat what shorter ones showed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A verified key, or None: then `is_proven` tells whether there is none or whether the question stayed open.

    `cut` is where the part of the key that the question named ends (a directory, a list's prefix).
    """

    key: bytes | None
    is_proven: bool = True
    cut: int = 0

    @property
    def is_open(self) -> bool:
        return self.key is None and not self.is_proven


_ANYTHING: Final[Language] = Repeat(Bytes(ANY_BYTE))
_NO_KEY: Final = Answer(None)
_UNDECIDED: Final = Answer(None, is_proven=False)

CutOf = Callable[[bytes], int | None]


class ProductOf(Protocol):
    """How a question joins its templates' automata."""

    def __call__(self, spellings: tuple[Counted, ...], *, relaxed: bool) -> Product:
        """The product whose words are the candidates."""
        ...


@lru_cache(maxsize=8192)
def key_below(prefix: Template, tail: Language | None, template: Template) -> Answer:
    """Return the shortest key of `template` that is a word of `prefix` followed by a word of `tail` (None: by nothing)."""

    def common(spellings: tuple[Counted, ...], *, relaxed: bool) -> Product:
        return CommonWords(spellings[0].automaton(tail, relaxed=relaxed), spellings[1].automaton(relaxed=relaxed))

    def cut(key: bytes) -> int | None:
        if not holds(template, key):
            return None
        ends = (len(key),) if tail is None else range(len(key) + 1)
        return next(
            (end for end in ends if (tail is None or tail.accepts(key[end:])) and holds(prefix, key[:end])), None
        )

    return _decide((prefix, template), common, cut)


@lru_cache(maxsize=1024)
def key_listed_astray(prefix: Template, template: Template) -> Answer:
    """Return the shortest key of `template` that begins with a word of `prefix` and has other values of the prefix's fields.

    `prefix` is made of the first parts of `template`.
    """
    if all(exact_places(template)[: len(prefix.fields) + 1]):
        return _NO_KEY
    count = len(prefix.parts)
    labels = [str(number) for number in range(count)]
    others = [""] * (len(template.parts) - count)

    def parted(spellings: tuple[Counted, ...], *, relaxed: bool) -> Product:
        listed = spellings[0].automaton(_ANYTHING, relaxed=relaxed)
        return PartedWords(listed, spellings[1].automaton(relaxed=relaxed), (*labels, ""), (*labels, *others))

    def cut(key: bytes) -> int | None:
        own = list(readings(template, key))
        return next(
            (
                end
                for end in range(len(key) + 1)
                for listed in (readings(prefix, key[:end]) if own else ())
                if any(raw != fields[name] for fields in own for name, raw in listed.items())
            ),
            None,
        )

    return _decide((prefix, template), parted, cut)


@lru_cache(maxsize=1024)
def ambiguous_key(template: Template) -> Answer:
    """Return the shortest key that `template` reads in two ways; `readings` tells which."""

    def ambiguous(spellings: tuple[Counted, ...], *, relaxed: bool) -> Product:
        return AmbiguousWords(spellings[0].automaton(relaxed=relaxed))

    def cut(key: bytes) -> int | None:
        return len(key) if len(list(islice(readings(template, key), 2))) > 1 else None

    return _decide((template,), ambiguous, cut)


@lru_cache(maxsize=1024)
def shortest_key(template: Template) -> Answer:
    """Return the shortest key of `template`."""

    def own(spellings: tuple[Counted, ...], *, relaxed: bool) -> Product:
        return OwnWords(spellings[0].automaton(relaxed=relaxed))

    def cut(key: bytes) -> int | None:
        return len(key) if holds(template, key) else None

    return _decide((template,), own, cut)


def _decide(templates: tuple[Template, ...], product_of: ProductOf, cut_of: CutOf) -> Answer:
    question = _Question(product_of, cut_of)
    whole = tuple(spelling_of(template) for template in templates)
    try:
        answer = question.answered(whole, relaxed=True)
        if answer is None and all(len(slices_of(template)) == 1 for template in templates):
            answer = question.answered(whole, relaxed=False)
        return answer or _decide_by_slices(templates, question)
    except (AutomatonTooLargeError, SearchTooLargeError):
        return _UNDECIDED


class _Question:
    """How the templates' automata are joined, where a key is cut, and what was spent on the answer so far."""

    def __init__(self, product_of: ProductOf, cut_of: CutOf) -> None:
        self._product_of, self._cut_of = product_of, cut_of
        self.effort = Effort()

    def shortest(self, spellings: tuple[Spelling, ...], *, relaxed: bool) -> bytes | None:
        """The shortest word that the automata have in common, None when there is none. Raises SearchTooLargeError."""
        return shortest_word(self._product(spellings, relaxed=relaxed), self.effort)

    def answered(self, spellings: tuple[Spelling, ...], *, relaxed: bool) -> Answer | None:
        """What the automata say; None when their shortest word is not a key after all."""
        word = self.shortest(spellings, relaxed=relaxed)
        return _NO_KEY if word is None else self._as_key(word)

    def first_candidate(self, spellings: tuple[Spelling, ...], best: bytes | None) -> Answer:
        """The first of the product's words that is a key and shorter than `best`, within the bounds of this module."""
        bytes_max = CANDIDATE_BYTES_MAX if best is None else min(CANDIDATE_BYTES_MAX, len(best) - 1)
        candidates = self._product(spellings, relaxed=False)
        # Why: what the automata do not tell apart, a rule that is not regular may: then a second byte of each kind is tried.
        for alike_max in (1, 2):
            found = words(candidates, bytes_max=bytes_max, alike_max=alike_max, effort=self.effort)
            for word in islice(found, CANDIDATES_MAX):
                answer = self._as_key(word)
                if answer is not None:
                    return answer
        return _UNDECIDED

    def _product(self, spellings: tuple[Spelling, ...], *, relaxed: bool) -> Product:
        return self._product_of(tuple(Counted(one, self.effort) for one in spellings), relaxed=relaxed)

    def _as_key(self, word: bytes) -> Answer | None:
        # Why: a key is read from each of its places to each later one.
        self.effort.spend(1 + len(word) ** 2)
        cut = self._cut_of(word)
        return None if cut is None else Answer(word, cut=cut)


def _decide_by_slices(templates: tuple[Template, ...], question: _Question) -> Answer:
    """The best answer of all slices, those with the shortest members first, as long as they can improve it.

    When the question has cost what it may, the best one so far: a key that is true, but need not be a shortest one.
    """
    best, is_open = _NO_KEY, False
    divided = product(*(slices_of(template) for template in templates))
    for slices in sorted(filter(_can_begin_alike, divided), key=_bytes_min):
        if best.key is not None and _bytes_min(slices) >= len(best.key):
            break
        answer = _best_of_slice(slices, question, best.key)
        is_open |= answer.is_open
        if question.effort.is_spent:
            break
        if answer.key is not None and (best.key is None or len(answer.key) < len(best.key)):
            best = answer
    return _UNDECIDED if best.key is None and is_open else best


def _best_of_slice(slices: tuple[Slice, ...], question: _Question, best: bytes | None) -> Answer:
    """The shortest key in a slice; that there is none where none is shorter than `best`."""
    exact = tuple(one.exact for one in slices)
    try:
        coarse = question.shortest(tuple(one.coarse for one in slices), relaxed=True)
        if coarse is None or (best is not None and len(coarse) >= len(best)):
            return _NO_KEY
        return (
            question.answered(exact, relaxed=True)
            or question.answered(exact, relaxed=False)
            or question.first_candidate(exact, best)
        )
    except (AutomatonTooLargeError, SearchTooLargeError):
        return _UNDECIDED


def _can_begin_alike(slices: tuple[Slice, ...]) -> bool:
    """Whether the first bytes of the slices agree, as far as their places are known: two levels in front do not."""
    return len(slices) < 2 or all(
        one & other for one, other in zip(slices[0].beginning, slices[1].beginning, strict=False)
    )


def _bytes_min(slices: tuple[Slice, ...]) -> int:
    """A length that no word of the slices' product is below; a prefix slice counts without its tail."""
    return max(one.exact.bytes_min for one in slices)
