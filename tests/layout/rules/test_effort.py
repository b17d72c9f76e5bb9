"""What a question may cost: templates whose automata are large are answered, or said to be undecided, after bounded work."""

from collections.abc import Callable

import pytest

from keyplan.layout import Template
from keyplan.layout.rules import Finding, decision, lint, search
from keyplan.layout.rules.decision import Answer, ambiguous_key, key_below, shortest_key
from tests.layout.rules.builders import binary, binary_tables, text

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


def _is_undecided(finding: Finding) -> bool:
    return finding.witness is None and "undecided" in finding.message


def test_no_key_and_no_answer_are_two_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    without = text("{name:text(allow='a',reserved='a',bytes_max=1)}")
    assert shortest_key(without) == Answer(None)
    shortest_key.cache_clear()
    monkeypatch.setattr(decision, "Effort", lambda: search.Effort(1))
    assert shortest_key(without).is_open
    shortest_key.cache_clear()
