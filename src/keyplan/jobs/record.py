"""What the store says of a job: what is done, by which process, how far it is, and the command that goes on with it."""

import hashlib
import os
import shlex
import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec
from msgspec import structs

from keyplan.engine import SYSTEM_CLOCK, Clock, utc_time

__all__ = ["Holder", "JobRecord", "begun", "command_line", "kept_command", "this_process"]

_COMMAND_BYTES_MAX: Final = 600
"""Why: the record is written beside the work, in commits that an engine bounds, and a value may take nearly all of one."""


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a job: its machine's name, its number there, and when it started.

    `place` says of which machine, since which start of it, and of which container the number is; `started` is in the kernel's
    ticks, 0 where the system does not tell.
    """

    host: str
    process: int
    place: str = ""
    started: int = 0

    @property
    def is_alive(self) -> bool | None:
        """Whether the process is there; None where nobody can know: it is another machine's or container's."""
        if not self.place or self.place != this_process().place:
            return None
        return _started(self.process) == self.started

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


def this_process() -> Holder:
    """Return this process. Why asked anew: a process that was forked is another one."""
    number = os.getpid()
    return Holder(socket.gethostname(), number, _place(), _started(number))


@cache
def _place() -> str:
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        container = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
    return hashlib.sha256(machine + container.encode()).hexdigest()[:16]


def _started(process: int) -> int:
    """Return when a process started, in ticks since the machine did; 0: there is none, or the system does not tell."""
    try:
        facts = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return 0
    # Why from the right: the name of the program, in parentheses, may hold anything.
    state, *numbers = facts.rpartition(b")")[2].split()
    return 0 if state in (b"Z", b"X") else int(numbers[18])


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What every job keeps in the store beside what is its kind's own.

    `run` is another one each time that a process begins the work or takes it over: no two records are the same. `command` are
    the words behind `keyplan` that go on with it, without those that name the store; none when a program began it. `done`
    counts what the stage has gone through, as of `touched_at`.
    """

    run: str = ""
    holder: Holder | None = None
    begun_at: str = ""
    touched_at: str = ""
    stage: str = ""
    done: int = 0
    command: tuple[str, ...] = ()


def kept_command(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command as a record keeps them: none of one that is too long, or that is no text in UTF-8.

    Why the latter: the name of a file may be of any bytes, and whoever reads the record is to read all of it.
    """
    try:
        size = len(" ".join(command).encode())
    except UnicodeEncodeError:
        return ()
    return tuple(command) if size <= _COMMAND_BYTES_MAX else ()


def command_line(command: Sequence[str], store: str = "") -> str:
    """Return a job's command as a shell reads it, with the option that names the store that the job is in.

    `store` is that store's URL; where it is not known, the word URL stands for it.
    """
    option = "--to" if command[:1] == ("copy",) else "--store"
    return shlex.join(("keyplan", *command, *(() if "--store" in command else (option, store or "URL"))))


R = TypeVar("R", bound=JobRecord)


def begun(record: R, *, command: Sequence[str] = (), clock: Clock = SYSTEM_CLOCK, **changes: Any) -> R:
    """Return the record as this process writes it who begins the work, or takes it over.

    When it was first begun stays. A command that cannot be kept is left out; without one the earlier stays.
    """
    now = utc_time(clock.wall())
    kept = kept_command(command)
    own = {
        "run": uuid4().hex,
        "holder": this_process(),
        "begun_at": record.begun_at or now,
        "touched_at": now,
        "command": kept or record.command,
    }
    return structs.replace(record, **(own | changes))
