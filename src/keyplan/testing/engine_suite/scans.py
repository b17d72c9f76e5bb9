"""Promise: a range is exactly its keys, in the order of unsigned bytes, from either side."""

import pytest

from keyplan.engine import ALL_KEYS, Capability, Engine, KeyRange
from keyplan.testing.engine_suite.promise import Promise, everything, put

__all__ = ["ScanPromises"]

KEYS = sorted([
    b"\x00", b"\x00\x00", b"\x00\xff", b"a", b"a\x00", b"a\x00\x00", b"a\xff", b"a\xff\xff", b"aa", b"b", b"b\x00",
    b"\x7f", b"\x80", b"\xfe", b"\xfe\xff", b"\xff", b"\xff\x00", b"\xff\xff", b"\xff\xff\x00", b"\xff\xff\xff",
])  # fmt: skip


class ScanPromises(Promise):
    """Scans and counts."""

    def test_keys_come_in_the_order_of_unsigned_bytes(self, engine: Engine) -> None:
        put(engine, *reversed(KEYS))
        assert [entry.key for entry in everything(engine)] == KEYS

    @pytest.mark.parametrize(
        "prefix", [b"", b"\x00", b"a", b"a\x00", b"a\xff", b"b", b"\xfe", b"\xff", b"\xff\xff", b"zz"]
    )
    def test_a_prefix_finds_exactly_the_keys_that_begin_with_it(self, engine: Engine, prefix: bytes) -> None:
        put(engine, *KEYS)
        expected = [key for key in KEYS if key[: len(prefix)] == prefix]
        key_range = KeyRange.of_prefix(prefix)
        with engine.snapshot() as snapshot:
            assert [entry.key for entry in snapshot.scan(key_range)] == expected
            assert [entry.key for entry in snapshot.scan(key_range, reverse=True)] == expected[::-1]
            assert snapshot.count(key_range) == len(expected)

    def test_the_range_of_a_key_holds_that_key_alone(self, engine: Engine) -> None:
        put(engine, *KEYS)
        for key in KEYS:
            assert [entry.key for entry in everything(engine, KeyRange.of_key(key))] == [key]

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [
            (b"a", b"b", [b"a", b"a\x00", b"a\x00\x00", b"a\xff", b"a\xff\xff", b"aa"]),
            (b"a\x00", b"a\xff", [b"a\x00", b"a\x00\x00", b"aa"]),
            (b"a\x01", b"a\x02", []),
            (b"b", b"b", []),
            (b"b", b"a", []),
            (b"b", b"", []),
            (b"", b"", []),
            (b"", b"\x00", []),
            (b"", b"\x00\x00", [b"\x00"]),
            (b"\xff\xff\xff", None, [b"\xff\xff\xff"]),
            (b"\xff\xff\xff\x00", None, []),
            (b"\xfe\xff", b"\xff\x00", [b"\xfe\xff", b"\xff"]),
        ],
        ids=str,
    )
    def test_a_range_holds_its_start_and_not_its_end(
        self, engine: Engine, start: bytes, end: bytes | None, expected: list[bytes]
    ) -> None:
        put(engine, *KEYS)
        with engine.snapshot() as snapshot:
            assert sorted(entry.key for entry in snapshot.scan(KeyRange(start, end))) == sorted(expected)
            found_reversed = [entry.key for entry in snapshot.scan(KeyRange(start, end), reverse=True)]
            assert found_reversed == sorted(expected, reverse=True)
            assert snapshot.count(KeyRange(start, end)) == len(expected)

    @pytest.mark.parametrize("limit", [0, 1, 3, 19, 20, 21, 1_000])
    def test_a_limit_takes_the_first_or_the_last_entries(self, engine: Engine, limit: int) -> None:
        put(engine, *KEYS)
        with engine.snapshot() as snapshot:
            assert [entry.key for entry in snapshot.scan(ALL_KEYS, limit=limit)] == KEYS[:limit]
            found_reversed = [entry.key for entry in snapshot.scan(ALL_KEYS, limit=limit, reverse=True)]
            assert found_reversed == KEYS[::-1][:limit]

    def test_keys_only_leaves_the_values_out_and_nothing_else(self, engine: Engine) -> None:
        put(engine, *KEYS)
        with engine.snapshot() as snapshot:
            whole = list(snapshot.scan(ALL_KEYS))
            bare = list(snapshot.scan(ALL_KEYS, keys_only=True))
            expected = [entry._replace(value=b"") for entry in whole]
            if not engine.profile.claims(Capability.REVISIONS):
                expected = [entry._replace(mod_revision=0) for entry in expected]
            assert bare == expected
            assert list(snapshot.scan(ALL_KEYS, keys_only=True, reverse=True)) == bare[::-1]

    def test_a_large_range_is_read_whole_and_in_order(self, engine: Engine) -> None:
        keys = [b"%06d" % number for number in range(3_000)]
        engine.load((key, key) for key in keys)
        with engine.snapshot() as snapshot:
            assert [entry.key for entry in snapshot.scan(ALL_KEYS)] == keys
            assert [entry.key for entry in snapshot.scan(ALL_KEYS, reverse=True)] == keys[::-1]
            assert snapshot.count(KeyRange(b"000500", b"002500")) == 2_000
            assert [e.key for e in snapshot.scan(KeyRange(b"0014", b"0017"), limit=150)] == keys[1400:1550]

    def test_a_scan_that_is_given_up_early_harms_nothing(self, engine: Engine) -> None:
        put(engine, *KEYS)
        with engine.snapshot() as snapshot:
            first = snapshot.scan(ALL_KEYS)
            second = snapshot.scan(ALL_KEYS, reverse=True)
            assert (next(first).key, next(second).key) == (KEYS[0], KEYS[-1])
            assert (next(first).key, next(second).key) == (KEYS[1], KEYS[-2])
        put(engine, b"more")
        assert len(everything(engine)) == len(KEYS) + 1
