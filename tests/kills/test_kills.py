"""No long act that is ended anywhere loses, leaves or spoils anything. `python -m tests.kills.run` runs the long ones, too."""

from dataclasses import replace

import pytest

from keyplan.testing.killing import check_kills
from tests.kills.furniture import Scene
from tests.kills.run import main
from tests.kills.scenes import GROUPS

SCENES = [scene for scenes in GROUPS.values() for scene in scenes()]


@pytest.mark.slow
@pytest.mark.parametrize("scene", [pytest.param(scene, id=scene.name) for scene in SCENES if not scene.is_long])
def test_a_job_that_is_ended_anywhere_comes_to_its_end_when_it_is_given_again(scene: Scene) -> None:
    report = check_kills(scene.scenario)
    assert len(report.steps) > 3
    assert report.states > 1


def test_every_scene_has_a_name_of_its_own() -> None:
    names = [scene.name for scene in SCENES]
    assert len(set(names)) == len(names)


def test_the_table_says_what_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def spoiled(*_stores: object) -> None:
        raise AssertionError("planted")

    scene = next(GROUPS["copies"]())
    failing = scene._replace(scenario=replace(scene.scenario, holds=spoiled))
    monkeypatch.setattr("tests.kills.run.GROUPS", {"sound": lambda: iter([scene]), "planted": lambda: iter([failing])})
    assert main(["sound"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "copy"
    assert main([]) == 1
    assert "fails: undisturbed: planted" in capsys.readouterr().out
    assert main(["strange"]) == 2
