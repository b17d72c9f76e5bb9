"""The commands of `keyplan patroni` on a store with one cluster: what they print, and their exit codes."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from keyplan import Secret
from keyplan.apps.patroni import (
    Broker,
    EventKind,
    InstanceState,
    Member,
    MemberKey,
    NodeKey,
    NodeOrder,
    NodeReport,
    Operation,
    OrderKey,
    RegistrationKey,
)
from keyplan.apps.patroni.cli import app
from keyplan.apps.patroni.cluster_login import new_store_credentials
from keyplan.apps.patroni.events import EventLog
from keyplan.apps.patroni.records import FormerCluster
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from keyplan.store import open_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"lmdb:{tmp_path}/store.kv"
    with open_store(url) as store:
        broker, lease = Broker(store), store.lease(600, keep_alive=False)
        broker.instances.put("f1", InstanceState(instance_id="f1", plan_id="pair"))
        broker.allocations.put("f1", 33006)
        broker.next_port.advance_to(33007)
        broker.nodes.put(NodeKey("f1", "n1"), "c1")
        broker.leaders.put("f1", "n1", lease=lease)
        conn_url = "postgres://replicator:hidden@10.0.0.1:32768/postgres"
        member = Member(role="master", state="running", conn_url=Secret(conn_url), xlog_location=100)
        broker.members.put(MemberKey("f1", "n1"), member, lease=lease)
        broker.registrations.put(
            RegistrationKey("postgresql-patroni", "h", "cf-x", 5432), "10.0.0.1:32768", lease=lease
        )
        broker.allocations.put("gone", 33001)
    return url


def test_a_router_or_a_cell_starts_without_what_servers_and_log_ins_need() -> None:
    """Why: until it answers again a router's clients reach nobody, and importing is nearly all that it does before."""
    program = (
        "import sys, keyplan.apps.patroni.cli;"
        "heavy = 'keyplan.server starlette uvicorn prometheus_client httpx psycopg asyncio'.split();"
        "print([name for name in heavy if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_status_shows_leader_port_cell_and_no_password(url: str) -> None:
    ran = CliRunner().invoke(app, ["status", "--store", url])
    assert ran.exit_code == 0
    assert ran.stdout.splitlines()[0].split("\t") == [
        *("f1", "33006", "", "n1", "c1 (dead)", "leader", "running", "10.0.0.1:32768", "0", ""),
    ]
    assert "hidden" not in ran.stdout
    (cluster,) = json.loads(CliRunner().invoke(app, ["status", "f1", "--store", url, "--json"]).stdout)["clusters"]
    assert (cluster["leader"], cluster["port"], cluster["nodes"][0]["lag_bytes"]) == ("n1", 33006, 0)


@pytest.mark.parametrize(("noted", "version"), [("18", "18"), ("", "15")])
def test_status_shows_the_version_that_a_cluster_is_of_now(url: str, noted: str, version: str) -> None:
    with open_store(url) as store:
        broker = Broker(store)
        broker.instances.put(
            "f1", InstanceState(instance_id="f1", version=noted, former=FormerCluster(version="14", nodes={"n0": "c1"}))
        )
        report = NodeReport(instance="f1", state="running", version="15")
        broker.reports.put(OrderKey("c1", "n1"), report, lease=store.lease(600, keep_alive=False))
    ran = CliRunner().invoke(app, ["status", "f1", "--store", url])
    first, former = ran.stdout.splitlines()[:2]
    assert first.split("\t")[-1] == version, ran.stdout
    assert "its former cluster, of PostgreSQL 14, is halted" in former
    (cluster,) = json.loads(CliRunner().invoke(app, ["status", "f1", "--store", url, "--json"]).stdout)["clusters"]
    assert cluster["version"] == version


def test_status_of_nothing_says_so_beside_its_lines(url: str, tmp_path: Path) -> None:
    empty = f"lmdb:{tmp_path}/empty.kv"
    open_store(empty).close()
    for words, said in ((["f9", "--store", url], "no cluster f9"), (["--store", empty], "no clusters")):
        ran = CliRunner().invoke(app, ["status", *words])
        assert (ran.exit_code, ran.stdout) == (0, "")
        assert said in ran.stderr
        assert json.loads(CliRunner().invoke(app, ["status", *words, "--json"]).stdout) == {"clusters": []}


@pytest.mark.slow
def test_top_follows_the_store_in_a_narrow_terminal_and_leaves_it_as_it_was(url: str) -> None:
    near, far = pty.openpty()
    termios.tcsetwinsize(far, (10, 44))
    before = termios.tcgetattr(far)
    program = "from keyplan.cli.start import run; run()"
    command = [sys.executable, "-c", program, "patroni", "top", "--store", url]
    environment = {name: text for name, text in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    shown = subprocess.Popen(
        command, stdin=far, stdout=far, stderr=far, env={**environment, "TERM": "xterm"}, start_new_session=True
    )
    try:
        first = until_shown(near, "leader n1")
        assert "f1  port 33006" in first
        assert "10.0.0.1:32768" not in first, "the widest column goes where there is no room"
        with open_store(url) as store:
            Broker(store).allocations.put("f1", 33042)
        until_shown(near, "f1  port 33042")
        shown.send_signal(signal.SIGINT)
        last = until_shown(near, "\x1b[?1049l")
        assert shown.wait(30) == 130
        assert "\x1b[?25h" in last + until_quiet(near), "the cursor is shown again"
        assert termios.tcgetattr(far) == before
    finally:
        shown.kill()
        shown.wait()
        os.close(near)
        os.close(far)


def until_shown(terminal: int, text: str) -> str:
    """Read what a terminal shows until the text is there; return all that was read."""
    give_up, read = time.monotonic() + 60, ""
    while text not in read:
        assert time.monotonic() < give_up, read
        if select.select([terminal], [], [], 1.0)[0]:
            read += os.read(terminal, 65_536).decode()
    return read


def until_quiet(terminal: int) -> str:
    """Read what a terminal shows still, once nobody writes to it any more."""
    read = ""
    while select.select([terminal], [], [], 0)[0]:
        read += os.read(terminal, 65_536).decode()
    return read


def test_top_in_a_pipe_shows_clusters_once_as_text_or_json(url: str) -> None:
    ran = CliRunner().invoke(app, ["top", "--store", url])
    assert ran.exit_code == 0
    lines = ran.stdout.splitlines()
    assert lines[0].endswith("2 clusters  1 without leader")
    assert lines[1].split() == ["member", "role", "state", "TL", "lag", "cell", "address"]
    assert lines[2:4] == [
        "f1  port 33006  leader n1",
        "  n1      leader  running  -   0 B  c1 (dead)  10.0.0.1:32768",
    ]
    assert lines[4] == "gone  port 33001  no leader"
    ran = CliRunner().invoke(app, ["top", "f1", "--store", url, "--json"])
    (cluster,) = json.loads(ran.stdout)["clusters"]
    assert (cluster["instance"], cluster["nodes"][0]["timeline"], cluster["is_paused"]) == ("f1", None, False)
    assert "hidden" not in ran.stdout


def test_events_are_listed_and_followed_until_they_are_interrupted(url: str) -> None:
    def note(text: str) -> None:
        with open_store(url) as store:
            log = EventLog(store, SYSTEM_CLOCK)
            store.run(lambda binding: log.note(Broker(binding), "f1", EventKind.LEADER_CHANGED, text, member="n1"))

    note("n1 leads")
    ran = CliRunner().invoke(app, ["events", "f1", "--store", url])
    assert ran.stdout.split("\t")[1:] == ["f1", "leader-changed", "n1", "", "n1 leads\n"]
    assert CliRunner().invoke(app, ["events", "f", "--store", url]).stdout == ""
    program = "from keyplan.cli.start import run; run()"
    command = [sys.executable, "-c", program, "patroni", "events", "--follow", "--json", "--store", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as shown:
        assert shown.stdout is not None
        assert json.loads(shown.stdout.readline())["text"] == "n1 leads"
        note("n1 leads again")
        told = json.loads(shown.stdout.readline())
        assert (told["cluster"], told["what"], told["text"]) == ("f1", "leader-changed", "n1 leads again")
        shown.send_signal(signal.SIGINT)
        assert shown.wait(60) == 130


def test_doctor_finds_and_mends_a_lost_port(url: str) -> None:
    ran = CliRunner().invoke(app, ["doctor", "--store", url])
    assert ran.exit_code == 1
    assert "lost-port\tgone\t" in ran.stdout
    asked = CliRunner().invoke(app, ["doctor", "--mend", "--store", url])
    assert isinstance(asked.exception, InvalidInputError)
    assert "to be removed: lost-port gone: port 33001" in asked.stderr
    with open_store(url) as store:
        assert Broker(store).allocations.exists("gone")
    command = ["doctor", "--mend", "--yes", "--store", url, "--json"]
    mended = json.loads(CliRunner().invoke(app, command).stdout)["findings"]
    assert {fault["kind"]: fault["mended"] for fault in mended} == {"lost-port": True, "node-on-dead-cell": False}
    with open_store(url) as store:
        assert [instance for instance, _ in Broker(store).allocations.list()] == ["f1"]


def test_whose_tells_the_cluster_of_a_container_by_its_address(url: str) -> None:
    ran = CliRunner().invoke(app, ["whose", "--store", url])
    assert ran.stdout == "postgresql-patroni/h:cf-x:5432\t10.0.0.1:32768\tf1\tn1\taddress\n"


def test_a_node_that_nobody_ordered_is_discarded_on_request_and_no_other(url: str) -> None:
    key = OrderKey("c1", "lost")
    with open_store(url) as store:
        for node, state in (("lost", "unordered"), ("well", "running")):
            report = NodeReport(instance="f9", state=state)
            Broker(store).reports.put(OrderKey("c1", node), report, lease=store.lease(600, keep_alive=False))
    asked = CliRunner().invoke(app, ["discard", "c1", "lost", "--store", url])
    assert (asked.exit_code, "--yes" in asked.stdout) == (0, True)
    with open_store(url) as store:
        assert not Broker(store).orders.exists(key)
    for node in ("well", "nobody"):
        ran = CliRunner().invoke(app, ["discard", "c1", node, "--yes", "--store", url])
        assert isinstance(ran.exception, InvalidInputError)
    assert CliRunner().invoke(app, ["discard", "c1", "lost", "--yes", "--store", url]).exit_code == 0
    with open_store(url) as store:
        assert Broker(store).orders.require(key) == NodeOrder(instance="f9", remove=True)


def test_a_node_that_the_broker_counts_on_is_not_discarded(url: str) -> None:
    key = OrderKey("c1", "n9")
    with open_store(url) as store:
        report = NodeReport(instance="f9", state="unordered")
        Broker(store).reports.put(key, report, lease=store.lease(600, keep_alive=False))
        Broker(store).nodes.put(NodeKey("f9", "n9"), "c1")
    ran = CliRunner().invoke(app, ["discard", "c1", "n9", "--yes", "--store", url])
    assert isinstance(ran.exception, InvalidInputError)
    assert "the broker counts on it" in str(ran.exception)
    with open_store(url) as store:
        assert not Broker(store).orders.exists(key)


def test_a_rotation_is_planned_and_begun_and_left_to_a_broker(url: str) -> None:
    with open_store(url) as store:
        Broker(store).operations.put("f1", Operation(id="p", kind="provision", status="success"))
        state = Broker(store).instances.require("f1")
        state.store_credentials = new_store_credentials("f1")
        Broker(store).instances.put("f1", state)
    command = ["rotate", "f1", "--only", "token", "--keep-seconds", "60", "--store", url]
    planned = CliRunner().invoke(app, [*command, "--dry-run"])
    assert [line[:2] for line in planned.stdout.splitlines()] == ["1.", "2.", "3."]
    with open_store(url) as store:
        assert Broker(store).operations.require("f1").id == "p"
    begun = CliRunner().invoke(app, [*command, "--no-wait"])
    assert (begun.exit_code, begun.stdout) == (0, planned.stdout)
    assert "cell c1 is not alive: its nodes are told when it is back" in begun.stderr
    with open_store(url) as store:
        operation = Broker(store).operations.require("f1")
        assert (operation.kind, operation.status, operation.keep_seconds) == ("rotate", "in-progress", 60.0)
        assert Broker(store).instances.require("f1") != state, "it says that an operation is in progress"
        token = Broker(store).instances.require("f1").store_credentials.password.reveal()
        assert token == state.store_credentials.password.reveal(), "the broker makes another one, and no command"
    ran = CliRunner().invoke(app, ["rotate", "f2", "--store", url])
    assert isinstance(ran.exception, InvalidInputError)


@pytest.mark.parametrize("command", [["status", "nope"], ["top", "nope", "--once"], ["events", "nope"]])
def test_a_name_of_no_cluster_is_told(tmp_path: Path, command: list[str]) -> None:
    url = f"lmdb:{tmp_path / 'store'}"
    open_store(url).close()
    ran = CliRunner().invoke(app, [*command, "--store", url])
    assert "cluster nope" in ran.output
