"""The keys of a Patroni broker: what Patroni, the registrar, the router and the broker write into one store.

The document's four top-level directories, and `/_broker` for what the broker derives. Rulings (1.6, ...) are in README.md.
Records are in records.py.
"""

from typing import Annotated, Final, NamedTuple

from keyplan.apps.patroni.backups.records import BackupBook, NodeTask, TaskAnswer
from keyplan.apps.patroni.event_records import Event, SeenCluster
from keyplan.apps.patroni.records import (
    Binding,
    Cell,
    Claim,
    Failover,
    FailoverForm,
    InstanceState,
    Member,
    NodeOrder,
    NodeReport,
    OpenJson,
    Operation,
    RouterReport,
    Status,
    StoreIdentity,
    Sync,
)
from keyplan.codec import Decimal, Text, TimestampText
from keyplan.layout import Counter, Index, Layout, Table, Unique, Waiver

__all__ = [
    "DEFAULT_IMAGE",
    "OUTSIDE",
    "STORE_IDENTITY",
    "BindingKey",
    "BookKey",
    "Broker",
    "EventKey",
    "MemberKey",
    "NodeKey",
    "OrderKey",
    "RegistrationKey",
]

DEFAULT_IMAGE: Final = "postgresql-patroni"
"""The image whose containers are PostgreSQL clusters, unless the operator says otherwise."""


OUTSIDE: Final = "outside"
"""Where a node is placed that no cell of ours runs: it was there when its cluster was adopted. No cell has this name."""

STORE_IDENTITY: Final = "identity"
"""The name of the only record of `identities`."""


class MemberKey(NamedTuple):
    """A Patroni process: the name of its cluster and its own."""

    cluster: str
    member: str


class RegistrationKey(NamedTuple):
    """A port inside a container. Neither the host nor the container's name holds a colon, so that the key reads one way."""

    image: Annotated[str, Text(exclude=":/", reserved="_broker routing service serviceinstances")]
    host: Annotated[str, Text(exclude=":/")]
    container: Annotated[str, Text(exclude=":/")]
    port: Annotated[int, Decimal(least=1, most=65535)]


class NodeKey(NamedTuple):
    """A node of a service instance."""

    instance: str
    node: str


class OrderKey(NamedTuple):
    """A node on a cell: what is ordered of the cell, and what it reports."""

    cell: str
    node: str


class BookKey(NamedTuple):
    """The backups of one cluster: its instance, and pgBackRest's name of its archive."""

    instance: str
    stanza: str


class BindingKey(NamedTuple):
    """A binding of a service instance."""

    instance: str
    binding: str


class EventKey(NamedTuple):
    """Something that happened to a cluster: when, in nanoseconds of Unix time by the clock of who noted it, and which."""

    cluster: str
    at: Annotated[int, TimestampText()]
    id: Annotated[str, Text(bytes_max=8)]


# Why no bounds below the 255 bytes of every name: these keys are written by others, and a key that is read must have a meaning.
# An engine of shorter keys (LMDB: 511 bytes) refuses two or three of the longest names together, as the lint says (L10).


def _address_of_member(_key: MemberKey, member: Member) -> str | None:
    return member.address


def _name_on_a_cell(key: NodeKey, cell: str) -> str | None:
    # Why not outside: such nodes are in no container of ours, and members of two clusters may have one name.
    return None if cell == OUTSIDE else key.node


