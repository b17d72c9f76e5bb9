"""Faults on purpose: a clock that tests move, and an engine that fails at a chosen step."""

from collections.abc import Iterable, Iterator

from keyplan.engine import (
    NO_LEASE,
    Commit,
    Engine,
    Entry,
    KeyRange,
    Lease,
    Snapshot,
    WrappedEngine,
    WrappedSnapshot,
)
from keyplan.errors import CommitOutcomeUnknownError, EngineUnavailableError

__all__ = ["FailingEngine", "FakeClock"]


class FakeClock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self._monotonic = 1_000.0
        self._wall = 1_700_000_000.0
        self._runs = 1

    def monotonic(self) -> float:
        """Return seconds that only `advance` adds to."""
        return self._monotonic

    def wall(self) -> float:
        """Return seconds since 1970, as far as the test says."""
        return self._wall

    def epoch(self) -> bytes:
        """Return the name of this run of the pretended machine."""
        return b"fake %d" % self._runs

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._monotonic += seconds
        self._wall += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or, with a negative number, back: an administrator or a time server did."""
        self._wall += seconds

    def restart_machine(self, *, off_seconds: float) -> None:
        """Switch the machine off for a while: the monotonic clock begins again, the wall clock went on."""
        self._monotonic = 5.0
        self._wall += off_seconds
        self._runs += 1


class FailingEngine(WrappedEngine):
    """An engine that counts its steps and fails at the one it is told: 0 for none.

    A step is a snapshot taken, a get, a scan or count begun, a lease, a load, a compaction: these fail before anything is
    done, with EngineUnavailableError. A commit is two steps: "before commit" fails like the others; "after commit" is
    carried out and then raises CommitOutcomeUnknownError. To stop a piece of work at every step, run it once without a
    failure and then once for each of `len(steps)`.
    """

    def __init__(self, inner: Engine, *, at_step: int = 0, closes_inner: bool = True) -> None:
        super().__init__(inner, closes_inner=closes_inner)
        self.at_step = at_step
        self.steps: list[str] = []

    def is_failing(self, name: str) -> bool:
        """Count a step; True when it is the one that fails."""
        self.steps.append(name)
        return len(self.steps) == self.at_step

    def step(self, name: str) -> None:
        """Count a step, and raise when it is the one that fails."""
        if self.is_failing(name):
            raise EngineUnavailableError(engine=self.profile.name, problem=f"failed on purpose: {name}")

    def snapshot(self) -> Snapshot:
        self.step("snapshot")
        return _FailingSnapshot(self.inner.snapshot(), self)

    def commit(self, commit: Commit) -> int:
        self.step("before commit")
        revision = self.inner.commit(commit)
        if self.is_failing("after commit"):
            raise CommitOutcomeUnknownError(engine=self.profile.name, mutations=len(commit.mutations))
        return revision

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        self.step("lease")
        return self.inner.lease(ttl_seconds, resume=resume)

    def compact(self, revision: int) -> None:
        self.step("compact")
        self.inner.compact(revision)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        self.step("load")
        return self.inner.load(entries)


class _FailingSnapshot(WrappedSnapshot):
    def __init__(self, inner: Snapshot, engine: FailingEngine) -> None:
        super().__init__(inner)
        self._engine = engine

    def get(self, key: bytes) -> Entry | None:
        self._engine.step("get")
        return self.inner.get(key)

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        self._engine.step("scan")
        return self.inner.scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only)

    def count(self, key_range: KeyRange) -> int:
        self._engine.step("count")
        return self.inner.count(key_range)
