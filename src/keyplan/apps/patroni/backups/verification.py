"""A backup is verified: restored into a scratch folder of a node, recovered until it is consistent, asked, and removed.

    NODE/home/verification/data          the restored data
    NODE/home/verification/tablespaces   what the cluster has elsewhere

The scratch instance is PostgreSQL without a postmaster: one process, which reads its statements from a file. So it has no port,
no socket and nobody who could log in, and ends by itself where its agent is killed. Everything is done as the node's user.
"""

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Final, NoReturn

from keyplan.apps.patroni.backups.archive import UNLESS_MISSING
from keyplan.apps.patroni.backups.node_programs import (
    TEXT_MAX,
    NodePrograms,
    PgBackRest,
    ProgramResult,
    TaskFailedError,
)
from keyplan.apps.patroni.backups.records import Backup
from keyplan.apps.patroni.node_host import as_user
from keyplan.apps.patroni.node_process import Node
from keyplan.errors import InvalidInputError

__all__ = ["asking_command", "problem_of", "remove_scratch", "settings_told"]

_FOLDER: Final = "verification"
_DATABASES_MAX: Final = 1_000
"""Why: each takes some tenths of a second; a cluster of more has shown enough by then."""
_MARGIN: Final = 0.1
_SPARE_BYTES: Final = 256 << 20
"""What a node keeps for itself. Why: PostgreSQL stops where its disk is full, and it runs on this one."""
_SETTINGS: Final = {
    # Why no file of the cluster's: it may name a target of a recovery of its own, and what is outside of its data.
    "config_file": "/dev/null",
    "archive_mode": "off",
    "recovery_target": "immediate",
    "recovery_target_action": "promote",
    # Why: what the archive has of later histories is not the backup's.
    "recovery_target_timeline": "current",
    # Trap: as a hot standby a single process of 18 takes its own place for somebody else's, and ends.
    "hot_standby": "off",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",
    "huge_pages": "off",
    "logging_collector": "off",
    "log_destination": "stderr",
}
_LIST: Final = "SELECT 'is ' || encode(convert_to(datname, 'UTF8'), 'hex') AS found FROM pg_database WHERE datallowconn"
_COUNT: Final = "SELECT 'has ' || count(*) AS found FROM pg_class"
_CONTROLLED: Final = {
    "max_prepared_transactions": re.compile(r"^max_prepared_xacts setting:\s+(\d+)$", re.MULTILINE),
    "max_locks_per_transaction": re.compile(r"^max_locks_per_xact setting:\s+(\d+)$", re.MULTILINE),
}
"""Settings that a recovery needs as they were, and how pg_controldata tells them: prepared transactions take their places."""
_REFUTING: Final = frozenset({26, 28, 29, 55, 73, 75, 95, 99})
"""pgBackRest's exit codes that say something of the backup itself: another checksum or form, files that are missing, a set that
is none. With any other it could not be tried: a repository that does not answer, a disk that is full, a process that was ended.
"""
_VERSION: Final = re.compile(rb"9\.[0-9]{1,2}|[0-9]{2,3}")
_REFUTING_WORDS: Final = re.compile(r"\[(?:Checksum|Crypto|FileInvalid|FileMissing|Format)Error\]")
"""The same of a segment of the log: whatever keeps it from being fetched has one code, and its reason is in words."""
_UNFETCHED: Final = re.compile(r"FATAL: +could not restore file .* from archive.*")
_TOLD: Final = re.compile(r"^ERROR: \[[0-9]{3}\]: .*(?:\n +.*)*", re.MULTILINE)
_FATAL: Final = re.compile(r"(?:ERROR|FATAL|PANIC):.*")
_FOUND: Final = re.compile(rb'found = "(is|has) ([0-9a-f]+)"')


class _BadBackupError(Exception):
    """Nothing can be made of the backup. The text says why."""


def problem_of(program: PgBackRest, backup: Backup) -> str:
    """Make an instance of a backup, ask each of its databases, and remove it. Return what is wrong; empty: nothing.

    Raises TaskFailedError where it could not be tried.
    """
    node = program.programs.node
    remove_scratch(node)
    _require_room(node.folder / "home", backup)
    try:
        _restore(program, backup)
        _ask(program)
    except _BadBackupError as error:
        _require_in_order(program, backup)
        return str(error)[-TEXT_MAX:]
    finally:
        remove_scratch(node)
    return ""


def _require_in_order(program: PgBackRest, backup: Backup) -> None:
    """Raise TaskFailedError where what a backup was tried with is not in order: then its failure says nothing of the backup."""
    if not any(one.label == backup.label for one in program.backups()):
        raise TaskFailedError(f"there is no backup {backup.label} any more")
    if _free_bytes(program.programs.node.folder / "home") < _SPARE_BYTES:
        raise TaskFailedError("there was no room left to try it")


def remove_scratch(node: Node) -> None:
    """Remove what a verification has left, also that of an agent that was killed."""
    folder = _folder(node)
    if os.path.lexists(folder):
        command = as_user(node.host.user, "/bin/rm", "-rf", "--", str(folder))
        subprocess.run(command, check=False, stderr=subprocess.DEVNULL)  # noqa: S603  # Why: the folder is ours.


