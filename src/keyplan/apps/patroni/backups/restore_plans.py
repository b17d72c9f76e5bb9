"""How a restore in place begins, is undone, and becomes final: judged by what the store knows, written as an operation.

The way back and the end are those of an upgrade, too.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

from keyplan.apps.patroni.backups.books import beginning_of, recovery_target, shown_time, sound_backups
from keyplan.apps.patroni.backups.former_clusters import nodes_gone
from keyplan.apps.patroni.backups.records import Recovery, new_archive
from keyplan.apps.patroni.backups.restore_steps import IN_PLACE, RESTORE
from keyplan.apps.patroni.clusters import cell_loads, cells_away, outside_nodes
from keyplan.apps.patroni.dynamic_configuration import is_on
from keyplan.apps.patroni.events import EventLog
from keyplan.apps.patroni.layout import BookKey, Broker, OrderKey
from keyplan.apps.patroni.logins import ROLES
from keyplan.apps.patroni.operations import IN_PROGRESS, begin_planned, operation_on
from keyplan.apps.patroni.records import FormerCluster, InstanceState, Operation, Step
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.engine import Clock
from keyplan.store import Store

__all__ = ["SETTLED", "RestorePlans", "led_configuration", "placed_nodes", "refuse_former", "refuse_full"]

SETTLED: Final = (
    Step(kind="end_logins", target=",".join(ROLES)),
    Step(kind="settle_bindings"),
    Step(kind="renew_data"),
)
"""What the roles in the database need that is as it was: those that were replaced since end, those that came since are made."""


class RestorePlans:
    """Plans and begins. Raises RefusedError: 404 without the instance, 400 for what cannot be, 422 for not now."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._events = EventLog(store, clock)

    def restore(self, instance: str, target: datetime | None, *, is_trial: bool = False) -> Operation:
        """Make an instance again as it was at a time; without one, as it is at the end of its archive.

        Its nodes are halted with their data, and others made from its backups. Where that fails they go on. With `is_trial`
        nothing is written.
        """

        def planned(broker: Broker, state: InstanceState) -> Operation:
            if target is not None and target.timestamp() > self._clock.wall():
                raise RefusedError(400, f"{shown_time(target.timestamp())} is yet to come")
            refuse_former(state)
            beginning = beginning_of(instance, broker.backup_books.list(instance), target)
            configuration = led_configuration(broker, instance)
            placed = placed_nodes(broker, instance)
            refuse_full(broker, placed)
            flush = [Step(kind="flush", node=instance)] if broker.leaders.exists(instance) and state.archive else []
            steps = [
                *(*flush, Step(kind="halt"), Step(kind="lay_aside")),
                *(Step(kind="add", node=str(uuid4()), target=place.cell) for place in placed),
                *(Step(kind="wait_recovered"), Step(kind="wait_members"), Step(kind="wait_leader")),
                *(*SETTLED, Step(kind="back_up", target="full")),
            ]
            policy = (state.archive or beginning.book.archive).policy
            begun = self._operation(RESTORE, steps, state)
            begun.archive = new_archive(instance, policy)
            begun.recovery = Recovery(
                archive=beginning.book.archive,
                label=beginning.backup.label,
                target=recovery_target(beginning.target),
                configuration=configuration,
                version=beginning.book.version,
            )
            return begun

        return self._begin(instance, planned, is_trial=is_trial)

    def go_back(self, instance: str, *, is_trial: bool = False) -> Operation:
        """Let the former cluster of an instance take its place again; the present one is the former then.

        A restore or an upgrade that is under way is called off: its operation is returned, which undoes what it did, and fails.
        One whose cluster leads already has to end first. A way back that has failed is gone on with.
        """
        called_off = self._store.run(lambda binding: _called_off(Broker(binding), instance, is_trial=is_trial))
        if called_off is not None:
            return called_off

        def planned(broker: Broker, state: InstanceState) -> Operation:
            led_configuration(broker, instance)
            placed = placed_nodes(broker, instance, may_be_halted=True)
            ending = [Step(kind="resume"), Step(kind="wait_leader"), Step(kind="wait_members"), *SETTLED]
            if _is_halted(broker, placed):
                return self._operation("restore-back", ending, state)
            if state.former is None:
                raise RefusedError(400, "it has no former cluster")
            _refuse_gone(broker, state.former)
            halt = [Step(kind="halt")] if placed else []
            steps = [*halt, Step(kind="change_places"), Step(kind="wait_leader"), *ending]
            return self._operation("restore-back", steps, state)

        return self._begin(instance, planned, is_trial=is_trial)

    def finish(self, instance: str, *, is_trial: bool = False) -> Operation:
        """Remove the former cluster of an instance, with its data, where the present one leads and has a backup."""

        def planned(broker: Broker, state: InstanceState) -> Operation:
            if state.former is None:
                raise RefusedError(400, "it has no former cluster")
            if not broker.leaders.exists(instance):
                raise RefusedError(422, "nobody leads the cluster now: its former one stays")
            archive = state.archive
            book = broker.backup_books.get(BookKey(instance, archive.stanza)) if archive is not None else None
            if archive is not None and (book is None or not sound_backups(book)):
                raise RefusedError(422, "there is no backup of it yet: its former cluster stays; `backup` makes one")
            return self._operation("restore-finish", [Step(kind="discard_former")], state)

        return self._begin(instance, planned, is_trial=is_trial)

    def _operation(self, kind: str, steps: Sequence[Step], state: InstanceState) -> Operation:
        return operation_on(self._clock, kind, steps, state)

    def _begin(
        self, instance: str, planned: Callable[[Broker, InstanceState], Operation], *, is_trial: bool
    ) -> Operation:
        return begin_planned(self._store, self._events, instance, planned, is_trial=is_trial)


