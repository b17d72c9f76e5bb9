"""Events of clusters: written with what they tell, by one of several brokers, bounded, and gone with a cluster that is gone."""

import pytest

from keyplan.apps.patroni import Broker, EventKey, InstanceState, MemberKey, NodeKey, Operation, Step
from keyplan.apps.patroni.actions import Action, ActionKind, Actions
from keyplan.apps.patroni.catalog import BUILT_IN_CATALOG, NODES_MAX
from keyplan.apps.patroni.cluster_observer import ClusterObserver
from keyplan.apps.patroni.event_records import Event, EventKind
from keyplan.apps.patroni.events import EVENTS_KEPT, EventLog, forget_events, newest_events
from keyplan.apps.patroni.operations import Beginnings, Wanted
from keyplan.apps.patroni.ports import PortAllocator
from keyplan.apps.patroni.records import Cell, Member
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.engine import SYSTEM_CLOCK, Commit, Put
from keyplan.layout import Binding
from keyplan.store import Store, open_store
from keyplan.testing.faults import FakeClock
from tests.apps.patroni.paper_cluster import PaperCluster

MADE = Operation(id="p", kind="provision", status="success")


def told(store: Store, cluster: str = "") -> list[tuple[str, str, str]]:
    return [
        (one.event.kind, one.event.member, one.event.text) for one in newest_events(Broker(store), cluster, count=99)
    ]


@pytest.fixture
def cluster() -> PaperCluster:
    cluster = PaperCluster()
    cluster.broker.operations.put("f1", MADE)
    return cluster


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def observer(cluster: PaperCluster, clock: FakeClock) -> ClusterObserver:
    found = ClusterObserver(cluster.store, clock, astray_seconds=10)
    found.step()
    return found


def test_an_operation_is_told_of_as_it_begins_and_as_it_ends_and_a_refused_one_is_not() -> None:
    with open_store("memory:") as store:
        broker = Broker(store)
        broker.cells.put("c1", Cell(), lease=store.lease(600, keep_alive=False))
        service = BUILT_IN_CATALOG.services[0]
        beginnings = Beginnings(store, PortAllocator(store), SYSTEM_CLOCK)
        wanted = Wanted(service_id=service.id, plan=service.plans[0])
        begun, _ = beginnings.provision("f1", wanted, may_wait=True)
        assert told(store) == [("port-given", "", "port 33000"), ("operation-begun", "", "provision: 3 steps")]
        assert newest_events(broker, "f1", count=1)[0].event.cause == begun.id
        with pytest.raises(RefusedError):
            Actions(store, SYSTEM_CLOCK).begin("f1", Action(kind=ActionKind.RESTART))
        assert len(told(store)) == 2


def test_an_operation_that_ends_tells_why(cluster: PaperCluster) -> None:
    cluster.made(Step(kind="wait_members"))
    cluster.broker.members.delete(MemberKey("f1", "a"))
    cluster.made(Step(kind="wait_members"))
    (ended, failed) = told(cluster.store, "f1")
    assert ended == ("operation-ended", "", "update: done")
    assert failed[0] == "operation-failed"
    assert "; a: it is no member of its cluster" in failed[2]


def test_a_change_of_the_leader_is_told_once_by_two_brokers(cluster: PaperCluster, clock: FakeClock) -> None:
    one, other = observer(cluster, clock), observer(cluster, clock)
    clock.advance(1)
    cluster.broker.leaders.delete("f1")
    one.step()
    other.step()
    clock.advance(1)
    cluster.lead("c", 4)
    other.step()
    one.step()
    assert told(cluster.store) == [
        ("leader-changed", "b", "b leads"),
        ("leader-lost", "b", "nobody holds the leader key; b did"),
        ("leader-changed", "c", "c leads; b did before"),
    ]
    one.close()
    other.close()


def test_a_member_is_astray_that_was_so_for_a_while_and_is_told_of_once(
    cluster: PaperCluster, clock: FakeClock
) -> None:
    looking = observer(cluster, clock)
    cluster.follow("a", 2)
    looking.step()
    clock.advance(9)
    looking.step()
    assert told(cluster.store)[1:] == []
    clock.advance(2)
    looking.step()
    cluster.follow("a", 2, state=None)
    looking.step()
    cluster.follow("a", 3)
    looking.step()
    assert told(cluster.store)[1:] == [
        ("member-astray", "a", "it is on timeline 2, and the leader b on 3"),
        ("member-back", "a", "it can be counted on again, or is gone"),
    ]
    looking.close()


