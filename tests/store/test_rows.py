"""Rows and pages over damaged records: each is reported in its place, and nothing behind it is out of reach."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from keyplan.engine import Commit, Delete, Put
from keyplan.errors import CorruptionError, InvalidInputError
from keyplan.layout import Damaged, Versioned
from keyplan.store import Store
from tests.store.layouts import Blade, BladeKey, Rack, Site

BROKEN = b"{broken"


@pytest.fixture(params=["store", "snapshot", "transaction"])
def damaged(request: pytest.FixtureRequest, engine_store: Store) -> Iterator[Site]:
    """Racks a to e, of which b and d are damaged; blades 1 to 3 in rack a, of which 2 is damaged."""
    site = Site(engine_store)
    for name in "abcde":
        site.racks.insert(name, Rack(f"room {name}"))
    for slot in "123":
        site.blades.insert(BladeKey("a", slot), Blade(f"s{slot}", ["t"]))
    broken = [b"/site/racks/b", b"/site/racks/d", b"/site/rack/a/blades/2"]
    engine_store.engine.commit(Commit((), tuple(Put(raw_key, BROKEN) for raw_key in broken)))
    if request.param == "store":
        yield site
    elif request.param == "snapshot":
        with site.snapshot() as pinned:
            yield pinned
    else:
        with site.transaction() as tx:
            yield tx


@pytest.fixture
def engine_store(opened: Any) -> Iterator[Store]:
    """A store that is not checked afterwards: it is damaged on purpose."""
    with Store(opened) as store:
        yield store


def shown(rows: Iterator[Versioned[Any, Any] | Damaged[Any]]) -> list[Any]:
    return [("damaged", row.key) if isinstance(row, Damaged) else (row.key, row.record) for row in rows]


def test_rows_have_each_record_or_that_it_is_damaged(damaged: Site) -> None:
    a, b, c, d, e = damaged.racks.rows()
    assert isinstance(a, Versioned)
    assert a == damaged.racks.versioned("a")
    assert isinstance(b, Damaged)
    assert (b.key, b.raw_key) == ("b", b"/site/racks/b")
    assert b.revision > a.revision
    assert isinstance(b.error, CorruptionError)
    assert b.error.facts["table"] == "racks"
    assert BROKEN.decode() not in str(b.error)
    assert shown(iter((c, d, e))) == [("c", Rack("room c")), ("damaged", "d"), ("e", Rack("room e"))]


def test_rows_take_what_a_list_takes(damaged: Site) -> None:
    assert shown(damaged.racks.rows(at_least="b", below="d")) == [("damaged", "b"), ("c", Rack("room c"))]
    assert shown(damaged.racks.rows(limit=2)) == [("a", Rack("room a")), ("damaged", "b")]
    assert shown(damaged.racks.rows(reverse=True, limit=2)) == [("e", Rack("room e")), ("damaged", "d")]
    assert shown(damaged.blades.rows("a", starts_with="2")) == [("damaged", BladeKey("a", "2"))]
    with pytest.raises(InvalidInputError, match="-1 records"):
        damaged.racks.rows(limit=-1)


def test_rows_of_an_index_are_in_its_order(damaged: Site) -> None:
    expected = [
        (BladeKey("a", "1"), Blade("s1", ["t"])),
        ("damaged", BladeKey("a", "2")),
        (BladeKey("a", "3"), Blade("s3", ["t"])),
    ]
    assert shown(damaged.by_serial.rows()) == expected
    assert shown(damaged.by_tag.rows("t")) == expected
    assert shown(damaged.by_tag.rows("t", limit=2)) == expected[:2]
    assert shown(damaged.by_serial.rows(reverse=True)) == expected[::-1]
    first = next(damaged.by_serial.rows())
    assert first == damaged.blades.versioned(BladeKey("a", "1"))
    for rows in (damaged.by_serial.rows, damaged.by_tag.rows):
        with pytest.raises(InvalidInputError, match="-1 records"):
            rows(limit=-1)


def test_an_index_entry_that_names_no_record_is_a_row(engine_store: Store) -> None:
    site = Site(engine_store)
    site.blades.insert(BladeKey("a", "1"), Blade("s1"))
    site.blades.insert(BladeKey("a", "3"), Blade("s3"))
    engine_store.engine.commit(Commit((), (Put(b"/site/by-serial/s2", b"no key"),)))
    one, two, three = site.by_serial.rows()
    assert isinstance(one, Versioned)
    assert isinstance(three, Versioned)
    assert isinstance(two, Damaged)
    assert (two.key, two.raw_key) == (None, b"/site/by-serial/s2")
    assert two.error.facts["index"] == "by_serial"
    with pytest.raises(CorruptionError):
        list(site.by_serial.list())


def test_an_index_entry_whose_record_is_gone_is_no_row(engine_store: Store) -> None:
    site = Site(engine_store)
    site.blades.insert(BladeKey("a", "2"), Blade("s2"))
    engine_store.engine.commit(Commit((), (Delete(b"/site/rack/a/blades/2"),)))
    assert list(site.by_serial.keys()) == [BladeKey("a", "2")]
    assert list(site.by_serial.rows()) == []


def test_a_list_goes_on_raising(damaged: Site) -> None:
    lists: list[Callable[[], Iterator[object]]] = [
        damaged.racks.list,
        damaged.racks.entries,
        damaged.by_serial.list,
        damaged.by_tag.list,
    ]
    for listed in lists:
        records = listed()
        next(records)
        with pytest.raises(CorruptionError):
            next(records)


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_pages_go_past_what_is_damaged(damaged: Site, limit: int) -> None:
    records: list[tuple[str, Rack]] = []
    broken: list[Damaged[str]] = []
    token = ""
    while True:
        page = damaged.racks.page(limit=limit, token=token)
        assert len(page.records) + len(page.damaged) <= limit
        records += page.records
        broken += page.damaged
        token = page.next_token
        if not token:
            break
    assert records == [(name, Rack(f"room {name}")) for name in "ace"]
    assert [row.key for row in broken] == ["b", "d"]
    assert [row.raw_key for row in broken] == [b"/site/racks/b", b"/site/racks/d"]


def test_a_page_without_damage_says_so(engine_store: Store) -> None:
    site = Site(engine_store)
    site.racks.insert("a", Rack("room"))
    page = site.racks.page()
    assert page.records == [("a", Rack("room"))]
    assert not page.damaged


def test_what_rows_have_read_is_a_premise_of_the_commit(engine_store: Store) -> None:
    site = Site(engine_store)
    site.racks.insert("a", Rack("room"))
    engine_store.engine.commit(Commit((), (Put(b"/site/racks/b", BROKEN),)))
    tx = engine_store.transaction()
    assert len(list(Site(tx).racks.rows())) == 2
    Site(tx).flags.put("seen", None)
    assert any(b"/site/racks/" in repr(guard).encode() for guard in tx.collected().guards)
    tx.close()
