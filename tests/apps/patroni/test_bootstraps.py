"""A bootstrap that hangs is told of, cancelled and begun again; what comes nearer is waited for, and what does not is not."""

from itertools import cycle
from threading import Timer

import pytest
from msgspec.structs import replace

from keyplan.apps.patroni import Cell, Member, MemberKey, NodeKey, NodeReport, Operation, OrderKey, Step
from keyplan.apps.patroni.diagnosis import FaultKind, diagnose
from keyplan.apps.patroni.mending import mend
from keyplan.apps.patroni.operation_progress import Waits
from keyplan.apps.patroni.records import Status
from tests.apps.patroni.paper_cluster import PaperCluster

HUNG = "the bootstrap hangs: whoever holds its key `initialize` is not at work, a, b, c wait for it"
WAIT = (Step(kind="wait_members"),)


@pytest.fixture
def cluster() -> PaperCluster:
    """Three nodes that wait: whoever took the key `initialize` died before there were data."""
    cluster = PaperCluster()
    cluster.broker.leaders.delete("f1")
    for name in ("a", "b", "c"):
        wait(cluster, name)
    cluster.broker.initializations.put("f1", "")
    cluster.waits = Waits(step_seconds_max=5, look_seconds=0.01, hang_seconds=0.05)
    return cluster


def wait(cluster: PaperCluster, name: str, state: str = "stopped") -> None:
    cluster.broker.members.put(MemberKey("f1", name), Member(role="replica", state=state), lease=cluster.lease)


def provisioned(cluster: PaperCluster) -> Operation:
    return cluster.carried_out(Operation(id="o", kind="provision", steps=list(WAIT)))


def come_to_be(cluster: PaperCluster) -> None:
    cluster.lead("a", 1)
    for name in ("b", "c"):
        cluster.follow(name, 1)


def hung(cluster: PaperCluster) -> list[str]:
    return [fault.text for fault in diagnose(cluster.store) if fault.kind is FaultKind.HUNG_BOOTSTRAP]


def test_a_bootstrap_that_hangs_is_cancelled_and_a_node_begins_anew(cluster: PaperCluster) -> None:
    def begin_anew() -> None:
        if not cluster.broker.initializations.exists("f1"):
            come_to_be(cluster)

    cluster.on_pause = begin_anew
    ended = provisioned(cluster)
    assert (ended.status, [step.kind for step in ended.steps]) == ("success", ["begin_again", "wait_members"])


def test_a_node_with_data_that_were_not_completed_is_made_anew(cluster: PaperCluster) -> None:
    """As Patroni leaves one whose gateway died in initdb: its PostgreSQL runs as a standby of nobody, for ever."""
    wait(cluster, "b", "running")
    (fault,) = [fault for fault in diagnose(cluster.store) if fault.kind is FaultKind.HUNG_BOOTSTRAP]
    assert (
        "a, c wait for it, and b runs with data that were not completed; where that lasts, stop its nodes" in fault.text
    )
    assert not mend(cluster.store, fault)
    for cell in ("cell-a", "cell-b", "cell-c"):
        cluster.broker.cells.put(cell, Cell(), lease=cluster.lease)
    new: list[str] = []

    def follow_orders() -> None:
        for key, order in list(cluster.broker.orders.list()):
            if order.remove:
                cluster.broker.orders.delete(key)
            elif not cluster.broker.reports.exists(key):
                assert not cluster.broker.initializations.exists("f1")
                new.append(key.node)
                cluster.broker.reports.put(key, NodeReport(instance="f1"), lease=cluster.lease)
                come_to_be(cluster)
                cluster.follow(key.node, 1)
                cluster.broker.members.delete(MemberKey("f1", "b"))

    cluster.on_pause = follow_orders
    ended = provisioned(cluster)
    assert ended.status == "success", ended.message
    assert [step.kind for step in ended.steps] == ["discard", "begin_again", "add", "wait_members"]
    assert sorted(key.node for key in cluster.broker.nodes.keys("f1")) == sorted(["a", "c", *new])


def test_what_members_say_makes_no_record_that_is_too_large(cluster: PaperCluster) -> None:
    for number in range(200):
        wait(cluster, f"{number:03}{'x' * 240}", "a new word")
    cluster.waits = Waits(step_seconds_max=0.02, look_seconds=0.01)
    ended = cluster.made(*WAIT)
    assert (ended.status, len(ended.message)) == ("failed", 1_000)


def test_what_hangs_again_and_again_fails_with_what_to_do(cluster: PaperCluster) -> None:
    def hang_again() -> None:
        if not cluster.broker.initializations.exists("f1"):
            cluster.broker.initializations.put("f1", "")

    cluster.on_pause = hang_again
    ended = provisioned(cluster)
    assert (ended.status, [step.tries for step in ended.steps]) == ("failed", [0, 0, 3])
    assert f"{HUNG}, time and again (3). Why stands in the logs of the nodes" in ended.message


