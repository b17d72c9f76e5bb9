"""The exact lint of layouts: what two templates, a list or a root do to each other, with a shortest key that shows it."""

from keyplan.layout.rules.check import collisions_of, lint
from keyplan.layout.rules.decision import key_below
from keyplan.layout.rules.finding import RULES, Finding, LintReport, Rule, Severity
from keyplan.layout.rules.lists import lint_prefix
from keyplan.layout.rules.refusals import EngineLimits

__all__ = [
    "RULES",
    "EngineLimits",
    "Finding",
    "LintReport",
    "Rule",
    "Severity",
    "collisions_of",
    "key_below",
    "lint",
    "lint_prefix",
]
