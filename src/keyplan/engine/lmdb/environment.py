"""The open files of one store: transactions, map growth, leases that run out, news. One a process and path: `sharing`."""

import errno
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Condition, Lock
from typing import Any, Final, TypeVar

import lmdb

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.group_commit import CommitQueue, Ticket
from keyplan.engine.lineage import Lineage
from keyplan.engine.lmdb.files import (
    code_of,
    create_databases,
    format_problem,
    open_databases,
    open_files,
    open_turn,
    refusal,
    reopen_files,
    stored_format,
)
from keyplan.engine.lmdb.format import (
    FORMAT_HISTORY,
    FORMAT_RAW,
    STATE_KEY,
    LeaseRecord,
    State,
)
from keyplan.engine.lmdb.identity import StoreFile, claim_lineage
from keyplan.engine.lmdb.options import Durability, LmdbOptions
from keyplan.engine.lmdb.snapshot import Held, unusable
from keyplan.engine.lmdb.write import WriteTransaction
from keyplan.errors import (
    CommitOutcomeUnknownError,
    CorruptionError,
    EngineError,
    EngineUnavailableError,
    KeyplanError,
)

__all__ = ["Environment"]

Result = TypeVar("Result")
_Work = Callable[[WriteTransaction], Any]
"""Something to do in a write transaction. It may refuse by raising a KeyplanError, but only before its first write."""

_LEASE_LOOK_SECONDS_MAX: Final = 1.0
"""Why: a lease that another process granted is noticed at least this often."""
_READERS_LOOK_COMMITS: Final = 256
"""Why: a reader that was killed keeps the pages of its snapshot, and all that are replaced after it, from being used again.
Looking for such readers costs some microseconds for each process that reads."""
_PLACE_LOOK_SECONDS: Final = 0.01
"""Where nothing is flushed, how long a commit trusts that the file is in its place. Why: a look takes a fifth of such a commit,
and what is committed so shortly after the file was replaced is lost like what was committed before."""
_REOPEN_SECONDS_MAX: Final = 1.0
"""Why not the whole limit: whoever reads waits here, for whoever else writes."""
_REPLACED: Final = "another file stands at its path by now: the store was replaced while it was open; open it again"
_WRITING: Final = 0
"""Stands in `live` for the write transaction."""


