"""Clusters that others made become instances, and are forgotten again; what is refused, and what ours may do with their nodes.

Real clusters are adopted in tests/server/test_patroni.py and test_takeover.py.
"""

import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import msgspec
import pytest
from typer.testing import CliRunner

from keyplan import Secret
from keyplan.apps.patroni import (
    Binding,
    BindingKey,
    Broker,
    Cell,
    Credentials,
    Member,
    MemberKey,
    NodeKey,
    Step,
    cli_adoption,
)
from keyplan.apps.patroni.actions import Action, ActionKind, Actions
from keyplan.apps.patroni.adoption import Adoption, Logins, logins_of, release
from keyplan.apps.patroni.backups.books import version_of
from keyplan.apps.patroni.catalog import BUILT_IN_CATALOG
from keyplan.apps.patroni.cell_agent import CellAgent, CellSettings
from keyplan.apps.patroni.cli import app
from keyplan.apps.patroni.clusters import cells_away, outside_nodes
from keyplan.apps.patroni.diagnosis import diagnose
from keyplan.apps.patroni.node_config import Gateway
from keyplan.apps.patroni.node_host import Host
from keyplan.apps.patroni.operations import Beginnings
from keyplan.apps.patroni.ports import PortAllocator, PortRange
from keyplan.apps.patroni.records import InstanceState, Operation, Status
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.apps.patroni.takeover import copy_state, keys_of_store, keys_of_v2
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError
from keyplan.store import open_store
from tests.apps.patroni.paper_cluster import PaperCluster

OFFER = BUILT_IN_CATALOG.services[0]
PAIR = OFFER.plans[1]
LOGINS = Logins(
    superuser=Credentials(username="postgres", password=Secret("s")),
    replication=Credentials(username="replicator", password=Secret("r")),
)
IDENTIFIER = "7710453740755543520"


@pytest.fixture
def cluster() -> PaperCluster:
    """Three members that nobody ordered, of which `b` leads."""
    cluster = PaperCluster()
    broker = cluster.broker
    broker.instances.delete("f1")
    for node in ("a", "b", "c"):
        broker.nodes.delete(NodeKey("f1", node))
    broker.initializations.put("f1", IDENTIFIER)
    return cluster


def adoption(cluster: PaperCluster) -> Adoption:
    return Adoption(cluster.store, PortAllocator(cluster.store, PortRange(33000, 33009)), SYSTEM_CLOCK)


def adopted(cluster: PaperCluster) -> Adoption:
    adopting = adoption(cluster)
    adopting.adopt(adopting.planned("f1"), LOGINS, OFFER, PAIR)
    return adopting


def kept(cluster: PaperCluster) -> dict[bytes, bytes]:
    """What Patroni keeps of it."""
    return {name.encode(): value for name, value in keys_of_store(cluster.store, "f1").items()}


def test_an_adopted_cluster_is_an_instance_with_its_port_and_nothing_of_its_own_is_written(
    cluster: PaperCluster,
) -> None:
    cluster.broker.allocations.insert("f1", 33007)
    before = kept(cluster)
    adopting = adoption(cluster)
    revision = cluster.store.revision
    found = adopting.planned("f1")
    assert cluster.store.revision == revision
    assert (found.leader, found.port, [node.name for node in found.nodes]) == ("b", 33007, ["a", "b", "c"])
    state = adopting.adopt(found, LOGINS, OFFER, PAIR, version="14")
    assert kept(cluster) == before
    # Why: nodes of cells are added to it, and would be of another version than their leader.
    assert version_of(cluster.broker, "f1") == "14"
    assert (state.allocated_port, state.plan_id, state.node_count) == (33007, PAIR.id, 3)
    # Why a parameter: the plan says two.
    assert state.parameters == {"node-count": 3}
    assert outside_nodes(cluster.broker, "f1") == ["a", "b", "c"]
    assert diagnose(cluster.store) == []
    with pytest.raises(RefusedError, match="an instance of ours already"):
        adopting.planned("f1")


