"""The watch over targets can fail: it ends what does not end, and lets no foreign error through."""

from pathlib import Path

import pytest

from tests.fuzz import watchdog
from tests.fuzz.run import Findings
from tests.fuzz.targets import TARGETS, Target
from tests.fuzz.watchdog import HangError, run_watched


def endless(data: bytes) -> None:
    while True:
        pass


def failing(data: bytes) -> None:
    int(data)


def test_an_input_that_never_gets_an_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "SECONDS_MAX", 0.05)
    with pytest.raises(HangError):
        run_watched(Target(endless, lambda: iter(())), b"")


def test_of_the_inputs_that_fail_in_one_place_the_shortest_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TARGETS, "failing", Target(failing, lambda: iter(())))
    findings = Findings("failing", tmp_path)
    for data in (b"long", b"x", b"12", b"longer"):
        findings.try_input(data)
    (finding,) = tmp_path.iterdir()
    assert finding.read_text().startswith("b'x'\n")
    assert "ValueError" in finding.name
    assert findings.inputs == 4
