"""One round: clients at work, faults meanwhile, the log kept beside them, and the check of it all."""

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from keyplan.engine import ALL_KEYS, SYSTEM_CLOCK, Engine, Entry
from keyplan.errors import EngineUnavailableError, KeyplanError
from keyplan.testing.history import NEVER, Fault, Finding, History, HistoryEngine, Journal, Truth, read_records
from tests.history.clients import Client, journal_in

__all__ = ["ClientProcess", "ClientThreads", "Round", "Witness", "figures"]

ROOT: Final = Path(__file__).resolve().parents[2]
_PATIENCE_SECONDS: Final = 60.0


class RunningClient(Protocol):
    """A client that records into a folder until it is ended."""

    def end(self) -> None:
        """Let it finish. Raises AssertionError or KeyplanError when something is wrong with it."""
        ...


class ClientThreads:
    """A client in this process."""

    def __init__(self, engine: Engine, name: str, seed: int, folder: Path) -> None:
        self._client = Client(engine, name, seed, folder)

    def end(self) -> None:
        """Let it finish."""
        self._client.end()


class ClientProcess:
    """A client in a process of its own, which ends when its standard input does."""

    def __init__(self, url: str, name: str, seed: int, folder: Path) -> None:
        self.name = name
        program = [sys.executable, "-m", "tests.history.clients", url, name, str(seed), str(folder)]
        with (folder / f"{name}.errors").open("ab") as errors:
            self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stderr=errors, cwd=ROOT)
        self._errors = folder / f"{name}.errors"

    def kill(self) -> None:
        """End it with SIGKILL, in the middle of whatever it does."""
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        """Let it finish, and see that it does."""
        try:
            self._process.communicate(timeout=_PATIENCE_SECONDS * 3)
        finally:
            self.kill()
        assert self._process.returncode == 0, f"{self.name}: {self._errors.read_text()[-2_000:]}"


class Witness:
    """Follows everything from the present on, and writes it down as the truth. Nothing is compacted that it has not seen."""

    def __init__(self, engine: Engine, journal: Journal) -> None:
        self._engine = engine
        self._journal = journal
        self._stop = threading.Event()
        self._errors: list[KeyplanError] = []
        revision, entries = self._state()
        journal.add(Truth(revision, entries=entries))
        self._watch = engine.watch(ALL_KEYS, after=revision)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def revision(self) -> int:
        """How far it has read the log."""
        return self._watch.revision

    def end(self) -> None:
        """Read the log up to the end, and write down what is stored then. Raises AssertionError, KeyplanError."""
        try:
            revision, entries = self._state()
            give_up_at = SYSTEM_CLOCK.monotonic() + _PATIENCE_SECONDS
            while self.revision < revision and self._thread.is_alive():
                assert SYSTEM_CLOCK.monotonic() < give_up_at, f"the watch stays at {self.revision}, before {revision}"
                self._stop.wait(0.02)
        finally:
            self.stop()
        if self._errors:
            raise self._errors[0]
        self._journal.add(Truth(revision, entries=entries))

    def stop(self) -> None:
        """Read no more, wherever it has come to."""
        self._stop.set()
        self._thread.join()
        self._watch.close()

    def _state(self) -> tuple[int, tuple[Entry, ...]]:
        give_up_at = SYSTEM_CLOCK.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                with self._engine.snapshot() as snapshot:
                    return snapshot.revision, tuple(snapshot.scan(ALL_KEYS))
            except EngineUnavailableError:
                if SYSTEM_CLOCK.monotonic() > give_up_at:
                    raise

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                events = self._watch.poll(0.1)
            except EngineUnavailableError:
                continue
            except KeyplanError as error:
                self._errors.append(error)
                return
            if events:
                self._journal.add(Truth(self._watch.revision, tuple(events)))


