"""What was found: a table of an inferred layout, before it has a name; and what is said about it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from keyplan.layout import Field, Literal
from keyplan.maintenance.inference.decisions import Confidence
from keyplan.maintenance.inference.stored_values import ValueProfile

__all__ = ["Found", "Note", "Part", "joined", "shared_start"]

Part: TypeAlias = Literal | Field


@dataclass(frozen=True, slots=True)
class Note:
    """One decision of an inference: about which place of the keys, what, why, and how sure."""

    place: str
    decision: str
    reason: str
    confidence: Confidence = Confidence.HIGH

    def __str__(self) -> str:
        return f"{self.place}: {self.decision} ({self.confidence.value}): {self.reason}"


@dataclass(slots=True)
class Found:
    """Keys of one template with their values. `parts` begin at the first byte of the key."""

    parts: tuple[Part, ...]
    values: ValueProfile
    keys: int
    notes: list[Note] = field(default_factory=list)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the key, derived ones left out."""
        return tuple(part for part in self.parts if isinstance(part, Field) and not part.is_derived)


def shared_start(keys: Sequence[bytes]) -> bytes:
    """The bytes that all keys begin with; there must be a key."""
    least, greatest = min(keys), max(keys)
    for position, (one, other) in enumerate(zip(least, greatest, strict=False)):
        if one != other:
            return least[:position]
    return least


def joined(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts with neighbouring literals as one."""
    made: list[Part] = []
    for part in parts:
        last = made[-1] if made else None
        if isinstance(part, Literal) and isinstance(last, Literal):
            made[-1] = Literal(last.raw + part.raw)
        elif not (isinstance(part, Literal) and not part.raw):
            made.append(part)
    return tuple(made)
