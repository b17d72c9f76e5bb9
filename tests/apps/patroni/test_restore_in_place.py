"""Restores in place, on paper: how they begin, are undone, gone on with, and become final."""

from datetime import UTC, datetime

import pytest

from keyplan.apps.patroni import InstanceState, NodeKey, NodeOrder, NodeReport, Operation, OrderKey, Step
from keyplan.apps.patroni.backups.plans import BackupPlans
from keyplan.apps.patroni.backups.restore_plans import RestorePlans
from keyplan.apps.patroni.clusters import clusters
from keyplan.apps.patroni.diagnosis import diagnose
from keyplan.apps.patroni.layout import OUTSIDE
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.engine import SYSTEM_CLOCK
from tests.apps.patroni.archived import ARCHIVE, archived, backup, cells_alive, made_cluster, words
from tests.apps.patroni.halting_cells import AT_POSTGRESQL, PLACES, HaltingCells, ordered
from tests.apps.patroni.paper_cluster import PaperCluster


@pytest.fixture
def cluster() -> PaperCluster:
    found = made_cluster()
    cells_alive(found)
    return found


# ---- how it begins ------------------------------------------------------------------------------------------------------


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_a_restore_in_place_halts_what_is_there_and_makes_others_on_the_same_cells(cluster: PaperCluster) -> None:
    archived(cluster, backup("x", 100))
    ordered(cluster)
    plans = RestorePlans(cluster.store, SYSTEM_CLOCK)
    assert words(plans.restore("f1", at(200), is_trial=True)) == [
        *("flush f1", "halt", "lay_aside", "add cell-a", "add cell-b", "add cell-c", "wait_recovered", "wait_members"),
        *("wait_leader", "end_logins superuser,replication,rewind", "settle_bindings", "renew_data", "back_up full"),
    ]
    assert cluster.broker.operations.require("f1").kind == "provision"
    begun = plans.restore("f1", at(200))
    assert begun.recovery is not None
    assert (begun.recovery.label, begun.recovery.archive, begun.recovery.target) == (
        *("x", ARCHIVE),
        "1970-01-01 00:03:20.000000+00",
    )
    assert begun.archive is not None
    assert begun.archive.stanza != ARCHIVE.stanza


@pytest.mark.parametrize(
    ("problem", "match"),
    [
        ("future", "is yet to come"),
        ("paused", "the cluster is paused"),
        ("standby", "it is a standby of another cluster"),
        ("outside", "no cell runs a, and halts it"),
        ("away", "cell cell-a is not alive"),
        ("early", "the oldest backup ended at"),
        ("gone", "no such instance"),
    ],
)
def test_what_cannot_be_restored_in_place_is_refused_and_nothing_is_halted(
    cluster: PaperCluster, problem: str, match: str
) -> None:
    archived(cluster, backup("x", 100))
    ordered(cluster)
    if problem == "outside":
        cluster.broker.nodes.put(NodeKey("f1", "a"), OUTSIDE)
    elif problem == "away":
        cluster.broker.cells.delete("cell-a")
    elif problem in {"paused", "standby"}:
        configuration = {"pause": True} if problem == "paused" else {"standby_cluster": {"host": "h"}}
        cluster.broker.configurations.put("f1", configuration)
    target = {"future": SYSTEM_CLOCK.wall() + 60, "early": 50.0}.get(problem, 200.0)
    with pytest.raises(RefusedError, match=match):
        RestorePlans(cluster.store, SYSTEM_CLOCK).restore("f9" if problem == "gone" else "f1", at(target))
    assert [order.halted for _, order in cluster.broker.orders.list()] == [False] * 3


# ---- what is done -------------------------------------------------------------------------------------------------------


def begun(cluster: PaperCluster, *kinds: str) -> Operation:
    """A restore in place, with the steps of these kinds alone."""
    found = RestorePlans(cluster.store, SYSTEM_CLOCK).restore("f1", at(200))
    found.steps = [step for step in found.steps if step.kind in kinds]
    return found


def laid_aside(cluster: PaperCluster) -> HaltingCells:
    archived(cluster, backup("x", 100))
    ordered(cluster)
    cells = HaltingCells(cluster)
    cluster.on_pause = cells
    ended = cluster.carried_out(begun(cluster, "halt", "lay_aside", "add"))
    assert ended.status == "success", ended.message
    return cells


