"""What an operator has done with a running cluster: the steps that it comes to, and how each is made, also a second time."""

import re
from collections.abc import Callable

import pytest

from keyplan.apps.patroni import Cell, MemberKey, NodeKey, Operation, Step, patroni_rest
from keyplan.apps.patroni.actions import Action, ActionKind, Actions
from keyplan.apps.patroni.cli_actions import changes_of
from keyplan.apps.patroni.cluster_steps import is_changed
from keyplan.apps.patroni.patroni_rest import PatroniRefusedError
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


@pytest.mark.parametrize(
    ("kind", "given", "status", "problem"),
    [
        (ActionKind.SWITCHOVER, {"node": "b"}, 400, "b leads already"),
        (ActionKind.SWITCHOVER, {"node": "x"}, 400, "the instance has no node x; it has a, b, c"),
        (ActionKind.REINITIALISE, {"node": "b"}, 422, "b leads, and is what the others copy; switch over first"),
        (ActionKind.REINITIALISE, {}, 400, "no node (none is named)"),
        (ActionKind.MOVE, {"node": "a", "cell": "cell-a"}, 400, "a is on cell cell-a already"),
        (ActionKind.MOVE, {"node": "a", "cell": "cell-b"}, 422, "cell cell-b has a node of the instance already"),
        (ActionKind.MOVE, {"node": "a", "cell": "cell-x"}, 422, "no cell cell-x that is alive"),
        (ActionKind.CONFIGURE, {}, 400, "no change of the configuration is given"),
        (ActionKind.CONFIGURE, {"configuration": {"x": "y" * 65_536}}, 400, "at most 65536 are taken"),
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


def test_one_operation_goes_on_at_a_time_and_a_failed_action_leaves_the_instance_usable(cluster: PaperCluster) -> None:
    actions = Actions(cluster.store, SYSTEM_CLOCK)
    begun = actions.begin("f1", Action(kind=ActionKind.RESTART))
    with pytest.raises(RefusedError, match="another operation on this instance is in progress"):
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
