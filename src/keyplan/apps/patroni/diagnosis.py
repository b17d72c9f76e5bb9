"""What is wrong in the store of a broker: stale registrations, orphan nodes, lost ports and the like. `mending.py` mends.

Read from one state. Nothing here asks a cell or PostgreSQL: the store says who is alive.
"""

import shlex
from collections import defaultdict, deque
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from keyplan.apps.patroni.backups.view import archive_problem, backup_problem, verification_problem
from keyplan.apps.patroni.bootstraps import hung_bootstrap
from keyplan.apps.patroni.clusters import (
    Advertised,
    advertised_addresses,
    belonging_of,
    failsafe_leaders,
    is_failsafe,
    member_of,
    members_astray,
)
from keyplan.apps.patroni.layout import OUTSIDE, Broker, MemberKey, NodeKey, OrderKey, RegistrationKey
from keyplan.apps.patroni.leaked_ports import leaked_ports
from keyplan.apps.patroni.operations import FAILED, IN_PROGRESS
from keyplan.apps.patroni.readable import readable, readable_of
from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import CorruptionError, IndexNotReadyError, InvalidKeyError
from keyplan.layout import Damaged
from keyplan.store import Store

__all__ = [
    "Fault",
    "FaultKind",
    "diagnose",
    "is_ordered_rightly",
    "is_reported",
    "is_whole",
    "registration_fault",
    "trace_of",
]


class FaultKind(StrEnum):
    """What is wrong. The comment says what `mending.mend` does."""

    STALE_REGISTRATION = "stale-registration"  # removes it
    UNRESOLVED_REGISTRATION = "unresolved-registration"  # removes it
    ORPHAN_NODE = "orphan-node"  # removes node, order and intent
    NODE_ON_DEAD_CELL = "node-on-dead-cell"
    STALE_ORDER = "stale-order"  # removes it
    LOST_PORT = "lost-port"  # gives it back
    LEAKED_PORT = "leaked-port"  # lets it be given again
    MISSING_PORT = "missing-port"
    BAD_PORT = "bad-port"
    NEXT_PORT_BEHIND = "next-port-behind"  # the next allocation mends it
    PORT_INDEX_WRONG = "port-index-wrong"
    ROUTERS_DISAGREE = "routers-disagree"
    NO_LEADER = "no-leader"
    HUNG_BOOTSTRAP = "hung-bootstrap"  # takes `initialize` away, so that a node begins anew
    LEADER_WITHOUT_MEMBER = "leader-without-member"
    UNKNOWN_MEMBER = "unknown-member"
    MEMBER_ASTRAY = "member-astray"
    FAILED_OPERATION = "failed-operation"
    UNORDERED_NODE = "unordered-node"
    UNKNOWN_CLUSTER = "unknown-cluster"
    ARCHIVE_FAILING = "archive-failing"
    NO_BACKUP = "no-backup"
    VERIFICATION_FAILED = "verification-failed"
    DAMAGED_RECORD = "damaged-record"


class Fault(NamedTuple):
    """One thing that is wrong: where, in words that stand in the key, and why. No value of a record but ports and addresses."""

    kind: FaultKind
    subject: str
    text: str


def diagnose(store: Store) -> list[Fault]:
    """Return everything that is wrong, by kind and subject, as of one state."""
    with store.snapshot() as state:
        broker = Broker(state)
        found = [fault for part in _QUESTIONS for fault in part(broker)]
    found += _leaked_ports(store)
    return sorted(set(found))


def trace_of(broker: Broker, instance: str, *, with_nodes: bool = True) -> str:
    """Return what the store still has of an instance or its cluster, in words; empty when there is nothing.

    Why: a missing `state` is no evidence that a cluster is gone. Clusters that others made have none.
    """
    if broker.instances.exists(instance):
        return "its state"
    operation = broker.operations.get(instance)
    if operation is not None and operation.status == IN_PROGRESS:
        return "an operation in progress"
    if any(True for _ in broker.members.keys(instance, limit=1)):
        return "members of its cluster"
    named = {
        "the leader": broker.leaders.exists,
        "the system identifier": broker.initializations.exists,
        "the configuration": broker.configurations.exists,
        "the status": broker.statuses.exists,
    }
    for text, exists in named.items():
        if exists(instance):
            return f"{text} of its cluster"
    if with_nodes:
        for keys in (broker.nodes.keys(instance, limit=1), broker.node_intents.keys(instance, limit=1)):
            if any(True for _ in keys):
                return "nodes"
    return ""


