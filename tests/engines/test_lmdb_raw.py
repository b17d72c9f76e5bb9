"""The LMDB engine with `history=off`, judged by the conformance suite."""

from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path

import pytest

from keyplan.engine import Engine, fingerprint, open_engine
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
