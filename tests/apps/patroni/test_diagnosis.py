"""The doctor on planted faults: each is found, and what is left over is removed."""

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from keyplan import Secret
from keyplan.apps.patroni import (
    Broker,
    Cell,
    InstanceState,
    Member,
    MemberKey,
    NodeKey,
    NodeOrder,
    NodeReport,
    Operation,
    OrderKey,
    RegistrationKey,
    RouterReport,
)
from keyplan.apps.patroni.cluster_observer import ClusterObserver
from keyplan.apps.patroni.clusters import Belonging, advertised_addresses, belonging_of, cell_loads, clusters
from keyplan.apps.patroni.diagnosis import Fault, FaultKind, diagnose
from keyplan.apps.patroni.mending import mend, mend_all
from keyplan.engine import SYSTEM_CLOCK, Commit, Put
from keyplan.maintenance import prepare_index
from keyplan.store import Lease, Store, open_store

NODE = "f16bc34d-c3de-4843-9dc6-b183cbce2238"


@pytest.fixture
def store() -> Store:
    return open_store("memory:")


@pytest.fixture
def lease(store: Store) -> Lease:
    return store.lease(60, keep_alive=False)


@pytest.fixture
def broker(store: Store, lease: Lease) -> Broker:
    """A sound instance of one node."""
    broker = Broker(store)
    broker.instances.put("f1", InstanceState(instance_id="f1"))
    broker.operations.put("f1", Operation(id="o", kind="provision", status="success"))
    broker.allocations.put("f1", 33006)
    broker.next_port.advance_to(33007)
    broker.cells.put("c1", Cell(), lease=lease)
    broker.nodes.put(NodeKey("f1", NODE), "c1")
    broker.orders.put(OrderKey("c1", NODE), NodeOrder(instance="f1"))
    broker.leaders.put("f1", NODE, lease=lease)
    member = Member(
        role="master", state="running", conn_url=Secret("postgres://replicator:secret@10.244.21.8:32768/postgres")
    )
    broker.members.put(MemberKey("f1", NODE), member, lease=lease)
    broker.registrations.put(
        RegistrationKey("postgresql-patroni", "h", f"cf-{NODE}", 5432), "10.244.21.8:32768", lease=lease
    )
    return broker


def found(store: Store) -> list[tuple[str, str]]:
    return [(fault.kind.value, fault.subject) for fault in diagnose(store)]


def mended(store: Store) -> list[bool]:
    return [mend(store, fault, lasting_seconds=0.0) for fault in diagnose(store)]


def whose(broker: Broker, key: RegistrationKey, address: str) -> Belonging | None:
    return belonging_of(broker, key, address, advertised_addresses(broker))


def test_nothing_is_wrong_with_a_sound_instance(store: Store, broker: Broker) -> None:
    assert found(store) == []


def test_a_registration_belongs_to_the_member_at_its_address_whatever_it_is_called(broker: Broker) -> None:
    key = RegistrationKey("postgresql-patroni", "0.patroni", "cf-cb71d10a", 5432)
    assert whose(broker, key, "10.244.21.8:32768") == ("f1", NODE, "address")


def test_a_registration_of_another_address_belongs_to_the_node_that_it_is_named_for(broker: Broker) -> None:
    key = RegistrationKey("postgresql-patroni", "h", f"cf-{NODE}", 5432)
    assert whose(broker, key, "10.0.0.9:1") == ("f1", NODE, "name")
    assert whose(broker, key._replace(container="cf-other"), "10.0.0.9:1") is None


def test_a_member_that_patroni_wrote_itself_is_found_by_its_address(store: Store, broker: Broker) -> None:
    """Patroni knows of no index: it writes its key, as a client of etcd does."""
    raw_key = f"/service/f1/members/{NODE}".encode()
    store.engine.commit(
        Commit(
            (), (Put(raw_key, b'{"conn_url":"postgres://10.0.0.7:5433/postgres","state":"running","role":"primary"}'),)
        )
    )
    key = RegistrationKey("postgresql-patroni", "h", f"cf-{NODE}", 5432)
    broker.registrations.put(key, "10.0.0.7:5433", lease=store.lease(60, keep_alive=False))
    assert whose(broker, key, "10.0.0.7:5433") == ("f1", NODE, "address")
    assert whose(broker, key._replace(container="cf-other"), "10.0.0.7:5433") == ("f1", NODE, "address")
    assert found(store) == []
    assert not mend(store, Fault(FaultKind.STALE_REGISTRATION, f"postgresql-patroni/h:cf-{NODE}:5432", ""))
    assert broker.registrations.exists(key)


