"""What the work on an operation waits for before it takes the lead, or a node, from a cluster: who stays must follow."""

from collections.abc import Callable
from threading import Event

import pytest

from keyplan import Secret
from keyplan.apps.patroni import (
    Broker,
    Claim,
    Credentials,
    InstanceState,
    Member,
    MemberKey,
    NodeKey,
    Operation,
    Step,
)
from keyplan.apps.patroni import broker_work as module
from keyplan.apps.patroni.broker_work import OperationWork, Waits
from keyplan.apps.patroni.catalog import BUILT_IN_CATALOG
from keyplan.apps.patroni.patroni_rest import SwitchoverFailedError
from keyplan.engine import SYSTEM_CLOCK
from keyplan.store import Store, open_store

FOLLOWS = "streaming"


class Cluster:
    """A cluster as Patroni writes it: `b` leads on timeline 3, `a` was rewound or was not, `c` is new. No cell is alive."""

    def __init__(self) -> None:
        self.store: Store = open_store("memory:")
        self.broker = Broker(self.store)
        self.lease = self.store.lease(600, keep_alive=False)
        self.asked: list[str] = []
        self.on_asked: Callable[[], None] = lambda: None
        self.on_pause: Callable[[], None] = lambda: None
        self.broker.instances.put("f1", InstanceState(instance_id="f1"))
        for node in ("a", "b", "c"):
            self.broker.nodes.put(NodeKey("f1", node), f"cell-{node}")
        self.lead("b", 3)
        self.follow("a", 3)
        self.follow("c", 3)

    def _put(self, name: str, member: Member) -> None:
        member.conn_url = Secret(f"postgres://{name}:5432/postgres")
        self.broker.members.put(MemberKey("f1", name), member, lease=self.lease)

    def lead(self, name: str, timeline: int) -> None:
        self.broker.leaders.put("f1", name, lease=self.lease)
        self._put(name, Member(role="primary", state="running", timeline=timeline))

    def follow(self, name: str, timeline: int, state: str | None = FOLLOWS) -> None:
        self._put(name, Member(role="replica", state="running", replication_state=state, timeline=timeline))

    def switch_over(self, _member: Member | None, leader: str, _credentials: Credentials) -> None:
        self.asked.append(leader)
        self.on_asked()

    def made(self, *steps: Step) -> Operation:
        """What becomes of an update of these steps, in which nothing is waited for that does not come at once."""
        self.broker.operations.put("f1", Operation(id="o", kind="update", steps=list(steps)))
        self.broker.claims.put("f1", Claim(broker="me", operation="o"), lease=self.lease)
        return OperationWork(
            self.store,
            "f1",
            "o",
            broker="me",
            catalog=BUILT_IN_CATALOG,
            stop=_Stop(self),
            clock=SYSTEM_CLOCK,
            waits=Waits(step_seconds_max=0.1, look_seconds=0.01, switch_again_seconds=0.02),
        ).run()

    def removed(self) -> list[str]:
        return sorted({"a", "b", "c"} - {key.node for key in self.broker.nodes.keys("f1")})


class _Stop(Event):
    """Never set; what happens while the work waits happens here."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def wait(self, timeout: float | None = None) -> bool:
        self._cluster.on_pause()
        return super().wait(timeout)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(module, "switch_over", cluster.switch_over)
    return cluster


LEAVE_B = (Step(kind="switch", node="b"), Step(kind="remove", node="b"), Step(kind="wait_leader"))


def test_no_lead_is_taken_while_a_member_that_stays_runs_and_does_not_follow(cluster: Cluster) -> None:
    """As a former leader between its start and its rewind: the leader that goes is what it is rewound from."""
    cluster.follow("a", 2, state=None)
    ended = cluster.made(*LEAVE_B)
    assert (ended.status, cluster.asked, cluster.removed()) == ("failed", [], [])
    assert ended.message.endswith("1 of 2 members can be counted on; a: it runs, and does not stream from the leader b")


def test_no_former_leader_goes_before_all_that_stay_follow_the_new_one(cluster: Cluster) -> None:
    cluster.on_asked = lambda: cluster.lead("c", 4)
    ended = cluster.made(*LEAVE_B)
    assert (ended.status, cluster.asked, cluster.removed()) == ("failed", ["b"], [])
    assert ended.message.endswith("a: it is on timeline 3, and the leader c on 4")
    cluster.follow("a", 4)
    assert cluster.made(*LEAVE_B).status == "success"
    assert cluster.removed() == ["b"]


def test_a_replica_that_has_come_to_lead_hands_over_before_it_goes(cluster: Cluster) -> None:
    def hand_over() -> None:
        cluster.lead("a", 4)
        cluster.follow("c", 4)

    cluster.on_asked = hand_over
    assert cluster.made(Step(kind="remove", node="b")).status == "success"
    assert (cluster.asked, cluster.removed()) == (["b"], ["b"])


def test_a_node_that_leads_again_while_others_are_waited_for_stays(cluster: Cluster) -> None:
    def come_back() -> None:
        if cluster.asked:
            cluster.lead("b", 5)
            cluster.follow("a", 5)
            cluster.follow("c", 5)

    def hand_over() -> None:
        cluster.lead("c", 4)

    cluster.on_asked = hand_over
    cluster.made(Step(kind="switch", node="b"))
    cluster.on_pause = come_back
    ended = cluster.made(Step(kind="remove", node="b"))
    assert (ended.status, cluster.removed()) == ("failed", [])
    assert ended.message.endswith("b leads again")


def test_a_leader_that_does_not_hand_over_stays(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object) -> None:
        raise SwitchoverFailedError("412 no good candidates")

    monkeypatch.setattr(module, "switch_over", refuse)
    ended = cluster.made(*LEAVE_B)
    assert (ended.status, cluster.removed()) == ("failed", [])
    assert ended.message.endswith("the leader did not hand over: 412 no good candidates")


def test_of_nodes_that_nobody_has_named_the_one_goes_that_cannot_be_counted_on(cluster: Cluster) -> None:
    cluster.follow("c", 2, state=None)
    assert cluster.made(Step(kind="remove"), Step(kind="wait_members")).status == "success"
    assert cluster.removed() == ["c"]


def test_members_that_the_operation_removes_later_are_not_waited_for(cluster: Cluster) -> None:
    cluster.broker.members.delete(MemberKey("f1", "a"))
    cluster.follow("c", 2, state=None)
    steps = [Step(kind="wait_members"), Step(kind="remove", node="a"), Step(kind="wait_members"), Step(kind="remove")]
    assert cluster.made(*steps, Step(kind="wait_members")).status == "success"
    assert cluster.removed() == ["a", "c"]
