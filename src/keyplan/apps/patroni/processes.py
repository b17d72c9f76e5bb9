"""Processes that outlive the program that started them: written down with their start time, found again, asked to end.

A process id alone says nothing after a while, because the system gives it to somebody else; with the time at which the process
began it names one process for good. What is run is not known here.

Whoever starts a process may die before it is written down. The file is locked until then, by the shell that becomes the
process, and whoever comes next waits for that lock: so nothing is started a second time.
"""

import fcntl
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final, NamedTuple, Self

from keyplan.engine import SYSTEM_CLOCK
from keyplan.errors import InvalidInputError

__all__ = [
    "ProcessTrees",
    "Running",
    "Spawned",
    "processes_of_program",
    "processes_of_user",
    "spawn",
    "users_of_processes",
]

_RECORD: Final = 'umask 077; read -r line </proc/self/stat && printf "%s\\n" "$line" >"$0" && exec "$@" </dev/null'
"""Why a shell writes the file: it becomes the program by exec, so no program ever runs that is not written down.
Why its input goes with it: that is the locked file, and the lock is free once nobody has it open any more.
The umask: whatever these programs write may hold passwords, and they do not say who may read it."""

_START_SECONDS_MAX: Final = 30.0
"""How long somebody else's start is waited for. It takes the time of one write."""


_UIDS: Final = re.compile(r"^Uid:\s*([0-9\s]+?)$", re.MULTILINE)

_TRANSFERRED: Final = re.compile(r"^[rw]char: ([0-9]+)$", re.MULTILINE)

_LISTENING: Final = "0A"
"""The kernel's number of that state of a socket."""


class _Identity(NamedTuple):
    """What a line of /proc/PID/stat tells: id, start time in clock ticks since boot, state, and who has begun it."""

    pid: int
    began: int
    state: str
    parent: int


def _identity(stat: str) -> _Identity | None:
    # Trap: the program's name is in parentheses and may hold anything, parentheses too.
    found = re.fullmatch(r"(\d+) \(.*\) (.*)", stat.strip(), re.DOTALL)
    fields = found[2].split() if found else []
    return _Identity(int(found[1]), int(fields[19]), fields[0], int(fields[1])) if found and len(fields) > 19 else None


def _now(pid: int) -> _Identity | None:
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
        process = cls(found.pid, found.began) if found else None
        return process if process is not None and process.is_alive else None

    @classmethod
    def of_pid(cls, pid: int) -> Self | None:
        """The process that has this id now."""
        found = _now(pid)
        return cls(found.pid, found.began) if found else None

    @property
    def is_alive(self) -> bool:
        """Whether it still runs. A process that only waits for its parent to ask how it ended does not."""
        found = _now(self.pid)
        return found is not None and found.began == self.began and found.state not in {"Z", "X"}

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process has ended."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    @property
    def command(self) -> list[str]:
        """Its command line; empty when it has ended."""
        return _words(self.pid)

    @property
    def user(self) -> int | None:
        """The id of the user it runs as; None when it has ended."""
        try:
            return Path(f"/proc/{self.pid}").stat().st_uid
        except OSError:
            return None

    @property
    def users(self) -> frozenset[int]:
        """The ids of all users that it may act as: its real, effective and saved one. Empty when it has ended."""
        try:
            text = Path(f"/proc/{self.pid}/status").read_text(errors="replace")
        except OSError:
            return frozenset()
        found = _UIDS.search(text)
        return frozenset(map(int, found[1].split())) if found else frozenset()

    @property
    def transferred(self) -> int | None:
        """How many bytes it has read and written, files, pipes and sockets together; None where the kernel does not tell."""
        try:
            counts = _TRANSFERRED.findall(Path(f"/proc/{self.pid}/io").read_text())
        except OSError:
            return None
        return sum(map(int, counts)) if counts else None

    def listens_at(self, port: int) -> bool:
        """Whether it is the one that takes TCP connections at a port of this machine, by what the kernel says."""
        return not self._sockets().isdisjoint(_listening_sockets(port))

    def _sockets(self) -> set[str]:
        found: set[str] = set()
        with suppress(OSError):  # it has ended, or is another user's
            for descriptor in Path(f"/proc/{self.pid}/fd").iterdir():
                with suppress(OSError):  # closed at this moment
                    found.add(os.readlink(descriptor))
        return found