def test_two_adopted_clusters_may_have_members_of_one_name(cluster: PaperCluster) -> None:
    adopted(cluster)
    for name in ("a", "b"):
        member = cluster.broker.members.require(MemberKey("f1", name))
        cluster.broker.members.put(MemberKey("f2", name), member, lease=cluster.lease)
    cluster.broker.leaders.put("f2", "b", lease=cluster.lease)
    cluster.broker.initializations.put("f2", "8")
    adopting = adoption(cluster)
    state = adopting.adopt(adopting.planned("f2"), LOGINS, OFFER, PAIR)
    assert state.allocated_port == 33001
    assert outside_nodes(cluster.broker, "f2") == ["a", "b"]


def test_an_instance_whose_state_was_lost_is_adopted_with_its_cells(cluster: PaperCluster) -> None:
    cluster.broker.nodes.insert(NodeKey("f1", "a"), "cell-a")
    adopted(cluster)
    assert cluster.broker.nodes.get(NodeKey("f1", "a")) == "cell-a"
    assert outside_nodes(cluster.broker, "f1") == ["b", "c"]


@pytest.mark.parametrize(
    ("spoil", "status", "problem"),
    [
        (lambda broker: broker.leaders.delete("f1"), 422, "nobody leads it now"),
        (lambda broker: broker.initializations.put("f1", ""), 422, "its bootstrap is not over"),
        (lambda broker: broker.initializations.delete("f1"), 422, "its bootstrap is not over"),
        (
            lambda broker: broker.operations.put("f1", Operation(id="d", kind="deprovision")),
            422,
            "another operation on this instance is in progress: deprovision; ask again",
        ),
        (
            lambda broker: [broker.members.delete(MemberKey("f1", name)) for name in "abc"],
            404,
            "no member of a cluster of this name",
        ),
    ],
)
def test_what_cannot_be_adopted_is_refused_with_a_reason(
    cluster: PaperCluster, spoil: Callable[[Broker], object], status: int, problem: str
) -> None:
    spoil(cluster.broker)
    with pytest.raises(RefusedError, match=re.escape(problem)) as refused:
        adoption(cluster).planned("f1")
    assert refused.value.status == status


def test_a_leader_that_changed_since_it_was_looked_at_is_noticed(cluster: PaperCluster) -> None:
    adopting = adoption(cluster)
    found = adopting.planned("f1")
    cluster.lead("a", 4)
    with pytest.raises(RefusedError, match="has changed meanwhile"):
        adopting.adopt(found, LOGINS, OFFER, PAIR)
    assert not cluster.broker.nodes.exists(NodeKey("f1", "a"))


def test_a_member_that_came_since_it_was_looked_at_is_noticed(cluster: PaperCluster) -> None:
    adopting = adoption(cluster)
    found = adopting.planned("f1")
    cluster.follow("d", 3)
    with pytest.raises(RefusedError, match="its members have changed meanwhile"):
        adopting.adopt(found, LOGINS, OFFER, PAIR)
    assert not cluster.broker.instances.exists("f1")


@pytest.mark.parametrize(
    ("name", "user", "problem"),
    [
        ("superuser", Credentials(), "superuser has no username"),
        ("replication", Credentials(username="r"), "replication has no password"),
        ("rest", Credentials(username="r"), "rest has a username or a password alone"),
        ("rewind", Credentials(password=Secret("r")), "rewind has a username or a password alone"),
    ],
)
def test_users_without_a_name_or_a_password_are_refused_before_anybody_is_asked(
    cluster: PaperCluster, name: str, user: Credentials, problem: str
) -> None:
    """libpq would take another one, of whoever types."""
    adopting = adoption(cluster)
    with pytest.raises(RefusedError, match=problem):
        adopting.check(adopting.planned("f1"), msgspec.structs.replace(LOGINS, **{name: user}))


def test_nobody_who_cannot_be_asked_is_adopted(cluster: PaperCluster) -> None:
    """Its members advertise no REST API here."""
    adopting = adoption(cluster)
    with pytest.raises(RefusedError, match="a cannot be asked from here: it advertises no REST API"):
        adopting.check(adopting.planned("f1"), LOGINS)


# ---- what ours may do with such nodes -----------------------------------------------------------------------------------


