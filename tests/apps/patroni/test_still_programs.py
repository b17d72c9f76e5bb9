"""pgBackRest whose repository does not answer, and that would wait for it for ever. No PostgreSQL runs here."""

import errno
import inspect
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from keyplan.apps.patroni.backups import still_programs
from keyplan.apps.patroni.backups.archive import (
    ARCHIVE_FILE,
    SOURCE_FILE,
    AccessKeys,
    archiving,
    pgbackrest_configuration,
)
from keyplan.apps.patroni.backups.node_programs import NodePrograms, PgBackRest, TaskFailedError, TaskProcesses
from keyplan.apps.patroni.backups.records import BackupPolicy, Repository, new_archive
from keyplan.apps.patroni.backups.still_programs import StillPrograms
from keyplan.apps.patroni.node_host import Host
from keyplan.apps.patroni.node_log import add_failure
from keyplan.apps.patroni.node_process import Node
from keyplan.apps.patroni.processes import ProcessTrees, Running, processes_of_program
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


def reading(node: Node, *words: str) -> "subprocess.Popen[bytes]":
    """What is called as pgBackRest is, and reads. Why not itself: it takes a pipe with little to read for a whole file."""
    told = words or (f"--config={node.folder / SOURCE_FILE}", "restore")
    command = ["pgbackrest", "-c", "while read -r line; do :; done", *told]
    process = subprocess.Popen(command, executable="/bin/sh", stdin=subprocess.PIPE, bufsize=0)
    # Why: what a shell reads until it is at work counts, too.
    until(lambda: "pipe_read" in waits_in(process.pid), 20, lambda: waits_in(process.pid))
    return process


def until_found(node: Node) -> list[Running]:
    """What waits for the node's repository, once it does."""

    def found() -> list[Running]:
        programs = [
            one for one in processes_of_program("pgbackrest") if f"--config={node.folder / ARCHIVE_FILE}" in one.command
        ]
        return [one for one in programs if "partner" in waits_in(one.pid)]

    until(lambda: bool(found()), 20, lambda: "nothing waits")
    return found()


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


