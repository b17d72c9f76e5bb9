"""One operation, carried out step by step by the broker that holds its claim. Every step may be made twice.

Here are the steps that make and remove nodes, and the end; `cluster_steps.py` has those that ask something of Patroni, and
`login_steps.py` those that replace logins.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Final
from uuid import uuid4

from keyplan.apps.patroni.backups.archive import archiving
from keyplan.apps.patroni.backups.books import end_span, version_of
from keyplan.apps.patroni.backups.restore_steps import RestoreSteps, has_turned_back
from keyplan.apps.patroni.backups.steps import BackupSteps
from keyplan.apps.patroni.bootstraps import take_initialize_away
from keyplan.apps.patroni.catalog import Catalog
from keyplan.apps.patroni.cluster_keys import erase_cluster_keys
from keyplan.apps.patroni.cluster_login import with_logins
from keyplan.apps.patroni.cluster_steps import ClusterSteps
from keyplan.apps.patroni.clusters import cell_loads, members_astray
from keyplan.apps.patroni.layout import OUTSIDE, Broker, MemberKey, NodeKey, OrderKey
from keyplan.apps.patroni.login_steps import LoginSteps
from keyplan.apps.patroni.node_config import merged
from keyplan.apps.patroni.operation_progress import STEP_TITLES, OperationProgress, StepFailedError, Waits
from keyplan.apps.patroni.operations import FAILED, SUCCESS
from keyplan.apps.patroni.ports import PortAllocator
from keyplan.apps.patroni.records import InstanceState, NodeOrder, Operation, Step
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.apps.patroni.scheduling import available_cells, cells_in_order, version_of_new
from keyplan.apps.patroni.site_callbacks import CallbackFailedError, SiteCallbacks, cluster_data_of
from keyplan.apps.patroni.upgrades.steps import UpgradeSteps
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.errors import CorruptionError
from keyplan.store import Store

__all__ = ["OperationWork"]

_BATCH: Final = 20
"""Why: etcd takes 128 operations a commit."""


class OperationWork:
    """The work on one operation. `broker` is this broker's name in the claim; `stop` ends waits with StoppedError."""

    def __init__(
        self,
        store: Store,
        instance: str,
        operation: str,
        *,
        broker: str,
        catalog: Catalog,
        stop: Event,
        clock: Clock,
        waits: Waits | None = None,
        callbacks: SiteCallbacks | None = None,
        ports: PortAllocator | None = None,
    ) -> None:
        self._store = store
        self._callbacks = callbacks
        self._latest = Broker(store)
        self._instance = instance
        self._catalog = catalog
        self._waits = waits if waits is not None else Waits()
        self._progress = OperationProgress(
            store, instance, operation, broker=broker, stop=stop, clock=clock, waits=self._waits
        )
        self._cluster = ClusterSteps(self._progress)
        self._steps: dict[str, Callable[[Step], None]] = {
            "add": self._add,
            "remove": self._remove,
            "discard": self._discard,
            "begin_again": self._begin_again,
            "copy": self._copy,
            "renew_data": self._renew_data,
            "keep_data": self._keep_data,
            **self._cluster.steps,
            **LoginSteps(self._progress, catalog).steps,
            **BackupSteps(self._progress, ports).steps,
            **RestoreSteps(self._progress).steps,
            **UpgradeSteps(self._progress).steps,
        }

    def run(self) -> Operation:
        """Make all steps that remain and return the operation as it ended.

        Raises SupersededError, StoppedError; and KeyplanError when the store fails, after which it can be run again.
        """
        while True:
            operation = self._progress.current()
            try:
                if operation.completed_steps >= len(operation.steps):
                    # Why failed: it has undone what it did.
                    return self._progress.ended(FAILED if operation.failure else SUCCESS, operation.failure or "done")
                step = operation.steps[operation.completed_steps]
                self._progress.tell(
                    f"step {operation.completed_steps + 1} of {len(operation.steps)}: {STEP_TITLES[step.kind]}"
                )
                if step.kind == "erase":
                    return self._erase()
                self._steps[step.kind](step)
            except StepFailedError as error:
                if not has_turned_back(self._progress, str(error)):
                    problem = "; ".join(filter(None, (operation.failure, str(error))))
                    return self._progress.ended(FAILED, problem, partial(_without_added, self._instance))

    # ---- nodes ---------------------------------------------------------------------------------------------------------

    def _add(self, step: Step) -> None:
        key = NodeKey(self._instance, step.node)
        refused: dict[str, str] = {}
        while self._latest.nodes.get(key) is None:
            cell = self._latest.node_intents.get(key) or self._order(key, refused)
            problem = self._answer(cell, key.node)
            if not problem:
                self._progress.complete(partial(_placed, key, cell))
                return
            refused[cell] = problem
            key = NodeKey(self._instance, self._progress.commit(partial(_withdrawn, key, cell)))
        self._progress.complete()

    def _order(self, key: NodeKey, refused: dict[str, str]) -> str:
        """Order the node of the next cell that may have it, and return the cell's name."""

        def ordered(broker: Broker, operation: Operation) -> str:
            with self._store.snapshot() as snapshot:
                beside = Broker(snapshot)
                used = [cell for _, cell in beside.nodes.list(self._instance)]
                step = operation.steps[operation.completed_steps]
                cells = available_cells(cell_loads(beside), allowed=[step.target] if step.target else operation.cells)
                version = version_of(beside, self._instance)
            state = broker.instances.require(self._instance)
            if not used and not version and not state.restore and state.recovery is None:
                state.version = version = version_of_new(cells)
                broker.instances.put(self._instance, state)
            lacking = {cell.guid: f"it has no PostgreSQL {version}" for cell in cells if not cell.runs(version)}
            names = [name for name in cells_in_order(cells, used) if name not in {**refused, **lacking}]
            if not names:
                reasons = "; ".join(f"{name}: {reason}" for name, reason in sorted({**lacking, **refused}.items()))
                raise StepFailedError(f"no cell takes the node ({reasons or 'there is none'})")
            order = NodeOrder(
                instance=self._instance,
                patroni=self._patroni_of(operation.plan_id),
                restore=state.restore,
                archive=state.archive,
                recovery=state.recovery,
                upgrade=state.upgrade,
                version=version,
            )
            broker.orders.put(OrderKey(names[0], key.node), with_logins(order, state))
            broker.node_intents.put(key, names[0])
            return names[0]

        return self._progress.commit(ordered)

    def _patroni_of(self, plan_id: str) -> dict[str, object]:
        """What a new cluster's dynamic configuration has: as the plan, what it is restored from, and its archive say."""
        state = self._latest.instances.get(self._instance) or InstanceState()
        try:
            found = dict(self._catalog.plan(state.service_id, plan_id).patroni)
        except RefusedError:
            found = {}  # Why: a plan that was taken out of the catalog stays that of its instances.
        for above in (
            {} if state.recovery is None else state.recovery.configuration,
            {} if state.upgrade is None else state.upgrade.configuration,
            {} if state.archive is None else archiving(state.archive),
        ):
            found = merged(found, above)
        return found

    def _answer(self, cell: str, node: str) -> str:
        """Wait for what a cell says to an order. Return why it does not run the node, empty when it does."""
        give_up = SYSTEM_CLOCK.monotonic() + self._waits.cell_seconds_max
        while SYSTEM_CLOCK.monotonic() < give_up:
            report = self._latest.reports.get(OrderKey(cell, node))
            if report is not None and report.state in {"starting", "running"}:
                return ""
            if report is not None and report.state in {"refused", "failed"}:
                return report.message or report.state
            if not self._latest.cells.exists(cell):
                return "it is not alive"
            self._progress.pause()
        return "it did not answer"

    def _remove(self, step: Step) -> None:
        node = step.node or self._progress.commit(self._chosen)
        if not node:
            self._progress.complete()
            return
        if self._progress.current().kind != "deprovision":
            # Invariant: of a cluster that stays no node goes before all that stay follow a leader that stays. A member that is
            # being rewound loses what it is rewound from otherwise, and who has taken over may be the only one with everything.
            self._cluster.hand_over(node)
            still = partial(self._cluster.missing_without, node)
            self._progress.until(still, self._waits.step_seconds_max, self._cluster.positions)
        key = NodeKey(self._instance, node)
        self._end(key)
        self._progress.complete(lambda broker: _removed(broker, key))

    def _end(self, key: NodeKey, order: Callable[[Broker, NodeKey, str], None] | None = None) -> None:
        """Order the removal of a node, and wait until its cell has removed it, or is dead."""
        cell = self._latest.nodes.get(key) or self._latest.node_intents.get(key)
        if cell == OUTSIDE:
            self._progress.until(partial(self._runs_outside, key.node), self._waits.step_seconds_max)
        elif cell is not None:
            self._progress.commit(lambda broker, _operation: (order or _order_removal)(broker, key, cell))
            is_placed = self._latest.nodes.exists(key)
            remains = partial(self._remains, cell, key.node, is_placed=is_placed)
            self._progress.until(remains, self._waits.step_seconds_max)

    def _runs_outside(self, node: str) -> str:
        if not self._latest.members.exists(MemberKey(self._instance, node)):
            return ""
        # Why told: a person has to do it, while the step waits.
        self._progress.tell(f"no cell runs {node}: end its Patroni where it runs, and keep it from starting again")
        return "it runs still"

    def _discard(self, step: Step) -> None:
        """Remove a node of a cluster that never was: it has data that were not completed, and nobody follows it."""
        key = NodeKey(self._instance, step.node)
        self._end(key, _order_discard)
        self._progress.complete(lambda broker: _removed(broker, key))

    def _begin_again(self, step: Step) -> None:
        self._progress.complete(lambda broker: take_initialize_away(broker, self._instance, step.mark))

    def _chosen(self, broker: Broker, operation: Operation) -> str:
        """Choose a node to remove and write it into the step: not the leader, unless it is alone.

        First those that follow nobody, then those of dead cells: what is left must be what can be counted on.
        """
        leader = broker.leaders.get(self._instance)
        placed = [(key.node, cell) for key, cell in broker.nodes.list(self._instance)]
        # Why beside the transaction: every member that it reads would be guarded, and heartbeats rewrite them all the time.
        with self._store.snapshot() as state:
            beside = Broker(state)
            alive = {cell.guid for cell in cell_loads(beside)}
            astray = members_astray(beside, self._instance, [node for node, _ in placed])
        cells = [cell for _, cell in placed]

        def rank(item: tuple[str, str]) -> tuple[bool, bool, bool, int, str]:
            node, cell = item
            return node == leader, node not in astray, cell in alive, -cells.count(cell), node

        placed.sort(key=rank)
        if not placed:
            return ""
        step = operation.steps[operation.completed_steps]
        step.node = placed[0][0]
        broker.operations.put(self._instance, operation)
        return step.node

    def _remains(self, cell: str, node: str, *, is_placed: bool) -> str:
        key = OrderKey(cell, node)
        report = self._latest.reports.get(key)
        # Why not while the order stands: a cell that announced itself anew has not reported its nodes yet. A node that was
        # never placed may never have begun, and a dead cell finds the order when it is back.
        if report is None and not (is_placed and self._latest.orders.exists(key) and self._latest.cells.exists(cell)):
            return ""
        state = (report.message or report.state) if report is not None else "it has not answered"
        return f"cell {cell} has not removed node {node}: {state}"

    # ---- callbacks -----------------------------------------------------------------------------------------------------

    def _copy(self, step: Step) -> None:
        self._call_back(lambda callbacks: callbacks.copy(step.node, self._instance))

    def _keep_data(self, _step: Step) -> None:
        data = cluster_data_of(self._latest.instances.require(self._instance))
        self._call_back(lambda callbacks: callbacks.save(data))

    def _renew_data(self, step: Step) -> None:
        """Keep the data about the instance again, where they are kept: its users have changed."""
        if self._callbacks is None:
            self._progress.complete()
        else:
            self._keep_data(step)

    def _call_back(self, work: Callable[[SiteCallbacks], None]) -> None:
        if self._callbacks is None:
            raise StepFailedError("this broker has no callbacks, and the one that began had some")
        try:
            work(self._callbacks)
        except CallbackFailedError as error:
            raise StepFailedError(str(error)) from error
        self._progress.complete()

    # ---- the end -------------------------------------------------------------------------------------------------------

    def _erase(self) -> Operation:
        """Delete bindings, then everything else with the end of the operation in one commit (1.6 (10))."""
        while keys := list(self._latest.bindings.keys(self._instance, limit=_BATCH)):
            self._progress.commit(lambda broker, _operation, keys=keys: [broker.bindings.delete(key) for key in keys])  # type: ignore[misc]

        def erased(broker: Broker, operation: Operation) -> Operation:
            now = self._progress.clock.wall()
            _erase_cluster(broker, self._instance, now)
            operation.completed_steps = len(operation.steps)
            operation.status, operation.message, operation.ended_at = SUCCESS, "deleted", now
            broker.operations.put(self._instance, operation)
            self._progress.events.ended(broker, self._instance, operation, is_success=True)
            broker.claims.delete(self._instance)
            return operation

        return self._progress.commit(erased)


