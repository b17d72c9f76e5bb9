"""Carrying out transactions that write: commits in batches, loads, the ends of leases, compactions.

Each is: BEGIN, the lock, and the statements, in one round trip; and then, knowing what they did, COMMIT. Everything before
COMMIT was sent may be done again. When the connection breaks after that, and only then, the outcome is unknown.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from keyplan.engine.group_commit import CommitQueue, Ticket
from keyplan.engine.interface import Commit, FailedGuard, RangeUnchanged
from keyplan.engine.postgres.failures import NAME, PostgresError, ServerRefusalError
from keyplan.engine.postgres.lineage import Identity
from keyplan.engine.postgres.notifier import CommitNotifier
from keyplan.engine.postgres.pool import Pool
from keyplan.engine.postgres.session import Request, Result, Session
from keyplan.engine.postgres.snapshot import Unread
from keyplan.engine.postgres.statements import BEGIN, COMMIT, ROLLBACK, Statements
from keyplan.engine.postgres.transactions import outcome, request_of
from keyplan.engine.postgres.wire import number
from keyplan.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    EngineError,
    EngineRefusedError,
    InvalidInputError,
    KeyplanError,
    LeaseNotFoundError,
)

__all__ = ["Writer"]

Answer = TypeVar("Answer")

_TRIM_REVISIONS: Final = 1_000
"""Why: the history is trimmed by so many revisions at once, so that one commit in a thousand pays for it."""
_TRIM_ROWS_MAX: Final = 10_000
_BATCH_COMMITS_MAX: Final = 128
"""Why: it bounds how long the first of them waits for the last; more share little more."""


class Writer:
    """All that writes into one store, for one engine."""

    def __init__(
        self,
        pool: Pool,
        statements: Statements,
        *,
        notifier: CommitNotifier,
        unread: Unread,
        identity: Identity,
        history_revisions_max: int,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._notifier = notifier
        self._unread = unread
        self._identity = identity
        self._history_revisions_max = history_revisions_max
        self._queue = CommitQueue[Commit](
            self._carry_out, outcome_unknown=_outcome_unknown, batch_max=_BATCH_COMMITS_MAX
        )
        self._trim_at = 0  # unknown until the first commit

    def commit(self, commit: Commit) -> int:
        """Carry out an admitted commit; see the contract."""
        revision: int = self._queue.run(commit)
        return revision

    # ---- batches of commits ----------------------------------------------------------------------------------------------

    def _carry_out(self, batch: list[Ticket[Commit]]) -> None:
        """Carry out commits in one transaction, in order; each sees those before it."""
        try:
            self.write(partial(self._carry_out_in, batch), mutations=_mutations(batch))
        except EngineRefusedError as error:
            if len(batch) == 1:
                batch[0].fail(error)
                return
            # Why: one of them is what the server refused, and the others shall not suffer for it.
            for ticket in batch:
                self._carry_out([ticket])
        except EngineError as error:
            for ticket in batch:
                ticket.fail(error if len(batch) == 1 else _told_to(ticket, error))

    def _carry_out_in(self, batch: list[Ticket[Commit]], transaction: "Transaction") -> None:
        self._queue.under_way = ()  # an attempt before this one was certainly not carried out
        for ticket in [ticket for ticket in batch if _is_of_before(ticket.work, transaction.leapt)]:
            ticket.fail(_conflict_with_leap(ticket.work, transaction.leapt))
        batch = [ticket for ticket in batch if not _is_of_before(ticket.work, transaction.leapt)]
        if not batch:
            return
        requests = [request_of(ticket.work, self._statements) for ticket in batch]
        results = transaction.begin(*requests)
        settled: list[tuple[Ticket[Commit], int | None, KeyplanError | None]] = []
        for ticket, result in zip(batch, results, strict=True):
            try:
                told = outcome(ticket.work, result.rows(tuple))
            except (CommitConflictError, LeaseNotFoundError) as error:
                settled.append((ticket, None, error))
            else:
                settled.append((ticket, told.revision, None))
                if told.has_changed:
                    transaction.has_written(told.revision)
        # Why only now: until then nothing is lasting, and an interruption of this thread leaves the work to another one.
        self._queue.under_way = batch
        transaction.end()
        for ticket, revision, refusal in settled:
            if refusal is None:
                ticket.finish(revision)
            else:
                ticket.fail(refusal)

    # ---- any transaction that writes -------------------------------------------------------------------------------------

    def write(self, act: "Callable[[Transaction], Answer]", *, mutations: int) -> Answer:
        """Let `act` begin and end a transaction; again while it certainly was not carried out.

        Raises EngineUnavailableError, EngineRefusedError, CommitOutcomeUnknownError (for so many mutations), and what `act`
        raises.
        """
        self._unread.pin()
        written: list[int] = []

        def attempt(session: Session, give_up_at: float) -> Answer:
            written.clear()
            transaction = Transaction(self._statements, session, written, mutations=mutations, give_up_at=give_up_at)
            return act(transaction)

        answer = self._pool.attempt(attempt)
        if written:
            self._identity.note(written[-1])
            self._notifier.tell()
            self._trim(written[-1])
        return answer

    # ---- history ---------------------------------------------------------------------------------------------------------

    def compact(self, revision: int) -> None:
        """Forget the history up to a revision. Raises InvalidInputError for one that is yet to come."""
        if revision <= 0:
            return
        statements = self._statements

        def declare(transaction: Transaction) -> None:
            (told,) = transaction.begin((statements.revision, ()))
            last = told.row()[0]
            if revision > last:
                raise InvalidInputError(source="revision", problem=f"the store is at revision {last}")
            transaction.run((statements.compact, (number(revision),)))
            transaction.must_commit()
            transaction.end()

        self.write(declare, mutations=0)
        while True:
            # Why outside of that transaction: rows that nobody may ask for any more are removed without keeping others waiting.
            (trimmed,) = self._pool.call((statements.trim, (number(revision), number(_TRIM_ROWS_MAX))))
            if not trimmed.touched:
                return

    def _trim(self, revision: int) -> None:
        if not self._trim_at:
            # Why at the next multiple: several processes that write shall not all do it.
            self._trim_at = revision + _TRIM_REVISIONS - revision % _TRIM_REVISIONS
        if revision >= self._trim_at:
            self._trim_at = 0
            # Why suppressed: the commit was carried out, whatever becomes of old history.
            with suppress(EngineError):
                self.compact(revision - self._history_revisions_max)


class Transaction:
    """One transaction that writes, on one connection."""

    def __init__(
        self, statements: Statements, session: Session, written: list[int], *, mutations: int, give_up_at: float
    ) -> None:
        self._statements = statements
        self._session = session
        self._written = written
        self._mutations = mutations
        self._must_commit = False
        self.give_up_at = give_up_at

    @property
    def leapt(self) -> int:
        """The revision that the store's latest leap reached, see `Identity`."""
        return self._session.leapt

    def begin(self, *requests: Request) -> list[Result]:
        """Begin, wait for the lock, carry out statements: one round trip. Everything committed before is seen by them."""
        return self._session.run((BEGIN, ()), (self._statements.lock, ()), *requests, give_up_at=self.give_up_at)[2:]

    def run(self, *requests: Request) -> list[Result]:
        """Carry out more statements."""
        return self._session.run(*requests, give_up_at=self.give_up_at)

    def copy(self, parts: Iterable[bytes]) -> None:
        """Copy new entries into the store."""
        self._session.copy(self._statements.copy, parts, give_up_at=self.give_up_at)

    def has_written(self, revision: int) -> None:
        """Note that a revision was made."""
        self._written.append(revision)
        self._must_commit = True

    def must_commit(self) -> None:
        """Note that something was written that makes no revision."""
        self._must_commit = True

    def end(self) -> None:
        """Commit what was written. Raises CommitOutcomeUnknownError when the answer was lost."""
        if not self._must_commit:
            self._session.send((ROLLBACK, ()))
            return
        try:
            (result,) = self._session.run((COMMIT, ()), give_up_at=self.give_up_at)
        except PostgresError as failure:
            if isinstance(failure, ServerRefusalError) and not failure.leaves_commit_unknown:
                raise
            raise CommitOutcomeUnknownError(engine=NAME, mutations=self._mutations, problem=failure.text) from failure
        if result.done != "COMMIT":
            raise ServerRefusalError("40000", "it rolled the transaction back")
        if self._session.warning:
            # Why: a wait for a replica was given up; whether any other server has the commit, nobody knows.
            raise CommitOutcomeUnknownError(engine=NAME, mutations=self._mutations, problem=self._session.warning)


def _is_of_before(commit: Commit, leapt: int) -> bool:
    """Tell whether a guard says of a range what was read before the store went back: what came since may be older than that."""
    return any(isinstance(guard, RangeUnchanged) and guard.revision < leapt for guard in commit.guards)


def _conflict_with_leap(commit: Commit, leapt: int) -> CommitConflictError:
    ranges = [guard for guard in commit.guards if isinstance(guard, RangeUnchanged) and guard.revision < leapt]
    return CommitConflictError(failed=tuple(FailedGuard(guard, None, leapt) for guard in ranges))


def _mutations(batch: Sequence[Ticket[Commit]]) -> int:
    return sum(len(ticket.work.mutations) for ticket in batch)


def _outcome_unknown(commit: Commit, problem: str) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(engine=NAME, mutations=len(commit.mutations), problem=problem)


def _told_to(ticket: Ticket[Commit], error: EngineError) -> EngineError:
    """Return the error for one of several threads. Why not the same: each raises its own."""
    facts = dict(error.facts)
    if "mutations" in facts:
        facts["mutations"] = len(ticket.work.mutations)
    told = type(error)(**facts)
    told.__cause__ = error
    return told
