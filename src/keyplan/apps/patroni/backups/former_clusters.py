"""What a restore in place changes in the store, in one commit each: a cluster is laid aside, and two clusters change places.

Nothing of the cluster runs meanwhile: its nodes are halted, with their data.
"""

import msgspec

from keyplan.apps.patroni.backups.books import begin_span, end_span, put_book
from keyplan.apps.patroni.cluster_keys import erase_cluster_keys
from keyplan.apps.patroni.cluster_login import with_logins
from keyplan.apps.patroni.layout import BookKey, Broker, NodeKey, OrderKey
from keyplan.apps.patroni.logins import FIELDS, ROLES, login_base
from keyplan.apps.patroni.operation_progress import StepFailedError
from keyplan.apps.patroni.operations import new_password
from keyplan.apps.patroni.records import Credentials, FormerCluster, InstanceState, NodeOrder, Operation

__all__ = ["change_places", "is_gone", "lay_aside", "nodes_gone", "order_halted", "order_removals"]


def lay_aside(broker: Broker, instance: str, operation: Operation, leader: str, *, now: float) -> None:
    """Make the nodes of an instance those of its former cluster, and let it begin anew with what the operation says.

    It has another archive from now on: the log of the former one stays one line, and nobody has to tell two of them apart.
    """
    state = broker.instances.require(instance)
    begun = operation.upgrade or operation.recovery
    if operation.upgrade is not None:
        state.version = operation.upgrade.former_version
        if state.archive is not None:
            # Why: who restores from it needs programs of that version.
            put_book(broker, instance, state, state.archive, since=state.created_at)
    state.former = _taken_aside(broker, state, leader, now=now)
    state.version = begun.version if begun is not None else ""
    if state.archive is not None:
        # Why its beginning: what was committed by then is in the archive, and something that was committed later, too.
        end_span(broker, instance, state.archive, operation.begun_at)
    state.archive, state.recovery, state.upgrade = operation.archive, operation.recovery, operation.upgrade
    for kind in ROLES:
        former: Credentials = getattr(state, FIELDS[kind])
        if former.username:
            # Why the first name: the database of then need not know those that came later. Its password is another one.
            setattr(state, FIELDS[kind], Credentials(username=login_base(former.username), password=new_password()))
            state.rotated_at[kind] = now
    state.logins += 1
    broker.instances.put(instance, state)
    if state.archive is not None:
        put_book(broker, instance, state, state.archive, since=now)


def change_places(broker: Broker, instance: str, leader: str, *, now: float) -> None:
    """Make the former cluster the instance's, and its present one, where it has nodes, the former.

    Who led the former one goes on first, alone: it has all that was acknowledged. Raises StepFailedError where nodes are gone.
    """
    state = broker.instances.require(instance)
    back = state.former
    if back is None:
        return
    if gone := nodes_gone(broker, back):
        raise StepFailedError(f"{gone[0]} of the former cluster is not there any more")
    present = state.archive
    state.former = _taken_aside(broker, state, leader, now=now)
    for node, cell in back.nodes.items():
        broker.nodes.put(NodeKey(instance, node), cell)
    if back.system:
        # Why: without it a node that has no data would begin anew.
        broker.initializations.put(instance, back.system)
    broker.configurations.put(instance, back.configuration)
    state.archive, state.recovery, state.upgrade, state.version = back.archive, None, None, back.version
    for kind in ROLES:
        setattr(state, FIELDS[kind], getattr(back, FIELDS[kind]))
    state.logins += 1
    broker.instances.put(instance, state)
    for node, cell in back.nodes.items():
        is_first = node == back.leader or back.leader not in back.nodes
        order = msgspec.structs.replace(broker.orders.require(OrderKey(cell, node)), halted=not is_first)
        broker.orders.put(OrderKey(cell, node), with_logins(order, state))
    if present is not None:
        end_span(broker, instance, present, now)
        book = broker.backup_books.get(BookKey(instance, present.stanza))
        if state.former is None and book is not None and not book.backups:
            broker.backup_books.delete(BookKey(instance, present.stanza))
    if back.archive is not None:
        begin_span(broker, instance, back.archive, now)


def nodes_gone(broker: Broker, former: FormerCluster) -> list[str]:
    """Return the nodes of a former cluster that nobody keeps any more: their removal has begun."""
    orders = {node: broker.orders.get(OrderKey(cell, node)) for node, cell in former.nodes.items()}
    return [node for node, order in orders.items() if order is None or order.remove]


def _taken_aside(broker: Broker, state: InstanceState, leader: str, *, now: float) -> FormerCluster | None:
    """Return what an instance's cluster is, and delete its keys; None where it has no nodes."""
    instance = state.instance_id
    nodes = {key.node: cell for key, cell in broker.nodes.list(instance)}
    found = FormerCluster(
        nodes=nodes,
        leader=leader,
        system=broker.initializations.get(instance) or "",
        version=state.version,
        configuration=broker.configurations.get(instance) or {},
        archive=state.archive,
        laid_aside_at=now,
    )
    for kind in ROLES:
        setattr(found, FIELDS[kind], getattr(state, FIELDS[kind]))
    erase_cluster_keys(broker, instance)
    for node in nodes:
        broker.nodes.delete(NodeKey(instance, node))
    return found if nodes else None


def order_halted(broker: Broker, places: list[OrderKey], *, halted: bool) -> None:
    """Order cells to halt nodes, with their data, or to let them run."""
    for place in places:
        order = broker.orders.get(place)
        if order is not None and not order.remove and order.halted is not halted:
            broker.orders.put(place, msgspec.structs.replace(order, halted=halted))


def order_removals(broker: Broker, instance: str) -> None:
    """Order the cells of a former cluster's nodes to remove them, with their data."""
    former = broker.instances.require(instance).former
    for node, cell in former.nodes.items() if former is not None else ():
        broker.orders.put(OrderKey(cell, node), NodeOrder(instance=instance, remove=True))


def is_gone(broker: Broker, place: OrderKey) -> bool:
    """Whether a cell has removed a node, or finds its removal ordered when it is back."""
    return not broker.reports.exists(place) and not (broker.orders.exists(place) and broker.cells.exists(place.cell))
