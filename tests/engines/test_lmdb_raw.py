"""The LMDB engine with `history=off`, judged by the conformance suite."""

from collections.abc import Callable, Iterator
from hashlib import sha1
from itertools import islice
from pathlib import Path
from tracemalloc import get_traced_memory, reset_peak, start, stop

import pytest

from keyplan.engine import ALL_KEYS, Engine, fingerprint, open_engine
from keyplan.testing.engine_suite import EngineSuite


@pytest.mark.engine
class TestRawLmdbEngine(EngineSuite):
    @pytest.fixture
    def engine(self, other_process_url: str) -> Iterator[Engine]:
        with open_engine(other_process_url) as engine:
            yield engine

    @pytest.fixture
    def reopen(self, engine: Engine, other_process_url: str) -> Callable[[], Engine]:
        return lambda: (engine.close(), open_engine(other_process_url))[1]

    @pytest.fixture
    def other_process_url(self, tmp_path: Path) -> str:
        return f"lmdb:{tmp_path}?history=off"


@pytest.mark.parametrize("value", [b"", b"\x00", b"a value"])
def test_a_fingerprint_is_the_first_63_bits_of_the_digest(value: bytes) -> None:
    digest = sha1(value, usedforsecurity=False).digest()
    assert fingerprint(value) == int.from_bytes(digest[:8], "big") >> 1


def test_large_values_behind_small_ones_are_not_read_ahead(tmp_path: Path) -> None:
    keys, value = [b"%04d" % number for number in range(200)], bytes(256 << 10)
    with open_engine(f"lmdb:{tmp_path}?history=off&durability=none") as engine:
        engine.put_sorted(keys, [b"small"] * 100 + [value] * 100)
        with engine.snapshot() as snapshot:
            start()
            try:
                assert sum(1 for _ in islice(snapshot.pairs(ALL_KEYS), 101)) == 101
                of_pairs = get_traced_memory()[1]
                reset_peak()
                assert len(snapshot.values_within(keys, 1 << 20)) == 104
                of_values = get_traced_memory()[1]
            finally:
                stop()
    assert of_pairs < 3 * len(value)
    assert of_values < 6 * len(value)
