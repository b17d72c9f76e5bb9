"""What a cell does for its nodes' backups: each task in a thread, by pgBackRest as the node's user.

An agent that ends leaves no process of these behind, but where it is killed. The next one finds by pgBackRest's own word what
has been done, and goes on.
"""

import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Lock
from typing import Any, Final

import msgspec

from keyplan.apps.patroni.backups.archive import ARCHIVE_FILE, PASSWORD_FILE
from keyplan.apps.patroni.backups.records import Backup, NodeTask, TaskAnswer
from keyplan.apps.patroni.layout import Broker, OrderKey
from keyplan.apps.patroni.logs import LOGGER
from keyplan.apps.patroni.node_host import as_user
from keyplan.apps.patroni.node_process import Node
from keyplan.apps.patroni.readable import readable
from keyplan.engine import SYSTEM_CLOCK, Clock
from keyplan.store import Store

__all__ = ["NodeTasks"]

_LOOK_SECONDS: Final = 1.0
_PARALLEL: Final = 4
"""Why so few: each reads whole databases of this machine, on which PostgreSQL answers meanwhile."""
_LOCK_HELD: Final = 50
"""pgBackRest's exit code where another one of the same stanza works."""
_AGAIN_SECONDS: Final = 2.0
_END_SECONDS: Final = 10.0
_TEXT_MAX: Final = 500
_MARK: Final = "keyplan"
"""The annotation by which a backup is found that a task has made."""


class _FailedError(Exception):
    """A task cannot be done. The text is for people; pgBackRest leaves keys out of what it says."""


class NodeTasks:
    """The tasks of one cell's nodes. `attend` again and again; then `close`."""

    def __init__(self, store: Store, cell: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._broker = Broker(store)
        self._cell = cell
        self._clock = clock
        self._look_at = 0.0
        self._work: dict[str, tuple[str, Future[TaskAnswer]]] = {}
        self._stop = Event()
        self._lock = Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
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
        for name, task in tasks.items():
            self._follow(name, task, nodes.get(name))

    def _follow(self, name: str, task: NodeTask, node: Node | None) -> None:
        key = OrderKey(self._cell, name)
        answer = self._broker.task_answers.get(key)
        if answer is not None and answer.id == task.id and answer.state != "running":
            return
        at_work = self._work.get(name)
        if at_work is None:
            if node is None or node.plan.archive != task.archive:
                # Why not failed: the order that brings the node, or tells it of this archive, may be read a moment later.
                return
            LOGGER.info("node %s: %s %s", name, task.kind, task.wanted)
            self._work[name] = task.id, self._executor.submit(self._done, task, node)
            self._broker.task_answers.put(key, TaskAnswer(id=task.id))
        elif at_work[1].done():
            del self._work[name]
            # Why only its own: what was done for a task that is no longer wanted answers nothing.
            if at_work[0] == task.id and not self._stop.is_set():
                found = _answer_of(task, at_work[1])
                LOGGER.info("node %s: %s %s is %s %s", name, task.kind, task.wanted, found.state, found.message)
                self._broker.task_answers.put(key, found)

    def close(self) -> None:
        """End what is done, pgBackRest in order. The next agent does it again, as far as it is not done."""
        self._stop.set()
        with self._lock:
            for process in self._running:
                process.terminate()
        self._executor.shutdown(wait=True, cancel_futures=True)

    # ---- in threads -----------------------------------------------------------------------------------------------------

    def _done(self, task: NodeTask, node: Node) -> TaskAnswer:
        try:
            if task.kind != "backup":
                raise _FailedError(f"this cell knows no {task.kind}: it is older than the broker")
            backups = self._back_up(task, _PgBackRest(self, node, task.archive.stanza))
        except _FailedError as error:
            return TaskAnswer(id=task.id, state="failed", message=str(error))
        return TaskAnswer(id=task.id, state="done", backups=backups)

    def _back_up(self, task: NodeTask, program: "_PgBackRest") -> list[Backup]:
        program.run("stanza-create")
        if not any(mark == task.id for _, mark in program.backups()):
            program.run("backup", f"--type={task.wanted}", f"--annotation={_MARK}={task.id}")
        return [backup for backup, _ in program.backups()]

    def run(self, command: list[str], environment: Mapping[str, str]) -> tuple[int, bytes, bytes]:
        """Run a program, and return its exit code and what it printed. Raises _FailedError where the agent ends."""
        # Why files: a pipe would end what goes on when the agent is killed.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            with self._lock:
                if self._stop.is_set():
                    raise _FailedError("the agent ends")
                process = subprocess.Popen(  # noqa: S603  # Why: the words are this package's own.
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=dict(environment), cwd="/"
                )
                self._running.add(process)
            try:
                code = process.wait()
            finally:
                with self._lock:
                    self._running.discard(process)
            output.seek(0)
            errors.seek(0)
            return code, output.read(), errors.read()

    def pause(self) -> None:
        """Wait before something is tried again. Raises _FailedError where the agent ends."""
        if self._stop.wait(_AGAIN_SECONDS):
            raise _FailedError("the agent ends")


def _answer_of(task: NodeTask, ended: Future[TaskAnswer]) -> TaskAnswer:
    error = ended.exception()
    if error is None:
        return ended.result()
    LOGGER.error("%s: %s", task.kind, error, exc_info=error)
    return TaskAnswer(id=task.id, state="failed", message=f"{type(error).__name__}; see the log of the cell")


class _PgBackRest:
    """pgBackRest on one node, as the node's user."""

    def __init__(self, tasks: NodeTasks, node: Node, stanza: str) -> None:
        self._tasks = tasks
        self._node = node
        self._words = ["pgbackrest", f"--config={node.folder / ARCHIVE_FILE}", f"--stanza={stanza}"]

    def run(self, *words: str) -> bytes:
        """Return what it prints. Raises _FailedError. Another one at the same stanza is waited for."""
        host, folder, plan = self._node.host, self._node.folder, self._node.plan
        command = as_user(host.user, *self._words, *words)
        environment = {
            **host.environment(folder / "home"),
            # Why so: pgBackRest knows sockets alone, and PostgreSQL has none here. What it does not say, libpq asks these for.
            "PGHOST": plan.address,
            "PGPASSFILE": str(folder / PASSWORD_FILE),
        }
        while True:
            code, printed, errors = self._tasks.run(command, environment)
            if code == 0:
                return printed
            if code != _LOCK_HELD:
                lines = errors.decode(errors="replace").strip() or f"it ended with {code}"
                raise _FailedError(f"pgbackrest {words[0]}: {lines[-_TEXT_MAX:]}")
            self._tasks.pause()

    def backups(self) -> list[tuple[Backup, str]]:
        """Return all that there are, the oldest first, each with the task that it was made for."""
        try:
            return [
                (_backup(one), one.get("annotation", {}).get(_MARK, ""))
                for stanza in msgspec.json.decode(self.run("info", "--output=json"))
                for one in stanza["backup"]
            ]
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise _FailedError(f"pgbackrest info: what it tells cannot be read: {type(error).__name__}") from error


def _backup(told: Mapping[str, Any]) -> Backup:
    return Backup(
        label=told["label"],
        kind=told["type"],
        began_at=float(told["timestamp"]["start"]),
        ended_at=float(told["timestamp"]["stop"]),
        size_bytes=told["info"]["size"],
        stored_bytes=told["info"]["repository"]["delta"],
        first_wal=told["archive"]["start"] or "",
        last_wal=told["archive"]["stop"] or "",
        has_errors=bool(told.get("error")),
    )
