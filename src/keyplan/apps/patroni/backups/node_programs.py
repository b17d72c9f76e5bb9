"""Programs of a node's that a cell runs in its threads, as the node's user; all are ended with the cell's agent."""

import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from threading import Event, Lock
from typing import Any, Final

import msgspec

from keyplan.apps.patroni.backups.archive import ARCHIVE_FILE, PASSWORD_FILE
from keyplan.apps.patroni.backups.records import Backup
from keyplan.apps.patroni.node_host import as_user
from keyplan.apps.patroni.node_log import failure_in, log_bytes
from keyplan.apps.patroni.node_process import Node
from keyplan.engine import SYSTEM_CLOCK

__all__ = ["TEXT_MAX", "NodePrograms", "PgBackRest", "ProgramResult", "TaskFailedError", "TaskProcesses"]

TEXT_MAX: Final = 500
"""How much of what a program says is wrong is told, from its end."""
_LOCK_HELD: Final = 50
"""pgBackRest's exit code where another one of the same stanza works."""
_UNREADABLE: Final = 99
"""The code of a repository's status by which `pgbackrest info` tells that it could not be read."""
_AGAIN_SECONDS: Final = 2.0
_END_SECONDS_MAX: Final = 10.0
"""How long a program may take to end in order. Why no longer: whoever ends a cell waits, and kills it after a minute."""
_LOOK_SECONDS: Final = 0.05
_SILENCE_SECONDS_MAX: Final = 5
"""How long a repository that is read may say nothing. Why less than pgBackRest's 60: each command tries four times, node by
node, and somebody waits for them. Why not where it is written: some put a large file together meanwhile."""
_ENDED: Final = "FATAL:  pgbackrest "
"""How the line begins by which a cell says in a node's log that it has ended pgBackRest."""
_MARK: Final = "keyplan"
"""The annotation by which a backup is found that a task has made."""


class TaskFailedError(Exception):
    """A task cannot be done. The text is for people; pgBackRest leaves keys out of what it says."""


class ProgramResult:
    """How a program has ended, and what it printed."""

    def __init__(self, code: int, output: bytes, errors: bytes) -> None:
        self.code: Final = code
        self.output: Final = output
        self.errors: Final = errors

    @property
    def problem(self) -> str:
        """What it said is wrong, the end of it, in one line."""
        said = " ".join(self.errors.decode(errors="replace").split())
        return (said or self._end)[-TEXT_MAX:]

    @property
    def _end(self) -> str:
        return f"it ended with {self.code}" if self.code >= 0 else f"it was ended by signal {-self.code}"


class TaskProcesses:
    """The processes of all tasks of a cell. An agent that ends leaves none behind, but where it is killed."""

    def __init__(self) -> None:
        self._stop = Event()
        self._lock = Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    @property
    def is_closed(self) -> bool:
        """Whether the agent ends."""
        return self._stop.is_set()

    def close(self, seconds: float = _END_SECONDS_MAX) -> None:
        """End them, in order, and let none begin. What has not ended after so many seconds is killed."""
        self._stop.set()
        with self._lock:
            for process in self._running:
                process.terminate()
        give_up = SYSTEM_CLOCK.monotonic() + seconds
        # Trap: what waits for a folder that does not answer hears no signal but the one that nobody can handle.
        while self._is_any_running() and SYSTEM_CLOCK.monotonic() < give_up:
            Event().wait(_LOOK_SECONDS)
        with self._lock:
            for process in self._running:
                process.kill()

    def _is_any_running(self) -> bool:
        with self._lock:
            return bool(self._running)

    def run(self, command: list[str], environment: Mapping[str, str], given: bytes = b"") -> ProgramResult:
        """Run a program that reads what is given, and return how it ended. Raises TaskFailedError where the agent ends."""
        # Why files: a pipe would end what goes on when the agent is killed.
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            source.write(given)
            source.seek(0)
            with self._lock:
                if self._stop.is_set():
                    raise TaskFailedError("the agent ends")
                process = subprocess.Popen(  # noqa: S603  # Why: the words are this package's own.
                    command, stdin=source, stdout=output, stderr=errors, env=dict(environment), cwd="/"
                )
                self._running.add(process)
            try:
                code = process.wait()
            finally:
                with self._lock:
                    self._running.discard(process)
            if self._stop.is_set():
                # Why: that it was ended says nothing of what it was to find out.
                raise TaskFailedError("the agent ends")
            output.seek(0)
            errors.seek(0)
            return ProgramResult(code, output.read(), errors.read())

    def pause(self) -> None:
        """Wait before something is tried again. Raises TaskFailedError where the agent ends."""
        if self._stop.wait(_AGAIN_SECONDS):
            raise TaskFailedError("the agent ends")


