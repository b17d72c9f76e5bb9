"""Languages of bytes against brute force: every short string, by every reader of the description."""

import itertools
import re

import pytest

from keyplan.codec import (
    ANY_BYTE,
    Automaton,
    Bytes,
    Choice,
    Language,
    Limited,
    Refined,
    Repeat,
    Series,
    byte_class,
    literal,
)
from keyplan.codec.ranges import strings_between
from tests.codec.registry import automaton_accepts

LENGTH = 5
STRINGS = [bytes(letters) for length in range(LENGTH + 1) for letters in itertools.product(b"ab/", repeat=length)]

A, B, SLASH = (Bytes(1 << byte) for byte in b"ab/")
LETTER = Bytes(byte_class(b"ab"))
NAME = Repeat(LETTER, 1)


def is_even(raw: bytes) -> bool:
    return len(raw) % 2 == 0


LANGUAGES: dict[str, Language] = {
    "nothing at all": Series(()),
    "no member": Bytes(0),
    "one byte": LETTER,
    "a literal": literal(b"a/b"),
    "a series": A + SLASH + B,
    "a choice": literal(b"a") | literal(b"ab") | literal(b"/"),
    "a choice with nothing": Choice((Series(()), literal(b"ab"))),
    "without end": Repeat(LETTER),
    "at least two": Repeat(LETTER, 2),
    "one to three": Repeat(A, 1, 3),
    "exactly two": Repeat(literal(b"ab"), 2, 2),
    "at most two of many": Repeat(Choice((A, literal(b"bb"))), 0, 2),
    "repeated nothing": Repeat(Choice((Series(()), A)), 0, 3),
    "repeated repeats": Repeat(Repeat(A, 0, 2), 1, 2),
    "names": NAME + SLASH + NAME,
    "a path": NAME + Repeat(SLASH + NAME, 0, 2),
    "limited": Limited(Repeat(LETTER), 3),
    "limited inside": Limited(NAME, 2) + SLASH + Limited(NAME, 1),
    "limited twice": Limited(Limited(NAME, 4) + SLASH, 3),
    "limited and repeated": Repeat(Limited(NAME, 2) + SLASH, 0, 2),
    "limited to nothing": Limited(Repeat(LETTER), 0),
    "between": strings_between(b"ab", b"ba", first=ord("a"), last=ord("b")),
}
REFINED: dict[str, Language] = {
    "refined": Refined(Repeat(LETTER), is_even),
    "refined inside": Refined(NAME, is_even) + SLASH,
    "refined twice": Refined(Refined(Repeat(Bytes(ANY_BYTE)), is_even), lambda raw: b"/" not in raw),
}


def members(language: Language) -> set[bytes]:
    """The members of up to LENGTH bytes, by the definition of each kind of language and set algebra alone."""
    match language:
        case Bytes(allowed):
            return {bytes([byte]) for byte in b"ab/" if allowed >> byte & 1}
        case Series(parts):
            return products([members(part) for part in parts])
        case Choice(options):
            return set().union(*(members(option) for option in options))
        case Repeat(item, least, most):
            # An item that can be empty reaches every count; LENGTH items fill the length otherwise.
            inner = members(item)
            counts = range(least, (least + LENGTH if most is None else most) + 1)
            return set().union(*(products([inner] * count) for count in counts))
        case Limited(item, limit):
            return {raw for raw in members(item) if len(raw) <= limit}
        case Refined(item, holds):
            return {raw for raw in members(item) if holds(raw)}
        case _:
            raise AssertionError(language)


def products(sets: list[set[bytes]]) -> set[bytes]:
    found = {b""}
    for options in sets:
        found = {left + right for left in found for right in options if len(left + right) <= LENGTH}
    return found


@pytest.mark.parametrize("language", [*LANGUAGES.values(), *REFINED.values()], ids=[*LANGUAGES, *REFINED])
def test_a_language_accepts_exactly_its_members(language: Language) -> None:
    expected = members(language)
    for raw in STRINGS:
        assert language.accepts(raw) == (raw in expected), raw


@pytest.mark.parametrize("language", [*LANGUAGES.values(), *REFINED.values()], ids=[*LANGUAGES, *REFINED])
def test_ends_are_the_places_where_a_member_ends(language: Language) -> None:
    expected = members(language)
    for raw in STRINGS[::7]:
        assert language.ends(raw, 0) == {end for end in range(len(raw) + 1) if raw[:end] in expected}
        assert language.ends(b"/" + raw, 1) == {end + 1 for end in language.ends(raw, 0)}


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_the_exact_automaton_accepts_exactly_the_members(language: Language) -> None:
    machine, expected = language.automaton(relaxed=False), members(language)
    for raw in STRINGS:
        assert automaton_accepts(machine, raw) == (raw in expected), raw


