"""Backups of one node, with real PostgreSQL and pgBackRest, and neither Patroni nor a cell: made once, and tried."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from msgspec import structs
from psycopg import sql

from keyplan.apps.patroni.backups.archive import archiving
from keyplan.apps.patroni.backups.node_programs import NodePrograms, PgBackRest, TaskFailedError, TaskProcesses
from keyplan.apps.patroni.backups.records import Backup, BackupPolicy, Repository, new_archive
from keyplan.apps.patroni.backups.verification import problem_of
from keyplan.apps.patroni.node_host import Host, as_user
from keyplan.apps.patroni.node_process import Node
from tests.apps.patroni.test_failed_bootstraps import PLAN
from tests.apps.patroni.versions import FORMER
from tests.servers.etcd import free_port
from tests.servers.patroni import until

USER = "postgres" if os.geteuid() == 0 else ""
MADE = """
"$programs/initdb" -D "$data" -U postgres -A trust --encoding=UTF8 --locale=C --no-sync
"$programs/pg_ctl" -D "$data" -w -l "$data/../log" -o "-c port=$port -c listen_addresses=127.0.0.1 \
-c unix_socket_directories= -c fsync=off -c archive_mode=on -c shared_buffers=16MB" start
"""


def why_no_backups() -> str | None:
    if shutil.which("pgbackrest") is None:
        return "pgBackRest is not installed: apt-get install pgbackrest"
    return None if (FORMER / "initdb").exists() else "PostgreSQL 15 is not installed: apt-get install postgresql-15"


class Waited(TaskProcesses):
    """Lets what is halted go on once it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.halted: list[int] = []

    def pause(self) -> None:
        while self.halted:
            os.kill(self.halted.pop(), signal.SIGCONT)
        super().pause()


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A node whose PostgreSQL runs, and archives into a folder."""
    if problem := why_no_backups():
        pytest.skip(f"needs backups of PostgreSQL: {problem}")
    folder = Path(tempfile.mkdtemp(prefix="keyplan-node-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    folder.chmod(0o755)
    (folder / "backups").mkdir()
    if USER:
        shutil.chown(folder / "backups", USER)
    archive = new_archive("f1", BackupPolicy(repository=Repository(folder=str(folder / "backups"))))
    plan = structs.replace(PLAN, port=free_port(), archive=archive)
    made = Node(folder / "n1", plan, Host(FORMER, "", Path(), USER, version="15"))
    data = made.folder / "home" / "data"
    try:
        made.prepare()
        programs = NodePrograms(TaskProcesses(), made)
        words = (f"data={data}", f"port={plan.port}", f"programs={FORMER}")
        ended = programs.run("env", *words, "/bin/sh", "-ec", MADE)
        assert ended.code == 0, ended.errors
        told = archiving(archive)["postgresql"]["parameters"]["archive_command"]
        url = f"postgres://postgres@127.0.0.1:{plan.port}/postgres"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("ALTER SYSTEM SET archive_command = {}").format(told))
            connection.execute("SELECT pg_reload_conf()")
        yield made
    finally:
        stop = as_user(USER, str(FORMER / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop")
        subprocess.run(stop, check=False, cwd="/", capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def pgbackrest(node: Node, processes: TaskProcesses | None = None) -> PgBackRest:
    assert node.plan.archive is not None
    return PgBackRest(NodePrograms(processes or TaskProcesses(), node), node.plan.archive.stanza)


@pytest.fixture(scope="module")
def backup(node: Node) -> Backup:
    program = pgbackrest(node)
    program.back_up("full", "first")
    return program.backups()[-1]


@pytest.fixture
def open_folder(node: Node) -> Iterator[Path]:
    """A folder that the node's user reads."""
    folder = node.folder.parent / "programs"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def segment(node: Node, backup: Backup) -> Iterator[Path]:
    """The first segment of the log that the backup needs, in the archive; as it was, afterwards."""
    assert node.plan.archive is not None
    (found,) = Path(node.plan.archive.policy.repository.folder).rglob(f"{backup.first_wal}-*")
    content = found.read_bytes()
    yield found
    found.unlink(missing_ok=True)
    found.write_bytes(content)
    if USER:
        shutil.chown(found, USER)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_backup_that_an_agent_left_at_work_is_waited_for_and_not_made_again(node: Node) -> None:
    program, processes = pgbackrest(node), Waited()
    program.back_up("full", "before")
    words = [*program.words, "backup", "--type=incr", "--annotation=keyplan=task"]
    environment = {**node.host.environment(node.folder / "home"), "PGHOST": "127.0.0.1"}
    lock = node.folder / "home" / "pgbackrest" / "lock" / f"{program.stanza}-backup.lock"
    before = len(program.backups())
    lock.unlink(missing_ok=True)
    with subprocess.Popen(as_user(node.host.user, *words), env=environment, cwd="/") as left:
        until(lock.exists, 30, lambda: "it has not begun")
        left.send_signal(signal.SIGSTOP)
        processes.halted.append(left.pid)
        pgbackrest(node, processes).back_up("incr", "task")
        assert left.wait(60) == 0
    assert processes.halted == []
    assert len(program.backups()) == before + 1


@pytest.mark.slow
def test_a_backup_is_tried_with_programs_of_its_own_version(node: Node, backup: Backup, open_folder: Path) -> None:
    """Its node may have no data at the moment, as one that is copied anew."""
    file = node.folder / "home" / "data" / "PG_VERSION"
    host = replace(node.host, programs=Path("/nonexistent"), version="18")
    aside = file.rename(file.with_suffix(".aside"))
    try:
        assert problem_of(pgbackrest(Node(node.folder, node.plan, host)), backup) == ""
        lacking = replace(host, others=Path("/nonexistent"))
        with pytest.raises(TaskFailedError, match="PostgreSQL 15, problem=its data are of this version"):
            problem_of(pgbackrest(Node(node.folder, node.plan, lacking)), backup)
        # What the machine ends for want of memory is no word on the backup.
        ended = open_folder / "15" / "bin" / "postgres"
        ended.parent.mkdir(parents=True)
        ended.write_text("#!/bin/sh\nkill -9 $$\n")
        ended.chmod(0o755)
        with pytest.raises(TaskFailedError, match="ended by somebody else"):
            problem_of(pgbackrest(Node(node.folder, node.plan, replace(host, others=open_folder))), backup)
    finally:
        aside.rename(file)
    assert not (node.folder / "home" / "verification").exists()


@pytest.mark.slow
def test_an_archive_that_cannot_be_read_says_nothing_of_a_backup_and_one_that_is_damaged_does(
    node: Node, backup: Backup, segment: Path
) -> None:
    program = pgbackrest(node)
    assert problem_of(program, backup) == ""
    content = segment.read_bytes()
    segment.chmod(0)
    if USER:
        os.chown(segment, 0, 0)
    with pytest.raises(
        TaskFailedError, match=r"the log could not be fetched: .* \[FileOpenError\] .*Permission denied"
    ):
        problem_of(program, backup)
    segment.unlink()
    assert "could not locate required checkpoint record" in problem_of(program, backup)
    segment.write_bytes(content[:100])
    if USER:
        shutil.chown(segment, USER)
    assert "the log could not be fetched: ERROR: [042]: " in (told := problem_of(program, backup))
    assert told.endswith("[FormatError] unexpected eof in compressed data")
