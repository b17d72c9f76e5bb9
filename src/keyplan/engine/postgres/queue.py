"""Group commit: commits of several threads in one transaction of the server, so that they share its lock and its flush.

The first thread to come leads: it carries out its own commit and those that arrived meanwhile. The others wait for an answer.
"""

from collections.abc import Callable
from threading import Lock
from typing import Final

from keyplan.engine.interface import Commit
from keyplan.engine.postgres.failures import NAME
from keyplan.errors import CommitOutcomeUnknownError

__all__ = ["CommitQueue", "Ticket"]

_BATCH_COMMITS_MAX: Final = 128
"""Why: it bounds how long the first of them waits for the last; more share little more."""


class Ticket:
    """One thread's commit. Invariant: `answered` is held until there is a revision, an error, or the lead."""

    __slots__ = ("answered", "commit", "error", "revision")

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.revision: int | None = None
        self.error: BaseException | None = None
        self.answered = Lock()
        self.answered.acquire()

    @property
    def is_settled(self) -> bool:
        """True once there is a revision or an error."""
        return self.revision is not None or self.error is not None


class CommitQueue:
    """Hands batches of commits to `carry_out`, one batch at a time; that function settles each ticket, and raises nothing."""

    def __init__(self, carry_out: Callable[[list[Ticket]], None]) -> None:
        self._carry_out = carry_out
        self._mutex = Lock()
        self._waiting: list[Ticket] = []
        self._has_leader = False

    def run(self, commit: Commit) -> int:
        """Carry out a commit, alone or with others; return its revision, or raise its error."""
        ticket = Ticket(commit)
        with self._mutex:
            self._waiting.append(ticket)
            is_leader = not self._has_leader
            self._has_leader = True
        if not is_leader:
            try:
                ticket.answered.acquire()
            except BaseException:
                self._withdraw(ticket)
                raise
        if not ticket.is_settled:
            self._lead()
        if ticket.error is not None:
            raise ticket.error
        assert ticket.revision is not None
        return ticket.revision

    def _lead(self) -> None:
        """Carry out what waits, then pass the lead to the next thread that came meanwhile."""
        with self._mutex:
            batch, self._waiting = self._waiting[:_BATCH_COMMITS_MAX], self._waiting[_BATCH_COMMITS_MAX:]
        try:
            self._carry_out(batch)
        finally:
            for ticket in batch:
                if not ticket.is_settled:
                    # Why: whoever interrupts the leader means its thread alone, and may have come just after the commit.
                    ticket.error = CommitOutcomeUnknownError(
                        engine=NAME,
                        mutations=len(ticket.commit.mutations),
                        problem="the thread that committed was interrupted",
                    )
                ticket.answered.release()
            with self._mutex:
                self._has_leader = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].answered.release()

    def _withdraw(self, ticket: Ticket) -> None:
        """Take an interrupted thread's commit out of the queue, and pass on the lead if it was just given to it."""
        with self._mutex:
            if ticket not in self._waiting:
                return  # it is being carried out: whether it was, the interrupted thread will not know
            self._waiting.remove(ticket)
            was_given_lead = ticket.answered.acquire(blocking=False)
        if was_given_lead:
            self._lead()
