"""The open files of one store: transactions, map growth, leases that run out, news. One a process and path: `sharing`."""

import errno
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition, Lock
from typing import Any, Final, TypeVar

import lmdb
import msgspec

from keyplan.engine.group_commit import CommitQueue, Ticket
from keyplan.engine.lineage import Lineage
from keyplan.engine.lmdb.files import code_of, open_files, refusal
from keyplan.engine.lmdb.format import (
    FORMAT_HISTORY,
    FORMAT_KEY,
    FORMAT_RAW,
    LINEAGE_KEY,
    STATE_KEY,
    Databases,
    LeaseRecord,
    LineageRecord,
    State,
)
from keyplan.engine.lmdb.identity import StoreFile, claim_lineage
from keyplan.engine.lmdb.options import LmdbOptions
from keyplan.engine.lmdb.write import WriteTransaction
from keyplan.errors import CommitOutcomeUnknownError, EngineError, EngineUnavailableError, KeyplanError

__all__ = ["Environment"]

Result = TypeVar("Result")
_Work = Callable[[WriteTransaction], Any]
"""Something to do in a write transaction. It may refuse by raising a KeyplanError, but only before its first write."""

_LEASE_LOOK_SECONDS_MAX: Final = 1.0
"""Why: a lease that another process granted is noticed at least this often."""
_READERS_LOOK_COMMITS: Final = 256
"""Why: a reader that was killed keeps the pages of its snapshot, and all that are replaced after it, from being used again.
Looking for such readers costs some microseconds for each process that reads."""
_REPLACED: Final = "another file stands at its path by now: the store was replaced while it was open; open it again"
_WRITING: Final = 0
"""Stands in `live` for the write transaction."""