def test_the_leader_is_halted_last_and_what_was_there_is_kept_as_the_former_cluster(cluster: PaperCluster) -> None:
    cells = laid_aside(cluster)
    broker = cluster.broker
    assert cells.halted == ["a", "c", "b"]
    state = broker.instances.require("f1")
    assert state.former is not None
    assert (state.former.nodes, state.former.leader) == ({node: f"cell-{node}" for node in "abc"}, "b")
    assert (state.former.system, state.former.configuration) == ("7710", {"ttl": 33})
    assert state.former.superuser_credentials.username == "postgres_2"
    assert state.superuser_credentials.username == "postgres"
    assert (state.rewind_credentials.username, state.former.archive) == ("", ARCHIVE)
    assert state.archive != ARCHIVE
    # The new ones are told so, and are on the same cells.
    placed = {key.node: cell for key, cell in broker.nodes.list("f1")}
    assert sorted(placed.values()) == ["cell-a", "cell-b", "cell-c"]
    for node, cell in placed.items():
        order = broker.orders.require(OrderKey(cell, node))
        assert (order.halted, order.archive, order.superuser.username) == (False, state.archive, "postgres")
        assert order.recovery is not None
        assert order.recovery.label == "x"
    assert [broker.orders.require(place).halted for place in PLACES] == [True] * 3
    assert not broker.initializations.exists("f1")
    assert list(broker.members.keys("f1")) == []
    assert [fault.kind.value for fault in diagnose(cluster.store) if "order" in fault.kind] == []
    (view,) = clusters(broker)
    assert "a on cell-a, b on cell-b, c on cell-c; `restore --back` returns to it" in view.former
    with pytest.raises(RefusedError, match="its former cluster is there still"):
        RestorePlans(cluster.store, SYSTEM_CLOCK).restore("f1", at(200))


def test_where_a_node_cannot_be_halted_all_go_on(cluster: PaperCluster) -> None:
    archived(cluster, backup("x", 100))
    ordered(cluster)
    cluster.on_pause = HaltingCells(cluster, stubborn="c")
    ended = cluster.carried_out(begun(cluster, "halt", "lay_aside"))
    assert (ended.status, ended.message.endswith("c is not halted: running")) == ("failed", True)
    assert [broker_order.halted for _, broker_order in cluster.broker.orders.list()] == [False] * 3
    assert cluster.broker.leaders.get("f1") == "b"
    assert cluster.broker.instances.require("f1").former is None


def test_a_restore_that_fails_before_anybody_leads_is_undone(cluster: PaperCluster) -> None:
    archived(cluster, backup("x", 100))
    ordered(cluster)
    cells = HaltingCells(cluster, refuses=True)

    def lead() -> None:
        cells()
        if not cluster.broker.orders.require(PLACES[1]).halted and cells.halted:
            cluster.lead("b", 4)
            for node in ("a", "c"):
                cluster.follow(node, 4)

    cluster.on_pause = lead
    ended = cluster.carried_out(begun(cluster, "halt", "lay_aside", "add", "wait_recovered"))
    assert ended.status == "failed"
    assert "no cell takes the node" in ended.message
    assert ended.message.endswith("; the former cluster goes on")
    broker = cluster.broker
    state = broker.instances.require("f1")
    assert (state.former, state.archive, state.recovery) == (None, ARCHIVE, None)
    assert (state.superuser_credentials.username, state.superuser_credentials.password.reveal()) == (
        "postgres_2",
        "second",
    )
    assert {key.node: cell for key, cell in broker.nodes.list("f1")} == {node: f"cell-{node}" for node in "abc"}
    assert [(place, order.halted) for place, order in broker.orders.list()] == [(place, False) for place in PLACES]
    assert (broker.initializations.get("f1"), broker.configurations.get("f1")) == ("7710", {"ttl": 33})
    # Nothing is left of an archive that nobody wrote to, and the former one has gone on.
    (book,) = (book for _, book in broker.backup_books.list("f1"))
    assert [bool(span.until) for span in book.spans] == [True, False]


