"""A writer and a watcher that go on while servers fail, and what must be true of them afterwards."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from keyplan.engine import ALL_KEYS, Commit, Engine, Event, KeyAbsent, Put
from keyplan.errors import CommitOutcomeUnknownError, EngineError, EngineUnavailableError, KeyplanError
from keyplan.testing.engine_suite import eventually

__all__ = ["Workload"]


@dataclass
class Workload:
    """Every write is a key of its own, put once: so that each outcome that was told can be checked against what is there."""

    engine: Engine
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    unknown: list[bytes] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        with self.engine.snapshot() as snapshot:
            self.start = snapshot.revision
        self._stop = threading.Event()
        self._watch = self.engine.watch(ALL_KEYS, after=self.start)
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,)) for work in (self._write, self._write, self._follow)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (KeyplanError, AssertionError) as error:
            self.errors.append(error)

    def _write(self) -> None:
        name = threading.get_ident()
        number = 0
        while not self._stop.is_set():
            number += 1
            key = b"%x/%06d" % (name, number)
            try:
                self.acknowledged[key] = self.engine.commit(Commit((KeyAbsent(key),), (Put(key, b"v"),)))
            except CommitOutcomeUnknownError:
                self.unknown.append(key)
            except EngineUnavailableError:
                self.refused.append(key)

    def _follow(self) -> None:
        while not self._stop.is_set():
            self.events += self._watch.poll(0.1)

    def let_write(self, count: int) -> None:
        """Wait until so many more writes were acknowledged."""
        goal = len(self.acknowledged) + count
        # Why thrice: an election and a restart on a busy machine may take longer than one wait.
        for _ in range(2):
            try:
                eventually(lambda: self.errors or len(self.acknowledged) >= goal)
            except AssertionError:
                continue
            return
        eventually(lambda: self.errors or len(self.acknowledged) >= goal)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, whatever went wrong; when nothing did, check everything. Raises AssertionError."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60)
        if kind is None:
            assert not any(thread.is_alive() for thread in self._threads)
            self._check()

    def _check(self) -> None:
        assert self.errors == []
        with self.engine.snapshot() as snapshot:
            end = snapshot.revision
            present = {entry.key: entry.mod_revision for entry in snapshot.scan(ALL_KEYS)}

        def is_caught_up() -> bool:
            self.events += self._watch.poll(0.2)
            return self._watch.revision >= end

        try:
            eventually(is_caught_up)
        except EngineError as error:  # pragma: no cover  # a failure of the engine, shown as such
            raise AssertionError("the watch did not go on") from error
        self._watch.close()
        self._compare(present)

    def _compare(self, present: dict[bytes, int]) -> None:
        lost = {key for key, revision in self.acknowledged.items() if present.get(key) != revision}
        assert lost == set(), "acknowledged, and not there at the revision that was told"
        assert not present.keys() & set(self.refused), "said to be not written, and there"
        told = [(event.revision, event.key) for event in self.events]
        assert told == sorted(told)
        assert told == sorted((revision, key) for key, revision in present.items()), "each change once, none left out"
