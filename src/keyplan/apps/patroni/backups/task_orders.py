"""Tasks of cells as a step of the broker's orders them, and waits for what comes of them.

What a cell does is found done when it is asked for again; so a broker that goes on with a step asks by the same name.
"""

import secrets
from typing import Final

import msgspec

from keyplan.apps.patroni.backups.records import NodeTask, TaskAnswer
from keyplan.apps.patroni.layout import Broker, NodeKey, OrderKey
from keyplan.apps.patroni.operation_progress import OperationProgress, StepFailedError
from keyplan.apps.patroni.records import Operation, Step
from keyplan.engine import SYSTEM_CLOCK

__all__ = ["WORK_SECONDS_MAX", "TaskOrders"]

WORK_SECONDS_MAX: Final = 24 * 3_600.0
"""How long a backup, a restore or an upgrade may take. Why so long: terabytes do; that it goes on is told by who does it."""
_DIGITS: Final = 8


class TaskOrders:
    """The tasks of one operation's steps. Each raises StepFailedError, StoppedError, SupersededError, and KeyplanError."""

    def __init__(self, progress: OperationProgress) -> None:
        self._progress = progress
        self._latest = progress.latest
        self._instance = progress.instance

    def order(self, step: Step, task: NodeTask) -> None:
        """Order a task of the cell of the step's node, and note by which name: that of the task, and some digits."""
        step.mark = f"{task.id}-{secrets.token_hex(_DIGITS)}"
        named = msgspec.structs.replace(task, id=step.mark)

        def ordered(broker: Broker, operation: Operation) -> None:
            operation.steps[operation.completed_steps] = step
            broker.operations.put(self._instance, operation)
            broker.tasks.put(self._place(broker, step), named)

        self._progress.commit(ordered)

    def answer(self, step: Step) -> TaskAnswer:
        """Wait for what comes of a task. A cell that is not alive for as long as a step may take has failed."""
        key, now = self._place(self._latest, step), SYSTEM_CLOCK.monotonic
        give_up, alive_at = now() + WORK_SECONDS_MAX, now()
        while now() < give_up:
            answer = self._latest.task_answers.get(key)
            if answer is not None and answer.id == step.mark and answer.state != "running":
                return answer
            if self._latest.cells.exists(key.cell):
                # Why only then: a cell that is alive and does not take a task on does not know it.
                taken = answer is not None and answer.id == step.mark
                alive_at = now() if taken else alive_at
            if now() - alive_at > self._progress.waits.step_seconds_max:
                return TaskAnswer(id=step.mark, state="failed", message=f"cell {key.cell} does not take it on")
            self._progress.pause()
        return TaskAnswer(id=step.mark, state="failed", message=f"it took more than {WORK_SECONDS_MAX:g} seconds")

    def forget(self, broker: Broker, step: Step) -> None:
        """Forget a task that was answered, in a commit of the caller's."""
        key = self._place(broker, step)
        broker.tasks.delete(key)
        broker.task_answers.delete(key)

    def forget_failed(self, step: Step) -> None:
        """Forget a task that has failed, and that it was asked for."""

        def forgotten(broker: Broker, operation: Operation) -> None:
            self.forget(broker, step)
            step.mark = ""
            operation.steps[operation.completed_steps] = step
            broker.operations.put(self._instance, operation)

        self._progress.commit(forgotten)

    def _place(self, broker: Broker, step: Step) -> OrderKey:
        cell = broker.nodes.get(NodeKey(self._instance, step.node))
        if cell is None:
            raise StepFailedError(f"{step.node} is no node of the instance's any more")
        return OrderKey(cell, step.node)