@pytest.mark.parametrize("also_third", [True, False])
def test_a_restore_that_one_node_after_the_other_fails_at_is_undone_and_says_why(
    cluster: PaperCluster, *, also_third: bool
) -> None:
    """Each is at work for long, and waits for its next turn when another one fails: they never fail at one moment."""
    archived(cluster, backup("x", 100))
    ordered(cluster)
    cells, broker, pauses = HaltingCells(cluster), cluster.broker, 0

    def live() -> None:
        nonlocal pauses
        cells()
        found = broker.operations.require("f1")
        if found.steps[found.completed_steps].kind == "wait_recovered":
            pauses += 1
            nodes = [OrderKey(cell, key.node) for key, cell in broker.nodes.list("f1")]
            for place in nodes[: min(pauses, 3 if also_third else 2)]:
                said = NodeReport(instance="f1", failures=1, message="Patroni ends by itself; FATAL:  it is torn")
                broker.reports.put(place, said, lease=cluster.lease)
            if pauses > 5:
                RestorePlans(cluster.store, SYSTEM_CLOCK).go_back("f1")
        if not broker.orders.require(PLACES[1]).halted and cells.halted:
            cluster.lead("b", 4)
            for node in ("a", "c"):
                cluster.follow(node, 4)

    cluster.on_pause = live
    ended = cluster.carried_out(begun(cluster, "halt", "lay_aside", "add", "wait_recovered"))
    assert ended.status == "failed"
    assert ended.message.endswith("; the former cluster goes on")
    assert ended.message.count("FATAL:  it is torn") == (3 if also_third else 0), ended.message
    assert ("it was called off" in ended.message) is not also_third, "the third is at work still"
    assert [order.halted for _, order in broker.orders.list()] == [False] * 3


def test_a_restore_that_does_not_come_to_an_end_is_called_off_and_undone(cluster: PaperCluster) -> None:
    archived(cluster, backup("x", 100))
    ordered(cluster)
    cells, plans = HaltingCells(cluster), RestorePlans(cluster.store, SYSTEM_CLOCK)
    operation = begun(cluster, "halt", "lay_aside", "add", "wait_recovered")

    def lead() -> None:
        cells()
        found = cluster.broker.operations.require("f1")
        if found.steps[found.completed_steps].kind == "wait_recovered" and not found.is_called_off:
            assert plans.go_back("f1").id == operation.id
        if not cluster.broker.orders.require(PLACES[1]).halted and cells.halted:
            cluster.lead("b", 4)
            for node in ("a", "c"):
                cluster.follow(node, 4)

    cluster.on_pause = lead
    ended = cluster.carried_out(operation)
    assert ended.message.endswith("it was called off; the former cluster goes on")
    assert [(place, order.halted) for place, order in cluster.broker.orders.list()] == [
        (place, False) for place in PLACES
    ]
    assert cluster.broker.instances.require("f1").former is None


def test_a_restore_whose_cluster_leads_already_is_not_called_off_and_whoever_asks_is_told(
    cluster: PaperCluster,
) -> None:
    archived(cluster, backup("x", 100))
    ordered(cluster)
    plans = RestorePlans(cluster.store, SYSTEM_CLOCK)
    operation = begun(cluster, "wait_recovered", "wait_members", "back_up")
    operation.completed_steps = 1
    cluster.broker.operations.put("f1", operation)
    with pytest.raises(RefusedError, match="the restored cluster leads already: wait until the restore has ended"):
        plans.go_back("f1")
    assert not cluster.broker.operations.require("f1").is_called_off
    # Who was a moment faster than the step is not forgotten: it fails, and does not go on to its end.
    operation.completed_steps, operation.is_called_off = 0, True
    ended = cluster.carried_out(operation)
    assert (ended.status, ended.message.endswith("it was called off")) == ("failed", True)


def test_a_way_back_that_has_failed_is_gone_on_with(cluster: PaperCluster) -> None:
    cells = laid_aside(cluster)
    plans = RestorePlans(cluster.store, SYSTEM_CLOCK)
    back = plans.go_back("f1")
    assert cluster.carried_out(back).message.endswith("the cluster has no leader")
    assert cells.halted[-1] not in {"a", "b", "c"}
    state = cluster.broker.instances.require("f1")
    state.former = None
    cluster.broker.instances.put("f1", state)
    with pytest.raises(RefusedError, match="a way back has not come to its end"):
        plans.restore("f1", at(200))
    assert words(plans.go_back("f1"))[:3] == ["resume", "wait_leader", "wait_members"]


def test_the_former_cluster_comes_back_with_its_leader_first_and_the_other_is_the_former_then(
    cluster: PaperCluster,
) -> None:
    cells = laid_aside(cluster)
    broker, plans = cluster.broker, RestorePlans(cluster.store, SYSTEM_CLOCK)
    latter = {key.node: cell for key, cell in broker.nodes.list("f1")}
    first: list[str] = []

    def lead() -> None:
        cells()
        runs = [place.node for place in PLACES if not broker.orders.require(place).halted]
        if runs and not first:
            first.extend(runs)
            cluster.lead("b", 4)
            for node in ("a", "c"):
                cluster.follow(node, 4)

    cluster.on_pause = lead
    back = plans.go_back("f1")
    back.steps = [step for step in back.steps if step.kind not in AT_POSTGRESQL]
    ended = cluster.carried_out(back)
    assert ended.status == "success", ended.message
    assert first == ["b"]
    state = broker.instances.require("f1")
    assert state.former is not None
    assert state.former.nodes == latter
    assert state.archive == ARCHIVE
    assert {key.node for key, _ in broker.nodes.list("f1")} == {"a", "b", "c"}
    assert all(broker.orders.require(OrderKey(cell, node)).halted for node, cell in latter.items())
    assert not any(broker.orders.require(place).halted for place in PLACES)
    # What was restored goes with its data, when somebody says so.
    ended = cluster.carried_out(plans.finish("f1"))
    assert ended.status == "success", ended.message
    assert broker.instances.require("f1").former is None
    assert [place for place, _ in broker.orders.list()] == PLACES
    with pytest.raises(RefusedError, match="it has no former cluster"):
        plans.go_back("f1")


