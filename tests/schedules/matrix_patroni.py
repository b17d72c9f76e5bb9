"""The lines of Patroni's broker and cells: bindings at once, and nodes whose removal is ordered beside a cell's agent."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from keyplan import Secret
from keyplan.apps.patroni import (
    STORE_IDENTITY,
    BindingKey,
    Broker,
    InstanceState,
    Member,
    MemberKey,
    NodeKey,
    NodeOrder,
    OrderKey,
    StoreIdentity,
)
from keyplan.apps.patroni.broker_bindings import Bindings
from keyplan.apps.patroni.broker_work import OperationWork
from keyplan.apps.patroni.catalog import Catalog, Plan
from keyplan.apps.patroni.cell_agent import CellAgent, CellSettings
from keyplan.apps.patroni.node_config import Gateway, NodePlan
from keyplan.apps.patroni.node_host import Host
from keyplan.apps.patroni.node_process import Node
from keyplan.apps.patroni.operations import IN_PROGRESS, SUCCESS
from keyplan.apps.patroni.records import Claim, Credentials, Operation, Step
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.engine import ALL_KEYS, SYSTEM_CLOCK, Commit, Delete, Engine, Put
from keyplan.store import Store
from keyplan.testing.schedules import ACTOR_ERRORS, Outcome, Preemptions, Scenario, actor, actor_waits, restarts
from tests.schedules.lines import Line, line_name

__all__ = ["PATRONI_GROUPS"]

# ---- bindings of a broker --------------------------------------------------------------------------------------------------

BINDING = BindingKey("i", "b")
ROLE = b"role/"


class _BindingsWithoutPostgres(Bindings):
    """A role of the leader's PostgreSQL is a key of the store: made and dropped in one step each, as there."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, SYSTEM_CLOCK)
        self._engine = store.engine

    def _at_leader(self, instance: str, work: Callable[[str], None]) -> None:
        # Why by its variables: what it would do, it would do in PostgreSQL.
        cells = (cell.cell_contents for cell in work.__closure__ or ())
        known = dict(zip(work.__code__.co_freevars, cells, strict=True))
        if "username" in known:
            self._engine.commit(Commit((), (Delete(ROLE + known["username"].encode()),)))
        else:
            self._engine.commit(Commit((), (Put(ROLE + known["record"].credentials.username.encode(), b""),)))


def one_instance(store: Store) -> None:
    broker = Broker(store)
    state = InstanceState(
        instance_id="i",
        service_id="s",
        plan_id="p",
        superuser_credentials=Credentials(username="u", password=Secret("p")),
    )
    broker.instances.insert("i", state)
    broker.operations.insert("i", Operation(id="o", kind="provision", status=SUCCESS))


def bound(store: Store) -> None:
    one_instance(store)
    _binds(store)


def _binds(store: Store) -> bool:
    plan = Plan(id="p", name="p", description="")
    return _BindingsWithoutPostgres(store).bind(BINDING, "s", plan, "app", {})


def _unbinds(store: Store) -> None:
    _BindingsWithoutPostgres(store).unbind(BINDING, "s", "p", "postgres")


def _roles_are_those_of_bindings(outcome: Outcome) -> None:
    """Who was told of a binding has its role; no role is there that no record tells of."""
    roles = {key.removeprefix(ROLE).decode() for key, _, _ in outcome.stored()[0] if key.startswith(ROLE)}
    record = Broker(outcome.store).bindings.get(BINDING)
    known = set() if record is None else {record.credentials.username}
    assert roles <= known, f"a role that no record tells of: {roles - known}"
    if record is not None and record.state == "ready":
        assert known <= roles, "a ready binding has no role"
    if any(name.startswith("bind") for name in outcome.answers) and "unbind" not in outcome.scenario.names:
        assert record is not None, "lost: a binding was answered, and no record tells of it"
    if "unbind" in outcome.answers and "bind" not in outcome.scenario.names:
        assert record is None


def _of_bindings(names: tuple[str, ...], setup: Callable[[Store], None]) -> Scenario:
    actors = [actor(_unbinds if name.startswith("unbind") else _binds, name) for name in names]
    return Scenario(
        *actors,
        setup=setup,
        invariants=[_roles_are_those_of_bindings],
        only_raises=(*ACTOR_ERRORS, RefusedError),
    )


