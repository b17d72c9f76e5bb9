"""Writers that compete and are killed: the short form of `scripts/turns`."""

import subprocess
import sys
from pathlib import Path

import pytest

_KILLS = 150


@pytest.mark.timeout(300)
def test_writers_that_are_killed_keep_nobody_from_writing_and_lose_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.turns", str(_KILLS), "1"],
        capture_output=True,
        text=True,
        check=False,
        env={"TMPDIR": str(tmp_path)},
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"kills={_KILLS}" in done.stdout
