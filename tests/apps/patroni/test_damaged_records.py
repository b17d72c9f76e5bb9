"""Each field of each record as somebody could have written it who shares the store: whoever looks at all clusters goes on.

Of one cluster all that there can be is in the store, and it is damaged in one place at a time; the other one is looked at.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from keyplan import Secret
from keyplan.apps.patroni import (
    Binding,
    BindingKey,
    BookKey,
    Broker,
    Cell,
    Claim,
    Credentials,
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
    Step,
)
from keyplan.apps.patroni.backups.records import (
    Archive,
    ArchiveState,
    Backup,
    BackupBook,
    BackupPolicy,
    NodeTask,
    Recovery,
    Repository,
    Span,
    TaskAnswer,
    Verification,
)
from keyplan.apps.patroni.backups.schedule import BackupSchedule
from keyplan.apps.patroni.cluster_observer import ClusterObserver
from keyplan.apps.patroni.clusters import cell_loads, clusters
from keyplan.apps.patroni.diagnosis import diagnose
from keyplan.apps.patroni.event_records import Event, SeenCluster
from keyplan.apps.patroni.events import newest_events
from keyplan.apps.patroni.layout import EventKey
from keyplan.apps.patroni.mending import mend_all
from keyplan.apps.patroni.metrics import ClusterFigures
from keyplan.apps.patroni.ports import PortRange
from keyplan.apps.patroni.records import Failover, FormerCluster, NodeState, Status, StoreIdentity, Sync
from keyplan.apps.patroni.report import REPORT
from keyplan.apps.patroni.router_agent import Router
from keyplan.apps.patroni.scheduling import cells_in_order, version_of_new
from keyplan.apps.patroni.top_view import lines_of
from keyplan.apps.patroni.upgrades.records import Upgrade
from keyplan.engine import SYSTEM_CLOCK, Commit, Put
from keyplan.store import Lease, Store, open_store
from tests.apps.patroni.test_router_agent import Board

NAME, WHOLE_NUMBER, NUMBER = "a/b", 2**62, 1e300
WHOLE = [b"", b"null", b"{}", b"[" * 3_000, b"a/b"]
LOGIN = Credentials(username="u", password=Secret("p"))
BACKUP = Backup(label="F", kind="full", began_at=10, ended_at=20, first_wal="0" * 24, last_wal="0" * 24)


def write(broker: Broker, name: str, lease: Lease) -> None:
    """All that there can be of a cluster of one node that leads."""
    node = f"{name}-n1"
    archive = Archive(stanza=f"{name}-ab", policy=BackupPolicy(repository=Repository(folder="/srv")))
    recovery = Recovery(archive=archive, label="F", target="2026-01-01 00:00:00+00", version="15")
    former = FormerCluster(nodes={"x1": "c1"}, leader="x1", version="15", archive=archive, laid_aside_at=5.0)
    state = InstanceState(
        instance_id=name,
        plan_id="p",
        allocated_port=1,
        cells=["c1"],
        node_count=1,
        version="15",
        archive=archive,
        recovery=recovery,
        former=former,
        nodes=[NodeState(node_id="a")],
        upgrade=Upgrade(former_version="14", version="15", node="x1"),
        store_credentials=LOGIN,
        former_store_credentials=LOGIN,
        rotated_at={"token": 5.0},
    )
    broker.instances.put(name, state)
    broker.operations.put(name, Operation(id="o", kind="move", status="success", steps=[Step(kind="add", node="x")]))
    broker.allocations.put(name, 33_001 + (name == "f1"))
    broker.replica_ports.put(name, 33_003 + (name == "f1"))
    broker.nodes.put(NodeKey(name, node), "c1")
    broker.node_intents.put(NodeKey(name, f"{name}-n2"), "c1")
    broker.orders.put(OrderKey("c1", node), NodeOrder(instance=name, archive=archive, recovery=recovery))
    archived = ArchiveState(stanza=archive.stanza, last_wal="0" * 24, safe_until=3, waiting=1, waiting_since=2)
    said = NodeReport(instance=name, state="running", address="h:1", version="15", archive=archived)
    broker.reports.put(OrderKey("c1", node), said, lease=lease)
    place = f"10.0.0.1:{5_000 + (name == 'f1')}"
    member = Member(role="primary", state="running", conn_url=Secret(f"postgres://{place}/postgres"), timeline=3)
    member.api_url, member.xlog_location, member.version = "http://10.0.0.1:8008/patroni", 5, "4"
    broker.members.put(MemberKey(name, node), member, lease=lease)
    broker.leaders.put(name, node, lease=lease)
    broker.registrations.put(RegistrationKey("postgresql-patroni", "h", f"cf-{node}", 5432), place, lease=lease)
    broker.initializations.put(name, "73")
    broker.configurations.put(name, {"failsafe_mode": True, "pause": False})
    broker.statuses.put(name, Status(optime=5, slots={"a": 5}))
    broker.histories.put(name, [[1, 5, "why", "2020-01-01T00:00:00+00:00", node]])
    broker.failovers.put(name, Failover(leader=node, member="x"))
    broker.syncs.put(name, Sync(leader=node, sync_standby="x"))
    broker.failsafes.put(name, {node: "http://10.0.0.1:8008/patroni"})
    broker.optimes.put(name, 5)
    broker.tasks.put(OrderKey("c1", node), NodeTask(id="t", kind="backup", archive=archive, wanted="full"))
    broker.task_answers.put(OrderKey("c1", node), TaskAnswer(id="t", backups=[BACKUP]))
    tried = {"F": Verification(verified_at=5, problem="torn")}
    book = BackupBook(archive=archive, backups=[BACKUP], verifications=tried, spans=[Span(since=1)], looked_at=5)
    broker.backup_books.put(BookKey(name, archive.stanza), book)
    broker.claims.put(name, Claim(broker="b", operation="o"), lease=lease)
    broker.bindings.put(BindingKey(name, "b1"), Binding(service_id="s", plan_id="p", credentials=LOGIN))
    broker.events.put(EventKey(name, 10**18, "x"), Event(kind="leader-changed", member=node))
    broker.seen_clusters.put(name, SeenCluster(leader=node, is_led=True, astray={"n2": "x"}))


def made() -> tuple[Store, Lease]:
    store = open_store("memory:")
    lease, broker = store.lease(600, keep_alive=False), Broker(store)
    for name in ("f0", "f1"):
        write(broker, name, lease)
    broker.next_port.advance_to(33_010)
    broker.cells.put("c1", Cell(versions=["15"]), lease=lease)
    broker.identities.put("identity", StoreIdentity(id="i"))
    broker.routers.put("r1", RouterReport(by="haproxy", gives="33000-34000", failsafe={"f0": "f0-n1"}), lease=lease)
    return store, lease


def look(store: Store) -> None:
    """Whatever looks at all clusters, or at all cells."""
    broker, ports = Broker(store), PortRange(33_000, 34_000)
    views = {view.instance: view for view in clusters(broker)}
    assert (views["f1"].leader, views["f1"].version) == ("f1-n1", "15")
    lines_of([*views.values()], now=5.0)
    version_of_new(cell_loads(broker))
    cells_in_order(cell_loads(broker))
    assert "clusters" in "".join(metric.name for metric in ClusterFigures(store, ports).collect())
    REPORT.sections(store, 5.0, "")
    newest_events(broker, count=100)
    with closing(ClusterObserver(store, SYSTEM_CLOCK)) as observer:
        observer.step()
    with closing(Router(store, board := Board(), name="r2")) as router:
        router.step()
        router.leave()
    assert "f1" in {route.instance for route in board.routes}
    mend_all(store, diagnose(store), lasting_seconds=0.0)
    BackupSchedule(store, SYSTEM_CLOCK).begin_due()


def damaged(value: Any) -> Iterator[Any]:
    """Each value with one name, key or number in it that is none."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from ({**value, name: bad} for bad in damaged(part))
            yield {**{other: kept for other, kept in value.items() if other != name}, NAME: part}
    elif isinstance(value, list):
        for at, part in enumerate(value):
            yield from ([*value[:at], bad, *value[at + 1 :]] for bad in damaged(part))
    elif value is not None:
        yield NAME if isinstance(value, str) else WHOLE_NUMBER if isinstance(value, int) else NUMBER


@pytest.mark.parametrize("table", sorted(Broker.spec.tables))
def test_one_damaged_record_keeps_nobody_from_looking_at_the_others(table: str) -> None:
    store, _ = made()
    keys = [Broker.bound().tables[table].keys.encode(row.key) for row in Broker(store).view(table).rows()]
    (key,) = (key for key in keys if len(keys) == 1 or b"f0" in key)
    with store.engine.snapshot() as state:
        found = state.get(key)
    assert found is not None
    try:
        value = msgspec.json.decode(found.value)
    except msgspec.DecodeError:
        value = None
    for raw in [*WHOLE, *map(msgspec.json.encode, damaged(value))]:
        store, _ = made()
        store.engine.commit(Commit((), (Put(key, raw),)))
        print(raw[:2_000])  # the last one is what it ended on
        look(store)
