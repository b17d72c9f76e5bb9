"""The automata of a template: of all it can spell, and of the slices in which what is not regular stands still."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from keyplan.codec import AUTOMATON_STATES_MAX, Automaton, AutomatonTooLargeError, Bytes, Language, Series, literal
from keyplan.errors import InvalidKeyError
from keyplan.layout.rules.search import Effort
from keyplan.layout.template import Field, Template

__all__ = ["Counted", "Slice", "Spelling", "slices_of", "spelling_of"]


STATE_COST: Final = 12
"""Why: to build a state of an automaton takes about as long as to look at a dozen edges of a product."""


class Spelling:
    """The languages of a template's parts, and their automata, built when first asked for.

    Templates are compared by their codecs' specs, so one spelling serves all rules.
    """

    def __init__(self, languages: tuple[Language, ...]) -> None:
        self.languages = languages
        self._automata: dict[tuple[Language | None, bool], Automaton | None] = {}

    @cached_property
    def bytes_min(self) -> int:
        return sum(language.bytes_min for language in self.languages)

    @cached_property
    def can_exist(self) -> bool:
        """Whether each part's shortest word is within its bound on length."""
        return all(one.bytes_max is None or one.bytes_min <= one.bytes_max for one in self.languages)

    def automaton(self, tail: Language | None = None, *, relaxed: bool) -> Automaton:
        """The automaton of the parts, followed by `tail`; relaxed, bounds on length are dropped and the language grows.

        Raises AutomatonTooLargeError, soon when it did so before.
        """
        asked = tail, relaxed
        if asked not in self._automata:
            languages = self.languages if tail is None else (*self.languages, tail)
            self._automata[asked] = _built(languages, relaxed=relaxed)
        known = self._automata[asked]
        if known is None:
            raise AutomatonTooLargeError
        return known


class Counted:
    """A spelling whose automata count against what a question may cost."""

    def __init__(self, spelling: Spelling, effort: Effort) -> None:
        self._spelling, self._effort = spelling, effort

    def automaton(self, tail: Language | None = None, *, relaxed: bool) -> Automaton:
        """As the spelling's own. Raises SearchTooLargeError, AutomatonTooLargeError."""
        try:
            found = self._spelling.automaton(tail, relaxed=relaxed)
        except AutomatonTooLargeError:
            self._effort.spend(STATE_COST * AUTOMATON_STATES_MAX)
            raise
        self._effort.spend(STATE_COST * len(found.classes) + sum(map(len, found.followers)))
        return found


@lru_cache(maxsize=4096)
def spelling_of(template: Template) -> Spelling:
    """The spelling of everything that `template` can produce; derived fields take all values of their codecs."""
    return Spelling(tuple(part.language for part in template.parts))


@dataclass(frozen=True)
class Slice:
    """A part of what a template can spell: `exact` where its codecs can tell, and `coarse`, larger and quick to search."""

    coarse: Spelling
    exact: Spelling

    @cached_property
    def beginning(self) -> tuple[int, ...]:
        """The classes of the first bytes, as long as single bytes stand there."""
        classes: list[int] = []
        for language in self.coarse.languages:
            parts = language.parts if isinstance(language, Series) else (language,)
            for part in parts:
                if not isinstance(part, Bytes):
                    return tuple(classes)
                classes.append(part.allowed)
        return tuple(classes)


@lru_cache(maxsize=256)
def slices_of(template: Template) -> tuple[Slice, ...]:
    """Divide the template by the value of its first derived field, else by its first codec that knows a division.

    The whole template is the only slice when there is neither.
    """
    whole = spelling_of(template)
    for place, part in enumerate(template.parts):
        if not isinstance(part, Field):
            continue
        divided = _by_derived_value(template, place, part) if part.is_derived else _by_codec(template, place, part)
        if divided:
            # Why: a path of 200 components is longer than its bound of four bytes; most slices fall away unsearched.
            return tuple(one for one in divided if one.exact.can_exist) or divided[:1]
    return (Slice(whole, whole),)


def _by_codec(template: Template, place: int, field: Field) -> tuple[Slice, ...]:
    languages = spelling_of(template).languages
    return tuple(
        Slice(Spelling(_with(languages, place, coarse)), Spelling(_with(languages, place, exact)))
        for coarse, exact in field.element.slices()
    )


def _by_derived_value(template: Template, place: int, derived: Field) -> tuple[Slice, ...]:
    """Slices with the derived field constant, and its source narrowed to the members that have that attribute."""
    languages = spelling_of(template).languages
    attribute = derived.attribute or ""
    sources = [
        (index, part.element)
        for index, part in enumerate(template.parts)
        if isinstance(part, Field) and not part.is_derived and part.name == derived.name
    ]
    slices = []
    for raw in _members(derived.language):
        try:
            value = derived.element.decode(raw)
        except InvalidKeyError:
            continue
        exact = coarse = _with(languages, place, literal(raw))
        for index, element in sources:
            narrowed = element.members_where(attribute, value)
            exact = exact if narrowed is None else _with(exact, index, narrowed)
        slices.append(Slice(Spelling(coarse), Spelling(exact)))
    return tuple(slices)


def _with(languages: tuple[Language, ...], place: int, language: Language) -> tuple[Language, ...]:
    return (*languages[:place], language, *languages[place + 1 :])


def _members(language: Language) -> list[bytes]:
    """All words of a language whose words are one byte long; none when it has longer ones."""
    if language.bytes_max != 1:
        return []
    automaton = language.automaton(relaxed=False)
    return [bytes((byte,)) for byte in range(256) if automaton.step((0,), byte) & automaton.accepting]


def _built(languages: tuple[Language, ...], *, relaxed: bool) -> Automaton | None:
    try:
        return _pruned(Automaton.of(languages, relaxed=relaxed))
    except AutomatonTooLargeError:
        return None


def _pruned(automaton: Automaton) -> Automaton:
    """The automaton without edges that lead to no word, nor to an empty class."""
    live = automaton.live
    if len(live) == len(automaton.classes):
        return automaton
    followers = tuple(tuple(s for s in next_states if s in live) for next_states in automaton.followers)
    return Automaton(automaton.classes, followers, automaton.accepting, automaton.part_of)
