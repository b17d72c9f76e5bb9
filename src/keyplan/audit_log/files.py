"""The files of one log: the present one, the older ones beside it by the numbers of their lines, and who writes them.

    audit.log               line 9713 and all later ones
    audit.log.1-5280        lines 1 to 5280
    audit.log.5281-9712     lines 5281 to 9712
    .audit.log.lock         locked by the process that writes

What is in them, is in log.py and reading.py.
"""

import fcntl
import os
import re
import stat
from contextlib import suppress
from errno import EISDIR
from pathlib import Path
from typing import Final, NamedTuple

from keyplan.audit_log.chain import Head
from keyplan.audit_log.ends import NOTHING_BEFORE, End, end_of
from keyplan.errors import InvalidInputError
from keyplan.files import FILE_MODE, open_file

__all__ = ["OlderFile", "end_in", "head_beside", "is_same", "older_files", "opened", "taken", "words_of"]

_HOLDER_BYTES_MAX: Final = 200
_DIGITS_MAX: Final = 18
_OTHERS_LOOKED_AT_MAX: Final = 100
"""Why: files that somebody else renamed are looked at one by one, the latest first; the rest is older."""


class OlderFile(NamedTuple):
    """A file that a log has left, and the numbers of its first and last line."""

    path: Path
    first: int
    last: int

    @classmethod
    def of(cls, path: Path, first: int, last: int) -> "OlderFile":
        """Return what the present file of these lines is renamed to."""
        return cls(path.with_name(f"{path.name}.{first}-{last}"), first, last)


def older_files(path: Path) -> list[OlderFile]:
    """Return the older files beside the present one, in order. Raises InvalidInputError for a folder that cannot be read."""
    name = re.compile(rf"{re.escape(path.name)}\.(\d{{1,{_DIGITS_MAX}}})-(\d{{1,{_DIGITS_MAX}}})")
    found = (name.fullmatch(one) for one in _names_beside(path))
    return sorted(
        (OlderFile(path.with_name(match[0]), int(match[1]), int(match[2])) for match in found if match),
        key=lambda one: (one.first, one.last),
    )


def head_beside(path: Path) -> Head:
    """Return the head of the latest file that the log has left, also under a name that somebody else gave it.

    Why: whoever is killed between two files, or started after `logrotate` renamed the last one, goes on with the chain. A file
    that is none of a log is passed over. Raises InvalidInputError.
    """
    own = older_files(path)
    names = {one.path.name for one in own}
    others = [
        path.with_name(name)
        for name in _names_beside(path)
        if name.startswith((f"{path.name}.", f"{path.name}-")) and name not in names
    ]
    others.sort(key=_written_at, reverse=True)
    heads = [NOTHING_BEFORE]
    for one in (*(older.path for older in own[-1:]), *others[:_OTHERS_LOOKED_AT_MAX]):
        with suppress(InvalidInputError):
            heads.append(end_in(one).head)
    return max(heads)


def end_in(path: Path) -> End:
    """Return where a file of a log ends. Raises InvalidInputError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=f"it cannot be read: {words_of(error)}") from error
    try:
        _require_file(descriptor, path)
        return end_of(descriptor, path)
    finally:
        os.close(descriptor)


def opened(path: Path) -> int:
    """Open the present file, which is made where it is missing, and lock it. Raises InvalidInputError."""
    try:
        # Why without waiting: what is no file, as a pipe, is to be refused and not waited for.
        descriptor = open_file(
            path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, mode=FILE_MODE
        )
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=f"it cannot be opened: {words_of(error)}") from error
    try:
        _require_file(descriptor, path)
        # Why beside the other lock: a link, or a lock file that somebody removed, leads two processes to one file.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        problem = "another process writes this audit log, by another name: give another file"
        raise InvalidInputError(source=str(path), problem=problem) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def taken(path: Path, now: str) -> int:
    """Take the lock of a log, which a file beside it holds. Raises InvalidInputError when another process has it.

    Why a hidden file: `audit.log*` names the files of a log, for people and for what rotates them.
    """
    beside = path.parent / f".{path.name}.lock"
    try:
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        descriptor = open_file(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=FILE_MODE)
    except OSError as error:
        raise InvalidInputError(source=str(beside), problem=f"it cannot be opened: {words_of(error)}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        with suppress(OSError):  # Why: on a full disk the lock holds without the words.
            os.pwrite(descriptor, f"process {os.getpid()}, since {now}\n".encode(), 0)
    except BlockingIOError:
        holder = os.pread(descriptor, _HOLDER_BYTES_MAX, 0).decode("utf-8", "replace").strip() or "another process"
        os.close(descriptor)
        raise InvalidInputError(
            source=str(path), problem=f"{holder} writes this audit log: give another file"
        ) from None
    return descriptor


def is_same(path: Path, descriptor: int) -> bool:
    """Tell whether an open file is the one that has this name."""
    try:
        found = path.stat()
    except OSError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def words_of(error: OSError | InvalidInputError) -> str:
    """Return what the system, or we, say is wrong."""
    if isinstance(error, InvalidInputError):
        return str(error.facts["problem"])
    return error.strerror or str(error)


def _require_file(descriptor: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise InvalidInputError(source=str(path), problem="it is no file: give one")


def _names_beside(path: Path) -> list[str]:
    try:
        return os.listdir(path.parent)
    except OSError as error:
        problem = f"the folder cannot be read: {words_of(error)}"
        raise InvalidInputError(source=str(path.parent), problem=problem) from error


def _written_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
