"""What is known of clusters, read from one state: who leads, whose container is this, how full is each cell.

The document has "no cluster-level information" beside a registration; here it is, by address or by name (1.6 (5)).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Final, NamedTuple

from msgspec import Struct

from keyplan.apps.patroni.backups.view import ArchiveView, archive_view, former_text
from keyplan.apps.patroni.dynamic_configuration import is_on
from keyplan.apps.patroni.layout import OUTSIDE, Broker, MemberKey, NodeKey, OrderKey, RegistrationKey
from keyplan.apps.patroni.readable import readable, readable_of
from keyplan.apps.patroni.records import InstanceState, Member, Operation
from keyplan.apps.patroni.scheduling import CellLoad
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import CorruptionError
from keyplan.operations import Schema

__all__ = [
    "CONTAINER_PREFIX",
    "RUNNING",
    "Advertised",
    "Belonging",
    "ClusterView",
    "NodeView",
    "advertised_addresses",
    "belonging_of",
    "cell_loads",
    "cells_away",
    "clusters",
    "failsafe_leaders",
    "is_failsafe",
    "leader_of",
    "member_of",
    "members_astray",
    "outside_nodes",
    "role_of",
    "staying_outside",
]

CONTAINER_PREFIX: Final = "cf-"
"""A cell names the container of a node so, followed by the node's name."""

RUNNING: Final = frozenset({"running", "streaming"})
"""The states of a member whose PostgreSQL runs."""


class Belonging(NamedTuple):
    """Which instance a registered container belongs to, and by what that was found: `address` or `name`."""

    instance: str
    node: str
    found_by: str


Advertised = Mapping[str, Sequence[MemberKey]]
"""The members at each address, `host:port`, as their own records say."""


def advertised_addresses(broker: Broker) -> Advertised:
    """Return who advertises which address.

    Why not by the index: Patroni writes its members by itself, and the index has those alone that keyplan wrote.
    """
    found: dict[str, list[MemberKey]] = {}
    for key in broker.members.keys():  # noqa: SIM118  # a table, and no dictionary
        member = member_of(broker, *key)
        if member is not None and member.address is not None:
            found.setdefault(member.address, []).append(key)
    return found


def belonging_of(broker: Broker, key: RegistrationKey, address: str, advertised: Advertised) -> Belonging | None:
    """Return whom a registration belongs to: the member that advertises its address, else the node its container is named for.

    None: nobody knows it. Where several members advertise one address, as one that has moved may for a while, the first counts
    whose instance has a node of that name.
    """
    found = advertised.get(address, ())
    if found:
        known = [member for member in found if broker.nodes.exists(NodeKey(*member))]
        member = (known or found)[0]
        return Belonging(member.cluster, member.member, "address")
    node = broker.node_by_name.key_of(key.container.removeprefix(CONTAINER_PREFIX))
    return None if node is None else Belonging(node.instance, node.node, "name")


def leader_of(broker: Broker, instance: str) -> tuple[str, Member] | None:
    """Return the name and record of the member that leads; None while nobody does, or the leader has no record."""
    name = broker.leaders.get(instance)
    if name is None:
        return None
    member = member_of(broker, instance, name)
    return None if member is None else (name, member)


def member_of(broker: Broker, instance: str, name: str) -> Member | None:
    """Return a member's record; None when it is absent or cannot be read."""
    try:
        return broker.members.get(MemberKey(instance, name))
    except CorruptionError:
        return None


def members_astray(broker: Broker, instance: str, names: Collection[str]) -> dict[str, str]:
    """Return which of these members cannot be counted on, with what is wrong with each, in words.

    Who leads must take writes, and everybody else stream from the leader on its timeline. Why not by their state: PostgreSQL
    runs as well where it can follow nobody, as in a former leader that is not rewound yet, and a killed member's record stays
    until its lease ends. The broker is of one state, or a leader and followers of different moments would be compared.
    """
    found = leader_of(broker, instance)
    if found is None:
        return dict.fromkeys(names, "nobody leads its cluster")
    problems = {name: _astray(name, member_of(broker, instance, name), *found) for name in names}
    return {name: problem for name, problem in problems.items() if problem}


