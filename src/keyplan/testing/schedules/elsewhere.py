"""A schedule on another engine than memory: calls are let go in the same order, and what comes of it is judged there."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from keyplan.engine import ALL_KEYS, Clock, Commit, Engine, Event, KeyRange, Snapshot, Watch
from keyplan.errors import HistoryCompactedError
from keyplan.testing.schedules.footprint import CLOCK, EMPTINESS, Footprint
from keyplan.testing.schedules.parking import ParkingEngine
from keyplan.testing.schedules.running import Run, Stored
from keyplan.testing.schedules.scenario import Scenario
from keyplan.testing.schedules.steps import Parking, Step, Wait, failed, note
from keyplan.testing.schedules.surroundings import ExplorerContext, in_context, threadless_store

__all__ = ["RunElsewhere"]


class _EngineElsewhere(ParkingEngine):
    """Parks as the engine of an exploration does. What a call writes is not known: no search asks for it."""

    def snapshot(self) -> Snapshot:
        snapshot = super().snapshot()
        # Why: an engine may fix its state at the first read, and it belongs to this step.
        _ = snapshot.revision
        return snapshot

    def _committed(self, step: Step, commit: Commit) -> int:
        return self.inner.commit(commit)

    def _loaded(self, step: Step) -> int:
        return _revision_of(self.inner)

    def watch(self, key_range: KeyRange, *, after: int) -> Watch:
        step = self.run.park("watch", key_range)
        if step.fault == "h":
            raise failed(step, HistoryCompactedError(revision=after, compacted_revision=_revision_of(self.inner)))
        return _WatchElsewhere(self.inner.watch(key_range, after=after), key_range, self.run)

    def compact_all_but(self, keep: int) -> None:
        step = self.run.park("compact", keep)
        self._compact(step, max(0, _revision_of(self.inner) - keep))


class _WatchElsewhere:
    """A watch that looks without waiting, and keeps what it found until it is asked for."""

    def __init__(self, inner: Watch, key_range: KeyRange, run: Parking) -> None:
        self._inner = inner
        self._range = key_range
        self._run = run
        self._found: deque[Sequence[Event]] = deque()
        self._revision = inner.revision

    def poll(self, timeout_seconds: float) -> Sequence[Event]:
        wait = None
        if timeout_seconds > 0:
            begun = self._run.time
            looked = Footprint()
            looked.keys_read |= {CLOCK, EMPTINESS}
            wait = Wait(lambda: self._run.time != begun or self._has_something(), looked)
        step = self._run.park("poll", self._range, wait=wait)
        if step.fault == "h":
            raise failed(step, HistoryCompactedError(revision=self.revision, compacted_revision=self._inner.revision))
        events = self._found.popleft() if self._found else self._inner.poll(0)
        if not self._found:
            self._revision = self._inner.revision
        note(step, "poll", self._range, list(events))
        return events

    def _has_something(self) -> bool:
        if not self._found and (events := self._inner.poll(0)):
            self._found.append(events)
        return bool(self._found)

    @property
    def revision(self) -> int:
        return self._revision

    def close(self) -> None:
        self._inner.close()


class RunElsewhere(Run):
    """A run on engines that `make` returns. The memories of the set-up are there, and not used."""

    def __init__(self, make: Callable[[Clock], Engine], scenario: Scenario, *arguments: Any, **options: Any) -> None:
        super().__init__(scenario, *arguments, **options)
        self._engines = [make(self.clock) for _ in range(scenario.engines)]
        if scenario.setup is not None:
            with in_context(ExplorerContext(self.clock)):
                scenario.setup(*[threadless_store(engine, self.clock) for engine in self._engines])

    def parking_engines(self) -> list[ParkingEngine]:
        return [
            _EngineElsewhere(engine, memory, self, number)
            for number, (engine, memory) in enumerate(zip(self._engines, self.memories, strict=True))
        ]

    def bare_engines(self) -> list[Engine]:
        return list(self._engines)

    def revisions(self) -> list[int]:
        return [_revision_of(engine) for engine in self._engines]

    def history(self, engine: int) -> tuple[Event, ...]:
        found: list[Event] = []
        watched = self._engines[engine]
        watch = watched.watch(ALL_KEYS, after=self.compacted(engine))
        try:
            while watch.revision < _revision_of(watched):
                found += watch.poll(1.0)
        finally:
            watch.close()
        return tuple(found)

    def compacted(self, engine: int) -> int:
        try:
            self._engines[engine].watch(ALL_KEYS, after=0).close()
        except HistoryCompactedError as error:
            compacted = error.facts["compacted_revision"]
            assert isinstance(compacted, int)
            return compacted
        return 0

    def stored(self) -> tuple[Stored, ...]:
        return tuple(_stored_in(engine) for engine in self._engines)


def _revision_of(engine: Engine) -> int:
    """Return the latest revision of an engine."""
    with engine.snapshot() as snapshot:
        return snapshot.revision


def _stored_in(engine: Engine) -> Stored:
    with engine.snapshot() as snapshot:
        return tuple((entry.key, entry.value, entry.lease) for entry in snapshot.scan(ALL_KEYS))
