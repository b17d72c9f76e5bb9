"""A prefixed engine keeps every promise of the engine inside."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from keyplan.engine import (
    ALL_KEYS,
    Engine,
    Entry,
    KeyPrefix,
    KeyRange,
    MemoryEngine,
    PrefixedEngine,
    PrefixedSnapshot,
    Snapshot,
    WrappedSnapshot,
)
from keyplan.errors import CorruptionError
from keyplan.testing.engine_suite import EngineSuite
from keyplan.testing.faults import FakeClock


@pytest.mark.engine
class TestPrefixedEngine(EngineSuite):
    clock = FakeClock()

    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        with MemoryEngine(clock=self.clock) as inner:
            inner.load([(neighbour, b"") for neighbour in (b"p", b"p\xfe\xff", b"q", b"q\x00", b"\xff")])
            yield PrefixedEngine(inner, b"p\xff")

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        return self.clock.advance


class _Astray(WrappedSnapshot):
    """Answers with what stands at a neighbour of the prefix."""

    def get(self, key: bytes) -> Entry | None:
        return self.inner.get(b"q")

    def get_many(self, keys: Sequence[bytes]) -> list[Entry | None]:
        return [self.inner.get(b"q") for _ in keys]

    def scan(
        self, key_range: KeyRange, *, limit: int | None = None, reverse: bool = False, keys_only: bool = False
    ) -> Iterator[Entry]:
        return self.inner.scan(ALL_KEYS)


@pytest.mark.parametrize(
    "read",
    [
        lambda snapshot: snapshot.get(b"a"),
        lambda snapshot: snapshot.get_many([b"a"]),
        lambda snapshot: list(snapshot.scan(ALL_KEYS)),
        lambda snapshot: list(snapshot.keys(ALL_KEYS)),
        lambda snapshot: list(snapshot.pairs(ALL_KEYS)),
    ],
)
def test_a_key_outside_the_prefix_is_not_cut_to_one_within_it(read: Callable[[Snapshot], object]) -> None:
    inner = MemoryEngine()
    inner.load([(b"q", b"a neighbour's")])
    with inner.snapshot() as state, pytest.raises(CorruptionError, match="outside the prefix"):
        read(PrefixedSnapshot(_Astray(state), KeyPrefix(b"p")))
