"""Values of one key element to show things with, and keys that carry them."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from keyplan.codec import AutomatonTooLargeError, Element, Language
from keyplan.errors import InvalidKeyError
from keyplan.layout.rules.decision import shortest_key
from keyplan.layout.rules.reading import holds, readings, spelled
from keyplan.layout.rules.search import OwnWords, SearchTooLargeError, words
from keyplan.layout.template import Template

__all__ = ["key_with", "member_of_length", "members", "numbers"]

MEMBERS_MAX: Final = 64
"""Why: two different values are wanted; a codec of which the first 64 members are all alike is not worth more."""

MEMBER_BYTES_SPAN: Final = 16
"""Why: how much longer than the shortest member a sample may be; values of fixed width need none of it."""

SLICES_MAX: Final = 3
"""Why: what slices differ in shows between the first two; a third is for good measure."""

_NUMBERS: Final = (*range(-20, 301), 999, 1000, 65535, 65536)


def numbers(element: Element[object]) -> Iterator[tuple[int, bytes]]:
    """Yield small numbers in their order with their bytes, those that the element takes."""
    for number in _NUMBERS:
        try:
            yield number, element.encode(number)
        except InvalidKeyError:
            continue


def members(element: Element[object]) -> Iterator[tuple[object, bytes]]:
    """Yield values and their bytes: the shortest members, one printable character each, and last bytes changed."""
    spellings = list(islice(_spellings(element), MEMBERS_MAX))
    changed = [spellings[0][:-1] + bytes((byte,)) for byte in range(256)] if spellings and spellings[0] else []
    for raw in dict.fromkeys([*spellings, *changed]):
        try:
            value = element.decode(raw)
        except InvalidKeyError:
            continue
        yield value, raw
    if element.value_type is str:
        for code in range(ord(" "), ord("~") + 1):
            try:
                yield chr(code), element.encode(chr(code))
            except InvalidKeyError:
                continue


def _spellings(element: Element[object]) -> Iterator[bytes]:
    """Short words of the language, or a few of each of its first slices when it has such."""
    bytes_max = element.bytes_min + MEMBER_BYTES_SPAN
    for _, language in element.slices()[:SLICES_MAX]:
        yield from islice(_words(language, element.bytes_min, bytes_max), SLICES_MAX)
    yield from _words(element.language, element.bytes_min, bytes_max)


def _words(language: Language, bytes_min: int, bytes_max: int) -> Iterator[bytes]:
    """Words of a language, bounds on length aside; none where its automaton is too large to be searched."""
    try:
        automaton = language.automaton(relaxed=True)
        yield from words(OwnWords(automaton), bytes_min=bytes_min, bytes_max=bytes_max)
    except (AutomatonTooLargeError, SearchTooLargeError):
        return


def member_of_length(element: Element[object], length: int) -> bytes | None:
    """Return a member of at least `length` bytes and hardly more; None when there is none."""
    longest = (
        length + MEMBER_BYTES_SPAN if element.bytes_max is None else min(element.bytes_max, length + MEMBER_BYTES_SPAN)
    )
    # Why slices first: of a level and its path the first words of the language as a whole have levels that are wrong.
    for language in (*(exact for _, exact in element.slices()[:SLICES_MAX]), element.language):
        for raw in islice(_words(language, length, longest), MEMBERS_MAX):
            try:
                element.decode(raw)
            except InvalidKeyError:
                continue
            return raw
    return None


def key_with(template: Template, fields: Mapping[str, bytes]) -> bytes | None:
    """Return the key of `template` that has these fields and the shortest others; None when they do not fit together."""
    shortest = shortest_key(template).key
    if shortest is None:
        return None
    try:
        key = spelled(template, {**next(readings(template, shortest)), **fields})
    except InvalidKeyError:
        return None
    return key if holds(template, key) else None
