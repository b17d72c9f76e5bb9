"""What the served OpenAPI description says of CloudChamber is what the server does: Schemathesis makes the requests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import keyplan
from keyplan.apps.cloudchamber import Chamber, CloudChamber, begin_indexes, layout_in_use
from tests.apps.cloudchamber.test_chamber import rack_of
from tests.apps.cloudchamber.web import Web, served

CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
# Why not all: the phase "coverage" takes a minute; KEYPLAN_SCHEMATHESIS=coverage,fuzzing,stateful runs it.
PHASES = os.environ.get("KEYPLAN_SCHEMATHESIS", "fuzzing")
# Why apart: they end the session that the others need.
ENDING = ("putUsersName", "deleteSimulationSessionsId")
# Why left out: they wait, the first of them without end.
WAITING = ("getStepperNow", "getWatch", "getLogs")


def examined(web: Web, folder: Path, *options: str) -> str:
    """Run Schemathesis as the system account, and return what it says. Raises AssertionError when it found something."""
    with web.as_user() as admin:
        cookie = f"Cookie: CC-Session={admin.cookies['CC-Session']}"
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIGURATION), "run"]
        bounds = ["--header", cookie, "--phases", PHASES, "--max-examples", "1", "--seed", "5", "--no-color"]
        ran = subprocess.run(
            [*command, f"{web.server.url}/openapi.json", *bounds, *options],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=360,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 'kv'}?durability=none"
    with keyplan.open(url) as store:
        begin_indexes(store)
        Chamber(store, layout=layout_in_use(store)).create_rack("rack1", rack_of(2))
    with served(url, tmp_path) as web:
        without = [word for name in (*ENDING, *WAITING) for word in ("--exclude-operation-id", name)]
        told = examined(web, tmp_path, "--include-tag", "cloudchamber", *without)
        assert "Tested: 59\n" in told, told
        only = [word for name in ENDING for word in ("--include-operation-id", name)]
        told = examined(web, tmp_path, *only)
        assert "Tested: 2\n" in told, told
        assert [line for line in web.server.log.splitlines() if '"level": "error"' in line] == []
        with web.store() as store:
            assert CloudChamber(store).users.require("admin").never_delete
