"""What the work on an operation waits for before it takes the lead, or a node, from a cluster: who stays must follow."""

import pytest

from keyplan.apps.patroni import MemberKey, Step, patroni_rest
from keyplan.apps.patroni.patroni_rest import PatroniRefusedError
from tests.apps.patroni.paper_cluster import PaperCluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PaperCluster:
    cluster = PaperCluster()
    monkeypatch.setattr(patroni_rest, "switch_over", cluster.switch_over)
    return cluster


LEAVE_B = (Step(kind="switch", node="b"), Step(kind="remove", node="b"), Step(kind="wait_leader"))


def test_no_lead_is_taken_while_a_member_that_stays_runs_and_does_not_follow(cluster: PaperCluster) -> None:
    """As a former leader between its start and its rewind: the leader that goes is what it is rewound from."""
    cluster.follow("a", 2, state=None)
    ended = cluster.made(*LEAVE_B)
    assert (ended.status, cluster.asked, cluster.removed()) == ("failed", [], [])
    assert ended.message.endswith("1 of 2 members can be counted on; a: it runs, and does not stream from the leader b")


def test_no_former_leader_goes_before_all_that_stay_follow_the_new_one(cluster: PaperCluster) -> None:
    cluster.on_asked = lambda: cluster.lead("c", 4)
    ended = cluster.made(*LEAVE_B)
    assert (ended.status, cluster.asked, cluster.removed()) == ("failed", ["b"], [])
    assert ended.message.endswith("a: it is on timeline 3, and the leader c on 4")
    cluster.follow("a", 4)
    assert cluster.made(*LEAVE_B).status == "success"
    assert cluster.removed() == ["b"]


def test_a_replica_that_has_come_to_lead_hands_over_before_it_goes(cluster: PaperCluster) -> None:
    def hand_over() -> None:
        cluster.lead("a", 4)
        cluster.follow("c", 4)

    cluster.on_asked = hand_over
    assert cluster.made(Step(kind="remove", node="b")).status == "success"
    assert (cluster.asked, cluster.removed()) == (["b"], ["b"])


def test_a_node_that_leads_again_while_others_are_waited_for_stays(cluster: PaperCluster) -> None:
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


def test_a_leader_that_does_not_hand_over_stays(cluster: PaperCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object) -> None:
        raise PatroniRefusedError("412 no good candidates")

    monkeypatch.setattr(patroni_rest, "switch_over", refuse)
    ended = cluster.made(*LEAVE_B)
    assert (ended.status, cluster.removed()) == ("failed", [])
    assert ended.message.endswith("the leader did not hand over: 412 no good candidates")


def test_of_nodes_that_nobody_has_named_the_one_goes_that_cannot_be_counted_on(cluster: PaperCluster) -> None:
    cluster.follow("c", 2, state=None)
    assert cluster.made(Step(kind="remove"), Step(kind="wait_members")).status == "success"
    assert cluster.removed() == ["c"]


def test_members_that_the_operation_removes_later_are_not_waited_for(cluster: PaperCluster) -> None:
    cluster.broker.members.delete(MemberKey("f1", "a"))
    cluster.follow("c", 2, state=None)
    steps = [Step(kind="wait_members"), Step(kind="remove", node="a"), Step(kind="wait_members"), Step(kind="remove")]
    assert cluster.made(*steps, Step(kind="wait_members")).status == "success"
    assert cluster.removed() == ["a", "c"]
