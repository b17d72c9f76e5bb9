"""Deleting in the background: waiting, batches, the proof at the end, neighbours. AC numbers are the specification's cases."""

import subprocess
import sys
from pathlib import Path
from threading import Event as Signal
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyplan.engine import Commit, DeleteRange, Engine, KeyRange, MemoryEngine, Put, WrappedEngine, open_engine
from keyplan.errors import IllegalTransitionError, InvalidArgumentError
from keyplan.keyspace import (
    BOOK_OF_DIRECTORIES,
    BOOK_OF_FILES,
    Founding,
    KeySpaces,
    MarkKind,
    Stage,
    State,
    Sweeper,
    open_key_space,
)
from keyplan.testing.faults import FakeClock
from tests.keyspace.stores import put_raw, raw_content, swept

LEASE_SECONDS: Final = 3.0


def furnished(engine: Engine, clock: FakeClock | None = None, *, keys: int = 20) -> KeySpaces:
    """A registry with "a", "b", "c" at 01, 02, 03; b has so many keys, and neighbours lie close."""
    founding = Founding(skip_printable=False)
    registry = (
        KeySpaces(engine, founding=founding) if clock is None else KeySpaces(engine, founding=founding, clock=clock)
    )
    for name in "abc":
        registry.create(name, "app")
    put_raw(
        engine, b"\x01\xff", b"\x01\xff\xff", b"\x03", b"\x03\x00", *(b"\x02%03d" % number for number in range(keys))
    )
    return registry


NEIGHBOURS: Final = {b"\x01\xff", b"\x01\xff\xff", b"\x03", b"\x03\x00"}


def test_ac_38_after_completion_no_key_is_left_and_the_neighbours_are_whole(engine: Engine) -> None:
    registry = furnished(engine)
    swept(registry, "b")
    gone = registry.get("b")
    assert gone.state is State.DELETED
    assert gone.deleted_at is not None
    assert gone.delete_completed_at is not None
    assert gone.delete_completed_at >= gone.deleted_at
    assert set(raw_content(engine)) == NEIGHBOURS
    assert [(prefix, mark.kind) for prefix, mark in registry.marks()] == [(b"\x02", MarkKind.COOLING_DOWN)]
    assert registry.diagnose().faults == []


def test_a_sweep_goes_batch_by_batch_and_goes_on_where_it_was(memory: Engine) -> None:
    registry = furnished(memory)
    registry.delete("b")
    steps = [Sweeper(registry, batch_keys=8).step("b") for _ in range(4)]
    assert [(step.stage, step.deleted_keys) for step in steps] == [
        (Stage.SWEEPING, 8),
        (Stage.SWEEPING, 16),
        (Stage.SWEEPING, 20),
        (Stage.COMPLETED, 20),
    ]
    assert Sweeper(registry).step("b").stage is Stage.NOT_DELETING


def test_what_services_keep_beside_the_keys_goes_with_them(memory: Engine) -> None:
    registry = KeySpaces(memory)
    registry.configure({"keyspace-api-enabled": True})
    registry.adopt("ledger", "bank", b"/bank/".hex(), allow_legacy_prefix=True)
    of_bank = {b"/bank/a", b"/bank/dir/b", b"/bank/dir", b"/bank", b"/bank/"}
    of_others = {b"/bankrupt/a", b"/bank0", b"/ban", b"/", b"/bank.", b"\xff"}
    books = {kind: {kind + key for key in of_bank | of_others} for kind in (BOOK_OF_FILES, BOOK_OF_DIRECTORIES)}
    beside = {b"\x00e2s", b"\x00e2h/bank/a", b"\x00e2i"}
    put_raw(memory, b"/bank/a", b"/bank/dir/b", *books[BOOK_OF_FILES], *books[BOOK_OF_DIRECTORIES], *beside)
    registry.delete("ledger")
    assert Sweeper(registry, batch_keys=2).sweep("ledger").deleted_keys == 2
    with memory.snapshot() as state:
        left = set(state.keys(KeyRange.of_prefix(b"\x00e2")))
    # A file of the name of the directory is nobody's of the key space.
    files = {BOOK_OF_FILES + key for key in of_others | {b"/bank"}}
    assert left == files | {BOOK_OF_DIRECTORIES + key for key in of_others} | beside


def test_the_rate_is_kept_by_waiting_after_each_batch(memory: Engine) -> None:
    waits: list[float] = []
    registry = furnished(memory, FakeClock())  # at which the removing itself takes no time
    registry.delete("b")
    Sweeper(registry, batch_keys=8, keys_per_second=4, pause=waits.append).sweep("b")
    assert waits == [2.0, 2.0, 1.0]


@pytest.mark.parametrize("options", [{"batch_keys": 0}, {"keys_per_second": 0.0}])
def test_a_sweeper_that_would_never_end_is_refused(memory: Engine, options: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError):
        Sweeper(KeySpaces(memory), **options)  # type: ignore[arg-type]  # Why: a table of cases


