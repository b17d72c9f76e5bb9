"""A rule, what it finds about some items of a layout, with a key that shows it; and the report, waivers applied (L12)."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from keyplan.errors import LintError
from keyplan.layout.meaning import shown_key
from keyplan.layout.spec import Waiver

__all__ = ["RULES", "Finding", "LintReport", "Rule", "Severity", "abridged"]


PRINTED_BYTES_MAX: Final = 120
"""Why: a finding is read on a line or two; the whole key is in its `witness`."""


class Severity(Enum):
    """What a finding means for a layout."""

    ERROR = "error"
    """Keys are lost, overwritten or misread."""

    WARNING = "warning"
    """A promise holds only while nobody names something unluckily, or only for readers that use keyplan."""

    NOTE = "note"
    """A cost or a trap for raw readers that the layout's authors should know; checked only when asked for."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule's code, its sentence, and how bad a finding of it usually is; a finding may be less bad, never worse."""

    code: str
    sentence: str
    severity: Severity


RULES: Final = {
    rule.code: rule
    for rule in (
        Rule("L1", "two templates can produce one key", Severity.ERROR),
        Rule("L2", "a key can be read in two ways", Severity.ERROR),
        Rule("L3", "a key that holds a value is also a directory of other keys", Severity.WARNING),
        Rule("L4", "a raw read of a list's prefix returns more than the list", Severity.WARNING),
        Rule("L5", "nothing can exist below a prefix", Severity.WARNING),
        Rule("L6", "a root lies inside another root", Severity.WARNING),
        Rule("L7", "keys do not sort as their values do", Severity.WARNING),
        Rule("L8", "a list must ask every database of a ring", Severity.NOTE),
        Rule("L9", "prefix + FF as range end loses keys", Severity.NOTE),
        Rule("L10", "a record can exceed a limit of the engine", Severity.WARNING),
        Rule("L11", "an entry outlives the leased record that it belongs to", Severity.WARNING),
        Rule("L12", "a waiver matches no finding", Severity.ERROR),
        Rule("L13", "an index refuses the default of a field", Severity.WARNING),
    )
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule says about some items, in the order in which a waiver names them.

    `witness` is a key that shows it, the shortest one, verified; `second` the other key, prefix or longer key where it takes
    two. An undecided question has no witness. `reason` is the waiver's, empty when the finding is not waived.
    """

    rule: str
    items: tuple[str, ...]
    message: str
    witness: bytes | None = None
    second: bytes | None = None
    severity: Severity = Severity.WARNING
    reason: str = ""

    @classmethod
    def undecided(cls, rule: str, *items: str) -> "Finding":
        """A question of `rule` that stayed open; see `decision.py` for when that happens."""
        return cls(rule, items, f"undecided whether {RULES[rule].sentence}; nothing was proven either way")

    @property
    def is_waived(self) -> bool:
        return bool(self.reason)

    @property
    def subject(self) -> str:
        """The items as a waiver writes them, e.g. "racks, blades"."""
        return ", ".join(self.items)

    def __str__(self) -> str:
        keys = ", ".join(abridged(key) for key in (self.witness, self.second) if key is not None)
        shown = f" [{keys}]" if keys else ""
        waived = f" (waived: {self.reason})" if self.is_waived else ""
        return f"{self.rule} {self.severity.value} {self.subject}: {self.message}{shown}{waived}"


def abridged(key: bytes) -> str:
    """Return a key for people, cut after PRINTED_BYTES_MAX bytes; the empty key is two quotes."""
    if len(key) <= PRINTED_BYTES_MAX:
        return shown_key(key) or "''"
    return f"{shown_key(key[:PRINTED_BYTES_MAX])}... {len(key)} bytes"


# ---- the report ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LintReport:
    """The findings about one layout, by rule and then in the order of its items."""

    layout: str
    findings: tuple[Finding, ...]

    @classmethod
    def of(
        cls, layout: str, findings: Iterable[Finding], waivers: Sequence[Waiver], *, unasked: Collection[str] = ("L10",)
    ) -> "LintReport":
        """Mark the findings that `waivers` name, and add one of L12 for each waiver that names none.

        A waiver of one of the `unasked` rules may name none. L10 is always among them: whether there is such a finding depends
        on the engine that the caller asks about.
        """
        found = list(findings)
        named = {(finding.rule, finding.subject) for finding in found}
        reasons = {_target(waiver): waiver.reason or "no reason given" for waiver in waivers}
        marked = [replace(finding, reason=reasons.get((finding.rule, finding.subject), "")) for finding in found]
        stale = [_stale(waiver) for waiver in waivers if _target(waiver) not in named and waiver.rule not in unasked]
        order = list(RULES)
        return cls(layout, tuple(sorted([*marked, *stale], key=lambda finding: order.index(finding.rule))))

    @property
    def open_findings(self) -> tuple[Finding, ...]:
        """Those that no waiver names."""
        return tuple(finding for finding in self.findings if not finding.is_waived)

    def of_rule(self, rule: str) -> tuple[Finding, ...]:
        """The findings of one rule, waived ones included."""
        return tuple(finding for finding in self.findings if finding.rule == rule)

    def failures(self, *, strict: bool = False) -> tuple[Finding, ...]:
        """What `check` objects to: errors and warnings without a waiver; strict, notes as well."""
        return tuple(finding for finding in self.open_findings if strict or finding.severity is not Severity.NOTE)

    def check(self, *, strict: bool = False) -> None:
        """Raise LintError listing the failures, if there are any."""
        failures = self.failures(strict=strict)
        if failures:
            raise LintError(layout=self.layout, findings=tuple(str(finding) for finding in failures))

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self.findings) or f"{self.layout}: no findings"


def _target(waiver: Waiver) -> tuple[str, str]:
    return waiver.rule, ", ".join(item.strip() for item in waiver.items.split(","))


def _stale(waiver: Waiver) -> Finding:
    rule, items = _target(waiver)
    return Finding(
        "L12",
        (f"{rule} {items}",),
        "the waiver names a finding that does not exist; remove it",
        severity=Severity.ERROR,
    )
