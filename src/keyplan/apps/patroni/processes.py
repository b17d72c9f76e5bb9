"""Processes that outlive the program that started them: written down with their start time, found again, asked to end.

A process id alone says nothing after a while, because the system gives it to somebody else; with the time at which the process
began it names one process for good. What is run is not known here.
"""

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from keyplan.errors import InvalidInputError

__all__ = ["Running", "Spawned", "spawn"]

_RECORD: Final = 'umask 077; read -r line </proc/self/stat && printf "%s\\n" "$line" >"$0" && exec "$@"'
"""Why a shell writes the file: it becomes the program by exec, so no program ever runs that is not written down.
The umask: whatever these programs write may hold passwords, and they do not say who may read it."""


def _identity(stat: str) -> tuple[int, int, str] | None:
    """The process id, the start time in clock ticks since boot, and the state, of a line of /proc/PID/stat."""
    # Trap: the program's name is in parentheses and may hold anything, parentheses too.
    found = re.fullmatch(r"(\d+) \(.*\) (.*)", stat.strip(), re.DOTALL)
    fields = found[2].split() if found else []
    return (int(found[1]), int(fields[19]), fields[0]) if found and len(fields) > 19 else None


def _now(pid: int) -> tuple[int, int, str] | None:
    try:
        return _identity(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except OSError:
        return None


@dataclass(frozen=True)
class Running:
    """One process, which may have ended since."""

    pid: int
    began: int

    @classmethod
    def of_file(cls, path: Path) -> Self | None:
        """The process that `spawn` wrote down; None when there is none, or it has ended."""
        try:
            found = _identity(path.read_text(errors="replace"))
        except OSError:
            return None
        process = cls(found[0], found[1]) if found else None
        return process if process is not None and process.is_alive else None

    @classmethod
    def of_pid(cls, pid: int) -> Self | None:
        """The process that has this id now."""
        found = _now(pid)
        return cls(found[0], found[1]) if found else None

    @property
    def is_alive(self) -> bool:
        """Whether it still runs. A process that only waits for its parent to ask how it ended does not."""
        found = _now(self.pid)
        return found is not None and found[1] == self.began and found[2] not in {"Z", "X"}

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process has ended."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    @property
    def command(self) -> list[str]:
        """Its command line; empty when it has ended."""
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:
            return []

    @property
    def user(self) -> int | None:
        """The id of the user it runs as; None when it has ended."""
        try:
            return Path(f"/proc/{self.pid}").stat().st_uid
        except OSError:
            return None


class Spawned:
    """A process that is written down in a file. It may be started by this program, or found as an earlier one left it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> Running | None:
        """The process while it runs. One that was started here a moment ago counts, although it is not written down yet."""
        running = Running.of_file(self.file)
        # Why polled: a child that ended stays in the table of processes until its parent asks.
        if running is None and self._child is not None and self._child.poll() is None:
            return Running.of_pid(self._child.pid)
        return running

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.running is not None

    def start(self, command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
        """Start it unless it runs. Its output is added to `log`; signals of a terminal do not reach it."""
        if not self.is_alive:
            self._child = spawn(command, file=self.file, environment=environment, log=log)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal when it runs."""
        running = self.running
        if running is not None:
            running.send(number)

    def forget(self) -> None:
        """Remove the file of a process that has ended."""
        if not self.is_alive:
            self.file.unlink(missing_ok=True)


def spawn(
    command: Sequence[str], *, file: Path, environment: Mapping[str, str], log: Path
) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own, which writes its id and start time into `file` before it does anything.

    Raises InvalidInputError when the file of the log cannot be written, or there is no shell.
    """
    try:
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            return subprocess.Popen(  # noqa: S603  # Why: the command is made of this package's own words.
                ["/bin/sh", "-c", _RECORD, str(file), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
            )
    except OSError as error:
        raise InvalidInputError(source=str(error.filename or log), problem=error.strerror or "no start") from error
