"""Who has an LMDB store open, by the locks of its turn and LMDB's table of readers; and modes that are wider than asked for."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import lmdb

from keyplan.engine.lmdb.engine import mode_of
from keyplan.engine.lmdb.environment import Environment
from keyplan.engine.lmdb.files import refusal
from keyplan.engine.lmdb.identity import SEEN_FILE
from keyplan.engine.lmdb.options import LmdbOptions
from keyplan.engine.lmdb.sharing import held_here
from keyplan.engine.lmdb.turn import TURN_FILE, TurnFile, observed_turn
from keyplan.engine.url import EngineUrl
from keyplan.engine.usage import ExposedFile, StoreUser

__all__ = ["exposed_files_of", "users_of"]


def users_of(url: EngineUrl) -> list[StoreUser]:
    """Return who has the store open; see `keyplan.engine.store_users`."""
    folder = _folder_of(url)
    if not (folder / "data.mdb").exists():
        raise refusal(folder, "there is no store here")
    with held_here(folder) as environment:
        return [*_writers(folder, environment), *_readers(folder, environment)]


def _writers(folder: Path, environment: Environment | None) -> Iterator[StoreUser]:
    try:
        with _turn_of(folder, environment) as turn:
            holders, present = turn.holders(), turn.writers()
    except FileNotFoundError:
        return  # nobody has opened it for writing since there are turns
    except OSError as error:
        raise refusal(folder, f"{TURN_FILE} cannot be read: {error.strerror}") from error
    busy: set[int] = set()
    for holder in holders:
        busy.add(holder.process)
        activity = "waiting to write" if holder.is_waiting else "writing"
        yield _user(holder.process, activity, since=holder.since)
    for process in present:
        if process not in busy:
            yield _user(process, "open for writing")


def _turn_of(folder: Path, environment: Environment | None) -> AbstractContextManager[TurnFile]:
    # Trap: where this process has the turn's file open, to open and close it again would give up the locks.
    if environment is not None and environment.turn is not None:
        return nullcontext(environment.turn)
    return observed_turn(folder)


def _readers(folder: Path, environment: Environment | None) -> Iterator[StoreUser]:
    """Yield the processes that hold a snapshot now, from LMDB's table: lines of process, thread and transaction."""
    try:
        # Trap: LMDB's files may be open once in a process; so the environment that has them is asked.
        with nullcontext(environment.lmdb) if environment is not None else _observed(folder) as opened:
            lines = opened.readers().splitlines()
    except lmdb.Error as error:
        raise refusal(folder, f"the readers cannot be listed: {error}") from error
    numbers = {int(line.split()[0]) for line in lines if line.split()[:1] and line.split()[0].isdigit()}
    for process in sorted(numbers - {os.getpid()}):
        yield _user(process, "reading")


def _observed(folder: Path) -> lmdb.Environment:
    return lmdb.Environment(os.fsencode(folder), readonly=True, create=False, max_spare_txns=0, lib_version=0)


def _user(process: int, activity: str, *, since: float | None = None) -> StoreUser:
    command, is_alive = "", True
    if process:
        is_alive = os.path.exists(f"/proc/{process}")
        with suppress(OSError):
            raw = Path(f"/proc/{process}/cmdline").read_bytes()
            command = raw.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return StoreUser(process, activity, since, is_alive, command)


def exposed_files_of(url: EngineUrl) -> list[ExposedFile]:
    """Return what is open to more than the URL's mode; see `keyplan.engine.exposed_files`."""
    folder = _folder_of(url)
    options = LmdbOptions(mode=mode_of(url))
    allowed = {folder: options.folder_mode}
    allowed |= {folder / name: options.mode for name in ("data.mdb", "lock.mdb", TURN_FILE, SEEN_FILE)}
    found: list[ExposedFile] = []
    for path, mode in allowed.items():
        with suppress(OSError):  # it is not there, or not to be seen
            has = path.stat().st_mode & 0o777
            if has & 0o077 & ~mode:
                found.append(ExposedFile(str(path), has, has & ~0o077 | mode & 0o077))
    return found


def _folder_of(url: EngineUrl) -> Path:
    return Path(url.address.removeprefix("//"))
