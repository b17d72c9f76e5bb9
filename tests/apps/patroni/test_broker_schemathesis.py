"""What the broker's OpenAPI description says is what it does: Schemathesis makes the requests, good and bad ones."""

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apps.patroni.conftest import broker_server
from tests.apps.patroni.osb_platform import ADMIN_TOKEN

CONFIGURATION = Path(__file__).with_name("schemathesis.toml")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    with broker_server("memory:") as server:
        log_in = base64.b64encode(f"platform:{ADMIN_TOKEN}".encode()).decode()
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIGURATION), "run"]
        paths = ["--include-path-regex", "^/(v2|admin)/"]
        options = ["--header", f"Authorization: Basic {log_in}", "--seed", "5", "--no-color"]
        # Why not its stateful phase: few of its links lead anywhere here, and it takes as long as the rest.
        options += ["--phases", "coverage,fuzzing", "--max-examples", "2"]
        ran = subprocess.run(
            [*command, f"{server.url}/openapi.json", *paths, *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=360,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "Tested: 18" in ran.stdout
        assert [line for line in server.log.splitlines() if '"level": "error"' in line] == []