def test_a_node_that_no_cell_runs_goes_when_a_person_has_ended_it(cluster: PaperCluster) -> None:
    adopted(cluster)
    ended = cluster.made(Step(kind="remove", node="a"))
    assert (
        ended.message == "no cell runs a: end its Patroni where it runs, and keep it from starting again: it runs still"
    )
    assert list(cluster.broker.orders.keys()) == []
    cluster.broker.members.delete(MemberKey("f1", "a"))
    assert cluster.made(Step(kind="remove", node="a")).status == "success"
    assert outside_nodes(cluster.broker, "f1") == ["b", "c"]


def test_an_instance_whose_nodes_no_cell_could_end_is_not_deleted(cluster: PaperCluster) -> None:
    adopted(cluster)
    beginnings = Beginnings(cluster.store, PortAllocator(cluster.store), SYSTEM_CLOCK)
    with pytest.raises(RefusedError, match="no cell runs a, b, c: end Patroni there first"):
        beginnings.deprovision("f1", OFFER.id, PAIR.id, may_wait=True)


def test_actions_go_through_their_patroni_and_a_move_begins_with_a_node_of_a_cell(cluster: PaperCluster) -> None:
    adopted(cluster)
    cluster.broker.cells.put("cell-d", Cell(), lease=cluster.lease)
    actions = Actions(cluster.store, SYSTEM_CLOCK)
    assert actions.planned("f1", Action(kind=ActionKind.RESTART))[0].node == "a"
    steps = actions.planned("f1", Action(kind=ActionKind.MOVE, node="a", cell="cell-d"))
    assert [step.kind for step in steps] == ["add", "wait_members", "remove", "wait_members", "wait_leader"]


def test_an_adopted_cluster_needs_cells_for_its_new_nodes_alone(cluster: PaperCluster) -> None:
    adopted(cluster)
    for cell in list(cluster.broker.cells.keys()):
        cluster.broker.cells.delete(cell)
    cluster.broker.cells.put("cell-d", Cell(), lease=cluster.lease)
    actions = Actions(cluster.store, SYSTEM_CLOCK)
    steps = actions.planned("f1", Action(kind=ActionKind.SCALE, node_count=4))
    assert [step.kind for step in steps] == ["add", "wait_members", "wait_leader"]
    with pytest.raises(RefusedError, match="nodes asked for: 5, of which no cell runs 3, available cells: 1"):
        actions.planned("f1", Action(kind=ActionKind.SCALE, node_count=5))
    beginnings = Beginnings(cluster.store, PortAllocator(cluster.store), SYSTEM_CLOCK)
    # Where cells are named, all nodes come to those.
    state = cluster.broker.instances.require("f1")
    state.cells = ["cell-d"]
    cluster.broker.instances.put("f1", state)
    with pytest.raises(RefusedError, match="nodes asked for: 4, available cells: 1"):
        actions.planned("f1", Action(kind=ActionKind.SCALE, node_count=4))
    state.cells = []
    cluster.broker.instances.put("f1", state)
    # Whoever needs no cell needs none to be there.
    cluster.broker.cells.delete("cell-d")
    assert beginnings.update("f1", OFFER.id, None, {"node-count": 2}, may_wait=True) is not None
    cluster.broker.operations.delete("f1")
    cluster.broker.operations.put("f1", Operation(id="o", kind="update", status="success"))
    cluster.broker.cells.put("cell-d", Cell(), lease=cluster.lease)
    assert beginnings.update("f1", OFFER.id, None, {"node-count": 4}, may_wait=True) is not None


def test_a_token_that_no_node_of_an_adopted_cluster_uses_is_not_rotated(cluster: PaperCluster) -> None:
    adopted(cluster)
    state = cluster.broker.instances.require("f1")
    state.store_credentials = Credentials(username="cluster:f1", password=Secret("t"))
    cluster.broker.instances.put("f1", state)
    actions = Actions(cluster.store, SYSTEM_CLOCK)
    with pytest.raises(RefusedError, match=r"no cell runs a, b, c: .* as their own patroni\.yml says; change it there"):
        actions.planned("f1", Action(kind=ActionKind.ROTATE, only=["token"]))
    assert cells_away(cluster.broker, "f1") == []
    # Who asks for all of them is told of what can be had.
    with pytest.raises(RefusedError, match="nobody could tell them; move them to cells, or rotate `bindings`"):
        actions.planned("f1", Action(kind=ActionKind.ROTATE))
    # One node of a cell uses it.
    cluster.broker.nodes.put(NodeKey("f1", "a"), "cell-d")
    assert actions.planned("f1", Action(kind=ActionKind.ROTATE, only=["token"]))


