"""Commits that lost a race, made again: how often, how long apart, and what is never made again.

The one retry of commits. What waits for a server that cannot be reached is another matter: it waits for a time, not for a turn.
"""

import secrets
import threading
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from keyplan.errors import CommitConflictError, EngineUnavailableError, LeaseNotFoundError
from keyplan.limits import COMMIT_RETRIES_MAX, RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX

__all__ = ["Backoff", "SystemPause", "ended_lease_is_conflict", "until_put"]

R = TypeVar("R")


class SystemPause:
    """How a Backoff waits that was given no `sleep`. Whoever controls all time, as a test does, replaces `wait` here."""

    @staticmethod
    def wait(seconds: float) -> None:
        """Wait so long."""
        # Why: waiting for what never comes is a sleep that no test can forget to replace: it is handed in.
        threading.Event().wait(seconds)


def _pause(seconds: float) -> None:
    SystemPause.wait(seconds)


def _any(_conflict: CommitConflictError) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from RETRY_SECONDS_FIRST to RETRY_SECONDS_MAX, each shortened by chance to between half and whole.

    `sleep` takes seconds; `chance` gives numbers from 0 to 1. Both are handed in by tests.
    """

    sleep: Callable[[float], None] = _pause
    chance: Callable[[], float] = secrets.SystemRandom().random

    def until_committed(self, attempt: Callable[[], R], *, is_lost: Callable[[CommitConflictError], bool] = _any) -> R:
        """Call `attempt` until it loses no race, at most COMMIT_RETRIES_MAX times more; then raise its last conflict.

        `attempt` reads anew each time: what it read before was overtaken. A CommitConflictError alone is a lost race, for it
        says that nothing was written; `is_lost` tells those apart that another try cannot win, which are raised at once.
        Everything else that `attempt` raises ends it at once too, CommitOutcomeUnknownError above all: what may have been
        written is not written again here. Who can prove by guards that it does no harm catches it inside `attempt`.
        """
        for lost in range(COMMIT_RETRIES_MAX):
            try:
                return attempt()
            except CommitConflictError as conflict:
                if not is_lost(conflict):
                    raise
                self.sleep(min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * 2**lost) * (0.5 + self.chance() / 2))
        return attempt()


@contextmanager
def ended_lease_is_conflict() -> Generator[None, None, None]:
    """Within, a lease that is gone is a lost race: it ended after its record was read, and the record with it.

    For commits that write records again with the leases that they were read with. A lease that a caller names is his to mend.
    """
    try:
        yield
    except LeaseNotFoundError as error:
        raise CommitConflictError(failed=()) from error


def until_put(engine: str, attempt: Callable[[], int], guards: Collection[object]) -> int:
    """Return what `attempt` returns, made again while other writers come between; `guards` are those of its caller.

    Raises CommitConflictError when one of them fails; EngineUnavailableError with the engine's name after too many tries.
    """

    def is_lost(conflict: CommitConflictError) -> bool:
        failed = conflict.facts["failed"]
        assert isinstance(failed, tuple)
        return not any(failure.guard in guards for failure in failed)

    try:
        return Backoff().until_committed(attempt, is_lost=is_lost)
    except CommitConflictError as conflict:
        if not is_lost(conflict):
            raise
        problem = "other writers came between again and again"
        raise EngineUnavailableError(engine=engine, problem=problem) from conflict