def test_a_node_and_the_way_to_its_instance_come_and_go_in_one_revision(store: Store, broker: Broker) -> None:
    key = NodeKey("f1", "c65d2e1a-eb6b-401e-ac9b-195f8f942d26")
    raw_keys = [f"/serviceinstances/f1/nodes/{key.node}/backend".encode(), f"/_broker/nodes/{key.node}".encode()]
    broker.nodes.put(key, "10.244.21.8")
    with store.engine.snapshot() as snapshot:
        assert [entry and entry.mod_revision for entry in snapshot.get_many(raw_keys)] == [snapshot.revision] * 2
    before = store.revision
    broker.nodes.delete(key)
    with store.engine.snapshot() as snapshot:
        assert snapshot.get_many(raw_keys) == [None, None]
        assert snapshot.revision == before + 1


def test_stale_and_unresolved_registrations_are_found_and_removed(store: Store, broker: Broker, lease: Lease) -> None:
    moved = RegistrationKey("postgresql-patroni", "gone", f"cf-{NODE}", 5432)
    broker.registrations.put(moved, "10.0.0.9:1", lease=lease)
    broker.registrations.put(RegistrationKey("postgresql-patroni", "gone", "cf-x", 5432), "10.0.0.9:2", lease=lease)
    assert found(store) == [
        ("stale-registration", f"postgresql-patroni/gone:cf-{NODE}:5432"),
        ("unresolved-registration", "postgresql-patroni/gone:cf-x:5432"),
    ]
    assert mended(store) == [True, True]
    assert broker.registrations.count() == 1


def test_orphan_nodes_and_stale_orders_are_found_and_removed(store: Store, broker: Broker) -> None:
    broker.nodes.put(NodeKey("gone", "n9"), "c1")
    broker.orders.put(OrderKey("c1", "n9"), NodeOrder(instance="gone"))
    broker.orders.put(OrderKey("c1", "n8"), NodeOrder(instance="f1"))
    assert found(store) == [("orphan-node", "gone/n9"), ("stale-order", "c1/n8")]
    assert mended(store) == [True, True]
    assert list(broker.orders.keys()) == [OrderKey("c1", NODE)]
    assert found(store) == []


def test_a_lost_port_is_found_and_given_back(store: Store, broker: Broker) -> None:
    broker.allocations.put("gone", 33001)
    broker.replica_ports.put("gone", 34001)
    assert found(store) == [("lost-port", "gone")]
    assert mended(store) == [True]
    assert not broker.replica_ports.exists("gone")
    assert broker.instance_by_port.key_of(33001) is None


def test_a_port_whose_cluster_is_only_gone_for_a_moment_is_not_given_back(store: Store, broker: Broker) -> None:
    """Somebody has deleted all keys of a cluster that lives: Patroni writes them again at its next turn."""
    broker.allocations.put("theirs", 33001)
    broker.nodes.put(NodeKey("gone", "n9"), "c1")
    plan = diagnose(store)
    assert [fault.kind.value for fault in plan] == ["lost-port", "orphan-node"]
    with ThreadPoolExecutor(1) as pool:
        mending = pool.submit(mend_all, store, plan, lasting_seconds=60.0)
        broker.configurations.put("theirs", {"ttl": 30})
        broker.configurations.put("gone", {"ttl": 30})
        assert mending.result(30) == set()
    broker.configurations.delete("theirs")
    broker.configurations.delete("gone")
    assert mend_all(store, plan, lasting_seconds=0.0) == set(plan)


