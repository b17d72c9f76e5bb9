"""Upgrades to another major version, on paper: what is refused, how they are made, undone, gone on with, and become final."""

import dataclasses
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from keyplan.apps.patroni import (
    Broker,
    Cell,
    Credentials,
    Member,
    MemberKey,
    NodeKey,
    NodeReport,
    Operation,
    OrderKey,
    Step,
)
from keyplan.apps.patroni.backups.node_programs import NodePrograms, TaskProcesses
from keyplan.apps.patroni.backups.records import TaskAnswer
from keyplan.apps.patroni.backups.restore_plans import RestorePlans
from keyplan.apps.patroni.backups.view import lost_by_way_back
from keyplan.apps.patroni.clusters import clusters
from keyplan.apps.patroni.layout import OUTSIDE
from keyplan.apps.patroni.node_config import Gateway, NodePlan, patroni_configuration
from keyplan.apps.patroni.node_host import Host
from keyplan.apps.patroni.node_process import Node
from keyplan.apps.patroni.operation_progress import OperationProgress
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.apps.patroni.upgrades.node_upgrades import problem_of_upgrade
from keyplan.apps.patroni.upgrades.plans import UpgradePlans
from keyplan.apps.patroni.upgrades.records import CHECK_ROOM, CHECK_UPGRADE, Upgrade
from keyplan.engine import SYSTEM_CLOCK
from tests.apps.patroni.archived import ARCHIVE, archived, backup, made_cluster, words
from tests.apps.patroni.halting_cells import AT_POSTGRESQL, PLACES, HaltingCells, ordered
from tests.apps.patroni.paper_cluster import PaperCluster


@pytest.fixture
def cluster() -> PaperCluster:
    return upgradable()


def upgradable() -> PaperCluster:
    """A cluster of version 15 whose cells have 18, too."""
    found = made_cluster()
    for node in ("a", "b", "c"):
        announce(found, f"cell-{node}", "15", "18")
    ordered(found)
    state = found.broker.instances.require("f1")
    state.version = "15"
    found.broker.instances.put("f1", state)
    return found


def announce(cluster: PaperCluster, cell: str, *versions: str, is_draining: bool = False) -> None:
    cluster.broker.cells.put(cell, Cell(versions=[*versions], is_draining=is_draining), lease=cluster.lease)


def plans(cluster: PaperCluster) -> UpgradePlans:
    return UpgradePlans(cluster.store, SYSTEM_CLOCK)


# ---- how it begins ------------------------------------------------------------------------------------------------------


def test_a_dry_run_prints_the_steps_and_writes_nothing(cluster: PaperCluster) -> None:
    with cluster.store.snapshot() as before:
        revision = before.revision
    checks = ["check_upgrade 18"] * 3
    assert words(plans(cluster).upgrade("f1", "18", is_trial=True)) == [
        *(*checks, "halt", "lay_aside", "add cell-b", "wait_upgraded", "add cell-c", "add cell-a", "wait_members"),
        *("wait_leader", "end_logins superuser,replication,rewind", "settle_bindings", "renew_data", "analyze"),
    ]
    assert words(plans(cluster).upgrade("f1", "18", is_check=True, is_trial=True)) == checks
    with cluster.store.snapshot() as after:
        assert after.revision == revision


def test_a_cluster_that_is_backed_up_is_backed_up_anew_into_an_archive_of_its_own(cluster: PaperCluster) -> None:
    archived(cluster, backup("x", 100))
    state = cluster.broker.instances.require("f1")
    state.version = "15"
    cluster.broker.instances.put("f1", state)
    planned = plans(cluster).upgrade("f1", "18", is_trial=True)
    assert words(planned)[3:5] == ["flush f1", "halt"]
    assert words(planned)[-1] == "back_up full"
    assert planned.archive is not None
    assert planned.archive.stanza != ARCHIVE.stanza
    assert planned.archive.policy == ARCHIVE.policy