class Broker(Layout, root="/"):
    """The store of a Patroni broker: clusters, registered containers, routed ports, service instances."""

    waivers = (
        Waiver(
            "L7", "registrations.port", "the registrar's own spelling; a container's ports are few and read together"
        ),
        Waiver(
            "L7", "instance_by_port.port", "ports are looked up one by one; the lowest free one is a search over all"
        ),
    )

    members = Table(
        "service/{cluster}/members/{member}",
        key=MemberKey,
        value=Member,
        form=OpenJson(Member),
        lease=True,
        sealed=False,  # Patroni writes it, and its other members read it.
        note='"Each of these keys are created by one patroni process"; 1.3: a TTL of 30 s',
    )
    leaders = Table(
        "service/{cluster}/leader",
        key=str,
        value=str,
        # Why as in keys: it is looked up by. What is no name is a damaged record, and no look at others ends on it.
        form="text",
        lease=True,
        note="1.3, not in the document: the name of the member that leads; on that member's lease",
    )
    initializations = Table(
        "service/{cluster}/initialize",
        key=str,
        value=str,
        note="1.3, not in the document: empty while bootstrap runs, then the system identifier",
    )
    configurations = Table(
        "service/{cluster}/config", key=str, value=dict, note="4.2, not in the document: dynamic configuration"
    )
    statuses = Table(
        "service/{cluster}/status",
        key=str,
        value=Status,
        form=OpenJson(Status),
        note="4.2, not in the document: WAL position of the leader, slots",
    )
    histories = Table(
        "service/{cluster}/history", key=str, value=list, note="4.2, not in the document: one list for each promotion"
    )
    failovers = Table(
        "service/{cluster}/failover",
        key=str,
        value=Failover,
        form=FailoverForm(),
        note="4.2, not in the document: a failover that was asked for",
    )
    syncs = Table(
        "service/{cluster}/sync",
        key=str,
        value=Sync,
        form=OpenJson(Sync),
        note="4.2, not in the document: who replicates synchronously",
    )
    failsafes = Table(
        "service/{cluster}/failsafe", key=str, value=dict, note="4.2, not in the document: api_url of each member"
    )
    optimes = Table(
        "service/{cluster}/optime/leader",
        key=str,
        value=int,
        note="4.2, not in the document: WAL position as Patroni of 2015 writes it",
    )
    registrations = Table(
        "{image}/{host}:{container}:{port}",
        key=RegistrationKey,
        value=str,
        lease=True,
        note='"The key path is /<docker-image>/<hostname>:<internal-id>:<internal-port>"; the value is host-ip:port. '
        "Cells announce on a lease; registrars of others do without, and such keys are read all the same",
    )
    allocations = Table(
        "routing/allocation/{instance}",
        key=str,
        value=int,
        form="decimal(least=1,most=65535)",
        note='"The allocated port for each service instance is at /routing/allocation/:instanceid"; 1.6 (13)',
    )
    next_port = Counter(
        "routing/nextport",
        start=33000,
        note='"the next available public port to be assigned"; 1.5: the first is 33000',
    )
    nodes = Table(
        "serviceinstances/{instance}/nodes/{node}/backend",
        key=NodeKey,
        value=str,
        form="text",
        note='"/serviceinstances/f1/nodes/.../backend"; 1.6 (1): the singular heading is a slip',
    )
    instances = Table(
        "serviceinstances/{instance}/state",
        key=str,
        value=InstanceState,
        note="1.5, not in the document: the broker's own record, never below Patroni's /service",
    )
    instance_by_port = Unique(
        "_broker/ports/{port:decimal(least=1,most=65535)}",
        of=allocations,
        key=int,
        bind={"port": ""},
        note="1.6 (6): no port is given twice",
    )
    members_by_address = Index(
        "_broker/addresses/{address}/{cluster}/{member}",
        of=members,
        key=str,
        on=_address_of_member,
        version=1,
        note="1.6 (5): the host:port in conn_url, which finds the cluster of a registration",
    )
    node_by_name = Unique(
        "_broker/nodes/{node}",
        of=nodes,
        key=str,
        on=_name_on_a_cell,
        version=1,
        note="1.6 (5): the instance of a node, which finds the cluster of container cf-<node>",
    )
    node_intents = Table(
        "_broker/intents/{instance}/{node}",
        key=NodeKey,
        value=str,
        form="text",
        note="1.6 (11): the backend that is asked for a node, written first, so that no container is orphaned",
    )
    cells = Table(
        "_broker/cells/{cell}",
        key=str,
        value=Cell,
        lease=True,
        note="a server that is alive and runs nodes; written by the cell, on the lease of all that it writes",
    )
    orders = Table(
        "_broker/orders/{cell}/{node}",
        key=OrderKey,
        value=NodeOrder,
        note="a node that the cell is to run, or to remove; the broker writes it, the cell deletes it when the node is removed",
    )
    reports = Table(
        "_broker/reports/{cell}/{node}",
        key=OrderKey,
        value=NodeReport,
        lease=True,
        note="what the cell says of a node; gone when nothing is left of it, or when the cell is",
    )
    tasks = Table(
        "_broker/tasks/{cell}/{node}",
        key=OrderKey,
        value=NodeTask,
        note="what the cell is to do for a node's backups; the broker writes it, and deletes it when it was answered",
    )
    task_answers = Table(
        "_broker/task-answers/{cell}/{node}",
        key=OrderKey,
        value=TaskAnswer,
        note="what became of it; written by the cell, on no lease, since it is the end of what may have taken hours",
    )
    backup_books = Table(
        "_broker/backups/{instance}/{stanza}",
        key=BookKey,
        value=BackupBook,
        note="the backups that there are of an instance; they outlive it, so that it can be made again",
    )
    identities = Table(
        "_broker/store/{name}",
        key=str,
        value=StoreIdentity,
        note="which store this is, under the name identity; a cell refuses a store that has another one",
    )
    operations = Table(
        "_broker/operations/{instance}",
        key=str,
        value=Operation,
        note="3.4: the last operation on an instance, with its steps; kept for a day after it has ended",
    )
    operations_by_status = Index(
        "_broker/operations-by-status/{status}/{instance}",
        of=operations,
        key=str,
        note="finds the operations that somebody has to go on with",
    )
    claims = Table(
        "_broker/claims/{instance}",
        key=str,
        value=Claim,
        lease=True,
        note="3.4: which broker works on the operation; when its lease ends, another takes it up",
    )
    replica_ports = Table(
        "_broker/replica-ports/{instance}",
        key=str,
        value=int,
        form="decimal(least=1,most=65535)",
        note="7: the port of an instance that leads to its replicas, beside the one that leads to its leader",
    )
    routers = Table(
        "_broker/routers/{router}",
        key=str,
        value=RouterReport,
        lease=True,
        note="7: a router that is alive, and how many ports it leads; on its lease",
    )
    bindings = Table(
        "_broker/bindings/{instance}/{binding}",
        key=BindingKey,
        value=Binding,
        note="3.2: a binding and its role in PostgreSQL; hidden from v2's lists because of its password",
    )
    events = Table(
        "_broker/events/{cluster}/{at}/{id}",
        key=EventKey,
        value=Event,
        note="what happened to a cluster, in the commit of what it tells; the newest hundred of each, a day longer than it",
    )
    seen_clusters = Table(
        "_broker/seen/{cluster}",
        key=str,
        value=SeenCluster,
        note="what a cluster was last seen as, so that of several brokers one writes the event of a change",
    )
