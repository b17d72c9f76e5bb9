"""What is to be done about a unit, or about one record: one commit, or a contest that a person decides."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from keyplan.engine import Commit
from keyplan.layout import shown_key

__all__ = ["CONTESTS_MAX", "TAKEN", "Contest", "Decision", "Outcome", "Side", "contested"]

CONTESTS_MAX: Final = 100
"""How many a report names. Why: memory; what is beyond it is told when these are settled."""

TAKEN: Final = "another old record has become the one at its new key"


class Outcome(Enum):
    """What is to be done about one record."""

    UNCHANGED = "unchanged"
    COPIED = "copied"
    RENEWED = "renewed"
    REMOVED = "removed"
    MARKED = "marked"
    DROPPED = "left out"
    KEPT = "kept as the new one"
    RETURNED = "taken back"
    WITHDRAWN = "withdrawn"
    BARED = "without a part of its entries"
    CONTESTED = "contested"


class Side(Enum):
    """Which records hold where both sides have changed: a consent of the plan says it for a whole table."""

    OLD = "old"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Contest:
    """A record that a person must decide about: both raw keys, and why."""

    old_key: bytes
    new_key: bytes | None
    reason: str

    def __str__(self) -> str:
        other = "" if self.new_key in {None, self.old_key} else f" and {shown_key(self.new_key or b'')}"
        return f"{shown_key(self.old_key)}{other}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done about a unit, as one commit; no commit when nothing is to be written.

    `records`, `entries`: how many of these it removes in the clean-up.
    """

    outcome: Outcome
    commit: Commit | None = None
    contest: Contest | None = None
    records: int = 0
    entries: int = 0


def contested(unit: bytes, new_key: bytes | None, reason: str) -> Decision:
    """Return the decision to leave a unit to a person: nothing is written."""
    return Decision(Outcome.CONTESTED, None, Contest(unit, new_key, reason))