def test_a_cluster_with_members_without_an_end_keeps_nobody_from_being_told_of(
    cluster: PaperCluster, clock: FakeClock
) -> None:
    """Whoever has a cluster's token writes as many members as they like."""
    cluster.broker.leaders.put("f0", "x", lease=cluster.lease)
    for number in range(200):
        cluster.broker.members.put(MemberKey("f0", f"m{number}"), Member(role="replica"), lease=cluster.lease)
    looking = observer(cluster, clock)
    looking.step()
    clock.advance(11)
    revision = cluster.store.revision
    looking.step()
    assert cluster.store.revision == revision + 1
    assert len(cluster.broker.seen_clusters.require("f0").astray) == NODES_MAX
    assert ("leader-changed", "b", "b leads") in told(cluster.store, "f1")
    looking.close()


def test_what_an_operation_does_to_members_is_not_told_of_beside_it(cluster: PaperCluster, clock: FakeClock) -> None:
    looking = observer(cluster, clock)
    cluster.broker.operations.put("f1", Operation(id="o", kind="update"))
    cluster.follow("a", 2)
    for _ in range(3):
        looking.step()
        clock.advance(20)
    assert told(cluster.store)[1:] == []
    looking.close()


def test_a_record_that_cannot_be_read_is_written_anew_and_hinders_no_other_cluster(
    cluster: PaperCluster, clock: FakeClock
) -> None:
    tables = Broker.bound().tables
    looking = observer(cluster, clock)
    with cluster.store.engine.snapshot() as state:
        assert state.get(tables["seen_clusters"].keys.encode("f1")) is not None
    cluster.store.engine.commit(Commit(mutations=(Put(tables["seen_clusters"].keys.encode("f1"), b"{broken"),)))
    cluster.store.engine.commit(Commit(mutations=(Put(tables["leaders"].keys.encode("f0"), b"\xff"),)))
    cluster.lead("c", 4)
    looking.step()
    looking.step()
    assert told(cluster.store, "f1")[-1] == ("leader-changed", "c", "c leads")
    assert cluster.broker.seen_clusters.require("f1").leader == "c"
    looking.close()


def test_the_newest_hundred_of_a_cluster_are_kept_and_no_damaged_one_hinders_the_next(
    cluster: PaperCluster, clock: FakeClock
) -> None:
    log = EventLog(cluster.store, clock)

    def note(number: int) -> None:
        clock.advance(1)

        def work(binding: Binding) -> None:
            log.note(Broker(binding), "f1", EventKind.PORT_GIVEN, str(number))

        cluster.store.run(work)

    cluster.broker.events.put(EventKey("f10", 1, "x"), Event(kind="kept"))
    cluster.store.engine.commit(
        Commit(mutations=(Put(Broker.bound().tables["events"].keys.encode(EventKey("f1", 1, "y")), b"{broken"),))
    )
    for number in range(EVENTS_KEPT + 5):
        note(number)
    found = newest_events(cluster.broker, "f1", count=1_000)
    assert [one.event.text for one in found] == [str(number) for number in range(5, EVENTS_KEPT + 5)]
    assert cluster.broker.events.count("f1") == EVENTS_KEPT
    assert cluster.broker.events.count("f10") == 1


def test_events_outlive_their_cluster_by_a_day(cluster: PaperCluster) -> None:
    gone, day = EventKey("gone", 1_000_000_000, "x"), 86_400.0
    cluster.broker.events.put(gone, Event(kind="operation-ended"))
    cluster.broker.events.put(EventKey("f1", 1_000_000_000, "x"), Event(kind="operation-ended"))
    assert forget_events(cluster.store, 0.5) == []
    assert forget_events(cluster.store, day) == ["gone"]
    assert [key.cluster for key in cluster.broker.events.keys()] == ["f1"]  # noqa: SIM118  # a table


def test_the_end_of_a_cluster_is_told_by_its_operation_alone(cluster: PaperCluster, clock: FakeClock) -> None:
    looking = observer(cluster, clock)
    for node in ("a", "b", "c"):
        cluster.broker.nodes.delete(NodeKey("f1", node))
    cluster.broker.instances.put("f1", InstanceState(instance_id="f1"))
    ended = cluster.carried_out(Operation(id="d", kind="deprovision", steps=[Step(kind="erase")]))
    assert ended.status == "success"
    looking.step()
    assert told(cluster.store)[1:] == [("operation-ended", "", "deprovision: deleted")]
    assert not cluster.broker.seen_clusters.exists("f1")
    looking.close()
