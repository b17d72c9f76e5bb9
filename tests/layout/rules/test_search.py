"""The search for words: in order of length and then of reading; and what happens to questions that it cannot settle."""

from itertools import islice

from keyplan.codec import Bytes, Element, Language, Refined, Repeat, byte_class, literal
from keyplan.layout import Field, LayoutSpec, Template
from keyplan.layout.rules import Severity, lint
from keyplan.layout.rules.search import CommonWords, OwnWords, shortest_word, words
from tests.layout.rules.builders import layout, table, text


class Balanced(Element[str]):
    """As many a as b, in any order: no regular language, and nothing is known of its slices."""

    code = "balanced"

    @property
    def value_type(self) -> type:
        return str

    @property
    def language(self) -> Language:
        return Refined(Repeat(Bytes(byte_class(b"ab")), 2), lambda raw: raw.count(b"a") == raw.count(b"b"))

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, raw: bytes) -> str:
        if raw.count(b"a") != raw.count(b"b"):
            self.refuse(raw, "not balanced")
        return raw.decode()


def beside_balanced(other: str) -> LayoutSpec:
    balanced = Template((Field("f", None, Balanced()),), is_text=True)
    return layout(table("balanced", balanced), table("other", text(other)))


def test_words_come_short_ones_first_and_in_reading_order() -> None:
    language = Repeat(literal(b"\x00") | literal(b"/") | literal(b"Z") | literal(b"7") | literal(b"b"), 0, 2)
    found = list(words(OwnWords(language.automaton()), bytes_max=2))
    letters = [b"b", b"7", b"Z", b"/", b"\x00"]
    # Why: the five bytes lead to five states, so that none stands for another.
    assert found == [b"", *letters, *(one + other for one in letters for other in letters)]


def test_a_byte_stands_for_those_that_the_automaton_does_not_tell_apart() -> None:
    language = Repeat(Bytes(byte_class(range(256))), 1, 3)
    assert list(words(OwnWords(language.automaton()), bytes_max=3)) == [b"a", b"aa", b"aaa"]
    assert list(words(OwnWords(language.automaton()), bytes_min=2, bytes_max=2)) == [b"aa"]


def test_languages_without_a_common_word_have_no_shortest_one() -> None:
    first, second = Repeat(literal(b"aa"), 1).automaton(), (literal(b"a") + Repeat(literal(b"aa"))).automaton()
    assert shortest_word(CommonWords(first, second)) is None


def test_the_shortest_common_word_may_be_longer_than_either_ones() -> None:
    first, second = Repeat(literal(b"aaa"), 1).automaton(), Repeat(literal(b"aaaaa"), 1).automaton()
    assert shortest_word(CommonWords(first, second)) == b"a" * 15


def test_an_infinite_language_is_listed_on_demand() -> None:
    assert list(islice(words(OwnWords(Repeat(literal(b"ab")).automaton()), bytes_max=9), 3)) == [b"", b"ab", b"abab"]


def test_candidates_of_a_language_that_is_not_regular_are_tried_in_order() -> None:
    (finding,) = lint(beside_balanced("{name:text}")).of_rule("L1")
    assert finding.witness == b"ab"
    assert lint(beside_balanced("c{name:text}")).of_rule("L1") == ()


def test_a_question_that_stays_open_is_reported_as_undecided() -> None:
    (finding,) = lint(beside_balanced("{name:text(allow='a')}")).of_rule("L1")
    assert (finding.items, finding.witness, finding.severity) == (("balanced", "other"), None, Severity.WARNING)
    assert finding.message == "undecided whether two templates can produce one key; nothing was proven either way"