def _without_added(instance: str, broker: Broker, operation: Operation) -> str:
    """Order the removal of the node that a move has added, where it fails; return what becomes of it, in words.

    Why of moves alone: an update that is asked for again counts on what there is, and a move would add another node.
    """
    if operation.kind != "move":
        return ""
    added, former = (next(step.node for step in operation.steps if step.kind == kind) for kind in ("add", "remove"))
    key = NodeKey(instance, added)
    cell = broker.nodes.get(key) or broker.node_intents.get(key)
    if cell is None:
        return ""
    begun = [step.kind for step in operation.steps[: operation.completed_steps + 1]]
    if "remove" in begun or broker.leaders.get(instance) == added:
        return f"; the new node {added} stays on cell {cell}, and so does {former} unless its cell has removed it"
    _order_removal(broker, key, cell)
    _removed(broker, key)
    return f"; the new node {added} is removed again from cell {cell}"


def _placed(key: NodeKey, cell: str, broker: Broker) -> None:
    broker.nodes.put(key, cell)
    broker.node_intents.delete(key)


def _order_removal(broker: Broker, key: NodeKey, cell: str) -> None:
    """Order a cell to remove a node with its data. The order stands until the cell has done so, dead ones included."""
    broker.orders.put(OrderKey(cell, key.node), NodeOrder(instance=key.instance, remove=True))


