"""Trying again after a lost race: how often, and how long to wait in between."""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from keyplan.errors import CommitConflictError
from keyplan.limits import COMMIT_RETRIES_MAX, RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX

__all__ = ["Backoff", "SystemPause"]

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


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from RETRY_SECONDS_FIRST to RETRY_SECONDS_MAX, each shortened by chance to between half and whole.

    `sleep` takes seconds; `chance` gives numbers from 0 to 1. Both are handed in by tests.
    """

    sleep: Callable[[float], None] = _pause
    chance: Callable[[], float] = secrets.SystemRandom().random

    def until_committed(self, attempt: Callable[[], R]) -> R:
        """Call `attempt` until it loses no race, at most COMMIT_RETRIES_MAX times more; then raise its CommitConflictError.

        Everything else that `attempt` raises ends it at once, CommitOutcomeUnknownError above all.
        """
        for lost in range(COMMIT_RETRIES_MAX):
            try:
                return attempt()
            except CommitConflictError:
                self.sleep(min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * 2**lost) * (0.5 + self.chance() / 2))
        return attempt()
