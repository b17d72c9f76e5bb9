"""Nodes whose Patroni ends by itself after long work: how that is counted and told. No PostgreSQL runs here."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyplan import Secret
from keyplan.apps.patroni import Credentials
from keyplan.apps.patroni.node_config import Gateway, NodePlan
from keyplan.apps.patroni.node_host import Host
from keyplan.apps.patroni.node_process import Node
from keyplan.testing.faults import FakeClock
from tests.servers.patroni import until

HOUR = 3_600
PLAN = NodePlan(
    instance="f1",
    node="n1",
    port=25432,
    rest_port=28008,
    superuser=Credentials(username="postgres", password=Secret("super-secret")),
    replication=Credentials(username="replicator", password=Secret("copy-secret")),
    rest=Credentials(username="admin", password=Secret("rest-secret")),
    gateway=Gateway("127.0.0.1:1"),
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def node(tmp_path: Path, clock: FakeClock) -> Iterator[Node]:
    """A node whose Patroni is a program that says why it ends, and ends when it is killed."""
    script = tmp_path / "bootstrap.py"
    script.write_text(
        "import signal, sys\n"
        "said = 'P00  ERROR: [049]: unable to connect to bucket', 'STATEMENT:  secret'\n"
        "print(*said, sep='\\n', file=sys.stderr, flush=True)\n"
        "signal.pause()\n"
    )
    node = Node(tmp_path / "n1", PLAN, Host(Path("/usr/bin"), sys.executable, script, ""), clock)
    node.prepare()
    yield node
    killed(node)


def killed(node: Node) -> None:
    node.kill()
    until(lambda: node.process is None, 30, lambda: "it has ended")


def fail(node: Node, clock: FakeClock) -> None:
    """Let it begin, be at work for an hour, and end by itself."""
    clock.advance(HOUR)
    node.keep()
    # Why by what has failed: the one before may have left another one that has begun already.
    until(lambda: (node.folder / "log").read_text().count("unable") > node.failures, 30, lambda: "it has begun")
    clock.advance(HOUR)
    node.keep()
    killed(node)
    node.keep()


def test_a_bootstrap_that_fails_after_an_hour_has_failed_and_the_reason_is_kept(node: Node, clock: FakeClock) -> None:
    assert (node.failures, node.failure) == (0, "")
    for count in (1, 2, 3):
        fail(node, clock)
        assert (node.failures, node.failure) == (count, "ERROR: [049]: unable to connect to bucket")


def test_an_agent_that_comes_after_another_counts_on(node: Node, clock: FakeClock) -> None:
    fail(node, clock)
    killed(node)
    next_node = Node(node.folder, PLAN, node.host, clock)
    assert (next_node.failures, next_node.failure) == (1, "ERROR: [049]: unable to connect to bucket")
    fail(next_node, clock)
    killed(next_node)
    assert Node(node.folder, PLAN, node.host, clock).failures == 2


def test_what_is_no_count_is_none(node: Node, clock: FakeClock) -> None:
    (node.folder / "failures").write_text("torn")
    assert Node(node.folder, PLAN, node.host, clock).failures == 0


def test_a_node_that_was_told_to_end_has_not_failed(node: Node) -> None:
    node.keep()
    until(node.end, 30, lambda: "it has ended")
    node.keep()
    assert (node.failures, node.process is None) == (0, False)


def test_only_postgresql_that_takes_connections_behind_its_recovery_makes_failures_forgotten(
    node: Node, clock: FakeClock
) -> None:
    fail(node, clock)
    clock.advance(HOUR)
    node.keep()
    data = node.folder / "home" / "data"
    data.mkdir(parents=True)
    command = ["postgres", "-c", "read line", str(data)]
    with subprocess.Popen(command, executable="/bin/sh", stdin=subprocess.PIPE) as postmaster:
        try:
            (data / "postmaster.pid").write_text("\n".join([str(postmaster.pid), *["x"] * 6, "standby"]))
            (data / "recovery.signal").touch()
            until(lambda: node.is_ready, 30, lambda: "it takes connections")
            clock.advance(HOUR)
            node.keep()
            assert node.failures == 1, "what replays a backup's log is a standby for hours, and may fail in the end"
            (data / "recovery.signal").unlink()
            node.keep()
            assert (node.failures, node.failure) == (0, "")
            assert Node(node.folder, PLAN, node.host, clock).failures == 0
        finally:
            postmaster.send_signal(signal.SIGKILL)