def is_reported(broker: Broker, cell: str, node: str) -> bool:
    """Whether a cell that is alive says that it has a node."""
    return broker.reports.exists(OrderKey(cell, node))


# ---- one question each ---------------------------------------------------------------------------------------------------


def _ignore(_key: object, _error: CorruptionError) -> None:
    """Damaged records are a question of its own: `_damaged`."""


def is_whole(broker: Broker) -> bool:
    """Whether every member and node can be read. Otherwise a registration may be that of one which cannot."""
    return not any(isinstance(row, Damaged) for view in (broker.members, broker.nodes) for row in view.rows())


def _registrations(broker: Broker) -> Iterator[Fault]:
    if not is_whole(broker):
        return
    advertised = advertised_addresses(broker)
    for key, address in readable(broker.registrations.rows(), _ignore):
        if found := registration_fault(broker, key, address, advertised):
            yield Fault(found[0], f"{key.image}/{key.host}:{key.container}:{key.port}", found[1])


def registration_fault(
    broker: Broker, key: RegistrationKey, address: str, advertised: Advertised
) -> tuple[FaultKind, str] | None:
    """Return what is wrong with a registration, and why; None where it is somebody's who is there."""
    belonging = belonging_of(broker, key, address, advertised)
    if belonging is None:
        return FaultKind.UNRESOLVED_REGISTRATION, f"no cluster has a member at {address}, or a node of this name"
    if belonging.found_by == "name":
        member = member_of(broker, belonging.instance, belonging.node)
        if member is not None:
            text = (
                f"its node of instance {belonging.instance} advertises {member.address or 'no address'}, not {address}"
            )
            return FaultKind.STALE_REGISTRATION, text
        cell = readable_of(broker.nodes, NodeKey(belonging.instance, belonging.node), _ignore)
        if cell is None or not is_reported(broker, cell, belonging.node):
            text = f"node of instance {belonging.instance}, of which nobody is alive at {address}"
            return FaultKind.STALE_REGISTRATION, text
    return None


def _nodes(broker: Broker) -> Iterator[Fault]:
    alive = set(broker.cells.keys())
    instances = set(broker.instances.keys())
    placed = readable(broker.nodes.rows(), _ignore)
    intended = readable(broker.node_intents.rows(), _ignore)
    for key, cell in [*placed, *intended]:
        subject = f"{key.instance}/{key.node}"
        if key.instance not in instances:
            if trace := _trace_or_report(broker, key, cell):
                text = f"it has nodes and {trace}, and no state: this broker did not make it, or its state is lost; `adopt`"
                text += " makes it an instance"
                yield Fault(FaultKind.UNKNOWN_CLUSTER, key.instance, text)
            else:
                yield Fault(FaultKind.ORPHAN_NODE, subject, f"on cell {cell}, of an instance that there is none of")
        elif cell not in {*alive, OUTSIDE} and broker.nodes.exists(key):
            yield Fault(FaultKind.NODE_ON_DEAD_CELL, subject, f"cell {cell} is not alive")


def _trace_or_report(broker: Broker, key: NodeKey, cell: str) -> str:
    trace = _readable_trace(broker, key.instance, with_nodes=False)
    return trace or ("a cell that has them" if is_reported(broker, cell, key.node) else "")


def _readable_trace(broker: Broker, instance: str, *, with_nodes: bool = True) -> str:
    try:
        return trace_of(broker, instance, with_nodes=with_nodes)
    except CorruptionError:
        return "a record that cannot be read"


def _orders(broker: Broker) -> Iterator[Fault]:
    for key, report in readable(broker.reports.rows(), _ignore):
        if report.state == "unordered":
            text = f"a node of instance {report.instance} that nobody ordered; `keyplan patroni discard` removes it"
            yield Fault(FaultKind.UNORDERED_NODE, f"{key.cell}/{key.node}", text)
    for key, order in readable(broker.orders.rows(), _ignore):
        if not order.remove and not is_ordered_rightly(broker, key, order.instance):
            text = f"of instance {order.instance}, which has no such node there"
            yield Fault(FaultKind.STALE_ORDER, f"{key.cell}/{key.node}", text)


