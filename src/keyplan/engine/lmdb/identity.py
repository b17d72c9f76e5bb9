"""Which file a store is in, and whether it is the one that was last written: told when the store is opened.

A store knows its file (inode and time of birth, in `meta`), so that a copy that was put in the file's place is noticed. A copy
that was written into the file itself is noticed by the number of the last transaction, which a small file beside it keeps.
"""

import ctypes
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from struct import Struct
from typing import Any, Final

import lmdb
import msgspec

from keyplan.engine.lineage import Lineage, leapt
from keyplan.engine.lmdb.format import LINEAGE_KEY, STATE_KEY, Databases, LineageRecord, State
from keyplan.errors import CorruptionError
from keyplan.files import open_file

__all__ = ["SEEN_FILE", "StoreFile", "claim_lineage", "identity_of"]

SEEN_FILE: Final = "last-transaction"
_SEEN: Final = Struct(">Q")

_STATX_BIRTH: Final = 0x800
_HERE: Final = -100  # AT_FDCWD


class _Statx(ctypes.Structure):
    """What `statx` fills in, as far as it is used: 64 bytes of other things, then four times."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("others", ctypes.c_uint8 * 60),
        ("accessed", ctypes.c_uint64 * 2),
        ("birth_seconds", ctypes.c_int64),
        ("birth_nanoseconds", ctypes.c_uint32),
        ("rest", ctypes.c_uint8 * 164),
    )


def identity_of(file: str | Path) -> str:
    """Return what tells a file from every other one, and from one that stands in its place later."""
    try:
        return _identity(file, os.stat(file))
    except OSError:
        return ""


def _identity(file: str | Path, found: os.stat_result) -> str:
    return f"{found.st_ino}-{_birth_of(file) or f'on {found.st_dev}'}"


class StoreFile:
    """The data file of a store that is open, and the small file beside it. Make it after LMDB has opened the folder."""

    def __init__(self, path: Path, *, is_readonly: bool) -> None:
        self._data = os.path.join(path, "data.mdb")
        self._stat = os.stat(self._data)
        self.identity = _identity(self._data, self._stat)
        """Another one for another file, even at the same path."""
        self._descriptor = -1
        self._page: mmap.mmap | None = None
        """The small file, where it may be written."""
        flags = os.O_RDONLY if is_readonly else os.O_RDWR | os.O_CREAT
        # Why suppressed: without it a copy that was written into the file is not noticed; everything else goes on.
        with suppress(OSError):
            mode, owner = self._stat.st_mode & 0o666, (self._stat.st_uid, self._stat.st_gid)
            self._descriptor = open_file(os.path.join(path, SEEN_FILE), flags | os.O_CLOEXEC, mode=mode, owner=owner)
            if not is_readonly:
                # Why allocated: writing into a hole would be a bus error on a full disk.
                os.posix_fallocate(self._descriptor, 0, _SEEN.size)
                self._page = mmap.mmap(self._descriptor, _SEEN.size)

    @property
    def last_seen(self) -> int:
        """The last transaction that is known to have been committed to this file; 0 when none is.

        Trap: ask before the file is looked at. What is committed in between is no sign of anything.
        """
        with suppress(OSError):
            raw = os.pread(self._descriptor, _SEEN.size, 0)
            return int(_SEEN.unpack(raw)[0]) if len(raw) == _SEEN.size else 0
        return 0

    def note(self, transaction: int) -> None:
        """Keep the number of a transaction that was committed. Not flushed: a number that is lost hides nothing but a copy.

        Why through a map: a call of the system for each commit would cost a tenth of a small one. Who is killed amid the bytes
        leaves a smaller number, since zeros are written first.
        """
        if self._page is not None:
            _SEEN.pack_into(self._page, 0, transaction)

    def is_replaced(self) -> bool:
        """Tell whether another file stands at the path by now, or none: what is written here, nobody else will find."""
        try:
            found = os.stat(self._data)
        except OSError:
            return True
        return (found.st_ino, found.st_dev) != (self._stat.st_ino, self._stat.st_dev)

    def close(self) -> None:
        """Let go of the small file. Closing twice is harmless."""
        self._page = None
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def claim_lineage(
    environment: "lmdb.Environment", databases: Databases, file: StoreFile, *, is_readonly: bool
) -> Lineage:
    """Return the lineage of the store. One that went back, or was copied, gets a new epoch, and its revisions leap.

    Who opened it for reading only changes nothing, and tells an epoch of its own until somebody who writes opens the store.
    Raises CorruptionError to who may write, when the record of it cannot be read.
    """
    seen = file.last_seen
    with environment.begin() as transaction:
        try:
            record = _record_of(transaction, databases)
        except CorruptionError:
            if not is_readonly:
                raise
            record = None  # Why: what else is there can be read, and backed up.
        if record is not None and _is_as_left(record, file, seen=seen, last=transaction.id()):
            return Lineage(record.store, record.epoch)
    if is_readonly:
        known = record or LineageRecord("", "", "")
        return Lineage(known.store, f"{known.epoch}~{file.identity}")
    with environment.begin(write=True) as transaction:
        # Why again: another process may have done it since.
        record = _record_of(transaction, databases)
        if record is None or not _is_as_left(record, file, seen=file.last_seen, last=transaction.id() - 1):
            if record is not None:
                _leap(transaction, databases)
            record = LineageRecord.drawn(file.identity, store=None if record is None else record.store)
            transaction.put(LINEAGE_KEY, msgspec.json.encode(record), db=databases.meta)
        number = transaction.id()
    file.note(number)
    return Lineage(record.store, record.epoch)


def _record_of(transaction: "lmdb.Transaction[bytes]", databases: Databases) -> LineageRecord | None:
    raw = transaction.get(LINEAGE_KEY, db=databases.meta)
    try:
        return None if raw is None else msgspec.json.decode(raw, type=LineageRecord)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptionError(problem="what says which store it is cannot be read") from error


def _is_as_left(record: LineageRecord, file: StoreFile, *, seen: int, last: int) -> bool:
    return record.file == file.identity and seen <= last


def _leap(transaction: "lmdb.Transaction[bytes]", databases: Databases) -> None:
    """Go on at revisions that were never given out. A store without a state row has none."""
    raw = transaction.get(STATE_KEY, db=databases.meta)
    if raw is not None:
        state = State.unpack(raw)
        state.revision = state.compacted = leapt(state.revision)
        transaction.put(STATE_KEY, state.pack(), db=databases.meta)


def _birth_of(file: str | Path) -> str:
    """Return when a file was made; "" where the system does not tell. Why by hand: `os.stat` leaves it out on Linux."""
    statx, told = _statx(), _Statx()
    if statx is None or statx(_HERE, os.fsencode(file), 0, _STATX_BIRTH, ctypes.byref(told)) != 0:
        return ""
    return f"{told.birth_seconds}.{told.birth_nanoseconds:09}" if told.mask & _STATX_BIRTH else ""


@cache
def _statx() -> Callable[..., Any] | None:
    try:
        found: Callable[..., Any] = ctypes.CDLL(None, use_errno=True).statx
    except (AttributeError, OSError):
        return None
    return found
