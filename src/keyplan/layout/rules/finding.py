"""The rules of the lint, and a finding: what a rule says about some items of a layout, with a key that shows it."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from keyplan.layout.meaning import shown_key

__all__ = ["RULES", "Finding", "Rule", "Severity", "abridged"]


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
