"""Group commit: work of several threads in one write transaction, so that they share its lock and its flush.

The first thread to come leads: it carries out its own work and what arrived meanwhile. The others wait for their answer.
"""

from _thread import LockType
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

import msgspec

from keyplan.errors import CommitOutcomeUnknownError

__all__ = ["CommitQueue", "Ticket"]

Work = TypeVar("Work")


def _held() -> LockType:
    lock = Lock()
    lock.acquire()
    return lock


class Ticket(msgspec.Struct, Generic[Work]):
    """One thread's work in the queue. Invariant: `answered` is held until there is a result, an error, or the lead."""

    work: Work
    result: Any = None
    error: BaseException | None = None
    is_done: bool = False
    answered: LockType = msgspec.field(default_factory=_held)

    def finish(self, result: object) -> None:
        """Leave the result for the thread that waits. It is told once its batch is committed."""
        self.result = result
        self.is_done = True

    def fail(self, error: BaseException) -> None:
        """Leave an error for the thread that waits."""
        self.error = error
        self.is_done = True


class CommitQueue(Generic[Work]):
    """Hands batches of work to `carry_out`, one batch at a time; that function finishes or fails each ticket.

    `outcome_unknown` makes the error of a work whose leader was interrupted; `batch_max` bounds a batch.
    """

    def __init__(
        self,
        carry_out: Callable[[list[Ticket[Work]]], None],
        *,
        outcome_unknown: Callable[[Work, str], CommitOutcomeUnknownError],
        batch_max: int | None = None,
    ) -> None:
        self._carry_out = carry_out
        self._outcome_unknown = outcome_unknown
        self._batch_max = batch_max
        self._mutex = Lock()
        self._waiting: list[Ticket[Work]] = []
        self._has_leader = False

    def run(self, work: Work) -> Any:
        """Carry out `work`, alone or with others, and return its result once it is committed; or raise its error."""
        ticket = Ticket(work)
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
        if not ticket.is_done:
            self._lead()
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def _lead(self) -> None:
        """Carry out what waits, then pass the lead to the next thread that came meanwhile."""
        with self._mutex:
            batch = self._waiting[: self._batch_max]
            del self._waiting[: self._batch_max]
        try:
            self._carry_out(batch)
        finally:
            for ticket in batch:
                if not ticket.is_done:
                    # Why: whoever interrupts the leader means its thread alone, and may have come just after the commit.
                    ticket.fail(self._outcome_unknown(ticket.work, "the thread that committed was interrupted"))
                ticket.answered.release()
            with self._mutex:
                self._has_leader = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].answered.release()

    def _withdraw(self, ticket: Ticket[Work]) -> None:
        """Take the work of an interrupted thread out of the queue, and pass on the lead if it was just given to it."""
        with self._mutex:
            if ticket not in self._waiting:
                return  # it is being carried out: whether it was, the interrupted thread will not know
            self._waiting.remove(ticket)
            was_given_lead = ticket.answered.acquire(blocking=False)
        if was_given_lead:
            self._lead()
