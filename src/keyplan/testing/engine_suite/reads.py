"""Promise: what was written is read, as one state, whatever happens meanwhile."""

from itertools import product

import pytest

from keyplan.engine import ALL_KEYS, Capability, Delete, Engine, Entry, KeyRange, Put
from keyplan.errors import KeyplanError
from keyplan.testing.engine_suite.promise import Promise, commit, everything, needs, put

__all__ = ["ReadPromises"]


class ReadPromises(Promise):
    """Gets and snapshots."""

    def test_a_new_store_is_empty(self, engine: Engine) -> None:
        with engine.snapshot() as snapshot:
            assert snapshot.get(b"a") is None
            assert list(snapshot.scan(ALL_KEYS)) == []
            assert snapshot.count(ALL_KEYS) == 0

    @needs(Capability.REVISIONS)
    def test_an_entry_carries_its_value_revisions_and_version(self, engine: Engine) -> None:
        first = put(engine, b"a", value=b"one")
        put(engine, b"other")
        third = put(engine, b"a", value=b"two")
        with engine.snapshot() as snapshot:
            assert snapshot.get(b"a") == Entry(b"a", b"two", first, third, 2, 0)

    def test_without_revisions_an_entry_carries_a_fingerprint_of_its_value(self, engine: Engine) -> None:
        if engine.profile.claims(Capability.REVISIONS):
            pytest.skip("the engine claims REVISIONS")
        assert commit(engine, Put(b"a", b"same"), Put(b"b", b"same"), Put(b"c", b"another")) == 0
        a, b, c = everything(engine)
        assert (a.create_revision, a.version, a.lease) == (0, 0, 0)
        assert a.mod_revision == b.mod_revision
        assert a.mod_revision != c.mod_revision
        assert a.mod_revision != 0

    def test_an_empty_value_is_a_value(self, engine: Engine) -> None:
        put(engine, b"a", value=b"")
        with engine.snapshot() as snapshot:
            entry = snapshot.get(b"a")
            assert entry is not None
            assert entry.value == b""
            assert snapshot.count(ALL_KEYS) == 1

    @pytest.mark.parametrize(
        "key",
        [b"\x00", b"\x00\x00", b"a\x00", b"\xff", b"\xff\xff", b"\x80", "ä/€".encode(), b"/", b"k" * 100],
        ids=lambda key: key[:4].hex(),
    )
    def test_any_bytes_are_a_key(self, engine: Engine, key: bytes) -> None:
        put(engine, key, value=key * 2)
        assert [(entry.key, entry.value) for entry in everything(engine)] == [(key, key * 2)]
        with engine.snapshot() as snapshot:
            assert snapshot.get(key + b"\x00") is None

    def test_values_of_all_bytes_come_back_unchanged(self, engine: Engine) -> None:
        value = bytes(range(256)) * 40
        put(engine, b"a", value=value)
        assert everything(engine)[0].value == value

    def test_get_many_answers_in_the_order_asked(self, engine: Engine) -> None:
        put(engine, b"a", b"c")
        with engine.snapshot() as snapshot:
            found = snapshot.get_many([b"c", b"b", b"a", b"c"])
        assert [entry and entry.key for entry in found] == [b"c", None, b"a", b"c"]

    def test_values_of_many_keys_come_in_the_order_asked(self, engine: Engine) -> None:
        commit(engine, Put(b"a", b"one"), Put(b"c", b""))
        with engine.snapshot() as snapshot:
            assert snapshot.values([b"c", b"b", b"a", b"c"]) == [b"", None, b"one", b""]
            assert snapshot.values([b"a", b"k" * 100_000]) == [b"one", None]
            assert snapshot.values([]) == []

    def test_values_within_bytes_end_behind_the_first_that_is_too_much(self, engine: Engine) -> None:
        keys = [b"%04d" % number for number in range(300)]
        for begin in range(1, 300, 100):
            commit(engine, *(Put(key, bytes(10)) for key in keys[begin : begin + 100]))
        with engine.snapshot() as snapshot:
            assert snapshot.values_within(keys, 10_000) == [None, *[bytes(10)] * 299]
            assert snapshot.values_within([], 0) == []
            assert snapshot.values_within(keys[1:2], 0) == [bytes(10)]
            found = snapshot.values_within(keys, 100)
        assert found == [None, *[bytes(10)] * (len(found) - 1)]
        assert 12 <= len(found) < 12 + 128, "the engine reads on where it has enough"

    def test_columns_are_the_same_pairs_some_hundred_at_a_time(self, engine: Engine) -> None:
        keys = [b"%04d" % number for number in range(700)]
        for begin in range(0, 700, 100):
            commit(engine, *(Put(key, key[:2]) for key in keys[begin : begin + 100]))
        ranges = [
            KeyRange(keys[begin], keys[end]) for begin, end in ((3, 3), (3, 4), (5, 21), (5, 90), (0, 400), (9, 699))
        ]
        with engine.snapshot() as snapshot:
            for key_range in (*ranges, ALL_KEYS, KeyRange(b"0650", None), KeyRange(b"5", b"4")):
                for limit, reverse in product((None, 0, 1, 16, 300), (False, True)):
                    found = [*snapshot.columns(key_range, limit=limit, reverse=reverse)]
                    pairs = [*snapshot.pairs(key_range, limit=limit, reverse=reverse)]
                    assert [pair for column in found for pair in zip(*column, strict=True)] == pairs
                    assert all(0 < len(column[0]) <= 256 for column in found)

    def test_columns_end_behind_the_value_that_is_too_much(self, engine: Engine) -> None:
        allowed = min(
            limit for limit in (engine.profile.value_bytes_max, engine.profile.commit_bytes_max, 256 << 10) if limit
        )
        large = [allowed * 3 // 4] * 3
        sizes = [*large, *[10] * 40, *large, 10]
        for number, size in enumerate(sizes):
            put(engine, b"%04d" % number, value=bytes(size))
        with engine.snapshot() as snapshot:
            found = [[len(value) for value in values] for _, values in snapshot.columns(ALL_KEYS)]
        assert [size for column in found for size in column] == sizes
        assert all(sum(column[:-1]) <= 256 << 10 for column in found)

    def test_reading_a_key_that_could_never_be_stored_finds_nothing(self, engine: Engine) -> None:
        with engine.snapshot() as snapshot:
            assert snapshot.get(b"k" * 100_000) is None

    def test_a_snapshot_does_not_see_later_commits(self, engine: Engine) -> None:
        put(engine, b"a", b"b", value=b"old")
        with engine.snapshot() as snapshot:
            revision = snapshot.revision
            commit(engine, Put(b"a", b"new"), Delete(b"b"), Put(b"c", b"new"))
            assert [(entry.key, entry.value) for entry in snapshot.scan(ALL_KEYS)] == [(b"a", b"old"), (b"b", b"old")]
            assert snapshot.get(b"c") is None
            assert snapshot.count(ALL_KEYS) == 2
            assert snapshot.revision == revision
        assert [(entry.key, entry.value) for entry in everything(engine)] == [(b"a", b"new"), (b"c", b"new")]

    def test_a_scan_under_way_does_not_see_later_commits(self, engine: Engine) -> None:
        put(engine, *(b"%04d" % number for number in range(100)))
        with engine.snapshot() as snapshot:
            scan = snapshot.scan(ALL_KEYS)
            assert next(scan).key == b"0000"
            commit(engine, *(Delete(b"%04d" % number) for number in range(1, 50)), Put(b"00005", b"x"))
            assert [entry.key for entry in scan] == [b"%04d" % number for number in range(1, 100)]

    def test_a_snapshot_sees_every_commit_acknowledged_before_it(self, engine: Engine) -> None:
        for number in range(50):
            put(engine, b"a", value=b"%d" % number)
            with engine.snapshot() as snapshot:
                entry = snapshot.get(b"a")
                assert entry is not None
                assert entry.value == b"%d" % number

    def test_two_snapshots_may_be_open_at_once(self, engine: Engine) -> None:
        put(engine, b"a", value=b"1")
        with engine.snapshot() as early:
            put(engine, b"a", value=b"2")
            with engine.snapshot() as late:
                assert [entry.value for entry in early.scan(KeyRange.of_key(b"a"))] == [b"1"]
                assert [entry.value for entry in late.scan(KeyRange.of_key(b"a"))] == [b"2"]

    def test_a_closed_snapshot_may_be_closed_again_but_not_read(self, engine: Engine) -> None:
        put(engine, b"a")
        snapshot = engine.snapshot()
        snapshot.close()
        snapshot.close()
        with pytest.raises(KeyplanError):
            snapshot.get(b"a")
        with pytest.raises(KeyplanError):
            list(snapshot.scan(ALL_KEYS))