def _astray(name: str, member: Member | None, leader: str, leading: Member) -> str:
    if member is None:
        return "it is no member of its cluster"
    if member.state not in RUNNING:
        return f"it is {member.state or 'in no state'}"
    if name == leader:
        return "" if member.is_primary else "it leads, and takes no writes yet"
    if "streaming" not in {member.state, member.replication_state}:
        return f"it runs, and does not stream from the leader {leader}"
    if member.timeline != leading.timeline:
        return f"it is on timeline {member.timeline}, and the leader {leader} on {leading.timeline}"
    return ""


def is_failsafe(broker: Broker, instance: str) -> bool:
    """Whether a cluster's leader goes on without its store, as long as all members answer it."""
    return is_on((readable_of(broker.configurations, instance) or {}).get("failsafe_mode"))


def outside_nodes(broker: Broker, instance: str) -> list[str]:
    """Return the nodes of an instance that no cell runs: ours can ask their Patroni, and neither start nor stop them."""
    return [key.node for key, cell in readable(broker.nodes.rows(instance)) if cell == OUTSIDE]


def staying_outside(placed: Collection[str], allowed: Collection[str]) -> int:
    """Return how many of an instance's nodes, given by their cells, need no cell: where cells are named, all come to those."""
    return 0 if allowed else sum(cell == OUTSIDE for cell in placed)


def cell_loads(broker: Broker) -> list[CellLoad]:
    """Return every cell that is alive, by name, with the nodes placed on it or ordered of it, all as of one state."""
    loads = Counter(cell for _, cell in readable(broker.nodes.rows()))
    intents = readable(broker.node_intents.rows())
    loads.update(cell for key, cell in intents if not broker.nodes.exists(key))
    return [
        CellLoad(guid, cell.availability_zone, loads[guid], cell.capacity, cell.is_draining, tuple(cell.versions))
        for guid, cell in readable(broker.cells.rows())
    ]


def cells_away(broker: Broker, instance: str) -> list[str]:
    """Return which cells of an instance's nodes are not alive, by name: their nodes are told nothing until they are back."""
    return sorted({cell for _, cell in broker.nodes.list(instance)} - {*broker.cells.keys(), OUTSIDE})


class NodeView(Struct, frozen=True):
    """A node of a cluster, or a member that no node is known of (`cell` is empty then)."""

    schema_name: ClassVar[str] = "BrokerNode"
    name: str
    cell: str
    cell_is_alive: bool
    role: str
    state: str
    address: str
    lag_bytes: int | None
    report: str
    timeline: int | None
    is_restart_pending: Annotated[bool, Schema("Patroni says that a setting waits for its restart.")]


class ClusterView(Struct, frozen=True):
    """An instance and its cluster as the store tells it."""

    schema_name: ClassVar[str] = "BrokerCluster"
    instance: str
    plan_id: str
    port: int | None
    replica_port: int | None
    leader: str
    failsafe_leader: Annotated[
        str, Schema("Who leads it on in failsafe mode, without the leader key, as a router says; else empty.")
    ]
    is_paused: bool
    nodes: list[NodeView]
    operation: str
    message: str
    archive: Annotated[ArchiveView | None, Schema("Its backups; null where it is not backed up.")]
    former: Annotated[str, Schema("Which cluster it was restored in the place of, while that is kept; else empty.")]
    damaged: Annotated[list[str], Schema("The records of it that cannot be read, as table and key.")]
    version: Annotated[
        str, Schema("The major version of PostgreSQL that it is of now; empty while nobody has said so.")
    ]


