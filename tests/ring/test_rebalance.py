"""Growth: only what must move moves, nobody writes meanwhile, and a run that ends anywhere is finished by the next."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, Guard, MemoryEngine, Put, WrappedEngine, open_engine
from keyplan.errors import RingMismatchError, StoppedError
from keyplan.jobs import Progress
from keyplan.ring import RING_KEY, read_description, rebalance, ring_of
from keyplan.store import Store
from tests.ring.sites import Blade, BladeKey, NumberKey, Numbers, SerialKey, Site, memories

GROUPS = 60
EACH = 4


def pairs_in(engine: Engine) -> dict[bytes, bytes]:
    with engine.snapshot() as snapshot:
        return {key: value for key, value in snapshot.pairs(ALL_KEYS) if key != RING_KEY}


def filled(databases: int) -> list[Engine]:
    engines = memories(databases)
    numbers = Numbers(Store(ring_of(engines, Numbers))).numbers
    for group in range(GROUPS):
        for number in range(EACH):
            numbers.insert(NumberKey(UUID(int=group), number), b"%d %d" % (group, number))
    return engines


ALL = {
    UUID(int=group).bytes + number.to_bytes(8, "big"): b"%d %d" % (group, number)
    for group in range(GROUPS)
    for number in range(EACH)
}


def union(engines: Sequence[Engine]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for engine in engines:
        own = pairs_in(engine)
        assert not found.keys() & own.keys(), "a record is in two databases"
        found |= own
    return found


def test_growing_by_one_moves_records_to_the_new_database_alone() -> None:
    engines = filled(3)
    before = [pairs_in(engine) for engine in engines]
    new = MemoryEngine()
    reported: list[Progress] = []
    done = rebalance([*engines, new], progress=reported.append)
    assert union([*engines, new]) == ALL
    for engine, had in zip(engines, before, strict=True):
        assert pairs_in(engine).keys() <= had.keys()
    moved = pairs_in(new)
    assert done.moved == len(moved) == reported[-1].done
    assert 0.1 * len(ALL) < done.moved < 0.4 * len(ALL)  # a quarter is ideal
    assert (done.databases, done.entries) == (4, len(ALL))
    ring = ring_of([*engines, new], Numbers)
    assert all(ring.database_of(key) == 3 for key in moved)
    assert len(list(Numbers(Store(ring)).numbers.list(UUID(int=7)))) == EACH


class Looks:
    """Set from the look on that comes after so many."""

    def __init__(self, left: float) -> None:
        self.left = left
        self.count = 0

    def is_set(self) -> bool:
        self.count += 1
        return self.count > self.left


def test_a_growth_that_is_told_to_stop_goes_on() -> None:
    looks = Looks(float("inf"))
    rebalance([*filled(2), *memories(1)], stop=looks)
    moving = 0
    for number in (0, 1, 2, 3, looks.count - 1):
        engines = [*filled(2), *memories(1)]
        with pytest.raises(StoppedError):
            rebalance(engines, stop=Looks(number))
        found = read_description(engines[0].snapshot())
        moving += found is not None and found.growing_to == 3
        rebalance(engines)
        assert union(engines) == ALL
    assert moving >= 3


def test_growing_by_several_at_once() -> None:
    engines = [*filled(2), *memories(3)]
    rebalance(engines)
    assert union(engines) == ALL
    assert all(pairs_in(engine) for engine in engines)


def test_a_ring_that_has_its_size_is_left_as_it_is() -> None:
    engines = filled(3)
    assert rebalance(engines).moved == 0
    ring_of(engines, Numbers)


def test_a_layout_with_indexes_grows_with_its_entries() -> None:
    engines = memories(2)
    site = Site(Store(ring_of(engines, Site)))
    for number in range(30):
        site.blades.insert(BladeKey(f"r{number}", "b"), Blade("s", ("t",)))
    site.notes.insert("n", "stays")
    engines.append(MemoryEngine())
    rebalance(engines)
    site = Site(Store(ring_of(engines, Site)))
    assert site.blades.count() == 30
    assert all(site.by_serial.key_of(SerialKey(f"r{number}", "s")) is not None for number in range(30))
    assert site.notes.require("n") == "stays"


def test_handles_from_before_write_nothing_and_read_nothing_afterwards() -> None:
    engines = filled(2)
    old = ring_of(engines, Numbers)
    rebalance([*engines, MemoryEngine()])
    numbers = Numbers(Store(old)).numbers
    with pytest.raises(RingMismatchError, match="changed since it was opened"):
        old.put_sorted([bytes(24)])
    with pytest.raises(RingMismatchError):
        old.commit(Commit((), (Put(bytes(24), b""),)))
    with pytest.raises(RingMismatchError):
        old.load([(bytes(24), b"")])
    with pytest.raises(RingMismatchError):
        numbers.get(NumberKey(UUID(int=1), 1))


@pytest.mark.parametrize(
    "what", ["keys in the new one", "another ring's", "too few", "no ring"], ids=lambda what: what.replace(" ", "-")
)
def test_what_cannot_grow_is_refused_and_left(what: str) -> None:
    engines = filled(2)
    given = {
        "keys in the new one": lambda: [*engines, _with_a_key()],
        "another ring's": lambda: [*engines, filled(1)[0]],
        "too few": lambda: engines[:1],
        "no ring": lambda: memories(2),
    }[what]()
    before = [pairs_in(engine) for engine in engines]
    with pytest.raises(RingMismatchError):
        rebalance(given)
    assert [pairs_in(engine) for engine in engines] == before
    ring_of(engines, Numbers)


def _with_a_key() -> Engine:
    engine = MemoryEngine()
    engine.commit(Commit((), (Put(b"k", b""),)))
    return engine


# ---- interrupted ----------------------------------------------------------------------------------------------------------


class PowerCutError(Exception):
    """What stops a run."""


class Power:
    """Counts writes over all databases, and goes out at one of them: before it, or just after."""

    def __init__(self, writes: int, *, before: bool) -> None:
        self.left = writes
        self.is_before = before

    def spend(self) -> bool:
        self.left -= 1
        return self.left < 0


class Powered(WrappedEngine):
    def __init__(self, inner: Engine, power: Power) -> None:
        super().__init__(inner)
        self.power = power

    def commit(self, commit: Commit) -> int:
        is_last = self.power.spend()
        if is_last and self.power.is_before:
            raise PowerCutError
        revision = self.inner.commit(commit)
        if is_last:
            raise PowerCutError
        return revision

    def put_sorted(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes] | None = None,
        *,
        guards: Sequence[Guard] = (),
        overwrite: bool = True,
    ) -> int:
        is_last = self.power.spend()
        if is_last and self.power.is_before:
            raise PowerCutError
        new = self.inner.put_sorted(keys, values, guards=guards, overwrite=overwrite)
        if is_last:
            raise PowerCutError
        return new


@pytest.mark.parametrize("before", [True, False], ids=["before-the-write", "after-it"])
def test_a_run_that_ends_at_any_write_is_finished_by_the_next(*, before: bool) -> None:
    for writes in range(1_000):
        engines = [*filled(2), MemoryEngine()]
        power = Power(writes, before=before)
        try:
            rebalance([Powered(engine, power) for engine in engines])
        except PowerCutError:
            assert union_with_copies(engines) == ALL
            rebalance(engines)
            assert union(engines) == ALL
            ring_of(engines, Numbers)
        else:
            assert writes > 10
            return
    raise AssertionError("it never ended")


def union_with_copies(engines: Sequence[Engine]) -> dict[bytes, bytes]:
    """A record may be in two databases when a run was interrupted, and is the same in both."""
    found: dict[bytes, bytes] = {}
    for engine in engines:
        for key, value in pairs_in(engine).items():
            assert found.setdefault(key, value) == value
    return found


def test_a_ring_that_is_growing_opens_for_nobody() -> None:
    engines = [*filled(2), MemoryEngine()]
    with pytest.raises(PowerCutError):
        rebalance([Powered(engine, Power(2, before=True)) for engine in engines])
    for given in (engines, engines[:2]):
        with pytest.raises(RingMismatchError) as caught:
            ring_of(given, Numbers)
        assert "rebalance" in str(caught.value.problem)


_PROGRAM = """
import os, sys
from keyplan.engine import open_engine
from keyplan.ring import rebalance
engines = [open_engine(url) for url in sys.argv[2:]]
def progress(now):
    if now.done >= int(sys.argv[1]):
        print("moving", flush=True)
        sys.stdin.read()
rebalance(engines, progress=progress)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    urls = [f"lmdb:{tmp_path}/{number}?history=off" for number in range(3)]
    engines = [open_engine(url) for url in urls]
    ring = ring_of(engines[:2], Numbers)
    keys = sorted(
        UUID(int=group << 64).bytes + number.to_bytes(8, "big") for group in range(200) for number in range(40)
    )
    ring.put_sorted(keys)
    for engine in engines:
        engine.close()
    command = [sys.executable, "-c", _PROGRAM, "1000", *urls]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"moving\n"
        os.kill(running.pid, signal.SIGKILL)
    engines = [open_engine(url) for url in urls]
    with pytest.raises(RingMismatchError):
        ring_of(engines, Numbers)
    done = rebalance(engines)
    assert done.entries == len(keys)
    assert sorted(union(engines)) == keys
    for engine in engines:
        engine.close()
