"""The steps of an upgrade that are no other operation's: cells try whether it can be made, and make statistics anew."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from keyplan.apps.patroni.backups.records import NodeTask
from keyplan.apps.patroni.backups.task_orders import TaskOrders
from keyplan.apps.patroni.operation_progress import OperationProgress, StepFailedError
from keyplan.apps.patroni.records import Step
from keyplan.apps.patroni.upgrades.records import ANALYZE, CHECK_ROOM, CHECK_UPGRADE

__all__ = ["UpgradeSteps", "parameters_of"]

_TRIES: Final = 5
"""How many leaders are asked, when each is a leader no more in the middle."""


class UpgradeSteps:
    """The steps by their words. Each raises StepFailedError, StoppedError, SupersededError, and KeyplanError of the store."""

    def __init__(self, progress: OperationProgress) -> None:
        self._progress = progress
        self._latest = progress.latest
        self._instance = progress.instance
        self._tasks = TaskOrders(progress)
        self.steps: Final[Mapping[str, Callable[[Step], None]]] = {
            "check_upgrade": self._check,
            "analyze": self._analyze,
        }

    def _check(self, step: Step) -> None:
        """Have a cell try whether a node of the version can be made beside one of its own; whether it can, all are asked."""
        self._progress.require_wanted()
        if not step.mark:
            is_leader = self._latest.leaders.get(self._instance) == step.node
            kind = CHECK_UPGRADE if is_leader else CHECK_ROOM
            configuration = self._latest.configurations.get(self._instance) or {}
            task = NodeTask(id=kind, kind=kind, wanted=step.target, parameters=parameters_of(configuration))
            self._tasks.order(step, task)
        answer = self._tasks.answer(step)
        problem = answer.problem or (answer.message if answer.state == "failed" else "")
        if problem:
            self._tasks.forget_failed(step)
            raise StepFailedError(f"{step.node}: {problem}; nothing was changed")
        self._progress.complete(lambda broker: self._tasks.forget(broker, step))

    def _analyze(self, step: Step) -> None:
        for _ in range(_TRIES):
            if not step.mark:
                self._progress.until(self._missing_leader, self._progress.waits.step_seconds_max)
                step.node = self._latest.leaders.get(self._instance) or ""
                self._tasks.order(step, NodeTask(id=ANALYZE, kind=ANALYZE))
            answer = self._tasks.answer(step)
            if answer.state == "done":
                self._progress.complete(lambda broker: self._tasks.forget(broker, step))
                return
            self._tasks.forget_failed(step)
            if self._latest.leaders.get(self._instance) == step.node:
                raise StepFailedError(f"{answer.message}; the cluster is upgraded, and `analyze` is to be run in it")
        raise StepFailedError(f"the leader has changed {_TRIES} times meanwhile")

    def _missing_leader(self) -> str:
        return "" if self._latest.leaders.exists(self._instance) else "the cluster has no leader"


def parameters_of(configuration: Mapping[str, Any]) -> dict[str, str]:
    """Return PostgreSQL's parameters of a dynamic configuration, as texts."""
    parameters = (configuration.get("postgresql") or {}).get("parameters") or {}
    words = {True: "on", False: "off"}
    return {
        name: words[value] if isinstance(value, bool) else str(value)
        for name, value in parameters.items()
        if value is not None
    }
