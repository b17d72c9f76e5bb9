"""What an operator has done with a running cluster: the steps that it comes to, and how each is made, also a second time."""

import json
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from keyplan.apps.patroni import Cell, Credentials, Member, MemberKey, NodeKey, Operation, Step, patroni_rest
from keyplan.apps.patroni.actions import Action, ActionKind, Actions
from keyplan.apps.patroni.catalog import read_catalog
from keyplan.apps.patroni.cli_actions import changes_of
from keyplan.apps.patroni.cli_options_cells import NodeOptions
from keyplan.apps.patroni.cluster_steps import is_changed
from keyplan.apps.patroni.patroni_rest import PatroniRefusedError
from keyplan.apps.patroni.records import Sync
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from tests.apps.patroni.paper_cluster import PaperCluster

MADE = Operation(id="p", kind="provision", status="success")


@pytest.fixture
def cluster() -> PaperCluster:
    """`b` leads, `a` and `c` follow; their cells are alive, and a fourth."""
    cluster = PaperCluster()
    cluster.broker.operations.put("f1", MADE)
    state = cluster.broker.instances.require("f1")
    state.node_count = 3
    cluster.broker.instances.put("f1", state)
    for cell in ("cell-a", "cell-b", "cell-c", "cell-d"):
        cluster.broker.cells.put(cell, Cell(), lease=cluster.lease)
    return cluster


def planned(cluster: PaperCluster, kind: ActionKind, **given: object) -> list[tuple[str, str, str]]:
    action = Action(kind=kind, **given)  # type: ignore[arg-type]
    return [(each.kind, each.node, each.target) for each in Actions(cluster.store, SYSTEM_CLOCK).planned("f1", action)]


def test_the_leader_restarts_last_and_the_others_one_by_one(cluster: PaperCluster) -> None:
    assert [node for kind, node, _ in planned(cluster, ActionKind.RESTART) if kind == "restart"] == ["a", "c", "b"]
    assert planned(cluster, ActionKind.RESTART, node="a")[0] == ("restart", "a", "")


def test_a_leader_that_moves_hands_over_when_the_new_node_follows(cluster: PaperCluster) -> None:
    steps = planned(cluster, ActionKind.MOVE, node="b", cell="cell-d")
    assert [kind for kind, _, _ in steps] == ["add", "wait_members", "switch", "remove", "wait_members", "wait_leader"]
    assert steps[0][2] == "cell-d"
    assert "switch" not in [kind for kind, _, _ in planned(cluster, ActionKind.MOVE, node="a", cell="cell-d")]


def test_a_cluster_grows_and_shrinks_by_the_steps_of_an_update(cluster: PaperCluster) -> None:
    for count, kinds in (
        (4, ["add", "wait_members", "wait_leader"]),
        (2, ["remove", "wait_members", "wait_leader"]),
        (1, ["remove", "wait_members", "remove", "wait_members", "wait_leader"]),
    ):
        assert [kind for kind, _, _ in planned(cluster, ActionKind.SCALE, node_count=count)] == kinds
    with pytest.raises(RefusedError, match="nodes asked for: 5, available cells: 4"):
        planned(cluster, ActionKind.SCALE, node_count=5)
    shared = Actions(cluster.store, SYSTEM_CLOCK, may_share_cells=True)
    assert len(shared.planned("f1", Action(kind=ActionKind.SCALE, node_count=5))) == 4
    begun = Actions(cluster.store, SYSTEM_CLOCK).begin("f1", Action(kind=ActionKind.SCALE, node_count=2))
    cluster.broker.cells.delete("cell-a")  # nobody is there who would answer an order
    assert cluster.carried_out(begun).status == "success"
    assert cluster.removed() == ["a"], "a replica, and never the leader"
    state = cluster.broker.instances.require("f1")
    assert (state.node_count, state.parameters) == (2, {"node-count": 2})