# ---- the way back -------------------------------------------------------------------------------------------------------


def test_an_instance_is_forgotten_and_its_cluster_and_port_stay(cluster: PaperCluster) -> None:
    before = kept(cluster)
    adopting = adopted(cluster)
    role = Binding(service_id=OFFER.id, plan_id=PAIR.id, credentials=Credentials(username="b_1"))
    for number in range(45):
        cluster.broker.bindings.put(BindingKey("f1", str(number)), role)
    revision = cluster.store.revision
    assert release(cluster.store, "f1", is_trial=True).roles == ["b_1"] * 45
    assert cluster.store.revision == revision
    release(cluster.store, "f1", is_trial=False)
    assert kept(cluster) == before
    assert cluster.broker.allocations.get("f1") == 33000
    for view in (cluster.broker.instances, cluster.broker.nodes, cluster.broker.bindings, cluster.broker.operations):
        assert list(view.keys()) == []
    assert adopting.planned("f1").port == 33000
    cluster.broker.bindings.put(BindingKey("f1", "left by who was killed"), role)
    release(cluster.store, "f1", is_trial=False)
    assert list(cluster.broker.bindings.keys()) == []


def test_an_instance_is_not_forgotten_while_cells_run_its_nodes_or_something_is_done_with_it(
    cluster: PaperCluster,
) -> None:
    adopted(cluster)
    cluster.broker.nodes.put(NodeKey("f1", "a"), "cell-a")
    with pytest.raises(RefusedError, match="cells of ours run its nodes a"):
        release(cluster.store, "f1", is_trial=False)
    cluster.broker.operations.put("f1", Operation(id="o", kind="restart"))
    with pytest.raises(RefusedError, match="in progress"):
        release(cluster.store, "f1", is_trial=False)
    with pytest.raises(RefusedError, match="no such instance"):
        release(cluster.store, "f9", is_trial=True)