@dataclass
class Round:
    """Clients and faults on one engine. `start_client` starts the client of a name; `inject` does a fault and tells of it.

    A fault is drawn from `kinds` in turn, in an order left to chance.
    """

    engine: Engine
    folder: Path
    chance: random.Random
    start_client: Callable[[str, int, Path], RunningClient]
    kinds: Sequence[str]
    inject: Callable[["Round", str], str]
    clients: list[RunningClient] = field(default_factory=list)
    witness: Witness = field(init=False)
    recorder: HistoryEngine = field(init=False)
    started: int = 0

    def run(self, seconds: float, *, clients: int = 2) -> History:
        """Run for so long, and return what was recorded. Raises AssertionError or KeyplanError when a client fails."""
        self.witness = Witness(self.engine, journal_in(self.folder, "truth"))
        journal = journal_in(self.folder, "faults")
        self.recorder = HistoryEngine(self.engine, journal, closes_inner=False)
        stop_at = SYSTEM_CLOCK.monotonic() + seconds
        try:
            for _ in range(clients):
                self.add_client()
            for kind in self._drawn():
                threading.Event().wait(self.chance.uniform(0.5, 2.0))
                if SYSTEM_CLOCK.monotonic() >= stop_at:
                    break
                at = SYSTEM_CLOCK.monotonic()
                journal.add(Fault(at, kind, self.inject(self, kind)))
            self._end_clients()
            self.witness.end()
        finally:
            # Why also here: a fault that could not be made leaves nothing that goes on in other tests.
            self.witness.stop()
            self._end_clients()
        return History(record for path in sorted(self.folder.glob("*.jsonl")) for record in read_records(path))

    def add_client(self) -> None:
        """Start one more client, under a name of its own."""
        self.started += 1
        self.clients.append(self.start_client(f"c{self.started}", self.chance.randrange(1 << 32), self.folder))

    def compact(self) -> str:
        """Compact as far as the log was read, or not quite."""
        revision = self.witness.revision - self.chance.choice([0, 0, 1, 20])
        try:
            self.recorder.compact(revision)
        except EngineUnavailableError as error:
            return f"refused: {error.code}"
        return f"at {revision}"

    def _drawn(self) -> "Kinds":
        return Kinds(self.kinds, self.chance)

    def _end_clients(self) -> None:
        failures: list[Exception] = []
        for client in self.clients:
            try:
                client.end()
            except (AssertionError, KeyplanError, subprocess.TimeoutExpired) as error:
                failures.append(error)
        self.clients.clear()
        if failures:
            raise failures[0]


class Kinds:
    """Every kind once in an order left to chance, then again, without end."""

    def __init__(self, kinds: Sequence[str], chance: random.Random) -> None:
        self._kinds = list(kinds)
        self._chance = chance
        self._left: list[str] = []

    def __iter__(self) -> "Kinds":
        return self

    def __next__(self) -> str:
        if not self._left:
            self._left = self._chance.sample(self._kinds, len(self._kinds))
        return self._left.pop()


def figures(history: History, findings: Sequence[Finding]) -> Counter[str]:
    """Count operations by outcome, faults and findings."""
    counted = Counter(f"commit: {write.outcome.value}" for write in history.writes)
    counted.update(f"{act.kind}: {act.outcome.value}" for act in history.acts)
    counted.update(f"fault: {fault.kind}" for fault in history.faults)
    counted.update(f"watch: ended by {watched.error}" for watched in history.watched if watched.error)
    counted.update(f"lease: {call.act.value}" for call in history.leases if not call.error and call.end < NEVER)
    counted["reads"] = len(history.reads)
    counted["watch: polls that brought something"] = sum(1 for watched in history.watched if watched.events)
    counted["watch: events"] = sum(len(watched.events) for watched in history.watched)
    counted["revisions in the log"] = len({event.revision for truth in history.truths for event in truth.events})
    counted.update(f"WRONG: {finding.wrong.value}" for finding in findings)
    return counted