@pytest.mark.parametrize("language", [*LANGUAGES.values(), *REFINED.values()], ids=[*LANGUAGES, *REFINED])
def test_the_relaxed_automaton_and_the_pattern_accept_every_member(language: Language) -> None:
    machine = language.automaton()
    for raw in members(language):
        assert automaton_accepts(machine, raw)
        assert re.fullmatch(language.pattern, raw)


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_a_plain_pattern_is_exact(language: Language) -> None:
    if language.is_plain:
        assert {raw for raw in STRINGS if re.fullmatch(language.pattern, raw)} == members(language)


@pytest.mark.parametrize("name", [name for name in LANGUAGES if name != "no member"])
def test_length_bounds_hold_and_the_shortest_is_reached(name: str) -> None:
    language = LANGUAGES[name]
    lengths = {len(raw) for raw in members(language)}
    assert language.bytes_min == min(lengths)
    if language.bytes_max is not None and language.bytes_max <= LENGTH:
        assert max(lengths) <= language.bytes_max
        assert (language.width is None) == (language.bytes_min != language.bytes_max)


@pytest.mark.parametrize(
    ("language", "longest"),
    [
        (Repeat(A), None),
        (Repeat(A, 1, 3), 3),
        (Repeat(Repeat(A), 1, 3), None),
        (literal(b"abc") | A, 3),
        (A | Repeat(A), None),
        (Limited(Repeat(A), 7), 7),
        (Limited(A, 7), 1),
        (Limited(Repeat(A), 7) + SLASH, 8),
        (Refined(Limited(Repeat(A), 7), is_even), 7),
    ],
)
def test_the_longest_length_is_known_when_there_is_one(language: Language, longest: int | None) -> None:
    assert language.bytes_max == longest


def test_long_repeats_have_no_end_in_a_relaxed_automaton_and_one_in_an_exact_one() -> None:
    language = Repeat(A, 0, 41)
    assert automaton_accepts(language.automaton(relaxed=False), b"a" * 41)
    assert not automaton_accepts(language.automaton(relaxed=False), b"a" * 42)
    assert automaton_accepts(language.automaton(), b"a" * 42)
    assert not automaton_accepts(Repeat(A, 0, 40).automaton(), b"a" * 41)


def test_states_that_lead_nowhere_are_not_live() -> None:
    machine = (literal(b"ab") | (literal(b"//") + Bytes(0))).automaton()
    # Five positions and the start: a and b lead to the end, the slashes to a byte that does not exist.
    reachable = [state for state in machine.live if machine.classes[state] & byte_class(b"/")]
    assert automaton_accepts(machine, b"ab")
    assert machine.live >= machine.accepting
    assert 0 in machine.live
    assert not automaton_accepts(machine, b"//")
    assert all(any(follower in machine.live for follower in machine.followers[state]) for state in reachable)


def test_dead_ends_are_told_apart() -> None:
    chain = Automaton(classes=(0, 1, 1), followers=((1, 2), (), ()), accepting=frozenset({1}), part_of=(-1, 0, 0))
    assert chain.live == {0, 1}


def test_states_know_the_part_that_they_belong_to() -> None:
    machine = Automaton.of((NAME, literal(b"/"), NAME))
    assert machine.part_of[0] == -1
    assert sorted(set(machine.part_of[1:])) == [0, 1, 2]


def test_readings_of_one_key_can_be_counted_since_a_repeat_has_one_run() -> None:
    machine = Repeat(A, 0, 5).automaton(relaxed=False)
    runs = [frozenset({0})]
    for byte in b"aaa":
        runs.append(machine.step(runs[-1], byte))
    assert [len(states) for states in runs] == [1, 1, 1, 1]


def test_the_start_has_no_incoming_edge() -> None:
    for language in LANGUAGES.values():
        assert all(0 not in followers for followers in language.automaton(relaxed=False).followers)


@pytest.mark.parametrize(
    ("low", "high"), [(0, 0), (0, 999), (7, 7), (100, 257), (99, 101), (250, 999), (0, 1), (199, 200)]
)
def test_a_range_of_digits_is_exact(low: int, high: int) -> None:
    language = strings_between(b"%03d" % low, b"%03d" % high, first=0x30, last=0x39)
    assert {number for number in range(1000) if language.accepts(b"%03d" % number)} == set(range(low, high + 1))


@pytest.mark.parametrize(("low", "high"), [(0, 65535), (1, 65534), (255, 256), (256, 511), (300, 301), (0xFF, 0xFF00)])
def test_a_range_of_bytes_is_exact(low: int, high: int) -> None:
    pattern = re.compile(strings_between(low.to_bytes(2, "big"), high.to_bytes(2, "big")).pattern, re.DOTALL)
    found = {number for number in range(65536) if pattern.fullmatch(number.to_bytes(2, "big"))}
    assert found == set(range(low, high + 1))