def refuse_former(state: InstanceState) -> None:
    """Raise RefusedError where there is a former cluster already: there is one at most."""
    if state.former is not None:
        raise RefusedError(
            422, "its former cluster is there still: `restore --back` returns to it, `restore --finish` removes it"
        )


def placed_nodes(broker: Broker, instance: str, *, may_be_halted: bool = False) -> list[OrderKey]:
    """Return the nodes of an instance, all of which must be where a cell can halt them. Raises RefusedError."""
    if outside := outside_nodes(broker, instance):
        raise RefusedError(422, f"no cell runs {', '.join(outside)}, and halts it")
    if away := cells_away(broker, instance):
        raise RefusedError(422, f"cell {away[0]} is not alive: its node could come back in the middle")
    placed = [OrderKey(cell, key.node) for key, cell in broker.nodes.list(instance)]
    if _is_halted(broker, placed) and not may_be_halted:
        raise RefusedError(422, "a way back has not come to its end: `restore --back` goes on with it")
    return placed


def led_configuration(broker: Broker, instance: str) -> dict[str, Any]:
    """Return a cluster's dynamic configuration. Raises RefusedError where no node would come to lead by itself with it."""
    configuration = broker.configurations.get(instance) or {}
    if is_on(configuration.get("pause")):
        raise RefusedError(422, "the cluster is paused, and nobody would come to lead; resume it first")
    if configuration.get("standby_cluster"):
        raise RefusedError(422, "it is a standby of another cluster: what that one was is restored there")
    return configuration


def _called_off(broker: Broker, instance: str, *, is_trial: bool) -> Operation | None:
    """Call a restore or an upgrade off that is under way, and return it; None where there is none."""
    operation = broker.operations.get(instance)
    if operation is None or operation.status != IN_PROGRESS or operation.kind not in IN_PLACE:
        return None
    left = {step.kind for step in operation.steps[operation.completed_steps :]}
    if not operation.failure and not left & {"wait_recovered", "wait_upgraded"}:
        made = "restored" if operation.kind == RESTORE else "upgraded"
        problem = f"the {made} cluster leads already: wait until the {operation.kind} has ended, and ask again"
        raise RefusedError(422, problem)
    if not is_trial:
        operation.is_called_off = True
        broker.operations.put(instance, operation)
    return operation


def _is_halted(broker: Broker, placed: list[OrderKey]) -> bool:
    """Whether a node that is not of a former cluster is halted: a way back has failed."""
    orders = [broker.orders.get(place) for place in placed]
    return any(order is not None and order.halted for order in orders)


def refuse_full(broker: Broker, placed: list[OrderKey]) -> None:
    """Raise RefusedError where a cell takes no other node beside the one that it has."""
    draining = {load.guid for load in cell_loads(broker) if load.is_draining}
    for place in placed:
        if place.cell in draining:
            raise RefusedError(422, f"cell {place.cell} takes no new nodes: move {place.node} elsewhere first")


def _refuse_gone(broker: Broker, former: FormerCluster) -> None:
    if gone := nodes_gone(broker, former):
        raise RefusedError(422, f"the removal of {gone[0]} has begun: `restore --finish` goes on with it")
    for node, cell in former.nodes.items():
        if not broker.cells.exists(cell):
            raise RefusedError(422, f"cell {cell} is not alive, and has {node} of the former cluster")