@pytest.mark.parametrize(
    ("kind", "given", "status", "problem"),
    [
        (ActionKind.SCALE, {}, 400, "an instance has 1 to 64 nodes, and 0 were asked for"),
        (ActionKind.SCALE, {"node_count": 65}, 400, "an instance has 1 to 64 nodes"),
        (ActionKind.SCALE, {"node_count": 3}, 400, "the instance has 3 nodes already"),
        (ActionKind.SWITCHOVER, {"node": "b"}, 400, "b leads already"),
        (ActionKind.SWITCHOVER, {"node": "x"}, 400, "the instance has no node x; it has a, b, c"),
        (ActionKind.REINITIALISE, {"node": "b"}, 422, "b leads, and is what the others copy; switch over first"),
        (ActionKind.REINITIALISE, {}, 400, "no node (none is named)"),
        (ActionKind.MOVE, {"node": "a", "cell": "cell-a"}, 400, "a is on cell cell-a already"),
        (ActionKind.MOVE, {"node": "a", "cell": "cell-b"}, 422, "cell cell-b has a node of the instance already"),
        (ActionKind.MOVE, {"node": "a", "cell": "cell-x"}, 422, "no cell cell-x that is alive"),
        (ActionKind.CONFIGURE, {}, 400, "no change of the configuration is given"),
        (ActionKind.CONFIGURE, {"configuration": {"slots": {"x": "y" * 65_536}}}, 400, "at most 65536 are taken"),
        (ActionKind.CONFIGURE, {"configuration": changes_of(["a." * 5000 + "a=1"])}, 400, "more than 8 levels"),
        (ActionKind.CONFIGURE, {"configuration": {"ttl": "abc"}}, 400, "ttl is a whole number, at least 20"),
        (ActionKind.CONFIGURE, {"configuration": {"ttl": 1}}, 400, "ttl is a whole number, at least 20"),
        (ActionKind.CONFIGURE, {"configuration": {"ttl": "9" * 30}}, 400, "ttl is a whole number"),
        (ActionKind.CONFIGURE, {"configuration": {"loop_wait": True}}, 400, "loop_wait is a whole number, at least 1"),
        (ActionKind.CONFIGURE, {"configuration": {"synchronous_mode": [1]}}, 400, "synchronous_mode is true or false"),
        (ActionKind.CONFIGURE, {"configuration": {"postgresql": 5}}, 400, "postgresql is an object of settings"),
        (ActionKind.CONFIGURE, {"configuration": {"postgresql": {"parameters": 5}}}, 400, "parameters is an object"),
        (ActionKind.CONFIGURE, {"configuration": {"max_connections": 5}}, 400, "no setting max_connections"),
    ],
)
def test_what_cannot_be_is_refused_with_words_and_nothing_is_begun(
    cluster: PaperCluster, kind: ActionKind, given: dict[str, object], status: int, problem: str
) -> None:
    revision = cluster.store.revision
    with pytest.raises(RefusedError, match=re.escape(problem)) as refused:
        Actions(cluster.store, SYSTEM_CLOCK).begin("f1", Action(kind=kind, **given))  # type: ignore[arg-type]
    assert refused.value.status == status
    assert cluster.store.revision == revision


def test_a_replica_that_does_not_follow_cannot_be_asked_to_lead(cluster: PaperCluster) -> None:
    cluster.follow("a", 2, state=None)
    with pytest.raises(RefusedError, match="a cannot lead now: it runs, and does not stream from the leader b"):
        planned(cluster, ActionKind.SWITCHOVER, node="a")


