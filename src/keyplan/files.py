"""Files and folders that only their owner may read, and files that are written whole or not at all."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Final

from keyplan.errors import InvalidInputError

__all__ = [
    "FILE_MODE",
    "FOLDER_MODE",
    "folder_turn",
    "make_folder",
    "new_file",
    "read_private",
    "sync_folder",
    "write_over",
    "write_whole",
]

FILE_MODE: Final = 0o600
"""Why: what keyplan writes may hold anything that a store holds, passwords too. Who shares a file says so."""
FOLDER_MODE: Final = 0o700

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

_FRESH_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def make_folder(path: Path, *, mode: int = FOLDER_MODE) -> None:
    """Make a folder and the missing ones above it, each with exactly this mode, whatever the umask is.

    Folders that are there stay as they are. Raises InvalidInputError when a folder cannot be made, or a file is in its place.
    """
    # Why not `Path.is_dir`: it raises where a folder above may not be searched.
    if os.path.isdir(path):
        return
    # Why from the top: a folder is in its parent for good before anything is put into it.
    for folder in reversed((path, *path.parents)):
        if not os.path.isdir(folder):
            _make_one(folder, mode)


def _make_one(folder: Path, mode: int) -> None:
    try:
        # Why in two steps: the umask narrows the first, so that nobody can enter before the mode is the one asked for.
        folder.mkdir(mode)
        folder.chmod(mode)
        sync_folder(folder.parent)
    except FileExistsError as error:
        if not os.path.isdir(folder):  # else another process made it at this moment
            raise InvalidInputError(source=str(folder), problem="a file is there; a folder is needed") from error
    except OSError as error:
        raise InvalidInputError(
            source=str(folder), problem=f"the folder cannot be made: {error.strerror or error}"
        ) from error


def open_file(path: str | Path, flags: int, *, mode: int = FILE_MODE, owner: tuple[int, int] | None = None) -> int:
    """Open a file as `os.open` does. With O_CREAT, a missing one is made with exactly this mode, whatever the umask is.

    A link is followed, also one that leads to nothing yet.

    `owner` is a user's and a group's id: a file that is made becomes theirs as far as this process may give it away.
    Why not `os.open` alone: the umask narrows its mode, and what is there must keep its own. Raises OSError.
    """
    while flags & os.O_CREAT and not flags & os.O_EXCL:
        try:
            return os.open(path, flags & ~os.O_CREAT)
        except FileNotFoundError:
            pass
        try:
            return open_file(path, flags | os.O_EXCL, mode=mode, owner=owner)
        except FileExistsError:
            # Why: somebody made it at this moment; or it is a link to what is not there, which is made where it leads to.
            path = os.path.realpath(path)
    descriptor = os.open(path, flags, mode & FILE_MODE)
    if flags & os.O_CREAT:
        if owner is not None:
            _give_away(descriptor, *owner)
        os.fchmod(descriptor, mode)
    return descriptor


def _give_away(descriptor: int, user: int, group: int) -> None:
    # Why each alone: only the superuser may change the user; a member of a group may give a file to it.
    for ids in ((user, -1), (-1, group)):
        with suppress(OSError):
            os.fchown(descriptor, *ids)


def read_private(path: Path, *, bytes_max: int, missing: str, exposed: str, too_long: str) -> str:
    """Return the text of a file that only its owner may read or write.

    `missing`, `exposed` and `too_long` are the remedies. Raises InvalidInputError where there is no file, when others than its
    owner may read or write it, when it has more than `bytes_max` bytes, and when it is no text in UTF-8.
    """
    try:
        # Why without waiting: what is no file, as a pipe, is to be refused and not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            mode, content = os.fstat(descriptor).st_mode, b""
            if stat.S_ISREG(mode):
                with open(descriptor, "rb", closefd=False) as file:
                    content = file.read(bytes_max + 1)
        finally:
            os.close(descriptor)
        text = content[:bytes_max].decode(errors="strict" if len(content) <= bytes_max else "ignore")
    except FileNotFoundError as error:
        raise InvalidInputError(source=str(path), problem=f"there is no such file: {missing}") from error
    except OSError as error:
        raise InvalidInputError(source=str(path), problem=f"it cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(source=str(path), problem="it is not text in UTF-8: write it as such") from error
    if not stat.S_ISREG(mode):
        raise InvalidInputError(source=str(path), problem="it is no file: give one")
    if mode & _OTHERS:
        problem = f"others than its owner may read or write it: {exposed}"
        raise InvalidInputError(source=str(path), problem=problem)
    if len(content) > bytes_max:
        raise InvalidInputError(source=str(path), problem=f"it has more than {bytes_max} bytes: {too_long}")
    return text


@contextmanager
def folder_turn(folder: Path) -> Iterator[None]:
    """Hold the folder's lock for a block, so that commands which write a file of it anew take turns.

    Why not the file's: it is another file after each change. Raises InvalidInputError.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        problem = f"the folder cannot be read: {error.strerror or error}"
        raise InvalidInputError(source=str(folder), problem=problem) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_whole(
    path: Path,
    content: bytes | str,
    *,
    mode: int = FILE_MODE,
    replace: bool = True,
    owner: tuple[int, int] | None = None,
) -> None:
    """Write a file whole or not at all, with exactly this mode, and return when it is on disk. Text is written as UTF-8.

    A file that is there is replaced, and a symbolic link too: never what it leads to. `owner` is a user's and a group's id.
    Whoever is killed may leave a hidden file beside it, `.NAME.*.part`.
    Raises FileExistsError when `replace` is false and something is there, InvalidInputError when the file cannot be written.
    """
    fresh = _fresh_name(path)
    try:
        _write_fresh(fresh, content.encode() if isinstance(content, str) else content, mode, owner)
        if replace:
            fresh.replace(path)
        else:
            # Why: a link, unlike a rename, refuses to take the place of a file, also of one that came this moment.
            os.link(fresh, path)
            fresh.unlink()
        sync_folder(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def write_over(path: Path, text: str) -> None:
    """Write a file for its user, whole or not at all, over what is there: the mode, the owner and links to it stay.

    A new file has the mode that the umask allows. What is no file, as a terminal or a pipe, is written into.
    Raises InvalidInputError when it cannot be written.
    """
    # Why: a rename would put the file in the place of a link that leads to it.
    target = Path(os.path.realpath(path))
    try:
        found = path.stat()
    except OSError:
        write_whole(target, text, mode=_umasked(0o666))
        return
    # Why names too: what the system shows there of a file that is open, as /dev/stdout, is to be written and not replaced.
    folder = os.path.realpath(path.parent)
    if not stat.S_ISREG(found.st_mode) or folder == "/dev" or folder.startswith("/proc/"):
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise _unwritable(path, error) from error
        return
    # Why: the superuser alone can give a file to its owner; anybody else writes a file of their own.
    owner = (found.st_uid, found.st_gid) if os.geteuid() == 0 else None
    write_whole(target, text, mode=stat.S_IMODE(found.st_mode), owner=owner)


def _umasked(mode: int) -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mode & ~mask


@contextmanager
def new_file(path: Path, *, mode: int = FILE_MODE) -> Iterator[BinaryIO]:
    """Give a file to write for a block; it has its name when the block has ended and it is on disk, and never before.

    A block that raises leaves no file. Whoever is killed may leave a hidden one, `.NAME.*.part`, which is in nobody's way.
    Raises InvalidInputError when something of that name is there, before the block or after it, or no file can be made; OSError
    as the system has it when there is no room for what is written.
    """
    if os.path.lexists(path):
        raise InvalidInputError(
            source=str(path), problem="there is a file of this name: give another one, or remove it"
        )
    fresh = _fresh_name(path)
    try:
        descriptor = os.open(fresh, _FRESH_FLAGS, stat.S_IRUSR | stat.S_IWUSR)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        try:
            # Why: a link, unlike a rename, refuses to take the place of a file that came meanwhile.
            os.link(fresh, path)
        except OSError as error:
            raise _unwritable(path, error) from error
        fresh.unlink()
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def _fresh_name(path: Path) -> Path:
    # Why a random name: two writers of one file must not write into one another's.
    return path.with_name(f".{path.name}.{token_hex(6)}.part")


def _unwritable(path: Path, error: OSError) -> InvalidInputError:
    return InvalidInputError(source=str(path), problem=f"the file cannot be written: {error.strerror or error}")


def _write_fresh(path: Path, content: bytes, mode: int, owner: tuple[int, int] | None) -> None:
    descriptor = os.open(path, _FRESH_FLAGS, stat.S_IRUSR | stat.S_IWUSR)
    with os.fdopen(descriptor, "wb") as file:
        if owner is not None:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode)
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder are on disk, where the system can be asked for that."""
    # Why: some file systems refuse to flush a folder; what was written in it is there all the same.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