def test_bad_double_and_missing_ports_are_found(store: Store, broker: Broker) -> None:
    broker.operations.put("f5", Operation(id="o", kind="provision"))  # a step gives it one
    for instance in ("f2", "f3", "f4", "f5"):
        broker.instances.put(instance, InstanceState(instance_id=instance))
        broker.leaders.put(instance, "n", lease=store.lease(60, keep_alive=False))
    raw = (Put(b"/routing/allocation/f2", b"33006"), Put(b"/routing/allocation/f3", b"0"))
    store.engine.commit(Commit(mutations=raw))
    ports = [(kind, subject) for kind, subject in found(store) if "port" in kind]
    assert ports == [("bad-port", "f3"), ("missing-port", "f4"), ("port-index-wrong", "f2")]


def test_nextport_behind_is_found(store: Store, broker: Broker) -> None:
    store.engine.commit(Commit(mutations=(Put(b"/routing/nextport", b"33006"),)))
    assert found(store) == [("next-port-behind", "nextport")]


def test_a_dead_cell_and_a_cluster_without_leader_are_found_and_left_alone(
    store: Store, broker: Broker, lease: Lease
) -> None:
    broker.reports.put(OrderKey("c1", NODE), NodeReport(instance="f1", state="running"), lease=lease)
    lease.revoke()
    assert found(store) == [("no-leader", "f1"), ("node-on-dead-cell", f"f1/{NODE}")]
    assert mended(store) == [False, False]


def test_a_member_that_runs_and_follows_nobody_is_told(store: Store, broker: Broker, lease: Lease) -> None:
    """As a former leader that was not rewound: its PostgreSQL runs, on a timeline that has ended."""
    leading = broker.members.require(MemberKey("f1", NODE))
    leading.timeline = 4
    broker.members.put(MemberKey("f1", NODE), leading, lease=lease)
    members = {
        "a": Member(role="replica", state="running", replication_state="streaming", timeline=4),
        "b": Member(role="replica", state="running", replication_state="streaming", timeline=2),
        "c": Member(role="replica", state="running", timeline=4),
        "d": Member(role="replica", state="starting"),
    }
    for name, member in members.items():
        broker.members.put(MemberKey("f1", name), member, lease=lease)
    for name in (*members, "e"):
        broker.nodes.put(NodeKey("f1", name), "c1")
        broker.orders.put(OrderKey("c1", name), NodeOrder(instance="f1"))
    told = {fault.subject: fault.text.partition(";")[0] for fault in diagnose(store)}
    assert told == {
        "f1/b": f"it is on timeline 2, and the leader {NODE} on 4",
        "f1/c": f"it runs, and does not stream from the leader {NODE}",
        "f1/d": "it is starting",
        "f1/e": "it is no member of its cluster",
    }
    assert {fault.kind for fault in diagnose(store)} == {FaultKind.MEMBER_ASTRAY}
    assert mended(store) == [False] * 4
    broker.operations.put("f1", Operation(id="o", kind="update"))
    assert found(store) == []


def test_a_leader_without_a_record_and_a_member_of_nobody_are_found(store: Store, broker: Broker, lease: Lease) -> None:
    broker.members.put(MemberKey("f1", "stranger"), Member(state="running"), lease=lease)
    broker.leaders.put("f1", "ghost", lease=lease)
    assert found(store) == [("leader-without-member", "f1"), ("unknown-member", "f1/stranger")]


def test_no_password_is_told(store: Store, broker: Broker) -> None:
    broker.registrations.delete(RegistrationKey("postgresql-patroni", "h", f"cf-{NODE}", 5432))
    broker.allocations.put("gone", 33001)
    assert "secret" not in repr(diagnose(store))