def test_keys_that_come_behind_the_cursor_are_found_before_the_end(memory: Engine) -> None:
    registry = furnished(memory)
    registry.delete("b")
    sweeper = Sweeper(registry, batch_keys=15)
    sweeper.step("b")
    put_raw(memory, b"\x02000", b"\x02", b"\x02\xff\xff")
    assert sweeper.sweep("b").stage is Stage.COMPLETED
    assert set(raw_content(memory)) == NEIGHBOURS


def test_the_completing_commit_itself_proves_that_nothing_is_left() -> None:
    class Racing(MemoryEngine):
        """Lets a key come just before the commit that would complete the deletion."""

        raced = 0

        def commit(self, commit: Commit) -> int:
            completes = any(
                isinstance(write, Put) and b'delete_completed_at":"' in write.value for write in commit.mutations
            )
            if completes and not self.raced:
                self.raced = 1
                super().commit(Commit((), (Put(b"\x02late", b""),)))
            return super().commit(commit)

    with Racing() as engine:
        registry = furnished(engine)
        swept(registry, "b")
        assert engine.raced == 1
        assert set(raw_content(engine)) == NEIGHBOURS


def test_ac_42_sweeping_begins_when_the_clients_are_gone(memory: Engine) -> None:
    clock = FakeClock()
    with MemoryEngine(clock=clock) as engine:
        registry = furnished(engine, clock)
        lease = engine.lease(LEASE_SECONDS)
        engine.commit(
            Commit(
                (),
                (
                    Put(
                        b"\x00kp\x07b\x00" + lease.id.to_bytes(8, "big"),
                        b'{"application":"app","generation":1,"opened_at":"2023-11-14T22:13:20Z"}',
                        lease.id,
                    ),
                ),
            )
        )
        registry.delete("b")
        sweeper = Sweeper(registry)
        clock.advance(LEASE_SECONDS - 0.5)
        waiting = sweeper.sweep("b")
        assert waiting.stage is Stage.WAITING
        assert waiting.waits_for.startswith("1 sessions")
        assert len(raw_content(engine)) == 24
        clock.advance(0.5)
        assert sweeper.sweep("b").stage is Stage.COMPLETED


def test_ac_42_without_clients_sweeping_begins_at_once(memory: Engine) -> None:
    registry = furnished(memory)
    registry.delete("b")
    assert Sweeper(registry).sweep("b").stage is Stage.COMPLETED


def test_a_client_that_never_leaves_is_waited_for_no_longer_than_the_longest_lease() -> None:
    clock = FakeClock()
    with MemoryEngine(clock=clock) as engine:
        registry = furnished(engine, clock)
        registry.configure({"max-client-lease-seconds": 10})
        with open_key_space(engine, "b", "app", session_seconds=1e6, clock=clock):
            registry.delete("b")
            store_lease = engine.lease(1e6)
            engine.commit(
                Commit(
                    (),
                    (
                        Put(
                            b"\x00kp\x07b\x00" + store_lease.id.to_bytes(8, "big"),
                            b'{"application":"app","generation":1,"opened_at":"2023-11-14T22:13:20Z"}',
                            store_lease.id,
                        ),
                    ),
                )
            )
            clock.advance(9.5)
            assert Sweeper(registry).sweep("b").stage is Stage.WAITING
            clock.advance(2)
            assert Sweeper(registry).sweep("b").stage is Stage.COMPLETED


def test_ac_43_a_deletion_is_taken_back_in_the_grace_time_with_all_data(memory: Engine) -> None:
    clock = FakeClock()
    registry = furnished(memory, clock)
    registry.configure({"delete-grace-seconds": 100})
    before = raw_content(memory)
    registry.delete("b")
    clock.advance(99)
    assert "grace" in Sweeper(registry).sweep("b").waits_for
    assert registry.undelete("b").state is State.ENABLED
    assert raw_content(memory) == before
    registry.delete("b")
    clock.advance(102)
    assert Sweeper(registry, batch_keys=1).step("b").deleted_keys == 1
    with pytest.raises(IllegalTransitionError) as caught:
        registry.undelete("b")
    assert caught.value.http_status == 409


def test_a_clock_that_is_put_back_neither_holds_a_deletion_up_nor_ends_it_before_it_began(memory: Engine) -> None:
    clock = FakeClock()
    registry = furnished(memory, clock)
    deleted_at = registry.delete("b").deleted_at
    clock.step_wall(-3_600)
    assert Sweeper(registry).sweep("b").stage is Stage.COMPLETED
    assert registry.get("b").delete_completed_at == deleted_at
    assert registry.diagnose().is_sound


def test_a_clock_that_is_put_back_makes_the_grace_time_longer_and_never_shorter(memory: Engine) -> None:
    clock = FakeClock()
    registry = furnished(memory, clock)
    registry.configure({"delete-grace-seconds": 100})
    registry.delete("b")
    clock.step_wall(-3_600)
    clock.advance(200)
    assert Sweeper(registry).sweep("b").stage is Stage.WAITING
    clock.advance(3_600)
    assert Sweeper(registry).sweep("b").stage is Stage.COMPLETED