def is_ordered_rightly(broker: Broker, key: OrderKey, instance: str) -> bool:
    """Whether an instance has the node that an order is for, on that cell; also where that cannot be read."""
    node = NodeKey(instance, key.node)
    try:
        state = broker.instances.get(instance)
        if state is not None and state.former is not None and state.former.nodes.get(key.node) == key.cell:
            return True
        return key.cell in {broker.nodes.get(node), broker.node_intents.get(node)}
    except CorruptionError:
        return True  # Why: what cannot be read is no evidence against an order.
    except InvalidKeyError:
        return False  # it names what is no name, and so nobody's


def _ports(broker: Broker) -> Iterator[Fault]:
    instances_of: dict[int, list[str]] = defaultdict(list)
    for instance in list(broker.allocations.keys()):
        try:
            port = broker.allocations.require(instance)
        except CorruptionError:
            yield Fault(FaultKind.BAD_PORT, instance, "the allocation is no port from 1 to 65535")
            continue
        instances_of[port].append(instance)
        if not _readable_trace(broker, instance):
            yield Fault(FaultKind.LOST_PORT, instance, f"port {port} is allocated to an instance that there is none of")
    for port, instances in sorted(instances_of.items()):
        try:
            holder = broker.instance_by_port.key_of(port)
        except (CorruptionError, IndexNotReadyError) as error:
            yield Fault(FaultKind.PORT_INDEX_WRONG, ", ".join(sorted(instances)), f"port {port}: {error.summary}")
            continue
        for instance in instances:
            if holder != instance:
                text = f"port {port} is that of {holder or 'nobody'} by the index"
                yield Fault(FaultKind.PORT_INDEX_WRONG, instance, text)
    for instance in broker.instances.keys():  # noqa: SIM118  # a table, and no dictionary
        operation = readable_of(broker.operations, instance, _ignore)
        # Why: one that is made of a backup is given a port by a step.
        is_being_made = operation is not None and operation.status == IN_PROGRESS
        if not is_being_made and not broker.allocations.exists(instance):
            yield Fault(FaultKind.MISSING_PORT, instance, "the instance has no port")
    try:
        following = broker.next_port.peek()
    except CorruptionError as error:
        yield Fault(FaultKind.DAMAGED_RECORD, "next_port", f"it cannot be read: {error.facts.get('problem', '')}")
        return
    if instances_of.get(following):
        yield Fault(FaultKind.NEXT_PORT_BEHIND, "nextport", f"port {following} is allocated already")


def _leaked_ports(store: Store) -> list[Fault]:
    try:
        found = leaked_ports(store)
    except IndexNotReadyError:
        return []  # Why: `port-index-wrong` says so where there are ports.
    text = (
        "nobody has it or gets it: the index holds it for {}, whose allocation another program has deleted or changed"
    )
    return [Fault(FaultKind.LEAKED_PORT, str(port), text.format(instance)) for instance, port in found]


def _routers(broker: Broker) -> Iterator[Fault]:
    given = {name: report.gives for name, report in readable(broker.routers.rows(), _ignore) if report.gives}
    if len(set(given.values())) > 1:
        ranges = ", ".join(f"{name} {gives}" for name, gives in sorted(given.items()))
        text = f"they give clusters that nobody ordered ports of several ranges: {ranges}; start them with the same --ports"
        yield Fault(FaultKind.ROUTERS_DISAGREE, ", ".join(sorted(given)), text)


def _bootstraps(broker: Broker) -> Iterator[Fault]:
    for instance in list(broker.initializations.keys()):
        try:
            hung = hung_bootstrap(broker, instance)
        except CorruptionError:
            continue
        operation = readable_of(broker.operations, instance, _ignore)
        if hung is None:
            continue
        if operation is not None and operation.status == IN_PROGRESS:
            remedy = "the operation cancels it within a minute, and lets a node begin again"
        elif hung.held or hung.unfinished:
            remedy = "stop its nodes, remove their data, then its keys by `patronictl remove`; an instance is deleted"
        else:
            remedy = "`keyplan patroni doctor --mend` lets a node begin again"
        yield Fault(FaultKind.HUNG_BOOTSTRAP, instance, f"{hung.text}; where that lasts, {remedy}")


