"""One operation, carried out step by step by the broker that holds its claim. Every step may be made twice.

Each commit is guarded by operation and claim: a broker that lost its claim, or whose operation was replaced, writes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Final, TypeVar
from uuid import uuid4

import httpx

from keyplan.apps.patroni.backups import Backups, CallbackFailedError, cluster_data_of
from keyplan.apps.patroni.catalog import Catalog
from keyplan.apps.patroni.cluster_login import with_logins
from keyplan.apps.patroni.clusters import RUNNING, cell_loads, leader_of, members_astray
from keyplan.apps.patroni.layout import Broker, MemberKey, NodeKey, OrderKey
from keyplan.apps.patroni.operations import FAILED, IN_PROGRESS, SUCCESS, note_progress
from keyplan.apps.patroni.patroni_rest import SwitchoverFailedError, switch_over
from keyplan.apps.patroni.records import NodeOrder, Operation, Step
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.apps.patroni.scheduling import available_cells, cells_in_order
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.layout import Binding
from keyplan.store import Store

__all__ = ["OperationWork", "StoppedError", "SupersededError", "Waits"]

R = TypeVar("R")

_TITLES: Final = {
    "add": "add a node",
    "remove": "remove a node",
    "wait_members": "wait for all members",
    "wait_leader": "wait for the leader",
    "switch": "hand over the lead",
    "copy": "copy the backups that it is made from",
    "backup": "keep the data about it",
    "erase": "erase the records",
}
_BATCH: Final = 20
"""Why: etcd takes 128 operations a commit."""


class SupersededError(Exception):
    """The operation was replaced by another one, or its claim is held by another broker: stop, and write nothing."""


class StoppedError(Exception):
    """The broker stops: another one, or this one after its start, goes on at the same step."""


class StepFailedError(Exception):
    """A step cannot be made. The text is for people, in the operation's message."""


