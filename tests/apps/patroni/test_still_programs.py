"""pgBackRest whose repository does not answer, and that would wait for it for ever. No PostgreSQL runs here."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from keyplan.apps.patroni.backups.archive import SOURCE_FILE, AccessKeys, pgbackrest_configuration
from keyplan.apps.patroni.backups.records import BackupPolicy, Repository, new_archive
from keyplan.apps.patroni.backups.still_programs import StillPrograms
from keyplan.apps.patroni.node_host import Host
from keyplan.apps.patroni.node_process import Node
from keyplan.apps.patroni.processes import Running
from keyplan.testing.faults import FakeClock
from tests.apps.patroni.sleeping_cell import ordered_store, sleeping_agents, steps_until
from tests.apps.patroni.test_failed_bootstraps import PLAN
from tests.processes import waits_in
from tests.servers.patroni import until


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path / "n1", PLAN, Host(Path("/usr/bin"), "", Path()), FakeClock())
    made.prepare()
    return made


@pytest.fixture
def waiting(node: Node, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """pgBackRest that waits for what it opens first: a pipe that nobody writes to, as for a folder that does not answer."""
    if shutil.which("pgbackrest") is None:
        pytest.skip("pgBackRest is not installed: apt-get install pgbackrest")
    archive = new_archive("f1", BackupPolicy(repository=Repository(folder=str(tmp_path / "backups"))))
    pipe = tmp_path / "backups" / "backup" / archive.stanza / "backup.info"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    told = pgbackrest_configuration(archive, AccessKeys(), home=node.folder / "home", port=25432, user="postgres")
    (node.folder / SOURCE_FILE).write_text(told)
    command = ["pgbackrest", f"--config={node.folder / SOURCE_FILE}", f"--stanza={archive.stanza}", "restore"]
    with subprocess.Popen(command) as process:
        try:
            # Why by what it says: it has begun to wait once it sleeps in the opening of the pipe.
            until(lambda: "partner" in waits_in(process.pid), 20, lambda: waits_in(process.pid))
            yield process
        finally:
            process.kill()


def looked_for(minutes: int, still: StillPrograms, node: Node, clock: FakeClock) -> None:
    """Two looks, with so many minutes in between."""
    clock.advance(60)
    still.look([node])
    clock.advance(60 * minutes)
    still.look([node])


def reading(node: Node) -> "subprocess.Popen[bytes]":
    """What is called as pgBackRest is, and reads. Why not itself: it takes a pipe with little to read for a whole file."""
    command = ["pgbackrest", "-c", "while read -r line; do :; done", f"--config={node.folder / SOURCE_FILE}", "restore"]
    return subprocess.Popen(command, executable="/bin/sh", stdin=subprocess.PIPE, bufsize=0)


def has_changed(program: Running, before: int | None) -> bool:
    return program.transferred != before


def test_a_restore_that_stands_still_is_ended_and_its_node_says_why(
    node: Node, waiting: "subprocess.Popen[bytes]"
) -> None:
    clock = FakeClock()
    still = StillPrograms(clock)
    looked_for(9, still, node, clock)
    assert waiting.poll() is None
    # Why one look: until it has gone, another would end it again, and say after how long.
    clock.advance(60)
    still.look([node])
    assert waiting.wait(20) == -signal.SIGKILL
    assert (
        node.last_failure() == "FATAL:  pgbackrest restore has read and written nothing for 600 seconds, and is ended"
    )


def test_what_reads_now_and_then_goes_on(node: Node) -> None:
    clock = FakeClock()
    still = StillPrograms(clock)
    with reading(node) as process:
        assert process.stdin is not None
        program = Running.of_pid(process.pid)
        assert program is not None
        for _ in range(3):
            looked_for(9, still, node, clock)
            before = program.transferred
            process.stdin.write(b"x\n")
            until(partial(has_changed, program, before), 20, lambda: "it has not read")
        assert process.poll() is None
        looked_for(11, still, node, clock)
        assert process.wait(20) == -signal.SIGKILL


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has nodes of several users")
def test_what_another_user_calls_so_is_left(node: Node, waiting: "subprocess.Popen[bytes]") -> None:
    """Whoever has a cluster may call a process as another node's."""
    os.chown(node.folder / "home", 12_345, -1)
    clock = FakeClock()
    looked_for(11, StillPrograms(clock), node, clock)
    assert waiting.poll() is None


@pytest.mark.timeout(60)
def test_the_agent_of_a_cell_looks_at_what_works_for_its_nodes(tmp_path: Path) -> None:
    clock, stop = FakeClock(), Event()
    with sleeping_agents(tmp_path, tmp_path / "cell") as agents:
        agent = agents(ordered_store("n1"), clock=clock)
        steps_until(agent, lambda: agent.nodes)
        thread = Thread(target=agent.run, args=(stop,))
        with reading(agent.nodes[0]) as process:

            def has_ended() -> bool:
                clock.advance(60)
                return process.poll() is not None

            thread.start()
            try:
                until(has_ended, 30, lambda: "it stands still")
            finally:
                stop.set()
                thread.join()
                process.kill()
