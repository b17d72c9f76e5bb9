"""Lists, keys, entries, counts and pages: exactly the records asked for, in key order, all of one state."""

import gc
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from keyplan.engine import MemoryEngine
from keyplan.errors import InvalidInputError, InvalidKeyError, InvalidPageTokenError
from keyplan.layout import Layout, Table
from keyplan.store import Store
from tests.store.layouts import Blade, BladeKey, EventKey, Events, Rack, Site

RACKS = ["a", "ab", "abc", "b", "z"]
LOW = UUID("00000000-0000-0000-0000-000000000001")
HIGH = UUID("ffffffff-ffff-ffff-ffff-ffffffffffff")


@pytest.fixture
def racks(site: Site) -> Site:
    for name in RACKS:
        site.racks.insert(name, Rack(f"room {name}"))
        site.blades.insert(BladeKey(name, "1"), Blade(watts=1))
        site.blades.insert(BladeKey(name, "2"), Blade(watts=2))
    return site


def test_a_list_yields_all_records_in_key_order_and_no_others(racks: Site) -> None:
    assert list(racks.racks.list()) == [(name, Rack(f"room {name}")) for name in RACKS]
    assert list(racks.racks.keys()) == RACKS
    assert list(racks.racks.list(reverse=True)) == [(name, Rack(f"room {name}")) for name in reversed(RACKS)]


def test_a_prefix_is_a_whole_field_and_leaks_no_neighbour(racks: Site) -> None:
    assert list(racks.blades.keys("a")) == [BladeKey("a", "1"), BladeKey("a", "2")]
    assert list(racks.blades.keys("ab")) == [BladeKey("ab", "1"), BladeKey("ab", "2")]
    assert list(racks.blades.keys("c")) == []


def test_a_prefix_of_all_fields_is_one_record(racks: Site) -> None:
    assert list(racks.blades.list("a", "2")) == [(BladeKey("a", "2"), Blade(watts=2))]
    assert list(racks.racks.keys("ab")) == ["ab"]


def test_starts_with_is_a_partial_match_on_purpose(racks: Site) -> None:
    assert list(racks.racks.keys(starts_with="ab")) == ["ab", "abc"]
    assert list(racks.blades.keys("a", starts_with="2")) == [BladeKey("a", "2")]
    assert len(list(racks.blades.keys(starts_with="a"))) == 6


def test_bounds_take_the_first_and_leave_the_last(racks: Site) -> None:
    assert list(racks.racks.keys(at_least="ab", below="z")) == ["ab", "abc", "b"]
    assert list(racks.racks.keys(at_least="b")) == ["b", "z"]
    assert list(racks.racks.keys(below="ab")) == ["a"]
    assert list(racks.racks.keys(at_least="z", below="a")) == []


def test_a_limit_bounds_the_number_from_either_end(racks: Site) -> None:
    assert list(racks.racks.keys(limit=2)) == ["a", "ab"]
    assert list(racks.racks.keys(limit=2, reverse=True)) == ["z", "b"]
    assert list(racks.racks.keys(limit=0)) == []
    assert list(racks.racks.keys(limit=99)) == RACKS
    with pytest.raises(InvalidInputError):
        racks.racks.list(limit=-1)


def test_count_is_what_a_list_yields(racks: Site) -> None:
    assert racks.racks.count() == 5
    assert racks.blades.count("ab") == 2
    assert racks.racks.count(starts_with="ab") == 2
    assert racks.racks.count(at_least="ab", below="z") == 3


def test_entries_carry_history(site: Site) -> None:
    first = site.racks.insert("a", Rack("1"))
    second = site.racks.put("a", Rack("2"))

    (found,) = site.racks.entries()

    assert (found.key, found.record, found.create_revision, found.revision, found.version) == (
        "a",
        Rack("2"),
        first,
        second,
        2,
    )


def test_arguments_are_checked_at_the_call_not_at_the_first_record(racks: Site) -> None:
    for ask in (
        lambda: racks.racks.list("a", "b"),
        lambda: racks.blades.keys("a/b"),
        lambda: racks.racks.entries(starts_with="a", at_least="b"),
    ):
        with pytest.raises(InvalidKeyError):
            ask()


class Nested(Layout, root="n/"):
    """A table whose keys lie between those of another."""

    folders = Table("{folder}", key=str, value=str)
    files = Table("{folder}/file", key=str, value=str)


@pytest.mark.leaves("key-outside")
def test_keys_of_another_table_inside_the_range_are_not_shown(store: Store) -> None:
    nested = Nested(store)
    for name in "abc":
        nested.folders.insert(name, name)
        nested.files.insert(name, "text")

    assert list(nested.folders.keys()) == ["a", "b", "c"]
    assert list(nested.folders.keys(limit=2, reverse=True)) == ["c", "b"]
    assert nested.folders.count() == 3
    assert [key for key, _ in nested.folders.page(limit=2).records] == ["a", "b"]


