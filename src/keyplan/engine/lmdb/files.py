"""The files of a store on disk: making them, opening them with LMDB 0.9 alone, saying clearly why they do not open."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final

import lmdb
import msgspec

from keyplan.engine.lmdb.format import FORMAT_HISTORY, FORMAT_KEY, FORMAT_RAW, LINEAGE_KEY, Databases, LineageRecord
from keyplan.engine.lmdb.identity import SEEN_FILE, identity_of
from keyplan.engine.lmdb.options import Durability, LmdbOptions
from keyplan.engine.lmdb.pages import shortfall_of
from keyplan.engine.lmdb.turn import TURN_FILE, WriteTurn
from keyplan.errors import EngineOpenError, InvalidInputError, StoreMissingError
from keyplan.files import make_folder, open_file, sync_folder

__all__ = [
    "code_of",
    "create_databases",
    "format_problem",
    "map_bytes_beside",
    "open_databases",
    "open_files",
    "open_turn",
    "refusal",
    "reopen_files",
    "stored_format",
]

_DENIED: Final = (errno.EACCES, errno.EROFS, errno.EPERM)

_DATABASES_MAX: Final = 8
_READERS_MAX: Final = 1_024
"""Why: one slot for each snapshot open at once, in all processes; a slot is 64 bytes of the lock file."""
_SPARE_TRANSACTIONS_MAX: Final = 0
"""Why: a spare transaction keeps its slot across a fork, and a child that closes its copy would take the parent's slot away.
It would make a get a tenth faster."""
_MAP_BYTES_MIN: Final = 1 << 24
_ADDRESS_BYTES: Final = 1 << 44
"""Of 2**47 that a process has. Why an eighth: shares of it to one after the other, each a smaller part, take ln(n) times it."""
_LOCK_BYTES: Final = 64 * (_READERS_MAX + 16)
"""The slots and what LMDB puts before them. It takes a longer file for more readers, and fills a shorter one up."""
_DATA: Final = "data.mdb"
_LOCK: Final = "lock.mdb"
_NEW_DATA: Final = ".data.mdb.new"
_OWN_FILES: Final = frozenset({_LOCK, TURN_FILE, SEEN_FILE, "lost+found"})
"""What may stand where a store is made: what another process makes at this moment, or one that was killed left; and what the
system puts into the root of a disk."""
_META_MAGIC: Final = 0xBEEFC0DE
_META: Final = Struct("<II")


def refusal(path: Path, problem: str) -> EngineOpenError:
    """Return the error that says why the store at `path` cannot be opened."""
    return EngineOpenError(url=f"lmdb:{path}", problem=problem)


def open_turn(path: Path, options: LmdbOptions, check: Callable[[], None]) -> WriteTurn:
    """Make the folder when that is asked for, and open the file of the turn to write in it. Raises EngineOpenError."""
    mode, owner = _prepare_folder(path, options)
    try:
        return WriteTurn(path, mode=mode, owner=owner, seconds=options.turn_seconds, check=check)
    except OSError as error:
        data = path / _DATA
        if error.errno in _DENIED and os.access(data, os.W_OK) and not os.access(path, os.W_OK):
            # Why not without the file: who writes beside others, and takes no turns with them, waits for ever or not at all.
            problem = (
                f"its folder may not be written, and writers take turns by {TURN_FILE} in it: let this user write there"
            )
            raise refusal(path, f"{problem}, or open it with ?readonly=true") from error
        if error.errno in _DENIED and os.access(data, os.R_OK):
            raise refusal(path, "it may not be written; open it with ?readonly=true") from error
        raise refusal(path, f"{TURN_FILE} cannot be opened: {error.strerror}") from error


def open_files(
    path: Path, options: LmdbOptions, turn: WriteTurn | None, waits_since: float
) -> tuple[lmdb.Environment, bool]:
    """Open the store; without one, make it. Return the LMDB environment, and whether it is locked. `turn` is None for a reader.

    Raises EngineOpenError: a missing folder, a plain file, no permission, bytes that are not LMDB 0.9's.
    """
    if turn is None:
        if not os.path.exists(os.path.join(path, _DATA)):
            _prepare_folder(path, options)
    else:
        try:
            _make_data(path, options, turn, waits_since)
        except (OSError, lmdb.Error) as error:
            raise _failure(path, error) from error
    return reopen_files(path, options)


def reopen_files(path: Path, options: LmdbOptions) -> tuple[lmdb.Environment, bool]:
    """Open a store that is there; as `open_files`."""
    try:
        _check_whole(path)
        environment, is_locked = _open_locked(path, options)
    except (OSError, lmdb.Error) as error:
        raise _failure(path, error) from error
    if environment.lib_version()[0] != 0:
        environment.close()
        raise refusal(path, "it would be read by LMDB 1.0, which returned damaged pages under load; only 0.9 is used")
    return environment, is_locked


def _failure(path: Path, error: OSError | lmdb.Error) -> EngineOpenError:
    """Return the error of a store that the system or LMDB did not open."""
    if isinstance(error, lmdb.Error):
        return refusal(path, _problem(path, error))
    return refusal(path, error.strerror or str(error))


def _mode_and_owner(path: Path, options: LmdbOptions) -> tuple[int, tuple[int, int] | None]:
    """Return the mode and the owner of a file that is made beside the data file: those of the data file where there is one.

    Why: whoever opens a store first, the superuser for one, shall not shut out those who may write it.
    """
    try:
        found = os.stat(os.path.join(path, _DATA))
    except (FileNotFoundError, NotADirectoryError):
        return options.mode, None
    return found.st_mode & 0o666, (found.st_uid, found.st_gid)


def _prepare_folder(path: Path, options: LmdbOptions) -> tuple[int, tuple[int, int] | None]:
    """Make the folder where it is missing, and may be made. Return the mode and the owner of files that are made in it."""
    try:
        found = _mode_and_owner(path, options)
        if found[1] is not None:  # one look tells all where there is a store: most opens are of one
            return found
        if path.exists() and not path.is_dir():
            raise refusal(path, "it is a file; an LMDB store is a folder")
        if options.is_readonly or not options.create:
            raise StoreMissingError(url=f"lmdb:{path}", problem="there is no store here")
        _refuse_strangers(path)
        make_folder(path, mode=options.folder_mode)
    except OSError as error:
        raise refusal(path, f"the folder cannot be used: {error.strerror}") from error
    except InvalidInputError as error:
        problem = f"the folder cannot be used: {error.facts['source']}: {error.facts['problem']}"
        raise refusal(path, problem) from error
    return _mode_and_owner(path, options)  # another process may have made the store meanwhile


def _refuse_strangers(path: Path) -> None:
    """Refuse to make a store among files of others: a folder that was mistyped. An empty folder may be there."""
    if not path.is_dir():
        return
    names = os.listdir(path)
    others = sorted(name for name in names if name not in _OWN_FILES and not name.startswith("."))
    # Why not with a data file: another process has made the store since it was looked for.
    if others and _DATA not in names:
        raise refusal(path, f"the folder holds other files, as {others[0]!r}, and no store: name a folder of its own")


def _make_data(path: Path, options: LmdbOptions, turn: WriteTurn, waits_since: float) -> None:
    """Make the data file where there is none: beside, with all its databases, and then give it its name.

    Why: LMDB makes it empty and fills it afterwards. An empty file would be what a killed process left, or a store that was cut
    off; as it is, it is always the latter.
    """
    # Why by name alone: what is not seen here, for whatever reason, is asked again below, with the turn.
    if os.path.exists(os.path.join(path, _DATA)):
        return
    data, fresh = path / _DATA, path / _NEW_DATA
    try:
        turn.take(waits_since)
        if data.exists():  # another process made it while this one waited
            return
        fresh.unlink(missing_ok=True)  # what a killed process left: whoever has the turn is the only one
        expected = FORMAT_HISTORY if options.has_history else FORMAT_RAW
        with _mapped(fresh, options, map_bytes=_MAP_BYTES_MIN, lock=False, subdir=False) as made:
            create_databases(made, expected, identity=identity_of(fresh))
        fresh.chmod(options.mode)
        fresh.replace(data)
        if options.durability is not Durability.NONE:
            sync_folder(path)
    finally:
        turn.give_back()


def create_databases(environment: lmdb.Environment, expected: bytes, *, identity: str) -> bytes | None:
    """Make the databases of an empty file, all or none. Return the format that is stored then. `identity` is the file's.

    Call it with the turn to write: harmless when another process did it before.
    """
    with environment.begin(write=True) as transaction:
        meta = environment.open_db(b"meta", txn=transaction)
        environment.open_db(b"data", txn=transaction)
        if expected == FORMAT_HISTORY:
            environment.open_db(b"log", txn=transaction)
            environment.open_db(b"leases", txn=transaction)
            environment.open_db(b"lease_keys", txn=transaction, dupsort=True)
        transaction.put(FORMAT_KEY, expected, overwrite=False, db=meta)
        lineage = msgspec.json.encode(LineageRecord.drawn(identity))
        transaction.put(LINEAGE_KEY, lineage, overwrite=False, db=meta)
        return transaction.get(FORMAT_KEY, db=meta)


def stored_format(opened: lmdb.Environment, path: Path) -> bytes | None:
    """Return what a file says it is: None when it is empty. Raises EngineOpenError for a file of another program."""
    with opened.begin() as transaction:
        if transaction.stat()["entries"] == 0:
            return None
        try:
            meta = opened.open_db(b"meta", txn=transaction, create=False)  # for this transaction alone
        except lmdb.Error as error:
            raise refusal(path, "the LMDB file was made by another program") from error
        return transaction.get(FORMAT_KEY, b"", db=meta)


def format_problem(stored: bytes | None, *, has_history: bool) -> str:
    """Say why a store of that format cannot be opened with history, or without."""
    if stored is None:
        return "there is no store here"
    if stored == FORMAT_RAW and has_history:
        return "it was made with history=off and has no revisions; open it with ?history=off"
    if stored == FORMAT_HISTORY:
        return "it was made with revisions; open it without history=off"
    return f"its format is {stored.decode(errors='replace')!r}; this keyplan reads format 1"


def open_databases(opened: lmdb.Environment, *, has_history: bool) -> Databases:
    """Open the databases of a store. Call it with the turn, where it may be written."""
    data, meta = opened.open_db(b"data", create=False), opened.open_db(b"meta", create=False)
    if not has_history:
        return Databases(data, meta, data, data, data)
    return Databases(
        data,
        meta,
        opened.open_db(b"log", create=False),
        opened.open_db(b"leases", create=False),
        opened.open_db(b"lease_keys", create=False, dupsort=True),
    )


def _check_whole(path: Path) -> None:
    """Refuse a data file that was cut off. Reading what is missing would end this process by a bus error, without a word."""
    data = os.path.join(path, _DATA)
    if os.stat(data).st_size == 0:
        raise refusal(
            path, "data.mdb is empty; a store never is: restore it from a backup, or remove the file to begin anew"
        )
    shortfall = shortfall_of(data)
    if shortfall is not None:
        problem = f"data.mdb was cut off: it has {shortfall.size} bytes of {shortfall.needed}; restore it from a backup"
        raise refusal(path, problem)


def _allocate_lock_file(path: Path, options: LmdbOptions) -> None:
    """Make the lock file with room on the disk for all of it.

    Why: LMDB leaves holes in it. On a full disk, the first reader to use a slot in a hole would be ended by a bus error.
    Trap: never for one that is there: closing any descriptor of it gives up the locks that LMDB holds in this process.
    """
    lock = os.path.join(path, _LOCK)
    # Why: whatever is wrong with the folder, LMDB will say, or open what can be read.
    with suppress(OSError):
        mode, owner = _mode_and_owner(path, options)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = open_file(lock, flags, mode=mode, owner=owner)
        try:
            os.posix_fallocate(descriptor, 0, _LOCK_BYTES)
        finally:
            os.close(descriptor)


def _open_locked(path: Path, options: LmdbOptions) -> tuple[lmdb.Environment, bool]:
    if not os.path.exists(os.path.join(path, _LOCK)):
        _allocate_lock_file(path, options)
    try:
        return _open_mapped(path, options, lock=True), True
    except lmdb.Error as error:
        is_denied = code_of(error) in _DENIED
        if is_denied and not options.is_readonly and os.access(path / _DATA, os.R_OK):
            raise refusal(path, "it may not be written; open it with ?readonly=true") from error
        if not is_denied or not options.is_readonly:
            raise
    # Why: a reader announces itself in the lock file, which it must be allowed to write. Without that, reading is safe
    # only while nobody writes; so the profile then does not claim that the store may be shared.
    return _open_mapped(path, options, lock=False), False


def map_bytes_beside(others: int, options: LmdbOptions) -> int:
    """Return what a map begins with where so many others are open in this process: there shall be room for those to come.

    Why: maps of 1 TiB fill the address space of a process with 127 stores, and a ring of a hundred machines has more.
    """
    return max(min(options.map_bytes, _ADDRESS_BYTES // (others + 1)), min(options.map_bytes, _MAP_BYTES_MIN))


def _open_mapped(path: Path, options: LmdbOptions, *, lock: bool) -> lmdb.Environment:
    """Open with the map asked for; where the system has no room for it, with half of that, and so on: it can grow."""
    map_bytes = options.map_bytes
    while True:
        try:
            return _mapped(path, options, map_bytes=map_bytes, lock=lock)
        except (lmdb.Error, OverflowError) as error:
            has_no_room = isinstance(error, OverflowError) or code_of(error) in (
                errno.ENOMEM,
                errno.EINVAL,
                errno.EFBIG,
            )
            if not has_no_room or map_bytes <= _MAP_BYTES_MIN:
                raise
            map_bytes //= 2


def _mapped(path: Path, options: LmdbOptions, *, map_bytes: int, lock: bool, subdir: bool = True) -> lmdb.Environment:
    return lmdb.Environment(
        os.fsencode(path),  # as the system has it: a name need not be UTF-8
        subdir=subdir,
        map_size=map_bytes,
        readonly=options.is_readonly,
        metasync=options.durability is Durability.FULL,
        sync=options.durability is not Durability.NONE,
        mode=options.mode,
        create=False,
        max_readers=_READERS_MAX,
        max_dbs=_DATABASES_MAX,
        max_spare_txns=_SPARE_TRANSACTIONS_MAX,
        lock=lock,
        lib_version=0,
    )


def code_of(error: lmdb.Error) -> int:
    """Return the system's number for a failure, 0 where the driver gives none."""
    return int(getattr(error, "code", 0))


def _problem(path: Path, error: lmdb.Error) -> str:
    if not isinstance(error, lmdb.InvalidError | lmdb.VersionMismatchError | lmdb.CorruptedError):
        return str(error)
    version = _format_version(path / _DATA)
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
