"""A cell: runs the nodes that are ordered of it on this machine, and removes those whose removal is ordered.

README.md tells the conversation.

Everything is level, not edge: each step compares what is ordered with what is there and does what is next, so that an agent
that was away, or killed, finds out by itself what it missed. Nothing in a step waits.
"""

import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any, Final, cast

import msgspec

from keyplan.apps.patroni.backups.node_tasks import NodeTasks
from keyplan.apps.patroni.backups.still_programs import StillPrograms
from keyplan.apps.patroni.certificates import ServedCertificate, TlsFiles
from keyplan.apps.patroni.layout import DEFAULT_IMAGE, OUTSIDE, Broker, OrderKey
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.node_config import DYNAMIC_DEFAULT, Gateway, NodePlan, merged
from keyplan.apps.patroni.node_host import Host
from keyplan.apps.patroni.node_ports import PortRange
from keyplan.apps.patroni.node_process import Node, found_nodes
from keyplan.apps.patroni.node_users import InstanceUsers, owners_of_homes
from keyplan.apps.patroni.node_wakeup import NodeWakeup
from keyplan.apps.patroni.records import Cell, NodeOrder, NodeReport
from keyplan.apps.patroni.registrar import CELL_LEASE_SECONDS, Registrar
from keyplan.apps.patroni.store_memory import StoreMemory
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.errors import (
    ConflictError,
    CorruptionError,
    EngineError,
    InvalidInputError,
    LeaseNotFoundError,
    SecretKeyError,
)
from keyplan.layout import ChangeKind, Changes
from keyplan.store import Store

__all__ = ["CellAgent", "CellSettings"]

_POLL_SECONDS: Final = 0.25
_RETRY_SECONDS: Final = 1.0
_LOG_IS_THERE: Final = "its log is in the cell's folder"
_PORTS_DEFAULT: Final = PortRange(20_000, 24_999)


@dataclass(frozen=True)
class CellSettings:
    """What a cell is: its name, its folder, what it announces, and how its nodes reach their store."""

    name: str
    folder: Path
    gateway: Gateway
    cell: Cell = field(default_factory=Cell)
    ports: PortRange = _PORTS_DEFAULT
    hostname: str = "localhost"
    image: str = DEFAULT_IMAGE
    parameters: Mapping[str, str] = field(default_factory=dict)
    dynamic: Mapping[str, Any] = field(default_factory=lambda: DYNAMIC_DEFAULT)
    lease_seconds: float = CELL_LEASE_SECONDS
    accepted_store: str = ""
    restore_command: str = ""
    tls: TlsFiles | None = None
    users: InstanceUsers = field(default_factory=InstanceUsers)


