"""Figures of clusters, operations and routers for Prometheus, on the server's /metrics.

Labels take few values, but for the figures of each cluster and member, which are bounded. Gauges are read from one state of the
store whenever somebody asks for them; operations and events are counted as this broker ends and notes them.
"""

from collections import Counter as Tally
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from keyplan.apps.patroni.actions import ActionKind
from keyplan.apps.patroni.backups.plans import BACKUP_OPERATIONS
from keyplan.apps.patroni.catalog import NODES_MAX
from keyplan.apps.patroni.clusters import RUNNING, ClusterView, clusters
from keyplan.apps.patroni.event_records import EventKind
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.operations import FAILED, IN_PROGRESS
from keyplan.apps.patroni.ports import PortRange
from keyplan.apps.patroni.readable import readable
from keyplan.apps.patroni.records import Operation
from keyplan.apps.patroni.upgrades.plans import UPGRADE_OPERATIONS
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.errors import KeyplanError
from keyplan.store import Store

__all__ = ["OWN_FIGURES_MAX", "ClusterFigures", "EventMeters", "OperationMeters"]

_KINDS: Final = ("provision", "update", "deprovision", *ActionKind, *BACKUP_OPERATIONS, *UPGRADE_OPERATIONS)
OWN_FIGURES_MAX: Final = 500
"""Of how many clusters, the first by name, each has figures of its own. Why bounded: a scrape keeps every one of them apart."""

_SECONDS: Final = (1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 900.0)


class OperationMeters:
    """What this broker has carried out."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ended = Counter(
            "keyplan_patroni_operations_ended",
            "Operations that this broker has ended.",
            ("kind", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "keyplan_patroni_operation_seconds",
            "Time from an operation's beginning to its end, whoever began it.",
            ("kind",),
            buckets=_SECONDS,
            registry=registry,
        )

    def ended(self, operation: Operation) -> None:
        """An operation was ended here."""
        self._ended.labels(operation.kind, operation.status).inc()
        self._seconds.labels(operation.kind).observe(max(0.0, operation.ended_at - operation.begun_at))


class EventMeters:
    """What this broker has seen happen to clusters. Of several brokers, one counts each event."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seen = Counter(
            "keyplan_patroni_events",
            "Changes of leaders and members that this broker has noted.",
            ("kind",),
            registry=registry,
        )
        for kind in (EventKind.LEADER_CHANGED, EventKind.LEADER_LOST, EventKind.MEMBER_ASTRAY, EventKind.MEMBER_BACK):
            self._seen.labels(kind)

    def noted(self, kind: EventKind) -> None:
        """An event was noted here."""
        self._seen.labels(kind).inc()


class ClusterFigures(Collector):
    """What the store says now. Register it; reading blocks, and a store that cannot be read is a figure as well."""

    def __init__(self, store: Store, ports: PortRange, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._ports = ports
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        readable = GaugeMetricFamily("keyplan_patroni_store_readable", "1 when the figures of clusters could be read.")
        try:
            found = self._read()
        except KeyplanError:
            found = []
        readable.add_metric((), float(bool(found)))
        yield readable
        yield from found

    def _read(self) -> list[Metric]:
        with self._store.snapshot() as state:
            broker = Broker(state)
            views = list(clusters(broker))
            return [
                *_of_clusters(views),
                *_of_each_cluster(broker, views),
                *_of_backups(views, self._clock.wall()),
                *_of_operations(broker),
                *_of_places(broker, self._ports),
                *_of_routers(broker),
            ]


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"keyplan_patroni_{name}", text, value=value)


def _of_clusters(views: list[ClusterView]) -> Iterator[Metric]:
    yield _gauge("clusters", "Clusters, those that others made included.", len(views))
    leaderless = sum(not (view.leader or view.failsafe_leader) for view in views)
    yield _gauge("clusters_without_leader", "Clusters that nobody leads now.", leaderless)
    failsafe = sum(bool(view.failsafe_leader) for view in views)
    yield _gauge(
        "clusters_in_failsafe_mode", "Clusters that are led on without a leader key, as routers say.", failsafe
    )
    nodes = [node for view in views for node in view.nodes]
    members = GaugeMetricFamily("keyplan_patroni_members", "Members by whether PostgreSQL runs.", labels=("state",))
    running = sum(node.state in RUNNING for node in nodes)
    members.add_metric(("running",), running)
    members.add_metric(("other",), len(nodes) - running)
    yield members
    on_dead_cells = sum(bool(node.cell) and not node.cell_is_alive for node in nodes)
    yield _gauge("nodes_on_dead_cells", "Nodes whose cell is not alive.", on_dead_cells)
    lag = max((node.lag_bytes or 0 for node in nodes), default=0)
    yield _gauge("replication_lag_bytes_max", "How far the member that is behind most is behind its leader.", lag)