@pytest.mark.leaves("key-outside")
def test_uuids_that_begin_with_ff_end_a_list_where_they_should(store: Store) -> None:
    events = Events(store)
    for dataset in (LOW, HIGH):
        for number in (0, 1, 2**64 - 1):
            events.events.insert(EventKey(dataset, number), b"%d" % number)

    assert [key.number for key in events.events.keys(HIGH)] == [0, 1, 2**64 - 1]
    assert [key.number for key in events.events.keys(LOW)] == [0, 1, 2**64 - 1]
    assert [key.number for key in events.events.keys(HIGH, at_least=1, below=2**64 - 1)] == [1]
    assert events.events.count() == 6
    assert next(events.events.keys(reverse=True)) == EventKey(HIGH, 2**64 - 1)


class NoRoot(Layout, root=b""):
    """Nothing before the first field: its highest prefix has no upper end."""

    items = Table(b"{item}", key=UUID, value=bytes)


def test_a_prefix_of_ff_alone_has_no_end_and_loses_nothing() -> None:
    with Store(MemoryEngine()) as store:
        items = NoRoot(store).items
        items.insert(HIGH, b"last")

        assert list(items.list(HIGH)) == [(HIGH, b"last")]
        assert list(items.list()) == [(HIGH, b"last")]


def test_a_list_is_one_state_whatever_is_written_meanwhile(racks: Site) -> None:
    names = []
    for name, rack in racks.racks.list():
        names.append(name)
        racks.racks.put(name, Rack("moved"))
        racks.racks.delete("b")
        racks.racks.put("zz", rack)
        assert rack == Rack(f"room {name}")

    assert names == RACKS


def test_a_list_that_is_given_up_gives_its_snapshot_back(racks: Site, store: Store) -> None:
    found = racks.racks.list()
    next(found)
    assert isinstance(found, Iterator)
    del found
    gc.collect()

    assert racks.racks.insert("new", Rack("x")) == store.revision


# ---- pages -----------------------------------------------------------------------------------------------------------------


def test_pages_continue_until_the_list_is_done(racks: Site, store: Store) -> None:
    first = racks.racks.page(limit=2)
    second = racks.racks.page(limit=2, token=first.next_token)
    third = racks.racks.page(limit=2, token=second.next_token)

    assert [key for page in (first, second, third) for key, _ in page.records] == RACKS
    assert first.next_token
    assert third.next_token == ""
    assert first.revision == store.revision


def test_a_full_last_page_has_no_token(racks: Site) -> None:
    assert racks.racks.page(limit=5).next_token == ""


def test_a_page_of_a_prefix_stays_within_it(racks: Site) -> None:
    first = racks.blades.page("ab", limit=1)
    second = racks.blades.page("ab", limit=1, token=first.next_token)

    assert [key for page in (first, second) for key, _ in page.records] == [BladeKey("ab", "1"), BladeKey("ab", "2")]
    assert second.next_token == ""
    assert [key for key, _ in racks.racks.page(starts_with="ab").records] == ["ab", "abc"]


def test_a_later_page_sees_the_latest_state_and_repeats_nothing(racks: Site) -> None:
    first = racks.racks.page(limit=2)
    racks.racks.delete("ab")
    racks.racks.insert("aa", Rack("before the place"))
    racks.racks.insert("ac", Rack("after the place"))

    assert [key for key, _ in racks.racks.page(limit=9, token=first.next_token).records] == ["abc", "ac", "b", "z"]


def _other_layout(site: Site, store: Store, token: str) -> object:
    class Site2(Layout, root="/site/"):
        racks = Table("racks/{rack}", key=str, value=Rack)

    return Site2(store).racks.page(token=token)


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda site, store, token: site.racks.page(token=token[:-3]), id="cut"),
        pytest.param(lambda site, store, token: site.racks.page(token=token + "A"), id="longer"),
        pytest.param(lambda site, store, token: site.racks.page(token="x" + token[1:]), id="changed"),
        pytest.param(lambda site, store, token: site.racks.page(token="not a token!"), id="other alphabet"),
        pytest.param(lambda site, store, token: site.racks.page(token="QUJD"), id="no token at all"),
        pytest.param(lambda site, store, token: site.blades.page(token=token), id="another table"),
        pytest.param(lambda site, store, token: site.racks.page(starts_with="a", token=token), id="another list"),
        pytest.param(lambda site, store, token: site.racks.page("a", token=token), id="another prefix"),
        pytest.param(_other_layout, id="another layout"),
    ],
)
def test_a_token_of_something_else_is_refused(
    racks: Site, store: Store, use: Callable[[Site, Store, str], object]
) -> None:
    token = racks.racks.page(limit=2).next_token

    with pytest.raises(InvalidPageTokenError):
        use(racks, store, token)


def test_a_token_is_fit_for_a_url(racks: Site) -> None:
    token = racks.racks.page(limit=2).next_token

    assert all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in token)


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_a_page_has_at_least_one_record_and_a_bound(racks: Site, limit: int) -> None:
    with pytest.raises(InvalidInputError):
        racks.racks.page(limit=limit)