def test_there_is_no_way_back_once_the_removal_of_the_former_cluster_has_begun(cluster: PaperCluster) -> None:
    laid_aside(cluster)
    place = PLACES[0]
    for order in (NodeOrder(instance="f1", remove=True), None):
        if order is None:
            cluster.broker.orders.delete(place)
        else:
            cluster.broker.orders.put(place, order)
        with pytest.raises(RefusedError, match="the removal of a has begun"):
            RestorePlans(cluster.store, SYSTEM_CLOCK).go_back("f1")
        ended = cluster.made(Step(kind="change_places"))
        assert (ended.status, "a of the former cluster is not there any more" in ended.message) == ("failed", True)


def test_nothing_is_removed_before_the_restored_cluster_leads_and_is_backed_up(cluster: PaperCluster) -> None:
    laid_aside(cluster)
    plans = RestorePlans(cluster.store, SYSTEM_CLOCK)
    with pytest.raises(RefusedError, match="nobody leads the cluster now"):
        plans.finish("f1")
    cluster.lead("n", 2)
    with pytest.raises(RefusedError, match="there is no backup of it yet"):
        plans.finish("f1")


def test_another_instance_is_made_of_what_one_was_before_it_was_restored_in_place(cluster: PaperCluster) -> None:
    laid_aside(cluster)
    now = SYSTEM_CLOCK.wall()
    restored = BackupPlans(cluster.store, SYSTEM_CLOCK).restore_as("f1", "f2", at(now - 60), is_trial=True)
    assert restored.kind == "provision"
    state = cluster.broker.instances.require("f1")
    assert isinstance(state, InstanceState)
    with pytest.raises(RefusedError, match="there is no backup to begin from"):
        BackupPlans(cluster.store, SYSTEM_CLOCK).restore_as("f1", "f2", None)


class DiedError(Exception):
    """The broker is killed."""


def killed_at(number: int) -> int:
    """Restore in place and go back, with a broker that is killed at a moment, and another one; return how often one was."""
    cluster, killed, pauses = made_cluster(), 0, 0
    cells_alive(cluster)
    archived(cluster, backup("x", 100))
    ordered(cluster)
    cells, broker, plans = HaltingCells(cluster), cluster.broker, RestorePlans(cluster.store, SYSTEM_CLOCK)

    def live() -> None:
        nonlocal pauses
        cells()
        halted = {place.node for place, order in broker.orders.list() if order.halted}
        free = sorted({key.node for key, _ in broker.nodes.list("f1")} - halted)
        if cells.halted and free and not broker.leaders.exists("f1"):
            cluster.lead(free[0], 4)
        leader = broker.leaders.get("f1")
        for node in free if leader is not None else ():
            if node != leader:
                cluster.follow(node, 4)
        pauses += 1
        if pauses == number:
            raise DiedError

    cluster.on_pause = live
    restore = begun(cluster, "halt", "lay_aside", "add", "wait_recovered", "wait_members")
    for is_back in (False, True):
        operation = plans.go_back("f1") if is_back else restore
        operation.steps = [step for step in operation.steps if step.kind not in AT_POSTGRESQL]
        try:
            ended = cluster.carried_out(operation)
        except DiedError:
            killed += 1
            ended = cluster.carried_out(broker.operations.require("f1"))
        assert ended.status == "success", (number, ended.message)
    former = broker.instances.require("f1").former
    assert former is not None
    assert len(former.nodes) == 3
    assert [OrderKey(cell, key.node) for key, cell in broker.nodes.list("f1")] == PLACES
    halted = {place for place, order in broker.orders.list() if order.halted}
    assert halted == {OrderKey(cell, node) for node, cell in former.nodes.items()}
    return killed


def test_a_restore_and_the_way_back_are_gone_on_with_when_their_broker_dies_at_any_moment() -> None:
    assert sum(killed_at(number) for number in range(1, 13)) > 8