@pytest.mark.parametrize(
    ("problem", "match"),
    [
        ("unknown", "its cells do not say which version it is of"),
        ("word", "newest is no major version of PostgreSQL"),
        ("fraction", "18.1 is no major version of PostgreSQL"),
        ("same", "it is of PostgreSQL 15: give a newer version"),
        ("older", "it is of PostgreSQL 15: give a newer version"),
        ("lacking", "cell cell-c has no PostgreSQL 18: install it there"),
        ("lacking-former", "cell cell-c has no PostgreSQL 15: install it there"),
        ("silent", "cell cell-c has no PostgreSQL 15 and 18"),
        ("astray", "a: it is on timeline 2, and the leader b on 3; all members must follow first"),
        ("leaderless", "nobody leads its cluster"),
        ("paused", "the cluster is paused"),
        ("standby", "it is a standby of another cluster"),
        ("outside", "no cell runs a, and halts it"),
        ("away", "cell cell-a is not alive"),
        ("draining", "cell cell-a takes no new nodes: move a elsewhere first"),
        ("halted", "a way back has not come to its end"),
        ("gone", "no such instance"),
    ],
)
def test_what_cannot_be_upgraded_is_refused_and_nothing_is_written(
    cluster: PaperCluster, problem: str, match: str
) -> None:
    broker = cluster.broker
    if problem == "unknown":
        state = broker.instances.require("f1")
        state.version = ""
        broker.instances.put("f1", state)
    elif problem in {"lacking", "lacking-former", "silent"}:
        announce(cluster, "cell-c", *{"lacking": ["15"], "lacking-former": ["18"], "silent": []}[problem])
    elif problem == "astray":
        cluster.follow("a", 2)
    elif problem == "leaderless":
        broker.leaders.delete("f1")
    elif problem in {"paused", "standby"}:
        configuration = {"pause": True} if problem == "paused" else {"standby_cluster": {"host": "h"}}
        broker.configurations.put("f1", configuration)
    elif problem == "outside":
        broker.nodes.put(NodeKey("f1", "a"), OUTSIDE)
    elif problem == "away":
        broker.cells.delete("cell-a")
    elif problem == "draining":
        announce(cluster, "cell-a", "15", "18", is_draining=True)
    elif problem == "halted":
        broker.orders.put(PLACES[0], msgspec.structs.replace(broker.orders.require(PLACES[0]), halted=True))
    version = {"word": "newest", "fraction": "18.1", "same": "15", "older": "14"}.get(problem, "18")
    with cluster.store.snapshot() as before:
        revision = before.revision
    with pytest.raises(RefusedError, match=match):
        plans(cluster).upgrade("f9" if problem == "gone" else "f1", version)
    with cluster.store.snapshot() as after:
        assert after.revision == revision


def test_the_version_is_what_the_leaders_cell_says_where_no_record_does(cluster: PaperCluster) -> None:
    state = cluster.broker.instances.require("f1")
    state.version = ""
    cluster.broker.instances.put("f1", state)
    report = NodeReport(instance="f1", state="running", version="15")
    cluster.broker.reports.put(PLACES[1], report, lease=cluster.lease)
    begun = plans(cluster).upgrade("f1", "18", is_trial=True)
    assert begun.upgrade == Upgrade(former_version="15", version="18", configuration={"ttl": 33})


# ---- what cells find out ------------------------------------------------------------------------------------------------


class UpgradingCells(HaltingCells):
    """Cells that also answer tasks, each with the problem of its kind; who is made of data leads, and the others follow it."""

    def __init__(self, cluster: PaperCluster, *, problems: dict[str, str] | None = None, makes: bool = True) -> None:
        super().__init__(cluster)
        self.cluster, self.problems, self.makes = cluster, problems or {}, makes
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self) -> None:
        super().__call__()
        for place, task in list(self.broker.tasks.list()):
            answer = self.broker.task_answers.get(place)
            if answer is None or answer.id != task.id:
                self.asked.append((place.node, task.kind, task.wanted))
                answer = TaskAnswer(id=task.id, state="done", problem=self.problems.get(task.kind, ""))
                self.broker.task_answers.put(place, answer)
        self._lead()

    def _lead(self) -> None:
        """Nodes that run come to lead, and to follow, as those would that have data, or make them."""
        halted = {place.node for place, order in self.broker.orders.list() if order.halted}
        placed = [key.node for key, _ in self.broker.nodes.list("f1")]
        free = [node for node in placed if node not in halted and (self.makes or node in {"a", "b", "c"})]
        if self.halted and free and not self.broker.leaders.exists("f1") and len(halted) >= 2:
            self.cluster.lead("b" if "b" in free else free[0], 4)
        leader = self.broker.leaders.get("f1")
        for node in free if self.halted and leader is not None and leader in free else ():
            if node != leader:
                self.cluster.follow(node, 4)


def without_postgresql(operation: Operation) -> Operation:
    operation.steps = [step for step in operation.steps if step.kind not in AT_POSTGRESQL]
    return operation