def clusters(broker: Broker, *, after: str = "") -> Iterator[ClusterView]:
    """Yield every instance, by id: those that the broker made, and Patroni's clusters beside them. `after` begins behind one.

    A record that cannot be read is named in its cluster's `damaged`, and counts as absent.
    """
    names = {*broker.instances.keys(), *broker.allocations.keys(), *(key.cluster for key in broker.members.keys())}  # noqa: SIM118
    alive = set(broker.cells.keys())
    failsafe = failsafe_leaders(broker)
    for name in sorted(name for name in names if name > after):
        yield _cluster(broker, name, alive, failsafe)


def role_of(view: ClusterView, node: NodeView) -> str:
    """Return the role of a node in words."""
    if node.name == view.leader:
        return "leader"
    return "leader in failsafe mode" if node.name == view.failsafe_leader else node.role


def failsafe_leaders(broker: Broker) -> dict[str, str]:
    """Return who leads on in failsafe mode, by cluster, as living routers say. Whoever holds a leader key leads alone."""
    # Why no look at leaders here: a router's record may be anybody's, and what it names be no name of a cluster.
    return {name: leader for _, report in readable(broker.routers.rows()) for name, leader in report.failsafe.items()}


def _cluster(broker: Broker, instance: str, alive: set[str], failsafe: Mapping[str, str]) -> ClusterView:
    damaged: list[str] = []

    def note(key: object, error: CorruptionError) -> None:
        words = "/".join(map(str, key)) if isinstance(key, tuple) else str(key)
        damaged.append(f"{error.facts.get('table', '')} {words}".strip())

    state: InstanceState | None = readable_of(broker.instances, instance, note)
    operation = readable_of(broker.operations, instance, note) or Operation(id="", kind="", status="")
    placed = {key.node: cell for key, cell in readable(broker.nodes.rows(instance), note)}
    found = readable(broker.members.rows(instance), note)
    members = {key.member: member for key, member in found}
    leader = readable_of(broker.leaders, instance, note) or ""
    head = members[leader].xlog_location if leader in members else None
    nodes = [
        _node(broker, NodeKey(instance, name), placed.get(name, ""), members.get(name), head, alive)
        for name in sorted({*placed, *members})
    ]
    return ClusterView(
        instance,
        state.plan_id if state is not None else "",
        readable_of(broker.allocations, instance, note),
        readable_of(broker.replica_ports, instance, note),
        leader,
        "" if broker.leaders.exists(instance) else failsafe.get(instance, ""),
        is_on((readable_of(broker.configurations, instance, note) or {}).get("pause")),
        nodes,
        f"{operation.kind} {operation.status}".strip(),
        operation.message,
        archive_view(broker, instance, state.archive, SYSTEM_CLOCK.wall())
        if state is not None and state.archive is not None
        else None,
        former_text(state) if state is not None else "",
        damaged,
        (state.version if state is not None else "") or _told_version(broker, leader, placed.get(leader, "")),
    )


def _told_version(broker: Broker, node: str, cell: str) -> str:
    """Return the version that the cell of a node says its data are of; empty where it says nothing."""
    report = readable_of(broker.reports, OrderKey(cell, node)) if cell else None
    return report.version if report is not None else ""


def _node(
    broker: Broker, key: NodeKey, cell: str, member: Member | None, head: int | None, alive: set[str]
) -> NodeView:
    name = key.node
    report = readable_of(broker.reports, OrderKey(cell, name)) if cell else None
    position = member.xlog_location if member is not None else None
    lag = max(0, head - position) if head is not None and position is not None else None
    return NodeView(
        name=name,
        cell=cell,
        cell_is_alive=cell in alive or cell == OUTSIDE,
        role=member.role if member is not None else "",
        state=member.state if member is not None else "",
        address=(member.address or "") if member is not None else "",
        lag_bytes=lag,
        report=report.state if report is not None else "",
        timeline=member.timeline if member is not None else None,
        is_restart_pending=member is not None and is_on(member.unknown.get("pending_restart")),
    )
