"""Writers are started, killed, and the store is looked at, again and again: `python -m tests.crash.cycles CYCLES [SEED]`."""

import os
import random
import selectors
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

import msgspec

from keyplan.engine.clock import SYSTEM_CLOCK
from keyplan.engine.lmdb import LmdbOptions
from keyplan.store import Store, open_store
from tests.crash.history import State, look
from tests.crash.workload import Ack, Expectation, Revoke, Step, steps
from tests.processes import waits_in
from tests.store.layouts import Site, index_faults

__all__ = ["KilledWriters"]

ROOT: Final = Path(__file__).resolve().parents[2]
NAMES: Final = ("north", "northern", "south")
PATIENCE_SECONDS: Final = 150.0
"""Why: a writer that says nothing for so long hangs, on a lock of one that is dead for instance; or its disk does."""


class _Writer:
    """A writer process, and what it has said."""

    def __init__(self, url: str, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed
        self.acks: list[Ack] = []
        self._rest = b""
        program = [sys.executable, "-m", "tests.crash.writer", url, name, str(seed)]
        self._process = subprocess.Popen(program, stdout=subprocess.PIPE, cwd=ROOT)
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()

    def hear(self) -> None:
        """Wait for news and take it in."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            if not selector.select(PATIENCE_SECONDS):
                raise AssertionError(
                    f"{self.name} hangs after {len(self.acks)} steps, in {waits_in(self._process.pid)}"
                )
        raw = os.read(self._pipe, 1 << 16)
        assert raw, f"{self.name} ended by itself after {len(self.acks)} steps"
        self._take(raw)

    def hear_until(self, *, acks_min: int = 0, revision_above: int = -1) -> None:
        """Wait until it has said so much."""
        while len(self.acks) < acks_min or self._last_revision() <= revision_above:
            self.hear()

    def kill(self) -> None:
        """Kill it without a chance to clean up, and take in what it had said before."""
        self._process.kill()
        rest, _ = self._process.communicate()
        assert self._process.returncode == -9, "it ended before it was killed"
        self._take(rest)

    def end(self) -> None:
        """Leave no process behind, whatever went wrong."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def _take(self, raw: bytes) -> None:
        *lines, self._rest = (self._rest + raw).split(b"\n")
        self.acks += [msgspec.json.decode(line, type=Ack) for line in lines]

    def _last_revision(self) -> int:
        return max((ack.revision for ack in self.acks), default=0)


@dataclass
class KilledWriters:
    """A store, what it must hold, and what was done to it. `run_cycle` does it once more; it raises AssertionError."""

    url: str
    chance: random.Random
    state: State = field(default_factory=State)
    expected: dict[str, Expectation] = field(default_factory=lambda: {name: Expectation() for name in NAMES})
    figures: Counter[str] = field(default_factory=Counter)
    counter: int = 0

    def run_cycle(self) -> None:
        """Start one writer or several, kill them at a moment left to chance, open the store and check everything."""
        chosen = self.chance.sample(NAMES, self.chance.choice([1, 1, 1, 2, 2, 3]))
        writers = [_Writer(self.url, name, self.chance.randrange(1 << 32)) for name in chosen]
        try:
            self._let_die(writers)
        finally:
            for writer in writers:
                writer.end()
        with open_store(self.url) as store:
            self._check(store, writers)
        self.figures["cycles"] += 1

    def _let_die(self, writers: Sequence[_Writer]) -> None:
        if self.chance.random() < 0.1:
            # Why: this kill shall come while a process starts, opens the store or does its first steps.
            Event().wait(self.chance.uniform(0, 0.4))
            self.figures["killed while starting"] += len(writers)
        else:
            for writer in writers:
                writer.hear_until(acks_min=self.chance.randint(1, 40))
            Event().wait(self.chance.uniform(0, 0.003))
        for number, writer in enumerate(writers, start=1):
            writer.kill()
            self.figures["kills"] += 1
            for survivor in writers[number:]:
                # Why: the one that died may have held the write lock. Whoever goes on shows that it does not stay locked.
                survivor.hear_until(acks_min=len(survivor.acks) + 1)
            if writers[number:]:
                with open_store(self.url) as store:
                    revision = store.revision
                    assert index_faults(store, Site.bound()) == []
                writers[number].hear_until(revision_above=revision)
                self.figures["survivors that went on"] += 1

    def _check(self, store: Store, writers: Sequence[_Writer]) -> None:
        site = Site(store)
        self.state = look(store.engine, self.state)
        assert index_faults(store, Site.bound()) == []
        acknowledged: set[int] = set()
        for writer in writers:
            revisions = self._check_records(site, writer)
            self._check_log(writer, revisions)
            acknowledged.update(revisions)
        self._check_numbers(site, [ack for writer in writers for ack in writer.acks])
        revocations = sum(1 for writer in writers for step, _ in _done(writer) if isinstance(step, Revoke))
        unheard = len(self.state.written) - len(acknowledged)
        assert 0 <= unheard <= len(writers) + revocations, "more commits than were acknowledged or under way"
        self.figures["acknowledged commits"] += len(acknowledged)
        self.figures["acknowledged steps"] += sum(len(writer.acks) for writer in writers)

    def _check_log(self, writer: _Writer, revisions: Sequence[int]) -> None:
        """Every acknowledged commit is in the log, and wrote keys of this writer, or the counter."""
        own = (f"/{writer.name}/", f"/{writer.name}.far/", f"/{writer.name}-", f"/racks/{writer.name}", "/next-port")
        assert list(revisions) == sorted(set(revisions)), "two commits of one writer are out of order"
        for revision in revisions:
            assert revision in self.state.written, "an acknowledged commit is lost"
            for raw_key in self.state.written[revision]:
                assert any(mark in raw_key.decode() for mark in own), "a commit wrote what it was not asked to"

    def _check_records(self, site: Site, writer: _Writer) -> list[int]:
        """The writer's records are as its acknowledged steps left them, or as one step more would have.

        Return the revisions of the commits that it acknowledged.
        """
        expected = self.expected[writer.name]
        revisions: list[int] = []
        for number, (step, ack) in enumerate(_done(writer)):
            asks_for_commit = expected.asks_for_commit(step)
            assert (ack.step, ack.outcomes) == (number, expected.apply(step))
            if ack.revision and asks_for_commit:
                revisions.append(ack.revision)
        rack = site.racks.get(writer.name)
        found = {key: blade for part in (writer.name, f"{writer.name}.far") for key, blade in site.blades.list(part)}
        stored = (found, 0 if rack is None else rack.height)
        if stored != (expected.blades.records, expected.height):
            expected.apply(_step(writer, len(writer.acks)))
            assert stored == (expected.blades.records, expected.height), "neither the last step nor the next"
            self.figures["committed but not acknowledged"] += 1
        self.expected[writer.name] = expected.after_death()
        return revisions

    def _check_numbers(self, site: Site, acks: Sequence[Ack]) -> None:
        """No number was handed out twice, and the counter stands beyond all of them."""
        taken = sorted(ack.number for ack in acks if ack.number)
        assert taken == sorted(set(taken))
        counter = site.ports.peek()
        assert counter > max(taken, default=0)
        assert counter >= self.counter, "the counter went backwards"
        self.counter = counter


def _done(writer: _Writer) -> Iterator[tuple[Step, Ack]]:
    return zip(steps(writer.name, writer.seed), writer.acks, strict=False)


def _step(writer: _Writer, number: int) -> Step:
    return next(step for position, step in enumerate(steps(writer.name, writer.seed)) if position == number)


def _replayed(store: Store) -> int:
    """Prove the state once more from the whole log, if it is all kept. Return the revisions replayed."""
    return 0 if store.revision > LmdbOptions().history_revisions_max else look(store.engine, State()).revision


def main(cycles: int, seed: int) -> None:
    """Run so many cycles on a store in a new folder, and print what was done."""
    began = SYSTEM_CLOCK.monotonic()
    with tempfile.TemporaryDirectory(prefix="keyplan-crash-") as folder:
        killed = KilledWriters(f"lmdb:{folder}?durability=full", random.Random(seed))
        for number in range(1, cycles + 1):
            killed.run_cycle()
            if number % 50 == 0 or number == cycles:
                seconds = SYSTEM_CLOCK.monotonic() - began
                told = ", ".join(f"{figure:,} {name}" for name, figure in sorted(killed.figures.items()))
                print(f"{seconds:.0f} s: {told}", file=sys.stderr, flush=True)
        with open_store(killed.url) as store:
            killed.figures["revisions replayed at the end"] = _replayed(store)
        size = (Path(folder) / "data.mdb").stat().st_size
    for name, figure in sorted(killed.figures.items()):
        print(f"{name:32} {figure:>9,}")
    print(f"{'revisions':32} {killed.state.revision:>9,}")
    print(f"{'bytes of the file':32} {size:>9,}")
    print(f"{'seconds':32} {SYSTEM_CLOCK.monotonic() - began:>9,.0f}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32))
