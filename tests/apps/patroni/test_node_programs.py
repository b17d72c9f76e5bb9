"""Programs that a cell's tasks run: how they end, also with the cell's agent. No PostgreSQL runs here."""

import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keyplan import Secret
from keyplan.apps.patroni import Credentials
from keyplan.apps.patroni.backups.archive import (
    ARCHIVE_FILE,
    SOURCE_FILE,
    AccessKeys,
    pgbackrest_configuration,
    recovering,
)
from keyplan.apps.patroni.backups.node_programs import NodePrograms, PgBackRest, TaskFailedError, TaskProcesses
from keyplan.apps.patroni.backups.records import BackupPolicy, Recovery, Repository, S3Store, new_archive
from keyplan.apps.patroni.node_config import Gateway, NodePlan
from keyplan.apps.patroni.node_host import Host
from keyplan.apps.patroni.node_process import Node
from tests.servers.patroni import until

DEAF = "import pathlib, signal, sys; signal.signal({signal}, signal.SIG_IGN); pathlib.Path(sys.argv[1]).touch(); signal.pause()"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ignored", ["signal.SIGTERM", "signal.SIGUSR1"])
def test_a_program_that_hears_no_request_to_end_is_killed_with_the_agent(tmp_path: Path, ignored: str) -> None:
    processes, runs = TaskProcesses(), tmp_path / "runs"
    command = [sys.executable, "-c", DEAF.format(signal=ignored), str(runs)]
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(processes.run, command, {})
        until(runs.exists, 30, lambda: "it has not begun")
        # Why so long for one that hears it: it has to be the request that ends it.
        processes.close(0.1 if ignored == "signal.SIGTERM" else 600)
        with pytest.raises(TaskFailedError, match="the agent ends"):
            begun.result(30)
    with pytest.raises(TaskFailedError, match="the agent ends"):
        processes.run(command, {})


@pytest.mark.timeout(40)
@pytest.mark.skipif(shutil.which("pgbackrest") is None, reason="pgBackRest is not installed")
def test_a_repository_that_says_nothing_is_told_of_while_somebody_waits(tmp_path: Path) -> None:
    login = Credentials(username="postgres", password=Secret("p"))
    plan = NodePlan(
        instance="f1",
        node="n1",
        port=25432,
        rest_port=28008,
        superuser=login,
        replication=login,
        rest=login,
        gateway=Gateway("127.0.0.1:1"),
    )
    node = Node(tmp_path / "n1", plan, Host(Path("/usr/bin"), "", Path()))
    node.prepare()
    # Why never accepted: who has connected waits for the first word of TLS.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = S3Store(bucket="backups", endpoint=f"127.0.0.1:{silent.getsockname()[1]}", is_path_style=True)
        archive = new_archive("f1", BackupPolicy(repository=Repository(folder="/f1", s3=store)))
        keys = AccessKeys(Secret("key"), Secret("secret"))
        told = pgbackrest_configuration(archive, keys, home=node.folder / "home", port=25432, user="postgres")
        (node.folder / ARCHIVE_FILE).write_text(told)
        programs = NodePrograms(TaskProcesses(), node)
        assert PgBackRest(programs, archive.stanza).reading == "--io-timeout=5"
        with pytest.raises(TaskFailedError, match="pgbackrest info: "):
            PgBackRest(programs, archive.stanza, silence_seconds=1).backups()


@pytest.mark.skipif(shutil.which("pgbackrest") is None, reason="pgBackRest is not installed")
def test_a_recovery_fails_where_its_archive_cannot_be_read(tmp_path: Path) -> None:
    """PostgreSQL takes a command that fails for the end of the log, and promotes, unless its exit code is above 125."""
    store = S3Store(bucket="b", endpoint="127.0.0.1:1", is_path_style=True)
    archive = new_archive("f1", BackupPolicy(repository=Repository(folder="/backups", s3=store)))
    keys = AccessKeys(Secret("key"), Secret("secret"))
    text = pgbackrest_configuration(archive, keys, home=tmp_path / "home", port=5433, user="postgres")
    (tmp_path / SOURCE_FILE).write_text(text.replace("[global]", "[global]\nio-timeout=1"))
    told = recovering(Recovery(archive=archive, label="x"), folder=tmp_path, roles=[])
    command = told[told["method"]]["recovery_conf"]["restore_command"]
    command = command.replace("%f", "0000000100000000000000A1").replace("%p", "RECOVERYXLOG")
    done = subprocess.run(["/bin/sh", "-c", command], check=False, capture_output=True, timeout=60)
    assert (done.returncode, b"ERROR: [" in done.stderr) == (255, True), done.stderr
