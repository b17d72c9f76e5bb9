"""Levels of meaning: what they find is what decoding every key finds, and what lies between costs next to nothing."""

from string import ascii_lowercase
from typing import NamedTuple

import pytest

from keyplan.engine import ALL_KEYS, Commit, MemoryEngine, Put, RecordingEngine
from keyplan.errors import InvalidPageTokenError
from keyplan.layout import BoundLayout, Layout, Table
from keyplan.store import item_key_page, level_page, levels


class Part(NamedTuple):
    rack: str
    number: int


class Racks(Layout, root="r/"):
    tor = Table("rack/{rack}/tor", key=str, value=bytes)
    blades = Table("rack/{rack}/blades/{number}", key=Part, value=bytes)


class Event(NamedTuple):
    run: int
    event: int


class Packed(Layout):
    wide = Table(b"{run:u64}{event:u64}", key=Event, value=bytes)
    narrow = Table(b"{run:u64}", key=int, value=bytes)


class Street(NamedTuple):
    city: str
    street: str


class Hyphens(Layout):
    streets = Table("{city:text(allow='a-z-')}-{street:text(allow='w-z')}", key=Street, value=bytes)


RACKS = 40
BLADES = 60


@pytest.fixture
def engine() -> RecordingEngine:
    made = RecordingEngine(MemoryEngine())
    keys = [f"r/rack/{rack:02}/blades/{number}" for rack in range(RACKS) for number in range(BLADES)]
    keys += [f"r/rack/{rack:02}/tor" for rack in range(0, RACKS, 2)]
    keys += ["r/rack/", "r/rack/05/", "r/rack/05/blades/", "r/rack/05/blades/x", "r/rack/05/torx", "q", "s"]
    made.commit(Commit((), tuple(Put(key.encode(), b"") for key in keys)))
    made.calls.clear()
    return made


def reads_of(engine: RecordingEngine) -> int:
    read = sum(max(1, len(call.result)) for call in engine.calls if isinstance(call.result, list))
    engine.calls.clear()
    return read


@pytest.fixture
def bound() -> BoundLayout:
    return Racks.bound()


def test_values_are_those_of_all_keys_that_decode(engine: RecordingEngine, bound: BoundLayout) -> None:
    table = bound.tables["blades"]
    with engine.snapshot() as snapshot:
        decoded = [table.keys.decode(entry.key) for entry in snapshot.scan(ALL_KEYS)]
        numbers = [key.number for key in decoded if isinstance(key, Part) and key.rack == "05"]
        assert [level.value for level in levels(table, (), snapshot)] == [f"{rack:02}" for rack in range(RACKS)]
        assert [level.value for level in levels(table, ("05",), snapshot)] == numbers
        assert len(numbers) == BLADES


def test_keys_of_others_are_leapt_over(engine: RecordingEngine, bound: BoundLayout) -> None:
    with engine.snapshot() as snapshot:
        found = [level.value for level in levels(bound.tables["tor"], (), snapshot)]
    assert found == [f"{rack:02}" for rack in range(0, RACKS, 2)]
    # Why so many: two looks for a rack with a TOR, one for a rack without, each of a few keys; the blades are 2,400.
    assert reads_of(engine) <= 6 * RACKS


def test_pages_join_to_the_whole_whatever_their_length(engine: RecordingEngine, bound: BoundLayout) -> None:
    for name, prefix in (("blades", ()), ("blades", ("05",)), ("tor", ())):
        with engine.snapshot() as snapshot:
            whole = [level.value for level in levels(bound.tables[name], prefix, snapshot)]
            for limit in (1, 7, 1_000):
                joined, token, is_first = [], "", True
                while token or is_first:
                    page = level_page(bound.tables[name], prefix, snapshot, limit=limit, token=token, reads_max=1_000)
                    assert page.levels or not whole
                    joined += [level.value for level in page.levels]
                    token, is_first = page.next_token, False
                assert joined == whole