@pytest.mark.parametrize("is_check", [True, False])
@pytest.mark.parametrize("kind", [CHECK_UPGRADE, CHECK_ROOM])
def test_what_a_cell_finds_in_the_way_ends_it_and_nothing_is_halted(
    cluster: PaperCluster, kind: str, *, is_check: bool
) -> None:
    cells = cluster.on_pause = UpgradingCells(cluster, problems={kind: "there is no room"})
    ended = cluster.carried_out(plans(cluster).upgrade("f1", "18", is_check=is_check))
    assert ended.status == "failed"
    node = "b" if kind == CHECK_UPGRADE else "a"
    assert ended.message.endswith(f"{node}: there is no room; nothing was changed")
    assert cells.halted == []
    assert [order.halted for _, order in cluster.broker.orders.list()] == [False] * 3
    assert list(cluster.broker.tasks.list()) == []
    assert cluster.broker.instances.require("f1").former is None


def test_the_leaders_cell_tries_the_schema_and_the_others_whether_there_is_room(cluster: PaperCluster) -> None:
    cells = cluster.on_pause = UpgradingCells(cluster)
    ended = cluster.carried_out(plans(cluster).upgrade("f1", "18", is_check=True))
    assert ended.status == "success", ended.message
    assert cells.asked == [("a", CHECK_ROOM, "18"), ("c", CHECK_ROOM, "18"), ("b", CHECK_UPGRADE, "18")]
    assert cells.halted == []


# ---- what is done -------------------------------------------------------------------------------------------------------


def upgraded(cluster: PaperCluster) -> UpgradingCells:
    cells = UpgradingCells(cluster)
    cluster.on_pause = cells
    ended = cluster.carried_out(without_postgresql(plans(cluster).upgrade("f1", "18")))
    assert ended.status == "success", ended.message
    return cells


def test_other_nodes_are_made_of_the_leaders_data_and_the_former_are_halted(cluster: PaperCluster) -> None:
    cells = upgraded(cluster)
    broker = cluster.broker
    assert cells.halted == ["a", "c", "b"]
    state = broker.instances.require("f1")
    assert (state.version, state.upgrade) == ("18", None)
    assert state.former is not None
    assert (state.former.version, state.former.leader, state.former.system) == ("15", "b", "7710")
    placed = {cell: key.node for key, cell in broker.nodes.list("f1")}
    assert sorted(placed) == ["cell-a", "cell-b", "cell-c"]
    first = broker.orders.require(OrderKey("cell-b", placed["cell-b"]))
    assert (first.version, first.superuser.username) == ("18", "postgres")
    assert first.upgrade == Upgrade(former_version="15", version="18", node="b", configuration={"ttl": 33})
    assert first.patroni["ttl"] == 33
    other = broker.orders.require(OrderKey("cell-a", placed["cell-a"]))
    assert (other.version, other.upgrade) == ("18", None)
    assert cells.asked[-1][1:] == ("analyze", "")
    (view,) = clusters(broker)
    assert "its former cluster, of PostgreSQL 15, is halted since" in view.former
    assert "`upgrade --back` returns to it, `upgrade --finish` removes it" in view.former
    assert "is in the present cluster alone" in lost_by_way_back(broker, "f1")
    with pytest.raises(RefusedError, match="its former cluster is there still"):
        plans(cluster).upgrade("f1", "19")


def test_it_begins_where_somebody_leads_who_took_over_since_it_was_planned(cluster: PaperCluster) -> None:
    operation = without_postgresql(plans(cluster).upgrade("f1", "18"))
    cluster.lead("c", 3)
    cluster.follow("b", 3)
    cells = cluster.on_pause = UpgradingCells(cluster)
    ended = cluster.carried_out(operation)
    assert ended.status == "success", ended.message
    assert cells.halted[-1] == "c"
    first = next(step for step in ended.steps if step.kind == "add")
    assert first.target == "cell-c"
    order = cluster.broker.orders.require(OrderKey("cell-c", first.node))
    assert order.upgrade is not None
    assert order.upgrade.node == "c"
    assert sorted(cell for _, cell in cluster.broker.nodes.list("f1")) == ["cell-a", "cell-b", "cell-c"]


