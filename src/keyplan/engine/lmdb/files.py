"""The files of a store on disk: opening them with LMDB 0.9 and nothing else, and saying clearly why they do not open."""

import errno
import os
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final

import lmdb

from keyplan.engine.lmdb.options import Durability, LmdbOptions
from keyplan.errors import EngineOpenError, StoreMissingError

__all__ = ["code_of", "open_files", "refusal"]

_DATABASES_MAX: Final = 8
_READERS_MAX: Final = 1_024
"""Why: one slot for each snapshot open at once, in all processes; a slot is 64 bytes of the lock file."""
_SPARE_TRANSACTIONS_MAX: Final = 0
"""Why: a spare transaction keeps its slot across a fork, and a child that closes its copy would take the parent's slot away.
It would make a get a tenth faster."""
_MAP_BYTES_MIN: Final = 1 << 24
_LOCK_BYTES: Final = 64 * (_READERS_MAX + 16)
"""The slots and what LMDB puts before them. It takes a longer file for more readers, and fills a shorter one up."""
_FILE_MODE: Final = 0o755
_META_MAGIC: Final = 0xBEEFC0DE
_META: Final = Struct("<II")


def refusal(path: Path, problem: str) -> EngineOpenError:
    """Return the error that says why the store at `path` cannot be opened."""
    return EngineOpenError(url=f"lmdb:{path}", problem=problem)


def open_files(path: Path, options: LmdbOptions) -> tuple[lmdb.Environment, bool]:
    """Open the folder, making it when that is asked for. Return the LMDB environment, and whether it is locked.

    Raises EngineOpenError: a missing folder, a plain file, no permission, bytes that are not LMDB 0.9's.
    """
    _prepare_folder(path, options)
    try:
        environment, is_locked = _open_locked(path, options)
    except OSError as error:
        raise refusal(path, error.strerror or str(error)) from error
    except lmdb.Error as error:
        raise refusal(path, _problem(path, error)) from error
    if environment.lib_version()[0] != 0:
        environment.close()
        raise refusal(path, "it would be read by LMDB 1.0, which returned damaged pages under load; only 0.9 is used")
    return environment, is_locked


def _prepare_folder(path: Path, options: LmdbOptions) -> None:
    data = path / "data.mdb"
    try:
        if path.exists() and not path.is_dir():
            raise refusal(path, "it is a file; an LMDB store is a folder")
        if options.is_readonly or not options.create:
            if not data.exists():
                raise StoreMissingError(url=f"lmdb:{path}", problem="there is no store here")
        else:
            path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refusal(path, f"the folder cannot be used: {error.strerror}") from error


def _allocate_lock_file(path: Path) -> None:
    """Make the lock file with room on the disk for all of it.

    Why: LMDB leaves holes in it. On a full disk, the first reader to use a slot in a hole would be ended by a bus error.
    Trap: never for one that is there: closing any descriptor of it gives up the locks that LMDB holds in this process.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    # Why: whatever is wrong with the folder, LMDB will say, or open what can be read.
    with suppress(OSError):
        descriptor = os.open(path / "lock.mdb", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE & 0o666)
        try:
            os.posix_fallocate(descriptor, 0, _LOCK_BYTES)
        finally:
            os.close(descriptor)


def _open_locked(path: Path, options: LmdbOptions) -> tuple[lmdb.Environment, bool]:
    _allocate_lock_file(path)
    try:
        return _open_mapped(path, options, lock=True), True
    except lmdb.Error as error:
        is_denied = code_of(error) in (errno.EACCES, errno.EROFS, errno.EPERM)
        if is_denied and not options.is_readonly and os.access(path / "data.mdb", os.R_OK):
            raise refusal(path, "it may not be written; open it with ?readonly=true") from error
        if not is_denied or not options.is_readonly:
            raise
    # Why: a reader announces itself in the lock file, which it must be allowed to write. Without that, reading is safe
    # only while nobody writes; so the profile then does not claim that the store may be shared.
    return _open_mapped(path, options, lock=False), False


def _open_mapped(path: Path, options: LmdbOptions, *, lock: bool) -> lmdb.Environment:
    """Open with the map asked for; where the system has no room for it, with half of that, and so on: it can grow."""
    map_bytes = options.map_bytes
    while True:
        try:
            return lmdb.Environment(
                str(path),
                map_size=map_bytes,
                readonly=options.is_readonly,
                metasync=options.durability is Durability.FULL,
                sync=options.durability is not Durability.NONE,
                mode=_FILE_MODE,
                create=False,
                max_readers=_READERS_MAX,
                max_dbs=_DATABASES_MAX,
                max_spare_txns=_SPARE_TRANSACTIONS_MAX,
                lock=lock,
                lib_version=0,
            )
        except (lmdb.Error, OverflowError) as error:
            has_no_room = isinstance(error, OverflowError) or code_of(error) in (
                errno.ENOMEM,
                errno.EINVAL,
                errno.EFBIG,
            )
            if not has_no_room or map_bytes <= _MAP_BYTES_MIN:
                raise
            map_bytes //= 2


def code_of(error: lmdb.Error) -> int:
    """Return the system's number for a failure, 0 where the driver gives none."""
    return int(getattr(error, "code", 0))


def _problem(path: Path, error: lmdb.Error) -> str:
    if not isinstance(error, lmdb.InvalidError | lmdb.VersionMismatchError | lmdb.CorruptedError):
        return str(error)
    version = _format_version(path / "data.mdb")
    if version is None:
        return "data.mdb is not an LMDB file"
    if version != 1:
        return f"data.mdb is in LMDB's format {version}; keyplan reads format 1, of LMDB 0.9"
    return f"data.mdb is damaged: {error}"


def _format_version(data: Path) -> int | None:
    """Return the format number of an LMDB file, or None for other bytes. The page header before it takes 16 or 24 bytes."""
    try:
        with data.open("rb") as file:
            head = file.read(64)
    except OSError:
        return None
    for position in (16, 24, 20, 12):
        if len(head) >= position + _META.size:
            magic, version = _META.unpack_from(head, position)
            if magic == _META_MAGIC:
                return int(version)
    return None