class Environment:
    """The open files of a store. Invariant: there is one for each real path in a process, as LMDB demands."""

    def __init__(self, path: Path, options: LmdbOptions, *, map_bytes: int) -> None:
        self.path = path
        self.options = options
        self._begins_with = replace(options, map_bytes=map_bytes)
        self.users = 0
        self.problem: str | None = None
        """Why nothing can be done with it any more: it was closed, or this process is a fork of the one that opened it."""
        self.news = Condition()
        """Notified after each commit of this process while somebody waits."""
        self.waiting_for_news = 0
        """How many wait for `news`. Changed under its lock, before whoever waits looks whether there is news already."""
        self.looker: object | None = None
        """Which of those that wait looks for the commits of other processes. Changed under the lock of `news`."""
        self.live: set[int] = set()
        """Ids of the transactions that last. Invariant: none is missing; one whose snapshot was never closed may be left."""
        self.held: Held = {}
        """Fences that were found to hold, by their identity: the transaction that they were read after, and they themselves."""
        self._writing = Lock()
        """Held for each write transaction, each change of the map, and while the files are closed: LMDB bears one at a time."""
        self._is_shut = False
        """True while the files are closed because they are to be opened again. Changed with `_writing`."""
        self._commits_since_look = 0
        """Commits since dead readers were looked for."""
        self.look_at = 0.0 if options.has_history else math.inf
        """When the leases are looked at next, by the monotonic clock: the first may be over then."""
        self._place_look_seconds = _PLACE_LOOK_SECONDS if options.durability is Durability.NONE else 0.0
        self._place_look_at = 0.0
        self._opened_at = SYSTEM_CLOCK.monotonic()
        """Why: to open is one thing to its caller, and waits no longer than one commit, however many turns it takes."""
        self.turn = None if options.is_readonly else open_turn(path, options, check=self._check_open)
        self._queue = CommitQueue[_Work](
            self._carry_out,
            outcome_unknown=_outcome_unknown,
            turn=self.turn,
        )
        try:
            self.lmdb, self.is_locked = open_files(path, self._begins_with, self.turn, self._opened_at)
        except BaseException:
            self._close_turn()
            raise
        self._file = StoreFile(path, is_readonly=options.is_readonly)
        try:
            if self.is_locked:
                self.lmdb.reader_check()  # readers that were killed would keep old pages from being used again
            self._open()
            if options.has_history:
                self._read_leases()  # the files are in their place: they were opened just now
        except BaseException as error:
            self._close_files()
            failure = error.__cause__ if type(error) is EngineUnavailableError else error
            if isinstance(failure, lmdb.Error):
                raise refusal(path, str(failure)) from error
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
        """Give a read transaction for a short while. Raises EngineUnavailableError when it ends under its reader."""
        transaction = self.begin_read()
        try:
            yield transaction
        except lmdb.Error as error:
            raise unusable(error) from error
        finally:
            transaction.abort()
            self.live.discard(id(transaction))

    def _begin_again(self, error: lmdb.Error) -> "lmdb.Transaction[bytes]":
        """Begin after a failure that can be mended: a map that another process or thread made larger, or dead readers."""
        if self.problem is not None:
            raise self.unavailable() from error
        if isinstance(error, lmdb.PanicError) or self._is_shut:
            # Why by a write: whoever writes opens the files again first, one thread at a time and with the turn.
            # Why suppressed: then it shared a transaction with work of others. Whether the files are open is seen below.
            with suppress(CommitOutcomeUnknownError):
                self.write(_do_nothing, seconds=_REOPEN_SECONDS_MAX)
        # Why the lock: while another thread changes the map, nobody can begin; and two may not change it at once.
        with self._writing:
            try:
                return self.lmdb.begin(self.databases.data)
            except lmdb.MapResizedError:
                self.lmdb.set_mapsize(0)
            except lmdb.ReadersFullError:
                self.lmdb.reader_check()
            except lmdb.Error as second:
                raise self.failed(second) from second
            try:
                return self.lmdb.begin(self.databases.data)
            except lmdb.Error as third:
                raise self.failed(third) from third

    def is_latest(self, transaction_id: int) -> bool:
        """Tell whether a commit is the latest of any process: a cheap way to see that there is no news. False if that fails.

        Invariant: nothing is mended and no lock is taken here. Who asks has the lock of `news`; who mends takes that one last.
        """
        try:
            transaction = self.lmdb.begin(self.databases.data)
        except lmdb.Error:
            return False
        self.live.add(id(transaction))
        try:
            return transaction.id() == transaction_id
        except lmdb.Error:
            return False
        finally:
            transaction.abort()
            self.live.discard(id(transaction))

    # ---- writing ------------------------------------------------------------------------------------------------------

    def write(self, work: Callable[[WriteTransaction], Result], *, seconds: float | None = None) -> Result:
        """Carry out `work` in a write transaction, with the work of other threads that wait, and return its result.

        `seconds` is how long it waits for the turn, where that is less than for other work.

        What `work` raises before it wrote anything is raised here, and nothing of it was written.
        """
        if self.problem is not None:
            raise self.unavailable()
        waits_since = None
        if seconds is not None:
            waits_since = SYSTEM_CLOCK.monotonic() - max(self.options.turn_seconds - seconds, 0.0)
        result: Result = self._queue.run(work, waits_since=waits_since)
        return result

    def _carry_out(self, batch: list[Ticket[_Work]]) -> None:
        """Do the work of a batch in one transaction. A failure is tried again one by one, to find whose it is."""
        try:
            self._attempt(batch)
        except (lmdb.MapFullError, lmdb.MapResizedError) as error:
            self._enlarge_map(error)
            self._carry_out(batch)
        except KeyplanError as error:
            for ticket in batch:
                ticket.fail(_told_again(error))
        except lmdb.PanicError:
            self._open_again()
            self._carry_out(batch)
        except Exception as error:
            if self._queue.under_way:
                raise
            if len(batch) == 1:
                batch[0].fail(self.failed(error) if isinstance(error, lmdb.Error) else error)
                return
            for ticket in batch:
                self._carry_out([ticket])
            if not isinstance(error, lmdb.Error) and not any(isinstance(one.error, type(error)) for one in batch):
                raise  # it did not come again: it was no work's, but meant for this thread
        else:
            # Why asked before: nobody watches most stores. Who begins to wait is counted before it looks, and so sees this.
            if self.waiting_for_news:
                with self.news:
                    self.news.notify_all()

    def _enlarge_map(self, error: lmdb.Error) -> None:
        """Make the map larger, or as large as another process made it.

        Trap: this ends the snapshots that are open in this process; they say so when they are used again.
        """
        with self._writing:
            self._check_open()
            is_full = isinstance(error, lmdb.MapFullError)
            self.lmdb.set_mapsize(self.lmdb.info()["map_size"] * 2 if is_full else 0)

    def _open_again(self) -> None:
        """Open the files anew. Call it with the turn.

        Why: where LMDB could not write its header, once, on a disk that was full for a moment, it refuses everything from then
        on. Trap: this ends the snapshots that are open in this process; they say so when they are used again.
        """
        with self._writing:
            self.check_in_place()
            self._check_open()
            self._is_shut = True
            self.lmdb.close()
            self.held = {}  # Why here: a number may come again, and no transaction lasts that could still note its own.
            opened, self.is_locked = reopen_files(self.path, self._begins_with)
            try:
                self.check_in_place()  # Why again: now it is known of the file that was opened.
                self._check_open()
                databases = open_databases(opened, has_history=self.options.has_history)
            except BaseException as error:
                # Trap: LMDB opens a file once a process, and who was interrupted here comes again.
                opened.close()
                if isinstance(error, lmdb.Error):
                    raise refusal(self.path, str(error)) from error
                raise
            # Invariant: in this order. A reader that finds the old files with the new databases is refused, and asks again.
            self.databases, self.lmdb, self._is_shut = databases, opened, False

    def _is_undone(self, number: int) -> bool:
        """True when it is certain that a commit that failed left nothing. Call it with the turn.

        Where LMDB could not write its header, nobody knows what the header says after a crash of the machine.
        """
        # Why by a write: it needs no place among the readers, all of which may be taken. Why the lock: as for every write.
        with self._writing:
            try:
                with self.lmdb.begin(write=True) as following:
                    return following.id() <= number
            except lmdb.Error:
                return False

    def _attempt(self, batch: list[Ticket[_Work]]) -> None:
        """Carry out the batch in one transaction. Raises lmdb.Error when nothing was written."""
        if self._is_shut:
            raise lmdb.PanicError("the files could not be opened again")
        now = SYSTEM_CLOCK.monotonic()
        if now >= self._place_look_at:
            self.check_in_place()
            self._place_look_at = now + self._place_look_seconds
        self._commits_since_look += 1
        if self._commits_since_look >= _READERS_LOOK_COMMITS:
            self._look_around()
        options, queue, live = self.options, self._queue, self.live
        unknown: CommitOutcomeUnknownError | None = None
        number, look_seconds = 0, 0.0
        live.add(_WRITING)
        try:
            # Why `with`: the interpreter lets no exception come between its steps, and a transaction that nobody ended would
            # keep all writers waiting.
            with self._writing:
                if self.problem is not None:
                    raise self.unavailable()
                with self.lmdb.begin(self.databases.data, write=True) as transaction:
                    target = WriteTransaction(transaction, self.databases, options.clock, options.history_revisions_max)
                    if target.state.leases_living and options.clock.monotonic() >= self.look_at:
                        look_seconds = min(target.expire_leases(), _LEASE_LOOK_SECONDS_MAX)
                    for ticket in batch:
                        ticket.error = None
                        try:
                            ticket.result = ticket.work(target)
                        except KeyplanError as refused:  # it has written nothing then
                            ticket.error = refused
                    target.save_state()
                    number = transaction.id()
                    has_changes = target.has_changes
                    queue.under_way = batch
                if has_changes:
                    self._file.note(number)
        except lmdb.Error as error:
            if not queue.under_way or isinstance(error, lmdb.MapFullError) or self._is_undone(number):
                queue.under_way = ()
                raise
            unknown = CommitOutcomeUnknownError(engine="lmdb", problem=str(error))
        finally:
            live.discard(_WRITING)
        if look_seconds:
            self.look_at = options.clock.monotonic() + look_seconds
        for ticket in batch:
            ticket.error = ticket.error or unknown
            ticket.is_done = True
        queue.under_way = ()  # what comes next in the same turn has made nothing lasting yet

    def _look_around(self) -> None:
        """Let go of the snapshots of processes that were killed, and see whether this process is the only one that writes."""
        self._commits_since_look = 0
        self.lmdb.reader_check()
        if self.turn is not None:
            self.turn.look_around()

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
        self.check_in_place()
        self._read_leases()

    def _read_leases(self) -> None:
        clock = self.options.clock
        wait_seconds = _LEASE_LOOK_SECONDS_MAX
        transaction = self.begin_read()
        try:
            if State.unpack(transaction.get(STATE_KEY, db=self.databases.meta)).leases_living:
                for raw in transaction.cursor(self.databases.leases).iternext(keys=False, values=True):
                    record = LeaseRecord.unpack(raw)
                    has_moved = record.epoch != clock.epoch()
                    wait_seconds = min(wait_seconds, 0.0 if has_moved else record.seconds_left(clock))
        finally:
            transaction.abort()
            self.live.discard(id(transaction))
        if wait_seconds <= 0:
            # Why: reading must go on where writing fails, on a full disk for one; the lease is looked at again.
            with suppress(EngineError):
                if not self.options.is_readonly:
                    # Why not for the whole limit: whoever reads waits here, beside a writer that was stopped at every read.
                    self.write(WriteTransaction.expire_leases, seconds=_LEASE_LOOK_SECONDS_MAX)
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

    def _open(self) -> None:
        """Find the databases, and which store it is; again when the map turns out to be too small meanwhile."""
        while True:
            try:
                self._open_databases(stored_format(self.lmdb, self.path))
            except (lmdb.MapFullError, lmdb.MapResizedError) as error:
                self._enlarge_map(error)
            else:
                return

    def _open_databases(self, stored: bytes | None) -> None:
        """Find the databases, and which store it is, in one turn."""
        has_history = self.options.has_history
        expected = FORMAT_HISTORY if has_history else FORMAT_RAW
        try:
            # Trap: LMDB opens a database in a transaction that writes, wherever it may write.
            if self.turn is not None:
                self.turn.take(self._opened_at)
                if stored is None:  # a file without databases, of another program: `files` makes ours with all of them
                    stored = create_databases(self.lmdb, expected, identity=self._file.identity)
            if stored != expected:
                raise refusal(self.path, format_problem(stored, has_history=has_history))
            self.databases = open_databases(self.lmdb, has_history=has_history)
            is_readonly = self.options.is_readonly
            self.lineage: Lineage = claim_lineage(self.lmdb, self.databases, self._file, is_readonly=is_readonly)
        except CorruptionError as error:
            problem = f"{error.facts['problem']}: `keyplan backup` reads the rest, restore that into a new store"
            raise refusal(self.path, problem) from error
        finally:
            if self.turn is not None:
                self.turn.give_back()

    def close(self, problem: str) -> None:
        """Close the files, and say to whoever still uses them that this was done."""
        self.problem = problem
        self._queue.close()
        self._close_files()
        with self.news:
            self.news.notify_all()

    def _close_files(self) -> None:
        with self._writing:  # after the batch that is under way; later ones find the problem
            self.lmdb.close()
        self._file.close()
        self._close_turn()

    def _close_turn(self) -> None:
        if self.turn is not None:
            self.turn.close()

    def abandon(self) -> None:
        """Give up the parent's environment in a forked child. Trap: the parent's locks may be held here for ever."""
        self.problem = "it was opened before this process was forked; open the store again here"
        self.news = Condition()
        self.looker = None
        # Why: the locks of the turn are the parent's alone; closing the child's copy of the file leaves them as they are.
        self._close_turn()
        self._file.close()
        # Trap: closing ends this copy of the parent's transactions, and with it the parent's own slots and locks. Where
        # one lasted, the files stay open, and LMDB then refuses to open them again in this process.
        if not self.live:
            self.lmdb.close()

    def _check_open(self) -> None:
        if self.problem is not None:
            raise self.unavailable()

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


def _do_nothing(_: WriteTransaction) -> None:
    """Be carried out."""


def _told_again(error: KeyplanError) -> KeyplanError:
    """Return the error for one of several threads. Why not the same: each raises its own."""
    told = type(error)(**error.facts)
    told.__cause__ = error
    return told


def _outcome_unknown(_: _Work, problem: str) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(engine="lmdb", problem=problem)