def test_a_page_ends_where_it_has_read_enough_and_the_next_goes_on_there(
    engine: RecordingEngine, bound: BoundLayout
) -> None:
    found, token, pages = [], "", 0
    with engine.snapshot() as snapshot:
        while token or not pages:
            page = level_page(bound.tables["tor"], (), snapshot, limit=100, token=token, reads_max=5)
            assert page.is_cut is bool(page.next_token)
            assert reads_of(engine) <= 6
            found += [level.value for level in page.levels]
            token, pages = page.next_token, pages + 1
    assert found == [f"{rack:02}" for rack in range(0, RACKS, 2)]
    assert pages > 5


def test_a_page_of_values_that_stand_among_each_other_reads_what_is_before_a_value_once() -> None:
    table = Hyphens.bound().tables["streets"]
    strangers = [f"york-a{first}{second}-z" for first in ascii_lowercase for second in ascii_lowercase[:12]]
    own = [f"york-{first}{second}" for first in "wxyz" for second in "wxyz"]
    with RecordingEngine(MemoryEngine()) as engine:
        engine.commit(Commit((), tuple(Put(key.encode(), b"") for key in [*strangers, *own])))
        engine.calls.clear()
        found, token, pages = [], "", 0
        with engine.snapshot() as snapshot:
            while token or not pages:
                page = level_page(table, (), snapshot, limit=1_000, token=token, reads_max=50)
                found += [level.value for level in page.levels]
                token, pages = page.next_token, pages + 1
                assert reads_of(engine) <= 2 * 50 + len(strangers)
    assert found == [*(key.removesuffix("-z") for key in strangers), "york"]


def test_keys_of_an_item_are_paged_with_their_raw_keys(engine: RecordingEngine, bound: BoundLayout) -> None:
    with engine.snapshot() as snapshot:
        first = item_key_page(bound.tables["tor"], (), snapshot, limit=2, reads_max=100)
        assert first.keys == [(b"r/rack/00/tor", "00"), (b"r/rack/02/tor", "02")]
        rest = item_key_page(bound.tables["tor"], (), snapshot, limit=100, token=first.next_token, reads_max=1_000)
        assert len(rest.keys) == RACKS // 2 - 2
        assert rest.next_token == ""


def test_values_can_be_narrowed_by_how_they_begin(engine: RecordingEngine, bound: BoundLayout) -> None:
    with engine.snapshot() as snapshot:
        page = level_page(bound.tables["tor"], (), snapshot, starts_with="1", limit=100, reads_max=100)
    assert [level.value for level in page.levels] == ["10", "12", "14", "16", "18"]


def test_binary_keys_are_told_apart_by_their_length() -> None:
    with MemoryEngine() as engine:
        runs = [(run << 56).to_bytes(8, "big") for run in range(1, 4)]
        events = [run + event.to_bytes(8, "big") for run in runs for event in range(50)]
        engine.commit(Commit((), tuple(Put(key, b"") for key in [*runs[1:], *events])))
        bound = Packed.bound()
        with engine.snapshot() as snapshot:
            narrow = level_page(bound.tables["narrow"], (), snapshot, limit=10, reads_max=30)
            assert [level.value for level in narrow.levels] == [2 << 56, 3 << 56]
            assert [level.value for level in levels(bound.tables["wide"], (1 << 56,), snapshot)] == list(range(50))


def test_a_token_of_another_list_is_refused(engine: RecordingEngine, bound: BoundLayout) -> None:
    blades, tor = bound.tables["blades"], bound.tables["tor"]
    with engine.snapshot() as snapshot:
        token = level_page(blades, (), snapshot, limit=1, reads_max=10).next_token
        for item, prefix, text in (
            (tor, (), token),
            (blades, ("05",), token),
            (blades, (), token[:-2]),
            (blades, (), "!"),
        ):
            with pytest.raises(InvalidPageTokenError):
                level_page(item, prefix, snapshot, limit=1, token=text, reads_max=10)
