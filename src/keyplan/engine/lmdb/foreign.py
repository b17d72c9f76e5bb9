"""`lmdb:PATH?database=NAME`: keys and values of an LMDB file that another program writes, for reading.

To infer a layout from it, audit it, back it up, or copy it into a store of keyplan's own. Nothing can be written: what the
other program keeps beside its keys, nobody here knows.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

import lmdb

from keyplan.engine.admission import refuse_writing, require
from keyplan.engine.interface import NO_LEASE, Commit, Engine, KeyRange, Lease, Snapshot, Watch
from keyplan.engine.lineage import Lineage
from keyplan.engine.lmdb.files import refusal
from keyplan.engine.lmdb.format import Databases
from keyplan.engine.lmdb.identity import identity_of
from keyplan.engine.lmdb.options import KEY_BYTES_MAX, VALUE_BYTES_MAX
from keyplan.engine.lmdb.snapshot import RawSnapshot
from keyplan.engine.profile import Capability, Profile
from keyplan.errors import EngineError, EngineUnavailableError

__all__ = ["ForeignLmdb"]

_DATABASES_MAX: Final = 1


class ForeignLmdb(Engine):
    """An LMDB file of another program, read-only. The path is that of a folder, or of the file itself.

    Other processes may write meanwhile: each snapshot is one state. In this process, the path must not be open a second time.
    """

    def __init__(self, path: str | Path, database: str = "") -> None:
        """Open the database of that name; without one, the file's main database.

        Raises EngineOpenError: no such file, no such database, several values for a key, bytes that are not LMDB 0.9's.
        """
        self._path = Path(path)
        self._problem: str | None = None
        self._live: set[int] = set()
        self._process = os.getpid()
        if not self._path.exists():
            raise refusal(self._path, "there is no LMDB file here")
        self._identity = identity_of(self._path / "data.mdb" if self._path.is_dir() else self._path)
        self._environment, is_locked = self._opened()
        try:
            self._database = self._environment.open_db(database.encode() or None, create=False)
            has_duplicates = self._database.flags()["dupsort"]
        except lmdb.Error as error:
            self._environment.close()
            raise refusal(self._path, f"the database {database!r} cannot be read: {error}") from error
        if has_duplicates:
            self._environment.close()
            raise refusal(self._path, "the database has several values for a key")
        self._profile = Profile(
            name="lmdb",
            capabilities=frozenset({Capability.SHARED} if is_locked else ()),
            key_bytes_max=KEY_BYTES_MAX,
            value_bytes_max=VALUE_BYTES_MAX,
            commit_operations_max=None,
            commit_bytes_max=None,
            has_local_reads=True,
        )

    @property
    def profile(self) -> Profile:
        return self._profile

    def lineage(self) -> Lineage:
        """Return the file: another program's store has no identity of its own."""
        self._check_open()
        return Lineage(f"lmdb-file:{os.path.realpath(self._path)}", self._identity)

    def snapshot(self) -> Snapshot:
        self._check_open()
        try:
            transaction = self._environment.begin(self._database)
        except lmdb.MapResizedError:
            self._environment.set_mapsize(0)
            transaction = self._environment.begin(self._database)
        except lmdb.Error as error:
            raise EngineError(engine="lmdb", problem=str(error)) from error
        self._live.add(id(transaction))
        data = self._database
        return RawSnapshot(transaction, Databases(data, data, data, data, data), self._live, {})

    def commit(self, commit: Commit) -> int:
        self._refuse()

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        self._check_open()
        require(self._profile, Capability.WATCH)
        self._refuse()

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        self._check_open()
        require(self._profile, Capability.LEASES)
        self._refuse()

    def compact(self, revision: int) -> None:
        self._refuse()

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        self._refuse()

    def close(self) -> None:
        if self._problem is None:
            self._problem = "the engine was closed"
            self._environment.close()

    def _refuse(self) -> NoReturn:
        self._check_open()
        raise refuse_writing(self._profile)

    def _check_open(self) -> None:
        if self._process != os.getpid():
            self._problem = "it was opened before this process was forked; open the store again here"
        if self._problem is not None:
            raise EngineUnavailableError(engine="lmdb", problem=self._problem)

    def _opened(self) -> tuple["lmdb.Environment", bool]:
        """Open the file, locked if it may be: a reader announces itself in the lock file, which it must be allowed to write."""
        try:
            return self._mapped(is_locked=True), True
        except (lmdb.ReadonlyError, lmdb.LockError, PermissionError):
            return self._mapped(is_locked=False), False
        except lmdb.Error as error:
            if "Permission denied" not in str(error) and "Read-only file system" not in str(error):
                raise refusal(self._path, str(error)) from error
            return self._mapped(is_locked=False), False

    def _mapped(self, *, is_locked: bool) -> "lmdb.Environment":
        try:
            return lmdb.Environment(
                os.fsencode(self._path),
                subdir=self._path.is_dir(),
                readonly=True,
                create=False,
                max_dbs=_DATABASES_MAX,
                max_spare_txns=0,
                lock=is_locked,
                lib_version=0,
            )
        except lmdb.Error as error:
            if is_locked:
                raise
            raise refusal(self._path, str(error)) from error
