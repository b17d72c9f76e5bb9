"""The steps of a restore in place or an upgrade, and of the way back: nodes halt and go on, clusters change places."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from keyplan.apps.patroni.backups.former_clusters import (
    change_places,
    is_gone,
    lay_aside,
    order_halted,
    order_removals,
)
from keyplan.apps.patroni.layout import Broker, NodeKey, OrderKey
from keyplan.apps.patroni.operation_progress import OperationProgress, StepFailedError
from keyplan.apps.patroni.records import InstanceState, Operation, Step
from keyplan.apps.patroni.upgrades.beginning import begin_at
from keyplan.apps.patroni.upgrades.records import UPGRADE

__all__ = ["IN_PLACE", "RESTORE", "RestoreSteps", "has_turned_back"]

RESTORE: Final = "restore"
"""The kind of an operation that restores in place."""
IN_PLACE: Final = (RESTORE, UPGRADE)
"""The kinds of operations that make a cluster anew in its place, and can be undone."""
_UNDONE: Final = frozenset({"add", "wait_recovered", "wait_upgraded"})
"""The steps after which, where one of them fails, the former cluster takes its place again by itself. Nobody leads yet then."""


class RestoreSteps:
    """The steps by their words. Each raises StepFailedError, StoppedError, SupersededError, and KeyplanError of the store."""

    def __init__(self, progress: OperationProgress) -> None:
        self._progress = progress
        self._latest = progress.latest
        self._instance = progress.instance
        self.steps: Final[Mapping[str, Callable[[Step], None]]] = {
            "halt": self._halt,
            "lay_aside": self._lay_aside,
            "change_places": self._change_places,
            "resume": self._resume,
            "discard_former": self._discard_former,
        }

    def _halt(self, step: Step) -> None:
        """Halt all nodes, the leader last: so nobody takes over. Where one cannot be halted, all go on."""
        try:
            self._progress.until(partial(self._running, step), self._progress.waits.step_seconds_max)
            if self._progress.current().kind == UPGRADE and not step.node:
                # Why: it is of its data that the upgraded cluster is made.
                raise StepFailedError("nobody led the cluster any more when its nodes were halted; they go on")
        except StepFailedError:
            self._progress.commit(lambda broker, _operation: order_halted(broker, self._places(broker), halted=False))
            raise
        self._progress.complete()

    def _running(self, step: Step) -> str:
        """Have the next nodes halted, note who leads last, and return which run still; empty: none."""
        self._progress.require_wanted()
        with self._progress.store.snapshot() as state:
            broker = Broker(state)
            places, leader = self._places(broker), broker.leaders.get(self._instance)
            reports = {place: broker.reports.get(place) for place in places}
            orders = {place: broker.orders.get(place) for place in places}
        running = {
            place: report.state if report is not None else f"cell {place.cell} says nothing of it"
            for place, report in reports.items()
            if report is None or report.state != "halted"
        }
        if not running:
            return ""
        followers = [place for place in running if place.node != leader]
        if not followers and leader is not None and step.node != leader:
            step.node = leader
            self._progress.note(step)
        wanted = followers or [*running]
        if any((order := orders[place]) is None or not order.halted for place in wanted):
            self._progress.commit(lambda broker, _operation: order_halted(broker, wanted, halted=True))
        return "; ".join(f"{place.node} is not halted: {state}" for place, state in running.items())

    def _places(self, broker: Broker) -> list[OrderKey]:
        return [OrderKey(cell, key.node) for key, cell in broker.nodes.list(self._instance)]

    def _lay_aside(self, _step: Step) -> None:
        now = self._progress.clock.wall()
        operation = self._progress.commit(self._begun_at_leader)
        leader = _last_leader(operation)
        self._progress.complete(lambda broker: lay_aside(broker, self._instance, operation, leader, now=now))

    def _begun_at_leader(self, broker: Broker, operation: Operation) -> Operation:
        """Note where an upgraded cluster begins, which nobody knows before all are halted; return the operation."""
        if operation.upgrade is not None:
            leader = _last_leader(operation)
            begin_at(operation, leader, broker.nodes.require(NodeKey(self._instance, leader)))
            broker.operations.put(self._instance, operation)
        return operation

    def _change_places(self, _step: Step) -> None:
        operation, now = self._progress.current(), self._progress.clock.wall()
        # Why none where it is undone: what was begun has no nodes any more.
        leader = "" if operation.failure else _last_leader(operation)
        self._progress.complete(lambda broker: change_places(broker, self._instance, leader, now=now))

    def _resume(self, _step: Step) -> None:
        self._progress.complete(lambda broker: order_halted(broker, self._places(broker), halted=False))

    def _discard_former(self, _step: Step) -> None:
        self._progress.commit(lambda broker, _operation: order_removals(broker, self._instance))
        self._progress.until(self._left, self._progress.waits.step_seconds_max)

        def forgotten(broker: Broker) -> None:
            state = broker.instances.require(self._instance)
            state.former = None
            broker.instances.put(self._instance, state)

        self._progress.complete(forgotten)

    def _left(self) -> str:
        former = self._latest.instances.require(self._instance).former
        left = [
            f"cell {cell} has not removed node {node}"
            for node, cell in (former.nodes.items() if former is not None else ())
            if not is_gone(self._latest, OrderKey(cell, node))
        ]
        return "; ".join(left)


def _last_leader(operation: Operation) -> str:
    return next((step.node for step in operation.steps if step.kind == "halt"), "")


def _was_led(broker: Broker, state: InstanceState) -> bool:
    """Whether the cluster that was begun may have acknowledged something. Why not by its leader alone: it may be gone again."""
    if state.recovery is None and state.upgrade is None:
        return True
    return any(view.exists(state.instance_id) for view in (broker.leaders, broker.statuses, broker.optimes))


def has_turned_back(progress: OperationProgress, problem: str) -> bool:
    """Undo a restore that has failed before anybody led: put the steps for it in place of those that are left.

    Return False where it is none, or has come further. The operation fails all the same, when it is undone.
    """

    def turned(broker: Broker, operation: Operation) -> bool:
        at, instance = operation.completed_steps, progress.instance
        state = broker.instances.get(instance)
        if operation.kind not in IN_PLACE or operation.failure or state is None or state.former is None:
            return False
        if operation.steps[at].kind not in _UNDONE or _was_led(broker, state):
            return False
        begun = {key.node for view in (broker.nodes, broker.node_intents) for key, _ in view.list(instance)}
        operation.failure = f"{problem}; the former cluster goes on"
        operation.steps[at + 1 :] = [
            *(Step(kind="discard", node=node) for node in sorted(begun)),
            *(Step(kind="change_places"), Step(kind="wait_leader"), Step(kind="resume"), Step(kind="wait_members")),
        ]
        operation.completed_steps += 1
        broker.operations.put(instance, operation)
        return True

    return progress.commit(turned)