def test_of_two_sweepers_one_works(memory: Engine) -> None:
    registry = furnished(memory)
    registry.delete("b")
    with registry.store.lease(60) as lease:
        memory.commit(
            Commit((), (Put(b"\x00kp\x0dsweeper", b'{"by":"other","since":"2023-11-14T22:13:20Z"}', lease.id),))
        )
        assert Sweeper(registry).sweep_all() == []
    (progress,) = Sweeper(registry).sweep_all()
    assert progress.stage is Stage.COMPLETED
    with memory.snapshot() as snapshot:
        assert snapshot.get(b"\x00kp\x0dsweeper") is None


def test_a_running_sweeper_ends_when_it_is_told(memory: Engine) -> None:
    registry = furnished(memory)
    registry.delete("b")
    stop = Signal()
    Sweeper(registry, keys_per_second=1.0, batch_keys=8, pause=lambda _: stop.set()).run(stop)
    deletion = registry.deletion("b")
    assert deletion is not None
    assert deletion.deleted_keys == 8


def test_an_undelete_and_a_first_batch_do_not_both_happen(engine: Engine) -> None:
    registry = furnished(engine)
    registry.configure({"max-client-lease-seconds": 0})
    registry.delete("b")

    class UndeletedMeanwhile(WrappedEngine):
        def commit(self, commit: Commit) -> int:
            if any(isinstance(mutation, DeleteRange) for mutation in commit.mutations):
                registry.undelete("b")
            return super().commit(commit)

    meanwhile = UndeletedMeanwhile(engine, closes_inner=False)
    assert Sweeper(KeySpaces(meanwhile), batch_keys=8).step("b").deleted_keys == 0
    assert len(raw_content(engine)) == 24
    assert Sweeper(registry).step("b").stage is Stage.NOT_DELETING


@settings(max_examples=60)
@given(
    number=st.integers(1, 400),
    ordered=st.booleans(),
    tails=st.lists(st.binary(max_size=3), max_size=12, unique=True),
    others=st.lists(st.binary(min_size=1, max_size=4), max_size=30, unique=True),
    batch=st.integers(1, 5),
)
def test_property_a_sweep_removes_the_key_spaces_keys_and_no_others(
    *, number: int, ordered: bool, tails: list[bytes], others: list[bytes], batch: int
) -> None:
    with MemoryEngine() as engine:
        registry = KeySpaces(
            engine, founding=Founding("ordered" if ordered else "uvarint", "none", skip_printable=False)
        )
        registry.init()
        prefix = _encoded(number, ordered=ordered)
        registry.create("b", "app", prefix=prefix.hex())
        foreign = {key for key in others if not key.startswith((b"\x00", prefix))}
        foreign |= {_before(prefix) + b"\xff", _after(prefix)} - {b"\x00\xff"}
        put_raw(engine, *(prefix + tail for tail in tails))
        put_raw(engine, *sorted(foreign - {b"\x00" + b"\xff"}))
        registry.delete("b")
        Sweeper(registry, batch_keys=batch).sweep("b")
        assert set(raw_content(engine)) == {key for key in foreign if not key.startswith(b"\x00")}


def _encoded(number: int, *, ordered: bool) -> bytes:
    """Numbers below 2^14, spelled out again: LEB128, or the number with a leading bit."""
    if number < 128:
        return bytes([number])
    return bytes([0x80 | number >> 8, number & 0xFF]) if ordered else bytes([0x80 | number & 0x7F, number >> 7])


def _before(prefix: bytes) -> bytes:
    return prefix[:-1] + bytes([prefix[-1] - 1]) if prefix[-1] else prefix[:-1]


def _after(prefix: bytes) -> bytes:
    end = int.from_bytes(prefix, "big") + 1
    return end.to_bytes(len(prefix), "big")


@pytest.mark.slow
def test_a_sweeper_process_that_was_killed_is_continued_by_another(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path / 'store'}?durability=none"
    with open_engine(url) as engine:
        registry = furnished(engine, keys=3_000)
        registry.delete("b")
        command = [sys.executable, "-m", "tests.keyspace.killed_sweeper", url, "b"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(5)] == ["batch\n"] * 5
            process.kill()
        left = len(raw_content(engine)) - len(NEIGHBOURS)
        deletion = registry.deletion("b")
        assert deletion is not None
        assert deletion.deleted_keys == 3_000 - left >= 5
        assert left > 0, "it was killed too late"
        assert registry.diagnose().faults == []
        progress = Sweeper(registry).sweep("b")
        assert (progress.stage, progress.deleted_keys) == (Stage.COMPLETED, 3_000)
        assert set(raw_content(engine)) == NEIGHBOURS
        assert registry.diagnose().faults == []
