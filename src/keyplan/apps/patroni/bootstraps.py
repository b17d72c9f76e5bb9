"""Bootstraps that hang: a cluster that nobody has led yet, and whose nodes all wait for one that makes the data.

Patroni's first node takes the key `initialize`, makes the data, writes their identifier there and leads. Where it is cut off in
between, as when its gateway dies, the key stays, and the others wait for ever. So does that node itself when its PostgreSQL
runs already: as a standby of nobody, which it was made by Patroni while the gateway was away.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import uuid4

from keyplan.apps.patroni.layout import Broker, MemberKey, NodeKey, OrderKey
from keyplan.apps.patroni.operation_progress import OperationProgress, StepFailedError
from keyplan.apps.patroni.readable import readable_of
from keyplan.apps.patroni.records import NodeReport, Operation, Step
from keyplan.engine import SYSTEM_CLOCK
from keyplan.layout import Damaged

__all__ = ["BOOTSTRAPS_MAX", "BootstrapWatch", "HungBootstrap", "hung_bootstrap", "take_initialize_away"]

BOOTSTRAPS_MAX: Final = 3
"""How often an operation lets a cluster begin: what hangs again and again has a cause that time does not take away."""

_WAITING: Final = frozenset({"", "stopped", "initdb failed", "custom bootstrap failed", "start failed", "crashed"})
"""The states of a member that makes no data, copies none and starts none. Why these: a state that is not known may be work."""
_RUNNING: Final = "running"


class HungBootstrap(NamedTuple):
    """A bootstrap that nobody goes on with: what `initialize` holds, empty or an identifier; and whose nodes do what.

    `unfinished` are members whose PostgreSQL runs with data that were never completed. They have to be made anew. `data_bytes`
    are how large the data of those that wait are, as their cells say: it is another one when they grow.
    """

    held: str
    waiting: tuple[str, ...]
    unfinished: tuple[str, ...]
    data_bytes: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """It, in words."""
        holder = (
            f"nobody has the data {self.held}" if self.held else "whoever holds its key `initialize` is not at work"
        )
        found = [f"{', '.join(self.waiting)} wait for it"] * bool(self.waiting)
        found += [f"{name} runs with data that were not completed" for name in self.unfinished]
        return f"the bootstrap hangs: {holder}, {', and '.join(found)}"


def hung_bootstrap(broker: Broker, instance: str) -> HungBootstrap | None:
    """Return what keeps a cluster from its first leader, as of one state; None where nothing does, or somebody is at work.

    It is so for a moment in every bootstrap: what lasts for some seconds hangs. A cluster that was led once is none: who has
    its data may come back. Nor is one without members: nodes that do not reach their store may be at work. Raises
    CorruptionError.
    """
    if broker.leaders.exists(instance) or not broker.initializations.exists(instance):
        return None
    if any(view.exists(instance) for view in (broker.statuses, broker.histories, broker.optimes)):
        return None
    state = broker.instances.get(instance)
    # Why: what is made of a backup replays its log for hours, as a standby of nobody, too.
    is_restored = state is not None and (bool(state.restore) or state.recovery is not None)
    waiting: list[str] = []
    unfinished: list[str] = []
    data_bytes: list[int] = []
    for row in broker.members.rows(instance):
        if isinstance(row, Damaged):
            return None
        if row.record.state in _WAITING:
            report = _report_of(broker, NodeKey(*row.key))
            if report is not None and report.state == _RUNNING:
                # Trap: members write through a gateway, which may be away; what they say is of before, until their leases end.
                return None
            waiting.append(row.key.member)
            data_bytes.append(report.data_bytes if report is not None else 0)
        elif row.record.state == _RUNNING and not row.record.is_primary and not is_restored:
            unfinished.append(row.key.member)
        else:
            return None
    if not waiting and not unfinished:
        return None
    held = broker.initializations.require(instance)
    return HungBootstrap(held, tuple(waiting), tuple(unfinished), tuple(data_bytes))


def take_initialize_away(broker: Broker, instance: str, held: str) -> bool:
    """Let a node that waits begin anew: take `initialize` away, if it holds this and nobody leads; return whether it did."""
    if broker.leaders.exists(instance) or broker.initializations.get(instance) != held:
        return False
    broker.initializations.delete(instance)
    return True


def _report_of(broker: Broker, key: NodeKey) -> NodeReport | None:
    """Return what the cell says of a node; None where no cell of ours has it, or says nothing."""
    cell = broker.nodes.get(key) or broker.node_intents.get(key)
    return readable_of(broker.reports, OrderKey(cell, key.node)) if cell is not None else None


def _ending_nodes(broker: Broker, instance: str) -> dict[str, bool]:
    """Return the nodes beside a leader that run no PostgreSQL, and of each whether Patroni has ended by itself again just now.

    As one that has begun a cluster of its own: it is no member of the other one, and Patroni says so and ends.
    """
    leader = broker.leaders.get(instance)
    if leader is None:
        return {}
    reports = {key.node: _report_of(broker, key) for key, _ in broker.nodes.list(instance) if key.node != leader}
    return {
        node: report.state == "failed"
        for node, report in reports.items()
        if report is not None and report.state in {"failed", "starting"}
    }


def _dead_nodes(broker: Broker, instance: str) -> tuple[str, ...]:
    leader = broker.leaders.get(instance)
    if leader is None:
        return ()
    placed = broker.nodes.list(instance)
    dead = [
        key.node
        for key, cell in placed
        if not broker.cells.exists(cell) and not broker.members.exists(MemberKey(instance, key.node))
    ]
    return () if leader in dead else tuple(dead)


class BootstrapWatch:
    """Looks at the bootstrap of an instance that is being made.

    One that hangs is cancelled and begins again, some times at most, by steps that are put before the one that waits for it.
    """

    def __init__(self, progress: OperationProgress) -> None:
        self._progress = progress
        self._hung: HungBootstrap | None = None
        self._since = 0.0
        self._dead: tuple[str, ...] = ()
        self._dead_since = 0.0
        self._ending_since: dict[str, float] = {}

    def look(self) -> str:
        """Return that a bootstrap hangs, in words; empty where none does.

        Raises StepFailedError when it has hung too often, SupersededError.
        """
        with self._progress.store.snapshot() as state:
            found = hung_bootstrap(Broker(state), self._progress.instance)
        if found != self._hung:
            self._hung, self._since = found, SYSTEM_CLOCK.monotonic()
        return found.text if found is not None else ""

    def has_lasted(self) -> bool:
        """Tell whether a bootstrap has hung for long enough."""
        waited = SYSTEM_CLOCK.monotonic() - self._since
        return self._hung is not None and waited >= self._progress.waits.hang_seconds

    def is_cancelled(self) -> bool:
        """Cancel a bootstrap that has hung for long enough, and return whether it did: then another step is next."""
        found = self._hung
        if found is None or not self.has_lasted():
            return False
        tries = self._progress.commit(lambda broker, operation: self._cancel(broker, operation, found))
        if tries >= BOOTSTRAPS_MAX:
            raise StepFailedError(
                f"{found.text}, time and again ({tries}). Why stands in the logs of the nodes, in their cells' folders. "
                "Put it right, delete the instance, and ask for it again"
            )
        return True

    def has_replaced(self) -> bool:
        """Put steps before this one that replace nodes which died with their cells or end by themselves; return whether it did.

        Only where somebody else leads, and where it has been so for a while. Raises SupersededError.
        """
        now, hang_seconds = SYSTEM_CLOCK.monotonic(), self._progress.waits.hang_seconds
        with self._progress.store.snapshot() as state:
            dead = _dead_nodes(Broker(state), self._progress.instance)
            ending = _ending_nodes(Broker(state), self._progress.instance)
        if dead != self._dead:
            self._dead, self._dead_since = dead, now
        # Why since the first time: between two ends it starts, each time for a while.
        since = {node: self._ending_since.get(node, now) for node, has_ended in ending.items() if has_ended}
        self._ending_since = {node: at for node, at in self._ending_since.items() if node in ending} | since
        found = [*dead] if now - self._dead_since >= hang_seconds else []
        found += [node for node, at in since.items() if now - at >= hang_seconds and node not in found]
        return bool(found) and self._progress.commit(lambda broker, operation: self._replace(broker, operation, found))

    def _replace(self, broker: Broker, operation: Operation, nodes: Sequence[str]) -> bool:
        at = operation.completed_steps
        if operation.steps[at].tries >= BOOTSTRAPS_MAX - 1:
            return False
        operation.steps[at].tries += 1
        removed = [Step(kind="remove", node=name) for name in nodes]
        operation.steps[at:at] = [*removed, *(Step(kind="add", node=str(uuid4())) for _ in nodes)]
        broker.operations.put(self._progress.instance, operation)
        return True

    def _cancel(self, broker: Broker, operation: Operation, found: HungBootstrap) -> int:
        """Note that it hung, and what is to be done; return how often it has hung."""
        at = operation.completed_steps
        operation.steps[at].tries += 1
        tries = operation.steps[at].tries
        if tries < BOOTSTRAPS_MAX:
            placed = {key.node for key, _ in broker.nodes.list(self._progress.instance)}
            ours = [name for name in found.unfinished if name in placed]
            # Why this order: a node that goes takes `initialize` away with it, also where it is another's by then.
            steps = [Step(kind="discard", node=name) for name in ours]
            steps.append(Step(kind="begin_again", mark=found.held))
            steps += [Step(kind="add", node=str(uuid4())) for _ in ours]
            operation.steps[at:at] = steps
        broker.operations.put(self._progress.instance, operation)
        return tries