def _words(pid: int) -> list[str]:
    """Return the command line of a process; none when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _listening_sockets(port: int) -> set[str]:
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):  # a machine without IPv6
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{fields[9]}]")
    return found


def processes_of_user(uid: int) -> Iterator[Running]:
    """Yield what runs as a user now, or may again: a program that its owner lets act for others has them among its users."""
    return (process for process in _processes() if uid in process.users)


def processes_of_program(name: str) -> Iterator[Running]:
    """Yield what is called so now, by the first word of its command line: anybody may call anything so."""
    for pid in _pids():
        # Why first: one small file of each process, of which there may be thousands.
        words = _words(pid)
        if words and words[0].rpartition("/")[2] == name and (found := Running.of_pid(pid)) is not None:
            yield found


def users_of_processes() -> set[int]:
    """Return the ids of all users that something runs as now."""
    return {uid for process in _processes() for uid in process.users}


class ProcessTrees:
    """Who has begun whom, as of one look at the machine. What has lost the one that began it is in nobody's tree."""

    def __init__(self) -> None:
        self._children: dict[int, list[Running]] = {}
        # Why by parents: the list of what a thread has begun goes with the thread, and not every kernel has one.
        for found in filter(None, map(_now, _pids())):
            self._children.setdefault(found.parent, []).append(Running(found.pid, found.began))

    def tree(self, process: Running) -> Iterator[Running]:
        """Yield a process, and what it has begun, and so on: what has begun others before these."""
        left, seen = [process], {process}
        # Trap: whoever has a cluster may nest processes deeper than Python can call.
        while left:
            yield (one := left.pop())
            found = [child for child in self._children.get(one.pid, ()) if child not in seen]
            left += found
            seen.update(found)


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _processes() -> Iterator[Running]:
    for pid in _pids():
        found = Running.of_pid(pid)
        if found is not None and found.is_alive:
            yield found


class Spawned:
    """A process that is written down in a file. It may be started by this program, or found as an earlier one left it."""

    def __init__(self, file: Path) -> None:
        """Raises InvalidInputError when an earlier program's start does not end."""
        self.file = file
        self._child: subprocess.Popen[bytes] | None = None
        deadline = SYSTEM_CLOCK.monotonic() + _START_SECONDS_MAX
        while _is_locked(file):
            if SYSTEM_CLOCK.monotonic() > deadline:
                problem = "a process is being started, and does not begin. End the shell that has the file open (fuser)"
                raise InvalidInputError(source=str(file), problem=problem)
            Event().wait(0.005)

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
        """Start it unless it runs. Its output is added to `log`; signals of a terminal do not reach it.

        Raises InvalidInputError when the file or that of the log cannot be written, or there is no shell.
        """
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

    The file is locked until it has written them, whatever becomes of the program that called this.
    Raises InvalidInputError when a file cannot be written, another start goes on, or there is no shell.
    """
    source = file
    try:
        with os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), "rb") as record:
            fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
            source = log
            with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
                return subprocess.Popen(  # noqa: S603  # Why: the command is made of this package's own words.
                    ["/bin/sh", "-c", _RECORD, str(file), *command],
                    stdin=record,
                    stdout=output,
                    stderr=output,
                    env=dict(environment),
                    start_new_session=True,
                )
    except BlockingIOError:
        raise InvalidInputError(source=str(file), problem="another start of it goes on: try again") from None
    except OSError as error:
        raise InvalidInputError(source=str(error.filename or source), problem=error.strerror or "no start") from error


def _is_locked(file: Path) -> bool:
    """Whether somebody is about to write into the file which process it is."""
    try:
        with file.open("rb") as record:
            fcntl.flock(record, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
