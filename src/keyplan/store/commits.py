"""The writes of a store: each is one commit, retried when it lost a race that the caller did not ask about.

How often, and how long to wait in between, is a Backoff.
"""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from keyplan.engine import Commit, Engine
from keyplan.errors import CommitConflictError, EngineLimitError
from keyplan.layout import BoundCounter, BoundTable, ExpectedRevision
from keyplan.limits import COMMIT_RETRIES_MAX, RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX
from keyplan.store.explanation import explain_limit
from keyplan.store.plan import RecordState, Write, plan_insertion, plan_writes
from keyplan.store.session import Session

__all__ = ["Backoff", "CommitWriter", "SystemPause"]


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


class CommitWriter:
    """Writes through a session of one operation; an insert goes out at once, without reading."""

    def __init__(self, engine: Engine, backoff: Backoff) -> None:
        self._engine = engine
        self._backoff = backoff

    def insert(self, table: BoundTable, key: object, record: object, *, lease: int) -> int:
        raw_key, raw_value, index_entries, unique = table.encoded_record(key, record)
        new = RecordState(raw_value, lease, index_entries, 0, unique)
        commit = plan_insertion(raw_key, new) or _planned(Write(table, key, raw_key, None, new))
        try:
            return self._engine.commit(commit)
        except EngineLimitError as error:
            write = Write(table, key, raw_key, None, new)
            raise explain_limit(error, commit, self._engine.profile, {raw_key: write}) from error
        except CommitConflictError:
            # Why: the guards say that something is there, not what; a transaction looks, and names the record in the way. Or
            # it finds that an entry left behind is the record's own, and goes through.
            return self._write(lambda session: session.insert(table, key, record, lease=lease))

    def put(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        lease: int,
        damaged_ok: bool,
    ) -> int:
        return self._write(
            lambda session: session.put(
                table, key, record, expected_revision=expected_revision, lease=lease, damaged_ok=damaged_ok
            )
        )

    def update(
        self,
        table: BoundTable,
        key: object,
        record: object,
        *,
        expected_revision: ExpectedRevision | None,
        damaged_ok: bool,
    ) -> int:
        return self._write(
            lambda session: session.update(
                table, key, record, expected_revision=expected_revision, damaged_ok=damaged_ok
            )
        )

    def modify(self, table: BoundTable, key: object, change: Callable[[object], object]) -> int:
        return self._write(lambda session: session.modify(table, key, change))

    def delete(
        self,
        table: BoundTable,
        key: object,
        *,
        expected_revision: ExpectedRevision | None,
        missing_ok: bool,
        damaged_ok: bool,
    ) -> int:
        return self._write(
            lambda session: session.delete(
                table, key, expected_revision=expected_revision, missing_ok=missing_ok, damaged_ok=damaged_ok
            )
        )

    def rename(self, table: BoundTable, key: object, new_key: object) -> int:
        return self._write(lambda session: session.rename(table, key, new_key))

    def move_counter(self, counter: BoundCounter, choose: Callable[[int], int]) -> tuple[int, int]:
        return self._committed(lambda session: session.move_counter(counter, choose))[0]

    def _write(self, write: Callable[[Session], object]) -> int:
        return self._committed(write)[1]

    def _committed(self, write: Callable[[Session], R]) -> tuple[R, int]:
        """Return what `write` returned and the revision of its commit."""
        engine, epoch = self._engine, ""

        def attempt() -> tuple[R, int]:
            nonlocal epoch
            with Session(engine) as session:
                session.known_epoch = epoch
                answer = write(session)
                commit = session.commit()
                if not commit.mutations:
                    return answer, session.revision
                session.end()
                try:
                    return answer, engine.commit(commit)
                except EngineLimitError as error:
                    raise explain_limit(error, commit, engine.profile, session.writes) from error
                except CommitConflictError:
                    epoch = epoch or commit.epoch
                    raise

        return self._backoff.until_committed(attempt)


def _planned(write: Write) -> Commit:
    plan = plan_writes((write,), {})
    # Why no epoch: nothing was read, so that no guard names a revision.
    return Commit(tuple(plan.guards.values()), tuple(plan.mutations.values()), "")
