"""A migration that rests: paused and resumed by anybody, from any machine, by an entry beside its state.

A run looks for the entry between two batches, at most once a second, and ends there as it does when it is told to stop.
"""

from typing import Final

from keyplan.engine import SYSTEM_CLOCK, Clock, Commit, Delete, Engine, Put, utc_time
from keyplan.errors import MigrationRefusedError, StoppedError
from keyplan.jobs import Stop, StopCheck, as_read, this_process
from keyplan.maintenance.migration.marks import MigrationPause, decoded, encoded, pause_key, seen_state

__all__ = ["PauseCheck", "pause_migration", "pause_of", "resume_migration"]

_LOOK_SECONDS: Final = 1.0
"""Why: who pauses a migration waits no longer than this and a batch; a look is one read."""


def pause_of(engine: Engine, migration: bytes) -> MigrationPause | None:
    """Return who paused a migration; None when it is not paused. Raises CorruptionError."""
    with engine.snapshot() as snapshot:
        entry = snapshot.get(pause_key(migration))
    found: MigrationPause | None = None if entry is None else decoded(entry)
    return found


def pause_migration(engine: Engine, migration: bytes, *, clock: Clock = SYSTEM_CLOCK) -> None:
    """Let the migration of a plan's id rest: runs of it end within a second and a batch, and none begins until it is resumed.

    Nothing is lost of its place. Raises MigrationRefusedError when it is not under way, CommitConflictError when a run wrote at
    this moment, EngineError, CommitOutcomeUnknownError.
    """
    with engine.snapshot() as snapshot:
        state = seen_state(snapshot, migration).record
        before = snapshot.get(pause_key(migration))
        epoch = snapshot.epoch
    if state is None or state.is_cleaned:
        raise MigrationRefusedError(obstacles=("it is not under way, so there is nothing to pause",))
    if before is None:
        pause = MigrationPause(this_process(), utc_time(clock.wall()))
        put = Put(pause_key(migration), encoded(pause))
        engine.commit(Commit((as_read(put.key, None),), (put,), epoch))


def resume_migration(engine: Engine, migration: bytes) -> bool:
    """Let a paused migration go on: the next run of it does. Return whether it was paused. Raises as `pause_migration`."""
    with engine.snapshot() as snapshot:
        entry = snapshot.get(pause_key(migration))
        epoch = snapshot.epoch
    if entry is not None:
        engine.commit(Commit((as_read(entry.key, entry),), (Delete(entry.key),), epoch))
    return entry is not None


class PauseCheck(StopCheck):
    """Looks whether a run was told to stop, and whether its migration is paused."""

    def __init__(
        self, engine: Engine, migration: bytes, stop: Stop | None, act: str, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(stop, act)
        self._engine, self._migration, self._clock = engine, migration, clock
        self._looked_at: float | None = None
        self._pause: MigrationPause | None = None

    def is_set(self) -> bool:
        """Tell whether to end."""
        return super().is_set() or self._is_paused()

    def check(self) -> None:
        """Raise StoppedError when the run is to end, or the migration to rest."""
        if self._is_paused():
            assert self._pause is not None
            problem = f"{self._act} was paused at {self._pause.paused_at} by {self._pause.by}"
            raise StoppedError(problem=problem, remedy="`keyplan migrate resume` goes on with it")
        super().check()

    def _is_paused(self) -> bool:
        now = self._clock.monotonic()
        if self._pause is None and (self._looked_at is None or now - self._looked_at >= _LOOK_SECONDS):
            self._looked_at = now
            self._pause = pause_of(self._engine, self._migration)
        return self._pause is not None