def test_a_cluster_with_the_documents_keys_alone_keeps_its_port_and_its_placement(store: Store, lease: Lease) -> None:
    """A cluster that another broker made: no state, but members, a leader, nodes and a port."""
    broker = Broker(store)
    broker.cells.put("c1", Cell(), lease=lease)
    broker.nodes.put(NodeKey("theirs", NODE), "c1")
    broker.allocations.put("theirs", 33006)
    broker.leaders.put("theirs", NODE, lease=lease)
    broker.members.put(MemberKey("theirs", NODE), Member(role="master", state="running"), lease=lease)
    assert found(store) == [("next-port-behind", "nextport"), ("unknown-cluster", "theirs")] or found(store) == [
        ("unknown-cluster", "theirs")
    ]
    for kind in (FaultKind.LOST_PORT, FaultKind.ORPHAN_NODE):
        subject = "theirs" if kind is FaultKind.LOST_PORT else f"theirs/{NODE}"
        assert not mend(store, Fault(kind, subject, ""))
    assert (broker.allocations.count(), broker.nodes.count()) == (1, 1)


@pytest.mark.parametrize("left", ["initialize", "nodes", "members"])
def test_a_port_is_not_lost_while_anything_of_its_cluster_is_there(store: Store, lease: Lease, left: str) -> None:
    broker = Broker(store)
    broker.allocations.put("theirs", 33006)
    if left == "initialize":
        broker.initializations.put("theirs", "7710453740755543520")
    elif left == "nodes":
        broker.nodes.put(NodeKey("theirs", NODE), "c1")
    else:
        broker.members.put(MemberKey("theirs", NODE), Member(state="stopped"), lease=lease)
    assert ("lost-port", "theirs") not in found(store)
    assert not mend(store, Fault(FaultKind.LOST_PORT, "theirs", ""))


def test_a_node_that_a_cell_still_has_is_no_orphan(store: Store, lease: Lease) -> None:
    broker = Broker(store)
    broker.nodes.put(NodeKey("gone", "n9"), "c1")
    broker.reports.put(OrderKey("c1", "n9"), NodeReport(instance="gone", state="running"), lease=lease)
    assert found(store) == [("unknown-cluster", "gone")]
    assert not mend(store, Fault(FaultKind.ORPHAN_NODE, "gone/n9", ""))


def test_a_node_that_nobody_ordered_is_told_and_a_removal_order_is_not_stale(store: Store, broker: Broker) -> None:
    lease = store.lease(60, keep_alive=False)
    broker.reports.put(OrderKey("c1", "n9"), NodeReport(instance="f1", state="unordered"), lease=lease)
    broker.orders.put(OrderKey("c1", "n8"), NodeOrder(instance="f1", remove=True))
    assert found(store) == [("unordered-node", "c1/n9")]


DAMAGED = {
    "instances z": b"/serviceinstances/z/state",
    "operations z": b"/_broker/operations/z",
    "members z/m": b"/service/z/members/m",
    "orders c1/n": b"/_broker/orders/c1/n",
    "reports c1/n": b"/_broker/reports/c1/n",
    "cells c9": b"/_broker/cells/c9",
    "claims z": b"/_broker/claims/z",
    "routers r": b"/_broker/routers/r",
    "bindings z/b": b"/_broker/bindings/z/b",
}


@pytest.mark.parametrize("subject", DAMAGED)
def test_a_damaged_record_is_told_and_hides_no_other_fault(store: Store, broker: Broker, subject: str) -> None:
    broker.allocations.put("gone", 33001)
    store.engine.commit(Commit((), (Put(DAMAGED[subject], b"[1"),)))
    assert {("damaged-record", subject), ("lost-port", "gone")} <= set(found(store))
    (told,) = [fault for fault in diagnose(store) if fault.kind is FaultKind.DAMAGED_RECORD]
    assert f"`keyplan raw quarantine {DAMAGED[subject].decode()}` sets it aside" in told.text
    views = {view.instance: view for view in clusters(broker)}
    assert views["f1"].leader == NODE
    assert [each.guid for each in cell_loads(broker)] == ["c1"]


def test_a_damaged_record_is_named_in_its_cluster(store: Store, broker: Broker) -> None:
    store.engine.commit(Commit((), (Put(f"/service/f1/members/{NODE}".encode(), b"[1]"),)))
    (view,) = clusters(broker)
    assert view.damaged == [f"members f1/{NODE}"]
    assert view.leader == NODE