def bindings() -> Iterator[Line]:
    """Equal binds at once, and an unbind beside them."""
    for setup in (one_instance, bound):
        for names in [
            ("bind", "bind again"),
            ("bind", "unbind"),
            ("unbind", "unbind again"),
            ("bind", "bind again", "unbind"),
        ]:
            yield Line(line_name(*names, setup.__name__), partial(_of_bindings, names, setup), is_long=len(names) > 2)


# ---- nodes of a cell -------------------------------------------------------------------------------------------------------

CELL, INSTANCE, NODE, BROKER = "c1", "i", "n", "b"
ORDER, PLACED = OrderKey(CELL, NODE), NodeKey(INSTANCE, NODE)
DATA = b"data/"
"""The data of a node on the cell's disk: a key of the store, so that others come before and after their removal."""


_IN_MEMORY = next((folder for folder in ("/dev/shm",) if os.path.isdir(folder)), None)
"""Why: an agent makes sure that its files are on the disk, and thousands of runs would wait for it."""


class _PaperNode(Node):
    """A node that has data and no process."""

    def __init__(self, name: str, folder: Path, engine: Engine) -> None:
        nobody = Credentials(username="u", password=Secret("p"))
        plan = NodePlan(
            instance=INSTANCE,
            node=name,
            port=1,
            rest_port=2,
            superuser=nobody,
            replication=nobody,
            rest=nobody,
            gateway=Gateway("127.0.0.1:1"),
        )
        super().__init__(folder / name, plan, Host(Path(), "", Path()), SYSTEM_CLOCK)
        self._engine = engine

    process = postmaster = None
    is_ready = True

    def keep(self) -> None: ...

    def end(self) -> bool:
        return True

    def remove(self) -> bool:
        self._engine.commit(Commit((), (Delete(DATA + self.plan.node.encode()),)))
        return True


class _PaperAgent(CellAgent):
    """A cell's agent whose nodes are of paper. Its folder remembers the store, and the lease of the agent before it."""

    def __init__(self, store: Store, folder: Path) -> None:
        super().__init__(
            store, CellSettings(name=CELL, folder=folder, gateway=Gateway("127.0.0.1:1")), Host(Path(), "", Path())
        )
        remembered = {"identity": "store", "lineage": store.engine.lineage().store, "revision": 0}
        (folder / "store.json").write_text(json.dumps(remembered))
        with store.engine.snapshot() as snapshot:
            names = [key.removeprefix(DATA).decode() for key in snapshot.keys(ALL_KEYS) if key.startswith(DATA)]
            cell = snapshot.get(Broker.bound().tables["cells"].keys.encode(CELL))
        if cell is not None:
            (folder / "lease").write_text(f"{cell.lease}")
        self._nodes = {name: _PaperNode(name, folder, store.engine) for name in names}


def _acts_until(is_over: Callable[[Broker], bool], store: Store) -> None:
    """An agent that looks after its cell until that is so, and once more."""
    with tempfile.TemporaryDirectory(prefix="keyplan-schedules-", dir=_IN_MEMORY) as folder:
        agent = _PaperAgent(store, Path(folder))
        while not is_over(Broker(store)):
            agent.step(0.25)
        agent.step()


def _operation_is_over(broker: Broker) -> bool:
    operation = broker.operations.get(INSTANCE)
    return operation is None or operation.status != IN_PROGRESS


def _nothing_is_ordered(broker: Broker) -> bool:
    order = broker.orders.get(ORDER)
    return order is None or not order.remove


class _StopsNever:
    """The event that ends a broker. Its waits, which are of time, end when the cell has answered."""

    def __init__(self, store: Store) -> None:
        self._broker = Broker(store)

    def wait(self, _seconds: float) -> bool:
        actor_waits(lambda: not (self._broker.reports.exists(ORDER) or self._broker.orders.exists(ORDER)))
        return False


def _removes(store: Store) -> str:
    """A broker that carries out the operation: one node less."""
    work = OperationWork(
        store,
        INSTANCE,
        "o",
        broker=BROKER,
        catalog=Catalog(services=[]),
        stop=_StopsNever(store),  # type: ignore[arg-type]
        clock=SYSTEM_CLOCK,
    )
    return work.run().status


def _orders_removal(store: Store) -> None:
    """Somebody orders the removal of what nobody ordered, as `keyplan patroni discard` does."""
    Broker(store).orders.put(ORDER, NodeOrder(instance=INSTANCE, remove=True))


def _orders_anew(store: Store) -> None:
    """An order to run a node takes the place of the order to remove it. The cell refuses it: it restores no backups."""
    Broker(store).orders.put(ORDER, NodeOrder(instance=INSTANCE, restore="backup"))


