"""What a verification asks of restored data, with real PostgreSQL 18: one process recovers them, and answers."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan.apps.patroni.backups.verification import asking_command
from keyplan.apps.patroni.node_host import as_user
from tests.apps.patroni.versions import programs_of_18, why_no_upgrade

BACKED_UP = """
"$programs/initdb" -D "$folder/data" -U postgres -A trust --encoding=UTF8 --locale=C --no-sync
"$programs/pg_ctl" -D "$folder/data" -w -o "-c listen_addresses= -c unix_socket_directories='$folder' -c fsync=off" start
"$programs/pg_basebackup" -h "$folder" -U postgres -D "$folder/restored" --checkpoint=fast --no-sync
"$programs/pg_ctl" -D "$folder/data" -m immediate stop
touch "$folder/restored/recovery.signal"
"""


def run(*command: str, given: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        as_user("postgres", *command) if os.geteuid() == 0 else [*command],
        check=False,
        input=given,
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", **environment},
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    if problem := why_no_upgrade():
        pytest.skip(f"needs PostgreSQL 18: {problem}")
    made = Path(tempfile.mkdtemp(prefix="keyplan-asked-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    if os.geteuid() == 0:
        shutil.chown(made, "postgres", "postgres")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.slow
def test_a_single_process_of_18_recovers_a_backup_and_answers(folder: Path) -> None:
    programs = programs_of_18()
    assert programs is not None
    made = run("/bin/sh", "-ec", BACKED_UP, programs=str(programs), folder=str(folder))
    assert made.returncode == 0, made.stdout + made.stderr
    data = folder / "restored"
    command = asking_command(programs, data, fetch="false", control="")
    asked = run(*command, "postgres", given="SELECT 'has ' || count(*) AS found FROM pg_class\n")
    assert ('found = "has 4' in asked.stdout, asked.returncode) == (True, 0), asked.stderr
    # It is recovered, and no standby any more.
    assert not (data / "recovery.signal").exists()