class NodePrograms:
    """Programs on one node, as its user."""

    def __init__(self, processes: TaskProcesses, node: Node) -> None:
        self._processes = processes
        self.node: Final = node

    def run(self, *command: str, given: bytes = b"") -> ProgramResult:
        """Run one. Raises TaskFailedError where the agent ends."""
        host, folder, plan = self.node.host, self.node.folder, self.node.plan
        environment = {
            **host.environment(folder / "home"),
            # Why so: pgBackRest knows sockets alone, and PostgreSQL has none here. What it does not say, libpq asks these for.
            "PGHOST": plan.address,
            "PGPASSFILE": str(folder / PASSWORD_FILE),
        }
        return self._processes.run(as_user(host.user, *command), environment, given)

    def pause(self) -> None:
        """Wait before something is tried again. Raises TaskFailedError where the agent ends."""
        self._processes.pause()


class PgBackRest:
    """pgBackRest on one node."""

    def __init__(self, programs: NodePrograms, stanza: str, *, silence_seconds: float = _SILENCE_SECONDS_MAX) -> None:
        self.programs: Final = programs
        self.reading: Final = f"--io-timeout={silence_seconds:g}"
        """What a command is told that reads, and whose end somebody waits for."""
        self.stanza: Final = stanza
        self.folder: Final = f"archive/{stanza}"
        self.words: Final = ["pgbackrest", f"--config={programs.node.folder / ARCHIVE_FILE}", f"--stanza={stanza}"]

    def tried(self, *words: str) -> ProgramResult:
        """Return how it ended. Another one at the same stanza is waited for. Raises TaskFailedError where the agent ends."""
        log = self.programs.node.folder / "log"
        before = log_bytes(log)
        while (result := self.programs.run(*self.words, *words)).code == _LOCK_HELD:
            self.programs.pause()
        # Why from the log: the cell ends what stands still, and says so there; the program itself says nothing.
        said = failure_in(log, after=before) if result.code == -signal.SIGKILL else ""
        return ProgramResult(result.code, result.output, said.encode()) if said.startswith(_ENDED) else result

    def run(self, *words: str) -> bytes:
        """Return what it prints. Raises TaskFailedError."""
        result = self.tried(*words)
        if result.code:
            raise TaskFailedError(f"pgbackrest {words[0]}: {result.problem}")
        return result.output

    def back_up(self, kind: str, task: str) -> None:
        """Make a backup for a task, where none was made for it yet. Raises TaskFailedError."""
        # Why first: a repository that does not answer is told of soon by what only reads it.
        self._told()
        self.run("stanza-create")
        # Why again: it has waited for another one at work, which an agent that was killed may have begun for this task.
        if not any(mark == task for _, mark in self._told()):
            self.run("backup", f"--type={kind}", f"--annotation={_MARK}={task}")

    def backups(self) -> list[Backup]:
        """Return all that there are, the oldest first. Raises TaskFailedError."""
        return [backup for backup, _ in self._told()]

    def _told(self) -> list[tuple[Backup, str]]:
        """Return all backups, each with the task that it was made for."""
        try:
            stanzas = msgspec.json.decode(self.run("info", self.reading, "--output=json"))
            _require_answers(stanzas)
            return [
                (_backup(one), one.get("annotation", {}).get(_MARK, ""))
                for stanza in stanzas
                for one in stanza["backup"]
            ]
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise TaskFailedError(f"pgbackrest info: what it tells cannot be read: {type(error).__name__}") from error


def _require_answers(stanzas: Sequence[Mapping[str, Any]]) -> None:
    """Raise TaskFailedError where a repository could not be read: pgBackRest ends well all the same, and tells no backups."""
    for stanza in stanzas:
        for status in [stanza["status"], *(repository["status"] for repository in stanza.get("repo", ()))][::-1]:
            if status["code"] == _UNREADABLE:
                said = " ".join(str(status["message"]).split())
                raise TaskFailedError(f"pgbackrest info: {said}"[:TEXT_MAX])


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