@pytest.mark.parametrize("is_linked", [False, True])
def test_what_archives_is_known_by_the_words_that_postgresql_gives_it(tmp_path: Path, *, is_linked: bool) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    folder = tmp_path / ("link" if is_linked else "real") / "n1"
    node = Node(folder, PLAN, Host(Path("/usr/bin"), "", Path()), FakeClock())
    node.prepare()
    (data := folder / "home" / "data").mkdir()
    archive = new_archive("f1", BackupPolicy(repository=Repository(folder="/backups")))
    told = archiving(archive)["postgresql"]["parameters"]["archive_command"].replace("%p", "pg_wal/0A")
    # As PostgreSQL has a shell read it, in its data.
    words = ["/bin/sh", "-c", f"printf '%s\n' {told}"]
    found = subprocess.run(words, check=True, cwd=data, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    clock = FakeClock()
    with reading(node, *found.stdout.splitlines()[1:]) as process:
        looked_for(11, StillPrograms(clock), node, clock)
        assert process.wait(20) == -signal.SIGKILL
    assert node.last_failure().startswith("FATAL:  pgbackrest archive-push has read and written nothing")


def test_what_it_has_begun_ends_with_it_however_deep_it_lies(node: Node) -> None:
    nested = 'n=$1; if [ "$n" -gt 0 ]; then sh -c "$0" "$0" $((n - 1)); else echo deep; sleep 60; fi; exit'
    command = ["pgbackrest", "-c", nested, nested, "150", f"--config={node.folder / SOURCE_FILE}", "restore"]
    clock, limit = FakeClock(), sys.getrecursionlimit()
    with subprocess.Popen(command, executable="/bin/sh", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"deep\n"
        program = Running.of_pid(process.pid)
        assert program is not None
        sys.setrecursionlimit(len(inspect.stack(0)) + 100)
        try:
            tree = [*ProcessTrees().tree(program)]
            looked_for(11, StillPrograms(clock), node, clock)
        finally:
            sys.setrecursionlimit(limit)
        assert process.wait(20) == -signal.SIGKILL
    assert len(tree) == 152
    until(lambda: not any(one.is_alive for one in tree), 20, lambda: "what it has begun lives on")


def test_what_cannot_even_be_killed_is_told_of_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """As what waits for a disk; a test can make none, and so no signal arrives here."""
    monkeypatch.setattr(Running, "send", lambda *_: None)
    clock = FakeClock()
    still = StillPrograms(clock)
    with reading(node) as process:
        for _ in range(3):
            looked_for(11, still, node, clock)
        process.kill()
    assert (node.folder / "log").read_text().count("is ended") == 1


def test_what_it_is_asked_for_is_told_where_it_is_a_word_of_pgbackrests(node: Node) -> None:
    clock = FakeClock()
    with reading(node, "x\nFATAL:  a line", f"--config={node.folder / SOURCE_FILE}", "archive-push:async") as process:
        looked_for(11, StillPrograms(clock), node, clock)
        process.wait(20)
    assert node.last_failure().startswith("FATAL:  pgbackrest archive-push:async has read and written nothing")
    assert "a line" not in (node.folder / "log").read_text()


def test_who_waits_for_it_is_told_why_it_was_ended(node: Node, waiting: "subprocess.Popen[bytes]") -> None:
    waiting.kill()
    log, clock = node.folder / "log", FakeClock()
    add_failure(log, "pgbackrest info of yesterday")
    told = (node.folder / SOURCE_FILE).rename(node.folder / ARCHIVE_FILE).read_text()
    program = PgBackRest(NodePrograms(TaskProcesses(), node), told.rpartition("[")[2].partition("]")[0])

    def killed(begun: Running) -> None:
        add_failure(log, "role of somebody else")
        begun.send(signal.SIGKILL)

    def asked_to_end(begun: Running) -> None:
        add_failure(log, "pgbackrest archive-push of this moment")
        begun.send(signal.SIGTERM)

    def ended_by_the_cell(_begun: Running) -> None:
        looked_for(11, StillPrograms(clock), node, clock)

    ends = {
        killed: "it was ended by signal 9",
        asked_to_end: "it ended with 63",
        ended_by_the_cell: "FATAL: pgbackrest info has read and written nothing for 660 seconds",
    }
    with ThreadPoolExecutor(1) as pool:
        for end, why in ends.items():
            asked = pool.submit(program.backups)
            (begun,) = until_found(node)
            end(begun)
            with pytest.raises(TaskFailedError, match=f"^pgbackrest info: {why}"):
                asked.result(20)


def test_what_one_of_them_has_begun_is_looked_at_with_it(node: Node) -> None:
    """As a process of pgBackRest's that waits for the next file, while others read theirs."""
    file = f"--config={node.folder / SOURCE_FILE}"
    script = (
        'exec 3<&0; (exec -a pgbackrest sh -c "$1" sh "$2" restore) & while read -r line <&3; do :; done; kill -9 $!'
    )
    command = ["pgbackrest", "-c", script, "bash", "echo $$; kill -STOP $$", file, "restore"]
    clock = FakeClock()
    still = StillPrograms(clock)
    bash, pipe = shutil.which("bash"), subprocess.PIPE
    with subprocess.Popen(command, executable=bash, stdin=pipe, stdout=pipe, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        below = Running.of_pid(int(process.stdout.readline()))
        assert below is not None
        program = Running.of_pid(process.pid)
        assert program is not None
        for _ in range(3):
            looked_for(9, still, node, clock)
            before = program.transferred
            process.stdin.write(b"x\n")
            until(partial(has_changed, program, before), 20, lambda: "it has not read")
        assert below.is_alive
        process.stdin.close()
        process.wait(20)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has nodes of several users")
def test_what_another_user_calls_so_is_left(node: Node, waiting: "subprocess.Popen[bytes]") -> None:
    """Whoever has a cluster may call a process as another node's."""
    os.chown(node.folder / "home", 12_345, -1)
    clock = FakeClock()
    looked_for(11, StillPrograms(clock), node, clock)
    assert waiting.poll() is None


@pytest.mark.timeout(60)
def test_the_agent_of_a_cell_looks_at_what_works_for_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stop = FakeClock(), Event()
    with sleeping_agents(tmp_path, tmp_path / "cell") as agents:
        agent = agents(ordered_store("n1"), clock=clock)
        steps_until(agent, lambda: agent.nodes)
        thread = Thread(target=agent.run, args=(stop,))
        with reading(agent.nodes[0]) as process:

            def has_ended() -> bool:
                clock.advance(60)
                return process.poll() is not None

            def no_look(_name: str) -> Iterator[Running]:
                monkeypatch.undo()
                raise OSError(errno.EMFILE, "too many files are open")

            # A machine that has no more to give ends no agent: it looks again.
            monkeypatch.setattr(still_programs, "processes_of_program", no_look)
            thread.start()
            try:
                until(has_ended, 30, lambda: "it stands still")
            finally:
                stop.set()
                thread.join()
                process.kill()