def test_where_nobody_leads_any_more_all_go_on(cluster: PaperCluster) -> None:
    operation = without_postgresql(plans(cluster).upgrade("f1", "18"))
    operation.steps = [step for step in operation.steps if step.kind != "check_upgrade"]
    cluster.broker.leaders.delete("f1")
    cells = cluster.on_pause = UpgradingCells(cluster)
    ended = cluster.carried_out(operation)
    assert ended.status == "failed"
    assert "nobody led the cluster any more when its nodes were halted; they go on" in ended.message
    assert len(cells.halted) == 3
    assert [order.halted for _, order in cluster.broker.orders.list()] == [False] * 3
    assert cluster.broker.instances.require("f1").former is None


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("called-off", "it was called off"),
        ("failed", "FATAL:  pg_upgrade: no"),
        ("died", "the bootstrap hangs: whoever holds its key `initialize` is not at work"),
    ],
)
def test_one_that_comes_to_nothing_is_undone_and_the_former_goes_on(
    cluster: PaperCluster, cause: str, told: str
) -> None:
    operation = without_postgresql(plans(cluster).upgrade("f1", "18"))
    cells = UpgradingCells(cluster, makes=False)
    cluster.waits = dataclasses.replace(cluster.waits, hang_seconds=0.05)

    def live() -> None:
        cells()
        now = cluster.broker.operations.require("f1")
        if now.steps[now.completed_steps].kind != "wait_upgraded":
            return
        if cause == "called-off":
            assert RestorePlans(cluster.store, SYSTEM_CLOCK).go_back("f1").id == operation.id
            return
        for key, cell in cluster.broker.nodes.list("f1"):
            if cause == "died":
                cluster.broker.initializations.put("f1", "")
                member = Member(role="replica", state="stopped")
                cluster.broker.members.put(MemberKey("f1", key.node), member, lease=cluster.lease)
                report = NodeReport(instance="f1", state="starting")
                cluster.broker.reports.put(OrderKey(cell, key.node), report, lease=cluster.lease)
                continue
            report = NodeReport(instance="f1", state="failed", message="Patroni ends by itself; FATAL:  pg_upgrade: no")
            cluster.broker.reports.put(OrderKey(cell, key.node), report, lease=cluster.lease)

    cluster.on_pause = live
    ended = cluster.carried_out(operation)
    assert ended.status == "failed"
    assert told in ended.message
    assert ended.message.endswith("; the former cluster goes on")
    state = cluster.broker.instances.require("f1")
    assert (state.former, state.version, state.upgrade) == (None, "15", None)
    assert state.superuser_credentials.username == "postgres_2"
    assert cluster.broker.initializations.get("f1") == "7710"
    assert [(place, order.halted) for place, order in cluster.broker.orders.list()] == [
        (place, False) for place in PLACES
    ]
    assert {key.node for key, _ in cluster.broker.nodes.list("f1")} == {"a", "b", "c"}


def test_one_that_leads_already_is_not_called_off(cluster: PaperCluster) -> None:
    operation = plans(cluster).upgrade("f1", "18")
    kinds = [step.kind for step in operation.steps]
    operation.completed_steps = kinds.index("wait_upgraded") + 1
    cluster.broker.operations.put("f1", operation)
    with pytest.raises(RefusedError, match="the upgraded cluster leads already: wait until the upgrade has ended"):
        RestorePlans(cluster.store, SYSTEM_CLOCK).go_back("f1")
    assert not cluster.broker.operations.require("f1").is_called_off


def test_the_former_version_comes_back_and_there_again_and_goes_when_somebody_says_so(cluster: PaperCluster) -> None:
    upgraded(cluster)
    ways = RestorePlans(cluster.store, SYSTEM_CLOCK)
    for version, former in (("15", "18"), ("18", "15")):
        ended = cluster.carried_out(without_postgresql(ways.go_back("f1")))
        assert ended.status == "success", ended.message
        state = cluster.broker.instances.require("f1")
        assert state.former is not None
        assert (state.version, state.former.version) == (version, former)
    ended = cluster.carried_out(ways.finish("f1"))
    assert ended.status == "success", ended.message
    assert cluster.broker.instances.require("f1").former is None
    assert not {*PLACES} & {place for place, _ in cluster.broker.orders.list()}
    # A node that is added now is of that version, on a cell that has it.
    announce(cluster, "cell-d", "15")
    node = Step(kind="add", node="d", target="cell-d")
    ended = cluster.made(node)
    assert "cell-d: it has no PostgreSQL 18" in ended.message


class DiedError(Exception):
    """The broker is killed."""


