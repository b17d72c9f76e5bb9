"""The matrix: each line that is not long is explored to its end, and nothing fails. `scripts/schedules` runs all of it."""

import pytest

from keyplan.testing.schedules import ScheduleFailure
from tests.schedules.matrix import GROUPS
from tests.schedules.run import explored

SOUND = {name: [line for line in lines() if not line.is_long and not line.defect] for name, lines in GROUPS.items()}
KNOWN = [(name, line) for name, lines in GROUPS.items() for line in lines() if line.defect]

PARTS = 4
"""Why: the lines of a group are run in so many tests, which find their way to several workers."""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("group", [name for name, lines in SOUND.items() if lines])
def test_no_line_of_the_matrix_fails(group: str, part: int) -> None:
    for line in SOUND[group][part::PARTS]:
        found = explored(line, seconds_max=150)  # a busy machine is no failure
        if found.failures or found.has_run_out:
            raise ScheduleFailure(found, line.name)


def test_a_line_with_a_known_defect_still_fails() -> None:
    for _, line in KNOWN:
        assert explored(line).failures, f"{line.name} is mended: take its defect from the line"


def test_every_line_has_a_name_of_its_own() -> None:
    for lines in GROUPS.values():
        names = [line.name for line in lines()]
        assert len(set(names)) == len(names)