def _folder(node: Node) -> Path:
    return node.folder / "home" / _FOLDER


def _require_room(home: Path, backup: Backup) -> None:
    free, needed = _free_bytes(home), int(backup.size_bytes * (1 + _MARGIN)) + _SPARE_BYTES
    if free < needed:
        raise TaskFailedError(f"there is no room to restore it: {needed} bytes are needed, and {free} are free")


def _free_bytes(home: Path) -> int:
    found = os.statvfs(home)
    return found.f_bavail * found.f_frsize


def _restore(program: PgBackRest, backup: Backup) -> None:
    folder, programs = _folder(program.programs.node), program.programs
    data, tablespaces = str(folder / "data"), str(folder / "tablespaces")
    _done(programs, "mkdir", "-m", "700", str(folder), data, tablespaces)
    result = program.tried(
        *("restore", program.reading, f"--set={backup.label}", "--type=none"),
        *(f"--pg1-path={data}", f"--tablespace-map-all={tablespaces}"),
    )
    if result.code:
        problem = f"pgbackrest restore: {result.problem}"
        raise _BadBackupError(problem) if result.code in _REFUTING else TaskFailedError(problem)
    _done(programs, "rm", "-f", "--", f"{data}/postgresql.auto.conf")
    _done(programs, "touch", f"{data}/recovery.signal")


def _done(programs: NodePrograms, *command: str) -> None:
    result = programs.run(*command)
    if result.code:
        raise TaskFailedError(f"{command[0]}: {result.problem}")


def settings_told(control: str) -> dict[str, str]:
    """Return what pg_controldata tells of settings that a recovery needs."""
    found = {name: pattern.search(control) for name, pattern in _CONTROLLED.items()}
    return {name: match[1] for name, match in found.items() if match is not None}


def asking_command(programs: Path, data: Path, *, fetch: str, control: str) -> list[str]:
    """Return what recovers restored data until they are consistent, and then carries out what it reads, but for the database.

    `fetch` is what fetches a segment of the log, and `control` what pg_controldata tells.
    """
    settings = {**_SETTINGS, **settings_told(control), "restore_command": fetch}
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return [str(programs / "postgres"), "--single", "-F", "-D", str(data), *words, "--"]


def _ask(program: PgBackRest) -> None:
    data = _folder(program.programs.node) / "data"
    programs = _programs_of(program.programs, data)
    told = _ended(program.programs, str(programs / "pg_controldata"), "-D", str(data))
    control = told.output.decode(errors="replace")
    fetch = shlex.join([*program.words, program.reading, f"--pg1-path={data}", "archive-get"])
    command = asking_command(programs, data, fetch=f'{fetch} %f "%p" {UNLESS_MISSING}', control=control)
    names = [bytes.fromhex(word.decode()).decode() for word in _answers(program, [*command, "template1"], _LIST)]
    for name in names[:_DATABASES_MAX]:
        _answers(program, [*command, name], _COUNT)


def _programs_of(programs: NodePrograms, data: Path) -> Path:
    """Return the programs for restored data. Why not the node's: it may have none at the moment, as when it is copied anew."""
    version = _ended(programs, "cat", str(data / "PG_VERSION")).output.strip()
    try:
        # Why without one: PostgreSQL itself says what is wrong then.
        return programs.node.host.programs_for(version.decode() if _VERSION.fullmatch(version) else "")
    except InvalidInputError as error:
        raise TaskFailedError(str(error)) from error


def _ended(programs: NodePrograms, *command: str, given: bytes = b"") -> ProgramResult:
    """Return how a program has ended by itself. Raises TaskFailedError where it was ended."""
    result = programs.run(*command, given=given)
    if -result.code in {signal.SIGKILL, signal.SIGTERM, signal.SIGINT}:
        raise TaskFailedError(f"{Path(command[0]).name} was ended by somebody else: the machine may lack memory")
    return result


def _answers(program: PgBackRest, command: list[str], statement: str) -> list[bytes]:
    """Return what PostgreSQL answers to a statement. Raises _BadBackupError where it does not."""
    result = _ended(program.programs, *command, given=f"{statement}\n".encode())
    found = [word for _, word in _FOUND.findall(result.output)]
    if result.code or not found:
        said = result.errors.decode(errors="replace")
        if unfetched := _UNFETCHED.search(said):
            _judge(_TOLD.search(said), unfetched[0])
        fatal = _FATAL.findall(said)
        raise _BadBackupError(f"PostgreSQL: {' '.join(fatal[-1].split()) if fatal else result.problem}")
    return found


def _judge(told: re.Match[str] | None, unfetched: str) -> NoReturn:
    """Tell a segment that is damaged from an archive that does not answer, by what pgBackRest says. Raises one or the other."""
    problem = f"the log could not be fetched: {' '.join((told[0] if told else unfetched).split())}"[:TEXT_MAX]
    if told is not None and _REFUTING_WORDS.search(told[0]):
        raise _BadBackupError(problem)
    raise TaskFailedError(problem)
