"""Promise: every way to read a snapshot shows the same state, as often as it is used, and none after its end.

Each method of a snapshot may be made faster by an engine of its own; so each is asked here, and not one for all.
"""

from collections.abc import Callable
from typing import Final

import pytest

from keyplan.engine import ALL_KEYS, Capability, Delete, DeleteRange, Engine, KeyRange, Put, Snapshot
from keyplan.errors import HistoryCompactedError, KeyplanError
from keyplan.testing.engine_suite.promise import Promise, commit, needs, put

__all__ = ["StillnessPromises"]

PREFIX: Final = KeyRange.of_prefix(b"k")
KEYS: Final = (b"k1", b"k2", b"k3")

READS: Final[dict[str, Callable[[Snapshot], object]]] = {
    "get": lambda snapshot: [snapshot.get(key) for key in KEYS],
    "get_many": lambda snapshot: snapshot.get_many(KEYS),
    "value": lambda snapshot: [snapshot.value(key) for key in KEYS],
    "values": lambda snapshot: snapshot.values(KEYS),
    "scan": lambda snapshot: list(snapshot.scan(PREFIX)),
    "scan reversed": lambda snapshot: list(snapshot.scan(PREFIX, reverse=True)),
    "scan of keys only": lambda snapshot: list(snapshot.scan(PREFIX, keys_only=True)),
    "scan with a limit": lambda snapshot: list(snapshot.scan(PREFIX, limit=3)),
    "keys": lambda snapshot: list(snapshot.keys(PREFIX)),
    "keys reversed": lambda snapshot: list(snapshot.keys(PREFIX, reverse=True)),
    "pairs": lambda snapshot: list(snapshot.pairs(PREFIX)),
    "columns": lambda snapshot: list(snapshot.columns(PREFIX)),
    "columns reversed": lambda snapshot: list(snapshot.columns(PREFIX, reverse=True)),
    "pairs reversed": lambda snapshot: list(snapshot.pairs(PREFIX, reverse=True)),
    "count": lambda snapshot: snapshot.count(PREFIX),
    "count of all": lambda snapshot: snapshot.count(ALL_KEYS),
    "revision": lambda snapshot: snapshot.revision,
}

EVERY_READ: Final = pytest.mark.parametrize("read", READS.values(), ids=READS.keys())


def change_everything(engine: Engine) -> None:
    """Update one key, delete one, make two: what every read of the keys can see."""
    commit(engine, Put(b"k1", b"new"), Delete(b"k2"), Put(b"k3", b"new"), Put(b"k4", b"new"))


class StillnessPromises(Promise):
    """Snapshots, method by method."""

    @EVERY_READ
    def test_each_read_of_a_snapshot_stays_as_it_was(self, engine: Engine, read: Callable[[Snapshot], object]) -> None:
        put(engine, b"k1", b"k2", value=b"old")
        with engine.snapshot() as snapshot:
            before = read(snapshot)
            change_everything(engine)
            assert read(snapshot) == before
            assert read(snapshot) == before
        with engine.snapshot() as snapshot:
            changed = read(snapshot) != before
        assert changed or (read is READS["revision"] and not engine.profile.claims(Capability.REVISIONS))

    @EVERY_READ
    def test_each_read_begins_with_the_state_that_the_snapshot_was_taken_of(
        self, engine: Engine, read: Callable[[Snapshot], object]
    ) -> None:
        put(engine, b"k1", b"k2", value=b"old")
        with engine.snapshot() as first:
            expected = read(first)
        with engine.snapshot() as snapshot:
            assert snapshot.revision >= 0  # a first read: some engines choose the state with it
            change_everything(engine)
            assert read(snapshot) == expected

    @EVERY_READ
    def test_each_read_is_refused_once_the_snapshot_is_closed(
        self, engine: Engine, read: Callable[[Snapshot], object]
    ) -> None:
        put(engine, b"k1", b"k2")
        snapshot = engine.snapshot()
        known = snapshot.revision
        snapshot.close()
        try:
            found = read(snapshot)
        except KeyplanError:
            return
        assert found == known, "a closed snapshot tells its revision at most"

    @needs(Capability.REVISIONS)
    @EVERY_READ
    def test_compaction_changes_nothing_in_an_open_snapshot(
        self, engine: Engine, read: Callable[[Snapshot], object]
    ) -> None:
        put(engine, b"k1", b"k2", value=b"old")
        with engine.snapshot() as snapshot:
            before = read(snapshot)
            change_everything(engine)
            engine.compact(put(engine, b"other"))
            try:
                after = read(snapshot)
            except HistoryCompactedError:
                # Why: a snapshot of an engine behind a network holds nothing there. It may say so, and show nothing else.
                assert not engine.profile.has_local_reads
            else:
                assert after == before

    def test_the_latest_value_is_told_after_every_way_to_write(self, engine: Engine) -> None:
        assert engine.value(b"k") is None
        put(engine, b"k", value=b"1")
        assert engine.value(b"k") == b"1"
        engine.put_sorted([b"k"], [b"2"])
        assert engine.value(b"k") == b"2"
        commit(engine, DeleteRange(KeyRange.of_key(b"k")))
        assert engine.value(b"k") is None
        engine.load([(b"k", b"3")])
        assert engine.value(b"k") == b"3"
        commit(engine, Delete(b"k"))
        assert engine.value(b"k") is None

    @needs(Capability.LEASES)
    def test_the_latest_value_is_gone_with_its_lease(self, engine: Engine) -> None:
        lease = engine.lease(600)
        commit(engine, Put(b"k", b"1", lease.id))
        assert engine.value(b"k") == b"1"
        assert engine.fenced_value(b"k", ((b"k", b"1"),)) == (True, b"1")
        lease.revoke()
        assert engine.value(b"k") is None
        assert engine.fenced_value(b"k", ((b"k", b"1"),)) == (False, None)

    def test_a_value_is_told_while_its_fences_hold_whatever_else_looks_like_them(self, engine: Engine) -> None:
        fences = ((b"f", b"1"), (b"g", b"2"))
        commit(engine, Put(b"f", b"1"), Put(b"g", b"2"), Put(b"k", b"v"), Put(b"fa", b"b"))
        assert engine.fenced_value(b"k", fences) == (True, b"v")
        assert engine.fenced_value(b"none", fences) == (True, None)
        assert engine.fenced_value(b"f", fences) == (True, b"1")
        assert engine.fenced_value(b"k", ((b"f", b"1"), (b"none", None))) == (True, b"v")
        assert engine.fenced_value(b"k", ((b"f", b"1"), (b"g", None))) == (False, None)
        # Each is what would be seen of another key, were a key and its value one row of bytes.
        commit(engine, Put(b"f", b"ab"), Put(b"fa", b""))
        assert engine.fenced_value(b"fa", ((b"f", b"a"),)) == (False, None)
        assert engine.fenced_value(b"f", ((b"fab", b""),)) == (False, None)
        assert engine.fenced_value(b"k", ((b"fa", b"b"), (b"f", b"a"))) == (False, None)
