"""Faults planted in migrations: the part of the matrix that runs in the suite notices each."""

import pytest

from keyplan.testing.schedules import Exhaustive, explore
from tests.schedules.matrix import GROUPS
from tests.schedules.migration_mutants import MUTANTS, Mutant

_SCHEDULES_MAX = 400
"""Why: what a line has to notice it notices early; without a fault its schedules end before."""


def noticed_by(mutant: Mutant) -> str | None:
    """The first line of the suite that fails with the fault in place; None: nobody notices."""
    for group, part in mutant.lines:
        for line in GROUPS[group]():
            if part not in line.name or line.defect or line.is_long:
                continue
            with mutant.planted():
                found = explore(
                    line.make(),
                    strategy=line.strategy or Exhaustive(),
                    schedules_max=_SCHEDULES_MAX,
                    stop_at_first=True,
                )
            if found.failures:
                return line.name
    return None


@pytest.mark.usefixtures("brief_failures")
@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_of_migrations_is_noticed(name: str) -> None:
    assert noticed_by(MUTANTS[name]) is not None