@dataclass(frozen=True)
class Waits:
    """How long steps wait, in seconds, and how often they look."""

    step_seconds_max: float = 300.0
    cell_seconds_max: float = 30.0
    look_seconds: float = 0.25
    switch_again_seconds: float = 5.0


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
        backups: Backups | None = None,
    ) -> None:
        self._store = store
        self._backups = backups
        self._latest = Broker(store)
        self._instance = instance
        self._operation = operation
        self._broker = broker
        self._catalog = catalog
        self._stop = stop
        self._clock = clock
        self._waits = waits if waits is not None else Waits()
        self._steps: dict[str, Callable[[Step], None]] = {
            "add": self._add,
            "remove": self._remove,
            "wait_members": self._wait_members,
            "wait_leader": self._wait_leader,
            "switch": self._switch,
            "copy": self._copy,
            "backup": self._back_up,
        }

    def run(self) -> Operation:
        """Make all steps that remain and return the operation as it ended.

        Raises SupersededError, StoppedError; and KeyplanError when the store fails, after which it can be run again.
        """
        try:
            while True:
                operation = self._current()
                if operation.completed_steps >= len(operation.steps):
                    return self._ended(SUCCESS, "done")
                step = operation.steps[operation.completed_steps]
                self._tell(f"step {operation.completed_steps + 1} of {len(operation.steps)}: {_TITLES[step.kind]}")
                if step.kind == "erase":
                    return self._erase()
                self._steps[step.kind](step)
        except StepFailedError as error:
            return self._ended(FAILED, str(error))

    # ---- commits -------------------------------------------------------------------------------------------------------

    def _commit(self, change: Callable[[Broker, Operation], R]) -> R:
        """Commit what `change` writes, if the operation is still the one, and still this broker's."""

        def work(binding: Binding) -> R:
            broker = Broker(binding)
            operation, claim = broker.operations.get(self._instance), broker.claims.get(self._instance)
            if operation is None or operation.id != self._operation or operation.status != IN_PROGRESS:
                raise SupersededError
            if claim is None or claim.broker != self._broker or claim.operation != self._operation:
                raise SupersededError
            return change(broker, operation)

        return self._store.run(work)

    def _current(self) -> Operation:
        operation = self._latest.operations.get(self._instance)
        if operation is None or operation.id != self._operation or operation.status != IN_PROGRESS:
            raise SupersededError
        return operation

    def _save(self, broker: Broker, operation: Operation) -> None:
        broker.operations.put(self._instance, operation)
        state = broker.instances.get(self._instance)
        if state is not None:
            note_progress(state, operation)
            broker.instances.put(self._instance, state)

    def _complete(self, change: Callable[[Broker], object] = lambda _broker: None) -> None:
        """Commit the last writes of a step, and that it is done."""

        def completed(broker: Broker, operation: Operation) -> None:
            change(broker)
            operation.completed_steps += 1
            self._save(broker, operation)

        self._commit(completed)

    def _tell(self, message: str) -> None:
        def told(broker: Broker, operation: Operation) -> None:
            if operation.message != message:
                operation.message = message
                self._save(broker, operation)

        self._commit(told)

    def _ended(self, status: str, message: str) -> Operation:
        def ended(broker: Broker, operation: Operation) -> Operation:
            operation.status, operation.ended_at = status, self._clock.wall()
            operation.message = message if status == SUCCESS else f"{operation.message}: {message}"
            state = broker.instances.get(self._instance)
            if state is not None and status == SUCCESS:
                state.plan_id, state.node_count, state.cells = operation.plan_id, operation.node_count, operation.cells
                state.parameters = operation.parameters
                broker.instances.put(self._instance, state)
            self._save(broker, operation)
            # Why here: whoever sees the end finds nobody at work any more.
            broker.claims.delete(self._instance)
            return operation

        return self._commit(ended)

    # ---- waiting -------------------------------------------------------------------------------------------------------

    def _until(self, problem: Callable[[], str], seconds_max: float) -> None:
        """Wait until `problem` returns an empty text. Raises StepFailedError with the last one.

        Raises StoppedError, SupersededError.
        """
        give_up = SYSTEM_CLOCK.monotonic() + seconds_max
        while text := problem():
            if SYSTEM_CLOCK.monotonic() > give_up:
                raise StepFailedError(text)
            self._pause()

    def _pause(self) -> None:
        if self._stop.wait(self._waits.look_seconds):
            raise StoppedError
        self._current()

    # ---- nodes ---------------------------------------------------------------------------------------------------------

    def _add(self, step: Step) -> None:
        key = NodeKey(self._instance, step.node)
        refused: dict[str, str] = {}
        while self._latest.nodes.get(key) is None:
            cell = self._latest.node_intents.get(key) or self._order(key, refused)
            problem = self._answer(cell, key.node)
            if not problem:
                self._complete(partial(_placed, key, cell))
                return
            refused[cell] = problem
            key = NodeKey(self._instance, self._commit(partial(_withdrawn, key, cell)))
        self._complete()

    def _order(self, key: NodeKey, refused: dict[str, str]) -> str:
        """Order the node of the next cell that may have it, and return the cell's name."""

        def ordered(broker: Broker, operation: Operation) -> str:
            with self._store.snapshot() as snapshot:
                beside = Broker(snapshot)
                used = [cell for _, cell in beside.nodes.list(self._instance)]
                cells = available_cells(cell_loads(beside), allowed=operation.cells)
            names = [name for name in cells_in_order(cells, used) if name not in refused]
            if not names:
                reasons = "; ".join(f"{name}: {reason}" for name, reason in sorted(refused.items()))
                raise StepFailedError(f"no cell takes the node ({reasons or 'there is none'})")
            state = broker.instances.require(self._instance)
            patroni = self._patroni_of(operation.plan_id)
            order = NodeOrder(instance=self._instance, patroni=patroni, restore=state.restore)
            broker.orders.put(OrderKey(names[0], key.node), with_logins(order, state))
            broker.node_intents.put(key, names[0])
            return names[0]

        return self._commit(ordered)

    def _patroni_of(self, plan_id: str) -> dict[str, object]:
        state = self._latest.instances.get(self._instance)
        try:
            return dict(self._catalog.plan(state.service_id if state is not None else "", plan_id).patroni)
        except RefusedError:
            return {}  # Why: a plan that was taken out of the catalog stays that of its instances.

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
            self._pause()
        return "it did not answer"

    def _remove(self, step: Step) -> None:
        node = step.node or self._commit(self._chosen)
        if not node:
            self._complete()
            return
        if self._current().kind == "update":
            # Invariant: of a cluster that stays no node goes before all that stay follow a leader that stays. A member that is
            # being rewound loses what it is rewound from otherwise, and who has taken over may be the only one with everything.
            self._hand_over(node)
            self._until(partial(self._missing_without, node), self._waits.step_seconds_max)
        key = NodeKey(self._instance, node)
        cell = self._latest.nodes.get(key) or self._latest.node_intents.get(key)
        if cell is not None:
            self._commit(lambda broker, _operation: _order_removal(broker, key, cell))
            is_placed = self._latest.nodes.exists(key)
            self._until(lambda: self._remains(cell, node, is_placed=is_placed), self._waits.step_seconds_max)
        self._complete(lambda broker: _removed(broker, key))

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

    # ---- the cluster ---------------------------------------------------------------------------------------------------

    def _wait_members(self, _step: Step) -> None:
        self._until(self._missing_members, self._waits.step_seconds_max)
        self._complete()

    def _missing_members(self) -> str:
        """Return which members cannot be counted on: all that stay must follow; those that the operation removes need not."""
        operation = self._current()
        removals = [step.node for step in operation.steps[operation.completed_steps :] if step.kind == "remove"]
        with self._store.snapshot() as state:
            broker = Broker(state)
            placed = {key.node: cell for key, cell in broker.nodes.list(self._instance)}
            staying = sorted(placed.keys() - set(removals))
            astray = members_astray(broker, self._instance, staying)
            leader = broker.leaders.get(self._instance)
            others = sorted({key.member for key in broker.members.keys(self._instance)} - placed.keys())
            reports = [broker.reports.get(OrderKey(placed[node], node)) for node in staying]
        # Why so many: those are the first that a step chooses whose node is not named yet.
        if len(astray) <= removals.count("") and leader not in astray and not others:
            return ""
        faults = [f"{node}: {problem}" for node, problem in astray.items()]
        faults += [report.message for report in reports if report is not None and report.state == "failed"]
        if others:
            faults.append(f"others run too: {', '.join(others)}")
        return "; ".join([f"{len(staying) - len(astray)} of {len(staying)} members can be counted on", *faults])

    def _missing_without(self, node: str) -> str:
        """Return why a node that has handed over cannot go yet. The lead may come back to it while others are waited for."""
        missing = self._missing_members()
        return missing or (f"{node} leads again" if self._latest.leaders.get(self._instance) == node else "")

    def _wait_leader(self, _step: Step) -> None:
        self._until(self._missing_leader, self._waits.step_seconds_max)
        self._complete()

    def _missing_leader(self) -> str:
        found = leader_of(self._latest, self._instance)
        if found is None:
            return "the cluster has no leader"
        name, member = found
        return "" if member.state in RUNNING and member.is_primary else f"the leader {name} is {member.state}"

    def _switch(self, step: Step) -> None:
        self._hand_over(step.node)
        self._complete()

    def _hand_over(self, node: str) -> None:
        """Wait until somebody else leads. The node is asked for it, where it leads, once all that stay follow it."""
        give_up = SYSTEM_CLOCK.monotonic() + self._waits.step_seconds_max
        next_try = 0.0
        text = "the leader did not change"
        while self._latest.leaders.get(self._instance) in {node, None}:
            if SYSTEM_CLOCK.monotonic() > give_up:
                raise StepFailedError(text)
            if missing := self._missing_members():
                text = missing
            elif SYSTEM_CLOCK.monotonic() >= next_try:
                text = self._asked_to_switch(node) or text
                next_try = SYSTEM_CLOCK.monotonic() + self._waits.switch_again_seconds
            self._pause()

    def _asked_to_switch(self, node: str) -> str:
        state = self._latest.instances.require(self._instance)
        member = self._latest.members.get(MemberKey(self._instance, node))
        try:
            switch_over(member, node, state.admin_credentials)
        except (SwitchoverFailedError, httpx.HTTPError) as error:
            return f"the leader did not hand over: {error}"
        return ""

    # ---- backups -------------------------------------------------------------------------------------------------------

    def _copy(self, step: Step) -> None:
        self._call_back(lambda backups: backups.copy(step.node, self._instance))

    def _back_up(self, _step: Step) -> None:
        data = cluster_data_of(self._latest.instances.require(self._instance))
        self._call_back(lambda backups: backups.save(data))

    def _call_back(self, work: Callable[[Backups], None]) -> None:
        if self._backups is None:
            raise StepFailedError("this broker has no callbacks, and the one that began had some")
        try:
            work(self._backups)
        except CallbackFailedError as error:
            raise StepFailedError(str(error)) from error
        self._complete()

    # ---- the end -------------------------------------------------------------------------------------------------------

    def _erase(self) -> Operation:
        """Delete bindings, then everything else with the end of the operation in one commit (1.6 (10))."""
        while keys := list(self._latest.bindings.keys(self._instance, limit=_BATCH)):
            self._commit(lambda broker, _operation, keys=keys: [broker.bindings.delete(key) for key in keys])  # type: ignore[misc]

        def erased(broker: Broker, operation: Operation) -> Operation:
            _erase_cluster(broker, self._instance)
            operation.completed_steps = len(operation.steps)
            operation.status, operation.message, operation.ended_at = SUCCESS, "deleted", self._clock.wall()
            broker.operations.put(self._instance, operation)
            broker.claims.delete(self._instance)
            return operation

        return self._commit(erased)