def _node_with_data(store: Store) -> None:
    broker = Broker(store)
    broker.identities.insert(STORE_IDENTITY, StoreIdentity(id="store"))
    broker.instances.insert(INSTANCE, InstanceState(instance_id=INSTANCE, node_count=1))
    store.engine.commit(Commit((), (Put(DATA + NODE.encode(), b""),)))


def _node_to_remove(store: Store) -> None:
    """A node that runs, and an operation that removes it, in the hands of a broker."""
    _node_with_data(store)
    broker, lease = Broker(store), store.lease(1_000, keep_alive=False)
    steps = [Step(kind="remove", node=NODE)]
    broker.orders.insert(ORDER, NodeOrder(instance=INSTANCE))
    broker.nodes.insert(PLACED, CELL)
    broker.members.insert(MemberKey(INSTANCE, NODE), Member(), lease=lease)
    broker.operations.insert(INSTANCE, Operation(id="o", kind="deprovision", status=IN_PROGRESS, steps=steps))
    broker.claims.insert(INSTANCE, Claim(broker=BROKER, operation="o"), lease=lease)


def _removal_ordered(store: Store) -> None:
    _node_with_data(store)
    _orders_removal(store)


def _is_removed(outcome: Outcome) -> None:
    """Nothing is left of the node: no data, no record, no order."""
    broker = Broker(outcome.store)
    left = {
        "data": outcome.engine.value(DATA + NODE.encode()) is not None,
        "order": broker.orders.exists(ORDER),
        "report": broker.reports.exists(ORDER),
        "place": broker.nodes.exists(PLACED),
        "member": broker.members.exists(MemberKey(INSTANCE, NODE)),
    }
    assert not any(left.values()), f"left: {', '.join(name for name, is_left in left.items() if is_left)}"
    if "broker" in outcome.scenario.names:
        assert outcome.answers.get("broker") == SUCCESS, "stuck: the operation did not end"


def _is_ordered_first(outcome: Outcome) -> None:
    """Data are removed only when their removal has been ordered."""
    is_ordered = False
    for event in outcome.history():
        if event.key == Broker.bound().tables["orders"].keys.encode(ORDER):
            is_ordered |= event.entry is not None and b'"remove":true' in event.entry.value
        assert event.key != DATA + NODE.encode() or event.entry is not None or is_ordered, "removed without an order"


def _new_order_stands(outcome: Outcome) -> None:
    """The agent takes away the order that it has carried out, and no other."""
    order = Broker(outcome.store).orders.get(ORDER)
    assert order is not None, "lost: an order to run the node"
    assert not order.remove


def _beside_broker(*, crashes: bool) -> Scenario:
    agent = actor(partial(_acts_until, _operation_is_over), "agent")
    return Scenario(
        agent,
        actor(_removes, "broker"),
        *([restarts(agent)] if crashes else []),
        setup=_node_to_remove,
        invariants=[_is_removed, _is_ordered_first],
        faults={"agent": "c"} if crashes else "",
        may_wait_forever=True,  # the agent, for orders; whether the broker's operation ends is looked at
    )


def _beside_order(
    order: Callable[[Store], None], setup: Callable[[Store], None], *invariants: Callable[[Outcome], None]
) -> Scenario:
    return Scenario(
        actor(partial(_acts_until, _nothing_is_ordered), "agent"),
        actor(order, "order"),
        setup=setup,
        invariants=[*invariants, _is_ordered_first],
    )


def cells() -> Iterator[Line]:
    """A cell's agent beside a broker that orders removals and waits for them, and beside orders that change meanwhile."""
    beside = partial(_beside_broker, crashes=False)
    yield Line("agent x broker that removes", beside, Preemptions(1))
    yield Line("agent x broker that removes, two preemptions", beside, Preemptions(2), is_long=True)
    crashing = partial(_beside_broker, crashes=True)
    yield Line("agent that crashes x broker that removes", crashing, Preemptions(0))
    yield Line("agent that crashes x broker that removes, one preemption", crashing, Preemptions(1), is_long=True)
    yield Line("agent x order to remove again", partial(_beside_order, _orders_removal, _removal_ordered))
    yield Line("agent x order to run", partial(_beside_order, _orders_anew, _removal_ordered, _new_order_stands))


PATRONI_GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    "bindings": bindings,
    "cells": cells,
}
