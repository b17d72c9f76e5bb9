"""What the lint returns: the findings of a layout, waivers applied."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from keyplan.errors import LintError
from keyplan.layout.rules.finding import RULES, Finding, Severity
from keyplan.layout.spec import Waiver

__all__ = ["LintReport"]


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