def _placed(key: NodeKey, cell: str, broker: Broker) -> None:
    broker.nodes.put(key, cell)
    broker.node_intents.delete(key)


def _order_removal(broker: Broker, key: NodeKey, cell: str) -> None:
    """Order a cell to remove a node with its data. The order stands until the cell has done so, dead ones included."""
    broker.orders.put(OrderKey(cell, key.node), NodeOrder(instance=key.instance, remove=True))


def _withdrawn(key: NodeKey, cell: str, broker: Broker, operation: Operation) -> str:
    """Take an order back, and return the name of the node that is asked for in its place."""
    _order_removal(broker, key, cell)
    broker.node_intents.delete(key)
    # Why another name: a cell that answers late may still run the old one for a moment, and a cluster has no two of a name.
    operation.steps[operation.completed_steps].node = name = str(uuid4())
    broker.operations.put(key.instance, operation)
    return name


def _removed(broker: Broker, key: NodeKey) -> None:
    # Why the member too: Patroni leaves it to its lease, and the cluster would be waited for with one member too many.
    broker.nodes.delete(key)
    broker.node_intents.delete(key)
    broker.members.delete(MemberKey(key.instance, key.node))


def _erase_cluster(broker: Broker, instance: str) -> None:
    """Delete all records of an instance, and its cluster: otherwise the next one of this id joins a dead cluster."""
    for member in list(broker.members.keys(instance)):
        broker.members.delete(member)
    for node in list(broker.nodes.keys(instance)):
        broker.nodes.delete(node)
    for one in (
        *(broker.leaders, broker.initializations, broker.configurations, broker.statuses, broker.histories),
        *(broker.failovers, broker.syncs, broker.failsafes, broker.optimes),
        *(broker.allocations, broker.replica_ports, broker.instances),
    ):
        one.delete(instance)
