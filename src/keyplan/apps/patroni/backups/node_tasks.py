"""What a cell does on its nodes for backups and upgrades: each task in a thread, by programs that run as the node's user.

An agent that ends leaves no process of these behind, but where it is killed. The next one finds by pgBackRest's own word what
has been done, and goes on.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from keyplan.apps.patroni.backups.archive_state import ArchiveLook
from keyplan.apps.patroni.backups.log_gaps import look_at_archive
from keyplan.apps.patroni.backups.node_programs import NodePrograms, PgBackRest, TaskFailedError, TaskProcesses
from keyplan.apps.patroni.backups.records import NodeTask, TaskAnswer
from keyplan.apps.patroni.backups.verification import problem_of, remove_scratch
from keyplan.apps.patroni.layout import Broker, OrderKey
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.node_process import Node
from keyplan.apps.patroni.readable import readable
from keyplan.apps.patroni.upgrades.node_upgrades import analyze, problem_of_upgrade
from keyplan.apps.patroni.upgrades.records import ANALYZE, CHECK_ROOM, CHECK_UPGRADE
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.store import Store

__all__ = ["NodeTasks"]

_LOOK_SECONDS: Final = 1.0
_LOOK_AGAIN_SECONDS: Final = 30.0
_PARALLEL: Final = 4
"""Why so few: each reads whole databases of this machine, on which PostgreSQL answers meanwhile."""


class NodeTasks:
    """The tasks of one cell's nodes. `attend` again and again; then `close`."""

    def __init__(self, store: Store, cell: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._broker = Broker(store)
        self._cell = cell
        self._clock = clock
        self._look_at = 0.0
        self._work: dict[str, tuple[str, Future[TaskAnswer]]] = {}
        self._sweeps: dict[str, Future[None]] = {}
        self._looks: dict[str, Future[ArchiveLook]] = {}
        self._look_again: dict[str, float] = {}
        self._processes = TaskProcesses()
        self._executor = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="patroni-task")

    def attend(self, nodes: Mapping[str, Node]) -> None:
        """Begin what is ordered, and answer what has ended. Raises EngineError."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        tasks = {key.node: task for key, task in readable(self._broker.tasks.rows(self._cell))}
        for name in [name for name in self._work if name not in tasks and self._work[name][1].done()]:
            del self._work[name]
        for name in nodes.keys() - self._sweeps.keys():
            # Why once: what an agent has left that was killed lies there since before this one.
            self._sweeps[name] = self._executor.submit(remove_scratch, nodes[name])
        for name, task in tasks.items():
            self._follow(name, task, nodes.get(name))
        for name, node in nodes.items():
            self._look_at_archive(name, node)

    def _look_at_archive(self, name: str, node: Node) -> None:
        """See to it that what is archived is known of a node that came to lead, once for each of its timelines."""
        now, archive, begun = self._clock.monotonic(), node.plan.archive, self._looks.get(name)
        if begun is None:
            timeline = 0 if archive is None else node.unknown_timeline
            if archive is not None and timeline and now >= self._look_again.get(name, 0.0):
                program = PgBackRest(NodePrograms(self._processes, node), archive.stanza)
                self._looks[name] = self._executor.submit(look_at_archive, program, timeline)
        elif begun.done():
            del self._looks[name]
            self._look_again[name] = now + _LOOK_AGAIN_SECONDS
            if error := begun.exception():
                LOGGER.error("node %s: it is not known what of its cluster's log is archived: %s", name, error)
            else:
                node.archive_look = begun.result()

    def _follow(self, name: str, task: NodeTask, node: Node | None) -> None:
        key = OrderKey(self._cell, name)
        answer = self._broker.task_answers.get(key)
        if answer is not None and answer.id == task.id and answer.state != "running":
            return
        at_work = self._work.get(name)
        if at_work is None:
            if node is None or task.archive not in {None, node.plan.archive} or not self._sweeps[name].done():
                # Why not failed: the order that brings the node, or tells it of this archive, may be read a moment later.
                return
            LOGGER.info("node %s: %s %s", name, task.kind, task.wanted)
            self._work[name] = task.id, self._executor.submit(self._done, task, node)
            self._broker.task_answers.put(key, TaskAnswer(id=task.id))
        elif at_work[1].done():
            del self._work[name]
            # Why only its own: what was done for a task that is no longer wanted answers nothing.
            if at_work[0] == task.id and not self._processes.is_closed:
                found = _answer_of(task, at_work[1])
                LOGGER.info("node %s: %s %s is %s %s", name, task.kind, task.wanted, found.state, found.message)
                self._broker.task_answers.put(key, found)

    def close(self) -> None:
        """End what is done, pgBackRest in order. The next agent does it again, as far as it is not done."""
        self._processes.close()
        self._executor.shutdown(wait=True, cancel_futures=True)

    # ---- in threads -----------------------------------------------------------------------------------------------------

    def _done(self, task: NodeTask, node: Node) -> TaskAnswer:
        programs = NodePrograms(self._processes, node)
        answer, began = TaskAnswer(id=task.id, state="done"), self._clock.monotonic()
        try:
            if task.archive is not None:
                _do_for_archive(task, PgBackRest(programs, task.archive.stanza), answer)
            elif task.kind in {CHECK_UPGRADE, CHECK_ROOM}:
                has_schema = task.kind == CHECK_UPGRADE
                answer.problem = problem_of_upgrade(programs, task.wanted, task.parameters, has_schema=has_schema)
            elif task.kind == ANALYZE:
                analyze(programs)
            else:
                raise _unknown(task)
        except TaskFailedError as error:
            return TaskAnswer(id=task.id, state="failed", message=str(error))
        answer.seconds = self._clock.monotonic() - began
        return answer


def _do_for_archive(task: NodeTask, program: PgBackRest, answer: TaskAnswer) -> None:
    if task.kind == "backup":
        program.back_up(task.wanted, task.id)
        answer.backups = program.backups()
    elif task.kind == "verify":
        backup = next((one for one in program.backups() if one.label == task.wanted), None)
        if backup is None:
            raise TaskFailedError(f"there is no backup {task.wanted} any more")
        answer.problem = problem_of(program, backup)
    else:
        raise _unknown(task)


def _unknown(task: NodeTask) -> TaskFailedError:
    return TaskFailedError(f"this cell knows no {task.kind}: it is older than the broker")


def _answer_of(task: NodeTask, ended: Future[TaskAnswer]) -> TaskAnswer:
    error = ended.exception()
    if error is None:
        return ended.result()
    LOGGER.error("%s: %s", task.kind, error, exc_info=error)
    return TaskAnswer(id=task.id, state="failed", message=f"{type(error).__name__}; see the log of the cell")
