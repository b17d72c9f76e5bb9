"""Faults on purpose: a clock that tests move, and an engine that fails at a chosen step."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from keyplan.engine import (
    NO_LEASE,
    Commit,
    Engine,
    Entry,
    Event,
    Fences,
    FencesHolder,
    Guard,
    KeyRange,
    Lease,
    Lineage,
    Profile,
    Snapshot,
    Watch,
    WrappedEngine,
    WrappedSnapshot,
)
from keyplan.errors import CommitOutcomeUnknownError, EngineUnavailableError
from keyplan.testing.contract import controls

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


@controls(Engine)
class FailingEngine(WrappedEngine):
    """An engine that counts its steps and fails at the one it is told: 0 for none.

    A step is every call of the engine, of its snapshots, watches and leases that the engine inside carries out. Each fails
    before anything is done, with EngineUnavailableError. What writes has further steps: "after commit", "after put_sorted" and
    "after load" are carried out and then raise CommitOutcomeUnknownError; "within put_sorted" and "within load" carry out the
    first half, where the contract allows that, and then raise EngineUnavailableError. To stop a piece of work at every step,
    run it once without a failure and then once for each of `len(steps)`.
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
            raise self.failure(name)

    def lose_answer(self, name: str, mutations: int) -> None:
        """Count a step after a write, and raise when it is the one that fails."""
        if self.is_failing(name):
            raise self.lost_answer(mutations)

    def failure(self, name: str) -> BaseException:
        """Return what a step raises that is not carried out, or by half."""
        return EngineUnavailableError(engine=self.profile.name, problem=f"failed on purpose: {name}")

    def lost_answer(self, mutations: int) -> BaseException:
        """Return what a step raises that was carried out, and whose answer is lost."""
        return CommitOutcomeUnknownError(engine=self.profile.name, mutations=mutations)

    @property
    def profile(self) -> Profile:
        return self.inner.profile

    def lineage(self) -> Lineage:
        self.step("lineage")
        return self.inner.lineage()

    def snapshot(self) -> Snapshot:
        self.step("snapshot")
        return _FailingSnapshot(self.inner.snapshot(), self)

    def value(self, key: bytes) -> bytes | None:
        self.step("value")
        return self.inner.value(key)

    def fenced_reader(
        self, prefix: bytes, holder: FencesHolder, otherwise: Callable[[bytes], bytes | None]
    ) -> Callable[[bytes], bytes | None]:
        return Engine.fenced_reader(self, prefix, holder, otherwise)  # Why: it reads by `fenced_value`.

    def fenced_snapshot(self, prefix: bytes, fences: Fences) -> None:
        """Return None: who wants one reads by `snapshot`."""

    def fenced_value(self, key: bytes, fences: Fences) -> tuple[bool, bytes | None]:
        self.step("fenced_value")
        return self.inner.fenced_value(key, fences)

    def commit(self, commit: Commit) -> int:
        self.step("before commit")
        revision = self.inner.commit(commit)
        self.lose_answer("after commit", len(commit.mutations))
        return revision

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        self.step("before put_sorted")
        half = len(keys) // 2
        if half and self.profile.commit_operations_max is not None and self.is_failing("within put_sorted"):
            self.inner.put_sorted(keys[:half], values and values[:half], guards=guards, overwrite=overwrite)
            raise self.failure("within put_sorted")
        new = self.inner.put_sorted(keys, values, guards=guards, overwrite=overwrite)
        self.lose_answer("after put_sorted", len(keys))
        return new

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        self.step("watch")
        return _FailingWatch(self.inner.watch(key_range, after=after), self)

    def lease(self, ttl_seconds: float, *, resume: int = NO_LEASE) -> Lease:
        self.step("lease")
        return _FailingLease(self.inner.lease(ttl_seconds, resume=resume), self)

    def compact(self, revision: int) -> None:
        self.step("compact")
        self.inner.compact(revision)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> int:
        self.step("before load")
        pairs = list(entries)
        half = len(pairs) // 2
        if half and self.is_failing("within load"):
            self.inner.load(pairs[:half])
            raise self.failure("within load")
        loaded = self.inner.load(pairs)
        self.lose_answer("after load", loaded)
        return loaded

    def close(self) -> None:
        super().close()


@controls(Snapshot)
class _FailingSnapshot(WrappedSnapshot):
    def __init__(self, inner: Snapshot, engine: FailingEngine) -> None:
        super().__init__(inner)
        self._engine = engine

    @property
    def revision(self) -> int:
        return self.inner.revision

    @property
    def epoch(self) -> str:
        return self.inner.epoch

    def read_along(self, keys: Sequence[bytes]) -> None:
        self.inner.read_along(keys)

    def holds(self, fences: Fences) -> bool:
        self._engine.step("holds")
        return self.inner.holds(fences)

    def get(self, key: bytes) -> Entry | None:
        self._engine.step("get")
        return self.inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        self._engine.step("get_many")
        return self.inner.get_many(keys)

    def value(self, key: bytes) -> bytes | None:
        self._engine.step("value")
        return self.inner.value(key)

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._engine.step("values")
        return self.inner.values(keys)

    def values_within(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        self._engine.step("values_within")
        return self.inner.values_within(keys, bytes_max)

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        self._engine.step("scan")
        return self.inner.scan(key_range, limit=limit, reverse=reverse, keys_only=keys_only)

    def keys(self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False) -> Iterator[bytes]:
        self._engine.step("keys")
        return self.inner.keys(key_range, limit=limit, reverse=reverse)

    def pairs(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self._engine.step("pairs")
        return self.inner.pairs(key_range, limit=limit, reverse=reverse)

    def columns(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        self._engine.step("columns")
        return self.inner.columns(key_range, limit=limit, reverse=reverse)

    def count(self, key_range: KeyRange) -> int:
        self._engine.step("count")
        return self.inner.count(key_range)

    def close(self) -> None:
        self.inner.close()


@controls(Watch)
class _FailingWatch:
    def __init__(self, inner: Watch, engine: FailingEngine) -> None:
        self._inner = inner
        self._engine = engine

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        self._engine.step("poll")
        return self._inner.poll(timeout_seconds)

    @property
    def revision(self) -> int:
        return self._inner.revision

    def close(self) -> None:
        self._inner.close()


@controls(Lease)
class _FailingLease:
    def __init__(self, inner: Lease, engine: FailingEngine) -> None:
        self._inner = inner
        self._engine = engine

    @property
    def id(self) -> int:
        return self._inner.id

    @property
    def ttl_seconds(self) -> float:
        return self._inner.ttl_seconds

    def keep_alive(self) -> float:
        self._engine.step("keep_alive")
        return self._inner.keep_alive()

    def seconds_left(self) -> float:
        self._engine.step("seconds_left")
        return self._inner.seconds_left()

    def revoke(self) -> None:
        self._engine.step("revoke")
        self._inner.revoke()