@pytest.mark.parametrize("damaged", ["members", "nodes"])
def test_no_registration_is_removed_while_it_may_be_that_of_a_damaged_record(
    store: Store, broker: Broker, damaged: str
) -> None:
    assert found(store) == []
    if damaged == "nodes":
        broker.members.delete(MemberKey("f1", NODE))
    else:
        broker.nodes.delete(NodeKey("f1", NODE))
    planted = [fault for fault in diagnose(store) if fault.kind.value.endswith("registration")]
    raw_key = (
        Broker.bound()
        .tables[damaged]
        .keys.encode(MemberKey("f1", NODE) if damaged == "members" else NodeKey("f1", NODE))
    )
    store.engine.commit(Commit((), (Put(raw_key, b"\xff"),)))
    assert not any(kind.endswith("registration") for kind, _ in found(store))
    key = RegistrationKey("postgresql-patroni", "h", f"cf-{NODE}", 5432)
    subject = f"{key.image}/{key.host}:{key.container}:{key.port}"
    kinds = (FaultKind.STALE_REGISTRATION, FaultKind.UNRESOLVED_REGISTRATION)
    stale = planted or [Fault(kind, subject, "as it was found before") for kind in kinds]
    assert [mend(store, fault) for fault in stale] == [False] * len(stale)
    assert broker.registrations.exists(key)


def test_a_damaged_number_and_an_index_that_is_not_built_end_no_diagnosis(store: Store, broker: Broker) -> None:
    bound = Broker.bound()
    store.engine.commit(Commit((), (Put(bound.counters["next_port"].raw_key, b"\xff"),)))
    prepare_index(store, bound, "instance_by_port")
    broker.leaders.delete("f1")
    assert found(store) == [
        ("damaged-record", "next_port"),
        ("no-leader", "f1"),
        ("port-index-wrong", "f1"),
    ]


def test_routers_that_give_ports_of_several_ranges_are_told_of(store: Store) -> None:
    broker = Broker(store)
    with store.lease(60, keep_alive=False) as lease:
        for name, gives in (("r1", "33000-33999"), ("r2", "33000-33999"), ("r3", "")):
            broker.routers.put(name, RouterReport(gives=gives), lease=lease)
        assert found(store) == []
        broker.routers.put("r3", RouterReport(gives="35000-35999"), lease=lease)
        (fault,) = diagnose(store)
    assert (fault.kind, fault.subject) == ("routers-disagree", "r1, r2, r3")
    assert "r3 35000-35999; start them with the same --ports" in fault.text


@pytest.mark.parametrize(
    "value", [b"", b"\x00", b"a/b", b"[" * 300], ids=["nothing", "a control", "a slash", "too long"]
)
@pytest.mark.parametrize(
    "key", ["/service/f0/leader", "/serviceinstances/f0/nodes/n1/backend", "/_broker/intents/f0/n1"]
)
def test_a_name_that_is_none_is_a_damaged_record_and_ends_no_look_at_others(
    store: Store, broker: Broker, key: str, value: bytes
) -> None:
    store.engine.commit(Commit((), (Put(key.encode(), value),)))
    assert [kind for kind, _ in found(store)] == ["damaged-record"]
    assert {view.instance: view.leader for view in clusters(broker)}["f1"] == NODE
    cell_loads(broker)
    observer = ClusterObserver(store, SYSTEM_CLOCK)
    observer.step()
    observer.close()
    assert broker.seen_clusters.require("f1").leader == NODE


@pytest.mark.parametrize("stanza", ["", "a/b", "a\n", "a" * 256], ids=["nothing", "a slash", "a line", "too long"])
def test_an_archive_of_no_possible_name_is_a_damaged_record_too(store: Store, broker: Broker, stanza: str) -> None:
    state = {"archive": {"stanza": stanza, "policy": {"repository": {"folder": "/srv"}}}}
    store.engine.commit(Commit((), (Put(b"/serviceinstances/f0/state", msgspec.json.encode(state)),)))
    assert "damaged-record" in [kind for kind, _ in found(store)]
    assert {view.instance: view.leader for view in clusters(broker)}["f1"] == NODE
