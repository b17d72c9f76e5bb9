"""The matrix: each line that is not long is explored to its end, and nothing fails. `scripts/schedules` runs all of it."""

from collections.abc import Iterator

import pytest

from keyplan.testing.schedules import Outcome, Scenario, ScheduleFailure
from tests.schedules.lines import Line
from tests.schedules.matrix import GROUPS
from tests.schedules.run import explored, main
from tests.schedules.writers import WRITERS, two_records

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


def planted() -> Iterator[Line]:
    def never_holds(_outcome: Outcome) -> None:
        raise AssertionError("planted")

    yield Line("never", lambda: Scenario(WRITERS["modify"], setup=two_records, invariants=[never_holds]))


def sound() -> Iterator[Line]:
    yield Line("modify x modify", lambda: Scenario(*[WRITERS["modify"]] * 2, setup=two_records))


def test_the_table_says_what_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tests.schedules.run.GROUPS", {"planted": planted, "sound": sound})
    assert main(["sound", "30"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["sound", "1", "4", "4"]
    assert main([]) == 1
    assert "=== planted: never\n1 failure in 1 schedule (complete)" in capsys.readouterr().out
    assert main(["strange"]) == 2
    assert "no group is called strange: use all, planted, sound" in capsys.readouterr().out