@pytest.mark.parametrize(
    "state", ["initializing new cluster", "running custom bootstrap script", "starting", "a new word"]
)
def test_a_bootstrap_that_somebody_is_at_is_left_alone(cluster: PaperCluster, state: str) -> None:
    wait(cluster, "b", state)
    cluster.waits = Waits(step_seconds_max=0.2, look_seconds=0.01, hang_seconds=0.05)
    assert provisioned(cluster).status == "failed"
    assert cluster.broker.initializations.get("f1") == ""
    assert hung(cluster) == []


def test_a_bootstrap_whose_node_is_at_work_as_its_cell_says_is_left_alone(cluster: PaperCluster) -> None:
    """Its gateway is away: what its member says is of before, until its lease ends."""
    place = OrderKey("cell-b", "b")
    cluster.broker.reports.put(place, NodeReport(instance="f1", state="running"), lease=cluster.lease)
    cluster.waits = Waits(step_seconds_max=0.2, look_seconds=0.01, hang_seconds=0.05)
    assert provisioned(cluster).status == "failed"
    assert (cluster.broker.initializations.get("f1"), hung(cluster)) == ("", [])
    # Its PostgreSQL does not run yet: its data grow.
    sizes = list(range(1, 31))

    def grow() -> None:
        if not sizes:
            come_to_be(cluster)
            return
        report = NodeReport(instance="f1", data_bytes=sizes.pop(0))
        cluster.broker.reports.put(place, report, lease=cluster.lease)

    cluster.on_pause = grow
    cluster.waits = Waits(step_seconds_max=0.5, look_seconds=0.01, hang_seconds=0.2)
    ended = provisioned(cluster)
    assert (ended.status, [step.kind for step in ended.steps]) == ("success", ["wait_members"])
    assert cluster.broker.initializations.get("f1") == ""


def test_a_cluster_that_was_led_once_and_one_whose_nodes_do_not_reach_the_store_hang_in_no_bootstrap(
    cluster: PaperCluster,
) -> None:
    cluster.broker.statuses.put("f1", Status(optime=7))
    assert hung(cluster) == []
    cluster.broker.statuses.delete("f1")
    assert hung(cluster)
    for name in ("a", "b", "c"):
        cluster.broker.members.delete(MemberKey("f1", name))
    assert hung(cluster) == []
    cluster.waits = Waits(step_seconds_max=0.1, look_seconds=0.01, hang_seconds=0.02)
    assert "no node has reached its store through its gateway" in provisioned(cluster).message
    assert cluster.broker.initializations.get("f1") == ""


def test_the_doctor_tells_of_it_and_lets_a_node_begin_anew_when_it_is_asked_to(cluster: PaperCluster) -> None:
    (fault,) = [fault for fault in diagnose(cluster.store) if fault.kind is FaultKind.HUNG_BOOTSTRAP]
    assert fault.text == f"{HUNG}; where that lasts, `keyplan patroni doctor --mend` lets a node begin again"
    going_on = Operation(id="o", kind="provision")
    cluster.broker.operations.put("f1", going_on)
    assert not mend(cluster.store, fault, lasting_seconds=0.0), "the operation does so itself"
    cluster.broker.operations.put("f1", replace(going_on, status="failed"))
    assert mend(cluster.store, fault, lasting_seconds=0.0)
    assert not cluster.broker.initializations.exists("f1")
    cluster.broker.initializations.put("f1", "")
    work = Timer(0.1, wait, [cluster, "b", "initializing new cluster"])
    work.start()
    assert not mend(cluster.store, fault, lasting_seconds=60.0), "somebody was at work a moment later"
    work.join()
    come_to_be(cluster)
    assert not mend(cluster.store, fault)
    assert cluster.broker.initializations.exists("f1")


@pytest.mark.parametrize(("leader", "status"), [("c", "success"), ("b", "failed")])
def test_a_node_that_was_not_completed_goes_also_where_another_leads_by_then_and_never_while_it_leads(
    cluster: PaperCluster, leader: str, status: str
) -> None:
    cluster.lead(leader, 1)
    ended = cluster.made(Step(kind="discard", node="b"))
    assert (ended.status, cluster.removed()) == (status, ["b"] if status == "success" else [])
    assert [order.remove for _, order in cluster.broker.orders.list()] == [True] * (status == "success")


def test_data_that_nobody_has_any_more_keep_no_instance_that_is_being_made_from_beginning(
    cluster: PaperCluster,
) -> None:
    cluster.broker.initializations.put("f1", "7710453740755543520")
    assert "nobody has the data 7710453740755543520" in hung(cluster)[0]
    cluster.on_pause = lambda: None if cluster.broker.initializations.exists("f1") else come_to_be(cluster)
    assert provisioned(cluster).status == "success"


