"""What the served OpenAPI description says is what the server does: Schemathesis makes the requests, good and bad ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.keyplan_server import KeyplanServer

TOKEN = "an-admin-token-of-a-test"
CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
# Why not all: sequences of requests take as long as the rest; KEYPLAN_SCHEMATHESIS=coverage,fuzzing,stateful makes them too.
PHASES = os.environ.get("KEYPLAN_SCHEMATHESIS", "coverage,fuzzing")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    with KeyplanServer(f"lmdb:{tmp_path}/store.kv", environment={"KEYPLAN_ADMIN_TOKEN": TOKEN}) as server:
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIGURATION), "run"]
        options = ["--header", f"Authorization: Bearer {TOKEN}", "--seed", "5", "--no-color"]
        options += ["--phases", PHASES, "--max-examples", "4"]
        ran = subprocess.run(
            [*command, f"{server.url}/openapi.json", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=360,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "Tested: 25" in ran.stdout
        faults = [line for line in server.log.splitlines() if '"level": "error"' in line]
        assert faults == []