def _clusters(broker: Broker) -> Iterator[Fault]:
    for instance, leader in readable(broker.leaders.rows(), _ignore):
        if not broker.members.exists(MemberKey(instance, leader)):
            yield Fault(FaultKind.LEADER_WITHOUT_MEMBER, instance, f"{leader} leads and has no record")
    for key in list(broker.members.keys()):
        if broker.instances.exists(key.cluster) and not broker.nodes.exists(NodeKey(*key)):
            text = "a member of the cluster that the broker has placed on no cell"
            yield Fault(FaultKind.UNKNOWN_MEMBER, f"{key.cluster}/{key.member}", text)
    for instance in broker.instances.keys():  # noqa: SIM118  # a table, and no dictionary
        operation = readable_of(broker.operations, instance, _ignore)
        if operation is not None and operation.status == IN_PROGRESS:
            continue
        if operation is not None and operation.status == FAILED:
            yield Fault(FaultKind.FAILED_OPERATION, instance, f"{operation.kind}: {operation.message}")
        if not broker.leaders.exists(instance):
            yield Fault(FaultKind.NO_LEADER, instance, _leaderless(broker, instance))
        led_by = readable_of(broker.leaders, instance, _ignore)
        if led_by is None or member_of(broker, instance, led_by) is None:
            continue
        # Why not those of dead cells: they are a fault of their own.
        placed = [
            key.node
            for key, cell in readable(broker.nodes.rows(instance), _ignore)
            if cell == OUTSIDE or broker.cells.exists(cell)
        ]
        for node, problem in members_astray(broker, instance, placed).items():
            text = f"{problem}; where that lasts, `keyplan patroni reinit {instance} {node}` copies the leader anew"
            yield Fault(FaultKind.MEMBER_ASTRAY, f"{instance}/{node}", text)


def _leaderless(broker: Broker, instance: str) -> str:
    if leader := failsafe_leaders(broker).get(instance):
        return (
            f"nobody holds its leader key, and {leader} leads on in failsafe mode while all its members answer; look whether "
            "the gateway is there"
        )
    if not is_failsafe(broker, instance):
        return "nobody leads the cluster"
    return (
        "nobody holds its leader key. It has failsafe_mode: where its nodes do not reach their gateway, who led goes on while "
        "all its members answer; look whether the gateway is there"
    )


def _archives(broker: Broker) -> Iterator[Fault]:
    now = SYSTEM_CLOCK.wall()
    for instance, state in readable(broker.instances.rows(), _ignore):
        if state.archive is None:
            continue
        if problem := archive_problem(broker, instance, state.archive, now):
            yield Fault(FaultKind.ARCHIVE_FAILING, instance, problem)
        if problem := verification_problem(broker, instance, state.archive):
            yield Fault(FaultKind.VERIFICATION_FAILED, instance, problem)
        operation = readable_of(broker.operations, instance, _ignore)
        if operation is not None and operation.status == IN_PROGRESS:
            continue
        if problem := backup_problem(broker, instance, state.archive):
            yield Fault(FaultKind.NO_BACKUP, instance, problem)


def _damaged(broker: Broker) -> Iterator[Fault]:
    """Every record that cannot be read. What is said of the others does not wait for it."""
    found: list[Fault] = []
    for name in Broker.spec.tables:

        def note(key: object, error: CorruptionError, name: str = name) -> None:
            words = "/".join(map(str, key)) if isinstance(key, tuple) else str(key)
            problem = error.facts.get("problem", error.summary)
            text = f"it cannot be read: {problem}; {_remedy(name, key, error)}"
            found.append(Fault(FaultKind.DAMAGED_RECORD, f"{name} {words}", text))

        view = broker.view(name)
        if name != "allocations":  # Why: those are BAD_PORT.
            deque(readable(view.rows(), note), maxlen=0)
    yield from found


_QUESTIONS: Final = (_registrations, _nodes, _orders, _ports, _routers, _bootstraps, _clusters, _archives, _damaged)


def _remedy(table: str, key: object, error: CorruptionError) -> str:
    """Name the command that frees the place of a record that cannot be read."""
    found = error.facts.get("raw_key")
    raw_key = bytes.fromhex(found) if isinstance(found, str) else Broker.bound().tables[table].keys.encode(key)
    text = shlex.quote(raw_key.decode(errors="backslashreplace"))
    return f"`keyplan raw quarantine {text}` sets it aside"
