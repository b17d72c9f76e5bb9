"""Where an element of a key ends, and whether its own bytes say so."""

from functools import lru_cache
from typing import Any

from keyplan.codec.element import Element
from keyplan.codec.language import Automaton, Bytes, Choice, Language, Limited, Refined, Repeat, Series

__all__ = ["alphabet_of", "is_self_delimiting"]


def alphabet_of(language: Language) -> int:
    """Return the class of the bytes that occur in members of a language; a larger class where that is simpler to say."""
    match language:
        case Bytes(allowed):
            return allowed
        case Series(parts) | Choice(parts):
            allowed = 0
            for part in parts:
                allowed |= alphabet_of(part)
            return allowed
        case Repeat(item) | Limited(item) | Refined(item):
            return alphabet_of(item)
        case _:
            raise TypeError(f"not a language: {language!r}")


@lru_cache(maxsize=1024)
def is_self_delimiting(element: Element[Any]) -> bool:
    """Return True when no encoding of the element begins with another one, so that its end shows whatever comes next.

    False may also mean that it was not found out: an automaton that is not deterministic does not say.
    """
    if element.width is not None:
        return True
    automaton = element.language.automaton()
    return all(
        not (state in automaton.accepting and _live_followers(automaton, state))
        and _are_told_apart([automaton.classes[follower] for follower in _live_followers(automaton, state)])
        for state in automaton.live
    )


def _live_followers(automaton: Automaton, state: int) -> list[int]:
    return [follower for follower in automaton.followers[state] if follower in automaton.live]


def _are_told_apart(classes: list[int]) -> bool:
    seen = 0
    for one in classes:
        if seen & one:
            return False
        seen |= one
    return True