def _of_each_cluster(broker: Broker, views: list[ClusterView]) -> Iterator[Metric]:
    yield _gauge(
        "clusters_without_own_figures", "Clusters beyond the first by name.", max(0, len(views) - OWN_FIGURES_MAX)
    )
    has_leader = _own("cluster_has_leader", "1 when somebody leads the cluster.")
    timeline = _own("cluster_timeline", "The timeline of the cluster's leader: every promotion begins another.")
    event = _own("cluster_last_event_timestamp_seconds", "When the newest event of the cluster was noted.")
    lag = _own("member_lag_bytes", "How far a member is behind its leader.", "member")
    for view in views[:OWN_FIGURES_MAX]:
        has_leader.add_metric((view.instance,), float(bool(view.leader or view.failsafe_leader)))
        for key in broker.events.keys(view.instance, limit=1, reverse=True):
            event.add_metric((view.instance,), key.at / 1e9)
        # Why bounded: whoever has the cluster's token writes as many members as they like.
        for node in view.nodes[:NODES_MAX]:
            if node.name == view.leader and node.timeline is not None:
                timeline.add_metric((view.instance,), node.timeline)
            if node.lag_bytes is not None:
                lag.add_metric((view.instance, node.name), node.lag_bytes)
    yield from (has_leader, timeline, event, lag)


def _of_backups(views: list[ClusterView], now: float) -> Iterator[Metric]:
    """Of clusters that are backed up alone: one that has no backup has infinitely much to lose, and no time of one."""
    made = _own("cluster_last_backup_timestamp_seconds", "When the last sound backup of the cluster had ended.")
    verified = _own(
        "cluster_last_verified_backup_timestamp_seconds", "When the last backup that a restore was tried of had ended."
    )
    refuted = _own("cluster_verification_failed", "1 when the last backup that was verified could not be restored.")
    loss = _own("cluster_restore_loss_seconds", "The writes of how many seconds a restore would lose now.")
    for view in views[:OWN_FIGURES_MAX]:
        if view.archive is not None:
            loss.add_metric((view.instance,), view.archive.lost_seconds(now))
            if view.archive.backup:
                made.add_metric((view.instance,), view.archive.backup_at)
            if view.archive.verified:
                verified.add_metric((view.instance,), view.archive.verified_backup_at)
            refuted.add_metric((view.instance,), float(bool(view.archive.problem)))
    yield from (made, verified, refuted, loss)


def _own(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"keyplan_patroni_{name}", text, labels=("cluster", *labels))


def _of_operations(broker: Broker) -> Iterator[Metric]:
    under_way = list(broker.operations_by_status.keys(IN_PROGRESS))
    kinds = Tally(operation.kind for _, operation in readable(broker.operations_by_status.rows(IN_PROGRESS)))
    unclaimed = sum(not broker.claims.exists(instance) for instance in under_way)
    begun = GaugeMetricFamily("keyplan_patroni_operations_in_progress", "Operations under way.", labels=("kind",))
    for kind in _KINDS:
        begun.add_metric((kind,), kinds[kind])
    yield begun
    failed = sum(1 for _ in broker.operations_by_status.keys(FAILED))
    yield _gauge("instances_with_failed_operation", "Instances whose last operation has failed.", failed)
    yield _gauge("operations_unclaimed", "Operations under way that no broker works on.", unclaimed)


def _of_places(broker: Broker, ports: PortRange) -> Iterator[Metric]:
    yield _gauge("cells", "Cells that are alive.", sum(1 for _ in broker.cells.keys()))  # noqa: SIM118  # a table
    yield _gauge("bindings", "Bindings.", sum(1 for _ in broker.bindings.keys()))  # noqa: SIM118  # a table
    taken = sum(ports.first <= port <= ports.last for _, port in readable(broker.allocations.rows()))
    yield _gauge("ports_free", "Public ports that no instance has.", ports.last - ports.first + 1 - taken)


def _of_routers(broker: Broker) -> Iterator[Metric]:
    reports = [report for _, report in readable(broker.routers.rows())]
    yield _gauge("routers", "Routers that are alive.", len(reports))
    led = GaugeMetricFamily(
        "keyplan_patroni_router_ports", "Ports of all routers by where they lead.", labels=("state",)
    )
    led.add_metric(("leading",), sum(report.leading for report in reports))
    led.add_metric(("pending",), sum(report.pending for report in reports))
    led.add_metric(("closed",), sum(report.ports - report.leading - report.pending for report in reports))
    yield led
    switches = sum(report.switches for report in reports)
    yield _gauge("router_switches", "How often living routers have led a port elsewhere since they began.", switches)
