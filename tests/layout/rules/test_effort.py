"""What a question may cost: templates whose automata are large are answered, or said to be undecided, after bounded work."""

from collections.abc import Callable, Iterator

import pytest

from keyplan.layout import Impact, Template, differences
from keyplan.layout.difference.inclusion import key_beyond
from keyplan.layout.difference.keys import compare_keys
from keyplan.layout.rules import Finding, decision, lint, search
from keyplan.layout.rules.decision import Answer, ambiguous_key, key_below, shortest_key
from tests.layout.rules.builders import binary, binary_tables, layout, table, tables, text

DEEP = (
    "{first:level_path}{second:level_path}",
    "{first:level_path}/{number:uvarint}{second:level_path}",
    "{number:prefix_varint}{first:path}{first.level:u8}{second:level_path}",
)
"""Two paths, each beside its number of slashes: 256 slices, each with an automaton of thousands of states."""


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What all questions of a test cost, each as it is spent."""
    found: list[int] = []

    class Watched(search.Effort):
        def spend(self, count: int) -> None:
            found.append(count)
            super().spend(count)

    monkeypatch.setattr(decision, "Effort", Watched)
    for question in (ambiguous_key, key_below, shortest_key):
        question.cache_clear()
    return found


QUESTIONS: list[Callable[[Template], Answer]] = [
    ambiguous_key,
    shortest_key,
    lambda template: key_below(template, None, binary("{name:text_tail}/{level:u8}")),
]


@pytest.mark.slow
@pytest.mark.parametrize("source", DEEP)
@pytest.mark.parametrize("question", QUESTIONS, ids=["ambiguous", "shortest", "shared"])
def test_no_question_costs_more_than_its_bound(
    question: Callable[[Template], Answer], source: str, spent: list[int]
) -> None:
    question(binary(source))
    # Why: what goes beyond the bound is the last automaton, and that has a bound of its own.
    assert sum(spent) - spent[-1] <= search.EFFORT_MAX


def test_a_question_that_costs_too_much_is_undecided_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "Effort", lambda: search.Effort(50))
    spec = binary_tables("{a:level_path}{n:u8}", "{b:path}/{m:u8}")
    for question in (ambiguous_key, key_below, shortest_key, decision.key_listed_astray):
        question.cache_clear()
    found = lint(spec).findings
    for question in (ambiguous_key, key_below, shortest_key, decision.key_listed_astray):
        question.cache_clear()
    assert {one.rule for one in found if _is_undecided(one)} == {"L1", "L2", "L3", "L4", "L9"}


@pytest.fixture
def poor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No question may cost anything, and nothing is known from before."""
    questions = (ambiguous_key, key_below, shortest_key, decision.key_listed_astray, key_beyond, compare_keys)
    for question in questions:
        question.cache_clear()
    monkeypatch.setattr(decision, "Effort", lambda: search.Effort(5))
    monkeypatch.setattr(search, "EFFORT_MAX", 5)
    monkeypatch.setattr(search.Effort.__init__, "__defaults__", (5,))
    yield
    for question in questions:
        question.cache_clear()


@pytest.mark.usefixtures("poor")
def test_roots_that_cannot_be_told_apart_are_undecided() -> None:
    own = layout(table("t", text("{a:text}/{b:text}")), name="Own", root=text("own/"))
    other = layout(table("t", text("{a:text}/{b:text}")), name="Other", root=text("other/"))
    found = lint(own, others=[other]).of_rule("L6")
    assert [(one.items, one.witness) for one in found] == [(("Own", "Other"), None), (("Other", "Own"), None)]
    assert all(map(_is_undecided, found))


@pytest.mark.usefixtures("poor")
def test_a_root_that_cannot_be_told_from_itself_is_undecided() -> None:
    spec = layout(table("t", text("{a:text}")), name="Own", root=text("{site:text}/"), parameters={"site": "a"})
    (found,) = lint(spec).of_rule("L6")
    assert found.items == ("Own",)
    assert _is_undecided(found)


@pytest.mark.usefixtures("poor")
def test_an_entry_that_may_outlive_a_leased_record_is_undecided() -> None:
    spec = layout(table("held", text("{a:text}"), lease=True), table("kept", text("{a:text}/{b:text}")))
    (found,) = lint(spec).of_rule("L11")
    assert found.items == ("held", "kept")
    assert _is_undecided(found)


@pytest.mark.usefixtures("poor")
def test_keys_that_cannot_be_compared_are_undecided_and_to_be_written_anew() -> None:
    old, new = tables("a/{a:text}/{b:text}"), tables("a/{a:text}-/{b:text}")
    (change,) = [one for one in differences(old, new) if one.code == "E6"]
    assert (change.impact, change.item) == (Impact.REWRITE, "t0")
    assert change.message.endswith("undecided whether every old key is a new one")


@pytest.mark.usefixtures("poor")
def test_keys_that_may_have_been_something_elses_are_undecided_and_breaking() -> None:
    old, new = tables("{a:text}/{b:text}", "x/{a:text}"), tables("y/{a:text}", "{b:text}.{a:text}")
    found = [one for one in differences(old, new) if one.code == "E19"]
    assert found
    assert {(one.impact, one.witness) for one in found} == {(Impact.BREAKING, None)}
    assert all(one.message.startswith("undecided whether a key of it was one of") for one in found)


def _is_undecided(finding: Finding) -> bool:
    return finding.witness is None and "undecided" in finding.message


def test_no_key_and_no_answer_are_two_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    without = text("{name:text(allow='a',reserved='a',bytes_max=1)}")
    assert shortest_key(without) == Answer(None)
    shortest_key.cache_clear()
    monkeypatch.setattr(decision, "Effort", lambda: search.Effort(1))
    assert shortest_key(without).is_open
    shortest_key.cache_clear()
