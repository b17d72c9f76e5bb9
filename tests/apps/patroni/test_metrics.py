"""Figures of clusters, operations and routers: what stands on /metrics is what stands in the store."""

from math import inf

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from keyplan.apps.patroni import (
    BookKey,
    Broker,
    Cell,
    Event,
    EventKey,
    InstanceState,
    Member,
    MemberKey,
    NodeKey,
    NodeReport,
    Operation,
    OrderKey,
    RouterReport,
)
from keyplan.apps.patroni.actions import ActionKind
from keyplan.apps.patroni.backups.plans import BACKUP_OPERATIONS
from keyplan.apps.patroni.backups.records import (
    Archive,
    ArchiveState,
    Backup,
    BackupBook,
    BackupPolicy,
    Repository,
    Verification,
)
from keyplan.apps.patroni.catalog import NODES_MAX
from keyplan.apps.patroni.metrics import OWN_FIGURES_MAX, ClusterFigures, OperationMeters
from keyplan.apps.patroni.ports import PortRange
from keyplan.apps.patroni.upgrades.plans import UPGRADE_OPERATIONS
from keyplan.engine import SYSTEM_CLOCK, MemoryEngine
from keyplan.store import Store, open_store
from keyplan.testing.faults import FailingEngine
from tests.apps.patroni.conftest import Deployment
from tests.apps.patroni.osb_platform import SOLO
from tests.servers.patroni import until

OTHERS = (*BACKUP_OPERATIONS, *UPGRADE_OPERATIONS)


