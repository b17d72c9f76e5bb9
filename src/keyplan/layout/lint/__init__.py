"""The exact lint of layouts: what two templates, a list or a root do to each other, with a shortest key that shows it."""

from keyplan.layout.lint.check import lint
from keyplan.layout.lint.engine_limits import EngineLimits
from keyplan.layout.lint.finding import RULES, Finding, Rule, Severity
from keyplan.layout.lint.prefixes import lint_prefix
from keyplan.layout.lint.report import LintReport

__all__ = [
    "RULES",
    "EngineLimits",
    "Finding",
    "LintReport",
    "Rule",
    "Severity",
    "lint",
    "lint_prefix",
]