def test_a_node_that_dies_with_its_cell_while_its_cluster_is_made_is_replaced() -> None:
    cluster = PaperCluster()
    cluster.waits = Waits(step_seconds_max=5, look_seconds=0.01, hang_seconds=0.05)
    for cell in ("cell-a", "cell-b", "cell-d"):
        cluster.broker.cells.put(cell, Cell(), lease=cluster.lease)
    cluster.broker.members.delete(MemberKey("f1", "c"))

    def follow_orders() -> None:
        for key, order in list(cluster.broker.orders.list()):
            if not order.remove and not cluster.broker.reports.exists(key):
                cluster.broker.reports.put(key, NodeReport(instance="f1"), lease=cluster.lease)
                cluster.follow(key.node, 3)

    cluster.on_pause = follow_orders
    ended = provisioned(cluster)
    assert ended.status == "success", ended.message
    assert [step.kind for step in ended.steps] == ["remove", "add", "wait_members"]
    assert cluster.broker.orders.require(OrderKey("cell-c", "c")).remove
    assert cluster.removed() == ["c"]
    assert sorted(cell for _, cell in cluster.broker.nodes.list("f1")) == ["cell-a", "cell-b", "cell-d"]


def test_a_node_that_ends_by_itself_beside_another_leader_is_made_anew() -> None:
    """Two nodes have begun a cluster each, as where a gateway was away in initdb: one of them belongs to no cluster now."""
    cluster = PaperCluster()
    cluster.waits = Waits(step_seconds_max=5, look_seconds=0.01, hang_seconds=0.05)
    for cell in ("cell-a", "cell-b", "cell-c"):
        cluster.broker.cells.put(cell, Cell(), lease=cluster.lease)
    cluster.broker.members.delete(MemberKey("f1", "c"))
    states, there = cycle(["starting", "failed"]), {"c"}

    def end_again() -> None:
        for key, order in list(cluster.broker.orders.list()):
            if order.remove:
                there.discard(key.node)
                cluster.broker.orders.delete(key)
                cluster.broker.reports.delete(key)
            elif not cluster.broker.reports.exists(key):
                cluster.broker.reports.put(key, NodeReport(instance="f1"), lease=cluster.lease)
                cluster.follow(key.node, 3)
        for name in there:
            report = NodeReport(instance="f1", state=next(states), message="Patroni ends by itself")
            cluster.broker.reports.put(OrderKey(f"cell-{name}", name), report, lease=cluster.lease)

    cluster.on_pause = end_again
    ended = provisioned(cluster)
    assert (ended.status, ended.message) == ("success", "done")
    assert [step.kind for step in ended.steps] == ["remove", "add", "wait_members"]
    assert cluster.removed() == ["c"]


def test_a_node_whose_cell_is_away_and_that_follows_is_not_replaced() -> None:
    cluster = PaperCluster()
    assert [step.kind for step in provisioned(cluster).steps] == ["wait_members"]


# ---- progress -----------------------------------------------------------------------------------------------------------


def test_a_copy_is_waited_for_as_long_as_it_grows_and_no_longer() -> None:
    cluster = PaperCluster()
    wait(cluster, "a", "creating replica")
    cluster.waits = Waits(step_seconds_max=0.05, look_seconds=0.01)
    sizes = list(range(1, 31))

    def grow() -> None:
        report = NodeReport(instance="f1", data_bytes=sizes.pop(0) if sizes else 7)
        cluster.broker.reports.put(OrderKey("cell-a", "a"), report, lease=cluster.lease)
        if not sizes and is_done:
            cluster.follow("a", 3)

    cluster.on_pause, is_done = grow, True
    assert cluster.made(*WAIT).status == "success"
    assert not sizes, "it took longer than a step may take"
    # One that fails and begins anew, again and again, comes no nearer; nor do those that follow already.
    wait(cluster, "a", "creating replica")
    is_done = False
    assert cluster.made(*WAIT).message.endswith("a: it is creating replica")


# ---- a move that fails --------------------------------------------------------------------------------------------------

MOVE = (
    Step(kind="add", node="n", target="cell-d"),
    Step(kind="wait_members"),
    Step(kind="remove", node="a"),
    Step(kind="wait_members"),
)


def test_a_move_that_fails_takes_its_new_node_back_unless_the_old_one_goes_already() -> None:
    cluster = PaperCluster()
    cluster.broker.nodes.put(NodeKey("f1", "n"), "cell-d")
    ended = cluster.carried_out(Operation(id="m", kind="move", steps=list(MOVE), completed_steps=1))
    assert ended.status == "failed"
    assert ended.message.endswith("cell cell-d is not alive; the new node n is removed again from cell cell-d")
    assert not cluster.broker.nodes.exists(NodeKey("f1", "n"))
    assert cluster.broker.orders.require(OrderKey("cell-d", "n")).remove
    cluster.broker.nodes.put(NodeKey("f1", "n"), "cell-d")
    cluster.broker.orders.delete(OrderKey("cell-d", "n"))
    ended = cluster.carried_out(Operation(id="m", kind="move", steps=list(MOVE), completed_steps=2))
    assert ended.message.endswith("; the new node n stays on cell cell-d, and so does a unless its cell has removed it")
    assert cluster.broker.nodes.exists(NodeKey("f1", "n"))
    assert not cluster.broker.orders.exists(OrderKey("cell-d", "n"))
