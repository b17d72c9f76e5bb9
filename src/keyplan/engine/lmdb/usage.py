"""Who has an LMDB store open, by the locks of its turn and LMDB's table of readers; and modes that are wider than asked for."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import lmdb

from keyplan.engine.lmdb.engine import mode_of
from keyplan.engine.lmdb.files import refusal
from keyplan.engine.lmdb.identity import SEEN_FILE
from keyplan.engine.lmdb.options import LmdbOptions
from keyplan.engine.lmdb.turn import TURN_FILE, observed_turn
from keyplan.engine.url import EngineUrl
from keyplan.engine.usage import ExposedFile, StoreUser

__all__ = ["exposed_files_of", "users_of"]


def users_of(url: EngineUrl) -> list[StoreUser]:
    """Return who has the store open; see `keyplan.engine.store_users`."""
    folder = _folder_of(url)
    if not (folder / "data.mdb").exists():
        raise refusal(folder, "there is no store here")
    return [*_writers(folder), *_readers(folder)]


def _writers(folder: Path) -> Iterator[StoreUser]:
    try:
        with observed_turn(folder) as turn:
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


def _readers(folder: Path) -> Iterator[StoreUser]:
    """Yield the processes that hold a snapshot now, from LMDB's table: lines of process, thread and transaction."""
    try:
        with lmdb.Environment(str(folder), readonly=True, create=False, max_spare_txns=0, lib_version=0) as environment:
            lines = environment.readers().splitlines()
    except lmdb.Error as error:
        raise refusal(folder, f"the readers cannot be listed: {error}") from error
    numbers = {int(line.split()[0]) for line in lines if line.split()[:1] and line.split()[0].isdigit()}
    for process in sorted(numbers - {os.getpid()}):
        yield _user(process, "reading")


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
