"""Small pages of long ranges: where they are read up to early ends, and that no key is lost or told twice by it."""

import random
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.engine import Commit, Delete, Engine, EngineUrl, KeyRange, Put
from keyplan.engine.etcd import EtcdEngine, EtcdOptions, options_of
from keyplan.engine.etcd.crowds import Crowds
from tests.etcd.test_reads import CountingTransport
from tests.servers.etcd import EtcdServer

PREFIX = b"objects/by-uuid/"
WHOLE = KeyRange.of_prefix(PREFIX)
assert WHOLE.end is not None
END = WHOLE.end


@pytest.fixture
def counted(etcd_server: EtcdServer) -> Iterator[tuple[Engine, CountingTransport]]:
    made: list[CountingTransport] = []

    def transport(options: EtcdOptions) -> CountingTransport:
        made.append(CountingTransport(options))
        return made[0]

    with EtcdEngine(options_of(EngineUrl.parse(etcd_server.emptied().url), {}), transport) as engine:
        yield engine, made[0]


def spelled(number: int) -> bytes:
    return PREFIX + b"%032x" % number


def uuids(count: int, seed: int = 7) -> list[bytes]:
    numbers = random.Random(seed)
    return sorted(spelled(numbers.getrandbits(128)) for _ in range(count))


def crowded(engine: Engine, keys: list[bytes]) -> None:
    for start in range(0, len(keys), 100):
        engine.commit(Commit((), tuple(Put(key, b"v") for key in keys[start : start + 100])))


def walked(engine: Engine, size: int) -> list[bytes]:
    """All keys, in pages that each begin behind the last one, in a snapshot of its own."""
    found: list[bytes] = []
    start = PREFIX
    while True:
        with engine.snapshot() as snapshot:
            page = list(snapshot.keys(KeyRange(start, END), limit=size))
        found += page
        if len(page) < size:
            return found
        start = page[-1] + b"\x00"


# ---- what is guessed ------------------------------------------------------------------------------------------------------


def test_nothing_is_guessed_of_what_is_not_known_or_not_crowded() -> None:
    crowds, keys = Crowds(), uuids(3_000)[:50]
    assert crowds.stops(PREFIX, END) == []
    crowds.learn(PREFIX, END, keys, 2_000)
    assert crowds.stops(keys[3], END) == []
    crowds.learn(PREFIX, END, keys, 2_001)
    assert crowds.stops(keys[3], END) != []
    crowds.learn(PREFIX, END, keys[:2], 3)
    assert crowds.stops(keys[3], END) == []


def test_early_ends_are_digits_of_neighbours() -> None:
    """100,000 keys: fifty of them have the first two digits in common, or so."""
    crowds, keys = Crowds(), uuids(100_000)
    crowds.learn(PREFIX, END, keys[:50], len(keys))
    stops = crowds.stops(spelled(0xABCD << 112), END)
    assert stops in ([PREFIX + b"abd", PREFIX + b"ac", PREFIX + b"b"], [PREFIX + b"ac", PREFIX + b"b"])
    first = crowds.stops(PREFIX, END)
    assert first[0] > keys[0]


@given(
    st.lists(st.binary(min_size=1, max_size=4), min_size=16, max_size=40, unique=True),
    st.binary(min_size=1, max_size=5),
    st.one_of(st.just(b"\x00"), st.binary(min_size=1, max_size=3)),
)
def test_early_ends_rise_inside_the_range(keys: list[bytes], start: bytes, end: bytes) -> None:
    if end != b"\x00" and end <= start:
        return
    crowds = Crowds()
    crowds.learn(start, end, sorted(keys), 5_000)
    stops = crowds.stops(start, end)
    assert len(stops) <= 3
    assert stops == sorted(set(stops))
    assert all(start < stop and (end == b"\x00" or stop < end) for stop in stops)


# ---- what comes of it -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_walk_in_small_pages_finds_every_key_once_and_counts_little(
    counted: tuple[Engine, CountingTransport], etcd_program: None
) -> None:
    engine, transport = counted
    keys = uuids(4_000)
    crowded(engine, keys)
    transport.calls.clear()
    assert walked(engine, 50) == keys
    # Why these: behind them are 2,000 keys and fewer, which are not crowded.
    ends = [request.range_end for name, request in transport.calls if name == "Range" and request.key < keys[1_900]]
    assert ends[0] == END
    assert ends.count(END) <= len(ends) / 4
    assert len(ends) <= 3 * (1_900 / 50)
    for size in (1, 100, 101, 999, 4_000):
        some = keys if size > 90 else keys[:40]
        with engine.snapshot() as snapshot:
            assert list(islice(snapshot.keys(WHOLE), len(some))) == some
            assert list(snapshot.keys(WHOLE, limit=size)) == keys[:size]


@pytest.mark.slow
def test_where_the_crowd_has_gone_everything_is_found_too(
    counted: tuple[Engine, CountingTransport], etcd_program: None
) -> None:
    engine, transport = counted
    keys = uuids(2_100)
    crowded(engine, keys)
    assert walked(engine, 40) == keys
    kept = keys[::300]
    for start in range(0, len(keys), 100):
        gone = [key for key in keys[start : start + 100] if key not in kept]
        engine.commit(Commit((), tuple(map(Delete, gone))))
    assert walked(engine, 40) == kept
    transport.calls.clear()
    assert walked(engine, 40) == kept
    assert len(transport.calls) == 1  # learnt again: one call, up to the end
