"""What the nodes of a cluster log in with: made with the instance, made anew on demand, and told to them in their orders."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from keyplan.access import new_token
from keyplan.apps.patroni.layout import Broker, OrderKey
from keyplan.apps.patroni.logins import FIELDS, LoginKind
from keyplan.apps.patroni.readable import readable, readable_of
from keyplan.apps.patroni.records import Credentials, InstanceState, NodeOrder
from keyplan.codec import Secret
from keyplan.errors import CorruptionError
from keyplan.layout import Binding
from keyplan.store import Store

__all__ = ["Untold", "ensure_login", "new_store_credentials", "principal_name", "replace_logins", "with_logins"]


class Untold(NamedTuple):
    """Whose nodes new logins do not reach yet: cells that are not alive; and nodes whose order cannot be read."""

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
        rewind=state.rewind_credentials,
        rest=state.admin_credentials,
        store=state.store_credentials,
        logins=state.logins,
    )


def replace_logins(
    broker: Broker, instance: str, logins: Mapping[LoginKind, Credentials], *, now: float, former_until: float
) -> Untold:
    """Write other logins into an instance's record and its nodes' orders, all of which the commit is then guarded by.

    A token that is replaced counts until `former_until`, and none before it. Return whose nodes are not told.
    """
    state = broker.instances.require(instance)
    if LoginKind.TOKEN in logins and state.store_credentials.username:
        state.former_store_credentials, state.former_store_until = state.store_credentials, former_until
    for kind, credentials in logins.items():
        setattr(state, FIELDS[kind], credentials)
        state.rotated_at[kind] = now
    state.logins += 1
    broker.instances.put(instance, state)
    return _tell(broker, instance, state)


def ensure_login(store: Store, instance: str, *, now: float) -> None:
    """Give a cluster a token, in one commit, when it has none: it was made when no server knew clusters.

    Nothing is written when it has one, or is gone. Raises CorruptionError, ConflictError, EngineError.
    """

    def work(binding: Binding) -> None:
        broker = Broker(binding)
        state = broker.instances.get(instance)
        if state is not None and not state.store_credentials.password.reveal():
            logins = {LoginKind.TOKEN: new_store_credentials(instance)}
            replace_logins(broker, instance, logins, now=now, former_until=0.0)

    store.run(work)


def _tell(broker: Broker, instance: str, state: InstanceState) -> Untold:
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
