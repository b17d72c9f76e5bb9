"""The writes of a store: each is one commit, retried when it lost a race that the caller did not ask about."""

from collections.abc import Callable
from typing import TypeVar

from keyplan.engine import Backoff, Commit, Engine
from keyplan.errors import CommitConflictError, EngineLimitError
from keyplan.layout import BoundCounter, BoundTable, ExpectedRevision
from keyplan.store.explanation import explain_limit
from keyplan.store.plan import RecordState, Write, plan_insertion, plan_writes
from keyplan.store.session import Session

__all__ = ["CommitWriter"]


R = TypeVar("R")


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