def test_what_patroni_would_refuse_all_the_time_is_not_begun(cluster: PaperCluster) -> None:
    cluster.broker.configurations.put("f1", {"pause": "on"})
    for kind, given in ((ActionKind.SWITCHOVER, {}), (ActionKind.MOVE, {"node": "b", "cell": "cell-d"})):
        with pytest.raises(RefusedError, match="the cluster is paused"):
            planned(cluster, kind, **given)
    assert planned(cluster, ActionKind.SWITCHOVER, node="a")
    cluster.broker.configurations.put("f1", {"synchronous_mode": True})
    cluster.broker.syncs.put("f1", Sync(leader="b", sync_standby="c"))
    with pytest.raises(RefusedError, match="a is not synchronous, and could lack writes; c is"):
        planned(cluster, ActionKind.SWITCHOVER, node="a")
    assert planned(cluster, ActionKind.SWITCHOVER, node="c")


def test_a_switch_is_off_that_patroni_reads_as_off_and_null_takes_away_what_nobody_knows(cluster: PaperCluster) -> None:
    for value, target in (("off", "off"), ("No", "off"), (0, "off"), ("ON", "on"), (1, "on"), (None, "off")):
        assert planned(cluster, ActionKind.CONFIGURE, configuration={"pause": value})[1] == ("wait_pause", "", target)
    assert planned(cluster, ActionKind.CONFIGURE, configuration={"ttll": None, "postgresql": None})


def test_one_operation_goes_on_at_a_time_and_a_failed_action_leaves_the_instance_usable(cluster: PaperCluster) -> None:
    actions = Actions(cluster.store, SYSTEM_CLOCK)
    begun = actions.begin("f1", Action(kind=ActionKind.RESTART))
    with pytest.raises(
        RefusedError,
        match=r"another operation on this instance is in progress: [a-z]+, .*; ask again when it has ended",
    ):
        actions.begin("f1", Action(kind=ActionKind.RESTART))
    begun.status = "failed"
    cluster.broker.operations.put("f1", begun)
    assert actions.begin("f1", Action(kind=ActionKind.SWITCHOVER)).kind == "switchover"
    for gone in (
        Operation(id="d", kind="deprovision", status="failed"),
        Operation(id="q", kind="provision", status="failed"),
    ):
        cluster.broker.operations.put("f1", gone)
        with pytest.raises(RefusedError, match="not usable"):
            actions.begin("f1", Action(kind=ActionKind.RESTART))


def test_an_action_changes_nothing_of_what_the_instance_is_to_be(cluster: PaperCluster) -> None:
    state = cluster.broker.instances.require("f1")
    state.plan_id, state.node_count, state.cells, state.parameters = "pair", 3, ["cell-a"], {"node-count": 3}
    cluster.broker.instances.put("f1", state)
    begun = Actions(cluster.store, SYSTEM_CLOCK).begin("f1", Action(kind=ActionKind.SWITCHOVER))
    begun.steps = [Step(kind="wait_leader")]
    assert cluster.carried_out(begun).status == "success"
    after = cluster.broker.instances.require("f1")
    assert (after.plan_id, after.node_count, after.cells, after.parameters) == (
        "pair",
        3,
        ["cell-a"],
        {"node-count": 3},
    )


# ---- the steps -----------------------------------------------------------------------------------------------------------