def _order_discard(broker: Broker, key: NodeKey, cell: str) -> None:
    """Order the removal of a node, unless it leads: who follows it has its data, and another leader has not."""
    if broker.leaders.get(key.instance) == key.node:
        raise StepFailedError(f"{key.node} has come to lead; ask for it again")
    _order_removal(broker, key, cell)


def _withdrawn(key: NodeKey, cell: str, broker: Broker, operation: Operation) -> str:
    """Take an order back, and return the name of the node that is asked for in its place."""
    _order_removal(broker, key, cell)
    broker.node_intents.delete(key)
    # Why another name: a cell that answers late may still run the old one for a moment, and a cluster has no two of a name.
    operation.steps[operation.completed_steps].node = name = str(uuid4())
    broker.operations.put(key.instance, operation)
    return name


def _removed(broker: Broker, key: NodeKey) -> None:
    cell = broker.nodes.get(key)
    if cell is not None:
        broker.tasks.delete(OrderKey(cell, key.node))
        broker.task_answers.delete(OrderKey(cell, key.node))
    # Why the member too: Patroni leaves it to its lease, and the cluster would be waited for with one member too many.
    broker.nodes.delete(key)
    broker.node_intents.delete(key)
    broker.members.delete(MemberKey(key.instance, key.node))


def _erase_cluster(broker: Broker, instance: str, now: float) -> None:
    """Delete all records of an instance, and its cluster: otherwise the next one of this id joins a dead cluster."""
    erase_cluster_keys(broker, instance)
    for node in list(broker.nodes.keys(instance)):
        broker.nodes.delete(node)
    with suppress(CorruptionError):  # Why: what cannot be read goes, too.
        state = broker.instances.get(instance)
        if state is not None and state.archive is not None:
            end_span(broker, instance, state.archive, now)
    for one in (broker.allocations, broker.replica_ports, broker.instances, broker.seen_clusters):
        one.delete(instance)
