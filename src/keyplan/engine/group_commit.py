"""Group commit: work of several threads in one write transaction, so that they share its lock and its flush.

A thread that finds nobody leading leads: it carries out its own work and what else waits. The others wait for their answer.

An exception can come into any thread between any two steps: Ctrl-C, a time limit that works by signals, or another thread that
sets one. So nothing that others depend on is left to a thread's next step. The lead is a plain lock that is held in a `with`,
which alone the interpreter enters and leaves without such an exception in between; what a leader is about to make lasting
stands in the queue, and whoever leads next settles it; and a thread that waits looks itself, from time to time, whether
anybody leads.
"""

from _thread import LockType
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.errors import CommitOutcomeUnknownError, KeyplanError

__all__ = ["CommitQueue", "Ticket", "Turn"]

Work = TypeVar("Work")

_LOOK_SECONDS: Final = 0.25
"""How often a thread that waits looks whether anybody leads. Why: as a rule it is told; not by a leader interrupted twice."""


class Ticket(msgspec.Struct, Generic[Work]):
    """One thread's work in the queue. Invariant: nobody waits at `answered` after `is_done`."""

    work: Work
    result: Any = None
    error: BaseException | None = None
    is_done: bool = False
    is_withdrawn: bool = False
    """True when its thread was interrupted: nobody waits for an answer, and who has not begun it does not begin."""
    waits_since: float | None = None
    """By the monotonic clock; None while its thread has not had to wait for another one."""
    answered: LockType | None = None
    """Held while the thread waits: released with the answer, or when it may lead."""

    def finish(self, result: object) -> None:
        """Leave the result for the thread that waits. It is told once its batch is committed."""
        self.result = result
        self.is_done = True

    def fail(self, error: BaseException) -> None:
        """Leave an error for the thread that waits."""
        self.error = error
        self.is_done = True

    def expect_answer(self) -> None:
        """Have something to wait at. Whoever finishes the ticket from now on calls `wake`."""
        if self.answered is None:
            self.waits_since = SYSTEM_CLOCK.monotonic() if self.waits_since is None else self.waits_since
            held = Lock()
            held.acquire()
            self.answered = held

    def wake(self) -> None:
        """Wake the thread that waits: it has its answer, or may lead."""
        if self.answered is not None and self.answered.locked():
            try:
                self.answered.release()
            except RuntimeError:
                return  # somebody else woke it at this moment


class Turn(Protocol):
    """What a leader must have before it takes a batch, where several processes write."""

    give_back: Callable[[], object]
    """Called at the end of each batch, whatever happened, also where `take` was interrupted or raised.

    Trap: no Python function, which an exception can keep from beginning.
    """

    def take(self, since: float | None = None) -> None:
        """Return with the turn; wait for it since then at most as long as one may. Raises KeyplanError."""
        ...


class _NoTurn:
    def __init__(self) -> None:
        self.give_back: Callable[[], object] = int

    def take(self, since: float | None = None) -> None:
        """Every turn is ours."""


_NO_TURN: Final = _NoTurn()


class CommitQueue(Generic[Work]):
    """Hands batches of work to `carry_out`, one batch at a time; that function finishes or fails each ticket.

    It sets `under_way` to the tickets whose work it is about to make lasting, right before it does, and to nothing again when
    it knows that nothing was written. When it is interrupted by an exception, tickets under way fail by `outcome_unknown`,
    and all others are carried out later, by another thread.

    A batch is taken after the `turn`: work comes together while the leader waits for it, and an interruption leaves all of it
    to the next leader. A turn that does not come is the answer to the leader's own work alone.
    """

    def __init__(
        self,
        carry_out: Callable[[list[Ticket[Work]]], None],
        *,
        outcome_unknown: Callable[[Work, str], CommitOutcomeUnknownError],
        batch_max: int | None = None,
        turn: Turn | None = None,
    ) -> None:
        self._carry_out = carry_out
        self._outcome_unknown = outcome_unknown
        self._batch_max = batch_max
        self._turn: Turn = turn or _NO_TURN
        self._waiting: deque[Ticket[Work]] = deque()
        """In the order in which they came. Only who leads removes any, from the front, and only those that are over."""
        self._lead = Lock()
        self._heir: Ticket[Work] | None = None
        """Whose thread was woken to lead. Why others let it: else it is woken for nothing, and its work waits for long."""
        self.under_way: list[Ticket[Work]] | tuple[()] = ()

    def run(self, work: Work, *, waits_since: float | None = None) -> Any:
        """Carry out `work`, alone or with others, and return its result once it is committed; or raise its error.

        `waits_since`: when its patience began, where that is not now.
        """
        ticket = Ticket(work, waits_since=waits_since)
        lead = self._lead
        has_led = False
        try:
            self._waiting.append(ticket)
            while not ticket.is_done:
                if (lead.locked() or self._heir is not None) and self._must_wait(ticket):
                    self._await(ticket)
                    continue
                has_led = True
                with lead:
                    if not ticket.is_done:  # else another thread led at this very moment
                        self._serve(ticket)
        finally:
            if not ticket.is_done:
                ticket.is_withdrawn = True
            if self._waiting and (has_led or ticket.is_withdrawn):
                self._pass_on()
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def close(self) -> None:
        """Return when nobody leads, and let go of the turn: it may be closed then."""
        with self._lead:
            self._turn = _NO_TURN

    def _await(self, ticket: Ticket[Work]) -> None:
        ticket.expect_answer()
        # Invariant: asked after there is something to wait at. A leader that left before did not see it, and wakes nobody.
        if ticket.answered is not None and not ticket.is_done and self._must_wait(ticket):
            ticket.answered.acquire(timeout=_LOOK_SECONDS)

    def _must_wait(self, ticket: Ticket[Work]) -> bool:
        """True while somebody leads, or another one is about to."""
        heir = self._heir
        return self._lead.locked() or not (heir is None or heir is ticket or heir.is_done or heir.is_withdrawn)

    def _serve(self, own: Ticket[Work]) -> None:
        """Lead: carry out a batch. `own` is the ticket of this thread."""
        if self.under_way:
            self._settle()
        turn, self._heir = self._turn, None
        try:
            turn.take(own.waits_since)
            self._carry_out([own] if len(self._waiting) == 1 else self._batch())
        except KeyplanError as error:
            if self.under_way:
                raise
            own.fail(error)
        finally:
            turn.give_back()
            self._settle()

    def _batch(self) -> list[Ticket[Work]]:
        # Why a copy: other threads append meanwhile.
        return [one for one in list(self._waiting) if not (one.is_done or one.is_withdrawn)][: self._batch_max]

    def _settle(self) -> None:
        """Answer those whose leader was interrupted, and let go of all that are over."""
        for ticket in self.under_way:
            if not ticket.is_done:
                # Why: whoever interrupts the leader means its thread alone, and may have come just after the commit.
                ticket.fail(self._outcome_unknown(ticket.work, "the thread that committed was interrupted"))
        self.under_way = ()
        waiting = self._waiting
        while waiting and ((first := waiting[0]).is_done or first.is_withdrawn):
            waiting.popleft()
            if first.answered is not None:
                first.wake()

    def _pass_on(self) -> None:
        """Wake the first thread that waits, where nobody leads."""
        if not self._lead.locked():
            for ticket in self._batch()[:1]:
                self._heir = ticket
                ticket.wake()