def killed_after(number: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Upgrade with a broker that is killed after so many commits; another goes on. Return at which step; empty: at none."""
    cluster, commits = upgradable(), count(1)
    cells = cluster.on_pause = UpgradingCells(cluster)
    operation = without_postgresql(plans(cluster).upgrade("f1", "18"))
    with monkeypatch.context() as patched:
        commit = OperationProgress.commit

        def killed(self: OperationProgress, change: Callable[[Broker, Operation], object]) -> object:
            found = commit(self, change)
            if next(commits) == number:
                raise DiedError
            return found

        patched.setattr(OperationProgress, "commit", killed)
        try:
            ended = cluster.carried_out(operation)
        except DiedError:
            ended = cluster.broker.operations.require("f1")
        else:
            return ""
    step = ended.steps[ended.completed_steps].kind if ended.completed_steps < len(ended.steps) else "end"
    if ended.status == "in-progress":
        ended = cluster.carried_out(ended)
    assert ended.status == "success", (number, ended.message)
    state = cluster.broker.instances.require("f1")
    assert state.former is not None
    assert (state.version, sorted(state.former.nodes), state.former.leader) == ("18", ["a", "b", "c"], "b")
    assert sorted(cell for _, cell in cluster.broker.nodes.list("f1")) == ["cell-a", "cell-b", "cell-c"]
    assert {place.node for place, order in cluster.broker.orders.list() if order.halted} == {"a", "b", "c"}
    # Nobody is asked for what has been answered.
    assert [kind for _, kind, _ in cells.asked] == [CHECK_ROOM, CHECK_ROOM, CHECK_UPGRADE, "analyze"]
    return step


def test_it_is_gone_on_with_when_its_broker_dies_after_any_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[str] = []
    while step := killed_after(len(killed) + 1, monkeypatch):
        killed.append(step)
    kinds = {
        "check_upgrade",
        "halt",
        "lay_aside",
        "add",
        "wait_upgraded",
        "wait_members",
        "wait_leader",
        "analyze",
        "end",
    }
    assert {*killed} == kinds


# ---- on a cell ----------------------------------------------------------------------------------------------------------


def programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return folder


def node_of(folder: Path, *, further: dict[str, Path]) -> NodePrograms:
    """A node of version 15 that was made."""
    former = programs(folder / "15" / "bin", "postgres", "pg_controldata", "pg_ctl", "psql")
    home = folder / "nodes" / "a" / "home" / "data"
    home.mkdir(parents=True)
    (home / "PG_VERSION").write_text("15\n")
    host = Host(former, "", Path(), version="15", further=further)
    return NodePrograms(TaskProcesses(), Node(folder / "nodes" / "a", PLAN, host))


PLAN = NodePlan(
    instance="f1",
    node="a",
    port=25432,
    rest_port=28008,
    superuser=Credentials(username="postgres"),
    replication=Credentials(username="replicator"),
    rest=Credentials(username="admin"),
    gateway=Gateway("127.0.0.1:2379", "etcd"),
    parameters={},
)
ALL = ("postgres", "initdb", "pg_ctl", "pg_dumpall", "pg_upgrade", "psql", "vacuumdb")


def test_a_cell_names_what_it_lacks_for_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = programs(tmp_path / "18" / "bin", *ALL)
    half = programs(tmp_path / "17" / "bin", "postgres", "initdb")
    found = node_of(tmp_path, further={"18": whole, "17": half})

    def problem(version: str) -> str:
        return problem_of_upgrade(found, version, {}, has_schema=True)

    assert "PostgreSQL 19" in problem("19")
    assert f"{half}/pg_upgrade" in problem("17")
    assert "install the whole version, its clients too" in problem("17")
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_bavail=1_000, f_frsize=4_096))
    assert problem("18").startswith("there is no room for another copy of its data: ")
    assert problem("18").endswith(", and 4096000 are free")


def test_a_cell_does_not_give_pg_upgrade_a_path_that_a_shell_would_read(tmp_path: Path) -> None:
    folder = tmp_path / "it's"
    found = node_of(folder, further={"18": programs(folder / "18" / "bin", *ALL)})
    assert "it has characters that are a shell's own" in problem_of_upgrade(found, "18", {}, has_schema=True)


def test_the_first_node_of_an_upgraded_cluster_makes_its_data_by_a_script_and_the_others_copy_it() -> None:
    plan = msgspec.structs.replace(PLAN, node="n")
    told = patroni_configuration(plan, home=Path("/n/home"), programs=Path("/p"))["bootstrap"]
    assert "method" not in told
    plan.upgrade = Upgrade(former_version="15", version="18", node="b")
    told = patroni_configuration(plan, home=Path("/n/home"), programs=Path("/p"))["bootstrap"]
    assert told["method"] == "upgrade"
    assert told["upgrade"] == {"command": "/bin/sh /n/upgrade.sh", "no_params": True}