# ---- users and commands -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"[]", b"{", b"{}", b'{"superuser": {"username": 5}, "replication": {}}', b"\xff"])
def test_users_that_cannot_be_read_are_refused_without_a_password(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        logins_of(text)


def test_an_empty_file_of_users_is_refused_and_nobody_is_asked_instead(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    file.write_text("\n")
    with pytest.raises(InvalidInputError, match="it is empty"):
        cli_adoption._logins(file)


class OldEtcd(BaseHTTPRequestHandler):
    """Something that answers as etcd's v2 keys API."""

    answer: ClassVar[bytes]

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


def test_keys_are_read_from_etcds_v2_and_what_answers_otherwise_is_refused() -> None:
    with HTTPServer(("127.0.0.1", 0), OldEtcd) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        inner = (
            b'{"key": "/service/f1/optime", "dir": true, "nodes": [{"key": "/service/f1/optime/leader", "value": "7"}]}'
        )
        OldEtcd.answer = b'{"action": "get", "node": {"key": "/service/f1", "dir": true, "nodes": [' + inner + b"]}}"
        assert keys_of_v2(address, "f1") == {"optime/leader": b"7"}
        for answer in (
            b"[]",
            b'{"node": []}',
            b'{"node": {"nodes": null}}',
            b'{"node": {"key": 5}}',
            b"\xff",
            b"[" * 99_999,
        ):
            OldEtcd.answer = answer
            with pytest.raises(RefusedError, match="does not answer as etcd's v2 keys API does"):
                keys_of_v2(address, "f1")
        server.shutdown()


def test_users_are_read_as_patronis_own_configuration_has_them() -> None:
    text = b'{"superuser": {"username": "p", "password": "x y"}, "replication": {"username": "r", "password": "z"}}'
    found = logins_of(text)
    assert found.superuser.password.reveal() == "x y"
    assert "x y" not in repr(found)


def test_the_commands_refuse_in_words_and_take_no_password_as_an_option() -> None:
    runner = CliRunner()
    for arguments, problem in (
        (["adopt", "f1", "--plan", "none"], "names no plan: there are postgresql-patroni/solo"),
        (["adopt", "f1", "--plan", "pair"], "no member of a cluster of this name"),
        (["release", "f1"], "there is no such instance"),
        (["take-over", "f1", "--from", "memory:"], "no member of f1 is below /service/f1/ there"),
        (["take-over", "f1", "--from", "http://u:hush@h:99999999"], "h:99999999 does not answer as etcd's v2 keys API"),
        (["up", "--listen", "127.0.0.1:1", "--gateway", "127.0.0.1:1"], "is where the broker answers"),
        (["up", "--setting", "patroni-broker.part=clusters"], "patroni-broker.part is not yours to give"),
    ):
        ran = runner.invoke(app, [*arguments, "--store", "memory:"])
        assert problem in f"{ran.output}{ran.exception}", arguments
        assert "hush" not in f"{ran.output}{ran.exception}"
    assert "password" not in runner.invoke(app, ["adopt", "--help"]).output.replace('"password"', "")


def test_no_cell_is_called_as_the_place_of_adopted_nodes(tmp_path: Path) -> None:
    settings = CellSettings(name="outside", folder=tmp_path, gateway=Gateway("127.0.0.1:1"))
    with pytest.raises(InvalidInputError, match="no name for a cell"):
        CellAgent(open_store("memory:"), settings, Host(Path("/usr/bin"), "", Path())).open()


# ---- from another store -------------------------------------------------------------------------------------------------


def paused(cluster: PaperCluster) -> None:
    cluster.broker.configurations.put("f1", {"ttl": 20, "pause": True})
    for key, member in cluster.broker.members.list("f1"):
        member.unknown["pause"] = True
        cluster.broker.members.put(key, member, lease=cluster.lease)


def test_what_hangs_on_no_lease_is_copied_exactly_and_again_while_nobody_has_come(cluster: PaperCluster) -> None:
    paused(cluster)
    cluster.broker.statuses.put("f1", Status(optime=7))
    target = open_store("memory:")
    for is_trial in (True, False, False):
        copied = copy_state(lambda: keys_of_store(cluster.store, "f1"), target, "f1", is_trial=is_trial)
        assert copied.keys == ["config", "initialize", "status"]
        expected = {} if is_trial else {name: keys_of_store(cluster.store, "f1")[name] for name in copied.keys}
        assert keys_of_store(target, "f1") == expected
    # What the source has no more is taken away: an old `sync` says who may lead.
    cluster.broker.statuses.delete("f1")
    copy_state(lambda: keys_of_store(cluster.store, "f1"), target, "f1", is_trial=False)
    assert {*keys_of_store(target, "f1")} == {"config", "initialize"}
    lease = target.lease(600, keep_alive=False)
    Broker(target).members.put(MemberKey("f1", "a"), Member(), lease=lease)
    with pytest.raises(RefusedError, match="in this store already"):
        copy_state(lambda: keys_of_store(cluster.store, "f1"), target, "f1", is_trial=False)


def test_a_cluster_that_is_not_paused_or_another_of_its_name_is_not_copied(cluster: PaperCluster) -> None:
    target = open_store("memory:")

    def refused() -> str:
        with pytest.raises(RefusedError) as found:
            copy_state(lambda: keys_of_store(cluster.store, "f1"), target, "f1", is_trial=False)
        return found.value.description

    cluster.broker.configurations.put("f1", {"ttl": 20})
    assert "it is not paused: run `patronictl pause --wait f1` first" in refused()
    cluster.broker.configurations.put("f1", {"pause": True})
    assert "a, b, c has not heard that it is paused" in refused()
    paused(cluster)
    Broker(target).instances.put("f1", InstanceState(instance_id="f1"))
    assert "an instance of ours already" in refused()
    Broker(target).instances.delete("f1")
    Broker(target).initializations.put("f1", "5")
    assert "with the system identifier 5" in refused()
    assert keys_of_store(target, "f1") == {"initialize": b"5"}
