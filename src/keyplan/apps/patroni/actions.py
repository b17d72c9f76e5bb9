"""What is done with an instance that runs: its lead handed over, members restarted, copied, moved, configured, logins rotated.

An action is an operation, as an update is: begun in one commit, carried out step by step by whichever broker holds its claim,
and gone on with by another when that one dies. One goes on at a time for an instance.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final
from uuid import uuid4

from msgspec import Struct, field

from keyplan.apps.patroni.catalog import NODES_MAX
from keyplan.apps.patroni.clusters import cell_loads, cells_away, members_astray, outside_nodes, staying_outside
from keyplan.apps.patroni.dynamic_configuration import is_on, require_changes
from keyplan.apps.patroni.events import EventLog
from keyplan.apps.patroni.layout import Broker
from keyplan.apps.patroni.logins import KEEP_SECONDS, KEEP_SECONDS_MAX, LoginKind, rotation_of
from keyplan.apps.patroni.operations import new_operation, refuse_unusable, steps_of_update, write_begun
from keyplan.apps.patroni.records import InstanceState, Operation, Step
from keyplan.apps.patroni.refusals import RefusedError
from keyplan.apps.patroni.scheduling import available_cells, too_few_cells
from keyplan.engine import Clock
from keyplan.layout import Binding
from keyplan.store import Store

__all__ = ["Action", "ActionKind", "Actions"]


class ActionKind(StrEnum):
    """What is to be done."""

    SWITCHOVER = "switchover"
    RESTART = "restart"
    REINITIALISE = "reinitialise"
    MOVE = "move"
    CONFIGURE = "configure"
    ROTATE = "rotate"
    SCALE = "scale"


class Action(Struct, frozen=True, kw_only=True):
    """What is asked for. `node` is who is to lead, to be restarted (all, where it is empty), copied anew or moved.

    `cell` is where a node moves to. `configuration` is what changes in Patroni's dynamic configuration: None removes a key.
    `only` names the logins that are rotated, all without a name; those that they replace count for `keep_seconds` more.
    `node_count` is how many nodes there are to be.
    """

    schema_name: ClassVar[str] = "BrokerAction"
    kind: ActionKind
    node: str = ""
    cell: str = ""
    configuration: dict[str, Any] = field(default_factory=dict)
    only: list[str] = field(default_factory=list)
    keep_seconds: float = KEEP_SECONDS
    node_count: int = 0


class Actions:
    """Plans and begins actions. Raises RefusedError: 404 without the instance, 400 for what cannot be, 422 for not now.

    With `may_share_cells` a cell may be given several nodes of an instance.
    """

    def __init__(self, store: Store, clock: Clock, *, may_share_cells: bool = False) -> None:
        self._store = store
        self._clock = clock
        self._events = EventLog(store, clock)
        self._may_share_cells = may_share_cells

    def planned(self, instance: str, action: Action) -> list[Step]:
        """Return the steps that an action would have now. Nothing is written."""
        with self._store.snapshot() as pinned:
            return self._planned(Broker(pinned), instance, action)[1]

    def begin(self, instance: str, action: Action) -> Operation:
        """Begin an action, in one commit, and return its operation."""

        def work(binding: Binding) -> Operation:
            broker = Broker(binding)
            # Why beside the transaction: every member that it reads would be guarded, and heartbeats rewrite them all the
            # time. What the steps need is looked at once more when they are made.
            with self._store.snapshot() as pinned:
                _, steps = self._planned(Broker(pinned), instance, action)
            state = _usable(broker, instance)
            begun = new_operation(self._clock, action.kind, steps, state.parameters)
            begun.plan_id, begun.node_count, begun.cells = state.plan_id, state.node_count, state.cells
            if action.node_count:
                begun.node_count = action.node_count
                begun.parameters = {**state.parameters, "node-count": action.node_count}
            begun.configuration = action.configuration
            begun.keep_seconds = action.keep_seconds
            write_begun(broker, instance, state, begun, self._events)
            return begun

        return self._store.run(work)

    def _planned(self, broker: Broker, instance: str, action: Action) -> tuple[InstanceState, list[Step]]:
        state = _usable(broker, instance)
        cluster = _Cluster(broker, instance, state, may_share_cells=self._may_share_cells)
        return state, _STEPS[action.kind](cluster, action)


def _usable(broker: Broker, instance: str) -> InstanceState:
    state = broker.instances.get(instance)
    if state is None:
        raise RefusedError(404, "there is no such instance")
    refuse_unusable(broker.operations.get(instance))
    return state


class _Cluster:
    """The steps of each action for one cluster, as of one state."""

    def __init__(self, broker: Broker, instance: str, state: InstanceState, *, may_share_cells: bool) -> None:
        self._broker = broker
        self._may_share_cells = may_share_cells
        self._instance = instance
        self._state = state
        self._placed = {key.node: cell for key, cell in broker.nodes.list(instance)}
        self._leader = broker.leaders.get(instance)

    def switchover(self, node: str) -> list[Step]:
        leader = self._led()
        followers = [name for name in sorted(self._placed) if name != leader]
        if not followers:
            raise RefusedError(422, f"{leader} has no replica that could lead; add a node first")
        if node:
            self._know(node)
            if node == leader:
                raise RefusedError(400, f"{node} leads already")
            if astray := members_astray(self._broker, self._instance, [node]):
                raise RefusedError(422, f"{node} cannot lead now: {astray[node]}")
        self._require_handover(node)
        return [Step(kind="switch", node=leader, target=node), Step(kind="wait_leader"), Step(kind="wait_members")]

    def restart(self, node: str) -> list[Step]:
        if node:
            self._know(node)
        leader = self._leader
        chosen = [node] if node else sorted(self._placed, key=lambda name: (name == leader, name))
        steps: list[Step] = []
        # Why the leader last, and all that stay waited for: at most one member at a time does not run.
        for name in chosen:
            steps += [Step(kind="restart", node=name), Step(kind="wait_members")]
        return [*steps, Step(kind="wait_leader")]

    def reinitialise(self, node: str) -> list[Step]:
        leader = self._led()
        self._know(node)
        if node == leader:
            raise RefusedError(422, f"{node} leads, and is what the others copy; switch over first")
        return [Step(kind="reinitialise", node=node), Step(kind="wait_members")]

    def move(self, node: str, cell: str) -> list[Step]:
        leader = self._led()
        self._know(node)
        if self._placed[node] == cell:
            raise RefusedError(400, f"{node} is on cell {cell} already")
        if self._state.cells and cell not in self._state.cells:
            allowed = ", ".join(self._state.cells)
            raise RefusedError(400, f"the instance may be on {allowed} alone; update its `cells` first")
        load = next((load for load in cell_loads(self._broker) if load.guid == cell), None)
        if load is None:
            raise RefusedError(422, f"there is no cell {cell} that is alive")
        if not load.has_room:
            raise RefusedError(422, f"cell {cell} takes no more nodes")
        if cell in self._placed.values():
            raise RefusedError(422, f"cell {cell} has a node of the instance already")
        if node == leader:
            self._require_handover("")
        steps = [Step(kind="add", node=str(uuid4()), target=cell), Step(kind="wait_members")]
        if node == leader:
            steps.append(Step(kind="switch", node=node))
        return [*steps, Step(kind="remove", node=node), Step(kind="wait_members"), Step(kind="wait_leader")]

    def configure(self, changes: dict[str, Any]) -> list[Step]:
        require_changes(changes)
        self._led()
        steps = [Step(kind="configure")]
        if "pause" in changes:
            steps.append(Step(kind="wait_pause", target="on" if is_on(changes["pause"]) else "off"))
        if "synchronous_mode" in changes and len(self._placed) > 1:
            steps.append(Step(kind="wait_synchronous", target="on" if is_on(changes["synchronous_mode"]) else "off"))
        return steps

    def scale(self, node_count: int) -> list[Step]:
        if not 1 <= node_count <= NODES_MAX:
            raise RefusedError(400, f"an instance has 1 to {NODES_MAX} nodes, and {node_count} were asked for")
        leader = self._led()
        steps = steps_of_update(self._placed, node_count, self._state.cells, leader)
        if not steps and node_count == self._state.node_count:
            raise RefusedError(400, f"the instance has {node_count} nodes already")
        used = {*self._placed.values()}
        cells = available_cells(cell_loads(self._broker), allowed=self._state.cells, used=used)
        outside = staying_outside(self._placed.values(), self._state.cells)
        if len(cells) < node_count - outside and not self._may_share_cells:
            raise RefusedError(422, too_few_cells(node_count, cells, outside=outside))
        return steps or [Step(kind="wait_leader")]

    def rotate(self, only: list[str], keep_seconds: float) -> list[Step]:
        if not 0 <= keep_seconds <= KEEP_SECONDS_MAX:
            raise RefusedError(400, f"former logins count for 0 to {KEEP_SECONDS_MAX:g} seconds")
        bindings = [
            key.binding for key, record in self._broker.bindings.list(self._instance) if record.state == "ready"
        ]
        rotation = rotation_of(only, self._state, bindings)
        if not rotation.kinds and not rotation.bindings:
            raise RefusedError(400, "the instance has no bindings")
        if rotation.needs_all_nodes or rotation.bindings:
            self._led()
        outside = outside_nodes(self._broker, self._instance)
        if rotation.needs_all_nodes and outside:
            text = f"no cell runs {', '.join(outside)}, and nobody could tell them; move them to cells, or rotate `bindings`"
            raise RefusedError(422, text)
        if LoginKind.TOKEN in rotation.kinds and outside and len(outside) == len(self._placed):
            names = ", ".join(outside)
            text = f"no cell runs {names}: they log in to their store as their own patroni.yml says; change it there"
            raise RefusedError(422, text)
        # Why not all the same: a node that misses the end of its logins could not come back by itself.
        if rotation.needs_all_nodes and (away := cells_away(self._broker, self._instance)):
            raise RefusedError(422, f"cell {away[0]} is not alive, and its nodes could not be told")
        kinds = ",".join(rotation.kinds)
        steps = [Step(kind="wait_members")] if rotation.needs_all_nodes or rotation.bindings else []
        if kinds:
            steps += [Step(kind="make_logins", target=kinds), Step(kind="wait_logins", target=kinds)]
        steps += [Step(kind="rotate_binding", node=binding) for binding in rotation.bindings]
        if kinds:
            steps.append(Step(kind="end_logins", target=kinds))
        if rotation.needs_all_nodes:
            steps += [Step(kind="wait_members"), Step(kind="renew_data")]
        return steps

    def _led(self) -> str:
        if self._leader is None:
            raise RefusedError(422, "nobody leads the cluster now")
        return self._leader

    def _require_handover(self, candidate: str) -> None:
        """Refuse what Patroni would refuse for as long as the cluster is as it is, and the step would wait for in vain."""
        configuration = self._broker.configurations.get(self._instance) or {}
        if not candidate and is_on(configuration.get("pause")):
            raise RefusedError(
                422, "the cluster is paused, and hands over to a node that is named alone; resume it first"
            )
        if candidate and str(configuration.get("synchronous_mode")).lower() in {"on", "true", "yes", "1"}:
            sync = self._broker.syncs.get(self._instance)
            standbys = ((sync.sync_standby if sync is not None else None) or "").split(",")
            if candidate.lower() not in map(str.lower, standbys):
                known = ", ".join(filter(None, standbys)) or "no node"
                raise RefusedError(422, f"{candidate} is not synchronous, and could lack writes; {known} is")

    def _know(self, node: str) -> None:
        if node not in self._placed:
            known = ", ".join(sorted(self._placed)) or "none"
            raise RefusedError(400, f"the instance has no node {node or '(none is named)'}; it has {known}")


_STEPS: Final[Mapping[ActionKind, Callable[[_Cluster, Action], list[Step]]]] = {
    ActionKind.SWITCHOVER: lambda cluster, action: cluster.switchover(action.node),
    ActionKind.RESTART: lambda cluster, action: cluster.restart(action.node),
    ActionKind.REINITIALISE: lambda cluster, action: cluster.reinitialise(action.node),
    ActionKind.MOVE: lambda cluster, action: cluster.move(action.node, action.cell),
    ActionKind.CONFIGURE: lambda cluster, action: cluster.configure(action.configuration),
    ActionKind.ROTATE: lambda cluster, action: cluster.rotate(action.only, action.keep_seconds),
    ActionKind.SCALE: lambda cluster, action: cluster.scale(action.node_count),
}
