"""At two hundred thousand keys a page reads as many entries as it may, whatever there is. Counted, not timed."""

import asyncio
from collections.abc import Iterator

import pytest

from keyplan.engine import RecordingEngine, open_engine
from tests.server.explorer.conftest import Explorer

ROOT = "/CloudChamber/V0.1"
IN = "/explore/in/-"


def pairs() -> Iterator[tuple[bytes, bytes]]:
    """A rack of a hundred thousand blades and its TOR, which lies behind them; and as many racks."""
    keys = [f"{ROOT}/rack/r1/blades/{number}" for number in range(100_000)]
    keys += [f"{ROOT}/rack/r1/tor", *(f"{ROOT}/racks/r{number}" for number in range(100_000))]
    return ((key.encode(), b"{}") for key in sorted(keys))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordingEngine]:
    folder = tmp_path_factory.mktemp("large")
    with RecordingEngine(open_engine(f"lmdb:{folder / 'store.kv'}?history=off")) as engine:
        engine.inner.load(pairs())
        yield engine


@pytest.fixture(scope="module")
def explorer(recorded: RecordingEngine) -> Iterator[Explorer]:
    with asyncio.Runner() as runner:
        made = Explorer(recorded, runner, {"layout": "cloudchamber"})
        yield made
        made.application.workers.close()


def entries_read(engine: RecordingEngine) -> int:
    """How many entries were read since this was asked last; a look that found nothing counts as one."""
    read = 0
    for call in engine.calls:
        assert call.method != "count", "a count goes through everything that it counts"
        read += max(1, len(call.result)) if isinstance(call.result, list) else 1
    engine.calls.clear()
    return read


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/explore/", 1_100),
        (f"{IN}/", 5_000),
        (f"{IN}/tree/cloudchamber/racks", 120),
        (f"{IN}/tree/cloudchamber/blades", 20),
        (f"{IN}/tree/cloudchamber/blades?field=r1", 120),
        (f"{IN}/tree/cloudchamber/tor", 20),
        (f"{IN}/list/cloudchamber/blades", 220),
        (f"{IN}/list/cloudchamber/tor", 20),
        (f"{IN}/key?hex=" + f"{ROOT}/racks/r7".encode().hex(), 40),
        (f"{IN}/raw?hex=" + f"{ROOT}/".encode().hex(), 30),
        (f"{IN}/raw?hex=" + f"{ROOT}/racks/".encode().hex(), 260),
    ],
)
def test_a_page_reads_a_bounded_number_of_entries(
    explorer: Explorer, recorded: RecordingEngine, path: str, allowed: int
) -> None:
    entries_read(recorded)
    data = explorer.data(path)
    assert entries_read(recorded) <= allowed
    following = data.get("next", "")
    if following:
        explorer.data(following)
        assert entries_read(recorded) <= allowed


def test_what_lies_behind_a_hundred_thousand_keys_of_others_is_found(explorer: Explorer) -> None:
    assert [one["value"] for one in explorer.data(f"{IN}/tree/cloudchamber/tor")["values"]] == ["r1"]


def test_a_count_stops_at_its_bound_and_says_so(explorer: Explorer) -> None:
    assert explorer.data("/explore/")["keys"] == {"number": 1_000, "is_more": True}
    assert "more than 1,000" in explorer.page("/explore/")