class CellAgent:
    """The agent of one cell. `run` until it is told to stop; its nodes go on without it unless `stop_nodes` is called."""

    def __init__(self, store: Store, settings: CellSettings, host: Host, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._broker = Broker(store)
        self._settings = settings
        self._host = host
        self._clock = clock
        self._folder = settings.folder / "nodes"
        self._nodes: dict[str, Node] = {}
        self._orders: dict[str, NodeOrder] = {}
        self._refused: dict[str, NodeReport] = {}
        self._damaged: dict[str, str] = {}
        self._faults: dict[str, str] = {}
        self._unreadable: set[str] = set()
        self._changes: Changes[OrderKey, NodeOrder] | None = None
        self._lock = -1
        self._tasks = NodeTasks(store, settings.name, clock)
        self._certificate: ServedCertificate | None = None
        self._wakeup = NodeWakeup(clock)
        self._still = StillPrograms(clock)
        self._memory = StoreMemory(store, settings.folder / "store.json", clock)
        self._registrar = Registrar(
            store,
            settings.name,
            settings.cell,
            file=settings.folder / "lease",
            hostname=settings.hostname,
            image=settings.image,
            lease_seconds=settings.lease_seconds,
        )

    @property
    def nodes(self) -> list[Node]:
        """The nodes that it runs, or is about to end."""
        return list(self._nodes.values())

    # ---- its life -------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the folder, and the nodes in it. Raises InvalidInputError: another agent has it, or nodes cannot enter it."""
        if self._settings.name == OUTSIDE:
            raise InvalidInputError(source=OUTSIDE, problem="is no name for a cell: it is where adopted nodes are")
        self._host.make_passage(self._folder)
        self._require_passage()
        self._lock = os.open(self._settings.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidInputError(source=str(self._settings.folder), problem="another agent runs this cell") from None
        if self._settings.tls is not None:
            self._certificate = ServedCertificate(self._settings.tls)
        found = found_nodes(self._folder, self._host, self._clock)
        self._damaged = found.damaged
        self._nodes = {node.plan.node: node for node in found.nodes}
        for name, problem in self._damaged.items():
            LOGGER.error("node %s is left as it is: %s", name, problem)
        for node in self._nodes.values():
            try:
                self._show_certificate(node)
                node.refresh()
            except (InvalidInputError, OSError) as error:
                # Why: the other nodes of the cell are to go on, and this one does with what it was told before.
                LOGGER.error("node %s is not told of its configuration: %s", node.plan.node, error)
            LOGGER.info(
                "node %s of %s is there%s", node.plan.node, node.plan.instance, ", running" * bool(node.process)
            )

    def _require_passage(self) -> None:
        own = self._settings.users.names[:1]
        for user in (self._host.user, *own):
            if not self._host.of(user).can_reach(self._folder):
                who, how = ("everybody", "chmod o+x") if own else ("that user's group", "chgrp, chmod g+x")
                problem = (
                    f"the user {user} cannot enter it. Let {who} pass through the folders above it ({how}), "
                    "or choose another folder"
                )
                raise InvalidInputError(source=str(self._folder), problem=problem)

    def run(self, stop: Event) -> None:
        """Follow the store until `stop` is set. A store that cannot be reached, or a full disk, leaves every node as it is."""
        while not stop.is_set():
            try:
                self._wakeup.look([node.plan for node in self._nodes.values() if node.process is not None])
                self._still.look(self._nodes.values())
                self.step(_POLL_SECONDS)
            except LeaseNotFoundError:
                LOGGER.warning("the cell's lease was lost; it announces itself anew")
                self._registrar.lose()
            except (EngineError, ConflictError, CorruptionError, OSError) as error:
                LOGGER.warning("%s: %s", "the machine" if isinstance(error, OSError) else "the store", error)
                self._leave()
                self._keep_all()
                stop.wait(_RETRY_SECONDS)

    def stop_nodes(self, impatient: Event) -> None:
        """End every node, PostgreSQL in order, and wait for them; their data stay. `impatient`, once set, kills them."""
        left = list(self._nodes.values())
        while left := [node for node in left if not node.end()]:
            if impatient.wait(0.1):
                for node in left:
                    node.kill()
                impatient = Event()

    def close(self) -> None:
        """Take back what was announced, as far as the store can be reached."""
        self._leave()
        self._tasks.close()
        try:
            self._registrar.end()
        except EngineError as error:
            LOGGER.warning("the cell's lease runs out by itself: %s", error)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # ---- one step -------------------------------------------------------------------------------------------------------

    def step(self, wait_seconds: float = 0.0) -> None:
        """Learn of changes, waiting for them at most so long, and take the next step for each node. Raises EngineError."""
        if self._changes is None:
            # Invariant: nothing is announced, run or removed before it is known whose store this is.
            has_nodes = bool(self._nodes or self._damaged)
            self._memory.require_same(has_nodes=has_nodes, accepted=self._settings.accepted_store)
        if self._certificate is not None:
            self._certificate.look()
        if self._registrar.announce():
            self._learn(wait_seconds)
            for node in sorted({*self._orders, *self._nodes, *self._damaged}):
                self._attend(node)
            for node in self._refused.keys() - self._orders.keys():
                del self._refused[node]
                self._registrar.forget(node)
            self._tasks.attend(self._nodes)
        else:
            self._keep_all()
            Event().wait(wait_seconds)

    def _attend(self, name: str) -> None:
        """Take the next step for one node. What is wrong with it is reported, and keeps no other node waiting."""
        order = self._orders.get(name)
        try:
            if name in self._damaged:
                raise CorruptionError(source=str(self._folder / name), problem=self._damaged[name])
            if order is None:
                self._leave_unordered(name)
            elif order.remove:
                self._remove_node(name, order)
            elif order.halted:
                self._halt_node(name, order)
            else:
                self._run_node(name, order)
        except (CorruptionError, SecretKeyError, InvalidInputError, OSError) as error:
            self._note_fault(name, order, str(error))
        else:
            self._faults.pop(name, None)

    def _show_certificate(self, node: Node) -> None:
        """Let a node show the certificate as it is now. Sessions go on, and no new one is refused."""
        if self._certificate is not None and node.certificate != self._certificate.pair:
            node.show_certificate(self._certificate.pair)
            try:
                node.prepare_anew()
            except BaseException:
                node.certificate = None  # Why: the next step tries again.
                raise

    def _note_fault(self, name: str, order: NodeOrder | None, text: str) -> None:
        if self._faults.get(name) != text:
            LOGGER.error("node %s: %s", name, text)
            self._faults[name] = text
        instance = order.instance if order is not None else ""
        node = self._nodes.get(name)
        if node is not None:
            instance = node.plan.instance
        self._registrar.report(name, NodeReport(instance=instance, state="failed", message=text))

    def _learn(self, wait_seconds: float) -> None:
        if self._changes is not None:
            self._take(wait_seconds)
            return
        self._orders, self._unreadable = {}, set()
        self._changes = self._broker.orders.follow(self._settings.name)
        while not self._changes.token:
            self._take(0.0)
        self._registrar.clear(known={*self._orders, *self._nodes, *self._damaged})

    def _take(self, wait_seconds: float) -> None:
        """Take the changes that come. A node whose order cannot be read goes on as it is, and is not removed."""
        assert self._changes is not None
        try:
            for change in self._changes.poll(wait_seconds):
                self._unreadable.discard(change.key.node)
                if change.kind is ChangeKind.REMOVED or change.new is None:
                    self._orders.pop(change.key.node, None)
                else:
                    self._orders[change.key.node] = change.new
        except CorruptionError as error:
            key = cast("OrderKey", error.facts["key"])
            # Invariant: what cannot be read is no leave to remove data.
            self._orders.pop(key.node, None)
            self._unreadable.add(key.node)
            LOGGER.error("an order cannot be read, and its node is left as it is: %s", error)

    def _leave(self) -> None:
        if self._changes is not None:
            self._changes.close()
            self._changes = None

    def _keep_all(self) -> None:
        for name, node in self._nodes.items():
            try:
                node.keep()
            except (InvalidInputError, OSError) as error:
                LOGGER.error("node %s: %s", name, error)

    # ---- one node -------------------------------------------------------------------------------------------------------

    def _run_node(self, name: str, order: NodeOrder) -> None:
        if name in self._refused:
            self._registrar.report(name, self._refused[name])
            return
        node = self._nodes.get(name)
        if node is None:
            try:
                plan = self._plan(name, order)
            except InvalidInputError as error:
                self._refused[name] = NodeReport(instance=order.instance, state="refused", message=str(error))
                return
            # Invariant: the report comes first, and the broker knows of the node before anything of it runs.
            self._registrar.report(name, NodeReport(instance=order.instance, state="starting"))
            node = Node(self._folder / name, plan, self._host, self._clock)
            if self._certificate is not None:
                node.show_certificate(self._certificate.pair)
            node.prepare()
            self._nodes[name] = node
            self._memory.note_revision()
            LOGGER.info("node %s of %s is new, on port %d", name, order.instance, plan.port)
            node.keep()
        else:
            _require_same_instance(node, order, "it is ordered")
            node.halt(is_halted=False)
            try:
                self._show_certificate(node)
                node.change_to(self._changed(node.plan, order))
                node.archive_to(order.archive)
            finally:
                node.keep()  # Why: one that cannot be told of other logins goes on with those that it has.
        self._registrar.report(name, self._report(node))
        self._registrar.register(name, node.address if node.postmaster is not None else "")

    def _report(self, node: Node) -> NodeReport:
        report = NodeReport(
            instance=node.plan.instance, address=node.address, archive=node.archive_state, version=node.data_version
        )
        report.failures = node.failures
        if node.is_ready:
            report.state = "running"
            return report
        report.data_bytes = node.data_bytes()
        if node.failures:
            # Why the reason: a node that an operation gives up is removed with its log.
            report.message = "; ".join(filter(None, ("Patroni ends by itself", node.failure, _LOG_IS_THERE)))
        if node.process is None and node.failures > 1:
            report.state = "failed"
        return report

    def _plan(self, name: str, order: NodeOrder) -> NodePlan:
        settings = self._settings
        # Why not those that are halted: they take room on a disk alone.
        running = [node for node in self._nodes.values() if not node.plan.halted]
        if settings.cell.capacity and len(running) >= settings.cell.capacity:
            raise InvalidInputError(source=settings.name, problem="the cell is full")
        # Why: names become folders here.
        if name.startswith(".") or "/" in name or len(name.encode()) > 200:
            raise InvalidInputError(source=name, problem="is no name for a node")
        if order.restore and not settings.restore_command:
            raise InvalidInputError(source=settings.name, problem="the cell restores no backups")
        taken = {port for node in self._nodes.values() for port in (node.plan.port, node.plan.rest_port)}
        free = list(islice(settings.ports.free(settings.cell.host, taken=taken), 2))
        if len(free) < 2:
            raise InvalidInputError(source=settings.name, problem="the cell has no free ports left")
        # Why now: one that has no programs for it refuses, and another cell is asked.
        self._host.programs_for(order.version)
        user = settings.users.free(owners_of_homes(self._folder)) if settings.users.names else ""
        if order.upgrade is not None:
            former = self._nodes.get(order.upgrade.node)
            if former is None:
                raise InvalidInputError(source=order.upgrade.node, problem="is to be upgraded, and is not here")
            user = former.plan.user  # Why: it reads that one's data.
        if user is None:
            raise InvalidInputError(source=settings.name, problem="the cell has no users left for another node")
        return NodePlan(
            instance=order.instance,
            node=name,
            address=settings.cell.host,
            port=free[0],
            rest_port=free[1],
            superuser=order.superuser.opened(),
            replication=order.replication.opened(),
            rest=order.rest.opened(),
            rewind=order.rewind.opened(),
            logins=order.logins,
            gateway=self._gateway(order),
            parameters=dict(settings.parameters),
            dynamic=merged(settings.dynamic, order.patroni),
            restore=order.restore,
            restore_command=settings.restore_command,
            archive=order.archive,
            recovery=order.recovery,
            upgrade=order.upgrade,
            version=order.version,
            user=user,
        )

    def _changed(self, plan: NodePlan, order: NodeOrder) -> NodePlan:
        """Return a node's plan as its order is now: where it finds its store, and what it logs in with."""
        plan = msgspec.structs.replace(plan, gateway=self._gateway(order))
        if plan.logins == order.logins:
            return plan
        return msgspec.structs.replace(
            plan,
            superuser=order.superuser.opened(),
            replication=order.replication.opened(),
            rewind=order.rewind.opened(),
            rest=order.rest.opened(),
            logins=order.logins,
        )

    def _gateway(self, order: NodeOrder) -> Gateway:
        """How a node finds its store: as its cluster, unless the cell was given a password for all."""
        gateway = self._settings.gateway
        if gateway.password.reveal():
            return gateway
        own = order.store.opened()
        return (
            msgspec.structs.replace(gateway, username=own.username, password=own.password)
            if own.password.reveal()
            else gateway
        )

    def _leave_unordered(self, name: str) -> None:
        """Leave a node as it is, running or not, and say that nobody has ordered it; one whose order is damaged runs on."""
        node = self._nodes[name]
        if name in self._unreadable:
            node.keep()
            self._show_certificate(node)
            raise CorruptionError(source=name, problem="the order for this node cannot be read; it goes on as it is")
        self._show_certificate(node)
        text = "there is no order for this node; it is left as it is. To remove it: keyplan patroni discard"
        report = NodeReport(instance=node.plan.instance, state="unordered", message=text, address=node.address)
        self._registrar.report(name, report)

    def _halt_node(self, name: str, order: NodeOrder) -> None:
        """End a node, and keep its data: nothing starts it but another order."""
        node = self._nodes.get(name)
        if node is None:
            raise InvalidInputError(source=name, problem="it is ordered to halt, and is not here")
        _require_same_instance(node, order, "it is ordered to halt")
        # Invariant: written down before it ends, so that no agent starts it again.
        node.halt(is_halted=True)
        has_ended = node.end()
        report = NodeReport(instance=order.instance, state="halted" if has_ended else "stopping", address=node.address)
        self._registrar.report(name, report)
        self._registrar.register(name, "" if has_ended else node.address)

    def _remove_node(self, name: str, order: NodeOrder) -> None:
        node = self._nodes.get(name)
        if node is not None:
            _require_same_instance(node, order, "its removal is ordered")
            self._registrar.report(
                name, NodeReport(instance=node.plan.instance, state="stopping", address=node.address)
            )
            if not (self._is_removal_ordered(name, order) and node.end() and node.remove()):
                return
            del self._nodes[name]
            LOGGER.info("node %s of %s is removed, with its data", name, node.plan.instance)
        self._registrar.register(name, "")
        self._store.run(lambda binding: _delete_carried_out(Broker(binding), OrderKey(self._settings.name, name)))
        self._registrar.forget(name)

    def _is_removal_ordered(self, name: str, order: NodeOrder) -> bool:
        """Whether the store that the cell belongs to orders the removal now. Raises CorruptionError, EngineError."""
        with self._store.snapshot() as state:
            found = Broker(state).orders.get(OrderKey(self._settings.name, name))
            return self._memory.is_same(state) and found == order


def _require_same_instance(node: Node, order: NodeOrder, what: str) -> None:
    if node.plan.instance != order.instance:
        problem = f"{what} as a node of {order.instance}, and it is one of {node.plan.instance}"
        raise InvalidInputError(source=node.plan.node, problem=problem)


def _delete_carried_out(broker: Broker, key: OrderKey) -> None:
    order = broker.orders.get(key)
    if order is not None and order.remove:
        broker.orders.delete(key)