def figures(text: str) -> dict[str, float]:
    """The samples of keyplan's own figures, by their name with labels."""
    lines = [line for line in text.splitlines() if line.startswith("keyplan_")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def backup(label: str, ended_at: float) -> Backup:
    return Backup(label=label, kind="full", began_at=ended_at - 5, ended_at=ended_at)


def told(store: Store) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(ClusterFigures(store, PortRange(33000, 33009)))
    return figures(generate_latest(registry).decode())


def test_figures_tell_clusters_operations_ports_and_routers() -> None:
    with open_store("memory:") as store:
        broker, lease = Broker(store), store.lease(600, keep_alive=False)
        broker.cells.put("c1", Cell(), lease=lease)
        for instance, port in (("f1", 33000), ("f2", 33001), ("f3", 40000)):
            broker.instances.put(instance, InstanceState(instance_id=instance))
            broker.allocations.put(instance, port)
        broker.leaders.put("f1", "n1", lease=lease)
        for node, cell, role, state, position in (
            ("n1", "c1", "primary", "running", 500),
            ("n2", "dead", "replica", "streaming", 380),
            ("n3", "c1", "replica", "starting", 499),
        ):
            broker.nodes.put(NodeKey("f1", node), cell)
            member = Member(role=role, state=state, xlog_location=position, timeline=7)
            broker.members.put(MemberKey("f1", node), member, lease=lease)
        broker.operations.put("f2", Operation(id="u", kind="update"))
        broker.operations.put("f3", Operation(id="p", kind="provision", status="failed"))
        broker.events.put(EventKey("f2", 1_000_000_000, "x"), Event(kind="leader-changed"))
        broker.events.put(EventKey("f2", 1_500_000_000, "y"), Event(kind="leader-lost"))
        broker.routers.put("r1", RouterReport(by="haproxy", ports=3, leading=1, pending=1, switches=4), lease=lease)
        broker.routers.put(
            "r2", RouterReport(ports=3, leading=2, switches=1, failsafe={"f1": "n1", "f3": "n1"}), lease=lease
        )
        archive = Archive(stanza="f1-ab", policy=BackupPolicy(repository=Repository(folder="/srv")))
        tried = {"w": Verification(verified_at=80.0), "x": Verification(verified_at=110.0, problem="it is torn")}
        for instance, made in (("f1", [backup("w", 70.0), backup("x", 100.0)]), ("f2", [])):
            broker.instances.put(instance, InstanceState(instance_id=instance, archive=archive))
            broker.backup_books.put(
                BookKey(instance, archive.stanza), BackupBook(archive=archive, backups=made, verifications=tried)
            )
        archived = ArchiveState(stanza="f1-ab", last_wal="0" * 24, safe_until=SYSTEM_CLOCK.wall() - 30)
        broker.reports.put(OrderKey("c1", "n1"), NodeReport(instance="f1", archive=archived), lease=lease)
        prefix = "keyplan_patroni_"
        assert {name.removeprefix(prefix): value for name, value in told(store).items()} == {
            "store_readable": 1,
            "clusters": 3,
            "clusters_without_leader": 1,
            "clusters_in_failsafe_mode": 1,
            **{f'members{{state="{state}"}}': count for state, count in (("running", 2), ("other", 1))},
            "nodes_on_dead_cells": 1,
            "replication_lag_bytes_max": 120,
            'operations_in_progress{kind="provision"}': 0,
            'operations_in_progress{kind="update"}': 1,
            'operations_in_progress{kind="deprovision"}': 0,
            **{f'operations_in_progress{{kind="{kind}"}}': 0 for kind in (*ActionKind, *OTHERS)},
            "instances_with_failed_operation": 1,
            "clusters_without_own_figures": 0,
            **{f'cluster_has_leader{{cluster="{name}"}}': led for name, led in (("f1", 1), ("f2", 0), ("f3", 1))},
            'cluster_timeline{cluster="f1"}': 7,
            'cluster_last_backup_timestamp_seconds{cluster="f1"}': 100,
            'cluster_last_verified_backup_timestamp_seconds{cluster="f1"}': 70,
            'cluster_verification_failed{cluster="f1"}': 1,
            'cluster_verification_failed{cluster="f2"}': 0,
            'cluster_restore_loss_seconds{cluster="f1"}': pytest.approx(30, abs=60),
            'cluster_restore_loss_seconds{cluster="f2"}': inf,
            'cluster_last_event_timestamp_seconds{cluster="f2"}': 1.5,
            'member_lag_bytes{cluster="f1",member="n1"}': 0,
            'member_lag_bytes{cluster="f1",member="n2"}': 120,
            'member_lag_bytes{cluster="f1",member="n3"}': 1,
            "operations_unclaimed": 1,
            "cells": 1,
            "bindings": 0,
            "ports_free": 8,
            "routers": 2,
            'router_ports{state="leading"}': 3,
            'router_ports{state="pending"}': 1,
            'router_ports{state="closed"}': 2,
            "router_switches": 5,
        }


def test_so_many_clusters_have_figures_of_their_own_and_the_others_are_counted() -> None:
    with open_store("memory:") as store:
        for number in range(OWN_FIGURES_MAX + 2):
            Broker(store).allocations.put(f"f{number:04}", 40_000 + number)
        found = told(store)
        own = [name for name in found if name.startswith("keyplan_patroni_cluster_has_leader")]
        assert (len(own), found["keyplan_patroni_clusters_without_own_figures"]) == (OWN_FIGURES_MAX, 2)


def test_so_many_members_of_a_cluster_have_figures_of_their_own() -> None:
    with open_store("memory:") as store, store.lease(600, keep_alive=False) as lease:
        broker = Broker(store)
        broker.leaders.put("f1", "m000", lease=lease)
        for number in range(NODES_MAX + 5):
            broker.members.put(
                MemberKey("f1", f"m{number:03}"), Member(role="replica", state="running", xlog_location=7), lease=lease
            )
        own = [name for name in told(store) if name.startswith("keyplan_patroni_member_lag_bytes")]
        assert len(own) == NODES_MAX


def test_operations_are_counted_and_timed_as_they_end() -> None:
    registry = CollectorRegistry()
    meters = OperationMeters(registry)
    meters.ended(Operation(id="1", kind="provision", status="success", begun_at=100.0, ended_at=104.0))
    meters.ended(Operation(id="2", kind="provision", status="failed", begun_at=100.0, ended_at=99.0))
    found = figures(generate_latest(registry).decode())
    assert found['keyplan_patroni_operations_ended_total{kind="provision",status="success"}'] == 1
    assert found['keyplan_patroni_operations_ended_total{kind="provision",status="failed"}'] == 1
    assert found['keyplan_patroni_operation_seconds_sum{kind="provision"}'] == 4
    assert found['keyplan_patroni_operation_seconds_bucket{kind="provision",le="5.0"}'] == 2


def test_a_store_that_cannot_be_read_is_a_figure() -> None:
    with FailingEngine(MemoryEngine(), at_step=1) as engine:
        assert told(Store(engine)) == {"keyplan_patroni_store_readable": 0}


@pytest.mark.slow
def test_a_servers_metrics_show_its_broker(deployed: Deployment) -> None:
    assert deployed.platform.provision("measured", SOLO).status_code == 202
    assert deployed.platform.ended("measured")["state"] == "succeeded"
    found: dict[str, float] = {}

    def leaders_seen() -> float:
        found.update(figures(httpx.get(f"{deployed.server.url}/metrics").text))
        return found['keyplan_patroni_events_total{kind="leader-changed"}']

    until(lambda: leaders_seen() == 1, 60, lambda: f"the broker notes who leads: {found}")
    kinds = [event.kind for _, event in deployed.broker.events.list("measured")]
    assert sorted(kinds) == ["leader-changed", "operation-begun", "operation-ended", "port-given"]
    assert found["keyplan_patroni_store_readable"] == 1
    assert found["keyplan_patroni_clusters"] == 1
    assert found["keyplan_patroni_clusters_without_leader"] == 0
    assert found["keyplan_patroni_ports_free"] == 199
    assert found['keyplan_patroni_operations_ended_total{kind="provision",status="success"}'] == 1