class Starts:
    """When PostgreSQL of each member was started, and who was asked for another start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.asked = 0
        self.now = "monday"
        self.on_asked: Callable[[], None] = self.start
        monkeypatch.setattr(patroni_rest, "started_at", lambda _member: self.now)
        monkeypatch.setattr(patroni_rest, name, self.ask)

    def ask(self, *_given: object) -> None:
        self.asked += 1
        self.on_asked()

    def start(self) -> None:
        self.now = f"start {self.asked}"


@pytest.mark.parametrize("name", ["restart", "reinitialise"])
def test_a_member_is_asked_until_it_was_started_anew_and_not_again(
    cluster: PaperCluster, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    starts = Starts(monkeypatch, name)
    ended = cluster.made(Step(kind=name, node="a"))
    assert (ended.status, starts.asked, ended.steps[0].mark) == ("success", 1, "monday")
    # A broker that died after it had asked: whoever goes on finds it done.
    assert cluster.made(Step(kind=name, node="a", mark="monday")).status == "success"
    assert starts.asked == 1
    # It had not asked yet, or the member is down: it is asked.
    assert cluster.made(Step(kind=name, node="a", mark="start 1")).status == "success"
    starts.now = ""
    assert cluster.made(Step(kind=name, node="a")).steps[0].mark == "-"
    assert starts.asked == 3


@pytest.mark.parametrize("name", ["restart", "reinitialise"])
def test_a_member_that_took_it_on_is_not_asked_again_while_it_copies_or_starts(
    cluster: PaperCluster, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    starts = Starts(monkeypatch, name)
    starts.on_asked = lambda: setattr(starts, "now", "")
    ended = cluster.made(Step(kind=name, node="a"))
    assert (starts.asked, ended.steps[0].is_asked) == (1, True)
    assert ended.message.endswith("a: PostgreSQL does not run")
    # Nor by the broker that goes on with it.
    assert cluster.made(ended.steps[0]).status == "failed"
    assert starts.asked == 1


class Busy(BaseHTTPRequestHandler):
    """Patroni's REST API at a member that is at something else already; without `force` it says so."""

    task: ClassVar[str]
    bodies: ClassVar[list[dict[str, object]]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append(body)
        self.send_response(200 if body.get("force") else 503)
        self.end_headers()
        self.wfile.write(b"reinitialize started" if body.get("force") else f"{self.task} already in progress".encode())

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


def test_a_copy_that_is_made_already_is_not_cancelled_for_another_one_and_what_else_is_done_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Members are asked through no proxy: it would get their passwords.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    Busy.bodies = []
    with HTTPServer(("127.0.0.1", 0), Busy) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        member = Member(api_url=f"http://127.0.0.1:{server.server_port}/patroni")
        for task in ("reinitialize", "restarting after failure"):
            Busy.task = task
            patroni_rest.reinitialise(member, Credentials())
        server.shutdown()
    assert Busy.bodies == [{}, {}, {"force": True}]


def test_a_restart_that_does_not_come_fails_with_what_is_wrong(
    cluster: PaperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(monkeypatch, "restart")
    starts.on_asked = lambda: None
    assert cluster.made(Step(kind="restart", node="a")).message.endswith("a: PostgreSQL was not started anew")

    def refuse(*_given: object) -> None:
        raise PatroniRefusedError("503 no")

    monkeypatch.setattr(patroni_rest, "restart", refuse)
    assert cluster.made(Step(kind="restart", node="a")).message.endswith("a refuses: 503 no")


def test_a_node_that_has_come_to_lead_is_not_copied_anew(
    cluster: PaperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(monkeypatch, "reinitialise")
    ended = cluster.made(Step(kind="reinitialise", node="b"))
    assert (ended.status, starts.asked) == ("failed", 0)


def test_a_switchover_to_a_node_fails_when_another_has_come_to_lead(
    cluster: PaperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def switch_over(_member: object, leader: str, _log_in: object, candidate: str) -> None:
        asked.append(f"{leader} to {candidate}")
        cluster.lead("c", 4)

    monkeypatch.setattr(patroni_rest, "switch_over", switch_over)
    ended = cluster.made(Step(kind="switch", node="b", target="a"))
    assert (ended.status, asked) == ("failed", ["b to a"])
    assert ended.message.endswith("c has come to lead, and not a; ask for it again")
    assert cluster.made(Step(kind="switch", node="b", target="c")).status == "success"


def test_a_configuration_is_changed_once_and_waited_for(cluster: PaperCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def configure(_member: object, _log_in: object, changes: object) -> None:
        asked.append(changes)
        cluster.broker.configurations.put("f1", {"ttl": "30", "postgresql": {"parameters": {"work_mem": "8MB"}}})

    monkeypatch.setattr(patroni_rest, "configure", configure)
    changes = {"ttl": 30, "postgresql": {"parameters": {"work_mem": "8MB"}}, "pause": None}
    for _ in range(2):
        operation = Operation(id="c", kind="configure", steps=[Step(kind="configure")], configuration=changes)
        assert cluster.carried_out(operation).status == "success"
    assert asked == [changes]


def test_pause_and_synchronous_replication_are_waited_for_in_what_patroni_writes(cluster: PaperCluster) -> None:
    on, off = Step(kind="wait_pause", target="on"), Step(kind="wait_pause", target="off")
    assert cluster.made(off).status == "success"
    assert cluster.made(on).message.endswith("not heard of it yet: a, b, c")
    for key, member in cluster.broker.members.list("f1"):
        member.unknown["pause"] = True
        cluster.broker.members.put(MemberKey("f1", key.member), member, lease=cluster.lease)
    assert cluster.made(on).status == "success"
    assert cluster.made(Step(kind="wait_synchronous", target="on")).message.endswith("no replica is synchronous yet")
    assert cluster.made(Step(kind="wait_synchronous", target="off")).status == "success"


def test_a_node_that_is_added_for_a_move_is_asked_of_that_cell_alone(cluster: PaperCluster) -> None:
    cluster.broker.cells.delete("cell-d")
    ended = cluster.made(Step(kind="add", node="n", target="cell-d"))
    assert ended.status == "failed"
    assert not cluster.broker.nodes.exists(NodeKey("f1", "n"))


@pytest.mark.parametrize(
    ("found", "changes", "expected"),
    [
        ({"a": 1}, {"a": "1"}, True),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"a": None}, True),
        ({"a": 1}, {"a": None}, False),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True),
        ({"a": 1}, {"a": {"b": 1}}, False),
        ({}, {"a": {"b": None}}, True),
        ({"a": {"b": None}}, {"a": {"b": None}}, True),
        ({}, {"a": {"b": 1}}, False),
    ],
)
def test_whether_a_configuration_is_what_changes_make_of_it(
    found: dict[str, object], changes: dict[str, object], *, expected: bool
) -> None:
    assert is_changed(found, changes) is expected


def test_changes_are_read_as_json_or_text_with_dots_between_names() -> None:
    given = ["ttl=30", "postgresql.parameters.work_mem=8MB", "postgresql.use_slots=true", "pause=null"]
    assert changes_of(given) == {
        "ttl": 30,
        "postgresql": {"parameters": {"work_mem": "8MB"}, "use_slots": True},
        "pause": None,
    }
    for text, problem in (
        ("x", "NAME=VALUE"),
        ("a..b=1", "NAME=VALUE"),
        ("ttl=1", "twice"),
        ("ttl.x=1", "settings below"),
    ):
        with pytest.raises(InvalidInputError, match=problem):
            changes_of(["ttl=2", text])


@pytest.mark.parametrize(
    ("patroni", "problem"),
    [({"ttl": "abc"}, "ttl is a whole number"), ({"max_connections": 5}, "no setting max_connections")],
)
def test_plans_and_options_of_cells_are_checked_as_changes_are(
    tmp_path: Path, patroni: dict[str, object], problem: str
) -> None:
    plan = {"id": "p", "name": "p", "description": "", "patroni": patroni}
    catalog = tmp_path / "catalog.json"
    catalog.write_text(json.dumps({"services": [{"id": "s", "name": "s", "description": "", "plans": [plan]}]}))
    with pytest.raises(InvalidInputError, match=problem):
        read_catalog(catalog)
    ((name, value),) = patroni.items()
    with pytest.raises(InvalidInputError, match=problem):
        _ = NodeOptions(patroni=[f"{name}={value}"]).dynamic
    assert NodeOptions(patroni=["loop_wait=1", "synchronous_mode=true"]).dynamic == {
        "loop_wait": 1,
        "synchronous_mode": True,
    }