class Environment:
    """The open files of a store. Invariant: there is one for each real path in a process, as LMDB demands."""

    def __init__(self, path: Path, options: LmdbOptions) -> None:
        self.path = path
        self.options = options
        self.users = 0
        self.problem: str | None = None
        """Why nothing can be done with it any more: it was closed, or this process is a fork of the one that opened it."""
        self.news = Condition()
        """Notified after each commit of this process while somebody waits."""
        self.waiting_for_news = 0
        """How many wait for `news`. Changed under its lock, before whoever waits looks whether there is news already."""
        self.live: set[int] = set()
        """Ids of the transactions that last. Invariant: none is missing; one whose snapshot was never closed may be left."""
        self._closing = Lock()
        self._queue = CommitQueue[_Work](self._carry_out, outcome_unknown=_outcome_unknown)
        self._commits_since_look = 0
        """Commits since dead readers were looked for."""
        self.look_at = 0.0 if options.has_history else math.inf
        """When the leases are looked at next, by the monotonic clock: the first may be over then."""
        self.lmdb, self.is_locked = open_files(path, options)
        self._file = StoreFile(path, is_readonly=options.is_readonly)
        try:
            if self.is_locked:
                self.lmdb.reader_check()  # readers that were killed would keep old pages from being used again
            self.databases = self._open_databases()
            self.lineage: Lineage = claim_lineage(
                self.lmdb, self.databases, self._file, is_readonly=options.is_readonly
            )
            if options.has_history:
                self.look_at_leases()
        except lmdb.Error as error:
            self._close_files()
            raise refusal(path, str(error)) from error
        except KeyplanError:
            self._close_files()
            raise

    # ---- reading ------------------------------------------------------------------------------------------------------

    def begin_read(self) -> "lmdb.Transaction[bytes]":
        """Begin a read transaction on the latest committed state. Who ends it takes it out of `live`."""
        try:
            transaction = self.lmdb.begin(self.databases.data)
        except lmdb.Error as error:
            transaction = self._begin_again(error)
        self.live.add(id(transaction))
        return transaction

    @contextmanager
    def reading(self) -> Iterator["lmdb.Transaction[bytes]"]:
        """Give a read transaction for a short while."""
        transaction = self.begin_read()
        try:
            yield transaction
        finally:
            transaction.abort()
            self.live.discard(id(transaction))

    def _begin_again(self, error: lmdb.Error) -> "lmdb.Transaction[bytes]":
        """Begin after a failure that can be mended: another process grew the map, or left dead readers behind."""
        if self.problem is not None:
            raise self.unavailable() from error
        if isinstance(error, lmdb.MapResizedError):
            self.lmdb.set_mapsize(0)
        elif isinstance(error, lmdb.ReadersFullError):
            self.lmdb.reader_check()
        else:
            raise self.failed(error) from error
        try:
            return self.lmdb.begin(self.databases.data)
        except lmdb.Error as second:
            raise self.failed(second) from second

    def last_transaction_id(self) -> int:
        """Return the id of the latest commit of any process: a cheap way to see whether there is news."""
        with self.reading() as transaction:
            return transaction.id()

    # ---- writing ------------------------------------------------------------------------------------------------------

    def write(self, work: Callable[[WriteTransaction], Result]) -> Result:
        """Carry out `work` in a write transaction, with the work of other threads that wait, and return its result.

        What `work` raises before it wrote anything is raised here, and nothing of it was written.
        """
        if self.problem is not None:
            raise self.unavailable()
        result: Result = self._queue.run(work)
        return result

    def _carry_out(self, batch: list[Ticket[_Work]]) -> None:
        """Do the work of a batch in one transaction. A failure of the file is tried again one by one, to find whose it is."""
        try:
            self._carry_out_together(batch)
        except lmdb.Error as error:
            if len(batch) == 1:
                batch[0].fail(self.failed(error))
                return
            for ticket in batch:
                self._carry_out([ticket])
        else:
            # Why asked before: nobody watches most stores. Who begins to wait is counted before it looks, and so sees this.
            if self.waiting_for_news:
                with self.news:
                    self.news.notify_all()

    def _carry_out_together(self, batch: list[Ticket[_Work]]) -> None:
        while True:
            self.live.add(_WRITING)
            try:
                with self._closing:
                    self._attempt(batch)
            except lmdb.MapFullError:
                # Trap: this ends the snapshots that are open in this process; they say so when they are used again.
                self.lmdb.set_mapsize(self.lmdb.info()["map_size"] * 2)
            except lmdb.MapResizedError:
                self.lmdb.set_mapsize(0)
            else:
                return
            finally:
                self.live.discard(_WRITING)

    def _attempt(self, batch: list[Ticket[_Work]]) -> None:
        self.check_in_place()
        if self.problem is not None:
            raise self.unavailable()
        self._commits_since_look += 1
        if self._commits_since_look >= _READERS_LOOK_COMMITS:
            self._forget_dead_readers()
        transaction = self.lmdb.begin(self.databases.data, write=True)
        try:
            options = self.options
            target = WriteTransaction(transaction, self.databases, options.clock, options.history_revisions_max)
            if target.state.leases_living and self.is_look_due():
                target.expire_leases()
            outcomes = [_outcome(ticket, target) for ticket in batch]
            target.save_state()
        except BaseException:
            transaction.abort()
            raise
        unknown = self._end(transaction, has_changes=target.has_changes)
        for ticket, (result, refused) in zip(batch, outcomes, strict=True):
            error = refused or unknown
            if error is None:
                ticket.finish(result)
            else:
                ticket.fail(error)

    def _forget_dead_readers(self) -> None:
        """Let go of the snapshots of processes that were killed."""
        self._commits_since_look = 0
        self.lmdb.reader_check()

    def _end(self, transaction: "lmdb.Transaction[bytes]", *, has_changes: bool) -> CommitOutcomeUnknownError | None:
        """Commit what there is. Raises lmdb.Error when nothing was written; returns an error when that cannot be told."""
        if not has_changes:
            transaction.abort()
            return None
        number = transaction.id()
        try:
            transaction.commit()
        except lmdb.MapFullError:
            raise
        except lmdb.Error as error:
            if self.lmdb.info()["last_txnid"] < number:
                raise  # the header on disk is the one before: nothing happened
            return CommitOutcomeUnknownError(engine="lmdb", problem=str(error))
        self._file.note(number)
        return None

    @contextmanager
    def awaiting_news(self) -> Iterator[None]:
        """Hold the lock of `news`, and be counted among those that wait for it."""
        with self.news:
            self.waiting_for_news += 1
            try:
                yield
            finally:
                self.waiting_for_news -= 1

    # ---- leases -------------------------------------------------------------------------------------------------------

    def is_look_due(self) -> bool:
        """True when a lease may have run out since the leases were last looked at."""
        return self.options.clock.monotonic() >= self.look_at

    def look_again_in(self, seconds: float) -> None:
        """See to it that the leases are looked at within `seconds`."""
        self.look_at = min(self.look_at, self.options.clock.monotonic() + seconds)

    def living_lease(self, lease: int) -> LeaseRecord:
        """Return a lease whose time is not over. Raises LeaseNotFoundError."""
        with self.reading() as transaction:
            return LeaseRecord.living(lease, transaction, self.databases, self.options.clock)

    def look_at_leases(self) -> None:
        """Delete the entries of leases that are over, whoever granted them, and note when the next one will be."""
        clock = self.options.clock
        wait_seconds = _LEASE_LOOK_SECONDS_MAX
        self.check_in_place()
        with self.reading() as transaction:
            if State.unpack(transaction.get(STATE_KEY, db=self.databases.meta)).leases_living:
                for raw in transaction.cursor(self.databases.leases).iternext(keys=False, values=True):
                    record = LeaseRecord.unpack(raw)
                    has_moved = record.epoch != clock.epoch()
                    wait_seconds = min(wait_seconds, 0.0 if has_moved else record.seconds_left(clock))
        if wait_seconds <= 0:
            # Why: reading must go on where writing fails, on a full disk for one; the lease is looked at again.
            with suppress(EngineError):
                if not self.options.is_readonly:
                    self.write(WriteTransaction.expire_leases)
            wait_seconds = _LEASE_LOOK_SECONDS_MAX if self.options.is_readonly else 0.0
        self.look_at = clock.monotonic() + wait_seconds

    # ---- whose file it is ---------------------------------------------------------------------------------------------

    def check_in_place(self) -> None:
        """Note as the problem that another file stands at the path. Why: nobody would find what is written into this one."""
        if self.problem is None and self._file.is_replaced():
            self.problem = _REPLACED
            with self.news:
                self.news.notify_all()

    # ---- opening and closing ------------------------------------------------------------------------------------------

    def _open_databases(self) -> Databases:
        has_history = self.options.has_history
        stored = self._stored_format()
        expected = FORMAT_HISTORY if has_history else FORMAT_RAW
        if stored is None and not self.options.is_readonly:
            self._create_databases(expected)
        elif stored != expected:
            raise refusal(self.path, _format_problem(stored, has_history=has_history))
        data, meta = self.lmdb.open_db(b"data", create=False), self.lmdb.open_db(b"meta", create=False)
        if not has_history:
            return Databases(data, meta, data, data, data)
        return Databases(
            data,
            meta,
            self.lmdb.open_db(b"log", create=False),
            self.lmdb.open_db(b"leases", create=False),
            self.lmdb.open_db(b"lease_keys", create=False, dupsort=True),
        )

    def _stored_format(self) -> bytes | None:
        """Return what the file says it is: None when it is empty. Raises EngineOpenError for a file of another program."""
        with self.lmdb.begin() as transaction:
            if transaction.stat()["entries"] == 0:
                return None
            if transaction.get(b"meta") is None:
                raise refusal(self.path, "the LMDB file was made by another program")
        try:
            meta = self.lmdb.open_db(b"meta", create=False)
        except lmdb.Error as error:
            raise refusal(self.path, "the LMDB file was made by another program") from error
        with self.lmdb.begin(meta) as transaction:
            return transaction.get(FORMAT_KEY, b"")

    def _create_databases(self, expected: bytes) -> None:
        """Make the databases of an empty file: all or none, and harmless when another process does it at the same time."""
        with self.lmdb.begin(write=True) as transaction:
            meta = self.lmdb.open_db(b"meta", txn=transaction)
            self.lmdb.open_db(b"data", txn=transaction)
            if self.options.has_history:
                self.lmdb.open_db(b"log", txn=transaction)
                self.lmdb.open_db(b"leases", txn=transaction)
                self.lmdb.open_db(b"lease_keys", txn=transaction, dupsort=True)
            transaction.put(FORMAT_KEY, expected, overwrite=False, db=meta)
            lineage = msgspec.json.encode(LineageRecord.drawn(self._file.identity))
            transaction.put(LINEAGE_KEY, lineage, overwrite=False, db=meta)
            stored = transaction.get(FORMAT_KEY, db=meta)
        if stored != expected:
            raise refusal(self.path, _format_problem(stored, has_history=self.options.has_history))

    def close(self, problem: str) -> None:
        """Close the files, and say to whoever still uses them that this was done."""
        self.problem = problem
        with self._closing:  # after the batch that is under way; later ones find the problem
            self._close_files()
        with self.news:
            self.news.notify_all()

    def _close_files(self) -> None:
        self.lmdb.close()
        self._file.close()

    def abandon(self) -> None:
        """Give up the parent's environment in a forked child. Trap: the parent's locks may be held here for ever."""
        self.problem = "it was opened before this process was forked; open the store again here"
        self.news = Condition()
        # Trap: closing ends this copy of the parent's transactions, and with it the parent's own slots and locks. Where
        # one lasted, the files stay open, and LMDB then refuses to open them again in this process.
        if not self.live:
            self.lmdb.close()

    def unavailable(self) -> EngineUnavailableError:
        """Return the error for an environment that has ended."""
        return EngineUnavailableError(engine="lmdb", problem=self.problem)

    def failed(self, error: lmdb.Error) -> EngineError:
        """Return the error for a failure of the file; nothing was written."""
        if self.problem is not None:
            return self.unavailable()
        # Why: LMDB calls a write that the disk had no room for an input/output error.
        hint = (
            "; the disk may be full" if code_of(error) in (errno.EIO, errno.ENOSPC, errno.EFBIG, errno.EDQUOT) else ""
        )
        return EngineError(engine="lmdb", problem=f"{error}{hint}")


def _outcome_unknown(_: _Work, problem: str) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(engine="lmdb", problem=problem)


def _outcome(ticket: Ticket[_Work], target: WriteTransaction) -> tuple[object, KeyplanError | None]:
    """Do one piece of work. Return its result, or why it was refused: it has written nothing then."""
    try:
        return ticket.work(target), None
    except KeyplanError as refused:
        return None, refused


def _format_problem(stored: bytes | None, *, has_history: bool) -> str:
    if stored is None:
        return "there is no store here"
    if stored == FORMAT_RAW and has_history:
        return "it was made with history=off and has no revisions; open it with ?history=off"
    if stored == FORMAT_HISTORY:
        return "it was made with revisions; open it without history=off"
    return f"its format is {stored.decode(errors='replace')!r}; this keyplan reads format 1"
