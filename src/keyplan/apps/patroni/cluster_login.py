"""What the nodes of a cluster log in to their store with: made with the instance, and made anew on demand."""

from typing import NamedTuple

import msgspec

from keyplan.access import new_token
from keyplan.apps.patroni.layout import Broker, OrderKey
from keyplan.apps.patroni.readable import readable, readable_of
from keyplan.apps.patroni.records import Credentials, InstanceState, NodeOrder
from keyplan.codec import Secret
from keyplan.errors import CorruptionError, UnknownNameError
from keyplan.layout import Binding
from keyplan.store import Store

__all__ = ["Untold", "ensure_login", "new_store_credentials", "principal_name", "rotate", "with_logins"]


class Untold(NamedTuple):
    """Whose nodes a new token does not reach yet: cells that are not alive; and nodes whose order cannot be read."""

    cells: list[str]
    nodes: list[str]


def principal_name(instance: str) -> str:
    """Return the name of a cluster's principal. No name in an access file has a colon: nobody there is taken for a cluster."""
    return f"cluster:{instance}"


def new_store_credentials(instance: str) -> Credentials:
    """Return what the nodes of a new cluster log in with: the name of its principal, and a token that nobody had before."""
    return Credentials(username=principal_name(instance), password=Secret(new_token()))


def with_logins(order: NodeOrder, state: InstanceState) -> NodeOrder:
    """Return an order with the users and the token that its node needs: those of the instance."""
    return msgspec.structs.replace(
        order,
        superuser=state.superuser_credentials,
        replication=state.replication_credentials,
        rest=state.admin_credentials,
        rewind=state.rewind_credentials,
        store=state.store_credentials,
    )


def rotate(store: Store, instance: str, *, now: float, keep_seconds: float) -> Untold:
    """Give a cluster another token, in one commit; the one that it has counts for `keep_seconds` more, and none before it.

    Return whose nodes are not told. Raises UnknownNameError when there is no such instance; CorruptionError when its record
    cannot be read.
    """

    def work(binding: Binding) -> Untold:
        broker = Broker(binding)
        state = broker.instances.get(instance)
        if state is None:
            raise UnknownNameError(kind="instance", name=instance, known=sorted(broker.instances.keys()))
        state.former_store_credentials, state.former_store_until = state.store_credentials, now + keep_seconds
        return _renew(broker, instance, state)

    return store.run(work)


def ensure_login(store: Store, instance: str) -> None:
    """Give a cluster a token, in one commit, when it has none: it was made when no server knew clusters.

    Nothing is written when it has one, or is gone. Raises CorruptionError, ConflictError, EngineError.
    """

    def work(binding: Binding) -> None:
        broker = Broker(binding)
        state = broker.instances.get(instance)
        if state is not None and not state.store_credentials.password.reveal():
            _renew(broker, instance, state)

    store.run(work)


def _renew(broker: Broker, instance: str, state: InstanceState) -> Untold:
    """Write a new token into the instance's record and its nodes' orders, all of which the commit is then guarded by."""
    state.store_credentials = new_store_credentials(instance)
    broker.instances.put(instance, state)
    untold = Untold([], [])

    def note(key: OrderKey, _error: CorruptionError) -> None:
        untold.nodes.append(key.node)

    placed = (row for view in (broker.nodes, broker.node_intents) for row in readable(view.rows(instance)))
    for key in sorted({OrderKey(cell, key.node) for key, cell in placed}):
        order = readable_of(broker.orders, key, note)
        if order is not None and not order.remove:
            broker.orders.put(key, with_logins(order, state))
            if not broker.cells.exists(key.cell) and key.cell not in untold.cells:
                untold.cells.append(key.cell)
    return untold
