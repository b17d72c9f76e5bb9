"""A migration planned, as data: what changes, the steps in their order, what stands in the way. Planning is in planner.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from keyplan.layout import BoundLayout, LayoutChange
from keyplan.maintenance.migration.functions import Resolution
from keyplan.maintenance.migration.route import Route

__all__ = ["MigrationPhase", "MigrationPlan", "MigrationStep", "TableWork"]


class MigrationPhase(Enum):
    """When a step is taken."""

    FILL = "beside programs of the old layout"
    SWITCH = "when no program writes by the old layout any more"
    CONTRACT = "when no program needs the old layout any more"


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """One thing that is done: when, to which item, in a sentence; `records` is how many it is about, where that is known."""

    phase: MigrationPhase
    item: str
    what: str
    records: int | None = None


@dataclass(frozen=True)
class TableWork:
    """What is to be done with the records of one route. `is_moving`: they get other keys; else only their values are others."""

    route: Route
    is_moving: bool

    @property
    def name(self) -> str:
        """What plans, reports and consents call it: the new table, or the old one that a function's records are of."""
        return self.route.item

    @property
    def is_in_place(self) -> bool:
        """Whether the records are converted where they stand."""
        return self.route.has_other_values and not self.is_moving


@dataclass(frozen=True)
class MigrationPlan:
    """The changes, the steps, and what stands in the way: a plan with obstacles is not carried out.

    `id` tells one migration from another in the store. `is_over`: it was cleaned up, and nothing of the old layout is left;
    `reopens`: it was, and a program of the old layout wrote since. `accepts`, `name`, `resolutions`: as given.
    """

    old: BoundLayout
    new: BoundLayout
    id: bytes
    changes: tuple[LayoutChange, ...]
    steps: tuple[MigrationStep, ...]
    obstacles: tuple[str, ...]
    tables: tuple[TableWork, ...] = field(repr=False, default=())
    indexes_to_build: tuple[str, ...] = ()
    indexes_to_remove: tuple[str, ...] = ()
    tables_to_remove: tuple[str, ...] = ()
    counters_to_move: tuple[tuple[str, str], ...] = ()
    counters_to_remove: tuple[str, ...] = ()
    is_over: bool = False
    reopens: bool = False
    accepts: frozenset[str] = frozenset()
    name: str = ""
    resolutions: Mapping[str, Resolution] = field(default_factory=dict)

    @property
    def has_clean_up(self) -> bool:
        """Whether something of the old layout is left to remove at the end."""
        return any(step.phase is MigrationPhase.CONTRACT for step in self.steps)

    def lines(self) -> list[str]:
        """The plan for people."""
        lines = [str(change) for change in self.changes]
        if self.is_over:
            lines.append("the migration is over: nothing of the old layout is left")
        for phase in MigrationPhase:
            steps = [step for step in self.steps if step.phase is phase]
            if steps:
                lines.append(f"{phase.value}:")
            for step in steps:
                count = "" if step.records is None else f" ({step.records} records)"
                lines.append(f"  {step.item}: {step.what}{count}")
        lines += [f"in the way: {obstacle}" for obstacle in self.obstacles]
        return lines
